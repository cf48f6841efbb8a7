//! The file with the figures: one section for each part, of which a run replaces its own.

use std::path::Path;

use anyhow::{Context as _, Result};

const HEADER: &str = "# Figures of the last runs

Written by `./bench`; edits are lost. Ratios compare two servers, or two ways to call one, in the same run: rounds are
interleaved, and each figure is the median of all rounds with its quartiles in parentheses.
";

/// Puts `sections` (name and text) into the file at `path`, in the order of `names`; others stay as they are.
pub fn write(path: &Path, names: &[&str], sections: &[(&str, String)]) -> Result<()> {
    let known = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    std::fs::write(path, merge(&known, names, sections))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn merge(known: &str, names: &[&str], sections: &[(&str, String)]) -> String {
    let mut out = HEADER.to_owned();
    for name in names {
        let new = sections.iter().find(|(section, _)| section == name).map(|(_, text)| text.as_str());
        if let Some(text) = new.or_else(|| old(known, name)) {
            out.extend(["\n## ", name, "\n\n", text.trim(), "\n"]);
        }
    }
    out
}

/// The text under a heading.
fn old<'a>(known: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = known.split_once(&format!("\n## {name}\n"))?;
    Some(rest.split_once("\n## ").map_or(rest, |(text, _)| text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_replaces_its_own_sections_only() {
        let names = ["calls", "memory", "start"];
        let first = merge("", &names, &[("start", "5 ms".to_owned()), ("calls", "fast".to_owned())]);
        assert!(first.ends_with("\n## calls\n\nfast\n\n## start\n\n5 ms\n"), "{first}");
        let second =
            merge(&first, &names, &[("memory", "little\n".to_owned()), ("start", "4 ms".to_owned())]);
        assert!(
            second.ends_with("\n## calls\n\nfast\n\n## memory\n\nlittle\n\n## start\n\n4 ms\n"),
            "{second}"
        );
        assert_eq!(merge(&second, &names, &[]), second);
    }
}
