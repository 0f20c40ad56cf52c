//! Proxies and certificates, with a real TLS server and real proxies on loopback. Certificates and key of the server were
//! made for these tests and open nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use open_agent_model::{Env, ProviderErrorKind as Kind};
use open_agent_providers::provider;
use open_agent_testkit::server::{ModelServer, Reply, Script};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::{at, collect, hello};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn acceptor(protocols: &[&str]) -> TlsAcceptor {
    let certificates =
        CertificateDer::pem_file_iter(fixture("leaf.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(fixture("leaf.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Speaks TLS and passes all on in plain.
async fn over_tls(inner: SocketAddr) -> SocketAddr {
    let acceptor = acceptor(&["http/1.1"]);
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that trusts nobody goes away here.
                let Ok(mut tls) = acceptor.accept(socket).await else { return };
                let mut inner = TcpStream::connect(inner).await.unwrap();
                let _ = copy_bidirectional(&mut tls, &mut inner).await;
            });
        }
    });
    address
}

/// The heads of the requests that a proxy got.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy for tunnels and for plain requests. With a password it asks for it.
async fn proxy(password: Option<&'static str>) -> (SocketAddr, Heads) {
    let (listener, address) = listen().await;
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&seen), password));
        }
    });
    (address, heads)
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, heads: Heads, password: Option<&str>) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
        if socket.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
            return;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    heads.lock().unwrap().push(head.clone());
    let allowed = password.is_none_or(|p| head.contains(p));
    if !allowed {
        let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        let _ = socket.write_all(refusal).await;
        return;
    }
    let target = head.split(' ').nth(1).unwrap_or_default();
    let host = target.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let mut upstream = TcpStream::connect(host).await.unwrap();
    if head.starts_with("CONNECT ") {
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    } else {
        // Servers take the whole address as well as the path alone.
        upstream.write_all(&bytes).await.unwrap();
    }
    let _ = copy_bidirectional(&mut socket, &mut upstream).await;
}

fn env(pairs: &[(&str, String)]) -> Env {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
}

fn trusted(more: &[(&str, String)]) -> Env {
    let ca = fixture("ca.pem").display().to_string();
    env(&[&[("SSL_CERT_FILE", ca)], more].concat())
}

async fn ask(url: &str, env: Env) -> Result<(), open_agent_model::ProviderError> {
    let mut config = at("anthropic", url);
    config.env = env;
    collect(&*provider(config).unwrap(), hello()).await.map(|_| ())
}

fn server() -> ModelServer {
    ModelServer::start(Script::always(Reply::text("x"))).unwrap()
}

#[tokio::test]
async fn h_plt_02_certificates_of_the_environment_are_trusted() {
    let server = server();
    let tls = over_tls(server.address()).await;
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}", tls.port());
        for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
            let ca = fixture("ca.pem").display().to_string();
            ask(&url, env(&[(variable, ca)])).await.unwrap();
        }
        let error = ask(&url, Env::default()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Connection);
        assert!(error.message.contains("certificate") && error.message.contains("SSL_CERT_FILE"), "{error}");
    }
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn h_plt_02_https_goes_through_the_proxy_in_a_tunnel() {
    let server = server();
    let tls = over_tls(server.address()).await;
    let url = format!("https://localhost:{}", tls.port());
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        let (proxy, heads) = proxy(None).await;
        ask(&url, trusted(&[(variable, format!("http://{proxy}"))])).await.unwrap();
        let heads = heads.lock().unwrap();
        assert_eq!(heads.len(), 1, "{variable}");
        assert!(heads[0].starts_with(&format!("CONNECT localhost:{} ", tls.port())), "{}", heads[0]);
        assert!(!heads[0].to_lowercase().contains("x-api-key"), "{}", heads[0]);
    }
}

