//! Requests that exist in the version and came at the right time: what each of them is answered, and who is told of changes.

use serde_json::{Value, json};

use super::{Effect, Listen, Script, Stream, notification};
use crate::{
    Misbehaviour,
    call::Call,
    offer,
    rules::{self, PREFIX},
    tasks, tools,
};

impl Script {
    /// Answers what exists in this version.
    pub(super) fn dispatch(&mut self, call: Call) {
        let version = self.setup.version;
        self.breaches(rules::foreign(version, &call.method, &call.params));
        let wrong = rules::parameters(version, &call.method, &call.params);
        if let Some(first) = wrong.first().cloned() {
            self.breaches(wrong);
            return self.fail(&call, -32602, &first, None);
        }
        match call.method.as_str() {
            "tools/call" => self.call(call),
            "tools/list" => {
                let mut tools = tools::list(version, &self.setup.chaos, self.added);
                tools.extend(self.setup.tasks.then(tasks::definition));
                self.page(&call, "tools", &tools);
            }
            "prompts/list" => self.page(&call, "prompts", &offer::prompts()),
            "resources/list" => self.page(&call, "resources", &offer::resources()),
            "resources/templates/list" => self.page(&call, "resourceTemplates", &offer::templates()),
            "prompts/get" => match offer::prompt(&call.params) {
                Some(prompt) => self.respond(&call, prompt),
                None => self.fail(&call, -32602, "unknown prompt", None),
            },
            "resources/read" => self.read(&call),
            "completion/complete" => self.respond(&call, offer::complete(&call.params)),
            "server/discover" => {
                let mut capabilities = offer::capabilities(version);
                if self.setup.tasks {
                    capabilities["extensions"] = tasks::extension();
                }
                let result = json!({
                    "supportedVersions": [version.name()],
                    "capabilities": capabilities,
                    "instructions": offer::INSTRUCTIONS,
                });
                self.respond(&call, result);
            }
            "subscriptions/listen" => self.listen(&call),
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.act_on_task(&call),
            "resources/subscribe" => self.subscribe(&call),
            "resources/unsubscribe" => {
                if !self.subscribed.remove(call.uri()) {
                    self.breach(format!("{} was not subscribed to", call.uri()));
                }
                self.respond(&call, json!({}));
            }
            "logging/setLevel" => {
                self.level = rules::severity(&call.params["level"]);
                self.respond(&call, json!({}));
            }
            _ => self.respond(&call, json!({})),
        }
    }

    fn page(&mut self, call: &Call, name: &str, items: &[Value]) {
        let size = self.setup.chaos.find(|one| match one {
            Misbehaviour::Paginate(size) => Some(size),
            _ => None,
        });
        if let Some(page) = offer::page(name, items, call.params.get("cursor"), size) {
            self.respond(call, page);
        } else {
            self.breach(format!("{} with the cursor {}", call.method, call.params["cursor"]));
            self.fail(call, -32602, "unknown cursor", None);
        }
    }

    fn read(&mut self, call: &Call) {
        if let Some(contents) = offer::read(call.uri()) {
            self.respond(call, contents);
        } else {
            let code = if self.setup.version.is_modern() { -32602 } else { -32002 };
            self.fail(call, code, "Resource not found", Some(json!({"uri": call.uri()})));
        }
    }

    fn subscribe(&mut self, call: &Call) {
        if call.uri() == offer::TEXT {
            self.subscribed.insert(call.uri().to_owned());
            self.respond(call, json!({}));
        } else {
            self.fail(call, -32002, "Resource not found", Some(json!({"uri": call.uri()})));
        }
    }

    fn listen(&mut self, call: &Call) {
        self.judge_watched_tasks(call);
        let mut filter = call.params["notifications"].clone();
        if let Some(uris) = filter["resourceSubscriptions"].as_array_mut() {
            uris.retain(|uri| uri == offer::TEXT);
        }
        // Looking for a member has left a null where there was none.
        if let Some(members) = filter.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        let params = json!({"_meta": {format!("{PREFIX}subscriptionId"): call.id}, "notifications": filter});
        let acknowledged = notification("notifications/subscriptions/acknowledged", &params);
        self.effects.push(Effect::Send(Stream::Exchange(call.exchange), acknowledged));
        self.listens.push(Listen { exchange: call.exchange, id: call.id.clone(), filter });
    }

    /// Tells whoever wants to know that the tools have changed.
    pub(crate) fn announce_tools(&mut self) {
        self.announce("notifications/tools/list_changed", &json!({}), |filter| {
            filter["toolsListChanged"] == true
        });
    }

    /// Tells the subscribers of `uri` that it has changed; how many there are.
    pub(crate) fn announce_update(&mut self, uri: &str) -> usize {
        if !self.setup.version.is_modern() && !self.subscribed.contains(uri) {
            return 0;
        }
        self.announce("notifications/resources/updated", &json!({"uri": uri}), |filter| {
            filter["resourceSubscriptions"].as_array().is_some_and(|uris| uris.iter().any(|one| one == uri))
        })
    }

    pub(crate) fn announce(
        &mut self,
        method: &str,
        params: &Value,
        wanted: impl Fn(&Value) -> bool,
    ) -> usize {
        if !self.setup.version.is_modern() {
            self.effects.push(Effect::Send(Stream::Session, notification(method, params)));
            return 1;
        }
        let listens = self.listens.iter().filter(|listen| wanted(&listen.filter));
        let effects: Vec<_> = listens
            .map(|listen| {
                let mut params = params.clone();
                params["_meta"] = json!({format!("{PREFIX}subscriptionId"): listen.id});
                Effect::Send(Stream::Exchange(listen.exchange), notification(method, &params))
            })
            .collect();
        let count = effects.len();
        self.effects.extend(effects);
        count
    }
}
