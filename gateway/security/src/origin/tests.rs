//! Hosts and origins, with every spelling that tries to look local.

use proptest::prelude::*;

use super::*;
use crate::Shown;

fn origin_headers(values: &[&str]) -> Headers {
    values.iter().map(|value| ("origin", value.as_bytes())).collect()
}

#[test]
fn only_three_hosts_are_local() {
    for (text, local) in [
        ("localhost", true),
        ("LocalHost:3847", true),
        ("127.0.0.1", true),
        ("127.0.0.1:1", true),
        ("[::1]", true),
        ("[::1]:65535", true),
        ("[0:0:0:0:0:0:0:1]", true),
        ("localhost.", false),
        ("localhost.evil.com", false),
        ("evil-localhost", false),
        ("127.0.0.1.nip.io", false),
        ("127.0.0.2", false),
        ("127.1", false),
        ("2130706433", false),
        ("0x7f000001", false),
        ("0177.0.0.1", false),
        ("0.0.0.0", false),
        ("[::ffff:127.0.0.1]", false),
        ("[::]", false),
        ("xn--lcalhost-n2a", false),
        ("evil.example.com:3847", false),
    ] {
        assert_eq!(text.parse::<Authority>().unwrap().is_local(), local, "{text}");
    }
}

#[test]
fn what_is_no_host_does_not_parse() {
    for text in [
        "",
        ":",
        ":80",
        "localhost:",
        "localhost:+80",
        "localhost:65536",
        "localhost:8 0",
        "localhost:80:80",
        " localhost",
        "localhost ",
        "localhost@evil.com",
        "localhost:80@evil.com",
        "evil.com#localhost",
        "localhost/",
        "localhost\\",
        "lócalhost",
        "localhost%00",
        "::1",
        "[::1",
        "[::1]80",
        "[::1%25eth0]",
        "[localhost]",
        "[127.0.0.1]",
        "a,b",
    ] {
        assert_eq!(text.parse::<Authority>(), Err(ParseError::Authority), "{text:?}");
    }
    assert!("a".repeat(254).parse::<Authority>().is_err());
}

#[test]
fn a_listed_host_without_a_port_covers_every_port() {
    for (listed, given, covered) in [
        ("mcp.example.com", "MCP.example.com", true),
        ("mcp.example.com", "mcp.example.com:8443", true),
        ("mcp.example.com:8443", "mcp.example.com:8443", true),
        ("mcp.example.com:8443", "mcp.example.com", false),
        ("mcp.example.com:8443", "mcp.example.com:443", false),
        ("mcp.example.com", "example.com", false),
        ("example.com", "mcp.example.com", false),
        ("example.com", "example.com.evil.com", false),
        ("10.0.0.1", "10.0.0.1:80", true),
        ("[fd00::1]", "[fd00:0::1]:80", true),
    ] {
        let parse = |text: &str| text.parse::<Authority>().unwrap();
        assert_eq!(parse(listed).covers(&parse(given)), covered, "{listed} {given}");
    }
}