#[tokio::test]
async fn h_plt_02_a_proxy_is_itself_reached_over_tls() {
    let server = server();
    let tls = over_tls(server.address()).await;
    let (plain, heads) = proxy(None).await;
    let secure = over_tls(plain).await;
    let url = format!("https://localhost:{}", tls.port());
    let through = format!("https://localhost:{}", secure.port());
    ask(&url, trusted(&[("HTTPS_PROXY", through)])).await.unwrap();
    assert_eq!(heads.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn h_plt_02_plain_http_goes_through_its_own_proxy() {
    let server = server();
    let (proxy, heads) = proxy(None).await;
    let through = format!("http://{proxy}");
    ask(&server.url(), env(&[("HTTP_PROXY", through.clone())])).await.unwrap();
    assert!(heads.lock().unwrap()[0].starts_with(&format!("POST {}/v1/messages ", server.url())));
    ask(&server.url(), env(&[("HTTPS_PROXY", through)])).await.unwrap();
    assert_eq!(heads.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn h_plt_02_no_proxy_is_honoured() {
    let server = server();
    let (proxy, heads) = proxy(None).await;
    for exception in ["127.0.0.1", "localhost, 127.0.0.0/8", "*"] {
        let through = format!("http://{proxy}");
        let pairs = [("HTTP_PROXY", through), ("NO_PROXY", exception.to_owned())];
        ask(&server.url(), env(&pairs)).await.unwrap();
    }
    assert!(heads.lock().unwrap().is_empty());
}

#[tokio::test]
async fn h_log_01_a_proxys_password_is_used_and_never_shown() {
    let server = server();
    let tls = over_tls(server.address()).await;
    let url = format!("https://localhost:{}", tls.port());
    // "user:sk-canary" in base64.
    let (proxy, _) = proxy(Some("dXNlcjpzay1jYW5hcnk=")).await;
    ask(&url, trusted(&[("HTTPS_PROXY", format!("http://user:sk-canary@{proxy}"))])).await.unwrap();
    let refused = ask(&url, trusted(&[("HTTPS_PROXY", format!("http://user:wrong-canary@{proxy}"))])).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind, Kind::Connection);
    assert!(error.message.contains("the proxy in HTTPS_PROXY wants a login"), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    let gone = ask(&url, trusted(&[("HTTPS_PROXY", "http://user:sk-canary@127.0.0.1:1".into())])).await;
    let error = gone.unwrap_err();
    assert!(error.message.contains("HTTPS_PROXY"), "{error}");

    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}

/// The client would go around such a proxy, and the request would leave where it must not.
#[tokio::test]
async fn h_plt_02_a_proxy_with_an_unknown_scheme_is_refused_before_anything_is_sent() {
    let server = server();
    let through = ("http_proxy", "ftp://user:sk-canary@127.0.0.1:1".to_owned());
    let error = ask(&server.url(), trusted(&[through])).await.unwrap_err();
    assert_eq!(error.kind, Kind::Configuration);
    assert!(error.message.contains("http_proxy"), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    assert!(server.requests().is_empty());
}

/// Vendors speak HTTP/2.
#[tokio::test]
async fn answers_come_over_http_2() {
    let body = "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n\
                data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
                data: {\"type\":\"message_stop\"}\n\n";
    let versions = Arc::new(Mutex::new(Vec::new()));
    let acceptor = acceptor(&["h2"]);
    let (listener, address) = listen().await;
    let seen = Arc::clone(&versions);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let socket = TokioIo::new(acceptor.accept(socket).await.unwrap());
            let seen = Arc::clone(&seen);
            let service = service_fn(move |request: Request<Incoming>| {
                seen.lock().unwrap().push(request.version());
                async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body)))) }
            });
            tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(socket, service));
        }
    });
    let url = format!("https://localhost:{}", address.port());
    let mut config = at("anthropic", &url);
    config.env = trusted(&[]);
    let provider = provider(config).unwrap();
    for _ in 0..3 {
        collect(&*provider, hello()).await.unwrap();
    }
    assert_eq!(*versions.lock().unwrap(), [Version::HTTP_2; 3]);
}
