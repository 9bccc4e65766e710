//! The module `dashboard`: the console, served over TLS while the module is enabled (`ceph mgr module enable dashboard`) on
//! `mgr/dashboard/server_addr` and `ssl_server_port`, by default port 8443 of the monitor's own address.
//!
//! Certificate and key are in the config-key store, where Ceph's dashboard has them. If there is none, the console makes
//! one that is signed by itself. A user of the console is a client of this monitor, which checks each command.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::EntityAddr;
use bytes::Bytes;
use console::history::{STEP, Sample};
use console::host::app::App;
use console::host::certificate::{Identity, self_signed};
use console::host::server::{self, Answering, Transport};
use console::host::users::Monitor;
use console::http::{Answer, Request};
use mgr::stats::space;
use reactor::clock;

use super::bridge::Bridge;
use super::modules::Module;
use crate::core::MonCore;
use crate::state::modules::{CERTIFICATE, CONSOLE, PRIVATE_KEY};

const MODULE: Module = Module { name: CONSOLE, port_option: "ssl_server_port", port: 8443, scheme: "https" };
/// Time for a request: commands wait for a commit.
const TIME: Duration = Duration::from_secs(60);

/// The configuration of TLS, with the certificate and key that were looked at last; `None` without usable ones.
type Tls = (Bytes, Bytes, Option<Arc<rustls::ServerConfig>>);

struct Console {
    bridge: Rc<Bridge>,
    /// The monitor's address.
    own: IpAddr,
    app: App,
    tls: RefCell<Option<Tls>>,
}

impl Console {
    /// TLS with the stored certificate. Without one, a new one is stored first.
    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        let stored = {
            let core = self.bridge.core.borrow();
            let get = |k: &str| core.state().kv.get(k).cloned();
            (get(CERTIFICATE), get(PRIVATE_KEY))
        };
        let (certificate, key) = match stored {
            (Some(c), Some(k)) => (c, k),
            (None, None) => {
                self.make_certificate();
                return None;
            }
            // The operator is setting one after the other.
            _ => return self.tls.borrow().as_ref().and_then(|(_, _, made)| made.clone()),
        };
        if let Some((c, k, made)) = &*self.tls.borrow()
            && (c, k) == (&certificate, &key)
        {
            return made.clone();
        }
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        let identity = Identity { certificate: text(&certificate), key: text(&key) };
        let made = identity.server().map(Arc::new).inspect_err(|e| {
            tracing::warn!(
                "mgr: the console's new certificate is not used: {e}; `ceph dashboard create-self-signed-cert` makes another"
            );
        });
        // Until certificate and key belong together, the last ones serve on.
        let last = self.tls.borrow_mut().take().and_then(|(_, _, made)| made);
        let made = made.ok().or(last);
        *self.tls.borrow_mut() = Some((certificate, key, made.clone()));
        made
    }

    fn make_certificate(&self) {
        let host = {
            let core = self.bridge.core.borrow();
            core.state().options.host_metadata.get("hostname").cloned().unwrap_or_default()
        };
        let names = [host, self.own.to_string(), "localhost".to_owned()];
        match self_signed(&names, clock::read().wall) {
            Ok(i) => self.bridge.store_values([(CERTIFICATE, i.certificate.into()), (PRIVATE_KEY, i.key.into())]),
            Err(e) => tracing::warn!("mgr: the console is not served: {e}"),
        }
    }
}

impl server::Module for Console {
    fn name(&self) -> &'static str {
        "the console"
    }

    fn wanted(&self) -> Option<(SocketAddr, Transport)> {
        let at = MODULE.wanted(&self.bridge.core.borrow(), self.own);
        match at {
            Some(a) => Some((a, Transport::Tls(self.tls()?))),
            None => {
                self.app.close();
                None
            }
        }
    }

    fn offer(&self, at: Option<SocketAddr>) {
        self.bridge.offer(CONSOLE, at.map(|a| MODULE.uri(a, self.own)));
    }

    fn answer(self: Rc<Self>, r: Request, from: IpAddr) -> Answering<Answer> {
        Box::pin(async move { self.app.answer(r, from).await })
    }

    fn time(&self) -> Duration {
        TIME
    }
}

/// The figures of the cluster now. The work is proportional to the OSDs.
fn sample(core: &MonCore) -> Sample {
    let stats = &core.state().mgr.stats;
    let rate = stats.rate(None);
    let sum = stats.osd_sum().statfs;
    let up = stats.osds().filter(|(o, _)| core.state().osdmap.is_up(**o));
    let ms: Vec<f64> = up.map(|(_, s)| s.os_perf_stat.commit_latency_ns as f64 / 1e6).collect();
    Sample {
        time: clock::read().wall.to_unix().as_secs(),
        read_bytes: rate.read_bytes as f64,
        written_bytes: rate.write_bytes as f64,
        reads: rate.read_ops as f64,
        writes: rate.write_ops as f64,
        recovered_bytes: rate.recovering_bytes as f64,
        commit_ms: ms.iter().sum::<f64>() / ms.len().max(1) as f64,
        commit_ms_max: ms.iter().copied().fold(0.0, f64::max),
        used: space::used_raw(&sum) as f64,
        total: sum.total as f64,
    }
}

/// Serves while the monitor runs. `monitor` is the monitor's address for clients.
pub(super) async fn run(bridge: Rc<Bridge>, monitor: EntityAddr, own: IpAddr) {
    let app = App::new(Box::new(Monitor(monitor)));
    let console = Rc::new(Console { bridge, own, app, tls: RefCell::default() });
    let samples = async {
        let mut step = tokio::time::interval(Duration::from_secs(STEP));
        loop {
            step.tick().await;
            let s = sample(&console.bridge.core.borrow());
            console.app.sample(s);
        }
    };
    let served = server::run(Rc::clone(&console));
    tokio::select! {
        () = samples => {}
        () = served => {}
    }
}
