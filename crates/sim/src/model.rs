//! What an object is, as clients see it: the reference that histories are held against.
//!
//! Values are unique: whatever a write puts somewhere is made from its number, so a stale byte is recognised as one.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use wire::msg::{OpCode, OsdOp, op_flags};

/// `ENOENT` and its kin, as operations answer them.
use base::errno::{ECANCELED, EEXIST, ENOENT};

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
    /// Goes on only if the attribute has the value write `of` gave it.
    CompareAttr {
        key: u8,
        of: u64,
    },
    /// Goes on only if the object exists.
    AssertExists,
}

/// Content of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Object {
    /// Bytes.
    pub data: Vec<u8>,
    /// Attributes by number.
    pub attrs: BTreeMap<u8, Bytes>,
    /// Omap by number.
    pub omap: BTreeMap<u8, Bytes>,
}

/// An object with its history as snapshots show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The object, if it exists.
    pub head: Option<Rc<Object>>,
    /// Newest snapshot context a write brought.
    pub snap_seq: u64,
    /// Clones, oldest first: number, snapshots, content.
    pub clones: Vec<(u64, Vec<u64>, Rc<Object>)>,
    /// The version clients saw last, if the last write was answered.
    pub version: Option<u64>,
}

/// The snapshots a write preserves: newest number, all numbers, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    /// Newest.
    pub seq: u64,
    /// All that live, newest first.
    pub snaps: Vec<u64>,
}

/// The value write `id` gives attribute or omap key `key`.
#[must_use]
pub fn value(id: u64, key: u8) -> Bytes {
    format!("{id:08x}.{key}").into_bytes().into()
}

/// `len` bytes of write `id`.
#[must_use]
pub fn fill(id: u64, len: usize) -> Vec<u8> {
    let unit = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes();
    unit.iter().copied().cycle().take(len).collect()
}

/// Name of an attribute.
#[must_use]
pub fn attr_name(key: u8) -> String {
    format!("a{key}")
}

/// Name of an omap key.
#[must_use]
pub fn omap_name(key: u8) -> String {
    format!("k{key}")
}

fn number(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name.get(1..)?).ok()?.parse().ok()
}

