//! TLS: whom we believe, and which protocol is spoken.

use http::header;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A server for `localhost` with a certificate of its own, which speaks `alpn`; and the file that makes us believe it.
async fn start(alpn: &[&[u8]]) -> (Server, tempfile::TempDir, Spec) {
    let (acceptor, dir, ca_file) = vouched(alpn);
    let server = Server::start_with(Some(acceptor)).await;
    let spec = Spec { ca_files: vec![ca_file], ..Spec::new("test", localhost(server.address.port())) };
    (server, dir, spec)
}

fn localhost(port: u16) -> Uri {
    format!("https://localhost:{port}/mcp").parse().unwrap()
}

/// What makes a server for `localhost` that speaks `alpn`, and the file that makes us believe it.
fn vouched(alpn: &[&[u8]]) -> (TlsAcceptor, tempfile::TempDir, PathBuf) {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, generated.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(generated.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(vec![generated.cert.der().clone()], key).unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), dir, ca_file)
}

#[tokio::test]
async fn the_server_chooses_the_protocol() {
    for (alpn, expected) in [
        (&[&b"h2"[..], b"http/1.1"][..], http::Version::HTTP_2),
        (&[b"http/1.1"], http::Version::HTTP_11),
        (&[], http::Version::HTTP_11),
    ] {
        let (mut server, _dir, spec) = start(alpn).await;
        let connected = connect_with(spec).await;
        let (one, asked) = connected.ask(&mut server, call(1, MODERN)).await;
        assert_eq!(asked.version, expected);
        assert_eq!(asked.header("mcp-method"), "tools/call");
        let (two, other) = connected.ask(&mut server, call(2, MODERN)).await;
        other.events().message(&answer(2)).await;
        assert_eq!(told(two).await, [r#"Some(200) {"ok":2}"#]);
        asked.json_reply(200, &answer(1));
        assert_eq!(told(one).await, [r#"Some(200) {"ok":1}"#]);
        let multiplexed = expected == http::Version::HTTP_2;
        assert_eq!(server.connections(), if multiplexed { 1 } else { 2 });
    }
}

#[tokio::test]
async fn dropping_an_exchange_resets_its_stream_and_keeps_the_connection() {
    let (mut server, _dir, spec) = start(&[b"h2"]).await;
    let connected = connect_with(spec).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    drop(exchange);
    asked.abandoned().await;
    let (mut exchange, asked) = connected.ask(&mut server, call(2, MODERN)).await;
    let writer = asked.events();
    let message = note("a");
    let (event, _) = tokio::join!(exchange.next(), writer.message(&message));
    assert!(matches!(event, Some(Event::Message(_))));
    drop(exchange);
    writer.abandoned().await;
    assert_eq!(server.connections(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_stream_that_the_server_refuses_was_not_sent() {
    let (acceptor, _dir, ca_file) = vouched(&[b"h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = localhost(listener.local_addr().unwrap().port());
    let connected = connect_with(Spec { ca_files: vec![ca_file], ..Spec::new("test", url) }).await;
    let serve = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut server = h2::server::handshake(acceptor.accept(stream).await.unwrap()).await.unwrap();
        for reason in [h2::Reason::REFUSED_STREAM, h2::Reason::INTERNAL_ERROR] {
            let (_request, mut answer) = server.accept().await.unwrap().unwrap();
            answer.send_reset(reason);
        }
        // Until the client has gone.
        while server.accept().await.is_some() {}
    };
    let ask = async {
        let mut faults = Vec::new();
        for id in 1..=2 {
            match connected.transport.request(call(id, MODERN)).next().await {
                Some(Event::Lost(fault)) => faults.push(fault),
                other => panic!("{other:?}"),
            }
        }
        connected.tasks.cancel();
        faults
    };
    let (faults, ()) = tokio::join!(ask, serve);
    assert!(matches!(&faults[..], [Fault::Unreached(_), Fault::Lost(_)]), "{faults:?}");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_never_gets_the_request() {
    let (_server, dir, spec) = start(&[b"h2"]).await;
    let other = dir.path().join("other.pem");
    std::fs::write(&other, rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem())
        .unwrap();
    let secret = (header::AUTHORIZATION, HeaderValue::from_static("secret"));
    let place = connect::place(&spec.url);
    let spec = Spec { headers: vec![secret], ..spec };
    let wrong_name = spec.url.to_string().replace("localhost", "127.0.0.1").parse().unwrap();
    let broken = dir.path().join("broken.pem");
    std::fs::write(&broken, "nothing").unwrap();
    let cases = [
        (
            Spec { ca_files: vec![other], ..spec.clone() },
            format!("cannot speak TLS with {place}: invalid peer certificate"),
        ),
        (Spec { url: wrong_name, ..spec.clone() }, "cannot speak TLS with 127.0.0.1:".to_owned()),
        (
            Spec { ca_files: vec![dir.path().join("none.pem")], ..spec.clone() },
            format!("cannot use the CA file {}", dir.path().join("none.pem").display()),
        ),
        (
            Spec { ca_files: vec![broken.clone()], ..spec },
            format!("cannot use the CA file {}: it holds no certificate", broken.display()),
        ),
    ];
    for (spec, expected) in cases {
        let connected = connect_with(spec).await;
        let event = connected.transport.request(call(1, MODERN)).next().await;
        let Some(Event::Lost(Fault::Unreached(text))) = event else { panic!("{event:?}") };
        assert!(text.starts_with(&expected), "{text}");
    }
}
