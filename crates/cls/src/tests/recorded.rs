//! Replays recorded operations of Ceph's clients on in-memory objects, and compares every reply with that of a real
//! OSD.
//!
//! A recording (`vectors/cls/*.rec.gz`) is a sequence of chunks of TCP streams in the order of capture: u16 connection,
//! u8 direction (0 from the client), u32 length, bytes. Operations are replayed in the order of their replies. An
//! unsupported operation (snapshots, notifies) makes the object's state unknown until it is deleted.

use crate::registry::CLASSES;
use crate::testing::{MemCtx, MemObject};
use crate::{ClsError, ClsResult, Method, ObjectCtx, Output, Watcher, find};
use base::errno::{EEXIST, ENOENT, EOVERFLOW};
use base::{EntityAddr, EntityKind, EntityName, SnapId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use wire::msg::op_code::{msg_flags, op_flags};
use wire::msg::osd_op::WatchArgs;
use wire::msg::{MOsdOp, MOsdOpReply, OpCode, OsdOp};
use wire::{Decode, Features, Message, MsgHeader, Reader, WireMessage, Writer};

/// One direction of a connection, split into frames as it grows.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    at: usize,
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(b[at..at + 2].try_into().unwrap())
}
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
}

impl Stream {
    /// The next complete frame in crc mode: tag and segments.
    fn frame(&mut self) -> Option<(u8, Vec<Bytes>)> {
        if self.at == 0 {
            if self.bytes.len() < 10 {
                return None;
            }
            self.at = 10 + usize::from(u16_at(&self.bytes, 8));
        }
        let pre = self.bytes.get(self.at..self.at + 32)?;
        let n = usize::from(pre[1]);
        let lens: Vec<usize> = (0..4).map(|i| u32_at(pre, 2 + 6 * i) as usize).collect();
        let first = lens[0] + if lens[0] > 0 { 4 } else { 0 };
        let need = 32 + first + lens[1..].iter().sum::<usize>() + if n > 1 { 13 } else { 0 };
        let frame = Bytes::copy_from_slice(self.bytes.get(self.at..self.at + need)?);
        self.at += need;
        let mut q = 32 + first;
        let mut segments = vec![frame.slice(32..32 + lens[0])];
        for len in &lens[1..] {
            segments.push(frame.slice(q..q + len));
            q += len;
        }
        Some((frame[0], segments))
    }
}

const TAG_CLIENT_IDENT: u8 = 8;
const TAG_MESSAGE: u8 = 17;

fn message(s: &[Bytes]) -> Message {
    let h = &s[0];
    let u64_at = |at: usize| u64::from_le_bytes(h[at..at + 8].try_into().unwrap());
    Message {
        header: MsgHeader {
            seq: u64_at(0),
            tid: u64_at(8),
            kind: u16_at(h, 16),
            priority: u16_at(h, 18),
            version: u16_at(h, 20),
            data_off: u16_at(h, 26),
            compat: u16_at(h, 37),
        },
        front: s[1].clone(),
        middle: s[2].clone(),
        data: s[3].clone(),
        ..Message::default()
    }
}

/// An operation with its reply.
struct Exchange {
    who: (EntityName, EntityAddr),
    op: MOsdOp,
    reply: MOsdOpReply,
}

fn exchanges(path: &Path) -> Vec<Exchange> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut rec = Vec::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(file.as_slice()).read_to_end(&mut rec).unwrap();
    } else {
        rec = file;
    }
    let mut streams: BTreeMap<(u16, u8), Stream> = BTreeMap::new();
    let mut who = BTreeMap::new();
    let mut pending: BTreeMap<(u16, u64), MOsdOp> = BTreeMap::new();
    let mut out = Vec::new();
    let mut rest = rec.as_slice();
    while rest.len() >= 7 {
        let (conn, dir, len) = (u16_at(rest, 0), rest[2], u32_at(rest, 3) as usize);
        let s = streams.entry((conn, dir)).or_default();
        s.bytes.extend_from_slice(&rest[7..7 + len]);
        rest = &rest[7 + len..];
        while let Some((tag, segments)) = s.frame() {
            if tag == TAG_CLIENT_IDENT {
                let mut r = Reader::shared(&segments[0]);
                let addrs = base::AddrVec::decode(&mut r).unwrap();
                EntityAddr::decode(&mut r).unwrap();
                let num = r.i64().unwrap();
                who.insert(conn, (EntityName::new(EntityKind::CLIENT, num), addrs.0.first().copied().unwrap()));
            }
            if tag != TAG_MESSAGE {
                continue;
            }
            let m = message(&segments);
            if m.header.kind == MOsdOp::KIND {
                let op = MOsdOp::from_message(&m).unwrap();
                pending.insert((conn, op.tid), op);
            } else if m.header.kind == MOsdOpReply::KIND {
                let reply = MOsdOpReply::from_message(&m).unwrap();
                if let Some(op) = pending.remove(&(conn, reply.tid)) {
                    out.push(Exchange { who: who[&conn], op, reply });
                }
            }
        }
    }
    out
}

