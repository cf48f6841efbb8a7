//! From a request to a page: one function, no socket.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use http_body_util::Full;
use serde_json::json;
use tracing::error;

use crate::View;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The version is that of the text format; scrapers choose their parser by it.
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Behind it everything wants the token of an administrator.
const API: &str = "/api/v1/";
const UPSTREAMS: &str = "/api/v1/upstreams";

const INDEX: &str = "Moongate admin: /metrics (Prometheus), /healthz (alive), /readyz (takes work), \
                     /api/v1/upstreams (with an administrator's token)\n";

/// Which Host headers are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Names of this machine only: a web page whose own name was made to point here cannot read anything.
    Local,
    /// Whatever reaches a listener that was bound to the network on purpose.
    Any,
}

/// Answers one request. The body, if any, is not read.
pub(crate) async fn answer<B>(
    request: &Request<B>,
    hosts: Hosts,
    view: &Arc<dyn View>,
) -> Response<Full<Bytes>> {
    if hosts == Hosts::Local && !names_this_machine(request) {
        return refusal(StatusCode::FORBIDDEN, "the Host header does not name this machine");
    }
    let path = request.uri().path();
    if path.starts_with(API)
        && let Err(refusal) = admit(request, view.as_ref()).await
    {
        return *refusal;
    }
    if !matches!(path, "/" | "/metrics" | "/healthz" | "/readyz" | UPSTREAMS) {
        return refusal(StatusCode::NOT_FOUND, "there is no such page");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => metrics(Arc::clone(view)).await,
        "/healthz" => page(StatusCode::OK, JSON, json!({"status": "ok"}).to_string()),
        "/readyz" => readiness(view.as_ref()),
        UPSTREAMS => page(StatusCode::OK, JSON, view.upstreams().to_string()),
        _ => page(StatusCode::OK, TEXT, INDEX),
    }
}

