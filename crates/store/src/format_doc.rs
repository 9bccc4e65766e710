//! Tests that three descriptions of the format agree: field tables above the code, the tables of
//! docs/design/store-format.md, and the bytes written. Figures in the document's text are compared with the constants.
//!
//! A table is identified by its first heading. `Walk` reads bytes according to a table and must end at their
//! end. Values of single fields are compared, so that swapped fields of the same form are noticed.

use crate::api::MAX_OBJECT_SIZE;
use crate::codec::{Get, Put};
use crate::key::{Cid, Oid};
use crate::layout::{
    BLOCK, DEVICE_BYTES_MAX, DEVICE_BYTES_MIN, FORMAT_VERSION, Layout, RINGS_MAX, ROOT_BLOCKS, SHARDS, SUPER_BLOCKS,
    shard_for,
};
use crate::meta::change::{Change, Encoder, Marks, What};
use crate::meta::inner::{Inner, Kid};
use crate::meta::key::Sep;
use crate::meta::map::{Chunk, Ptr};
use crate::meta::object::{Lost, Object};
use crate::meta::packed::Packed;
use crate::meta::page::Sum;
use crate::meta::undo_record::{Item, Run};
use crate::meta::used::BlockPtr;
use crate::meta::{Coll, Part, Usage, undo, undo_record};
use crate::space::Space;
use crate::superblock::{BlobPtr, LABEL_BYTES_MAX, ROOT_MAGIC, Root, SUPER_MAGIC, Superblock};
use crate::wal::{FRAME_BYTES_MAX, HEADER, Header, Kind, MAGIC, Position, Ring};
use base::{Eversion, HObject, PgId, Uuid};
use bytes::Bytes;
use std::collections::BTreeMap;

const DOC: &str = include_str!("../../../docs/design/store-format.md");

#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    form: String,
}

/// Cells of the rows below the heading `name`, in a document or in comments.
fn rows<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let lines = text.lines().map(|l| l.trim_start().trim_start_matches("///").trim());
    let cells = |l: &'a str| -> Option<Vec<&'a str>> {
        let inner = l.strip_prefix('|')?.strip_suffix('|')?;
        Some(inner.split('|').map(str::trim).collect())
    };
    let lines: Vec<_> = lines.map(cells).collect();
    let first = |c: &Option<Vec<&'a str>>| c.as_ref().and_then(|c| c.first().copied());
    // A row of another table may begin with the same word.
    let head = lines.windows(2).position(|w| first(&w[0]) == Some(name) && first(&w[1]) == Some("---"));
    let head = head.unwrap_or_else(|| panic!("no table of {name}"));
    let all: Vec<_> = lines.into_iter().skip(head + 2).map_while(|c| c).collect();
    assert!(!all.is_empty(), "the table of {name} is empty");
    all
}

fn table(text: &str, name: &str) -> Vec<Field> {
    let field = |r: Vec<&str>| Field { name: r[0].into(), form: r[1].into() };
    rows(text, name).into_iter().map(field).collect()
}

/// The table of a source file, after comparing it with that of the document.
fn both(source: &str, name: &str) -> Vec<Field> {
    let t = table(source, name);
    assert_eq!(t, table(DOC, name), "{name}");
    t
}

/// Result of reading bytes: fields with their values, integers as numbers.
#[derive(Default)]
struct Walk {
    seen: Vec<(String, u64)>,
    flags: u64,
}

impl Walk {
    /// The last value of a field.
    fn last(&self, name: &str) -> Option<u64> {
        self.seen.iter().rev().find(|s| s.0 == name).map(|s| s.1)
    }

    /// All values of a field.
    fn all(&self, name: &str) -> Vec<u64> {
        self.seen.iter().filter(|s| s.0 == name).map(|s| s.1).collect()
    }

    fn applies(&self, given: &[&str], condition: &str) -> bool {
        match condition.parse::<u64>() {
            Ok(bit) => self.flags & bit != 0,
            Err(_) => given.contains(&condition) || self.last(condition).is_some_and(|v| v != 0),
        }
    }

