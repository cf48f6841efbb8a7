//! The upstream over HTTP: keep-alive HTTP/1.1, everything answered as JSON at once.

use std::{convert::Infallible, sync::Arc};

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt as _, net::TcpListener, task::JoinSet};

use super::answers::{Answers, Said};
use crate::template::Era;

/// All sessions are alike.
const SESSION: HeaderValue = HeaderValue::from_static("6f2c1c0e-7d7e-4b5b-9a55-0d6c2f6b8a11");

/// Says where it listens and serves, for ever.
pub(super) async fn serve(answers: Answers) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut output = tokio::io::stdout();
    output.write_all(format!("{}\n", listener.local_addr()?).as_bytes()).await?;
    output.flush().await?;
    let answers = Arc::new(answers);
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let answers = Arc::clone(&answers);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&answers)));
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: Arc<Answers>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let method = request.method().clone();
    let said = match request.into_body().collect().await {
        Ok(body) if method == Method::POST => answers.answer(&body.to_bytes()),
        _ => return Ok(empty(other(&method))),
    };
    Ok(respond(answers.era(), said))
}

fn respond(era: Era, said: Said) -> Response<Full<Bytes>> {
    let (status, session, text) = match said {
        Said::Nothing => return empty(StatusCode::ACCEPTED),
        Said::Result(text) => (StatusCode::OK, false, text),
        Said::Greeting(text) => (StatusCode::OK, era == Era::Legacy, text),
        // In a legacy session a 404 would mean that the session is gone.
        Said::Unknown(text) if era == Era::Legacy => (StatusCode::OK, false, text),
        Said::Unknown(text) => (StatusCode::NOT_FOUND, false, text),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if session {
        headers.insert("mcp-session-id", SESSION);
    }
    response
}

/// There are no streams, and sessions may end.
fn other(method: &Method) -> StatusCode {
    if *method == Method::DELETE { StatusCode::OK } else { StatusCode::METHOD_NOT_ALLOWED }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_the_era() {
        let said = || Said::Unknown(Vec::new());
        assert_eq!(respond(Era::Legacy, said()).status(), StatusCode::OK);
        assert_eq!(respond(Era::Modern, said()).status(), StatusCode::NOT_FOUND);
        assert_eq!(respond(Era::Legacy, Said::Nothing).status(), StatusCode::ACCEPTED);
        let greeted = |era| respond(era, Said::Greeting(Vec::new())).headers().contains_key("mcp-session-id");
        assert!(greeted(Era::Legacy) && !greeted(Era::Modern));
    }

    #[test]
    fn a_session_ends_and_a_stream_does_not_begin() {
        assert_eq!(other(&Method::DELETE), StatusCode::OK);
        assert_eq!(other(&Method::GET), StatusCode::METHOD_NOT_ALLOWED);
    }
}
