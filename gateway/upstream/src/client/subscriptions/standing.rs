//! The standing request to a modern server: one that holds everything that is wanted, made anew when it is lost or when
//! something else is wanted.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt as _;
use moongate_core::{Raw, task::Group};
use moongate_wire::{Message, code};
use serde_json::json;
use tokio::sync::watch;

use super::{Honoured, LISTS, Wanted};
use crate::{
    client::{Connection, News, Request, envelope, task::with_extension},
    transport::{Answer, Event, Exchange},
};

/// The first pause before a lost listen is made again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Connection {
    /// Listens to a modern server until the connection ends.
    pub(in crate::client) fn keep_listening(connection: &Arc<Self>, tasks: &Group) {
        let connection = Arc::downgrade(connection);
        tasks.spawn(listen_on(connection));
    }

    /// The standing request for what is wanted, unless there is nothing to hear.
    fn open_listen(&self, wanted: &Wanted) -> Option<Exchange> {
        let mut filter = serde_json::Map::new();
        for (capability, name) in LISTS {
            if self.greeting.has(capability, Some("listChanged")) {
                filter.insert(name.to_owned(), json!(true));
            }
        }
        if !wanted.uris.is_empty() {
            filter.insert("resourceSubscriptions".to_owned(), json!(wanted.uris));
        }
        if !wanted.tasks.is_empty() {
            filter.insert("taskIds".to_owned(), json!(wanted.tasks));
        }
        if filter.is_empty() {
            return None;
        }
        let mut ask = Request::own("subscriptions/listen", Raw::of(&json!({"notifications": filter})));
        // Who asks for tasks must say that it knows them.
        ask.capabilities =
            (!wanted.tasks.is_empty()).then(|| with_extension(Some(&self.abilities.capabilities())));
        Some(self.exchange(self.mint(), &ask, &ask.params))
    }

    /// Passes on what is said on a listen.
    fn heard_on_listen(&self, message: Message) {
        let Message::Notification(notification) = message else { return };
        if &*notification.method != "notifications/tasks" {
            return self.hearing.hear_unrelated(Message::Notification(notification));
        }
        // Whatever else a server tells of, nobody waits for it.
        let id = notification.params.task_id().filter(|id| self.subscriptions.follows(id));
        if let (Some(id), Some(said)) = (id, notification.params.raw()) {
            self.hearing.tell(News::Task { id: id.into(), task: envelope::task(&said) });
        }
    }

    /// Nobody listened for a while: anything may have changed.
    fn missed(&self, uris: &BTreeSet<Arc<str>>) {
        let lists = [News::Tools, News::Prompts, News::Resources];
        for news in lists.into_iter().zip(LISTS).filter(|(_, (of, _))| self.greeting.has(of, None)) {
            self.hearing.tell(news.0);
        }
        for uri in uris {
            self.hearing.tell(News::Updated(Arc::clone(uri)));
        }
    }
}

/// However the listening ends, nobody is left waiting for what it would have brought.
struct Listening(Weak<Connection>);

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(connection) = self.0.upgrade() {
            connection.subscriptions.deaf();
        }
    }
}

/// What a server says to a new listen.
enum Opened {
    Acknowledged,
    Failed,
    /// It has no such method: asking again would get the same answer.
    Unknown,
}

/// Keeps one listen open at a modern server, made anew when it is lost or when something else is wanted.
async fn listen_on(connection: Weak<Connection>) {
    let listening = Listening(connection);
    let connection = &listening.0;
    let Some(mut wanted) = connection.upgrade().map(|it| it.subscriptions.wanted.subscribe()) else { return };
    let (mut current, mut pause): (Option<Exchange>, _) = (None, FIRST_PAUSE);
    let mut missed = false;
    loop {
        let now = wanted.borrow_and_update().clone();
        let Some(alive) = connection.upgrade().filter(|_| !now.ended) else { return };
        let Some(mut next) = alive.open_listen(&now) else {
            current = None;
            alive.subscriptions.honoured.send_replace(Honoured::nothing(now.number));
            drop(alive);
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        };
        let listened = current.is_some();
        match opened(&alive, &mut next, &mut current, now.number).await {
            Opened::Acknowledged => {
                missed |= listened && current.is_none();
                (current, pause) = (Some(next), FIRST_PAUSE);
                if std::mem::take(&mut missed) {
                    alive.missed(&now.uris);
                }
            }
            Opened::Failed => {
                // Whoever waits must not wait for ever. The old one, if it is there, tells what it told.
                let told = alive.subscriptions.honoured.borrow().lists.clone();
                let silent = current.is_none();
                let lists = if silent { BTreeSet::new() } else { told.clone() };
                let honoured = Honoured { lists, ..Honoured::nothing(now.number) };
                alive.subscriptions.honoured.send_replace(honoured);
                if silent && !told.is_empty() {
                    // It may stay so: what was good until told is not any more.
                    alive.missed(&now.uris);
                }
            }
            Opened::Unknown => return,
        }
        drop(alive);
        if !follow(connection, &mut wanted, &mut current, &mut pause).await {
            return;
        }
        missed |= current.is_none();
    }
}

/// Waits until a new listen is acknowledged. Until then the old one goes on telling.
async fn opened(
    connection: &Connection,
    next: &mut Exchange,
    current: &mut Option<Exchange>,
    number: u64,
) -> Opened {
    loop {
        tokio::select! {
            event = next.next() => match event {
                Some(Event::HungUp) => {}
                Some(Event::Message(Message::Notification(notification)))
                    if &*notification.method == "notifications/subscriptions/acknowledged" =>
                {
                    let honoured = Honoured::read(&notification, number);
                    connection.subscriptions.honoured.send_replace(honoured);
                    return Opened::Acknowledged;
                }
                Some(Event::Message(message)) => connection.heard_on_listen(message),
                Some(Event::Answer(Answer { outcome: Err(error), .. })) => {
                    tracing::debug!(%error, "a server does not let us listen");
                    let unknown = error.code == code::METHOD_NOT_FOUND;
                    return if unknown { Opened::Unknown } else { Opened::Failed };
                }
                Some(Event::Answer(_) | Event::Lost(_)) | None => return Opened::Failed,
            },
            event = next_of(current) => match event {
                Some(Event::HungUp) => {}
                Some(Event::Message(message)) => connection.heard_on_listen(message),
                Some(Event::Answer(_) | Event::Lost(_)) | None => *current = None,
            },
        }
    }
}

/// Tells what the present listen says until it is time for another. False when there will be none.
async fn follow(
    connection: &Weak<Connection>,
    wanted: &mut watch::Receiver<Wanted>,
    current: &mut Option<Exchange>,
    pause: &mut Duration,
) -> bool {
    loop {
        if current.is_none() {
            let wait = *pause;
            *pause = (*pause * 2).min(LONGEST_PAUSE);
            return tokio::select! {
                () = tokio::time::sleep(wait) => true,
                changed = wanted.changed() => changed.is_ok(),
            };
        }
        tokio::select! {
            event = next_of(current) => match event {
                Some(Event::HungUp) => {}
                Some(Event::Message(message)) => match connection.upgrade() {
                    Some(alive) => alive.heard_on_listen(message),
                    None => return false,
                },
                Some(Event::Answer(_) | Event::Lost(_)) | None => *current = None,
            },
            changed = wanted.changed() => return changed.is_ok(),
        }
    }
}

/// The next event of an exchange, if there is one; else never.
async fn next_of(exchange: &mut Option<Exchange>) -> Option<Event> {
    match exchange {
        Some(exchange) => exchange.next().await,
        None => std::future::pending().await,
    }
}
