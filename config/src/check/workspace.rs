//! The backend that runs commands.

use super::{Check, context::period, set};
use crate::model::backends::workspace::{RawWorkspace, RawWorkspaceLimits, Workspace, WorkspaceLimits};

pub(super) fn workspace(raw: RawWorkspace, workspace: &mut Workspace, check: &mut Check<'_>) {
    set(&mut workspace.backend.enabled, raw.enabled);
    set(&mut workspace.backend.tool_errors, raw.tool_errors);
    set(&mut workspace.callers, raw.callers);
    set(&mut workspace.network, raw.network);
    set(&mut workspace.confine, raw.confine);
    set(&mut workspace.root, raw.root);
    for (target, given) in
        [(&mut workspace.readable, raw.readable), (&mut workspace.import_roots, raw.import_roots)]
    {
        if let Some(paths) = given {
            *target = paths.value.into_iter().map(|path| path.value).collect();
        }
    }
    period(&mut workspace.retention, raw.retention, check);
    if let Some(raw) = raw.limits {
        limits(raw.value, &mut workspace.limits, check);
    }
}

fn limits(raw: RawWorkspaceLimits, limits: &mut WorkspaceLimits, check: &mut Check<'_>) {
    set(&mut limits.memory, raw.memory);
    period(&mut limits.cpu, raw.cpu, check);
    set(&mut limits.open_files, raw.open_files);
    set(&mut limits.processes, raw.processes);
    set(&mut limits.output, raw.output);
    set(&mut limits.file_size, raw.file_size);
    set(&mut limits.running, raw.running);
    period(&mut limits.wait, raw.wait, check);
    set(&mut limits.file, raw.file);
}
