//! Who gets in, who does not, and what each is told.

use std::{num::NonZeroU32, time::Duration};

use http::{Uri, Version};
use moongate_core::{Scope, Soon};
use moongate_storage::{MemoryOptions, MemoryState};

use super::*;
use crate::{Conn, Error, Headers, LocalToken, Reason, Shown, TokenFile};

/// A caller that passed, for tests of what comes after the gate.
pub(crate) fn admitted(principal: Principal, scopes: Scopes) -> Admitted {
    let identity = Identity { principal, scopes: Arc::new(scopes) };
    Admitted { identity, address: IpAddr::from([127, 0, 0, 1]), rates: Rates::default() }
}

/// Knows tokens by heart: `NAME` is let in as `issued:NAME`, and some names mean trouble.
struct Book;

impl Authenticator for Book {
    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> Soon<'a, Verdict> {
        let verdict = match credentials.bearer {
            None | Some("wrong") => Verdict::Pass,
            Some("expired") => Verdict::Refuse(Flaw::Expired),
            Some("forged") => Verdict::Refuse(Flaw::Forged),
            Some("broken") => Verdict::Fail(Error::FixedKey),
            Some(name) => Verdict::Admit(Identity {
                principal: Principal::issued(name),
                scopes: Arc::new([Scope::read()].into_iter().collect()),
            }),
        };
        Soon::now(verdict)
    }
}

fn quota(count: u32) -> Quota {
    Quota { count: NonZeroU32::new(count).unwrap(), per: Duration::from_mins(1) }
}

fn state() -> Arc<dyn State> {
    Arc::new(MemoryState::new(MemoryOptions::default()))
}

fn gate(settings: Settings) -> Gate {
    Gate::new(settings, vec![Arc::new(Book)], state())
}

/// A request to a loopback listener from this machine, unless said otherwise.
#[derive(Clone)]
struct Request {
    conn: Conn,
    headers: Headers,
    uri: Uri,
    version: Version,
}

impl Request {
    fn new(headers: &[(&str, &str)]) -> Self {
        Self {
            conn: Conn { address: IpAddr::from([127, 0, 0, 1]), loopback_listener: true },
            headers: headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect(),
            uri: Uri::from_static("/mcp"),
            version: Version::HTTP_11,
        }
    }

    fn with_token(token: &str) -> Self {
        Self::new(&[("host", "localhost:3847"), ("authorization", &format!("Bearer {token}"))])
    }

    fn on_public_listener(mut self) -> Self {
        self.conn.loopback_listener = false;
        self
    }

    fn from(mut self, address: &str) -> Self {
        self.conn.address = address.parse().unwrap();
        self
    }

    async fn admit(&self, gate: &Gate) -> Result<Admitted, Denied> {
        let Self { conn, headers, uri, version } = self;
        gate.admit(&Knock { conn, headers, shown: Shown::read(headers), uri, version: *version }).await
    }

    async fn refusal(&self, gate: &Gate) -> (u16, Reason, String) {
        let denied = self.admit(gate).await.unwrap_err();
        (denied.status, denied.reason, denied.error.message.into_owned())
    }
}

fn public_settings() -> Settings {
    Settings {
        hosts: vec!["mcp.internal:8443".parse().unwrap()],
        origins: vec!["https://ide.example.com".parse().unwrap()],
        public_host: Some("mcp.example.com".parse().unwrap()),
        ..Settings::default()
    }
}

