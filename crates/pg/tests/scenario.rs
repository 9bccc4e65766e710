//! Do watches, notifies, timeouts and restarts go as recorded in `testdata/*.txt`?
//!
//! Lines with `>` are inputs, the others are outputs. `UPDATE_EXPECT=1` records the present outputs.
mod common;

use base::EntityAddr;
use bytes::Bytes;
use common::*;
use pg::map::Blocklist;
use pg::{Event, SessionId};
use std::fmt::Write as _;
use std::rc::Rc;
use wire::Encode;
use wire::msg::osd_op::WatchArgs;
use wire::msg::{MOsdOpReply, NotifyReply, OpCode, OsdOp, watch_event};
use wire::types::{ListWatchersReply, NotifyArgs};

struct Block(u32);

impl Blocklist for Block {
    fn is_empty(&self) -> bool {
        false
    }
    fn contains(&self, a: &EntityAddr) -> bool {
        a.nonce == self.0
    }
}

/// The operation in `words`; `$` stands for the newest notify.
fn parse(words: &[&str], notify: u64) -> OsdOp {
    let num = |i: usize| words.get(i).map_or(0, |w| w.parse::<u64>().unwrap());
    let text = |i: usize| Bytes::copy_from_slice(words.get(i).unwrap_or(&"").as_bytes());
    let watch = |op| {
        let mut o = simple(OpCode::WATCH);
        o.set_watch(WatchArgs { cookie: num(1), op, timeout: num(2) as u32, ..WatchArgs::default() });
        o
    };
    match words[0] {
        "create" => simple(OpCode::CREATE),
        "delete" => simple(OpCode::DELETE),
        "watch" => watch(WatchArgs::WATCH),
        "unwatch" => watch(WatchArgs::UNWATCH),
        "ping" => watch(WatchArgs::PING),
        "reconnect" => watch(WatchArgs::RECONNECT),
        "watchers" => simple(OpCode::LIST_WATCHERS),
        "notify" => {
            let args = NotifyArgs { prot_ver: 1, timeout_seconds: num(3) as u32, payload: text(2) };
            let mut o = encoded(OpCode::NOTIFY, &args);
            o.set_notify_cookie(num(1));
            o
        }
        "ack" => {
            assert_eq!(words[1], "$");
            OsdOp::with_indata(OpCode::NOTIFY_ACK, ((notify, num(2)), text(3)).to_bytes(wire::Features::PACIFIC))
        }
        w => panic!("unknown operation {w}"),
    }
}

fn show_reply(s: SessionId, r: &MOsdOpReply, out: &mut String) {
    let op = &r.ops[0];
    write!(out, "reply {} {} = {}", s.0, op.op, r.result).unwrap();
    if r.result < 0 {
        write!(out, " {}", base::errno::name(r.result)).unwrap();
    } else if op.op == OpCode::NOTIFY {
        let id: u64 = decode(&op.outdata);
        write!(out, " id {id:x}").unwrap();
    } else if op.op == OpCode::LIST_WATCHERS {
        let l: ListWatchersReply = decode(&op.outdata);
        for e in l.entries {
            write!(out, " {}:{}/{}s", e.name, e.cookie, e.timeout_seconds).unwrap();
        }
    }
    out.push('\n');
}

fn show(w: &mut World, out: &mut String) {
    for (s, m, data) in std::mem::take(&mut w.watch) {
        let what = match m.opcode {
            watch_event::NOTIFY => format!("notify {:x} from {} {:?}", m.notify_id, m.notifier_gid, m.payload),
            watch_event::NOTIFY_COMPLETE => {
                let r: NotifyReply = decode(&data);
                let code = if m.return_code == 0 { "ok" } else { base::errno::name(m.return_code) };
                format!("complete {:x} {code} acks {:?} timeouts {:?}", m.notify_id, r.acks, r.timeouts)
            }
            watch_event::DISCONNECT => "disconnect".to_owned(),
            o => panic!("opcode {o}"),
        };
        writeln!(out, "watch {} cookie {} {what}", s.0, m.cookie).unwrap();
    }
    for key in std::mem::take(&mut w.order) {
        let r = w.replies.remove(&key).unwrap();
        show_reply(key.0, &r, out);
    }
}