/// State of a replayed object.
#[derive(Default)]
struct Slot {
    object: Option<MemObject>,
    watchers: Vec<Watcher>,
    snap_seq: u64,
    /// Whether an unsupported operation has made the state unknown.
    unknown: bool,
}

/// The operation is not supported by the replay.
struct Unplayed;

/// The entries that an OMAPGETVALS returns.
fn omap_vals(c: &MemCtx, o: &OsdOp) -> Result<Bytes, Unplayed> {
    let mut r = Reader::shared(&o.indata);
    let (Ok(after), Ok(max), Ok(prefix)) = (r.blob(), r.u64(), r.blob()) else { return Err(Unplayed) };
    let all: Vec<(Bytes, Bytes)> = c
        .object
        .iter()
        .flat_map(|o| o.omap.iter())
        .filter(|(k, _)| (after.is_empty() || **k > after) && k.starts_with(&prefix))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let n = all.len().min(max as usize).min(1024);
    let mut w = Writer::new(Features::PACIFIC);
    w.u32(n as u32);
    for (k, v) in &all[..n] {
        w.blob(k);
        w.blob(v);
    }
    w.u8(u8::from(n < all.len()));
    Ok(w.into_bytes())
}

/// Begins or ends a watch of the client.
fn watch(c: &mut MemCtx, o: &OsdOp) -> ClsResult<Bytes> {
    let a = o.watch();
    if c.object.is_none() {
        return Err(ENOENT.into());
    }
    let (name, addr) = c.origin;
    let mine = |w: &Watcher| w.name == name && w.cookie == a.cookie;
    if a.op == WatchArgs::UNWATCH {
        c.watchers.retain(|w| !mine(w));
    } else if !c.watchers.iter().any(mine) {
        c.watchers.push(Watcher { name, addr, cookie: a.cookie, timeout: a.timeout });
    }
    Ok(Bytes::new())
}

/// One operation of a vector other than a call.
fn plain(c: &mut MemCtx, o: &OsdOp) -> Result<ClsResult<Bytes>, Unplayed> {
    let e = o.extent();
    let done = |r: ClsResult<()>| r.map(|()| Bytes::new());
    let enc = |f: &dyn Fn(&mut Writer)| {
        let mut w = Writer::new(Features::PACIFIC);
        f(&mut w);
        w.into_bytes()
    };
    Ok(match o.op {
        OpCode::READ => c.read(e.offset, e.length),
        OpCode::STAT => c.stat().map(|_| Bytes::new()),
        OpCode::WRITE => done(c.write(e.offset, &o.indata)),
        OpCode::WRITEFULL => done(c.write_full(&o.indata)),
        OpCode::APPEND => {
            let size = c.stat().map_or(0, |s| s.0);
            done(c.write(size, &o.indata))
        }
        OpCode::TRUNCATE => done(c.truncate(e.offset)),
        OpCode::ZERO => done(c.zero(e.offset, e.length)),
        OpCode::DELETE => done(c.remove()),
        OpCode::CREATE if o.flags & op_flags::EXCL != 0 && c.object.is_some() => Err(EEXIST.into()),
        OpCode::CREATE => done(c.create(false)),
        OpCode::SETALLOCHINT => Ok(Bytes::new()),
        OpCode::SETXATTR => {
            let (k, v) = o.xattr_payload().ok_or(Unplayed)?;
            done(c.setxattr(&k, &v))
        }
        OpCode::RMXATTR => {
            let (k, _) = o.xattr_payload().ok_or(Unplayed)?;
            done(c.rmxattr(&k))
        }
        OpCode::GETXATTR => {
            let (k, _) = o.xattr_payload().ok_or(Unplayed)?;
            c.getxattr(&k)
        }
        OpCode::GETXATTRS => c.getxattrs().map(|all| {
            enc(&|w| {
                w.u32(all.len() as u32);
                for (k, v) in &all {
                    w.blob(k);
                    w.blob(v);
                }
            })
        }),
        OpCode::OMAPGETHEADER => c.omap_header(),
        OpCode::OMAPSETHEADER => done(c.omap_set_header(&o.indata)),
        OpCode::OMAPGETVALS => Ok(omap_vals(c, o)?),
        OpCode::OMAPSETVALS => {
            let all = BTreeMap::<Bytes, Bytes>::from_bytes(&o.indata).map_err(|_| Unplayed)?;
            done(c.omap_set(&all.into_iter().collect::<Vec<_>>()))
        }
        OpCode::OMAPRMKEYS => {
            let all = BTreeSet::<Bytes>::from_bytes(&o.indata).map_err(|_| Unplayed)?;
            done(all.iter().try_for_each(|k| c.omap_rm(k)))
        }
        OpCode::OMAPCLEAR => done(c.omap_clear()),
        OpCode::WATCH => watch(c, o),
        _ => return Err(Unplayed),
    })
}