    fn read(&mut self, r: &mut Get<'_>, f: &Field, given: &[&str]) {
        let name = f.name.trim_start_matches(['·', '+', ' ']);
        let (form, yes) = match (f.form.split_once(" if "), f.form.split_once(" unless ")) {
            (Some((form, c)), _) => (form, self.applies(given, c)),
            (_, Some((form, c))) => (form, !self.applies(given, c)),
            _ => (f.form.as_str(), true),
        };
        if !yes {
            // An absent count means zero repetitions.
            return self.seen.push((name.into(), 0));
        }
        let (form, times) = match form.split_once(" × ") {
            Some((form, count)) => (form, self.last(count).unwrap()),
            None => (form, 1),
        };
        for _ in 0..times {
            let v = match form {
                "u8" => r.u8().unwrap().into(),
                "u16" => r.u16().unwrap().into(),
                "u32" => r.u32().unwrap().into(),
                "u64" => r.u64().unwrap(),
                "var" => r.var().unwrap(),
                "bytes" => r.bytes().unwrap().len() as u64,
                "cid" => u64::from(r.cid().unwrap() != Cid::Meta),
                "version" => r.version().unwrap().version,
                "name" => r.oid().unwrap().hobj.hash.into(),
                "pointer" => BlobPtr::decode(r, &layout()).unwrap().len.into(),
                "map" => Chunk::decode(r, &layout()).unwrap().mapped(),
                n => r.take(n.parse().unwrap_or_else(|_| panic!("form {n}"))).unwrap().len() as u64,
            };
            if name.ends_with("flags") && form == "u8" {
                self.flags = v;
            }
            self.seen.push((name.into(), v));
        }
    }

    /// Reads `buf` to its end, according to `fields`.
    fn over(buf: &[u8], fields: &[Field], given: &[&str]) -> Self {
        let (mut w, mut r) = (Self::default(), Get::new(buf));
        let mut i = 0;
        while let Some(f) = fields.get(i) {
            let mark = f.name.chars().next().filter(|c| ['·', '+'].contains(c));
            let Some(mark) = mark else {
                w.read(&mut r, f, given);
                i += 1;
                continue;
            };
            let n = fields[i..].iter().take_while(|g| g.name.starts_with(mark)).count();
            let mut left = if mark == '·' { w.seen.last().map_or(0, |s| s.1) } else { u64::MAX };
            // An optional row decides for itself whether it is present.
            while left > 0 && r.rest() > 0 {
                fields[i..i + n].iter().for_each(|f| w.read(&mut r, f, given));
                left -= 1;
            }
            i += n;
        }
        assert_eq!(r.rest(), 0, "bytes behind the last field");
        w
    }
}

fn layout() -> Layout {
    Layout::of(1 << 30).unwrap()
}

fn uuid() -> Uuid {
    Uuid([7; 16])
}

fn cid() -> Cid {
    Cid::Pg(PgId::new(2, 3).into())
}

fn oid(flags: bool) -> Oid {
    let b = Bytes::from_static;
    let (key, nspace) = if flags { (b(b"key"), b(b"ns")) } else { (Bytes::new(), Bytes::new()) };
    let hobj = HObject { oid: b(b"an-object"), key, nspace, hash: 77, ..HObject::min() };
    let generation = if flags { 9 } else { Oid::NO_GEN };
    Oid::new(hobj).at_generation(generation)
}

fn pointer(len: u32) -> BlobPtr {
    let first = layout().space_start;
    BlobPtr { runs: smallvec::smallvec![(first, 1), (first + 5, 1)], len, crc: 3 }
}

fn encoded(f: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut w = Vec::new();
    f(&mut w);
    w
}

/// The part of a block that its length field covers.
fn sealed(block: &[u8], len_at: usize) -> &[u8] {
    let len = u32::from_le_bytes(block[len_at..len_at + 4].try_into().unwrap());
    &block[..len as usize]
}

/// The two cells of each row of a table of the document.
fn pairs(name: &str) -> Vec<(String, String)> {
    rows(DOC, name).into_iter().map(|r| (r[0].to_owned(), r[1].to_owned())).collect()
}

