//! A file system's MDS daemons on a reactor: connections and timers around [`Machine`].

use super::Client;
use super::links::{Links, Waiters};
use super::session::hostname;
use crate::core::mds::request::{Answer, Request};
use crate::core::mds::{Machine, Output, RankInfo};
use base::errno::{ENOTCONN, Errno};
use base::{EntityKind, Epoch};
use net::{ConnEvent, ConnId, Endpoint, Handler, Net, OsRandom, Target};
use reactor::clock;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use wire::types::StrMap;

/// Interval at which the map is read and timers run.
const TICK: Duration = Duration::from_millis(200);

/// Reads the file system's newest map: its epoch, zero if it is gone, and the daemons of its ranks.
pub type Ranks = Box<dyn Fn() -> (Epoch, Vec<RankInfo>)>;

/// Sessions with the MDS daemons of a file system. They end when this is dropped.
pub struct Files {
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    machine: RefCell<Machine>,
    links: Links<i32>,
    waiters: Waiters<Result<Box<Answer>, Errno>>,
    durable: RefCell<Vec<(u64, oneshot::Sender<()>)>>,
    ranks: Ranks,
}

struct Events(Weak<Files>);

impl Handler for Events {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(f) = self.0.upgrade() {
            f.event(conn, event);
        }
    }
}

impl Files {
    /// Makes the sessions of `client` in the file system that `ranks` reads. Must run on a reactor.
    #[must_use]
    pub fn new(client: &Client, ranks: Ranks) -> Rc<Self> {
        let mut first = [0; 8];
        auth::Random::fill(&OsRandom, &mut first);
        // The number of a request is never used twice by one entity: a session may outlive this process's memory of it.
        let first = u64::from_le_bytes(first) >> 16;
        let metadata: StrMap = [
            ("entity_id".to_owned(), "mgr".to_owned()),
            ("hostname".to_owned(), hostname()),
            ("root".to_owned(), "/".to_owned()),
            ("pid".to_owned(), std::process::id().to_string()),
        ]
        .into();
        let me = Rc::new_cyclic(|me| {
            let (net, endpoint) = client.mds_endpoint(Rc::new(Events(me.clone())));
            let links = Links::new(net.clone());
            Self {
                net,
                endpoint: RefCell::new(Some(endpoint)),
                machine: RefCell::new(Machine::new(metadata, first)),
                links,
                waiters: Waiters::new(),
                durable: RefCell::default(),
                ranks,
            }
        });
        me.look();
        tokio::task::spawn_local(tick(Rc::downgrade(&me)));
        me
    }

    /// Runs a request.
    ///
    /// # Errors
    /// The negative errno of the MDS, or `ENOTCONN` if the session was ended before it answered.
    pub async fn call(&self, req: Request) -> Result<Box<Answer>, Errno> {
        let tid = self.machine.borrow_mut().submit(clock::now(), req);
        let rx = self.waiters.add(tid);
        self.drain();
        rx.await.unwrap_or(Err(ENOTCONN))
    }

    /// Waits until all answered changes are durable.
    pub async fn sync(&self) {
        let (tx, rx) = oneshot::channel();
        let answers = self.machine.borrow_mut().sync(clock::now());
        self.durable.borrow_mut().push((answers, tx));
        self.drain();
        // The sender is dropped only with this.
        let _ = rx.await;
    }

    /// True if no session is open and no request waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.machine.borrow().is_idle()
    }

    fn look(&self) {
        let (epoch, ranks) = (self.ranks)();
        match epoch {
            Epoch(0) => self.machine.borrow_mut().handle_gone(),
            epoch => self.machine.borrow_mut().handle_map(clock::now(), epoch, &ranks),
        }
        self.machine.borrow_mut().tick(clock::now());
        self.drain();
    }

    fn event(&self, conn: ConnId, event: ConnEvent) {
        let Some(rank) = self.links.peer(conn) else { return };
        match event {
            ConnEvent::Open(peer) => self.machine.borrow_mut().handle_open(clock::now(), rank, peer.features),
            ConnEvent::Closed(reason) => {
                tracing::debug!(rank, %reason, "connection to an MDS closed");
                self.closed(rank, conn);
            }
            ConnEvent::Message(m) => {
                let r = self.machine.borrow_mut().handle_message(clock::now(), rank, &m);
                if let Err(error) = r {
                    tracing::warn!(rank, kind = m.header.kind, %error, "message of an MDS cannot be decoded");
                    self.net.close(conn);
                    self.closed(rank, conn);
                }
            }
        }
        self.drain();
    }

    fn closed(&self, rank: i32, conn: ConnId) {
        self.links.ended(rank, conn);
        self.machine.borrow_mut().handle_closed(clock::now(), rank);
    }

    fn drain(&self) {
        loop {
            let Some(o) = self.machine.borrow_mut().poll_output() else { return };
            match o {
                Output::Connect(rank, addr) => {
                    let Some(ep) = self.endpoint.borrow().clone() else { continue };
                    let conn = ep.connect(Target::new(EntityKind::MDS, addr));
                    self.links.add(rank, conn);
                }
                Output::Close(rank) => self.links.close(rank),
                Output::Send(rank, m) => self.links.send(rank, m),
                Output::Done(tid, r) => self.waiters.answer(tid, r),
                Output::Durable(below) => {
                    for (answers, w) in self.durable.take() {
                        if answers < below {
                            // The caller may have given up waiting.
                            let _ = w.send(());
                        } else {
                            self.durable.borrow_mut().push((answers, w));
                        }
                    }
                }
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(ep) = self.endpoint.take() {
            ep.shutdown();
        }
    }
}

async fn tick(me: Weak<Files>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(me) = me.upgrade() else { return };
        me.look();
    }
}