fn is_write(o: &OsdOp) -> bool {
    if o.op == OpCode::CALL {
        let Some((class, method, _)) = o.cls_payload() else { return false };
        return find(class, method).is_some_and(|m| m.flags.writes());
    }
    o.op.0 & 0x2000 != 0
}

fn text(b: &[u8]) -> &str {
    std::str::from_utf8(b).unwrap_or("?")
}

/// Reply: result, and for each executed operation its result and output.
struct Answer {
    result: i32,
    ops: Vec<(i32, Bytes)>,
}

/// Runs one operation behind `earlier` ones of its vector. Returns its result and output.
fn run_one(c: &mut MemCtx, o: &OsdOp, earlier: &[OsdOp], names: &Names) -> Result<(i32, Bytes), Unplayed> {
    let r = if o.op == OpCode::CALL {
        let (class, method, input) = o.cls_payload().ok_or(Unplayed)?;
        // In a vector, Ceph's reads still see the xattrs of an object that the vector has removed.
        let removes = |o: &OsdOp| o.op == OpCode::DELETE || describe(o) == "rgw.obj_remove";
        let removed = earlier.iter().any(removes);
        let m = find(class, method).filter(|_| !removed).ok_or(Unplayed)?;
        m.run(c, &renamed(&input, names))
    } else {
        let nested = c.nested;
        let r = plain(c, o)?.map(Output::from);
        c.nested = nested;
        r
    };
    Ok(match r {
        Ok(o) => (o.ret, o.out),
        Err(ClsError::Fail { errno, out }) => (errno, out),
        Err(ClsError::Wait) => panic!("memory never waits"),
    })
}

fn run(c: &mut MemCtx, op: &MOsdOp, names: &Names) -> Result<Answer, Unplayed> {
    let write = op.ops.iter().any(is_write);
    if !write && c.object.is_none() {
        return Ok(Answer { result: ENOENT, ops: Vec::new() });
    }
    c.nested = 0;
    // Reads change nothing.
    let before = write.then(|| (c.object.clone(), c.watchers.clone()));
    let returnvec = op.flags & msg_flags::RETURNVEC != 0;
    let mut result = 0;
    let mut ops = Vec::new();
    let mut scripts = true;
    for (i, o) in op.ops.iter().enumerate() {
        // An OSD also counts the operations of class methods. A script that reads the number has done nothing before.
        let script = o.cls_payload().is_some_and(|(class, _, _)| class == b"lua");
        c.subop = i as u32;
        if script {
            c.nested = 0;
        }
        scripts &= script;
        let (ret, out) = run_one(c, o, &op.ops[..i], names)?;
        result = if ret < 0 && o.flags & op_flags::FAILOK != 0 { 0 } else { ret };
        ops.push((ret, out));
        if result < 0 {
            break;
        }
    }
    // A vector that may write but did not is answered like a vector of reads. In the recordings only scripts do this.
    let write = write && !(scripts && before.as_ref().is_some_and(|b| c.object == b.0));
    if write && result >= 0 {
        if returnvec {
            for (r, o) in &mut ops {
                if o.len() > 64 {
                    (*r, result) = (EOVERFLOW, EOVERFLOW);
                    o.clear();
                }
            }
        } else {
            result = 0;
            ops.iter_mut().for_each(|(_, o)| o.clear());
        }
    }
    if result < 0 {
        if let Some(b) = before {
            (c.object, c.watchers) = b;
        }
    } else if write {
        c.version += 1;
        if let Some(o) = &mut c.object {
            o.mtime = op.mtime;
        }
    }
    Ok(Answer { result, ops })
}

