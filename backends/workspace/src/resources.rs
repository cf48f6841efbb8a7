//! Files of a room as resources: `workspace:///` and a path.
//!
//! An address holds no session. It always means the caller's own room, so there is no other to reach. Files are read by
//! address and watched, but not listed: a room may hold any number of them, and `list_directory` shows them.

mod mime;
mod watch;

use std::{io, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use moongate_core::{
    CallError, Changes, Context, Kind, ResourcePage, Resources, SessionKey,
    builtin::{ResourceContents, ResourceData, TemplateSpec},
    task::Group,
};

use crate::{
    files::{FileOptions, address, error::Error, file, path::RelativePath},
    room::Room,
    tenants::{Tenant, Tenants},
};
use watch::Watches;

/// Reads and watches the files of rooms. Clones are the same.
#[derive(Clone, Debug)]
pub struct WorkspaceResources {
    rooms: Arc<Tenants>,
    max_file_size: u64,
    watches: Arc<Watches>,
    tasks: Group,
}

impl WorkspaceResources {
    /// Resources of `rooms`. Changes of watched files are told by `changes`, from a task of `tasks`.
    pub fn new(rooms: Arc<Tenants>, changes: Changes, tasks: Group) -> Self {
        let watches = Arc::new(Watches::new(changes));
        Self { rooms, max_file_size: FileOptions::default().max_file_size, watches, tasks }
    }

    /// The same for files as large as `options` say.
    pub(crate) fn with(&self, options: &FileOptions) -> Self {
        Self { max_file_size: options.max_file_size, ..self.clone() }
    }

    /// The transport session is over: nothing is watched for it any more.
    pub fn session_ended(&self, session: &SessionKey) {
        let (watches, session) = (Arc::clone(&self.watches), session.clone());
        self.tasks.spawn(async move {
            // Ending a watch waits for the watcher's thread.
            drop(tokio::task::spawn_blocking(move || watches.end_session(&session)).await);
        });
    }

    /// Does `work` in the caller's room, as `open` finds it, with the file that `uri` names, where blocking is fine.
    async fn with_file<T: Send + 'static>(
        &self,
        uri: &str,
        cx: &Context,
        open: fn(&Tenants, &Tenant) -> io::Result<Room>,
        work: impl FnOnce(Room, RelativePath) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let path = address::path(uri).ok_or_else(|| CallError::unknown_resource(uri))?;
        let (rooms, tenant) = (Arc::clone(&self.rooms), Tenant::of(cx));
        let done = tokio::task::spawn_blocking(move || {
            let room = open(&rooms, &tenant);
            work(room.map_err(|error| CallError::internal("The workspace cannot be opened", error))?, path)
        });
        done.await.unwrap_or_else(|error| Err(CallError::internal("The workspace broke off", error)))
    }
}

impl Resources for WorkspaceResources {
    fn templates(&self) -> Vec<TemplateSpec> {
        vec![TemplateSpec {
            uri_template: "workspace:///{+path}",
            name: "workspace-file",
            title: "Workspace file",
            description: "A file of this session's workspace, by its percent-encoded path. list_directory shows what is there.",
        }]
    }

    fn lists(&self) -> bool {
        false
    }

    async fn list(&self, _after: Option<&str>, _cx: &Context) -> Result<ResourcePage, CallError> {
        Ok(ResourcePage::default())
    }

    async fn read(&self, uri: &str, cx: &Context) -> Result<Vec<ResourceContents>, CallError> {
        let (limit, uri) = (self.max_file_size, uri.to_owned());
        let address = uri.clone();
        let work = move |room: Room, path: RelativePath| match file::read(room.directory(), &path, limit) {
            Ok(contents) => Ok(vec![resource(uri, &path, contents)]),
            Err(error) => Err(refusal(&uri, error)),
        };
        self.with_file(&address, cx, Tenants::look, work).await
    }

    async fn subscribe(&self, uri: &str, cx: &Context) -> Result<(), CallError> {
        self.watches.start(&self.tasks);
        let (watches, session, address) = (Arc::clone(&self.watches), cx.session_key(), Arc::from(uri));
        let add = move |room, path| Added::new(watches, session, address, room, path);
        self.with_file(uri, cx, Tenants::open, add).await.map(Added::keep)
    }

    async fn unsubscribe(&self, uri: &str, cx: &Context) -> Result<(), CallError> {
        let (watches, session, uri) = (Arc::clone(&self.watches), cx.session_key(), Arc::from(uri));
        let done = tokio::task::spawn_blocking(move || watches.remove(&session, &uri));
        done.await.map_err(|error| CallError::internal("The workspace broke off", error))
    }
}

/// A watch that is taken back if whoever asked for it has left before hearing of it.
struct Added(Option<(Arc<Watches>, SessionKey, Arc<str>)>);

impl Added {
    fn new(
        watches: Arc<Watches>,
        session: SessionKey,
        uri: Arc<str>,
        room: Room,
        path: RelativePath,
    ) -> Result<Self, CallError> {
        watches.add(session.clone(), Arc::clone(&uri), room, path)?;
        Ok(Self(Some((watches, session, uri))))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        if let Some((watches, session, uri)) = self.0.take() {
            drop(tokio::task::spawn_blocking(move || watches.remove(&session, &uri)));
        }
    }
}

fn resource(uri: String, path: &RelativePath, contents: Vec<u8>) -> ResourceContents {
    match String::from_utf8(contents) {
        Ok(text) => {
            let mime_type = mime::of(path.as_path()).unwrap_or("text/plain").to_owned();
            ResourceContents { uri, mime_type, data: ResourceData::Text(text) }
        }
        Err(binary) => {
            let mime_type = mime::of(path.as_path()).unwrap_or("application/octet-stream").to_owned();
            let blob = BASE64_STANDARD.encode(binary.as_bytes());
            ResourceContents { uri, mime_type, data: ResourceData::Blob(blob) }
        }
    }
}

/// What cannot be a resource is not there; the rest says why.
fn refusal(uri: &str, error: Error) -> CallError {
    match error {
        Error::TooLarge { .. } => CallError::client(Kind::InvalidParams, error.to_string()),
        Error::System { .. } => CallError::internal("The file cannot be read", error),
        _ => CallError::unknown_resource(uri),
    }
}

#[cfg(test)]
mod tests;
