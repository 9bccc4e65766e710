//! The HTTP endpoint of the module `prometheus`: `GET /metrics`.
//!
//! The endpoint listens while the module is enabled (`ceph mgr module enable prometheus`) on `mgr/prometheus/server_addr` and
//! `server_port`, by default port 9283 of the monitor's own address. Requests need no key, as with Ceph's module, so the
//! address should be one of the cluster's network. Each connection has one request, a bound on its bytes, and a time.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::Mono;
use net::Net;
use reactor::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::bridge::Bridge;
use super::counters;
use crate::command::config::mgr_options;
use crate::core::MonCore;
use crate::core::mgr::METRICS as MODULE;

/// The port of Ceph's module.
const PORT: u16 = 9283;
/// Most connections at a time.
const CONNECTIONS: usize = 16;
/// Longest request, in bytes, and most header lines.
const REQUEST_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Time for a request and its answer.
const TIME: Duration = Duration::from_secs(10);
/// Interval at which the options are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Age up to which a text serves further requests.
const FRESH: Duration = Duration::from_secs(1);

/// The newest text.
#[derive(Default)]
struct Cache(RefCell<Option<(Mono, Rc<str>)>>);

impl Cache {
    fn text(&self, bridge: &Bridge, net: &Net) -> Rc<str> {
        let now = clock::read();
        if let Some((at, text)) = &*self.0.borrow()
            && now.mono.since(*at) < FRESH
        {
            return Rc::clone(text);
        }
        let text: Rc<str> = {
            let own = counters::sections(bridge, net);
            crate::metrics::exposition(&bridge.core.borrow().state, &own, now).into()
        };
        *self.0.borrow_mut() = Some((now.mono, Rc::clone(&text)));
        text
    }
}

/// The address to listen on, if the module is enabled and the built-in role has it.
fn wanted(core: &MonCore, own: IpAddr) -> Option<SocketAddr> {
    let s = &core.state;
    if s.options.external_mgr || !s.mgrmap.modules.iter().any(|m| m == MODULE) {
        return None;
    }
    let o = mgr_options(s, "mgr/prometheus/");
    let ip = o.get("server_addr").and_then(|a| a.trim_matches(['[', ']']).parse().ok()).unwrap_or(own);
    let port = o.get("server_port").and_then(|p| p.trim().parse().ok()).unwrap_or(PORT);
    Some(SocketAddr::new(ip, port))
}

/// The address of the service in `ceph mgr services`.
fn uri(at: SocketAddr, own: IpAddr) -> String {
    let ip = if at.ip().is_unspecified() { own } else { at.ip() };
    format!("http://{}/", SocketAddr::new(ip, at.port()))
}

/// Serves while the monitor runs; `own` is the monitor's address.
pub(super) async fn run(bridge: Rc<Bridge>, net: Net, own: IpAddr) {
    let cache = Rc::new(Cache::default());
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut listener: Option<TcpListener> = None;
    let mut at: Option<SocketAddr> = None;
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = look.tick() => {
                let want = wanted(&bridge.core.borrow(), own);
                if want != at || want.is_some() && listener.is_none() {
                    listener = None;
                    if let Some(a) = want {
                        match TcpListener::bind(a).await {
                            Ok(l) => listener = Some(l),
                            // One line for an address; the call is repeated each second.
                            Err(e) if want != at => tracing::warn!("mgr: metrics cannot be served at {a}: {e}"),
                            Err(_) => {}
                        }
                    }
                    at = want;
                }
                bridge.offer(MODULE, at.filter(|_| listener.is_some()).map(|a| uri(a, own)));
            }
            peer = next(listener.as_ref()) => {
                // A peer beyond the bound is sent away at once.
                let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
                let (bridge, net, cache) = (Rc::clone(&bridge), net.clone(), Rc::clone(&cache));
                tokio::task::spawn_local(async move {
                    let _slot = slot;
                    // A client that is slow or gone concerns nobody else.
                    let _ = tokio::time::timeout(TIME, answer(peer, &bridge, &net, &cache)).await;
                });
            }
        }
    }
}

/// The next connection; never without a listener.
async fn next(l: Option<&TcpListener>) -> TcpStream {
    let Some(l) = l else { return std::future::pending().await };
    loop {
        match l.accept().await {
            Ok((s, _)) => return s,
            Err(e) => {
                tracing::warn!("mgr: metrics: accept: {e}");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// The path of a request, once its header is complete. Error: the status of the refusal.
fn path_of(request: &[u8]) -> Result<Option<String>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut r = httparse::Request::new(&mut headers);
    match r.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < REQUEST_MAX => Ok(None),
        Ok(httparse::Status::Partial) => Err("431 Request Header Fields Too Large"),
        Ok(httparse::Status::Complete(_)) if r.method != Some("GET") => Err("405 Method Not Allowed"),
        Ok(httparse::Status::Complete(_)) => Ok(Some(r.path.unwrap_or("/").to_owned())),
        Err(_) => Err("400 Bad Request"),
    }
}

/// Reads a request and answers it.
async fn answer(mut s: TcpStream, bridge: &Bridge, net: &Net, cache: &Cache) -> std::io::Result<()> {
    let mut request = Vec::new();
    let path = loop {
        let mut part = [0; 1024];
        let n = s.read(&mut part).await?;
        request.extend_from_slice(part.get(..n).unwrap_or_default());
        match path_of(&request) {
            Ok(None) if n == 0 => return Ok(()),
            Ok(None) => {}
            Ok(Some(p)) => break Ok(p),
            Err(status) => break Err(status),
        }
    };
    let (status, kind, body): (&str, &str, Rc<str>) = match path.as_deref().map(|p| p.split('?').next().unwrap_or(p)) {
        Ok("/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", cache.text(bridge, net)),
        Ok("/") => ("200 OK", "text/html; charset=utf-8", HOME.into()),
        Ok(_) => ("404 Not Found", "text/plain; charset=utf-8", "not found\n".into()),
        Err(status) => (status, "text/plain; charset=utf-8", format!("{status}\n").into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    s.write_all(head.as_bytes()).await?;
    s.write_all(body.as_bytes()).await?;
    s.shutdown().await
}

const HOME: &str = "<!DOCTYPE html><html><head><title>Metrics of the cluster</title></head><body>\
<h1>Metrics of the cluster</h1><p><a href=\"metrics\">Metrics</a></p></body></html>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_in_parts_and_bounded() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        for n in 0..whole.len() {
            assert_eq!(path_of(&whole[..n]), Ok(None), "{n}");
        }
        assert_eq!(path_of(whole), Ok(Some("/metrics?x=1".into())));
        assert_eq!(path_of(b"POST / HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        assert_eq!(path_of(b"\x16\x03\x01\x02\x00"), Err("400 Bad Request"), "a TLS client");
        let long = [b"GET /".as_slice(), &vec![b'a'; REQUEST_MAX]].concat();
        assert_eq!(path_of(&long), Err("431 Request Header Fields Too Large"));
    }

    #[test]
    fn the_address_shown_is_one_that_can_be_reached() {
        let own = "10.0.0.1".parse().unwrap();
        assert_eq!(uri("0.0.0.0:9283".parse().unwrap(), own), "http://10.0.0.1:9283/");
        assert_eq!(uri("[::1]:9283".parse().unwrap(), own), "http://[::1]:9283/");
    }
}
