//! Objects as files: put, get, list, remove.

use super::Error;
use super::table::Progress;
use super::views::Form;
use bytes::Bytes;
use client::{Client, ObjectRef};
use std::io::{Read as _, Write as _};
use std::path::Path;
use wire::msg::{OpCode, OsdOp};

/// Bytes per operation: well below the limit of a message, large enough for streaming.
const CHUNK: usize = 4 << 20;
/// Names per listing request.
const LIST_MAX: u64 = 1000;

/// The largest length up to `most` after which another append is possible.
pub(super) fn aligned(most: u64, alignment: Option<u64>) -> u64 {
    alignment.map_or(most, |a| (most - most % a).max(a))
}

fn errno(what: &str, r: i32) -> Error {
    match r {
        base::errno::ENOENT => format!("{what}: no such object").into(),
        _ => format!("{what}: {} ({r})", base::errno::name(r)).into(),
    }
}

pub(super) async fn put(c: &Client, pool: &str, object: &str, file: &Path) -> Result<(), Error> {
    let pool = c.pool(pool).await?;
    let obj = ObjectRef::new(pool, object);
    let (mut src, total): (Box<dyn std::io::Read>, Option<u64>) = if file.as_os_str() == "-" {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let f = std::fs::File::open(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let total = f.metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
        (Box::new(f), total)
    };
    let mut progress = Progress::new(format!("put {object}"), total);
    let chunk = aligned(CHUNK as u64, c.required_alignment(pool).await?);
    let mut off = 0u64;
    loop {
        let mut buf = Vec::with_capacity(CHUNK);
        src.by_ref().take(chunk).read_to_end(&mut buf)?;
        let (n, last) = (buf.len(), (buf.len() as u64) < chunk);
        // The first write replaces the object; a short read is the end of the file.
        let op = if off == 0 {
            OsdOp::with_extent(OpCode::WRITEFULL, 0, n as u64, buf.into())
        } else {
            OsdOp::with_extent(OpCode::WRITE, off, n as u64, buf.into())
        };
        if n > 0 || off == 0 {
            let r = c.op(&obj, vec![op]).await?;
            if r.result < 0 {
                return Err(errno(object, r.result));
            }
        }
        off += n as u64;
        progress.add(n as u64);
        if last {
            return Ok(());
        }
    }
}

pub(super) async fn get(c: &Client, pool: &str, object: &str, file: &Path) -> Result<(), Error> {
    let pool = c.pool(pool).await?;
    let obj = ObjectRef::new(pool, object);
    let read = |off: u64| OsdOp::with_extent(OpCode::READ, off, CHUNK as u64, Bytes::new());
    // Read before the file is made, so that an absent object leaves no empty file.
    let mut r = c.op(&obj, vec![read(0)]).await?;
    if r.result < 0 {
        return Err(errno(object, r.result));
    }
    let mut dst: Box<dyn std::io::Write> = if file.as_os_str() == "-" {
        Box::new(std::io::stdout().lock())
    } else {
        Box::new(std::fs::File::create(file).map_err(|e| format!("{}: {e}", file.display()))?)
    };
    let stat = c.op(&obj, vec![OsdOp::new(OpCode::STAT)]).await?;
    let size = stat.ops.first().and_then(|o| Some(u64::from_le_bytes(o.outdata.get(..8)?.try_into().ok()?)));
    let mut progress = Progress::new(format!("get {object}"), size);
    let mut off = 0u64;
    loop {
        let data = r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default();
        dst.write_all(&data)?;
        off += data.len() as u64;
        progress.add(data.len() as u64);
        if data.len() < CHUNK {
            dst.flush()?;
            return Ok(());
        }
        r = c.op(&obj, vec![read(off)]).await?;
        if r.result < 0 {
            return Err(errno(object, r.result));
        }
    }
}

pub(super) async fn ls(c: &Client, pool: &str, form: &Form) -> Result<(), Error> {
    let pool = c.pool(pool).await?;
    let mut out = std::io::stdout().lock();
    // A list that may be long is written while it is read.
    let (mut between, plain) = ("[", form.is_plain());
    let mut cursor = base::HObject { pool, ..base::HObject::min() };
    loop {
        let (entries, next) = c.list(pool, &cursor, LIST_MAX).await?;
        for e in entries {
            if plain {
                out.write_all(&e.oid)?;
                out.write_all(b"\n")?;
            } else {
                write!(out, "{between}{}", serde_json::to_string(&String::from_utf8_lossy(&e.oid))?)?;
                between = ",";
            }
        }
        match next {
            Some(n) => cursor = n,
            None if plain => return Ok(()),
            None => return Ok(writeln!(out, "{}]", if between == "[" { "[" } else { "" })?),
        }
    }
}

pub(super) async fn rm(c: &Client, pool: &str, objects: &[String]) -> Result<(), Error> {
    let pool = c.pool(pool).await?;
    for o in objects {
        let r = c.op(&ObjectRef::new(pool, o), vec![OsdOp::new(OpCode::DELETE)]).await?;
        if r.result < 0 {
            return Err(errno(o, r.result));
        }
    }
    Ok(())
}
