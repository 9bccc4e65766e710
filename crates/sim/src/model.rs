//! The model of an object, as clients see it: the reference for histories.
//!
//! Values are unique: each write makes its bytes from its number, so a stale byte is recognised as one.

use crate::coded::Code;
use crate::content::{Content, fill};
use crate::load::Load;
use crate::rough;
use crate::sums::{self, Change, Sums};
use base::{PoolId, SnapId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::msg::osd_op::{CopyFromArgs, WatchArgs};
use wire::msg::{OpCode, OsdOp, op_flags};
use wire::types::{NotifyArgs, ObjectLocator};
use wire::{Reader, Writer};

/// Error numbers in answers to operations.
use base::errno::{ECANCELED, EEXIST, ENOENT, EOPNOTSUPP};

/// One change of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named after what they are; units are bytes")]
pub enum Step {
    Write {
        off: usize,
        len: usize,
    },
    WriteFull {
        len: usize,
    },
    Append {
        len: usize,
    },
    Zero {
        off: usize,
        len: usize,
    },
    Truncate {
        size: usize,
    },
    Create {
        exclusive: bool,
    },
    Remove,
    SetAttr {
        key: u8,
    },
    RemoveAttr {
        key: u8,
    },
    SetOmap {
        keys: Vec<u8>,
    },
    RemoveOmap {
        key: u8,
    },
    ClearOmap,
    /// Sets thousands of omap entries.
    Bulk,
    /// Continues only if the attribute has the value of write `of`.
    CompareAttr {
        key: u8,
        of: u64,
    },
    /// Continues only if the object exists.
    AssertExists,
    /// Increments the count of class `version`, if it is at most `at_most`.
    Count {
        at_most: Option<u64>,
    },
    /// Changes a user's bucket list.
    Sums(Change),
    /// Makes the object a copy of another one.
    CopyFrom {
        source: usize,
    },
    /// Watches the object for `timeout` seconds, in which the client sends nothing more; with 0, ends the watch.
    Watch {
        timeout: u32,
    },
}

/// Number of attributes and of omap keys that an object may have.
pub const KEYS: usize = 5;
/// Attributes or omap entries: for each key the write that set it, 0 if there is no value.
pub type Values = [u64; KEYS];
/// A value that no write set.
const FOREIGN: u64 = u64::MAX;

/// The state of an object in the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// The bytes.
    pub data: Content,
    /// The attributes.
    pub attrs: Values,
    /// The omap entries.
    pub omap: Values,
    /// The count of class `version`.
    pub count: u64,
    /// The bucket list of class `user`.
    pub sums: Sums,
    /// The write that set the entries of [`Step::Bulk`]; 0: there are none.
    pub bulk: u64,
}

/// The state of an object in a client's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The bytes.
    pub data: Bytes,
    /// The attributes.
    pub attrs: Values,
    /// The omap entries.
    pub omap: Values,
    /// The count of class `version`, if the read asked for it.
    pub count: Option<u64>,
    /// The bucket list of class `user`.
    pub sums: Sums,
    /// The write that set the entries of [`Step::Bulk`]; 0: there are none.
    pub bulk: u64,
}

impl Object {
    /// True if the object equals a client's answer.
    #[must_use]
    pub fn is(&self, seen: &Seen) -> bool {
        self.attrs == seen.attrs
            && self.omap == seen.omap
            && self.sums == seen.sums
            && self.bulk == seen.bulk
            && seen.count.is_none_or(|c| c == self.count)
            && self.data.is(&seen.data)
    }

    fn clear_omap(&mut self) {
        (self.omap, self.bulk) = (Values::default(), 0);
    }

    /// The object in the form of a client's answer.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen {
            data: self.data.bytes().into(),
            attrs: self.attrs,
            omap: self.omap,
            count: Some(self.count),
            sums: self.sums.clone(),
            bulk: self.bulk,
        }
    }

    fn digest(&self) -> u64 {
        mix(self
            .data
            .numbers()
            .chain(self.attrs)
            .chain(self.omap)
            .chain([self.count, self.bulk])
            .chain(self.sums.numbers()))
    }
}

/// An object with its hash.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    digest: u64,
    /// The object.
    pub object: Object,
}

