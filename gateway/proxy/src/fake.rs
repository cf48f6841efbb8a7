//! Backends that do as a test says, and a gateway around them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use moongate_config::Config;
use moongate_core::{
    Backend, BoxFuture, Call, CallError, Client, Clock, Context, Offer, Prompt, Raw, Reply, Resource, Scope,
    SessionKey, Template, Tool,
};
use moongate_security::{
    Secret,
    gate::{Admitted, Gate, Settings},
    keyring::Keyring,
    policy::Rules,
};
use moongate_storage::{MemoryOptions, MemoryState};
use moongate_telemetry::{Metrics, Transport};
use moongate_wire::Version;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    Catalog, Gateway, Member, Parts, Snapshot,
    engine::Caller,
    gateway::{Announced, StateHandle},
};

type Answer = dyn Fn(&Call) -> Result<Reply, CallError> + Send + Sync;

/// A backend that offers what it is told and notes what it is called with.
pub(crate) struct Fake {
    offer: Mutex<Arc<Offer>>,
    answer: Box<Answer>,
    /// Offers wait for it, if there is one.
    pub(crate) held: Option<Notify>,
    /// How often it was asked what it offers.
    pub(crate) asked: AtomicUsize,
    /// Told each time it is asked.
    pub(crate) asking: Notify,
    /// The calls it got.
    pub(crate) calls: Mutex<Vec<Call>>,
}

impl Fake {
    pub(crate) fn new(offer: Offer) -> Self {
        Self {
            offer: Mutex::new(Arc::new(offer)),
            answer: Box::new(|_| Ok(Raw::empty_object().into())),
            held: None,
            asked: AtomicUsize::new(0),
            asking: Notify::new(),
            calls: Mutex::default(),
        }
    }

    pub(crate) fn answering<T: Into<Reply>>(
        self,
        answer: impl Fn(&Call) -> Result<T, CallError> + Send + Sync + 'static,
    ) -> Self {
        Self { answer: Box::new(move |call| answer(call).map(Into::into)), ..self }
    }

    /// The same, offering nothing until it is let go.
    pub(crate) fn held(self) -> Self {
        Self { held: Some(Notify::new()), ..self }
    }

    pub(crate) fn let_go(&self) {
        self.held.as_ref().unwrap().notify_one();
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn last_call(&self) -> Call {
        self.calls.lock().unwrap().last().unwrap().clone()
    }
}

impl Backend for Fake {
    fn offer<'a>(&'a self, _cx: &'a Context) -> BoxFuture<'a, Arc<Offer>> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.asking.notify_one();
            if let Some(held) = &self.held {
                held.notified().await;
            }
            Arc::clone(&self.offer.lock().unwrap())
        })
    }

    fn call<'a>(&'a self, call: Call, _cx: &'a Context) -> BoxFuture<'a, Result<Reply, CallError>> {
        let answer = (self.answer)(&call);
        self.calls.lock().unwrap().push(call);
        Box::pin(async move { answer })
    }

    fn roots_changed(&self, _session: &SessionKey) {}

    fn session_ended(&self, _session: &SessionKey) {}
}

/// A tool of this name with an empty schema.
pub(crate) fn tool(name: &str) -> Arc<Tool> {
    defined(&json!({"name": name, "description": name, "inputSchema": {"type": "object"}}))
}

pub(crate) fn defined(definition: &Value) -> Arc<Tool> {
    Arc::new(Tool {
        name: definition["name"].as_str().unwrap().into(),
        aliases: Vec::new(),
        definition: Raw::of(definition),
        scope: Scope::read(),
        header_params: Vec::new(),
    })
}

pub(crate) fn prompt(name: &str) -> Arc<Prompt> {
    Arc::new(Prompt { name: name.into(), definition: Raw::of(&json!({"name": name})) })
}

pub(crate) fn resource(uri: &str) -> Arc<Resource> {
    Arc::new(Resource { uri: uri.into(), definition: Raw::of(&json!({"uri": uri, "name": uri})) })
}

pub(crate) fn template(uri: &str) -> Arc<Template> {
    Arc::new(Template {
        uri_template: uri.into(),
        definition: Raw::of(&json!({"uriTemplate": uri, "name": uri})),
    })
}

pub(crate) fn tools(names: &[&str]) -> Offer {
    Offer { tools: names.iter().map(|name| tool(name)).collect(), ..Offer::default() }
}

pub(crate) fn gate() -> Gate {
    Gate::new(Settings::default(), Vec::new(), Arc::new(MemoryState::new(MemoryOptions::default())))
}

/// The local user, who may do everything.
pub(crate) async fn local() -> Admitted {
    gate().admit_local(None).await.unwrap()
}

pub(crate) fn catalog(members: Vec<Member>, config: Config) -> Catalog {
    Catalog::new(members, Arc::new(config), Rules::default(), Arc::new(Metrics::new()))
}

pub(crate) fn gateway(catalog: Catalog, config: Config) -> Arc<Gateway> {
    Gateway::new(Parts {
        snapshot: Snapshot { config: Arc::new(config), gate: gate(), catalog },
        state: StateHandle(Arc::new(MemoryState::new(MemoryOptions::default()))),
        keyring: Arc::new(Keyring::fixed(&Secret::random()).unwrap()),
        metrics: Arc::new(Metrics::new()),
        clock: Clock::system(),
        announced: Announced::new(),
    })
}

pub(crate) async fn caller(gateway: &Gateway, version: Version) -> Caller {
    Caller {
        snapshot: gateway.snapshot(),
        admitted: Arc::new(local().await),
        profile: None,
        client: Arc::new(Client::bare(version)),
        transport: Transport::Tcp,
        header_ids: Default::default(),
        trace: None,
        transport_session: Some("s1".into()),
        log_level: None,
    }
}
