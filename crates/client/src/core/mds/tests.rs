//! The session machine against an MDS that answers as a script says.

use super::request::{Cursor, op};
use super::*;
use wire::msg::MClientRequest;
use wire::types::{DirStat, InodeStat, LeaseStat, ReplyCap, SnapRealmInfo};
use wire::{Encode as _, Reader, Writer};

const F: Features = Features::PACIFIC;

struct World {
    m: Machine,
    at: u64,
}

fn rank(rank: i32, gid: u64, state: i32) -> RankInfo {
    RankInfo { rank, gid, addr: EntityAddr::unlistening(u32::try_from(gid).unwrap()), state }
}

impl World {
    fn new() -> Self {
        Self { m: Machine::new(StrMap::new(), 1), at: 1 << 40 }
    }

    fn now(&self) -> Now {
        Now { mono: Mono(self.at), wall: base::Utime { sec: 7, nsec: 0 } }
    }

    fn wait(&mut self, d: Duration) {
        self.at += u64::try_from(d.as_nanos()).unwrap();
        let now = self.now();
        self.m.tick(now);
    }

    fn map(&mut self, ranks: &[RankInfo]) {
        let now = self.now();
        self.m.handle_map(now, Epoch(5), ranks);
    }

    fn gone(&mut self) {
        self.m.handle_gone();
    }

    fn submit(&mut self, r: Request) -> u64 {
        let now = self.now();
        self.m.submit(now, r)
    }

    fn open(&mut self, rank: i32) {
        let now = self.now();
        self.m.handle_open(now, rank, F);
    }

    fn closed(&mut self, rank: i32) {
        let now = self.now();
        self.m.handle_closed(now, rank);
    }

    fn gets<M: WireMessage>(&mut self, rank: i32, tid: u64, m: &M) {
        let now = self.now();
        self.m.handle_message(now, rank, &m.to_message(F).with_tid(tid)).unwrap();
    }

    fn session(&mut self, rank: i32, op: u32) {
        self.gets(rank, 0, &MClientSession { op, ..MClientSession::default() });
    }

    fn out(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.m.poll_output()).collect()
    }

    /// Requests sent, with their numbers.
    fn requests(&mut self) -> Vec<(i32, u64, MClientRequest)> {
        self.out().iter().filter_map(sent).collect()
    }

    /// A session of the only rank, open.
    fn ready() -> Self {
        let mut w = Self::new();
        w.map(&[rank(0, 1, mds_state::ACTIVE)]);
        w.submit(Request::getattr(b"/a"));
        assert!(matches!(w.out()[..], [Output::Connect(0, _)]));
        w.open(0);
        assert_eq!(sessions(&w.out()), [session_op::REQUEST_OPEN]);
        w.session(0, session_op::OPEN);
        let sent = w.requests();
        assert_eq!((sent.len(), &sent[0].2.path.path[..], sent[0].2.path.ino), (1, &b"a"[..], 1));
        w.gets(0, 1, &answer(0, true));
        assert!(matches!(w.out()[..], [Output::Done(1, Ok(_)), Output::Durable(2)]));
        w
    }
}

fn sent(o: &Output) -> Option<(i32, u64, MClientRequest)> {
    let Output::Send(rank, m) = o else { return None };
    (m.header.kind == MClientRequest::KIND).then(|| (*rank, m.header.tid, MClientRequest::from_message(m).unwrap()))
}

