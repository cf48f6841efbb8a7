//! What kind of data a file holds, by its ending.

use std::path::Path;

/// The kinds that clients show in their own way. Anything else is plain text or just bytes.
const KINDS: [(&str, &str); 31] = [
    ("bmp", "image/bmp"),
    ("c", "text/x-c"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("java", "text/x-java"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

/// The kind of the file at `path`, if its ending is known.
pub(crate) fn of(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let at = KINDS.binary_search_by_key(&&*extension, |(ending, _)| *ending).ok()?;
    KINDS.get(at).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_found_whatever_their_case() {
        for (ending, kind) in KINDS {
            assert_eq!(of(Path::new(&format!("a.b.{}", ending.to_uppercase()))), Some(kind));
        }
        assert_eq!(of(Path::new("a.unknown")), None);
        assert_eq!(of(Path::new("html")), None);
    }
}
