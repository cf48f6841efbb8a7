//! Hands files to the person: a dated copy or an archive under `exports/`, and a page that shows where it is.

use std::{
    ffi::OsStr,
    fmt::{self, Write},
    io,
    os::fd::OwnedFd,
    path::Path,
    time::SystemTime,
};

use moongate_core::{
    builtin::ToolOutput,
    html::{self, Escaped},
};
use serde::Deserialize;
use serde_json::json;

use super::{address, beneath, error::Error, file, path::RelativePath, zip::Archive};

/// Files of one archive.
pub(crate) const MAX_PACKED: usize = 1000;
/// The longest name of an archive, in characters.
pub(crate) const MAX_PACKAGE_NAME: usize = 50;
/// How many exports of one name a second may have.
const MAX_SAME: u32 = 1000;
/// Longer stems and endings are cut, so that together with a time they are names that a file system takes.
const MAX_STEM: usize = 150;
const MAX_ENDING: usize = 80;

#[derive(Deserialize)]
pub(crate) struct ExportFile {
    path: String,
    display_name: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ExportZip {
    files: Vec<String>,
    package_name: Option<String>,
    description: Option<String>,
}

/// Something that lies under `exports/` now.
struct Export<'a> {
    kind: &'static str,
    files: usize,
    path: String,
    size: usize,
    title: &'a str,
    description: &'a str,
    created_at: String,
}

pub(crate) fn file(
    root: &OwnedFd,
    arguments: &ExportFile,
    limit: u64,
    now: SystemTime,
) -> Result<ToolOutput, Error> {
    let path = RelativePath::parse(&arguments.path)?;
    let contents = file::read(root, &path, limit)?;
    let stem = path.as_path().file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let extension = path.as_path().extension().and_then(OsStr::to_str).unwrap_or_default();
    let copy = store(root, "exports/files", stem, extension, &contents, now)?;
    let export = Export {
        kind: "file",
        files: 1,
        path: copy,
        size: contents.len(),
        title: arguments.display_name.as_deref().unwrap_or(path.as_str()),
        description: arguments.description.as_deref().unwrap_or_default(),
        created_at: humantime::format_rfc3339_seconds(now).to_string(),
    };
    Ok(export.output(&[]))
}

pub(crate) fn zip(
    root: &OwnedFd,
    arguments: &ExportZip,
    limit: u64,
    now: SystemTime,
) -> Result<ToolOutput, Error> {
    let name = arguments.package_name.as_deref().unwrap_or("workspace_export");
    let is_plain = |name: &RelativePath| !name.is_room() && name.components().count() == 1;
    let package = RelativePath::parse(name).ok().filter(is_plain);
    let package =
        package.ok_or_else(|| Error::Invalid("package_name must be a plain name without /".to_owned()))?;
    let mut archive = Archive::default();
    let mut skipped = Vec::new();
    for path in &arguments.files {
        if let Err(error) = pack(root, path, limit, &mut archive) {
            skipped.push(format!("{path}: {error}"));
        }
    }
    if archive.files() == 0 {
        return Err(Error::NothingPacked(skipped.join("; ")));
    }
    let files = archive.files();
    let contents = archive.finish();
    let export = Export {
        kind: "zip",
        files,
        path: store(root, "exports/packages", package.as_str(), "zip", &contents, now)?,
        size: contents.len(),
        title: package.as_str(),
        description: arguments.description.as_deref().unwrap_or_default(),
        created_at: humantime::format_rfc3339_seconds(now).to_string(),
    };
    Ok(export.output(&skipped))
}

/// Adds a file, if the archive stays one that can be read: it is a file like any other.
fn pack(root: &OwnedFd, path: &str, limit: u64, archive: &mut Archive) -> Result<(), Error> {
    let path = RelativePath::parse(path)?;
    if archive.has(path.as_str()) {
        return Ok(());
    }
    let too_large = || Error::TooLarge { path: format!("an archive with {}", path.as_str()), limit };
    // No more is read than there is room for, however many files are named.
    let left = limit.checked_sub(archive.size_with(path.as_str()) as u64).ok_or_else(too_large)?;
    let contents = file::read(root, &path, left).map_err(|error| match error {
        Error::TooLarge { .. } => too_large(),
        error => error,
    })?;
    archive.add(path.as_str(), &contents);
    Ok(())
}

/// Puts `contents` into `directory` under a name that is new there: `<stem>_<time>.<extension>`. Returns its path.
fn store(
    root: &OwnedFd,
    directory: &str,
    stem: &str,
    extension: &str,
    contents: &[u8],
    now: SystemTime,
) -> Result<String, Error> {
    let opened =
        beneath::make_directories(root, Path::new(directory)).map_err(|error| Error::of(directory, error))?;
    let time =
        humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':', 'Z'], "").replace('T', "_");
    let stem = start(stem, MAX_STEM);
    let ending =
        if extension.is_empty() { String::new() } else { format!(".{}", start(extension, MAX_ENDING)) };
    for same in 1..=MAX_SAME {
        let number = if same == 1 { String::new() } else { format!("_{same}") };
        let name = format!("{stem}_{time}{number}{ending}");
        let path = format!("{directory}/{name}");
        match file::create_new(&opened, &name, contents) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::of(&path, error)),
        }
    }
    Err(Error::Denied(format!("{directory} has too many exports of this second. Try again")))
}

/// As much of `text` as `most` bytes hold.
fn start(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

impl Export<'_> {
    fn output(&self, skipped: &[String]) -> ToolOutput {
        let Self { kind, files, path, size, .. } = self;
        let uri = address::of(path);
        let mut text = format!("Exported {path} ({size} bytes). It can be read as {uri}");
        if !skipped.is_empty() {
            text.push_str("\nSkipped: ");
            text.push_str(&skipped.join("; "));
        }
        let told = json!({"export_type": kind, "file_count": files, "download_path": path, "uri": uri, "size": size,
            "created_at": self.created_at, "skipped": skipped});
        let annotations = json!({"export_type": kind, "file_count": files, "download_path": path,
            "created_at": self.created_at});
        let shown = path.strip_prefix("exports/").unwrap_or(path);
        let page = html::annotated_resource(
            &format!("ui://export/{}", address::encoded(shown)),
            &self.page(skipped),
            annotations,
        );
        ToolOutput::new(text, told).with_block(page)
    }

    fn page(&self, skipped: &[String]) -> String {
        let mut body = format!("<h1>{}</h1>", Escaped(self.title));
        self.write_body(&mut body, skipped).expect("writing to a string cannot fail");
        html::page(self.title, &body)
    }

    fn write_body(&self, body: &mut String, skipped: &[String]) -> fmt::Result {
        if !self.description.is_empty() {
            write!(body, "<p>{}</p>", Escaped(self.description))?;
        }
        body.push_str("<table><tbody>");
        let (files, size) = (self.files.to_string(), self.size.to_string());
        for (name, value) in
            [("Where", &self.path), ("Files", &files), ("Bytes", &size), ("Created", &self.created_at)]
        {
            write!(body, r#"<tr><th scope="row">{name}</th><td>{}</td></tr>"#, Escaped(value))?;
        }
        body.push_str("</tbody></table>");
        for skipped in skipped {
            write!(body, r#"<p class="muted">Skipped: {}</p>"#, Escaped(skipped))?;
        }
        Ok(())
    }
}
