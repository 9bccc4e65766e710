//! Does a process with few descriptors keep some for what it opens itself, and is a connection at its limit refused
//! before it costs another one? One test, since the counts are those of the process.

mod support;

use auth::ConMode;
use msgr::Policy;
use net::descriptors::{self, Accepted};
use net::{Limits, Net, gate};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;
use support::*;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

/// Opens a connection that does nothing, while the reactor does not run.
fn silent(at: SocketAddr) -> TcpStream {
    TcpStream::connect_timeout(&at, Duration::from_secs(20)).expect("the backlog has room")
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn sockets_on_their_way_are_few_and_refused_ones_cost_nobody_a_connection() {
    run(|| async {
        let net = Net::new();
        let (ep, _) = server(&net, Policy::lossy_server(vec![ConMode::CRC]), Limits::default(), Recorder::new(&net));
        let waiting: Rc<RefCell<Vec<Accepted>>> = Rc::default();
        let to = waiting.clone();
        let at = ep.listen_with(([127, 0, 0, 1], 0).into(), move |s, _| to.borrow_mut().push(s)).unwrap();
        let clients: Vec<TcpStream> = (0..300).map(|_| silent(at)).collect();
        let mut taken = 0;
        while taken < clients.len() {
            let fewest = descriptors::WAITING_MAX.min(clients.len() - taken);
            until(|| waiting.borrow().len() >= fewest).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let some = std::mem::take(&mut *waiting.borrow_mut());
            assert!(some.len() <= descriptors::WAITING_MAX, "{}", some.len());
            taken += some.len();
        }
        drop(clients);

        // An address fails as often as it may.
        let at = ep.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let most = gate::FAILURES + 10 * gate::FAILURES_A_SECOND;
        for _ in 0..most {
            drop(silent(at));
            tokio::task::yield_now().await;
        }
        until(|| net.stats().not_signed_in == 0).await;
        // Another has all connections that the process may accept.
        descriptors::set_limit(40);
        let mut others = Vec::new();
        for _ in 0..descriptors::accepted_max(40) {
            let s = TcpSocket::new_v4().unwrap();
            s.bind(([127, 0, 0, 2], 0).into()).unwrap();
            others.push(s.connect(at).await.unwrap());
        }
        until(|| net.stats().not_signed_in == others.len() as u64).await;
        let mut refused = tokio::net::TcpStream::connect(at).await.unwrap();
        let mut end = [0; 1];
        assert!(matches!(refused.read(&mut end).await, Ok(0) | Err(_)), "nothing was to be said to it");
        for s in &others {
            // A connection that is served has got a banner and nothing since.
            let mut banner = [0; 256];
            let n = loop {
                match s.try_read(&mut banner) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => s.readable().await.unwrap(),
                    other => break other.unwrap(),
                }
            };
            assert!(n > 0);
            assert!(matches!(s.try_read(&mut banner), Err(e) if e.kind() == ErrorKind::WouldBlock), "it was ended");
        }
        ep.shutdown();
    });
}