#[test]
fn layout_magic_numbers_and_limits() {
    let (l, large) = (layout(), Layout::of(DEVICE_BYTES_MAX).unwrap());
    let slot = |i| format!("{}–{}", l.super_slot(i), l.super_slot(i) + SUPER_BLOCKS - 1);
    let want = [
        (format!("{}, {}", slot(0), slot(1)), "superblock slots 0 and 1".into()),
        (
            format!("{}–{}", l.root_slot(0, 0, 0), l.log_start - 1),
            format!("root slots: {RINGS_MAX} rings × 2 parities × {ROOT_BLOCKS} blocks"),
        ),
        (
            format!("{} …", l.log_start),
            format!(
                "log area: 1/{} of the device, at most {} GiB, divided into one ring per reactor",
                l.blocks / l.log_blocks,
                (large.log_blocks * BLOCK) >> 30
            ),
        ),
        ("…".into(), "space: data blocks and metadata pages, anywhere".into()),
        (
            format!("last {}", l.blocks - l.space_end),
            "the root slots' second copies, then superblock slots 2 and 3".into(),
        ),
    ];
    assert_eq!(pairs("blocks"), want);
    let want = [
        ("superblock".into(), format!("`{:?}`", std::str::from_utf8(SUPER_MAGIC).unwrap())),
        ("root".into(), format!("`{ROOT_MAGIC:#x}`")),
        ("frame".into(), format!("`{MAGIC:#x}`")),
    ];
    assert_eq!(pairs("magic of"), want);
    let want = [
        ("object".into(), format!("{} GiB", MAX_OBJECT_SIZE >> 30)),
        ("metadata of a transaction".into(), format!("a quarter of a ring, and {} MiB", FRAME_BYTES_MAX >> 20)),
        ("labels".into(), format!("{} KiB", LABEL_BYTES_MAX >> 10)),
        ("reactors".into(), RINGS_MAX.to_string()),
        ("device".into(), format!("{} MiB to {} TiB", DEVICE_BYTES_MIN >> 20, DEVICE_BYTES_MAX >> 40)),
    ];
    assert_eq!(pairs("limit of"), want);
    assert!(DOC.contains(&format!("A *block* is {BLOCK} bytes")));
    let newest = pairs("version").pop().unwrap();
    assert_eq!(newest.0, FORMAT_VERSION.to_string());
}

#[test]
fn superblocks() {
    let source = include_str!("superblock.rs");
    let fields = both(source, "superblock");
    let labels = BTreeMap::from([("a".into(), Bytes::from_static(b"bc"))]);
    let mut sb = Superblock {
        version: 2,
        features: base::FeatureWords::default(),
        seq: 5,
        uuid: uuid(),
        bytes: 1 << 30,
        grown: 0,
        shards: 32,
        rings: 4,
        layout_epoch: 6,
        labels,
    };
    let words = base::FeatureWords { compat: 91, ro_compat: 92, incompat: 93 };
    for given in [&[][..], &["grown"], &["features", "grown"]] {
        sb.grown = if given.is_empty() { 0 } else { 2 << 30 };
        sb.features = if given.len() > 1 { words } else { base::FeatureWords::default() };
        let w = Walk::over(sealed(&sb.encode(3), 20), &fields, given);
        assert_eq!(
            (w.last("slot"), w.last("seq"), w.last("size"), w.last("grown to")),
            (Some(3), Some(5), Some(1 << 30), Some(sb.grown))
        );
        if given.len() > 1 {
            assert_eq!(
                ["version", "compat", "read-only compat", "incompat"].map(|n| w.last(n).unwrap()),
                [3, 91, 92, 93]
            );
        }
        assert_eq!(
            (w.last("shards"), w.last("rings"), w.last("layout epoch"), w.last("labels")),
            (Some(32), Some(4), Some(6), Some(1))
        );
    }
}

