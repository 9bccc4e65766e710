//! Calls to the members of the etcd cluster, one at a time on a persistent connection, failing over to the next member.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde_json::{Value, json};

use super::http::{Conn, Endpoint};
use super::json::error_of;
use crate::api::StateError;

/// gRPC status codes that are handled.
mod code {
    pub(super) const INVALID_ARGUMENT: u64 = 3;
    pub(super) const NOT_FOUND: u64 = 5;
    pub(super) const PERMISSION_DENIED: u64 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u64 = 8;
    pub(super) const OUT_OF_RANGE: u64 = 11;
    pub(super) const UNAUTHENTICATED: u64 = 16;
}

/// State shared by the threads.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) endpoints: Arc<Vec<Endpoint>>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) user: Option<(String, String)>,
}

/// Client of one thread.
pub(super) struct Client {
    shared: Shared,
    timeout: Duration,
    at: usize,
    conn: Option<Conn>,
    token: Option<String>,
}

enum Failure {
    /// The request was not sent.
    NotSent(String),
    /// The request may have been received.
    NoAnswer(String),
    /// etcd replied with an error.
    Error(u64, String),
}

impl Client {
    /// Makes a client that starts with member `first`.
    pub(super) fn new(shared: Shared, first: usize, timeout: Duration) -> Self {
        Self { shared, timeout, at: first, conn: None, token: None }
    }

    /// Selects the next member.
    pub(super) fn rotate(&mut self) {
        self.conn = None;
        self.token = None;
        self.at = self.at.wrapping_add(1);
    }

    fn connect(&mut self) -> Result<Conn, Failure> {
        let all = &self.shared.endpoints;
        let e = all.get(self.at % all.len().max(1)).ok_or_else(|| Failure::NotSent("no endpoints".into()))?;
        Conn::connect(e, self.shared.tls.as_ref(), self.timeout)
            .map_err(|x| Failure::NotSent(format!("{}:{}: {x}", e.host, e.port)))
    }

    fn once(conn: &mut Conn, path: &str, token: Option<&str>, body: &str) -> Result<Value, Failure> {
        let lost = |e: std::io::Error| Failure::NoAnswer(e.to_string());
        conn.send(path, token, body).map_err(lost)?;
        let status = conn.head().map_err(lost)?;
        let body = conn.body().map_err(lost)?;
        if status != 200 {
            let (code, text) = error_of(&body);
            return Err(Failure::Error(code, text));
        }
        serde_json::from_slice(&body).map_err(|e| Failure::NoAnswer(format!("answer: {e}")))
    }

    /// Gets an authentication token if a user is configured.
    fn sign_in(&mut self, conn: &mut Conn) -> Result<(), Failure> {
        if self.token.is_some() {
            return Ok(());
        }
        let Some((name, password)) = &self.shared.user else { return Ok(()) };
        let body = json!({ "name": name, "password": password }).to_string();
        let v = Self::once(conn, "/v3/auth/authenticate", None, &body).map_err(|f| match f {
            // Only the authentication request was sent.
            Failure::NoAnswer(e) => Failure::NotSent(e),
            f => f,
        })?;
        self.token = v["token"].as_str().map(str::to_owned);
        Ok(())
    }

    fn attempt(&mut self, path: &str, body: &str) -> Result<Value, Failure> {
        let mut conn = match self.conn.take() {
            Some(c) => c,
            None => self.connect()?,
        };
        self.sign_in(&mut conn)?;
        let r = Self::once(&mut conn, path, self.token.as_deref(), body);
        if matches!(r, Ok(_) | Err(Failure::Error(..))) {
            self.conn = Some(conn);
        }
        r
    }