/// Random texts in the recording, with ours for each.
type Names = BTreeMap<Vec<u8>, Vec<u8>>;

/// The letters around `at` that may be a random text: a UUID, or a text of a length that classes generate.
fn random_text(b: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let letter = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'-' | b'_');
    let start = at - b[..at].iter().rev().take_while(|c| letter(c)).count();
    let len = b[start..].iter().take_while(|c| letter(c)).count();
    matches!(len, 11 | 16 | 24 | 36).then_some(start..start + len)
}

/// True if the bytes are equal except for times, which may differ by seconds, and random texts, which `names` records.
fn alike(ours: &[u8], theirs: &[u8], now: u32, names: &mut Names) -> bool {
    if ours.len() != theirs.len() {
        return false;
    }
    let mut at = 0;
    while at < ours.len() {
        if ours[at] == theirs[at] {
            at += 1;
            continue;
        }
        // The first differing byte may be anywhere in the time.
        let is_time = |t: &usize| {
            let (a, b) = (u32_at(ours, *t), u32_at(theirs, *t));
            a.abs_diff(b) <= 5 && a.abs_diff(now) < 3 * 3600
        };
        let last = at.min(ours.len().saturating_sub(8));
        if let Some(t) = (at.saturating_sub(7)..=last).rev().filter(|t| t + 8 <= ours.len()).find(is_time) {
            at = t + 8;
        } else if let Some(r) = random_text(ours, at).filter(|r| random_text(theirs, at).as_ref() == Some(r)) {
            at = r.end;
            names.insert(theirs[r.clone()].to_vec(), ours[r].to_vec());
        } else {
            return false;
        }
    }
    true
}

/// `input` with the recorded random texts replaced by ours.
fn renamed(input: &Bytes, names: &Names) -> Bytes {
    let mut v = input.to_vec();
    for at in 0..v.len() {
        if let Some(r) = random_text(&v, at)
            && r.start == at
            && let Some(ours) = names.get(&v[r.clone()])
        {
            v[r].copy_from_slice(ours);
        }
    }
    v.into()
}

/// `b` with normalized ids of a bucket's change log, whose ends count an OSD's operations: eleven digits, a point,
/// digits, a point, digits.
fn without_log_ids(b: &[u8]) -> Bytes {
    let mut v = b.to_vec();
    let digits = |from: usize, v: &[u8]| v[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let mut at = 0;
    while at < v.len() {
        let n = digits(at, &v);
        if n == 11 && v.get(at + 11) == Some(&b'.') {
            let version = digits(at + 12, &v);
            let end = at + 12 + version;
            if version > 0 && v.get(end) == Some(&b'.') {
                let subop = digits(end + 1, &v);
                v[at + 12..end].fill(b'n');
                v[end + 1..end + 1 + subop].fill(b'n');
            }
        }
        at += n.max(1);
    }
    v.into()
}

/// Our listing, with `exists` set for those delete markers for which an OSD sets it: markers that replaced an entry.
fn without_markers(ours: &[u8], theirs: &[u8]) -> Bytes {
    let mut v = ours.to_vec();
    for at in 0..v.len().min(theirs.len()).saturating_sub(2) {
        if (v[at], theirs[at]) == (0, 1) && v[at + 1..at + 3] == [7, 3] {
            v[at] = 1;
        }
    }
    v.into()
}

/// A list of reservations in the order of their ids; an OSD uses the order of its hash map.
fn in_order(out: &Bytes) -> Bytes {
    if out.len() < 10 {
        return out.clone();
    }
    let mut each: Vec<&[u8]> = out[10..].chunks(30).collect();
    each.sort();
    [&out[..10], &each.concat()].concat().into()
}

fn describe(o: &OsdOp) -> String {
    match o.cls_payload() {
        Some((class, method, _)) if o.op == OpCode::CALL => format!("{}.{}", text(class), text(method)),
        _ => o.op.name().to_owned(),
    }
}

/// A recorded call.
pub(super) struct Recorded {
    pub(super) class: &'static str,
    pub(super) method: &'static Method,
    pub(super) input: Bytes,
    /// The object before the operation.
    pub(super) object: Option<MemObject>,
}

/// The recordings.
pub(super) fn recordings() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/cls");
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    names
}