fn play(text: &str) -> String {
    let mut w = World::new();
    let mut out = String::new();
    let mut notify = 0;
    for line in text.lines() {
        let Some(input) = line.strip_prefix("> ") else {
            if line.starts_with('#') {
                writeln!(out, "{line}").unwrap();
            }
            continue;
        };
        writeln!(out, "{line}").unwrap();
        let words: Vec<&str> = input.split(' ').collect();
        match words[0] {
            "op" => {
                // `4=1`: client 1 on session 4.
                let (session, who) = words[1].split_once('=').unwrap_or((words[1], words[1]));
                let op = parse(&words[3..], notify);
                let mut r = w.request(session.parse().unwrap(), words[2], vec![op]);
                r.client = client(who.parse().unwrap());
                w.send(r);
            }
            "advance" => w.advance(words[1].parse().unwrap()),
            "close" => w.handle(Event::SessionClosed(SessionId(words[1].parse().unwrap()))),
            "restart" => w.restart(),
            "blocklist" => {
                w.view.blocklist = Rc::new(Block(words[1].parse().unwrap()));
                w.next_map();
            }
            c => panic!("unknown command {c}"),
        }
        w.settle();
        if let Some(m) = w.watch.iter().find(|m| m.1.notify_id != 0) {
            notify = m.1.notify_id;
        }
        show(&mut w, &mut out);
    }
    out
}

fn check(name: &str) {
    let path = format!("{}/testdata/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let got = play(&text);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &got).unwrap();
    } else {
        assert!(got == text, "{path} differs, got:\n{got}");
    }
}

#[test]
fn watch_notify() {
    check("watch_notify");
}

#[test]
fn watch_timeout() {
    check("watch_timeout");
}

#[test]
fn watch_restart() {
    check("watch_restart");
}

/// Payloads and acknowledgements of notifies are bounded, and space is free again when they complete.
#[test]
fn notifies_are_bounded() {
    use base::errno::{EBUSY, EINVAL, EMSGSIZE};
    use pg::limits::{NOTIFIES_MAX, NOTIFY_BYTES_MAX};
    let mut w = World::new();
    w.op("a", vec![parse(&["create"], 0), parse(&["watch", "7", "1000"], 0)]);
    let notify = |bytes: usize| {
        let args = NotifyArgs { prot_ver: 1, timeout_seconds: 60, payload: vec![1; bytes].into() };
        encoded(OpCode::NOTIFY, &args)
    };
    let ack = |id: u64, bytes: usize| {
        OsdOp::with_indata(
            OpCode::NOTIFY_ACK,
            ((id, 7u64), Bytes::from(vec![1; bytes])).to_bytes(wire::Features::PACIFIC),
        )
    };
    assert_eq!(w.op("a", vec![notify(NOTIFY_BYTES_MAX + 1)]).result, EMSGSIZE);
    assert_eq!(w.op("a", vec![notify(NOTIFY_BYTES_MAX / 2)]).result, 0);
    let id = w.watch.iter().map(|m| m.1.notify_id).max().unwrap();
    assert_eq!(w.op("a", vec![notify(NOTIFY_BYTES_MAX / 2 + 1)]).result, EBUSY);
    assert_eq!(w.op("a", vec![notify(NOTIFY_BYTES_MAX / 4), notify(NOTIFY_BYTES_MAX / 2)]).result, EBUSY, "together");
    assert_eq!(w.op("a", vec![ack(id, NOTIFY_BYTES_MAX / 2 + 1)]).result, EMSGSIZE);
    assert_eq!(w.op("a", vec![ack(id, 100)]).result, 0);
    assert!(w.watch.iter().any(|m| m.1.opcode == watch_event::NOTIFY_COMPLETE));
    for _ in 0..NOTIFIES_MAX {
        assert_eq!(w.op("a", vec![notify(1)]).result, 0);
    }
    assert_eq!(w.op("a", vec![notify(1)]).result, EBUSY);
    w.advance(60_001);
    assert_eq!(w.op("a", vec![notify(NOTIFY_BYTES_MAX)]).result, 0, "all of them have ended");
    // Undecodable input is not a notify without payload.
    let rotten = OsdOp::with_indata(OpCode::NOTIFY, Bytes::from_static(&[1, 0, 0, 0, 9]));
    assert_eq!(w.op("a", vec![rotten]).result, EINVAL);
    let rotten = OsdOp::with_indata(OpCode::NOTIFY_ACK, Bytes::from_static(&[1, 0, 0]));
    assert_eq!(w.op("a", vec![rotten]).result, EINVAL);
}
