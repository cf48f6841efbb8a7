//! Backends that do as a test says, and a gateway around them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use moongate_config::Config;
use moongate_core::{
    Backend, BoxFuture, Call, CallError, Client, Clock, Context, Offer, Principal, Prompt, Raw, Reply,
    Resource, ResourcePage, Scope, Scopes, SessionKey, Soon, Template, Tool,
};
use moongate_security::{
    Authenticator, Credentials, Identity, Secret, Verdict,
    gate::{Admitted, Gate, Settings},
    keyring::Keyring,
    policy::Rules,
};
use moongate_storage::{MemoryOptions, MemoryState, SessionRecord};
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
    /// The resources of each caller, by number behind this scheme, and how many there are on a page.
    pub(crate) own: Option<(&'static str, usize, usize)>,
    /// Which calls are never answered.
    unanswered: fn(&Call) -> bool,
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
            own: None,
            unanswered: |_| false,
        }
    }

    pub(crate) fn answering<T: Into<Reply>>(
        self,
        answer: impl Fn(&Call) -> Result<T, CallError> + Send + Sync + 'static,
    ) -> Self {
        Self { answer: Box::new(move |call| answer(call).map(Into::into)), ..self }
    }

    /// The same, leaving some calls without an answer.
    pub(crate) fn leaving(self, unanswered: fn(&Call) -> bool) -> Self {
        Self { unanswered, ..self }
    }

    /// The same, with so many resources for every caller, and so many on a page.
    pub(crate) fn owning(self, scheme: &'static str, count: usize, page: usize) -> Self {
        Self { own: Some((scheme, count, page)), ..self }
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
        let (answer, unanswered) = ((self.answer)(&call), (self.unanswered)(&call));
        self.calls.lock().unwrap().push(call);
        if unanswered {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move { answer })
    }

    fn resources<'a>(
        &'a self,
        after: Option<&'a str>,
        cx: &'a Context,
    ) -> BoxFuture<'a, Result<ResourcePage, CallError>> {
        let (scheme, count, page) = self.own.unwrap_or_default();
        let begin = after.map_or(0, |after| after.parse().unwrap());
        let end = count.min(begin + page);
        let session = &cx.ids.session;
        let own = |number| Resource::clone(&resource(&format!("{scheme}://{session}/{number}")));
        let resources = (begin..end).map(own).collect();
        let next = (end < count).then(|| end.to_string());
        Box::pin(std::future::ready(Ok(ResourcePage { resources, next })))
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

/// Lets everybody in as one and the same.
struct Everybody(Identity);

impl Authenticator for Everybody {
    fn authenticate<'a>(&'a self, _: &'a Credentials<'a>) -> Soon<'a, Verdict> {
        Soon::now(Verdict::Admit(self.0.clone()))
    }
}

/// Somebody with these scopes.
pub(crate) async fn admitted(principal: Principal, scopes: &[&str]) -> Admitted {
    let scopes: Scopes = scopes.iter().copied().map(Scope::new).collect();
    let identity = Identity { principal, scopes: Arc::new(scopes) };
    let state = Arc::new(MemoryState::new(MemoryOptions::default()));
    let gate = Gate::new(Settings::default(), vec![Arc::new(Everybody(identity))], state);
    gate.admit_local(Some("")).await.unwrap()
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

/// A legacy session of the local user.
pub(crate) fn record() -> SessionRecord {
    SessionRecord {
        layout: SessionRecord::LAYOUT,
        principal: Principal::local().to_string(),
        path: String::new(),
        version: Version::V2025_11_25,
        capabilities: Raw::empty_object(),
        info: None,
        log_level: None,
        subscriptions: BTreeMap::new(),
    }
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
