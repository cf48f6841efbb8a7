//! Copies a file into the room, from directories that the operator has opened for that.

use std::{
    os::fd::OwnedFd,
    path::{Component, Path},
};

use moongate_core::builtin::ToolOutput;
use rustix::fs::{CWD, Mode, OFlags};
use serde::Deserialize;
use serde_json::json;

use super::{FileOptions, error::Error, file, path::RelativePath};

#[derive(Deserialize)]
pub(crate) struct Import {
    src_abs_path: String,
    dest_rel_path: String,
}

pub(crate) fn import(root: &OwnedFd, arguments: &Import, options: &FileOptions) -> Result<ToolOutput, Error> {
    let source = Path::new(&arguments.src_abs_path);
    if !source.is_absolute() || arguments.src_abs_path.contains('\0') {
        return Err(Error::Invalid("src_abs_path must be an absolute path".to_owned()));
    }
    if source.components().any(|component| component == Component::ParentDir) {
        return Err(Error::Path("must not contain .. components"));
    }
    let destination = RelativePath::parse(&arguments.dest_rel_path)?;
    let contents = read(source, options)?;
    file::replace(root, &destination, &contents, options.max_file_size)?;
    let text = format!("Imported {} bytes: {}", contents.len(), destination.as_str());
    let told =
        json!({"source": arguments.src_abs_path, "path": destination.as_str(), "size": contents.len()});
    Ok(ToolOutput::new(text, told))
}

/// What `source` holds, if it lies below one of the open directories: as for a room, no link leads out of them.
fn read(source: &Path, options: &FileOptions) -> Result<Vec<u8>, Error> {
    if options.import_roots.is_empty() {
        return Err(Error::Denied(
            "no directory is open for imports. The operator can list some in backends.workspace.import_roots"
                .to_owned(),
        ));
    }
    for root in &options.import_roots {
        let Ok(inner) = source.strip_prefix(root) else { continue };
        let path = RelativePath::parse(&inner.to_string_lossy())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, root, flags, Mode::empty());
        let directory = directory.map_err(|error| Error::of(&root.to_string_lossy(), error))?;
        return file::read(&directory, &path, options.max_file_size);
    }
    Err(Error::Denied(format!(
        "{} is in none of the directories that are open for imports (backends.workspace.import_roots)",
        source.display()
    )))
}
