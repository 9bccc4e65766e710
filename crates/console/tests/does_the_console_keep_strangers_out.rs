//! Requests to the console over TLS and without: who may see and change what.

use base::{EntityAddr, Utime};
use console::history::Sample;
use console::host::app::App;
use console::host::certificate::self_signed;
use console::host::server::{self, Answering, Module, Transport};
use console::host::users::{Cluster, Monitor, Reply, SignInError, User};
use console::http::{self, Answer, Request};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use testkit::free_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Commands that ran, each with its user.
type Ran = Rc<RefCell<Vec<(String, Value)>>>;

/// A cluster with the users `admin`, who may do all, `reader`, who may read, and `nobody`; the key of each is its name.
struct Fake(Ran);

struct Someone {
    name: String,
    ran: Ran,
}

impl User for Someone {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&self, c: Value) -> Answering<Result<Reply, String>> {
        self.ran.borrow_mut().push((self.name.clone(), c.clone()));
        let writes = c["format"] != "json";
        let may = self.name == "admin" || self.name == "reader" && !writes;
        let out = if c["prefix"] == "status" { r#"{"health": {"status": "HEALTH_OK"}}"# } else { "{}" };
        let reply = match may {
            true => Reply { rc: 0, status: "fine".into(), out: out.into() },
            false => Reply { rc: -13, status: "access denied".into(), out: Vec::new() },
        };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

impl Cluster for Fake {
    fn sign_in(&self, user: &str, key: &str) -> Answering<Result<Rc<dyn User>, SignInError>> {
        let known = ["admin", "reader", "nobody"].contains(&user) && user == key;
        let someone = Rc::new(Someone { name: user.to_owned(), ran: Rc::clone(&self.0) });
        let r = if known { Ok(someone as Rc<dyn User>) } else { Err(SignInError::Refused) };
        Box::pin(std::future::ready(r))
    }
}

fn on_reactor<F: Future<Output = ()>>(f: impl FnOnce(App, Ran) -> F) {
    let ran = Ran::default();
    let app = App::new(Box::new(Fake(Rc::clone(&ran))));
    reactor::runtime::run_here(|_, _| f(app, ran)).unwrap();
}

const FROM: &str = "10.0.0.7";

async fn send(app: &App, text: &str) -> (String, String) {
    let r = http::parse(text.as_bytes()).unwrap().unwrap();
    let bytes = app.answer(r, FROM.parse().unwrap()).await.bytes();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Content-Security-Policy: default-src 'none'") && head.contains("no-store"), "{head}");
    (head.to_owned(), body.to_owned())
}

async fn post(app: &App, path: &str, headers: &str, v: &Value) -> (String, String) {
    let body = v.to_string();
    let head = "Host: c:8443\r\nOrigin: https://c:8443\r\nContent-Type: application/json\r\n";
    let n = body.len();
    send(app, &format!("POST {path} HTTP/1.1\r\n{head}{headers}Content-Length: {n}\r\n\r\n{body}")).await
}

/// Signs in; returns the headers of further requests.
async fn sign_in(app: &App, user: &str) -> String {
    let (head, body) = post(app, "/api/sign-in", "", &json!({ "user": user, "key": user })).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head} {body}");
    let cookie = head.lines().find_map(|l| l.strip_prefix("Set-Cookie: ")).unwrap();
    for word in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/", "__Host-"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    format!("Cookie: {cookie}\r\nX-Console-Token: {}\r\n", body["token"].as_str().unwrap())
}

fn out_of_3() -> Value {
    json!({ "change": "osd-out", "values": { "osd": "3" } })
}

#[test]
fn users_see_and_change_what_their_key_may() {
    on_reactor(|app, ran| async move {
        app.sample(Sample { time: 100, reads: 7.0, ..Sample::default() });
        let admin = sign_in(&app, "admin").await;
        let get = |path: &str, h: &str| format!("GET {path} HTTP/1.1\r\nHost: c:8443\r\n{h}\r\n");
        let (_, body) = send(&app, &get("/api/overview", &admin)).await;
        let v: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((v["user"].as_str(), v["status"]["health"]["status"].as_str()), (Some("admin"), Some("HEALTH_OK")));
        let (_, body) = send(&app, &get("/api/history", &admin)).await;
        assert!(body.contains("[100.0,0.0,0.0,7.0"), "{body}");
        let (_, body) = post(&app, "/api/preview", &admin, &out_of_3()).await;
        assert!(body.contains("ceph osd out 3"), "{body}");
        ran.borrow_mut().clear();
        let (_, body) = post(&app, "/api/apply", &admin, &out_of_3()).await;
        assert!(body.contains(r#""done":true"#), "{body}");
        assert_eq!(*ran.borrow(), [("admin".to_owned(), json!({ "prefix": "osd out", "ids": ["3"] }))]);

        let reader = sign_in(&app, "reader").await;
        let (_, body) = post(&app, "/api/apply", &reader, &out_of_3()).await;
        assert!(body.contains(r#""done":false"#) && body.contains("access denied (EACCES)"), "{body}");
        let (head, body) = post(&app, "/api/sign-in", "", &json!({ "user": "nobody", "key": "nobody" })).await;
        assert!(head.starts_with("HTTP/1.1 403") && body.contains("may not see"), "{head} {body}");
        assert!(!head.contains("Set-Cookie"), "{head}");
    });
}

#[test]
fn nothing_is_answered_without_a_session_and_its_token() {
    on_reactor(|app, ran| async move {
        let headers = sign_in(&app, "admin").await;
        let (cookie, _) = headers.split_once("\r\n").unwrap();
        ran.borrow_mut().clear();
        for path in ["/api/overview", "/api/history", "/api/changes"] {
            for h in ["", "Cookie: __Host-belemnite=\r\n", "Cookie: __Host-belemnite=AAAA\r\n"] {
                let (head, _) = send(&app, &format!("GET {path} HTTP/1.1\r\n{h}\r\n")).await;
                assert!(head.starts_with("HTTP/1.1 401"), "{path} {h}: {head}");
            }
        }
        let forged = [
            String::new(),
            format!("{cookie}\r\n"),
            format!("{cookie}\r\nX-Console-Token: \r\n"),
            format!("{cookie}\r\nX-Console-Token: guess\r\n"),
        ];
        for h in &forged {
            for path in ["/api/apply", "/api/preview", "/api/sign-out"] {
                let (head, _) = post(&app, path, h, &out_of_3()).await;
                assert!(head.starts_with("HTTP/1.1 401"), "{path} {h}: {head}");
            }
        }
        let body = out_of_3().to_string();
        let text = format!(
            "POST /api/apply HTTP/1.1\r\nHost: c:8443\r\nOrigin: https://evil\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert!(send(&app, &text).await.0.starts_with("HTTP/1.1 403"));
        assert!(ran.borrow().is_empty(), "{:?}", ran.borrow());
        post(&app, "/api/sign-out", &headers, &json!({})).await;
        let (head, _) = send(&app, &format!("GET /api/overview HTTP/1.1\r\n{headers}\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 401"), "signed out: {head}");
    });
}

#[test]
fn guesses_are_bounded() {
    on_reactor(|app, _| async move {
        let wrong = json!({ "user": "admin", "key": "wrong" });
        let mut statuses = Vec::new();
        for _ in 0..12 {
            let (head, _) = post(&app, "/api/sign-in", "", &wrong).await;
            statuses.push(head[9..12].to_owned());
        }
        assert_eq!(
            statuses.iter().filter(|s| *s == "401").count(),
            console::session::ATTEMPTS as usize,
            "{statuses:?}"
        );
        let (head, _) = post(&app, "/api/sign-in", "", &json!({ "user": "admin", "key": "admin" })).await;
        assert!(head.starts_with("HTTP/1.1 429") && head.contains("Retry-After: 60"), "{head}");
    });
}

/// A console at a port.
struct Served {
    app: App,
    at: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
}

impl Module for Served {
    fn name(&self) -> &'static str {
        "a test"
    }

    fn wanted(&self) -> Option<(SocketAddr, Transport)> {
        Some((self.at, Transport::Tls(Arc::clone(&self.tls))))
    }

    fn offer(&self, _: Option<SocketAddr>) {}

    fn answer(self: Rc<Self>, r: Request, from: IpAddr) -> Answering<Answer> {
        Box::pin(async move { self.app.answer(r, from).await })
    }
}

#[test]
fn the_page_comes_over_tls_while_strangers_hold_connections() {
    use rustls::pki_types::pem::PemObject as _;
    on_reactor(|app, _| async move {
        let now = reactor::clock::read().wall;
        let identity = self_signed(&["localhost".to_owned()], Utime { nsec: 0, ..now }).unwrap();
        let at = free_port();
        let served = Rc::new(Served { app, at, tls: Arc::new(identity.server().unwrap()) });
        tokio::task::spawn_local(server::run(served));
        let mut roots = rustls::RootCertStore::empty();
        let der = rustls::pki_types::CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
        roots.add(der).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = Arc::new(config);
        let connect = || async {
            loop {
                match tokio::net::TcpStream::connect(at).await {
                    Ok(s) => return s,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        // One says nothing, one speaks another protocol.
        let _silent = connect().await;
        let mut plain = connect().await;
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let mut s = tokio_rustls::TlsConnector::from(config).connect(name, connect().await).await.unwrap();
        s.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut out = String::new();
        s.read_to_string(&mut out).await.unwrap();
        assert!(out.starts_with("HTTP/1.1 200 OK") && out.ends_with("</html>\n"), "{out}");
    });
}

#[test]
fn a_key_that_is_none_is_refused_without_the_monitor() {
    reactor::runtime::run_here(|_, _| async {
        let m = Monitor(EntityAddr::msgr2(free_port(), 0));
        for (user, key) in [("admin", "no key"), ("", "AQ=="), ("a\nb", "")] {
            assert_eq!(m.sign_in(user, key).await.err(), Some(SignInError::Refused), "{user}");
        }
    })
    .unwrap();
}
