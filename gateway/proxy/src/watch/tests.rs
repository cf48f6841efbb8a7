//! What sessions watch at a fake upstream, and let go of.

use moongate_config::Config;
use moongate_core::{Kind, Offer, Principal, Raw};
use moongate_storage::Note;
use moongate_wire::{Id, Method, Request, Version};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;
use crate::{
    edge::stdio,
    fake::{Fake, caller, catalog, gateway, local, record, resource},
    legacy::Place,
};

const VERSION: Version = Version::V2025_11_25;

struct Scene {
    gateway: Arc<Gateway>,
    upstream: Arc<Fake>,
}

impl Scene {
    fn new() -> Self {
        Self::leaving(|_| false)
    }

    /// A scene whose upstream leaves some calls without an answer.
    fn leaving(unanswered: fn(&Call) -> bool) -> Self {
        let offer = Offer { resources: vec![resource("x://a"), resource("x://b")], ..Offer::default() };
        let upstream =
            Arc::new(Fake::new(offer).leaving(unanswered).answering(|call| match &call.operation {
                Operation::Subscribe { uri } if **uri == *"x://b" => {
                    Err(CallError::upstream(Kind::Unavailable, "not this one"))
                }
                _ => Ok(Raw::empty_object()),
            }));
        let members = vec![Member::upstream("up", Arc::clone(&upstream) as Arc<_>)];
        let gateway = gateway(catalog(members, Config::default()), Config::default());
        Self { gateway, upstream }
    }

    async fn session(&self, id: &str) -> Arc<Live> {
        self.gateway.state().put(id, record()).await.unwrap();
        let counted = self.gateway.count_session(&Principal::local(), 10).unwrap();
        self.gateway.sessions.created(&id.into(), counted);
        self.gateway.sessions.enter(id)
    }

    async fn ask(&self, live: &Arc<Live>, method: Method, uri: &str) -> Outcome {
        let params = Params::read(Raw::of(&json!({"uri": uri}))).unwrap();
        let request = Request { id: Id::from(1), method: method.as_str().into(), params };
        let caller = caller(&self.gateway, VERSION).await;
        self.gateway.legacy_quick(&caller, &Place::Stored(live), method, &request).await
    }

    async fn end(&self, id: &str) {
        self.gateway.state().end(id).await.unwrap();
        self.gateway.hear(Note::SessionEnded { id: id.into(), record: Arc::new(record()) }).await;
        self.gateway.tasks.settle(RELEASE).await;
    }

    /// What the upstream was asked since the last time.
    fn told(&self) -> Vec<String> {
        let calls = std::mem::take(&mut *self.upstream.calls.lock().unwrap());
        let told = calls.into_iter().map(|call| match call.operation {
            Operation::Subscribe { uri } => format!("+{uri}"),
            Operation::Unsubscribe { uri } => format!("-{uri}"),
            other => panic!("{other:?}"),
        });
        told.collect()
    }
}

#[tokio::test]
async fn a_session_watches_once_and_ends_only_its_own() {
    let scene = Scene::new();
    let (one, other) = (scene.session("one").await, scene.session("other").await);
    for _ in 0..2 {
        scene.ask(&one, Method::Subscribe, "x://a").await.unwrap();
    }
    assert_eq!(scene.told(), ["+x://a"]);
    scene.ask(&other, Method::Unsubscribe, "x://a").await.unwrap();
    assert!(scene.told().is_empty(), "it is the first one's");
    for _ in 0..2 {
        scene.ask(&one, Method::Unsubscribe, "x://a").await.unwrap();
    }
    assert_eq!(scene.told(), ["-x://a"]);
    scene.ask(&one, Method::Subscribe, "x://a").await.unwrap();
    assert_eq!(scene.told(), ["+x://a"]);
}

#[tokio::test]
async fn what_an_ended_session_watched_is_released() {
    let scene = Scene::new();
    let (one, other) = (scene.session("one").await, scene.session("other").await);
    for live in [&one, &other] {
        scene.ask(live, Method::Subscribe, "x://a").await.unwrap();
        scene.ask(live, Method::Subscribe, "x://b").await.unwrap_err();
        scene.ask(live, Method::Subscribe, "x://unknown").await.unwrap_err();
    }
    assert_eq!(scene.told(), ["+x://a", "+x://b", "+x://a", "+x://b"]);
    scene.end("one").await;
    assert_eq!(scene.told(), ["-x://a"], "what was refused is not held");
    scene.ask(&one, Method::Subscribe, "x://a").await.unwrap_err();
    assert!(scene.told().is_empty(), "an ended session begins nothing");
    scene.end("other").await;
    assert_eq!(scene.told(), ["-x://a"]);
}

#[tokio::test]
async fn what_a_listen_watched_is_released_when_it_is_cancelled_before_it_began() {
    let scene =
        Scene::leaving(|call| matches!(&call.operation, Operation::Subscribe { uri } if **uri == *"x://b"));
    let caller = caller(&scene.gateway, VERSION).await;
    let wanted = json!({"notifications": {"resourceSubscriptions": ["x://a", "x://b"]}});
    let params = Params::read(Raw::of(&wanted)).unwrap();
    let mut listening = Box::pin(scene.gateway.listen(&caller, Id::from(1), &params));
    while scene.upstream.calls.lock().unwrap().len() < 2 {
        assert!(futures_util::poll!(&mut listening).is_pending());
        tokio::task::yield_now().await;
    }
    drop(listening);
    scene.gateway.tasks.settle(RELEASE).await;
    assert_eq!(scene.told(), ["+x://a", "+x://b", "-x://a"]);
}

#[tokio::test]
async fn what_a_pipe_watched_is_released_when_it_ends() {
    let scene = Scene::new();
    let peer = stdio::Peer { admitted: local().await, token: None, profile: None };
    let (client, server) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(server);
    let serving = stdio::serve(Arc::clone(&scene.gateway), peer, input, output, std::future::pending());
    let talking = async {
        let (answers, mut requests) = tokio::io::split(client);
        let mut answers = BufReader::new(answers).lines();
        let hello = json!({"protocolVersion": VERSION.as_str(), "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        for (method, params) in [("initialize", hello), ("resources/subscribe", json!({"uri": "x://a"}))] {
            let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            requests.write_all(format!("{request}\n").as_bytes()).await.unwrap();
            let answer = answers.next_line().await.unwrap().unwrap();
            assert!(answer.contains("result"), "{answer}");
        }
        assert_eq!(scene.told(), ["+x://a"]);
        requests.shutdown().await.unwrap();
    };
    tokio::join!(serving, talking);
    assert_eq!(scene.told(), ["-x://a"]);
}