impl Kept {
    fn new(object: Object) -> Rc<Self> {
        Rc::new(Self { digest: object.digest(), object })
    }
}

/// The state at a snapshot: number of the clone, its snapshots, content, and its version if it is known.
pub type Snapshot = (u64, Vec<u64>, Rc<Kept>, Option<u64>);

/// An object with its clones. Copies of a state share their parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The head, if it exists.
    pub head: Option<Rc<Kept>>,
    /// The newest snapshot context that a write brought.
    pub snap_seq: u64,
    /// The clones, oldest first.
    pub clones: Rc<Vec<Snapshot>>,
    clones_digest: u64,
    /// The version in the answer to the last write; `None` if that has no answer.
    pub version: Option<u64>,
    /// The pool's erasure code, which determines the operations that the pool refuses.
    pub code: Option<Code>,
}

/// The snapshot context of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    /// The newest snapshot number.
    pub seq: u64,
    /// The living snapshots, newest first.
    pub snaps: Vec<u64>,
}

/// The class that counts, and the attribute in which it keeps the count.
const COUNTER: &str = "version";
const COUNTER_ATTR: &[u8] = b"ceph.objclass.version";

/// The argument of the class call; with `at_most` the class counts only if the count is no more than that.
fn conditions(at_most: Option<u64>) -> Bytes {
    let version = |w: &mut Writer, n: u64| {
        w.versioned(1, 1, |w| {
            w.u64(n);
            w.blob(b"");
        });
    };
    let mut w = Writer::new(wire::Features::PACIFIC);
    w.versioned(1, 1, |w| {
        version(w, 0);
        w.u32(u32::from(at_most.is_some()));
        if let Some(most) = at_most {
            w.versioned(1, 1, |w| {
                version(w, most);
                // The comparison "less or equal".
                w.u32(5);
            });
        }
    });
    w.into_bytes()
}

/// The count in the answer of the class.
fn counted(answer: &Bytes) -> Option<u64> {
    let mut r = Reader::shared(answer);
    r.versioned("cls_version_read_ret", 1, |r, _| {
        r.versioned("obj_version", 1, |r, _| {
            let n = r.u64()?;
            r.blob()?;
            Ok(n)
        })
    })
    .ok()
}

/// The value that write `id` gives to attribute or omap key `key`.
#[must_use]
pub fn value(id: u64, key: u8) -> Bytes {
    format!("{id:08x}.{key}").into_bytes().into()
}

/// The name of an attribute.
#[must_use]
pub fn attr_name(key: u8) -> String {
    format!("a{key}")
}

/// The name of an omap key.
#[must_use]
pub fn omap_name(key: u8) -> String {
    format!("k{key}")
}

fn number(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name.get(1..)?).ok()?.parse().ok()
}

