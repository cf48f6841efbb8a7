//! HTTP+SSE, the transport of 2024-11-05: one stream on which the server says everything, and an address to post to.
//!
//! The stream's first event names the address. Answers are told apart by their ids, like lines on a pipe; and as on a
//! pipe nothing says which request a server's question belongs to. The session is the stream: when it ends, all ends.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future, stream};
use http::Uri;
use http_body_util::BodyExt as _;
use moongate_core::{
    BoxFuture,
    task::{Group, Signal},
};
use moongate_wire::{Message, Raw, Version};
use tokio::sync::RwLock;

use super::{
    Spec,
    connect::same_origin,
    head::Kind,
    link::Link,
    outbound::Outbound,
    pool::Body,
    refusal,
    session::{CANCEL_PATIENCE, CLOSED, cancelled, messages},
    sse::{self, Name, Parser},
};
use crate::{
    pending::Pending,
    transport::{
        Answer, Diagnosis, Dial, Event, Exchange, Fault, Inbound, Outgoing, Outward, Transport, Way,
    },
};

/// A way to a server that speaks HTTP+SSE.
pub struct OldSse {
    link: Arc<Link>,
}

/// A connection: what those share who post.
struct Conversation {
    link: Arc<Link>,
    /// Where messages are posted to.
    endpoint: Uri,
    pending: Arc<Pending>,
    /// Held by those who post, so that the stream does not end before the server has taken what it is sent.
    posting: RwLock<()>,
    /// Ends the reader, which does not hold the conversation.
    unused: Signal,
    strays: Arc<AtomicU64>,
}

/// The transport, so that exchanges can hold the conversation.
struct Old(Arc<Conversation>);

/// A request that is waiting for its answer.
struct Course {
    conversation: Arc<Conversation>,
    request: Outgoing,
    begun: bool,
    /// Until the server has taken it.
    post: Option<BoxFuture<'static, Result<(), Fault>>>,
}

impl OldSse {
    /// Prepares to connect; `tasks` own the connections.
    pub fn new(spec: Spec, tasks: Group) -> Self {
        Self { link: Arc::new(Link::new(spec, tasks)) }
    }

    async fn open(&self, inbound: Arc<dyn Inbound>) -> Result<Arc<dyn Transport>, Fault> {
        let link = &self.link;
        let (head, body) = link.ask(&Outbound::get(None)).await?;
        if !head.status.is_success() {
            let error = refusal::read(link, &head, body, None, false).await.err();
            let status = head.status.as_u16();
            return Err(error.unwrap_or(Fault::Status { status, detail: String::new() }));
        }
        if head.kind() != Kind::Events {
            return Err(refusal::wrong_type(&head));
        }
        let mut incoming = Reading { body, parser: Parser::new(link.max_message) };
        let endpoint = endpoint(&link.url, &incoming.endpoint(link).await?)?;
        let conversation = Conversation {
            link: Arc::clone(link),
            endpoint,
            pending: Arc::default(),
            posting: RwLock::default(),
            unused: Signal::default(),
            strays: Arc::default(),
        };
        let (pending, strays) = (Arc::clone(&conversation.pending), Arc::clone(&conversation.strays));
        let (unused, reader) = (conversation.unused.clone(), Arc::clone(link));
        link.tasks.spawn(async move {
            let fault = tokio::select! {
                fault = incoming.read(&reader, &pending, &strays, &*inbound) => fault,
                () = unused.given() => Fault::Lost(CLOSED.into()),
            };
            pending.end(fault);
        });
        Ok(Arc::new(Old(Arc::new(conversation))))
    }
}

impl Dial for OldSse {
    fn dial(&self, inbound: Arc<dyn Inbound>) -> BoxFuture<'_, Result<Arc<dyn Transport>, Fault>> {
        let late = || {
            let text = format!(
                "{} did not say where to post within {:?}",
                self.link.place, self.link.connect_timeout
            );
            Err(Fault::Unreached(text.into()))
        };
        // The stream begins with the address at once, or it is another kind of stream.
        Box::pin(async move {
            let opened = tokio::time::timeout(self.link.connect_timeout, self.open(inbound)).await;
            opened.unwrap_or_else(|_| late())
        })
    }

    fn way(&self) -> Way {
        Way::Pipe
    }
}

