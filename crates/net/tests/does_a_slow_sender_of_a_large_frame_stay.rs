//! Is what a slow sender of a large frame has sent read, though the frame's rest does not come?

mod support;

use auth::ConMode;
use base::EntityAddr;
use msgr::Policy;
use net::{Limits, Net};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use support::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const CRC: [ConMode; 1] = [ConMode::CRC];
/// Bytes that arrive at once, and those that follow in a small piece.
const QUICK: usize = 1 << 20;
const SLOW: usize = 3000;

/// Gate of a proxy: bytes of the client so far, and how many it may forward.
#[derive(Default)]
struct Gate {
    forwarded: Cell<usize>,
    most: Cell<usize>,
    opened: Notify,
}

impl Gate {
    fn open(&self, bytes: usize) {
        self.most.set(self.forwarded.get().saturating_add(bytes));
        self.opened.notify_one();
    }
}

/// Forwards one connection to `to`, and the answers.
async fn proxy(listener: TcpListener, to: SocketAddr, gate: Rc<Gate>) {
    let (client, _) = listener.accept().await.unwrap();
    let server = TcpStream::connect(to).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    tokio::task::spawn_local(async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    });
    let mut buf = vec![0; 128 << 10];
    loop {
        let left = gate.most.get() - gate.forwarded.get();
        if left == 0 {
            gate.opened.notified().await;
            continue;
        }
        let most = left.min(buf.len());
        let Ok(n @ 1..) = from_client.read(&mut buf[..most]).await else { return };
        gate.forwarded.set(gate.forwarded.get() + n);
        if to_server.write_all(&buf[..n]).await.is_err() {
            return;
        }
    }
}

#[test]
fn bytes_of_a_frame_that_stalls_are_read_and_it_can_end_later() {
    run(|| async {
        let (here, there) = (Net::new(), Net::new());
        let got = Recorder::new(&there);
        let (ep, addr) = server(&there, Policy::lossy_server(CRC.to_vec()), Limits::default(), got.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let between = EntityAddr { sock: Some(listener.local_addr().unwrap()), ..addr };
        ep.set_addrs(between.into());
        let gate = Rc::new(Gate::default());
        tokio::task::spawn_local(proxy(listener, addr.sock.unwrap(), gate.clone()));
        gate.open(usize::MAX);
        let seen = Recorder::new(&here);
        let client = client(&here, Policy::lossy_client(CRC.to_vec()), Limits::default(), seen.clone());
        let conn = client.connect(target(between));
        seen.open().await;
        got.open().await;
        let arrived = || there.stats().bytes_in as usize;
        while arrived() < gate.forwarded.get() || here.stats().bytes_out as usize > gate.forwarded.get() {
            tokio::task::yield_now().await;
        }
        gate.open(QUICK);
        here.send(conn, message(1, 10, 4 << 20)).unwrap();
        for next in [SLOW, SLOW, usize::MAX] {
            while gate.forwarded.get() < gate.most.get() || arrived() < gate.forwarded.get() {
                tokio::task::yield_now().await;
            }
            assert!(got.events.borrow().is_empty());
            gate.open(next);
        }
        assert_eq!(got.message().await.data, message(1, 10, 4 << 20).data);
    });
}
