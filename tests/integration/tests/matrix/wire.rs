//! How a client of the matrix reaches the gateway: over HTTP, with or without a session, or on a pipe.
//!
//! Over HTTP each request has a stream, and what nobody asked for has one of its own; on a pipe all come the same way.

use anyhow::{Context as _, Result};
use moongate_test_support::{Client, EventStream, LegacySession, Modern, PATIENCE, Stdio};
use serde_json::Value;

/// The way to the gateway.
#[derive(Debug)]
pub(crate) enum Wire {
    Http(Box<Http>),
    Pipe(Box<Stdio>),
}

#[derive(Debug)]
pub(crate) struct Http {
    client: Client,
    /// Of a legacy client.
    session: Option<LegacySession>,
    /// What nobody asked for.
    standing: Option<EventStream>,
}

impl Wire {
    /// HTTP as the modern era has it.
    pub(crate) fn stateless(client: Client) -> Self {
        Self::Http(Box::new(Http { client, session: None, standing: None }))
    }

    /// HTTP with a session, which listens.
    pub(crate) async fn session(session: LegacySession) -> Result<Self> {
        let standing = Some(session.listen(None).await?);
        Ok(Self::Http(Box::new(Http { client: session.client().clone(), session: Some(session), standing })))
    }

    pub(crate) fn is_pipe(&self) -> bool {
        matches!(self, Self::Pipe(_))
    }

    /// Sends a request; its stream, where it has one.
    pub(crate) async fn send(&mut self, request: &Modern) -> Result<Option<EventStream>> {
        match self {
            Self::Pipe(pipe) => pipe.send(&request.message()).await.map(|()| None),
            Self::Http(http) if http.session.is_some() => {
                http.client.post(&request.message()).open().await.map(Some)
            }
            Self::Http(http) => request.over(&http.client).open().await.map(Some),
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&mut self, method: &str, params: &Value) -> Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.notify(method, params).await,
            Self::Http(http) => http.session()?.notify(method, params).await,
        }
    }

    /// Answers a request of the server.
    pub(crate) async fn respond(&mut self, response: &Value) -> Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.send(response).await,
            Self::Http(http) => {
                let answer = http.session()?.respond(response).await?;
                anyhow::ensure!(answer.status == 202, "the answer was not taken: {}", answer.status);
                Ok(())
            }
        }
    }

    /// The next message for the request that has `stream`.
    pub(crate) async fn next(&mut self, stream: &mut Option<EventStream>) -> Result<Option<Value>> {
        match (self, stream) {
            (Self::Pipe(pipe), _) => pipe.receive().await,
            (_, Some(stream)) if is_event_stream(stream) => stream.message().await,
            (_, Some(stream)) => stream.body_json().await,
            (_, None) => anyhow::bail!("the request was not sent"),
        }
    }

    /// From now on, what nobody asked for comes this way.
    pub(crate) fn stand(&mut self, stream: Option<EventStream>) {
        if let Self::Http(http) = self {
            http.standing = stream;
        }
    }

    /// The next message that nobody asked for.
    pub(crate) async fn unsolicited(&mut self) -> Result<Option<Value>> {
        match self {
            Self::Pipe(pipe) => pipe.receive().await,
            Self::Http(http) => http.standing.as_mut().context("nothing is listened to")?.message().await,
        }
    }

    /// Ends the session, or the gateway behind the pipe.
    pub(crate) async fn leave(&mut self) -> Result<()> {
        match self {
            Self::Pipe(pipe) => {
                pipe.close_stdin();
                let status = pipe.wait(PATIENCE).await?;
                anyhow::ensure!(status.success(), "the gateway on the pipe ended with {status}");
            }
            Self::Http(http) => {
                if let Some(session) = &http.session {
                    let answer = session.delete().await?;
                    anyhow::ensure!((200..300).contains(&answer.status), "DELETE got {}", answer.status);
                }
            }
        }
        Ok(())
    }
}

impl Http {
    fn session(&self) -> Result<&LegacySession> {
        self.session.as_ref().context("a modern client over HTTP sends nothing but requests")
    }
}

pub(crate) fn is_event_stream(stream: &EventStream) -> bool {
    let kind = stream.headers.get("content-type").and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}