impl fmt::Debug for OldSse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldSse").field("link", &self.link).finish()
    }
}

/// The server's stream.
struct Reading {
    body: Body,
    parser: Parser,
}

impl Reading {
    async fn next(&mut self, link: &Link) -> Result<sse::Event, Fault> {
        loop {
            // As where an answer is awaited: others want a turn.
            tokio::task::coop::consume_budget().await;
            let next = self.parser.next();
            let too_long = |sse::TooLong| {
                let text = format!("the server sent an event longer than {} bytes", link.max_message);
                Fault::Garbled(text.into())
            };
            if let Some(event) = next.map_err(too_long)? {
                return Ok(event);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.parser.feed(data);
                    }
                }
                Some(Err(error)) => return Err(link.lost(&error)),
                None => return Err(Fault::Lost(format!("{} ended its stream", link.place).into())),
            }
        }
    }

    /// The address the stream begins with.
    async fn endpoint(&mut self, link: &Link) -> Result<String, Fault> {
        let event = self.next(link).await?;
        let address = std::str::from_utf8(&event.data).ok().filter(|_| event.name == Name::Endpoint);
        let unnamed =
            || Fault::Garbled("the server's stream does not begin with an address to post to".into());
        address.map(|address| address.trim().to_owned()).ok_or_else(unnamed)
    }

    /// Hands on messages until the stream ends, for the reason returned.
    async fn read(
        &mut self,
        link: &Link,
        pending: &Pending,
        strays: &AtomicU64,
        inbound: &dyn Inbound,
    ) -> Fault {
        loop {
            let event = match self.next(link).await {
                Ok(event) => event,
                Err(fault) => return fault,
            };
            if event.name != Name::Message {
                continue;
            }
            messages(&event.data, |message| {
                let known = match message {
                    Ok(Message::Response(response)) => response.id.is_some_and(|id| {
                        pending.answer(&id, Answer { outcome: response.outcome, status: None })
                    }),
                    Ok(message) => {
                        inbound.hear(message);
                        true
                    }
                    Err(_) => false,
                };
                if !known {
                    strays.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
}

/// The address that `text` means, seen from `base`. Messages carry our credentials, so they go to no other server.
fn endpoint(base: &Uri, text: &str) -> Result<Uri, Fault> {
    let scheme = base.scheme_str().unwrap_or_default();
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let path = base.path();
    let address = match text {
        _ if text.contains("://") => text.to_owned(),
        _ if text.starts_with("//") => format!("{scheme}:{text}"),
        _ if text.starts_with('/') => format!("{scheme}://{authority}{text}"),
        _ if text.starts_with('?') => format!("{scheme}://{authority}{path}{text}"),
        _ => {
            let folder = path.rfind('/').and_then(|end| path.get(..=end)).unwrap_or("/");
            format!("{scheme}://{authority}{folder}{text}")
        }
    };
    let address: Uri = address.parse().map_err(|_| {
        Fault::Garbled("the address the server wants messages posted to cannot be read".into())
    })?;
    if same_origin(base, &address) {
        Ok(address)
    } else {
        Err(Fault::Garbled("the server wants messages posted to another server, which is refused".into()))
    }
}

impl Conversation {
    async fn post(&self, version: Option<Version>, message: Raw) -> Result<(), Fault> {
        let _posting = self.posting.read().await;
        if self.has_ended() {
            return Err(Fault::Unreached(CLOSED.into()));
        }
        let request = Outbound::post(version, message.into_bytes());
        let (head, body) = self.link.ask_at(&self.endpoint, &request).await?;
        if head.status.is_success() {
            self.link.drain(body);
            return Ok(());
        }
        // The session is in the address.
        let refused = refusal::read(&self.link, &head, body, None, true).await;
        Err(refused.err().unwrap_or(Fault::Status { status: head.status.as_u16(), detail: String::new() }))
    }

    fn has_ended(&self) -> bool {
        self.pending.ended().now_or_never().is_some()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.unused.give();
    }
}

impl Course {
    async fn run(&mut self) -> Result<Answer, Fault> {
        let Outgoing { id, message, version, .. } = &self.request;
        let mut waiting = self.conversation.pending.wait(*id)?;
        self.begun = true;
        let (conversation, message, version) = (Arc::clone(&self.conversation), message.clone(), *version);
        let post = self.post.insert(Box::pin(async move { conversation.post(version, message).await }));
        let answer = match future::select(Box::pin(waiting.answer()), post).await {
            future::Either::Left((answer, _)) => answer,
            future::Either::Right((taken, answer)) => {
                self.post = None;
                match taken {
                    Ok(()) => answer.await,
                    Err(fault) => Err(fault),
                }
            }
        };
        self.begun = false;
        answer
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        let conversation = Arc::clone(&self.conversation);
        // `initialize` has no version yet, and must not be cancelled.
        let cancel = self.request.version.filter(|_| self.begun).map(|version| (version, self.request.id));
        // Some servers answer on the stream first; the connection of the POST is of use if that ends, too. And what is
        // given up while it is posted can be cancelled only afterwards.
        let post = self.post.take();
        if (post.is_none() && cancel.is_none()) || conversation.has_ended() {
            return;
        }
        let rest = async move {
            if let Some(post) = post
                && post.await.is_err()
            {
                return;
            }
            if let Some((version, id)) = cancel {
                // The server will find out when it answers.
                drop(conversation.post(Some(version), cancelled(id)).await);
            }
        };
        let rest = async { drop(tokio::time::timeout(CANCEL_PATIENCE, rest).await) };
        self.conversation.link.tasks.spawn(rest);
    }
}

impl Transport for Old {
    fn request(&self, request: Outgoing) -> Exchange {
        let mut course = Course { conversation: Arc::clone(&self.0), request, begun: false, post: None };
        let end = async move { course.run().await.map_or_else(Event::Lost, Event::Answer) };
        stream::once(end).boxed()
    }

    fn send(&self, message: Outward) -> BoxFuture<'_, Result<(), Fault>> {
        self.0.post(Some(message.version), message.message).boxed()
    }

    /// The stream is open already.
    fn listen(&self, _: Version) -> BoxFuture<'_, bool> {
        Box::pin(future::ready(true))
    }

    fn closed(&self) -> BoxFuture<'_, Fault> {
        self.0.pending.ended().boxed()
    }

    /// Closing the stream ends the session.
    fn close(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _nobody_posts = tokio::time::timeout(grace, self.0.posting.write()).await;
            self.0.pending.end(Fault::Lost(CLOSED.into()));
            self.0.unused.give();
        })
    }

    fn diagnosis(&self) -> Diagnosis {
        super::diagnosis(&self.0.link, self.0.strays.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_to_post_to_is_on_the_same_server() {
        let base = Uri::from_static("https://example.com/a/sse?x=1");
        for (text, expected) in [
            ("/messages?id=1", Some("https://example.com/messages?id=1")),
            ("messages?id=1", Some("https://example.com/a/messages?id=1")),
            ("?id=1", Some("https://example.com/a/sse?id=1")),
            ("https://example.com/m", Some("https://example.com/m")),
            ("https://EXAMPLE.com:443/m", Some("https://EXAMPLE.com:443/m")),
            ("//example.com/m", Some("https://example.com/m")),
            ("http://example.com/m", None),
            ("https://example.com:8443/m", None),
            ("https://example.com.evil.test/m", None),
            ("https://example.com@evil.test/m", None),
            ("//evil.test/m", None),
            ("/\u{7f}", None),
        ] {
            let found = endpoint(&base, text).ok().map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
