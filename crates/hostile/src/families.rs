//! Families of decoders and players, with seeds for each.
//!
//! | module | contents |
//! | --- | --- |
//! | `auth` | keyrings, keys, tickets, and authentication payloads of unauthenticated peers |
//! | `caps` | caps of all three services, and access decisions with them |
//! | `class_inputs` | input of object class methods |
//! | `counters` | reports of daemons' counters to the manager role |
//! | `crush` | CRUSH maps, and mappings with decoded maps: the rules of a damaged map must terminate |
//! | `frames` | whole connections on captured streams: a hostile client, a hostile server |
//! | `inventories` | inventories of existing clusters, as `deploy import` reads them |
//! | `maps` | OSD maps, incrementals and monitor maps, with the first operations on them |
//! | `messages` | all message types |
//! | `mon_sessions` | whole sessions with monitor and manager role, of peers without write access |
//! | `msgr1` | whole msgr1 connections at a monitor and at an OSD, on recorded streams of a client |
//! | `osd_sessions` | whole sessions with an OSD, of clients without write access |
//! | `store_extents` | compressed extents of a store with invalid contents |
//! | `store_pages` | pages of a store's metadata with invalid contents |
//! | `store_records` | a store's device with invalid records: superblocks, roots and log frames |
//! | `structures` | structures inside blobs, which message decoders do not reach |

mod auth;
mod caps;
mod class_inputs;
mod counters;
mod crush;
mod frames;
mod inventories;
mod maps;
mod messages;
mod mon_sessions;
mod msgr1;
mod osd_sessions;
mod store_extents;
mod store_pages;
mod store_records;
mod structures;

/// Decoders or players for one kind of input.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name of the fuzz target and of the corpus.
    pub name: &'static str,
    /// Decodes the input; a decoded value must also survive encoding and decoding again.
    pub run: fn(&[u8]),
    /// Initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Bytes that the family may allocate regardless of its input.
    pub alloc_fixed: usize,
    /// Cost of an input relative to a message; the bounded test runs fewer inputs of expensive families.
    pub cost: u64,
}

/// Fixed allowance for decoders, whose other memory depends on the size of the input.
const ALLOC_DECODER: usize = 512 << 10;

/// Every family.
pub const ALL: &[Family] = &[
    messages::FAMILY,
    structures::FAMILY,
    maps::FAMILY,
    crush::FAMILY,
    caps::FAMILY,
    auth::FAMILY,
    frames::FAMILY,
    msgr1::FAMILY,
    class_inputs::FAMILY,
    counters::FAMILY,
    inventories::FAMILY,
    store_records::FAMILY,
    store_pages::FAMILY,
    store_extents::FAMILY,
    mon_sessions::FAMILY,
    osd_sessions::FAMILY,
];

/// Runs the family of that name.
///
/// # Panics
/// If there is no such family, or if its decoders have a bug.
pub fn run(name: &str, input: &[u8]) {
    match ALL.iter().find(|f| f.name == name) {
        Some(f) => (f.run)(input),
        None => panic!("no family {name}"),
    }
}

/// Selects one of several decoders of a family by the first byte of the input.
fn select<'a, T: Copy>(of: &[T], input: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (which, rest) = input.split_first()?;
    Some((*of.get(usize::from(*which) % of.len().max(1))?, rest))
}

/// Input of families that play sessions, consumed step by step.
struct Steps<'a>(&'a [u8]);

impl<'a> Steps<'a> {
    fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8().unwrap_or(0), self.u8().unwrap_or(0)])
    }

    /// Takes a length of two bytes and that many bytes, or all that remain.
    fn bytes(&mut self) -> bytes::Bytes {
        let n = usize::from(self.u16()).min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        bytes::Bytes::copy_from_slice(head)
    }

    /// Takes a message: index of its type, version, front and data.
    fn message(&mut self) -> wire::Message {
        let kinds = wire::msg::registry::KINDS;
        let kind = kinds.get(usize::from(self.u8().unwrap_or(0)) % kinds.len()).copied().unwrap_or(0);
        let version = u16::from(self.u8().unwrap_or(0));
        let header = wire::MsgHeader { kind, version, compat: 1, ..wire::MsgHeader::default() };
        wire::Message { header, front: self.bytes(), data: self.bytes(), ..wire::Message::default() }
    }

    /// Encodes a step that [`Steps::message`] reads, after the byte `what` that selects a message; `n` is the index of
    /// its type.
    fn put_message(out: &mut Vec<u8>, what: u8, n: usize, m: &wire::Message) {
        out.extend([what, n as u8, m.header.version as u8]);
        for part in [&m.front, &m.data] {
            let part = part.get(..1000).unwrap_or(part);
            out.extend((part.len() as u16).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
}

/// Decodes a value and, on success, checks that encoding and decoding preserve it.
fn there_and_back<T: wire::Encode + wire::Decode>(input: &[u8]) {
    let bytes = bytes::Bytes::copy_from_slice(input);
    let Ok(v) = T::from_bytes(&bytes) else { return };
    let once = v.to_bytes(wire::Features::PACIFIC);
    let again = T::from_bytes(&once).unwrap_or_else(|e| panic!("own encoding refused: {e}"));
    assert!(again.to_bytes(wire::Features::PACIFIC) == once, "encoding is not stable");
}