    /// Calls members until one replies. A non-idempotent call is not repeated once it may have been received.
    pub(super) fn call(&mut self, path: &str, body: &Value, idempotent: bool) -> Result<Value, StateError> {
        let body = body.to_string();
        let mut why = String::new();
        let mut signed_in_again = false;
        // Try each member once, and one more for a connection that was closed while idle.
        for _ in 0..=self.shared.endpoints.len() {
            match self.attempt(path, &body) {
                Ok(v) => return Ok(v),
                Err(Failure::NotSent(e)) => {
                    why = e;
                    self.rotate();
                }
                Err(Failure::Error(c, e)) if stale_token(c, &e) && !signed_in_again => {
                    signed_in_again = true;
                    self.token = None;
                    why = e;
                }
                Err(Failure::Error(c, e)) => match definite(c, &e) {
                    Some(e) => return Err(e),
                    // The member has no leader, or timed out waiting for one.
                    None if idempotent => {
                        why = e;
                        self.rotate();
                    }
                    None => {
                        self.rotate();
                        return Err(StateError::Unknown(e));
                    }
                },
                Err(Failure::NoAnswer(e)) => {
                    self.rotate();
                    if !idempotent {
                        return Err(StateError::Unknown(e));
                    }
                    why = e;
                }
            }
        }
        Err(StateError::Unavailable(why))
    }

    /// Starts a call with a streamed reply, on a separate connection.
    pub(super) fn stream(&mut self, path: &str, body: &Value) -> Result<Conn, String> {
        let r = self.connect().and_then(|mut conn| {
            self.sign_in(&mut conn)?;
            let lost = |e: std::io::Error| Failure::NoAnswer(e.to_string());
            conn.send(path, self.token.as_deref(), &body.to_string()).map_err(lost)?;
            match conn.head().map_err(lost)? {
                200 => Ok(conn),
                _ => {
                    let (code, text) = error_of(&conn.body().map_err(lost)?);
                    Err(Failure::Error(code, text))
                }
            }
        });
        r.map_err(|f| {
            self.rotate();
            let (Failure::NotSent(e) | Failure::NoAnswer(e) | Failure::Error(_, e)) = f;
            e
        })
    }
}

fn stale_token(c: u64, text: &str) -> bool {
    c == code::UNAUTHENTICATED || text.contains("invalid auth token") || text.contains("auth: revision in header")
}

/// Maps errors that guarantee that nothing was changed.
fn definite(c: u64, text: &str) -> Option<StateError> {
    match c {
        code::NOT_FOUND if text.contains("lease") => Some(StateError::NoLease),
        code::OUT_OF_RANGE if text.contains("compacted") => Some(StateError::Compacted(0)),
        code::OUT_OF_RANGE => Some(StateError::Ahead(0)),
        // "too many requests" is temporary, not a refusal of this request.
        code::RESOURCE_EXHAUSTED if text.contains("too many requests") => {
            Some(StateError::Unavailable(text.to_owned()))
        }
        code::INVALID_ARGUMENT | code::NOT_FOUND | code::PERMISSION_DENIED | code::RESOURCE_EXHAUSTED => {
            Some(StateError::Refused(text.to_owned()))
        }
        code::UNAUTHENTICATED => Some(StateError::Refused(text.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// A member that takes requests and ends each connection without an answer.
    #[test]
    fn a_transaction_without_an_answer_is_sent_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = std::thread::spawn(move || {
            let mut requests = 0;
            // The last connection is that of this test.
            for mut conn in listener.incoming().flatten() {
                let mut some = [0; 4096];
                match conn.read(&mut some) {
                    Ok(n) if n > 0 => requests += 1,
                    _ => break,
                }
            }
            requests
        });
        let one = Endpoint::parse(&url).unwrap();
        let at = (one.host.clone(), one.port);
        let shared = Shared { endpoints: Arc::new(vec![one]), tls: None, user: None };
        let mut client = Client::new(shared, 0, Duration::from_secs(10));
        let answer = client.call("/v3/kv/txn", &json!({}), false);
        assert!(matches!(answer, Err(StateError::Unknown(_))), "{answer:?}");
        drop(std::net::TcpStream::connect((at.0.as_str(), at.1)).unwrap());
        assert_eq!(requests.join().unwrap(), 1);
    }
}