fn sessions(out: &[Output]) -> Vec<u32> {
    let of = |o: &Output| match o {
        Output::Send(_, m) if m.header.kind == MClientSession::KIND => {
            Some(MClientSession::from_message(m).unwrap().op)
        }
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

fn answer(result: i32, safe: bool) -> MClientReply {
    MClientReply { result, safe, ..MClientReply::default() }
}

fn bytes(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(F);
    f(&mut w);
    w.into_bytes()
}

fn inode(ino: u64, cap_id: u64) -> InodeStat {
    let cap = ReplyCap { cap_id, seq: 3, mseq: 2, ..ReplyCap::default() };
    InodeStat { ino, snapid: base::SnapId::HEAD.0, cap, ..InodeStat::default() }
}

#[test]
fn capabilities_of_a_reply_are_given_back_at_once() {
    let mut w = World::ready();
    let tid = w.submit(Request::mkdir(b"/d", 0o755));
    assert_eq!(w.requests()[0].2.args[..4], 0o755_u32.to_le_bytes());
    let trace = bytes(|w| {
        inode(1, 11).encode(w);
        DirStat::default().encode(w);
        w.blob(b"d");
        LeaseStat::default().encode(w);
        inode(9, 12).encode(w);
    });
    w.gets(0, tid, &MClientReply { is_dentry: true, is_target: true, trace, ..answer(0, false) });
    let out = w.out();
    let released: Vec<(u64, u64, u32, u32)> = out
        .iter()
        .filter_map(|o| match o {
            Output::Send(0, m) if m.header.kind == MClientCapRelease::KIND => Some(MClientCapRelease::from_message(m)),
            _ => None,
        })
        .flat_map(|r| r.unwrap().caps)
        .map(|c| (c.ino, c.cap_id, c.migrate_seq, c.seq))
        .collect();
    assert_eq!(released, [(1, 11, 2, 3), (9, 12, 2, 3)]);
    let done = out.iter().find_map(|o| if let Output::Done(_, Ok(a)) = o { a.target.as_ref() } else { None });
    assert_eq!(done.unwrap().ino, 9);
    assert!(w.m.has_volatile());
    let lease = MClientLease {
        action: lease_action::REVOKE,
        seq: 4,
        dname: Bytes::from_static(b"d"),
        ..MClientLease::default()
    };
    w.gets(0, 0, &lease);
    let out = w.out();
    let Output::Send(0, m) = &out[0] else { panic!("{out:?}") };
    assert_eq!(MClientLease::from_message(m).unwrap(), MClientLease { action: lease_action::REVOKE_ACK, ..lease });
}

#[test]
fn a_change_is_durable_only_when_the_mds_says_so() {
    let mut w = World::ready();
    let (a, b) = (w.submit(Request::mkdir(b"/a", 0)), w.submit(Request::mkdir(b"/b", 0)));
    w.gets(0, a, &answer(0, false));
    w.gets(0, b, &answer(0, false));
    w.out();
    let now = w.now();
    let answers = w.m.sync(now);
    let out = w.out();
    assert_eq!(sessions(&out), [session_op::REQUEST_FLUSH_MDLOG]);
    let below = |out: &[Output]| {
        out.iter().filter_map(|o| if let Output::Durable(n) = o { Some(*n) } else { None }).max().unwrap()
    };
    assert!(below(&out) <= answers);
    w.gets(0, a, &answer(0, true));
    assert!(below(&w.out()) <= answers);
    w.gets(0, b, &answer(0, true));
    assert!(below(&w.out()) > answers && !w.m.has_volatile());
}

#[test]
fn after_a_failure_the_successor_gets_changes_in_order_and_the_rest_later() {
    let mut w = World::ready();
    let (a, b) = (w.submit(Request::mkdir(b"/a", 0)), w.submit(Request::mkdir(b"/b", 0)));
    let c = w.submit(Request::unlink(b"/c"));
    let made = |ino| MClientReply { is_target: true, trace: bytes(|w| inode(ino, 0).encode(w)), ..answer(0, false) };
    w.gets(0, b, &made(20));
    w.gets(0, a, &made(10));
    w.out();
    w.closed(0);
    w.map(&[rank(0, 2, mds_state::REPLAY)]);
    w.wait(RETRY);
    assert!(w.out().iter().all(|o| matches!(o, Output::Close(_))), "nothing is sent to a daemon that replays");
    w.map(&[rank(0, 2, mds_state::RECONNECT)]);
    assert!(w.out().iter().any(|o| matches!(o, Output::Connect(0, _))));
    w.open(0);
    let out = w.out();
    let replayed: Vec<_> = out.iter().filter_map(sent).map(|(_, tid, m)| (tid, m.flags, m.ino)).collect();
    assert_eq!(replayed, [(b, MClientRequest::REPLAY, 20), (a, MClientRequest::REPLAY, 10)]);
    let Some(Output::Send(0, m)) = out.last() else { panic!("{out:?}") };
    // An MDS reads the data only: counts of capabilities and realms, and a flag.
    assert_eq!((m.header.kind, m.front.len(), &m.data[..]), (MClientReconnect::KIND, 0, &[0; 9][..]));
    w.session(0, session_op::OPEN);
    assert!(w.requests().is_empty(), "until it is active");
    w.map(&[rank(0, 2, mds_state::ACTIVE)]);
    let again = w.requests();
    assert_eq!(again.iter().map(|r| (r.1, r.2.num_retry, r.2.flags)).collect::<Vec<_>>(), [(c, 1, 0)]);
    for tid in [b, a, c] {
        w.gets(0, tid, &answer(0, true));
    }
    let done: Vec<u64> =
        w.out().iter().filter_map(|o| if let Output::Done(t, _) = o { Some(*t) } else { None }).collect();
    assert_eq!(done, [c], "the others were answered before");
    assert!(!w.m.has_volatile());
}

#[test]
fn a_lost_connection_to_the_same_daemon_repeats_requests() {
    let mut w = World::ready();
    let a = w.submit(Request::mkdir(b"/a", 0));
    w.out();
    w.closed(0);
    w.wait(Duration::from_millis(1));
    assert!(w.out().is_empty(), "not at once");
    w.wait(RETRY);
    assert!(matches!(w.out()[..], [Output::Connect(0, _)]));
    w.open(0);
    let again = w.requests();
    assert_eq!(again.iter().map(|r| (r.1, r.2.num_retry, r.2.flags)).collect::<Vec<_>>(), [(a, 1, 0)]);
}

#[test]
fn an_eviction_ends_requests_and_a_later_one_opens_a_session() {
    let mut w = World::ready();
    let a = w.submit(Request::mkdir(b"/a", 0));
    w.out();
    w.session(0, session_op::CLOSE);
    assert!(w.out().iter().any(|o| matches!(o, Output::Done(t, Err(ENOTCONN)) if *t == a)));
    w.submit(Request::getattr(b"/a"));
    assert!(matches!(w.out()[..], [Output::Connect(0, _)]));
    w.open(0);
    assert_eq!(sessions(&w.out()), [session_op::REQUEST_OPEN]);
    w.session(0, session_op::REJECT);
    assert!(w.out().iter().any(|o| matches!(o, Output::Done(_, Err(EBLOCKLISTED)))));
}

#[test]
fn forwards_lead_to_the_rank_and_end() {
    let mut w = World::ready();
    w.map(&[rank(0, 1, mds_state::ACTIVE), rank(1, 3, mds_state::ACTIVE)]);
    let a = w.submit(Request::mkdir(b"/a", 0));
    w.out();
    let forward = |dest_mds, num_fwd| MClientRequestForward { dest_mds, num_fwd, must_resend: true };
    w.gets(0, a, &forward(1, 1));
    assert!(matches!(w.out()[..], [Output::Connect(1, _)]));
    w.open(1);
    w.session(1, session_op::OPEN);
    let r = w.requests();
    assert_eq!((r[0].0, r[0].1, r[0].2.num_fwd), (1, a, 1));
    // One that was on its way is not followed twice.
    w.gets(0, a, &forward(0, 1));
    assert!(w.requests().is_empty());
    w.gets(1, a, &forward(999, 2));
    assert!(w.out().iter().any(|o| matches!(o, Output::Done(_, Err(EIO)))));
}

#[test]
fn an_idle_session_is_renewed_and_then_closed() {
    let mut w = World::ready();
    w.wait(RENEW);
    assert_eq!(sessions(&w.out()), [session_op::REQUEST_RENEWCAPS]);
    w.gets(0, 0, &MClientCaps::default());
    w.wait(IDLE - RENEW);
    let out = w.out();
    let Some(Output::Send(0, m)) = out.last() else { panic!("{out:?}") };
    let m = MClientSession::from_message(m).unwrap();
    assert_eq!((m.op, m.seq), (session_op::REQUEST_CLOSE, 1));
    // A request waits for the end, and opens a new session.
    w.submit(Request::getattr(b"/a"));
    assert!(w.requests().is_empty());
    w.session(0, session_op::CLOSE);
    assert!(w.out().iter().any(|o| matches!(o, Output::Connect(0, _))));
    assert!(!w.m.is_idle());
}

#[test]
fn listings_go_from_fragment_to_fragment() {
    let page = |frag: u32, flags: u16, names: &[&str]| {
        let extra = bytes(|w| {
            DirStat { frag, ..DirStat::default() }.encode(w);
            w.u32(u32::try_from(names.len()).unwrap());
            w.u16(flags);
            for n in names {
                w.blob(n.as_bytes());
                LeaseStat::default().encode(w);
                inode(5, 0).encode(w);
            }
        });
        Answer::of(op::READDIR, &MClientReply { extra, ..answer(0, true) }).unwrap().0
    };
    // Two halves: bits 1, values 0 and 0x800000.
    let a = page(1 << 24, 0, &["x", "y"]);
    assert_eq!(a.entries.len(), 2);
    let r = Request::readdir(b"/d", &a.next.unwrap());
    assert_eq!((&r.m.path2.path[..], &r.m.args[..4]), (&b"y"[..], &(1_u32 << 24).to_le_bytes()[..]));
    let a = page(1 << 24, 1, &["z"]);
    let r = Request::readdir(b"/d", &a.next.unwrap());
    assert_eq!((&r.m.path2.path[..], &r.m.args[..4]), (&b""[..], &(1_u32 << 24 | 0x80_0000).to_le_bytes()[..]));
    assert_eq!(page(1 << 24 | 0x80_0000, 1, &[]).next, None);
    assert_eq!(page(0, 1, &["q"]).next, None);
    // What no MDS sends ends as well.
    assert_eq!(page(u32::MAX, 1, &[]).next, None);
    assert_eq!(page(0, 0, &[]).next, None);
    assert_eq!(Cursor::default(), Cursor::default());
}

#[test]
fn a_snapshot_context_joins_the_realms() {
    let realms = [
        SnapRealmInfo {
            ino: 9,
            parent: 1,
            parent_since: 5,
            seq: 8,
            my_snaps: vec![8],
            prior_parent_snaps: vec![3],
            ..Default::default()
        },
        SnapRealmInfo { ino: 1, seq: 7, my_snaps: vec![2, 6, 7], ..Default::default() },
    ];
    let snap = bytes(|w| realms.iter().for_each(|r| r.encode(w)));
    let (a, _) = Answer::of(op::GETATTR, &MClientReply { snap, ..answer(0, true) }).unwrap();
    assert_eq!((a.snapc.seq.0, a.snapc.snaps.iter().map(|s| s.0).collect::<Vec<_>>()), (8, vec![8, 7, 6, 3]));
}

#[test]
fn malformed_replies_are_errors() {
    for m in [
        MClientReply { is_target: true, ..answer(0, true) },
        MClientReply { snap: Bytes::from_static(&[1; 40]), ..answer(0, true) },
        MClientReply { extra: Bytes::from_static(&[0xff; 9]), ..answer(0, true) },
    ] {
        assert!(Answer::of(op::READDIR, &m).is_err());
    }
    // No allocation by a number alone.
    let snap = bytes(|w| {
        (0..5).for_each(|_| w.u64(1));
        w.u32(u32::MAX);
        w.u32(u32::MAX);
    });
    assert!(Reader::shared(&snap).get::<SnapRealmInfo>().is_err());
}

#[test]
fn setattr_has_the_layout_of_the_union() {
    let a = super::request::Attrs {
        mode: Some(0o600),
        size: Some(1 << 33),
        times: Some((base::Utime { sec: 1, nsec: 2 }, base::Utime { sec: 3, nsec: 4 })),
        ..Default::default()
    };
    let args = Request::setattr(b"/f", &a).m.args;
    let word = |at: usize| u32::from_le_bytes(args[at..at + 4].try_into().unwrap());
    let words: Vec<u32> = (0..12).map(|i| word(4 * i)).collect();
    assert_eq!(words, [0o600, 0, 0, 1, 2, 3, 4, 0, 2, 0, 0, 1 | 8 | 16 | 32]);
}

#[test]
fn requests_end_with_their_file_system() {
    let mut w = World::new();
    w.map(&[rank(0, 4, mds_state::ACTIVE)]);
    let tid = w.submit(Request::getattr(b"/a"));
    w.gone();
    let ended = std::iter::from_fn(|| w.m.poll_output());
    assert!(ended.into_iter().any(|o| matches!(o, Output::Done(t, Err(ENOTCONN)) if t == tid)));
    assert!(w.m.is_idle());
}