impl Step {
    /// The protocol's operation for the step of write `id`.
    #[must_use]
    pub fn op(&self, id: u64, pool: PoolId) -> OsdOp {
        let extent =
            |code, off: usize, len: usize, data: Vec<u8>| OsdOp::with_extent(code, off as u64, len as u64, data.into());
        let encoded = |code, v: &dyn Fn() -> Bytes| OsdOp::with_indata(code, v());
        use wire::Encode as _;
        let f = wire::Features::PACIFIC;
        match self {
            Self::Write { off, len } => extent(OpCode::WRITE, *off, *len, fill(id, *len)),
            Self::WriteFull { len } => extent(OpCode::WRITEFULL, 0, *len, fill(id, *len)),
            Self::Append { len } => extent(OpCode::APPEND, 0, *len, fill(id, *len)),
            Self::Zero { off, len } => extent(OpCode::ZERO, *off, *len, Vec::new()),
            Self::Truncate { size } => extent(OpCode::TRUNCATE, *size, 0, Vec::new()),
            Self::Create { exclusive } => {
                let mut o = OsdOp::new(OpCode::CREATE);
                o.flags |= if *exclusive { op_flags::EXCL } else { 0 };
                o
            }
            Self::Remove => OsdOp::new(OpCode::DELETE),
            Self::SetAttr { key } => {
                OsdOp::with_xattr(OpCode::SETXATTR, attr_name(*key).as_bytes(), &value(id, *key), 0, 0)
            }
            Self::RemoveAttr { key } => OsdOp::with_xattr(OpCode::RMXATTR, attr_name(*key).as_bytes(), b"", 0, 0),
            Self::SetOmap { keys } => encoded(OpCode::OMAPSETVALS, &|| {
                let m: BTreeMap<Bytes, Bytes> =
                    keys.iter().map(|k| (omap_name(*k).into_bytes().into(), value(id, *k))).collect();
                m.to_bytes(f)
            }),
            Self::RemoveOmap { key } => {
                encoded(OpCode::OMAPRMKEYS, &|| vec![Bytes::from(omap_name(*key).into_bytes())].to_bytes(f))
            }
            Self::ClearOmap => OsdOp::new(OpCode::OMAPCLEAR),
            Self::Bulk => rough::bulk(&value(id, 0)),
            Self::CompareAttr { key, of } => {
                OsdOp::with_xattr(OpCode::CMPXATTR, attr_name(*key).as_bytes(), &value(*of, *key), 1, 1)
            }
            Self::AssertExists => OsdOp::new(OpCode::STAT),
            Self::Count { at_most } => OsdOp::call(COUNTER, "inc_conds", &conditions(*at_most)),
            Self::Sums(c) => c.op(id),
            Self::CopyFrom { source } => {
                let mut w = Writer::new(f);
                w.blob(&Load::name(*source));
                w.put(&ObjectLocator::new(pool));
                let mut o = OsdOp::with_indata(OpCode::COPY_FROM, w.into_bytes());
                o.set_copy_from(CopyFromArgs { snapid: SnapId::HEAD, ..CopyFromArgs::default() });
                o
            }
            Self::Watch { timeout } => {
                let mut o = OsdOp::new(OpCode::WATCH);
                let op = if *timeout > 0 { WatchArgs::WATCH } else { WatchArgs::UNWATCH };
                o.set_watch(WatchArgs { cookie: 1, op, timeout: *timeout, ..WatchArgs::default() });
                o
            }
        }
    }

    fn apply(&self, id: u64, o: &mut Option<Object>, copied: Option<&Object>) -> Result<(), i32> {
        let at = |key: &u8| usize::from(*key) % KEYS;
        match self {
            Self::Write { off, len } => o.get_or_insert_default().data.write(id, *off, *len),
            Self::WriteFull { len } => {
                let x = o.get_or_insert_default();
                x.data = Content::default();
                x.data.write(id, 0, *len);
            }
            Self::Append { len } => {
                let x = o.get_or_insert_default();
                x.data.write(id, x.data.len(), *len);
            }
            Self::Zero { off, len } => {
                if let Some(x) = o {
                    let n = x.data.len();
                    if *off < n && off + len >= n {
                        x.data.resize(*off);
                    } else if *off < n {
                        x.data.zero(*off, off + len);
                    }
                }
            }
            Self::Truncate { size } => {
                if let Some(x) = o {
                    x.data.resize(*size);
                }
            }
            Self::Create { exclusive } => {
                if *exclusive && o.is_some() {
                    return Err(EEXIST);
                }
                o.get_or_insert_default();
            }
            Self::Remove => {
                o.take().ok_or(ENOENT)?;
            }
            Self::SetAttr { key } => o.get_or_insert_default().attrs[at(key)] = id,
            Self::RemoveAttr { key } => o.as_mut().ok_or(ENOENT)?.attrs[at(key)] = 0,
            Self::SetOmap { keys } => {
                let x = o.get_or_insert_default();
                keys.iter().for_each(|k| x.omap[at(k)] = id);
            }
            Self::RemoveOmap { key } => o.as_mut().ok_or(ENOENT)?.omap[at(key)] = 0,
            Self::ClearOmap => o.as_mut().ok_or(ENOENT)?.clear_omap(),
            Self::Bulk => o.get_or_insert_default().bulk = id,
            Self::CompareAttr { key, of } => {
                // Write 0 stands for no value, which equals no write's.
                let have = o.as_ref().ok_or(ENOENT)?.attrs[at(key)];
                if have == 0 || have != *of {
                    return Err(ECANCELED);
                }
            }
            Self::Count { at_most } => {
                let have = o.as_ref().map_or(0, |x| x.count).max(1);
                if at_most.is_some_and(|most| have > most) {
                    return Err(ECANCELED);
                }
                o.get_or_insert_default().count = have + 1;
            }
            Self::Sums(c) if o.is_none() && c.needs_object() => {}
            Self::Sums(c) => o.get_or_insert_default().sums.apply(id, c),
            Self::CopyFrom { .. } => *o = Some(copied.ok_or(ENOENT)?.clone()),
            Self::AssertExists | Self::Watch { .. } => {
                o.as_ref().ok_or(ENOENT)?;
            }
        }
        Ok(())
    }
}

