//! Connections of a core by peer, and callers that wait for its answers. Neither is borrowed while the network is called or
//! a waiter is woken.

use net::{ConnId, Net};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use tokio::sync::oneshot;
use wire::Message;

/// Connections to peers, one for each.
pub(super) struct Links<K> {
    net: Net,
    by_peer: RefCell<HashMap<K, ConnId>>,
    by_conn: RefCell<HashMap<ConnId, K>>,
}

impl<K: Copy + Eq + Hash> Links<K> {
    pub(super) fn new(net: Net) -> Self {
        Self { net, by_peer: RefCell::default(), by_conn: RefCell::default() }
    }

    /// Notes a new connection to a peer.
    pub(super) fn add(&self, peer: K, conn: ConnId) {
        self.by_peer.borrow_mut().insert(peer, conn);
        self.by_conn.borrow_mut().insert(conn, peer);
    }

    /// Peer of a connection that has not ended.
    pub(super) fn peer(&self, conn: ConnId) -> Option<K> {
        self.by_conn.borrow().get(&conn).copied()
    }

    /// Sends a message, if there is a connection. A closed one reports its end, and the core sends again.
    pub(super) fn send(&self, peer: K, m: Message) {
        let conn = self.by_peer.borrow().get(&peer).copied();
        if let Some(c) = conn {
            let _ = self.net.send(c, m);
        }
    }

    /// Closes the connection to a peer.
    pub(super) fn close(&self, peer: K) {
        let conn = self.by_peer.borrow_mut().remove(&peer);
        if let Some(c) = conn {
            self.by_conn.borrow_mut().remove(&c);
            self.net.close(c);
        }
    }

    /// Forgets a connection that has ended.
    pub(super) fn ended(&self, peer: K, conn: ConnId) {
        self.by_conn.borrow_mut().remove(&conn);
        self.by_peer.borrow_mut().remove(&peer);
    }
}

/// Callers that wait for an answer, by the number of their request.
pub(super) struct Waiters<T>(RefCell<HashMap<u64, oneshot::Sender<T>>>);

impl<T> Waiters<T> {
    pub(super) fn new() -> Self {
        Self(RefCell::default())
    }

    /// A receiver of the answer to a request.
    pub(super) fn add(&self, tid: u64) -> oneshot::Receiver<T> {
        let (tx, rx) = oneshot::channel();
        self.0.borrow_mut().insert(tid, tx);
        rx
    }

    /// Wakes the caller of a request, who may have given up waiting.
    pub(super) fn answer(&self, tid: u64, answer: T) {
        let waiter = self.0.borrow_mut().remove(&tid);
        if let Some(w) = waiter {
            let _ = w.send(answer);
        }
    }
}
