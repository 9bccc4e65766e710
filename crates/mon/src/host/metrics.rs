//! The HTTP endpoint of the module `prometheus`: `GET /metrics`.
//!
//! The endpoint listens while the module is enabled (`ceph mgr module enable prometheus`) on `mgr/prometheus/server_addr` and
//! `server_port`, by default port 9283 of the monitor's own address. Requests need no key, as with Ceph's module, so the
//! address should be one of the cluster's network. [`console::host::server`] has the bounds of requests.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use base::Mono;
use console::host::server::{self, Answering, Transport};
use console::http::{Answer, Method, Request};
use net::Net;
use reactor::clock;

use super::bridge::Bridge;
use super::counters;
use super::modules::Module;
use crate::state::modules::METRICS;

const MODULE: Module = Module { name: METRICS, port_option: "server_port", port: 9283, scheme: "http" };
/// Age up to which a text serves further requests.
const FRESH: Duration = Duration::from_secs(1);

/// The newest text.
#[derive(Default)]
struct Cache(RefCell<Option<(Mono, Rc<str>)>>);

/// The endpoint.
struct Metrics {
    bridge: Rc<Bridge>,
    net: Net,
    /// The monitor's address.
    own: IpAddr,
    cache: Cache,
}

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
            crate::metrics::exposition(bridge.core.borrow().state(), &own, now).into()
        };
        *self.0.borrow_mut() = Some((now.mono, Rc::clone(&text)));
        text
    }
}

impl server::Module for Metrics {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn wanted(&self) -> Option<(SocketAddr, Transport)> {
        MODULE.wanted(&self.bridge.core.borrow(), self.own).map(|a| (a, Transport::Plain))
    }

    fn offer(&self, at: Option<SocketAddr>) {
        self.bridge.offer(METRICS, at.map(|a| MODULE.uri(a, self.own)));
    }

    fn answer(self: Rc<Self>, r: Request, _: IpAddr) -> Answering<Answer> {
        let answer = match (r.method, r.path.as_str()) {
            (Method::Post, _) => Answer::plain("405 Method Not Allowed"),
            (_, "/metrics") => {
                let text = self.cache.text(&self.bridge, &self.net);
                Answer::new("200 OK", "text/plain; version=0.0.4; charset=utf-8", text.as_bytes())
            }
            (_, "/") => Answer::new("200 OK", "text/html; charset=utf-8", HOME),
            _ => Answer::plain("404 Not Found"),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Serves while the monitor runs; `own` is the monitor's address.
pub(super) async fn run(bridge: Rc<Bridge>, net: Net, own: IpAddr) {
    server::run(Rc::new(Metrics { bridge, net, own, cache: Cache::default() })).await;
}

const HOME: &str = "<!DOCTYPE html><html><head><title>Metrics of the cluster</title></head><body>\
<h1>Metrics of the cluster</h1><p><a href=\"metrics\">Metrics</a></p></body></html>\n";