impl Step {
    /// The operation of the protocol.
    #[must_use]
    pub fn op(&self, id: u64) -> OsdOp {
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
            Self::CompareAttr { key, of } => {
                OsdOp::with_xattr(OpCode::CMPXATTR, attr_name(*key).as_bytes(), &value(*of, *key), 1, 1)
            }
            Self::AssertExists => OsdOp::new(OpCode::STAT),
        }
    }

    fn apply(&self, id: u64, o: &mut Option<Object>) -> Result<(), i32> {
        match self {
            Self::Write { off, len } => {
                let x = o.get_or_insert_default();
                if *len > 0 {
                    let end = off + len;
                    if x.data.len() < end {
                        x.data.resize(end, 0);
                    }
                    x.data[*off..end].copy_from_slice(&fill(id, *len));
                }
            }
            Self::WriteFull { len } => o.get_or_insert_default().data = fill(id, *len),
            Self::Append { len } => o.get_or_insert_default().data.extend(fill(id, *len)),
            Self::Zero { off, len } => {
                if let Some(x) = o {
                    let n = x.data.len();
                    if *off < n && off + len >= n {
                        x.data.truncate(*off);
                    } else if *off < n {
                        x.data[*off..off + len].fill(0);
                    }
                }
            }
            Self::Truncate { size } => {
                if let Some(x) = o {
                    x.data.resize(*size, 0);
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
            Self::SetAttr { key } => {
                o.get_or_insert_default().attrs.insert(*key, value(id, *key));
            }
            Self::RemoveAttr { key } => {
                o.as_mut().ok_or(ENOENT)?.attrs.remove(key);
            }
            Self::SetOmap { keys } => {
                let x = o.get_or_insert_default();
                x.omap.extend(keys.iter().map(|k| (*k, value(id, *k))));
            }
            Self::RemoveOmap { key } => {
                o.as_mut().ok_or(ENOENT)?.omap.remove(key);
            }
            Self::ClearOmap => o.as_mut().ok_or(ENOENT)?.omap.clear(),
            Self::CompareAttr { key, of } => {
                let have = o.as_ref().ok_or(ENOENT)?.attrs.get(key);
                if have != Some(&value(*of, *key)) {
                    return Err(ECANCELED);
                }
            }
            Self::AssertExists => {
                o.as_ref().ok_or(ENOENT)?;
            }
        }
        Ok(())
    }
}

impl State {
    /// The state after write `id`, or its errno.
    pub fn write(&self, id: u64, steps: &[Step], snapc: &SnapContext) -> Result<Self, i32> {
        let mut head = self.head.as_deref().cloned();
        for s in steps {
            s.apply(id, &mut head)?;
        }
        let mut next = self.clone();
        if head.as_ref() == self.head.as_deref() && head.is_none() {
            // Nothing was there and nothing is.
            return Ok(next);
        }
        if snapc.seq > self.snap_seq {
            let snaps: Vec<u64> = snapc.snaps.iter().copied().filter(|s| *s > self.snap_seq).collect();
            if let Some(h) = &self.head
                && !snaps.is_empty()
            {
                next.clones.push((snapc.seq, snaps, h.clone()));
            }
            next.snap_seq = snapc.seq;
        }
        next.head = head.map(Rc::new);
        if next.head.is_none() && next.clones.is_empty() {
            next.snap_seq = 0;
        }
        Ok(next)
    }

    /// What a read at snapshot `snap` (0: the head) shows.
    #[must_use]
    pub fn read(&self, snap: u64) -> Option<&Object> {
        if snap == 0 || snap > self.snap_seq {
            return self.head.as_deref();
        }
        let (_, snaps, o) = self.clones.iter().find(|(id, ..)| *id >= snap)?;
        snaps.contains(&snap).then_some(o)
    }

    /// A hash for remembering states.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut h = Fnv(0xcbf2_9ce4_8422_2325);
        self.hash(&mut h);
        h.finish()
    }
}

struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, b: &[u8]) {
        if b.len() > 16 {
            self.0 =
                (self.0 ^ u64::from(base::crc::crc32c(0, b)) ^ (b.len() as u64) << 32).wrapping_mul(0x0100_0000_01b3);
            return;
        }
        for x in b {
            self.0 = (self.0 ^ u64::from(*x)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The operations that read all of an object.
#[must_use]
pub fn read_ops() -> Vec<OsdOp> {
    use wire::Encode as _;
    let all = ((String::new(), 1000u64), String::new()).to_bytes(wire::Features::PACIFIC);
    vec![
        OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new()),
        OsdOp::new(OpCode::GETXATTRS),
        OsdOp::with_indata(OpCode::OMAPGETVALS, all),
    ]
}

/// An object from the answers to [`read_ops`]; `None` if they make no sense.
#[must_use]
pub fn from_reply(ops: &[OsdOp]) -> Option<Object> {
    use wire::Decode as _;
    let [data, attrs, omap] = ops else { return None };
    let attrs = BTreeMap::<Bytes, Bytes>::from_bytes(&attrs.outdata).ok()?;
    let (omap, more) = <(BTreeMap<Bytes, Bytes>, bool)>::from_bytes(&omap.outdata).ok()?;
    let by_number =
        |m: BTreeMap<Bytes, Bytes>| m.into_iter().map(|(k, v)| Some((number(&k)?, v))).collect::<Option<_>>();
    (!more).then_some(())?;
    Some(Object { data: data.outdata.to_vec(), attrs: by_number(attrs)?, omap: by_number(omap)? })
}

/// An object in few words.
#[must_use]
pub fn describe(o: Option<&Object>) -> String {
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
    let attrs: Vec<String> = o.attrs.values().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
    let omap: Vec<String> = o.omap.values().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
    format!(
        "{} bytes crc {:08x} [{}] attrs {attrs:?} omap {omap:?}",
        o.data.len(),
        base::crc::crc32c(0, &o.data),
        runs.join(" ")
    )
}
