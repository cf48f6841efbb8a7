//! The workspace of the configuration in the words of the backend.

use moongate_backend_workspace::{Options, files::FileOptions};
use moongate_config::{Confine, Network, Workspace};
use moongate_core::Scope;
use moongate_launch::Limits;
use moongate_proxy::member::Callers;

/// Who may know of it.
pub(crate) fn callers(workspace: &Workspace) -> Callers {
    match workspace.callers {
        moongate_config::Callers::Local => Callers::Local,
        moongate_config::Callers::Scope => Callers::Holding(Scope::new(Scope::CONTROL)),
    }
}

/// What commands may do and take.
pub(crate) fn options(workspace: &Workspace) -> Options {
    let limits = &workspace.limits;
    Options {
        network: match workspace.network {
            Network::None => moongate_launch::Network::None,
            Network::Outbound => moongate_launch::Network::Outbound,
        },
        required: workspace.confine == Confine::Required,
        files: FileOptions { max_file_size: limits.file.0, import_roots: workspace.import_roots.clone() },
        readable: workspace.readable.clone(),
        limits: Limits {
            memory: Some(limits.memory.0),
            cpu: Some(limits.cpu),
            open_files: Some(limits.open_files.get() as u64),
            processes: Some(limits.processes.get() as u64),
            file_size: Some(limits.file_size.0),
        },
        output: limits.output.0,
        running: limits.running.get(),
        wait: limits.wait,
    }
}