/// Passes every call of a recording to `f`.
pub(super) fn calls(path: &Path, f: &mut dyn FnMut(Recorded)) {
    play(path, PAGE, &mut BTreeSet::new(), &mut |op, object| {
        for (class, method, input) in op.ops.iter().filter(|o| o.op == OpCode::CALL).filter_map(OsdOp::cls_payload) {
            let known = CLASSES.iter().find(|(c, _)| c.as_bytes() == class).zip(find(class, method));
            if let Some((&(class, _), method)) = known {
                f(Recorded { class, method, input, object: object.cloned() });
            }
        }
    });
}

/// Most entries that an `omap_list` returns, in tests that do not vary it.
const PAGE: usize = 1000;

/// Two outputs of a method without what may differ: our own and the recorded one.
fn comparable(name: &str, ours: &Bytes, theirs: &Bytes) -> (Bytes, Bytes) {
    let (mut a, mut b) = (ours.clone(), theirs.clone());
    if name == "2pc_queue.2pc_queue_list_reservations" {
        (a, b) = (in_order(&a), in_order(&b));
    } else if name == "rgw.bucket_list" {
        a = without_markers(&without_log_ids(&a), &b);
        b = without_log_ids(&b);
    } else if name == "rgw.bi_log_list" {
        (a, b) = (without_log_ids(&a), without_log_ids(&b));
    } else if name == "rgw.bi_list" && a.len() == b.len() && a.last() == Some(&1) {
        // Ours reports that more follows where an OSD ignores the next part.
        a = [&a[..a.len() - 1], &b[b.len() - 1..]].concat().into();
    } else if name == "rgw.lc_get_head" && a.len() == b.len() && a.len() > 8 {
        // Ours has a compat version that old gateways can read.
        a = [&a[..7], &[2], &a[8..]].concat().into();
    } else if name == "fifo.get_part_info" && a.len() == b.len() {
        // The part's random magic number.
        a = [&a[..46], &b[46..54], &a[54..]].concat().into();
    }
    (a, b)
}

/// The differences between an answer and the recorded one.
fn differences(
    op: &MOsdOp,
    reply: &MOsdOpReply,
    a: &Answer,
    names: &[String],
    now: u32,
    names_of: &mut Names,
) -> Vec<String> {
    let mut bad = Vec::new();
    if a.result.min(0) != reply.result.min(0) {
        bad.push(format!("result {} not {}", a.result, reply.result));
    }
    for (i, (rval, out)) in a.ops.iter().enumerate() {
        let r = &reply.ops[i];
        if op.ops[i].op == OpCode::CALL && *rval != r.rval {
            bad.push(format!("{}: rval {rval} not {}", names[i], r.rval));
        }
        let (x, y) = comparable(&names[i], out, &r.outdata);
        // Due entries depend on the time of the read, which the recording does not contain.
        let due = names[i] == "rgw.gc_list" && op.ops[i].indata.last() == Some(&1);
        if op.ops[i].op != OpCode::STAT && !due && !alike(&x, &y, now, names_of) {
            let at = out.iter().zip(&r.outdata).take_while(|(a, b)| a == b).count();
            let part = |b: &Bytes| hex(b.get(at.saturating_sub(24)..(at + 60).min(b.len())).unwrap_or_default());
            bad.push(format!(
                "{}: at {at} of {}, {}: {} not {}",
                names[i],
                out.len(),
                r.outdata.len(),
                part(out),
                part(&r.outdata)
            ));
        }
    }
    bad
}