/// Lets in who shows the token of an administrator. A web page is never let in: none of ours asks from elsewhere.
async fn admit<B>(request: &Request<B>, view: &dyn View) -> Result<(), Box<Response<Full<Bytes>>>> {
    if request.headers().contains_key(ORIGIN) {
        return Err(Box::new(refusal(StatusCode::FORBIDDEN, "web pages are not answered here")));
    }
    let mut shown = request.headers().get_all(AUTHORIZATION).iter();
    let token = match (shown.next(), shown.next()) {
        (Some(value), None) => value.to_str().ok().and_then(bearer),
        _ => None,
    };
    match token {
        Some(token) if view.admits(token).await => Ok(()),
        _ => {
            let mut response = refusal(StatusCode::UNAUTHORIZED, "an administrator's token is needed");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            Err(Box::new(response))
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

async fn metrics(view: Arc<dyn View>) -> Response<Full<Bytes>> {
    // A page of a thousand tools takes 15 ms to write: too long for a thread that serves calls.
    match tokio::task::spawn_blocking(move || view.metrics()).await {
        Ok(text) => page(StatusCode::OK, METRICS, text),
        Err(error) => {
            error!(%error, "the metrics page could not be made");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "the metrics page could not be made")
        }
    }
}

fn readiness(view: &dyn View) -> Response<Full<Bytes>> {
    let readiness = view.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::to_vec(&readiness).expect("a flag and a JSON value always serialise");
    page(status, JSON, body)
}

fn refusal(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    page(status, JSON, json!({"error": message}).to_string())
}

fn page(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Whether there is exactly one Host, and it is a loopback name with any port (a tunnel may change the port).
fn names_this_machine<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || matches!(name, "127.0.0.1" | "[::1]")
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use moongate_core::BoxFuture;

    use super::*;
    use crate::Readiness;

    struct Process {
        ready: bool,
    }

    impl View for Process {
        fn metrics(&self) -> String {
            "moongate_sessions 3\n".into()
        }

        fn readiness(&self) -> Readiness {
            Readiness { ready: self.ready, details: json!({"reload": "refused: line 3"}) }
        }

        fn admits<'a>(&'a self, token: &'a str) -> BoxFuture<'a, bool> {
            Box::pin(async move { token == "right" })
        }

        fn upstreams(&self) -> serde_json::Value {
            json!([{"name": "github", "state": "up"}])
        }
    }

    async fn ask(method: &str, path: &str, hosts: &[&str], ready: bool) -> (Response<()>, String) {
        let mut request = Request::builder().method(method).uri(path);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let view: Arc<dyn View> = Arc::new(Process { ready });
        let (parts, body) = answer(&request.body(()).unwrap(), Hosts::Local, &view).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (Response::from_parts(parts, ()), String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(path: &str) -> (Response<()>, String) {
        ask("GET", path, &["127.0.0.1:3860"], true).await
    }

    #[tokio::test]
    async fn metrics_come_in_prometheus_text_format() {
        let (response, body) = get("/metrics").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
        assert_eq!(body, "moongate_sessions 3\n");
    }

    #[tokio::test]
    async fn health_is_ok_while_the_process_answers() {
        let (response, body) = get("/healthz").await;
        assert_eq!((response.status().as_u16(), &*body), (200, r#"{"status":"ok"}"#));
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    }

    #[tokio::test]
    async fn readiness_says_what_is_wrong_with_a_503() {
        for (ready, status) in [(true, 200), (false, 503)] {
            let (response, body) = ask("GET", "/readyz", &["localhost"], ready).await;
            assert_eq!(response.status(), status);
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(body, json!({"ready": ready, "details": {"reload": "refused: line 3"}}));
        }
    }

    #[tokio::test]
    async fn the_root_says_what_is_here() {
        let (response, body) = get("/").await;
        assert_eq!(response.status(), 200);
        assert!(["/metrics", "/healthz", "/readyz"].iter().all(|path| body.contains(path)));
    }

    #[tokio::test]
    async fn upstreams_are_for_administrators() {
        for (headers, status) in [
            (&[("authorization", "Bearer right")][..], 200),
            (&[("authorization", "bearer  right")], 200),
            (&[], 401),
            (&[("authorization", "Bearer wrong")], 401),
            (&[("authorization", "Bearer ")], 401),
            (&[("authorization", "Basic right")], 401),
            (&[("authorization", "Bearer right"), ("authorization", "Bearer right")], 401),
            (&[("authorization", "Bearer right"), ("origin", "http://localhost")], 403),
        ] {
            let view: Arc<dyn View> = Arc::new(Process { ready: true });
            for (path, found) in [(UPSTREAMS, true), ("/api/v1/other", false)] {
                let mut request = Request::builder().uri(path).header(HOST, "localhost");
                for (name, value) in headers {
                    request = request.header(*name, *value);
                }
                let response = answer(&request.body(()).unwrap(), Hosts::Local, &view).await;
                let expected = if status == 200 && !found { 404 } else { status };
                assert_eq!(response.status(), expected, "{path} {headers:?}");
                assert_eq!(response.headers().contains_key(WWW_AUTHENTICATE), status == 401);
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let told = body == br#"[{"name":"github","state":"up"}]"#[..];
                assert_eq!(told, expected == 200, "{path} {headers:?}");
            }
        }
    }

    #[tokio::test]
    async fn unknown_pages_and_methods_are_refused_in_json() {
        let (response, body) = get("/api").await;
        assert_eq!((response.status().as_u16(), &*body), (404, r#"{"error":"there is no such page"}"#));
        let (response, body) = ask("POST", "/metrics", &["localhost"], true).await;
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()[ALLOW], "GET, HEAD");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(body, r#"{"error":"only GET and HEAD are answered"}"#);
        assert_eq!(ask("HEAD", "/metrics", &["localhost"], true).await.0.status(), 200);
    }

    #[tokio::test]
    async fn only_names_of_this_machine_are_answered() {
        for (hosts, status) in [
            (&["localhost"][..], 200),
            (&["LOCALHOST:3860"], 200),
            (&["127.0.0.1"], 200),
            (&["127.0.0.1:1"], 200),
            (&["[::1]:3860"], 200),
            (&["evil.example"], 403),
            (&["localhost.evil.example"], 403),
            (&["127.0.0.1.evil.example:3860"], 403),
            (&["localhost@evil.example"], 403),
            (&["x@localhost"], 403),
            (&["localhost:x"], 403),
            (&["localhost:"], 403),
            (&["localhost:+1"], 403),
            (&["localhost:99999"], 403),
            (&["[::1"], 403),
            (&["::1"], 403),
            (&[""], 403),
            (&[], 403),
            (&["localhost", "evil.example"], 403),
        ] {
            let (response, body) = ask("GET", "/metrics", hosts, true).await;
            assert_eq!(response.status(), status, "{hosts:?}");
            assert_eq!(body.contains("moongate"), status == 200, "{hosts:?}");
        }
    }

    #[tokio::test]
    async fn a_listener_on_the_network_answers_to_any_name() {
        let view: Arc<dyn View> = Arc::new(Process { ready: true });
        let request = Request::builder().uri("/healthz").header(HOST, "gateway.internal").body(()).unwrap();
        assert_eq!(answer(&request, Hosts::Any, &view).await.status(), 200);
    }
}