#[test]
fn origins_are_local_listed_or_refused() {
    let listed = ["https://ide.example.com", "vscode-webview://1abc", "http://intra:8080"];
    let listed: Vec<Origin> = listed.iter().map(|text| text.parse().unwrap()).collect();
    for (text, allowed) in [
        ("http://localhost", true),
        ("http://localhost:3000", true),
        ("https://localhost:3000", true),
        ("http://127.0.0.1:5173", true),
        ("https://[::1]:9", true),
        ("HTTP://LOCALHOST", true),
        ("https://ide.example.com", true),
        ("https://IDE.example.com:443", true),
        ("vscode-webview://1abc", true),
        ("http://intra:8080", true),
        ("http://intra", false),
        ("http://ide.example.com", false),
        ("https://ide.example.com:8443", false),
        ("https://ide.example.com.evil.com", false),
        ("https://evil.com/https://ide.example.com", false),
        ("https://a.ide.example.com", false),
        ("http://localhost.evil.com", false),
        ("http://127.0.0.1.nip.io", false),
        ("http://localhost:80@evil", false),
        ("http://localhost@evil.com", false),
        ("http://evil.com#localhost", false),
        ("http://evil.com?localhost", false),
        ("http://localhost/", false),
        ("http://localhost:3000/path", false),
        ("http://lоcalhost", false), // a Cyrillic letter
        ("ftp://localhost", false),
        ("file://localhost", false),
        ("://localhost", false),
        ("1http://localhost", false),
        ("localhost", false),
        ("//localhost", false),
        ("null", false),
        ("", false),
        ("*", false),
        ("http://localhost http://evil.com", false),
    ] {
        let headers = origin_headers(&[text]);
        let decision = cors(Shown::read(&headers).origin, &listed);
        let expected = if allowed { Cors::Allowed(headers.get("origin").unwrap()) } else { Cors::Refused };
        assert_eq!(decision, expected, "{text:?}");
    }
    let twice = origin_headers(&["http://localhost", "http://localhost"]);
    assert_eq!(cors(Said::Absent, &listed), Cors::Absent);
    assert_eq!(cors(Shown::read(&twice).origin, &listed), Cors::Refused);
}

#[test]
fn an_answer_names_the_origin_and_never_a_star() {
    let origin = b"http://localhost:3000";
    let mut answer = HeaderMap::new();
    reflect(origin, &mut answer);
    assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_ORIGIN], "http://localhost:3000");
    assert_eq!(answer[header::VARY], "Origin");
    assert_eq!(
        answer[header::ACCESS_CONTROL_EXPOSE_HEADERS],
        "Mcp-Session-Id, WWW-Authenticate, Retry-After"
    );
}

#[test]
fn a_preflight_allows_the_tool_headers_it_asks_for_and_no_others() {
    let origin = b"http://localhost:3000";
    let asking = |names: &str| -> Headers {
        [("access-control-request-headers", names.as_bytes())].into_iter().collect()
    };
    let request = asking("mcp-param-a, mcp-param-ä");
    let mut answer = HeaderMap::new();
    answer_preflight(origin, &request, &mut answer);
    // Not visible ASCII as a whole: nothing of it is taken.
    assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_HEADERS], ALLOW_HEADERS);

    let request = asking("authorization, Mcp-Param-Region, mcp-param-b, x-other, mcp-param-(, mcp");
    answer_preflight(origin, &request, &mut answer);
    let expected = format!("{ALLOW_HEADERS}, Mcp-Param-Region, mcp-param-b");
    assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_HEADERS], expected);
    assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_METHODS], "POST, GET, DELETE, OPTIONS");
    assert_eq!(answer[header::ACCESS_CONTROL_MAX_AGE], "86400");
}

proptest! {
    /// Whatever parses is written in the plain characters of an origin, so nothing else was let through.
    #[test]
    fn no_odd_character_gets_through(text in "(https?://)?\\PC{0,40}") {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]/+".contains(&byte));
        if text.parse::<Authority>().is_ok() || text.parse::<Origin>().is_ok() {
            prop_assert!(plain(&text), "{}", text);
        }
    }

    #[test]
    fn what_parses_reads_back_the_same(text in "(https?|tauri)://([a-z0-9.-]{1,20}|\\[[0-9a-f]::[0-9a-f]{1,4}\\])(:[0-9]{1,4})?") {
        if let Ok(origin) = text.parse::<Origin>() {
            prop_assert_eq!(origin.to_string().parse::<Origin>().unwrap(), origin);
        }
    }

    /// Whatever is put before or after a local name, the whole is local only if it is exactly that name and a port.
    #[test]
    fn nothing_can_be_glued_to_a_local_origin(before in "[a-z.@:/-]{0,6}", after in "[a-z.@:/0-9#?-]{0,8}") {
        let text = format!("http://{before}localhost{after}");
        let port = after.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        let exact = before.is_empty() && (after.is_empty() || port);
        let local = text.parse::<Origin>().is_ok_and(|origin| origin.is_local());
        prop_assert_eq!(local, exact, "{}", text);
    }
}