#[tokio::test]
async fn the_host_must_be_ours() {
    let gate = gate(public_settings());
    for (loopback, hosts, status) in [
        (true, &["localhost:3847"][..], 200),
        (true, &["127.0.0.1"], 200),
        (true, &["[::1]:1"], 200),
        (true, &["mcp.example.com"], 200),
        (true, &["mcp.internal:8443"], 200),
        (true, &["mcp.internal"], 403),
        (true, &["evil.example.com"], 403),
        (true, &["localhost.evil.com"], 403),
        (true, &["127.0.0.1.nip.io"], 403),
        (true, &["localhost:80@evil.com"], 403),
        (true, &["lócalhost"], 400),
        (true, &[""], 403),
        (true, &[], 400),
        (true, &["localhost", "localhost"], 400),
        (true, &["localhost", "evil.example.com"], 400),
        (false, &["localhost:3847"], 403),
        (false, &["127.0.0.1"], 403),
        (false, &["mcp.example.com:443"], 200),
        (false, &["mcp.internal:8443"], 200),
        (false, &["evil.example.com"], 403),
    ] {
        let mut headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        headers.push(("authorization", "Bearer alice"));
        let mut request = Request::new(&headers);
        request.conn.loopback_listener = loopback;
        match request.admit(&gate).await {
            Ok(_) => assert_eq!(status, 200, "{loopback} {hosts:?}"),
            Err(denied) => {
                assert_eq!((denied.status, denied.reason), (status, Reason::Host), "{loopback} {hosts:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_authority_of_http_2_is_checked_like_a_host() {
    let gate = gate(Settings::default());
    for (uri, host, status) in [
        ("http://localhost:3847/mcp", None, 200),
        ("https://127.0.0.1/mcp", None, 200),
        ("https://localhost/mcp", Some("localhost"), 200),
        ("https://evil.example.com/mcp", None, 403),
        ("https://user@localhost/mcp", None, 403),
        ("https://localhost/mcp", Some("evil.example.com"), 400),
        ("https://evil.example.com/mcp", Some("localhost"), 400),
        ("/mcp", None, 400),
    ] {
        let mut headers = vec![("authorization", "Bearer alice")];
        headers.extend(host.map(|host| ("host", host)));
        let request =
            Request { uri: Uri::from_static(uri), version: Version::HTTP_2, ..Request::new(&headers) };
        let found = request.admit(&gate).await.map_or_else(|denied| denied.status, |_| 200);
        assert_eq!(found, status, "{uri} {host:?}");
    }
}

#[tokio::test]
async fn the_origin_must_be_local_or_listed() {
    let gate = gate(public_settings());
    for (origin, allowed) in [
        ("http://localhost:3847", true),
        ("https://ide.example.com", true),
        ("http://evil.example.com", false),
        ("http://localhost.evil.com", false),
        ("http://127.0.0.1.nip.io", false),
        ("http://localhost:80@evil", false),
        ("null", false),
    ] {
        let request =
            Request::new(&[("host", "localhost"), ("origin", origin), ("authorization", "Bearer alice")]);
        if allowed {
            assert!(request.admit(&gate).await.is_ok(), "{origin}");
        } else {
            let expected = (403, Reason::Origin, "origin not allowed".to_owned());
            assert_eq!(request.refusal(&gate).await, expected, "{origin}");
        }
    }
}

#[tokio::test]
async fn checks_come_in_order() {
    let gate = gate(Settings::default());
    let token = ("authorization", "Bearer wrong");
    let origin = ("origin", "http://evil.example.com");
    let asking = |headers: &[_]| Request { uri: Uri::from_static("/mcp?token=x"), ..Request::new(headers) };
    let request = asking(&[("host", "evil.example.com"), origin, token]);
    assert_eq!(request.refusal(&gate).await.1, Reason::Host);
    let request = asking(&[("host", "localhost"), origin, token]);
    assert_eq!(request.refusal(&gate).await.1, Reason::Origin);
    let mut request = asking(&[("host", "localhost"), token]);
    assert_eq!(request.refusal(&gate).await.1, Reason::TokenInQuery);
    request.uri = Uri::from_static("/mcp");
    assert_eq!(request.refusal(&gate).await.1, Reason::TokenInvalid);
}

#[tokio::test]
async fn a_refusal_of_a_token_carries_its_challenge() {
    let gate = gate(Settings::default());
    let missing = r#"Bearer realm="moongate""#;
    let invalid = r#"Bearer realm="moongate", error="invalid_token""#;
    let expired = r#"Bearer realm="moongate", error="invalid_token", error_description="the token expired""#;
    let ambiguous = r#"Bearer realm="moongate", error="invalid_request""#;
    for (authorization, status, reason, challenge) in [
        (&[][..], 401, Reason::TokenMissing, missing),
        (&["Basic YTpi"], 401, Reason::TokenMissing, missing),
        (&["Bearer "], 401, Reason::TokenMissing, missing),
        (&["Bearer wrong"], 401, Reason::TokenInvalid, invalid),
        (&["Bearer forged"], 401, Reason::TokenInvalid, invalid),
        (&["Bearer expired"], 401, Reason::TokenInvalid, expired),
        (&["Bearer alice", "Bearer alice"], 400, Reason::TokenAmbiguous, ambiguous),
    ] {
        let mut headers = vec![("host", "localhost")];
        headers.extend(authorization.iter().map(|value| ("authorization", *value)));
        let denied = Request::new(&headers).admit(&gate).await.unwrap_err();
        assert_eq!((denied.status, denied.reason), (status, reason), "{authorization:?}");
        assert_eq!(denied.challenge.as_deref(), Some(challenge), "{authorization:?}");
        assert_eq!(denied.error.code, -32000);
        if status == 401 {
            assert_eq!(denied.error.message, "invalid or missing token");
        }
    }
}

#[tokio::test]
async fn a_check_that_fails_lets_nobody_in() {
    let denied = Request::with_token("broken").admit(&gate(Settings::default())).await.unwrap_err();
    assert_eq!((denied.status, denied.reason), (503, Reason::Unavailable));
    assert_eq!(denied.retry_after_seconds(), Some(1));
}

#[tokio::test]
async fn authenticators_are_asked_in_order_until_one_knows() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = TokenFile::open_or_create(&directory.path().join("token")).unwrap();
    let token = file.token().unwrap();
    let local = Arc::new(LocalToken::new(Arc::new(file)));
    let gate = Gate::new(Settings::default(), vec![local, Arc::new(Book)], state());
    let admitted = Request::with_token(token.expose()).admit(&gate).await.unwrap();
    assert_eq!(*admitted.principal(), Principal::local());
    assert_eq!(**admitted.scopes(), Scopes::all());
    let admitted = Request::with_token("alice").admit(&gate).await.unwrap();
    assert_eq!(admitted.principal().as_str(), "issued:alice");
    assert_eq!(Request::with_token("wrong").refusal(&gate).await.1, Reason::TokenInvalid);
}

#[tokio::test]
async fn callers_without_a_token_are_anonymous_where_that_is_allowed() {
    let anonymous = Some([Scope::read()].into_iter().collect());
    let gate = gate(Settings { anonymous, ..Settings::default() });
    let admitted = Request::new(&[("host", "localhost")]).admit(&gate).await.unwrap();
    assert_eq!(*admitted.principal(), Principal::anonymous());
    assert!(admitted.scopes().allow(&Scope::read()) && !admitted.scopes().allow(&Scope::write()));
    // A bad token is not traded for none.
    for (header, reason) in [("Bearer wrong", Reason::TokenInvalid), ("Bearer ", Reason::TokenMissing)] {
        let request = Request::new(&[("host", "localhost"), ("authorization", header)]);
        assert_eq!(request.refusal(&gate).await.1, reason);
    }
}

#[tokio::test]
async fn only_callers_of_this_machine_are_anonymous() {
    let settings = Settings {
        anonymous: Some([Scope::read()].into_iter().collect()),
        trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "127.0.0.2/32".parse().unwrap()],
        ..Settings::default()
    };
    let gate = gate(settings);
    for (peer, header, admitted) in [
        ("127.0.0.1", None, true),
        ("127.0.0.9", None, true),
        ("::1", None, true),
        ("::ffff:127.0.0.1", None, true),
        ("192.0.2.1", None, false),
        ("10.0.0.1", None, false),
        // A trusted proxy is believed when it names somebody else, and not asked to name this machine.
        ("127.0.0.2", Some(("x-forwarded-for", "203.0.113.7")), false),
        ("10.0.0.1", Some(("x-forwarded-for", "127.0.0.1")), false),
        // Nor is one on this machine that nobody told us about.
        ("127.0.0.1", Some(("x-forwarded-for", "203.0.113.7")), false),
        ("127.0.0.1", Some(("forwarded", "for=203.0.113.7")), false),
        ("127.0.0.1", Some(("x-real-ip", "203.0.113.7")), false),
        ("127.0.0.1", Some(("via", "1.1 proxy")), false),
    ] {
        let headers: Vec<_> = header.into_iter().chain([("host", "localhost")]).collect();
        let request = Request::new(&headers).from(peer);
        if admitted {
            let principal = request.admit(&gate).await.unwrap().principal().clone();
            assert_eq!(principal, Principal::anonymous(), "{peer} {header:?}");
        } else {
            assert_eq!(request.refusal(&gate).await.1, Reason::TokenMissing, "{peer} {header:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_tokens_use_up_an_address_ten_times_as_fast() {
    let gate = gate(Settings { per_address: Some(quota(30)), ..Settings::default() });
    let guess = Request::with_token("wrong").from("203.0.113.7");
    for _ in 0..3 {
        assert_eq!(guess.refusal(&gate).await.0, 401);
    }
    let denied = guess.admit(&gate).await.unwrap_err();
    assert_eq!((denied.status, denied.reason), (429, Reason::RateLimited));
    assert_eq!(denied.error.message, "rate limit exceeded");
    assert_eq!(denied.retry_after_seconds(), Some(20), "ten of thirty a minute");

    let elsewhere = Request::with_token("wrong").from("203.0.113.8");
    assert_eq!(elsewhere.refusal(&gate).await.0, 401, "another address has its own tries");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(guess.refusal(&gate).await.0, 401);
}

#[tokio::test]
async fn an_exhausted_address_is_refused_later_even_with_a_good_token() {
    let gate = gate(Settings { per_address: Some(quota(10)), ..Settings::default() });
    assert_eq!(Request::with_token("wrong").refusal(&gate).await.0, 401);
    let admitted = Request::with_token("alice").admit(&gate).await.unwrap();
    let entry = gate.state.enter(None, admitted.rates()).await.unwrap();
    assert!(matches!(entry, Entry::Limited { .. }));
}

#[tokio::test]
async fn what_any_web_page_could_send_uses_up_nothing() {
    let gate = gate(Settings { per_address: Some(quota(10)), ..Settings::default() });
    let mut in_query = Request::new(&[("host", "localhost")]);
    in_query.uri = Uri::from_static("/mcp?access_token=guess");
    for request in [
        Request::new(&[("host", "localhost")]),
        Request::new(&[("host", "evil.example.com"), ("authorization", "Bearer wrong")]),
        Request::new(&[
            ("host", "localhost"),
            ("origin", "http://evil.example.com"),
            ("authorization", "Bearer wrong"),
        ]),
        in_query,
    ] {
        for _ in 0..20 {
            assert!(request.admit(&gate).await.is_err());
        }
    }
    let admitted = Request::with_token("alice").admit(&gate).await.unwrap();
    let entry = gate.state.enter(None, admitted.rates()).await.unwrap();
    assert!(matches!(entry, Entry::Welcome(None)));
}

#[tokio::test]
async fn an_admitted_caller_brings_the_rates_to_count() {
    let both =
        Settings { per_address: Some(quota(600)), per_principal: Some(quota(1200)), ..Settings::default() };
    let address = IpAddr::from([127, 0, 0, 1]);
    let alice = Principal::issued("alice");
    let by_address = limit::address_rate(address, quota(600));
    let by_principal = limit::principal_rate(&alice, quota(1200));
    let request = Request::with_token("alice");
    assert_eq!(request.admit(&gate(both.clone())).await.unwrap().rates(), [by_address, by_principal]);
    let only_principal = Settings { per_address: None, ..both.clone() };
    assert_eq!(request.admit(&gate(only_principal)).await.unwrap().rates(), [by_principal]);
    assert_eq!(request.admit(&gate(Settings::default())).await.unwrap().rates(), []);
    let piped = gate(both).admit_local(Some("alice")).await.unwrap();
    assert_eq!(piped.rates(), [by_principal]);
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_client_is_counted() {
    let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    let settings = Settings { trusted_proxies, per_address: Some(quota(10)), ..public_settings() };
    let gate = gate(settings);
    let request = |token: &str, client: &str| {
        let token = format!("Bearer {token}");
        let headers = [("host", "mcp.example.com"), ("x-forwarded-for", client), ("authorization", &token)];
        Request::new(&headers).on_public_listener()
    };
    let admitted = request("alice", "203.0.113.7").from("10.0.0.1").admit(&gate).await.unwrap();
    assert_eq!(admitted.address(), IpAddr::from([203, 0, 113, 7]));
    let lied = request("alice", "203.0.113.7").from("198.51.100.1").admit(&gate).await.unwrap();
    assert_eq!(lied.address(), IpAddr::from([198, 51, 100, 1]));

    assert_eq!(request("wrong", "203.0.113.7").from("10.0.0.1").refusal(&gate).await.0, 401);
    assert_eq!(request("wrong", "203.0.113.7").from("10.0.0.2").refusal(&gate).await.0, 429);
    assert_eq!(request("wrong", "203.0.113.8").from("10.0.0.1").refusal(&gate).await.0, 401);
}

#[tokio::test]
async fn a_pipe_is_the_user_or_whom_its_token_names() {
    let gate = gate(Settings { anonymous: Some(Scopes::default()), ..Settings::default() });
    let local = gate.admit_local(None).await.unwrap();
    assert_eq!((local.principal(), &**local.scopes()), (&Principal::local(), &Scopes::all()));
    let alice = gate.admit_local(Some("alice")).await.unwrap();
    assert_eq!(alice.principal().as_str(), "issued:alice");
    assert_eq!(gate.admit_local(Some("wrong")).await.unwrap_err().reason, Reason::TokenInvalid);
}

#[test]
fn a_preflight_needs_no_token() {
    let gate = gate(Settings::default());
    let request = Request::new(&[("host", "localhost"), ("origin", "http://localhost:3000")]);
    let check = |request: &Request| {
        let Request { conn, headers, uri, version } = request;
        let knock = Knock { conn, headers, shown: Shown::read(headers), uri, version: *version };
        gate.check_site(&knock).map(|cors| match cors {
            Cors::Allowed(origin) => str::from_utf8(origin).unwrap().to_owned(),
            other => format!("{other:?}"),
        })
    };
    assert_eq!(check(&request), Ok("http://localhost:3000".into()));
    assert_eq!(check(&Request::new(&[("host", "localhost")])), Ok("Absent".into()));
    let evil = Request::new(&[("host", "localhost"), ("origin", "http://evil.example.com")]);
    assert_eq!(check(&evil).unwrap_err().reason, Reason::Origin);
}

#[test]
fn no_debug_output_holds_what_a_caller_presents() {
    let mut request = Request::with_token("very-secret");
    request.uri = Uri::from_static("/mcp?token=very-secret");
    let Request { conn, headers, uri, version } = &request;
    let knock = Knock { conn, headers, shown: Shown::read(headers), uri, version: *version };
    let printed = format!("{knock:?} {:?} {:?}", knock.bearer(), gate(Settings::default()));
    assert!(printed.contains("/mcp") && !printed.contains("very-secret"), "{printed}");
}
