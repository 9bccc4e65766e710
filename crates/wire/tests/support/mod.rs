//! Reads the golden vectors: captured connections in crc mode, split into frames, and their messages.
#![allow(dead_code)] // Each test binary uses its part.

use bytes::Bytes;
use std::io::Read;
use std::path::{Path, PathBuf};
use wire::{Message, MsgHeader};

/// The folder of golden vectors.
pub(crate) fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// A file's bytes, unpacked if its name ends in `.gz`.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    let raw = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_some_and(|e| e == "gz") {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(raw.as_slice()).read_to_end(&mut out).expect("gzip");
        out
    } else {
        raw
    }
}

/// One frame of a captured stream.
pub(crate) struct Frame {
    pub(crate) offset: usize,
    pub(crate) tag: u8,
    pub(crate) segments: Vec<Bytes>,
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
}
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(b[at..at + 2].try_into().unwrap())
}

/// Splits one direction of a connection into its complete frames, checking every crc.
pub(crate) fn frames(stream: &[u8]) -> Vec<Frame> {
    assert_eq!(&stream[..8], b"ceph v2\n");
    let all = Bytes::copy_from_slice(stream);
    let mut at = 10 + usize::from(u16_at(stream, 8));
    let mut out = Vec::new();
    while at + 32 <= stream.len() {
        let pre = &stream[at..at + 32];
        assert_eq!(base::crc::crc32c(0, &pre[..28]), u32_at(pre, 28), "preamble at {at}");
        let n = usize::from(pre[1]);
        let lens: Vec<usize> = (0..4).map(|i| u32_at(pre, 2 + 6 * i) as usize).collect();
        let need =
            lens[0] + if lens[0] > 0 { 4 } else { 0 } + lens[1..].iter().sum::<usize>() + if n > 1 { 13 } else { 0 };
        let mut q = at + 32;
        if q + need > stream.len() {
            break;
        }
        let mut segments = vec![all.slice(q..q + lens[0])];
        q += lens[0];
        if lens[0] > 0 {
            assert_eq!(base::crc::crc32c(!0, &segments[0]), u32_at(stream, q), "segment 0 at {at}");
            q += 4;
        }
        for len in &lens[1..] {
            segments.push(all.slice(q..q + len));
            q += len;
        }
        if n > 1 {
            for (i, s) in segments.iter().enumerate().skip(1) {
                let expect = if i < n { base::crc::crc32c(!0, s) } else { 0 };
                assert_eq!(expect, u32_at(stream, q + 1 + 4 * (i - 1)), "segment {i} at {at}");
            }
            q += 13;
        }
        out.push(Frame { offset: at, tag: pre[0], segments });
        at = q;
    }
    out
}

const TAG_MESSAGE: u8 = 17;

/// The message in a frame, if it has one.
pub(crate) fn message(f: &Frame) -> Option<Message> {
    if f.tag != TAG_MESSAGE {
        return None;
    }
    let h = &f.segments[0];
    assert_eq!(h.len(), 41);
    let u64_at = |at: usize| u64::from_le_bytes(h[at..at + 8].try_into().unwrap());
    Some(Message {
        header: MsgHeader {
            seq: u64_at(0),
            tid: u64_at(8),
            kind: u16_at(h, 16),
            priority: u16_at(h, 18),
            version: u16_at(h, 20),
            data_off: u16_at(h, 26),
            compat: u16_at(h, 37),
        },
        front: f.segments[1].clone(),
        middle: f.segments[2].clone(),
        data: f.segments[3].clone(),
        ..Message::default()
    })
}

/// All captured streams in crc mode: name and frames.
pub(crate) fn captures() -> Vec<(String, Vec<Frame>)> {
    let mut out = Vec::new();
    for (dir, crc_only) in [("daemons", ""), ("msgr2", "crc"), ("client", "")] {
        let mut names: Vec<PathBuf> =
            std::fs::read_dir(vectors().join(dir)).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        for p in names {
            let name = p.file_name().unwrap().to_str().unwrap().to_owned();
            if (name.ends_with(".bin") || name.ends_with(".bin.gz")) && name.contains(crc_only) {
                out.push((name, frames(&read(&p))));
            }
        }
    }
    assert!(out.len() > 100, "vectors are missing");
    out
}

/// All messages of all captures.
pub(crate) fn messages() -> Vec<(String, Message)> {
    captures()
        .iter()
        .flat_map(|(name, fs)| fs.iter().filter_map(move |f| message(f).map(|m| (format!("{name}@{}", f.offset), m))))
        .collect()
}
