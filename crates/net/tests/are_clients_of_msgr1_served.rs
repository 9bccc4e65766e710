//! Are clients of msgr1 served at a port of their own, by the limits that hold for those of msgr2?

mod support;

use base::crc::crc32c;
use base::{AddrKind, AddrVec, EntityAddr, EntityKind};
use msgr::v1::format::{COMPLETE, FOOTER_LEN, Footer, HEADER_LEN, Header, REPLY_LEN, SERVER_HELLO_LEN, Tag};
use msgr::{Policy, Protocol};
use net::{CloseReason, Endpoint, Limits, Net};
use std::rc::Rc;
use std::time::Duration;
use support::{Recorder, Seen, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::{Features, MsgHeader, Writer};

/// A server with a port for each protocol; the address is that of msgr1.
fn server(net: &Net, limits: Limits, handler: Rc<Recorder>) -> (Endpoint, EntityAddr) {
    let (ep, v2) = support::server(net, Policy::lossy_server(vec![auth::ConMode::CRC]), limits, handler);
    let l = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let v1 = EntityAddr { kind: AddrKind::LEGACY, nonce: 77, sock: Some(l.local_addr().unwrap()) };
    ep.set_addrs(AddrVec(vec![v2, v1]));
    ep.listen_on(l, Protocol::V1).unwrap();
    (ep, v1)
}

/// Bytes with which a client of method none opens a session at an OSD.
fn opening() -> Vec<u8> {
    let mut authorizer = Writer::new(Features::PACIFIC);
    authorizer.u8(1);
    authorizer.put(&base::AuthName::parse("client.old").unwrap());
    authorizer.u64(7);
    let mut w = Writer::new(Features::default());
    w.raw(b"ceph v027");
    w.put(&EntityAddr { kind: AddrKind::LEGACY, nonce: 5, sock: None });
    w.u64(Features::PACIFIC.0);
    for n in [u32::from(EntityKind::CLIENT.0), 1, 0, 24, auth::Method::NONE.0, authorizer.len() as u32] {
        w.u32(n);
    }
    w.u8(1);
    w.raw(authorizer.as_slice());
    w.u64(0);
    w.as_slice().to_vec()
}

fn message(seq: u64, front: &[u8]) -> Vec<u8> {
    let common = MsgHeader { seq, tid: seq, kind: 42, ..MsgHeader::default() };
    let mut h = Header { common, len: [front.len(), 0, 0], ..Header::default() };
    let f = Footer { crc: [crc32c(0, front), 0, 0], signature: 0, flags: COMPLETE };
    [&[Tag::Msg as u8][..], &h.seal(), front, &f.bytes()].concat()
}

#[test]
fn a_client_is_greeted_with_the_address_of_msgr1_and_exchanges_messages() {
    run(|| async {
        let net = Net::new();
        let seen = Recorder::new(&net);
        let (_ep, addr) = server(&net, Limits::default(), seen.clone());
        let mut s = TcpStream::connect(addr.sock.unwrap()).await.unwrap();
        s.write_all(&opening()).await.unwrap();
        let mut hello = [0; SERVER_HELLO_LEN];
        s.read_exact(&mut hello).await.unwrap();
        let ours: EntityAddr = wire::Reader::new(&hello[9..]).get().unwrap();
        assert_eq!(ours, addr, "nonce and port are what the map says, or the client goes away");
        let mut reply = [0; REPLY_LEN + 8];
        s.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[0], Tag::Seq as u8);
        let (conn, peer) = seen.open().await;
        assert_eq!((peer.principal.name.to_string().as_str(), peer.principal.global_id), ("client.old", 7));
        assert_eq!((peer.lossy, peer.addrs.to_string().as_str()), (true, "v1:127.0.0.1:0/5"));
        s.write_all(&message(1, b"up")).await.unwrap();
        let m = seen.message().await;
        assert_eq!(&m.front[..], b"up");
        net.send(conn, m).unwrap();
        let mut back = [0; 1 + HEADER_LEN + 2 + FOOTER_LEN];
        s.read_exact(&mut back).await.unwrap();
        let h = Header::read(&back[1..=HEADER_LEN]).unwrap();
        assert_eq!((h.common.kind, h.src_kind, h.src_num), (42, EntityKind::OSD, 3));
        drop(s);
        assert_eq!(seen.closed().await, CloseReason::Peer);
        assert_eq!(net.stats().connections, 0);
    });
}

#[test]
fn a_connection_that_opens_nothing_is_closed_in_time_and_never_reported() {
    run(|| async {
        let net = Net::new();
        let seen = Recorder::new(&net);
        let limits = Limits { handshake_max: Duration::from_millis(1), ..Limits::default() };
        let (_ep, addr) = server(&net, limits, seen.clone());
        let mut silent = TcpStream::connect(addr.sock.unwrap()).await.unwrap();
        let mut other = TcpStream::connect(addr.sock.unwrap()).await.unwrap();
        other.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        for s in [&mut silent, &mut other] {
            // The greeting, and then the end.
            let mut all = Vec::new();
            let _ = s.read_to_end(&mut all).await;
            assert!(all.len() <= SERVER_HELLO_LEN);
        }
        assert_eq!((net.stats().connections, net.stats().not_signed_in), (0, 0));
        assert!(seen.events.borrow().iter().all(|(_, e)| !matches!(e, Seen::Open(_) | Seen::Closed(_))));
    });
}