fn mix(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0xcbf2_9ce4_8422_2325, |h, n| {
        let x = (h ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^ x >> 32
    })
}

impl State {
    /// An absent object, in a pool with this erasure code.
    #[must_use]
    pub fn of(code: Option<Code>) -> Self {
        Self { code, ..Self::default() }
    }

    /// The state after write `id`, or its errno.
    pub fn write(&self, id: u64, steps: &[Step], snapc: &SnapContext) -> Result<Self, i32> {
        self.write_copying(id, steps, snapc, None)
    }

    /// The state after write `id` with a copying step, whose source has the content `copied`, or its errno.
    pub fn write_copying(
        &self,
        id: u64,
        steps: &[Step],
        snapc: &SnapContext,
        copied: Option<&Object>,
    ) -> Result<Self, i32> {
        let mut head = self.head.as_ref().map(|k| k.object.clone());
        for s in steps {
            let size = head.as_ref().map_or(0, |o| o.data.len());
            if self.code.is_some_and(|c| c.refuses(s, size)) {
                return Err(EOPNOTSUPP);
            }
            s.apply(id, &mut head, copied)?;
        }
        let mut next = self.clone();
        if head.is_none() && self.head.is_none() {
            // The object did not exist and still does not.
            return Ok(next);
        }
        if snapc.seq > self.snap_seq {
            let snaps: Vec<u64> = snapc.snaps.iter().copied().filter(|s| *s > self.snap_seq).collect();
            if let Some(h) = &self.head
                && !snaps.is_empty()
            {
                let (known, version) = self.version.map_or((0, 0), |v| (1, v));
                let numbers = [next.clones_digest, snapc.seq, h.digest, known, version];
                let numbers = numbers.into_iter().chain(snaps.iter().copied());
                next.clones_digest = mix(numbers);
                Rc::make_mut(&mut next.clones).push((snapc.seq, snaps, h.clone(), self.version));
            }
            next.snap_seq = snapc.seq;
        }
        next.head = head.map(Kept::new);
        if next.head.is_none() && next.clones.is_empty() {
            next.snap_seq = 0;
        }
        Ok(next)
    }

    /// The object that a read at snapshot `snap` shows (0: the head).
    #[must_use]
    pub fn read(&self, snap: u64) -> Option<&Object> {
        self.version_read(snap).map(|(o, _)| o)
    }

    /// The object that a read at snapshot `snap` shows, and the version in its answer, if that is known.
    #[must_use]
    pub fn version_read(&self, snap: u64) -> Option<(&Object, Option<u64>)> {
        if snap == 0 || snap > self.snap_seq {
            return self.head.as_ref().map(|k| (&k.object, self.version));
        }
        let (_, snaps, k, version) = self.clones.iter().find(|(id, ..)| *id >= snap)?;
        snaps.contains(&snap).then_some((&k.object, *version))
    }

    /// A hash to recognise states.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let head = self.head.as_ref().map_or(0, |k| k.digest);
        let (known, version) = self.version.map_or((0, 0), |v| (1, v));
        mix([head, u64::from(self.head.is_some()), self.snap_seq, self.clones_digest, known, version].into_iter())
    }
}