#[test]
fn roots_and_pointers() {
    let source = include_str!("superblock.rs");
    let words = base::FeatureWords { compat: 91, ro_compat: 92, incompat: 93 };
    let mut root = Root {
        features: base::FeatureWords::default(),
        seq: 1,
        layout_epoch: 2,
        ring: 3,
        next_nid: 4,
        next_lsn: 5,
        log_pos: 6,
        log_seq: 7,
        log_chain: 8,
        page_blocks: 9,
        trees: vec![(3, 1, pointer(5000)), (7, 2, pointer(6000))],
        used: vec![(11, BlockPtr { block: 12, crc: 13 })],
    };
    let w = Walk::over(sealed(&root.encode(&uuid(), 1).unwrap(), 4), &both(source, "root"), &[]);
    let names = [
        "seq",
        "layout epoch",
        "ring",
        "next object number",
        "next record number",
        "log position",
        "frame number",
        "chain",
        "metadata blocks",
    ];
    assert_eq!(names.map(|n| w.last(n).unwrap()), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    root.features = words;
    let with = Walk::over(sealed(&root.encode(&uuid(), 1).unwrap(), 4), &both(source, "root"), &["features"]);
    assert_eq!(["compat", "read-only compat", "incompat"].map(|n| with.last(n).unwrap()), [91, 92, 93]);
    assert_eq!((w.all("shard"), w.all("level"), w.all("root page")), (vec![3, 7], vec![1, 2], vec![5000, 6000]));
    assert_eq!((w.all("number"), w.all("block"), w.all("crc")[0]), (vec![11], vec![12], 13));
    let w = Walk::over(&encoded(|w| pointer(5000).encode(w)), &both(source, "pointer"), &[]);
    assert_eq!(
        (w.last("length"), w.last("crc"), w.last("runs"), w.last("blocks")),
        (Some(5000), Some(3), Some(2), Some(1))
    );
}

#[test]
fn frame_header() {
    let fields = both(include_str!("wal.rs"), "frame header");
    let head = Position { pos: 0, seq: 21, chain: 22 };
    let mut ring = Ring { start: 100, blocks: 16, index: 1, layout_epoch: 2, uuid: 3, head, tail: 0, used: 0 };
    for kind in [Kind::Commit, Kind::Seal] {
        let (_, frame) = ring.close(kind, &[9; 50], 23, 24, 20).unwrap();
        let w = Walk::over(&frame[..HEADER], &fields, &[]);
        let h = Header::decode(&frame).unwrap();
        assert_eq!(
            (w.last("ring"), w.last("kind"), w.last("layout epoch"), w.last("uuid")),
            (Some(1), Some(kind as u64), Some(2), Some(3))
        );
        assert_eq!(
            (w.last("prev"), w.last("number"), w.last("durable_upto")),
            (Some(h.prev.into()), Some(h.seq), Some(20))
        );
        assert_eq!((w.last("payload length"), w.last("payload crc")), (Some(50), Some(h.payload_crc.into())));
        assert_eq!((w.last("first record number"), w.last("records")), (Some(24), Some(23)));
        assert_eq!(w.last("header crc"), Some(h.crc.into()));
    }
}

#[test]
fn collections_and_names() {
    let fields = both(include_str!("meta/colls.rs"), "collection");
    let part = |family, range| Part { family, range };
    for more in [false, true] {
        let mut parts = smallvec::smallvec![part(5, 6..=7)];
        if more {
            parts.push(part(8, 9..=10));
        }
        let c = Coll {
            cid: cid(),
            bits: 4,
            num: 0,
            parts,
            shard: 0,
            page: 0,
            info: more.then(|| vec![1; 11]),
            trimmed: more.then(|| Eversion::new(1, 12)),
            usage: Usage { objects: 13, stored: 14, omap: 15 },
            undo: if more { undo::Undo { records: 16, blocks: 17 } } else { undo::Undo::default() },
            packed: if more { Packed { original: 9, stored: -10 } } else { Packed::default() },
        };
        let w = Walk::over(&encoded(|w| c.encode(w)), &fields, &[]);
        assert_eq!(
            (w.last("hash bits"), w.last("objects"), w.last("stored bytes"), w.last("omap bytes")),
            (Some(4), Some(13), Some(14), Some(15))
        );
        let (families, hashes) = if more { (vec![5, 8], vec![6, 9]) } else { (vec![5], vec![6]) };
        assert_eq!((w.all("family"), w.all("first hash")), (families, hashes));
        let rest = ["info", "void up to", "undo records", "undo blocks"].map(|n| w.last(n).unwrap());
        assert_eq!(rest, if more { [11, 12, 16, 17] } else { [0; 4] });
        let extents = ["blocks before compression", "blocks of extents"].map(|n| w.last(n).unwrap());
        assert_eq!(extents, if more { [18, 21] } else { [0; 2] });
        let name = Walk::over(&encoded(|w| w.oid(&oid(more))), &both(include_str!("codec.rs"), "name"), &[]);
        assert_eq!(
            (name.last("hash"), name.last("name"), name.last("key")),
            (Some(77), Some(9), Some(if more { 3 } else { 0 }))
        );
        assert_eq!(name.last("generation"), Some(if more { 9 } else { 0 }));
    }
}

#[test]
fn onodes_and_maps() {
    let fields = both(include_str!("meta/object.rs"), "onode");
    let first = layout().space_start;
    let mut chunk = Chunk::default();
    for (at, phys) in [(1, first), (2, first + 1), (9, first + 7)] {
        chunk.set(at, Ptr::new(phys, 5), 6);
    }
    let w = Walk::over(&encoded(|w| chunk.encode(w)), &both(include_str!("meta/map.rs"), "map"), &[]);
    assert_eq!(w.last("mapped blocks"), Some(3));
    assert_eq!((w.all("skipped blocks"), w.all("blocks"), w.all("version")), (vec![1, 6], vec![2, 1], vec![5, 5]));
    assert_eq!((w.all("first device block"), w.all("crc")), (vec![first, first + 7], vec![6, 6, 6]));
    let mut o = Object::new((*oid(true)).clone(), 0, 21);
    (o.birth, o.size, o.hint) = (22, 23, Some((24, 25, 26)));
    o.attrs = vec![(Bytes::from_static(b"ab"), Bytes::from_static(b"cde"))];
    o.omap_header = Bytes::from_static(b"head");
    o.inline = chunk;
    for paged in [false, true] {
        if paged {
            (o.paged, o.mapped) = (true, 31);
            o.omap = crate::meta::omap::Omap::Paged { keys: 27, bytes: 28 };
        }
        let w = Walk::over(&encoded(|w| o.encode(w)), &fields, &[]);
        assert_eq!((w.last("number"), w.last("birth id"), w.last("size")), (Some(21), Some(22), Some(23)));
        let hint = ["expected object size", "expected write size", "hint flags"].map(|n| w.last(n).unwrap());
        assert_eq!((hint, w.last("attributes"), w.last("omap header")), ([24, 25, 26], Some(1), Some(4)));
        let omap = (w.last("omap keys"), w.last("omap bytes"), w.last("mapped blocks"), w.last("map"));
        let want = if paged { (27, 28, 31, 0) } else { (0, 0, 0, 3) };
        assert_eq!(omap, (Some(want.0), Some(want.1), Some(want.2), Some(want.3)));
    }
}

#[test]
fn compressed_extents() {
    use crate::compress::{Algorithm, Compression, Mode, Packer};
    let fields = both(include_str!("compress.rs"), "extent");
    let (mode, required_ratio) = (Mode::Force, 0.9);
    for algorithm in Algorithm::ALL {
        let level = algorithm.usual_level();
        let how = Compression { mode, algorithm, level, required_ratio, min_blob: 0, max_blob: 64 << 10 };
        let stored = Packer::default().pack(&how, &[7; 4 * BLOCK as usize]).unwrap();
        let len = u32::from_le_bytes(stored[4..8].try_into().unwrap());
        let w = Walk::over(&stored[..8 + len as usize], &fields, &[]);
        let head = ["algorithm", "blocks", "zero", "length"].map(|n| w.last(n).unwrap());
        assert_eq!(head, [algorithm as u64, 4, 0, len.into()]);
        assert_eq!(w.all("compressed byte").len(), len as usize);
    }
    let numbers = pairs("algorithm");
    let names = ["lz4", "zstd", "snappy", "zlib"];
    let code = names.map(|n| (n.to_owned(), (Algorithm::named(n).unwrap() as u8).to_string()));
    assert_eq!(numbers, code);
}

#[test]
fn undo_records_and_inner_pages() {
    let fields = both(include_str!("meta/undo_record.rs"), "undo record");
    let first = layout().space_start;
    let run = |block, n: u32, phys| Run {
        block,
        n: n.into(),
        phys,
        version: if phys > 0 { 8 } else { 0 },
        crcs: (0..if phys > 0 { n } else { 0 }).map(|_| 9).collect(),
    };
    let runs = smallvec::smallvec![run(4, 2, first), run(10, 3, 0)];
    let item = Item { nid: 3, birth: 5, hash: 6, shared: true, lost: false, size: 7, runs };
    let w = Walk::over(&undo_record::encode(&[item]), &fields, &[]);
    assert_eq!(
        (w.last("number"), w.last("birth id xor number"), w.last("hash"), w.last("size")),
        (Some(3), Some(3 ^ 5), Some(6), Some(7))
    );
    assert_eq!(
        (w.all("first block"), w.all("blocks"), w.all("device block")),
        (vec![4, 10], vec![2, 3], vec![first, 0])
    );
    let fields = both(include_str!("meta/inner.rs"), "inner page");
    for delta in [0, 5] {
        let mut n = Inner { delta, ..Inner::default() };
        n.seps.push(Sep { hi: 1, lo: 2, rest: Bytes::from_static(b"xyz") });
        let sum = Sum { n: 11, bytes: 12, omap: 13 };
        n.kids.push(Kid { page: 0, loc: pointer(5000), sum, delta: vec![0; delta].into() });
        let buf = encoded(|w| {
            w.extend_from_slice(&[7, 1]);
            n.encode(w);
        });
        let w = Walk::over(&buf, &fields, if delta > 0 { &["changes"] } else { &[] });
        let names = ["hi", "lo", "rest", "page", "entries", "bytes", "omap bytes", "changes"];
        assert_eq!(names.map(|n| w.last(n).unwrap()), [1, 2, 3, 5000, 11, 12, 13, delta as u64]);
    }
}

/// Fields in a cell: `name form, · name form, …`.
fn cell(text: &str) -> Vec<Field> {
    let field = |f: &str| {
        let (name, form) = f.rsplit_once(' ').unwrap();
        Field { name: name.into(), form: form.into() }
    };
    text.split(", ").filter(|f| !f.is_empty()).map(field).collect()
}

#[test]
fn changes() {
    let doc = rows(DOC, "change");
    assert_eq!(doc, rows(include_str!("meta/change.rs"), "change"));
    let mut names = Vec::new();
    for c in crate::meta::change::samples(&layout()) {
        let buf = encoded(|w| Encoder::go_on(w, Marks::default()).put(&c));
        let mut r = Get::new(&buf);
        let tag = r.u8().unwrap().to_string();
        let row = doc.iter().find(|d| d[1] == tag).unwrap_or_else(|| panic!("{c:?} has tag {tag}"));
        let said = format!("{c:?}");
        let said = match &c {
            Change::OfObject { what, .. } => format!("{what:?}"),
            Change::MakeCollection { shard: 31, .. } => "MakeElsewhere".into(),
            _ => said,
        };
        let name = said.split([' ', '{']).next().unwrap_or_default();
        assert_eq!(row[0], name, "tag {tag}");
        assert_eq!(r.cid().unwrap(), c.cid());
        if !row[2].is_empty() {
            assert_eq!(r.oid().unwrap().hobj.hash, 0, "{name}");
        }
        let rest = r.take(r.rest()).unwrap();
        let w = Walk::over(rest, &cell(row[3]), &[]);
        if let Change::OfObject { what: What::Map { block, size, version, .. }, .. } = c {
            let fields = (w.last("block"), w.last("size"), w.last("version"));
            assert_eq!(fields, (Some(block), Some(size), Some(version.into())));
        }
        names.push(row[0]);
    }
    for d in &doc {
        assert!(names.contains(&d[0]), "no sample of {}", d[0]);
    }
}

#[test]
fn kinds_of_pages() {
    use crate::meta::key::{COLL, LOG, MAP, OBJECTS, OMAP, REFS, UNDO};
    let kinds: Vec<String> = rows(DOC, "kind").into_iter().map(|r| r[0].to_owned()).collect();
    let names = ["collection", "objects", "omap", "block map", "PG log", "references", "undo records"];
    let code = [COLL, OBJECTS, OMAP, MAP, LOG, REFS, UNDO].iter().zip(names).map(|(k, n)| format!("{k} {n}"));
    assert_eq!(kinds, code.collect::<Vec<_>>());
}

#[test]
fn flags_of_onodes() {
    let flags = |change: &dyn Fn(&mut Object)| {
        let mut o = Object::new((*oid(false)).clone(), 0, 21);
        change(&mut o);
        Walk::over(&encoded(|w| o.encode(w)), &table(DOC, "onode"), &[]).flags
    };
    let lost = |map, omap| flags(&|o| o.lost = Lost { map, omap });
    let paged = || crate::meta::omap::Omap::Paged { keys: 1, bytes: 2 };
    let code = [
        (flags(&|o| o.hint = Some((1, 2, 3))), "allocation hint"),
        (flags(&|o| o.omap = paged()), "omap in leaves"),
        (flags(&|o| o.paged = true), "map in leaves"),
        (flags(&|o| o.tail = true), "the last block is mapped and longer than the size"),
        (flags(&|o| o.shared = true), "was source or target of a clone"),
        (lost(true, true), "part of its map or omap was lost, see [fault-model.md](fault-model.md)"),
        (lost(false, true) & !lost(true, true), "with 32: the map is complete"),
        (lost(true, false) & !lost(true, true), "with 32: the omap is complete"),
    ];
    assert_eq!(pairs("flag"), code.map(|(flag, meaning)| (flag.to_string(), meaning.to_owned())));
}

/// Figures within sentences of the document, with the constants that they state.
#[test]
fn figures_in_the_text() {
    use crate::meta::{blocks, map, numbers, objects, omap, page, refs, tree, used};
    let c = crate::engine::Config::default();
    let removals = |bytes: u64| Space::new(0, bytes / BLOCK).for_removals() * BLOCK;
    let text = DOC.split_whitespace().collect::<Vec<_>>().join(" ");
    let thousands = |n: u64| format!("{},{:03}", n / 1000, n % 1000);
    let said = [
        format!("There are {SHARDS} shards."),
        format!("onodes; at most {} |", objects::OBJECTS_MAX),
        format!("ascending; about {} KiB |", omap::PAGE_BYTES_MAX >> 10),
        format!("chunk of {} blocks", map::CHUNK),
        format!("range of {} blocks", refs::RANGE),
        format!("since the leaf was stored, at most {}.", map::DELTA_MAX),
        format!("from two blocks to {}", map::EXTENT_MAX),
        format!("A page has about {} kids.", tree::KIDS_MAX),
        format!("an omap of up to {} KiB", omap::INLINE_BYTES_MAX >> 10),
        format!("the map of an object below {} KiB", (blocks::INLINE_BLOCKS * BLOCK) >> 10),
        format!("low {} bits of the record's number", map::VERSION_MASK.count_ones()),
        format!("the ring in bits {0}–{1}", numbers::NID_RING_SHIFT, numbers::NID_RING_SHIFT + 7),
        format!("({} blocks each)", thousands(used::SPAN)),
        format!("pages of {} places and checksums", used::INDEXED),
        format!("some {} MiB at a time (`checkpoint_flight_bytes`)", c.checkpoint_flight_bytes >> 20),
        format!("1/64 of the device, {} MiB to {} GiB", removals(64 << 20) >> 20, removals(16 << 40) >> 30),
        format!("Whole blocks of writes of {} KiB and more", c.early_bytes >> 10),
        format!("limits the used part: {} MiB for each reactor", c.log_bytes_max >> 20),
        format!("each at least {} MiB", crate::engine::LOG_BYTES_MIN >> 20),
        format!("in bytes or in steps, or {} MiB;", c.checkpoint_log_bytes >> 20),
        format!("A bitmap can be extended {} times", crate::space::EXTENSIONS_MAX),
    ];
    for s in said {
        assert!(text.contains(&s), "the document does not say: {s}");
    }
    assert_eq!((c.replay_steps_max, page::PAGE_STEPS, c.commits_max), (4_000_000, 16, 2), "written as words");
    for (pool, seed) in [(0, 0), (3, 5), (12, 77)] {
        let cid = Cid::Pg(PgId::new(pool, seed).into());
        assert_eq!(
            u64::from(shard_for(cid, SHARDS)),
            (7 * pool as u64 + u64::from(seed)) % 32,
            "(7·pool + seed) mod 32"
        );
    }
}
