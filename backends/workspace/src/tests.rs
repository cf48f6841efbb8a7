//! Sessions that end while something is still on its way.

use std::fs;

use moongate_core::Principal;
use serde_json::json;

use super::*;

struct Scene {
    directory: tempfile::TempDir,
    workspace: Workspace,
}

impl Scene {
    fn set() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let changes = Changes::new(|_| {});
        let site = Site::new(directory.path().to_owned(), "no launcher".into(), changes, Clock::system());
        let options = Options {
            network: Network::None,
            required: false,
            files: FileOptions::default(),
            readable: Vec::new(),
            limits: Limits::default(),
            output: 1,
            running: 1,
            wait: Duration::from_secs(1),
        };
        Self { workspace: Workspace::new(Arc::new(site), options), directory }
    }

    async fn call(
        &self,
        tool: &str,
        arguments: serde_json::Value,
        cx: &Context,
    ) -> Result<ToolOutput, ToolError> {
        self.workspace.call_tool(tool, Raw::of(&arguments), cx).await
    }

    /// How many rooms there are, those included that wait for their removal.
    fn rooms(&self) -> usize {
        let entries = fs::read_dir(self.directory.path()).unwrap().flatten();
        entries.filter(|entry| !["output", "empty"].iter().any(|name| entry.file_name() == *name)).count()
    }
}

/// A call of a transport's session.
fn passing(session: &str) -> Context {
    let cx = Context::for_test(Principal::local(), session, None, None);
    Context { transport_session: Some(session.into()), ..cx }
}

#[tokio::test]
async fn a_call_that_comes_after_the_end_of_its_session_brings_nothing_back() {
    let scene = Scene::set();
    let cx = passing("t");
    let write = json!({"path": "f", "content": "x"});
    scene.call("write_file", write.clone(), &cx).await.unwrap();
    assert_eq!(scene.rooms(), 1);
    scene.workspace.session_ended(&cx.session_key());
    scene.workspace.site.ends.settle(LAST_ENDS).await;
    assert_eq!(scene.rooms(), 0);
    for (tool, arguments) in [
        ("write_file", write),
        ("execute_command", json!({"command": "true"})),
        ("execute_shell", json!({"command": "true"})),
    ] {
        assert!(scene.call(tool, arguments, &cx).await.is_err(), "{tool}");
        assert_eq!(scene.rooms(), 0, "{tool}");
    }
    let subscribed =
        moongate_core::Resources::subscribe(&scene.workspace.site.resources, "workspace:///f", &cx);
    assert!(subscribed.await.is_err());
    assert_eq!(scene.rooms(), 0);
}

#[tokio::test]
async fn a_process_is_not_started_in_a_session_that_ends_after_its_room_was_opened() {
    let scene = Scene::set();
    let cx = passing("t");
    let site = &scene.workspace.site;
    let room = site.room(&cx).await.unwrap();
    site.rooms.end(&cx.session_key());
    let (session, command) = (cx.session_key(), "true".to_owned());
    let order = process::Order { session, command, wall: None, room, options: &scene.workspace.options };
    let refused = site.processes.start(order).await.unwrap_err();
    assert_eq!(refused.to_string(), "The session is over");
    assert!(site.busy().is_empty());
}

#[tokio::test]
async fn a_session_that_ends_while_the_workspace_is_switched_off_takes_its_room_along() {
    let scene = Scene::set();
    let cx = passing("t");
    scene.call("write_file", json!({"path": "f", "content": "x"}), &cx).await.unwrap();
    let closed = Closed(Arc::clone(&scene.workspace.site));
    assert!(closed.tools().is_empty());
    closed.session_ended(&cx.session_key());
    scene.workspace.site.ends.settle(LAST_ENDS).await;
    assert_eq!(scene.rooms(), 0);
}