/// The operations that read a whole object, which may have `many` omap entries; in a run with `calls` the count of class
/// `version`, in a run with bucket `lists` the sum of class `user`; and notify its watchers if wanted.
#[must_use]
pub fn read_ops(calls: bool, lists: bool, many: bool, notify: bool) -> Vec<OsdOp> {
    use wire::Encode as _;
    let page = |after: String| {
        let args = ((after, 1000u64), String::new()).to_bytes(wire::Features::PACIFIC);
        OsdOp::with_indata(OpCode::OMAPGETVALS, args)
    };
    let mut ops = vec![
        OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new()),
        OsdOp::new(OpCode::GETXATTRS),
        page(if many { rough::behind_bulk() } else { String::new() }),
    ];
    if many {
        ops.extend((0..rough::BULK_KEYS).step_by(900).map(|i| page(rough::before_bulk(i))));
    }
    if calls {
        ops.push(OsdOp::call(COUNTER, "read", b""));
    }
    if lists {
        ops.push(sums::read_op());
    }
    if notify {
        let args = NotifyArgs { prot_ver: 1, timeout_seconds: 3, payload: Bytes::from_static(b"sim") };
        ops.push(OsdOp::with_indata(OpCode::NOTIFY, args.to_bytes(wire::Features::PACIFIC)));
    }
    ops
}

/// The write that gave `key` the value `v`.
fn given(v: &Bytes, key: u8) -> u64 {
    let id = std::str::from_utf8(v).ok().and_then(|s| u64::from_str_radix(s.split_once('.')?.0, 16).ok());
    id.filter(|id| *id > 0 && value(*id, key) == *v).unwrap_or(FOREIGN)
}

fn values(of: BTreeMap<Bytes, Bytes>) -> Option<Values> {
    let mut out = Values::default();
    for (name, v) in of {
        if &name[..] == COUNTER_ATTR {
            continue;
        }
        let key = number(&name)?;
        *out.get_mut(usize::from(key))? = given(&v, key);
    }
    Some(out)
}

/// An object from the answers to [`read_ops`]; `None` if they are malformed.
#[must_use]
pub fn from_reply(ops: &[OsdOp]) -> Option<Seen> {
    use wire::Decode as _;
    let [data, attrs, omap, rest @ ..] = ops else { return None };
    let attrs = BTreeMap::<Bytes, Bytes>::from_bytes(&attrs.outdata).ok()?;
    let (mut omap, more) = <(BTreeMap<Bytes, Bytes>, bool)>::from_bytes(&omap.outdata).ok()?;
    (!more).then_some(())?;
    let mut many = BTreeMap::new();
    for o in rest.iter().filter(|o| o.op == OpCode::OMAPGETVALS) {
        let (page, _) = <(BTreeMap<Bytes, Bytes>, bool)>::from_bytes(&o.outdata).ok()?;
        many.extend(page.into_iter().filter(|(k, _)| rough::is_bulk(k)));
    }
    let bulk = match many.values().next() {
        None => 0,
        Some(v) if many.len() == rough::BULK_KEYS && many.values().all(|x| x == v) => given(v, 0),
        Some(_) => FOREIGN,
    };
    let mut sums = Sums::default();
    omap.retain(|k, v| !sums.take(k, v));
    let mut calls = rest.iter().filter(|o| o.op == OpCode::CALL);
    let count = match calls.next() {
        Some(o) => Some(counted(&o.outdata)?),
        None => None,
    };
    if let Some(o) = calls.next() {
        sums.take_sum(&o.outdata)?;
    }
    Some(Seen { data: data.outdata.clone(), attrs: values(attrs)?, omap: values(omap)?, count, sums, bulk })
}

/// A short description of an object.
#[must_use]
pub fn describe(o: Option<&Seen>) -> String {
    let Some(o) = o else { return "absent".into() };
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for c in o.data.chunks(8) {
        let mut b = [0; 8];
        b[..c.len()].copy_from_slice(c);
        let v = u64::from_le_bytes(b);
        match runs.last_mut() {
            Some((x, n)) if *x == v => *n += c.len(),
            _ => runs.push((v, c.len())),
        }
    }
    let runs: Vec<String> = runs.iter().take(12).map(|(v, n)| format!("{:04x}*{n}", v & 0xffff)).collect();
    let words = |v: &Values| -> Vec<String> {
        let there = v.iter().enumerate().filter(|(_, id)| **id > 0);
        there.map(|(k, id)| if *id == FOREIGN { format!("?.{k}") } else { format!("{id:08x}.{k}") }).collect()
    };
    format!(
        "{} bytes crc {:08x} [{}] attrs {:?} omap {:?} count {:?} {:?} bulk {:x}",
        o.data.len(),
        base::crc::crc32c(0, &o.data),
        runs.join(" "),
        words(&o.attrs),
        words(&o.omap),
        o.count,
        o.sums,
        o.bulk
    )
}