/// Replays a recording; `before` gets each operation with its object before it runs. Returns the number of calls, and
/// the differences.
fn play(
    path: &Path,
    page: usize,
    seen: &mut BTreeSet<String>,
    before: &mut dyn FnMut(&MOsdOp, Option<&MemObject>),
) -> (usize, Vec<String>) {
    let mut slots: BTreeMap<(base::PoolId, Bytes, Bytes), Slot> = BTreeMap::new();
    let mut c = MemCtx::new();
    c.quiet = true;
    c.page = page;
    let (mut calls, mut wrong) = (0, Vec::new());
    let mut names_of = Names::new();
    for x in exchanges(path) {
        let (op, reply) = (&x.op, &x.reply);
        let key = (op.locator.pool, op.locator.nspace.clone(), op.oid.clone());
        if op.flags & msg_flags::PGOP != 0 || key.2.is_empty() {
            continue;
        }
        let slot = slots.entry(key.clone()).or_default();
        if op.mtime.sec != 0 {
            c.now = op.mtime;
        }
        // A script that changes nothing gets the current version.
        let script = op.ops.iter().any(|o| o.cls_payload().is_some_and(|(class, _, _)| class == b"lua"));
        c.version = reply.user_version.saturating_sub(u64::from(!script));
        c.origin = x.who;
        c.snapc = (op.snapc.seq.0, op.snapc.snaps.iter().map(|s| s.0).collect());
        c.snapset_seq = slot.snap_seq;
        before(op, slot.object.as_ref());
        c.object = slot.object.take();
        c.watchers = std::mem::take(&mut slot.watchers);
        let head = op.snapid == SnapId::HEAD;
        let ran = if head && !slot.unknown { run(&mut c, op, &names_of) } else { Err(Unplayed) };
        slot.object = c.object.take();
        slot.watchers = std::mem::take(&mut c.watchers);
        let write = op.ops.iter().any(is_write);
        if reply.result >= 0 && write {
            slot.snap_seq = slot.snap_seq.max(op.snapc.seq.0);
        }
        let names: Vec<String> = op.ops.iter().map(describe).collect();
        match ran {
            Err(Unplayed) => {
                if op.ops.last().is_some_and(|o| o.op == OpCode::DELETE) && reply.result >= 0 {
                    *slot = Slot::default();
                } else if write && reply.result >= 0 {
                    slot.unknown = true;
                }
            }
            Ok(a) => {
                calls += op.ops.iter().filter(|o| o.op == OpCode::CALL).count();
                seen.extend(names.iter().cloned());
                let bad = differences(op, reply, &a, &names, c.now.sec, &mut names_of);
                if !bad.is_empty() {
                    let inputs: Vec<String> = op.ops.iter().map(|o| hex(&o.indata)).collect();
                    wrong.push(format!("{} {names:?}: {bad:?} inputs {inputs:?}", text(&key.2)));
                }
            }
        }
    }
    (calls, wrong)
}

fn hex(b: &[u8]) -> String {
    let mut s: String = b
        .iter()
        .take(300)
        .map(|c| if c.is_ascii_graphic() { char::from(*c).to_string() } else { format!("\\{c:02x}") })
        .collect();
    if b.len() > 300 {
        s += &format!("...{}", b.len());
    }
    s
}

#[test]
fn every_answer_is_that_of_a_real_osd() {
    let (mut calls, mut wrong, mut seen) = (0, Vec::new(), BTreeSet::new());
    for p in &recordings() {
        let (n, w) = play(p, PAGE, &mut seen, &mut |_, _| ());
        calls += n;
        wrong.extend(w.into_iter().map(|w| format!("{}: {w}", p.display())));
    }
    assert!(wrong.is_empty(), "{} of {calls} calls: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    assert!(calls > 20_000, "{calls} calls");
    let never: Vec<String> = CLASSES
        .iter()
        .flat_map(|(c, ms)| ms.iter().map(move |m| format!("{c}.{}", m.name)))
        .filter(|m| !seen.contains(m))
        .collect();
    assert_eq!(never, Vec::<String>::new(), "no recording calls these");
}

#[test]
fn the_page_size_changes_no_answer() {
    for name in ["log", "rbd", "rbd_cli", "handmade", "sem_set", "user", "journal", "cmpomap"] {
        let p = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../vectors/cls/{name}.rec.gz"));
        let (_, wrong) = play(&p, 2, &mut BTreeSet::new(), &mut |_, _| ());
        assert!(wrong.is_empty(), "{name}: {:#?}", &wrong[..wrong.len().min(5)]);
    }
}
