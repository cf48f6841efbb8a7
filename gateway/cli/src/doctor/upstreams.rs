//! How one server behind the gateway is, in a line and what belongs to it.

use super::report::Finding;
use crate::find::Upstream;

/// Lines of its standard error that are shown; `--json` has them all.
const STDERR: usize = 5;
/// Definitions left out that are shown; `--json` has them all.
const LEFT_OUT: usize = 5;

/// What there is to say about a server.
pub(super) fn findings(upstream: &Upstream) -> Vec<Finding> {
    let area = upstream.name.as_str();
    let state = summary(upstream);
    let finding = if upstream.state == "down" {
        let error = upstream.last_error.as_deref().unwrap_or("it cannot be reached");
        Finding::problem(area, format!("{state}: {error}"), advice(error))
    } else {
        Finding::fine(area, state)
    };
    let mut findings = vec![finding.with_details(details(upstream))];
    if !upstream.left_out.is_empty() {
        let count = upstream.left_out.len();
        let what = if count == 1 { "1 definition is".to_owned() } else { format!("{count} definitions are") };
        let named = upstream.left_out.iter().take(LEFT_OUT).cloned().collect();
        findings.push(Finding::note(area, format!("{what} left out")).with_details(named));
    }
    findings
}

fn summary(upstream: &Upstream) -> String {
    let mut parts = vec![upstream.state.clone()];
    match (&upstream.era, &upstream.version) {
        (Some(era), Some(version)) => parts.push(format!("{era} {version}")),
        (Some(only), None) | (None, Some(only)) => parts.push(only.clone()),
        (None, None) => {}
    }
    parts.extend(upstream.server.as_deref().map(plain));
    if let Some([tools, prompts, resources, templates]) = upstream.offers {
        let counted = [(tools, "tool"), (prompts, "prompt"), (resources + templates, "resource")];
        parts.extend(
            counted.map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" })),
        );
    }
    match upstream.starts {
        0 => {}
        1 => parts.push("started once".to_owned()),
        starts => parts.push(format!("started {starts} times")),
    }
    parts.join(", ")
}

fn details(upstream: &Upstream) -> Vec<String> {
    let mut details = upstream.notes.clone();
    if upstream.state != "down" {
        details.extend(upstream.last_error.as_ref().map(|error| format!("last error: {error}")));
    }
    let skipped = upstream.stderr.len().saturating_sub(STDERR);
    details.extend(upstream.stderr.iter().skip(skipped).map(|line| format!("stderr: {}", plain(line))));
    details
}

/// What a server wrote, without what would command the terminal.
fn plain(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).collect()
}

/// What to do about a server that cannot be reached, told from the words that say why.
fn advice(error: &str) -> &'static str {
    let lower = error.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says(&["not found", "no such file"]) {
        "install the program, or give its whole path as `command:`"
    } else if says(&["401", "403", "credentials"]) {
        "correct the credentials in its `headers:` or `env:`"
    } else if says(&["cannot connect", "lookup"]) {
        "check host and port of its `url:`, and that the server runs there"
    } else if says(&["certificate", "tls"]) {
        "name the certificate authority under its `tls: {ca: …}`"
    } else if says(&["did not start", "did not answer", "timed out"]) {
        "start it by hand to see what it waits for; a first start may have to fetch packages"
    } else {
        "start it or visit it by hand with the same `command:` or `url:`; it may say more there"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_in_a_line_and_its_details() {
        let upstream = Upstream {
            name: "github".into(),
            state: "up".into(),
            version: Some("2025-11-25".into()),
            era: Some("legacy".into()),
            server: Some("github-mcp 1.2".into()),
            starts: 2,
            offers: Some([24, 2, 1, 3]),
            left_out: vec!["tool bare: it has no inputSchema".into()],
            last_error: Some("it ended".into()),
            stderr: (1..=7).map(|line| format!("line {line}\u{1b}")).collect(),
            notes: vec!["memory is limited by cgroup".into()],
            ..Upstream::default()
        };
        let findings = findings(&upstream);
        let expected =
            "up, legacy 2025-11-25, github-mcp 1.2, 24 tools, 2 prompts, 4 resources, started 2 times";
        assert_eq!(findings[0].text, expected);
        let details = ["memory is limited by cgroup", "last error: it ended"].map(str::to_owned);
        let stderr = (3..=7).map(|line| format!("stderr: line {line}"));
        assert_eq!(findings[0].details, details.into_iter().chain(stderr).collect::<Vec<_>>());
        assert_eq!(findings[1].text, "1 definition is left out");
        assert_eq!(findings[1].details, upstream.left_out);
    }

    #[test]
    fn a_server_that_is_down_comes_with_advice() {
        for (error, expected) in [
            ("the command npx was not found in PATH=/bin", "install the program"),
            ("the server answered with HTTP status 401 (…)", "credentials"),
            ("cannot connect to mcp.example.com:443: Name or service not known", "host and port"),
            ("cannot speak TLS with x:1: invalid peer certificate", "certificate authority"),
            ("it did not start within 60 s", "start it by hand"),
            ("it ended", "by hand"),
        ] {
            let (name, state) = ("x".into(), "down".into());
            let upstream = Upstream { name, state, last_error: Some(error.into()), ..Upstream::default() };
            let finding = &findings(&upstream)[0];
            assert_eq!(finding.text, format!("down: {error}"));
            assert!(finding.advice.as_deref().is_some_and(|advice| advice.contains(expected)), "{finding:?}");
        }
    }
}
