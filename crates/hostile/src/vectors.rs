//! Golden vectors as material for seeds: captured streams, their frames and messages.

use bytes::Bytes;
use std::io::Read;
use std::path::{Path, PathBuf};
use wire::{Message, MsgHeader};

/// The folder of golden vectors.
#[must_use]
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// A file's bytes, unpacked if its name ends in `.gz`.
///
/// # Panics
/// If the file does not exist: vectors are part of the repository.
#[must_use]
pub fn read(path: &Path) -> Vec<u8> {
    let raw = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_some_and(|e| e == "gz") {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(raw.as_slice()).read_to_end(&mut out).expect("gzip");
        out
    } else {
        raw
    }
}

/// Contents of the files of a subfolder whose names pass, in order of name.
#[must_use]
pub fn files(sub: &str, pass: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir().join(sub))
        .map(|d| d.filter_map(|e| e.ok().map(|e| e.path())).collect())
        .unwrap_or_default();
    paths.sort();
    paths.iter().filter(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(&pass)).map(|p| read(p)).collect()
}

/// Captured byte streams in crc mode, one per connection and direction.
#[must_use]
pub fn streams() -> Vec<Vec<u8>> {
    let mut all = files("daemons", |n| n.ends_with(".bin.gz"));
    all.extend(files("client", |n| n.ends_with(".bin.gz")));
    all.extend(files("msgr2", |n| n.ends_with(".bin") && n.contains("crc")));
    all
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}
fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}
fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    b.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Splits off the frame at `*at`: its tag and four segments. The golden tests check crcs.
fn frame(all: &Bytes, at: &mut usize) -> Option<(u8, [Bytes; 4])> {
    let pre = all.get(*at..*at + 32)?;
    let several = *pre.get(1)? > 1;
    let mut q = *at + 32;
    let mut segments: [Bytes; 4] = Default::default();
    for (i, s) in segments.iter_mut().enumerate() {
        let n = u32_at(pre, 2 + 6 * i)? as usize;
        if q + n > all.len() {
            return None;
        }
        *s = all.slice(q..q + n);
        q += n;
        if i == 0 && n > 0 {
            q += 4;
        }
    }
    if several {
        q += 13;
    }
    *at = q;
    Some((*pre.first()?, segments))
}

/// Messages of one stream.
#[must_use]
pub fn messages(stream: &[u8]) -> Vec<Message> {
    let all = Bytes::copy_from_slice(stream);
    let mut at = 10 + usize::from(u16_at(stream, 8).unwrap_or(0));
    let mut out = Vec::new();
    while let Some((tag, [h, front, middle, data])) = frame(&all, &mut at) {
        let parse = || {
            Some(MsgHeader {
                seq: u64_at(&h, 0)?,
                tid: u64_at(&h, 8)?,
                kind: u16_at(&h, 16)?,
                priority: u16_at(&h, 18)?,
                version: u16_at(&h, 20)?,
                data_off: u16_at(&h, 26)?,
                compat: u16_at(&h, 37)?,
            })
        };
        if tag == 17
            && let Some(header) = parse()
        {
            out.push(Message { header, front, middle, data, ..Message::default() });
        }
    }
    out
}

/// Messages of all streams.
#[must_use]
pub fn all_messages() -> Vec<Message> {
    streams().iter().flat_map(|s| messages(s)).collect()
}
