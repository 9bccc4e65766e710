//! Places: the bucket, pool or directory on which a worker operates. Each worker has its own place.

use super::s3::{self, Call, Conn};
use super::{Done, StepError, Steps, To};
use crate::load::content;
use crate::load::ops;
use crate::load::steps::Kind;
use base::PoolId;
use bytes::Bytes;
use client::{Client, ObjectRef};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;
use wire::msg::{OpCode, OsdOp};

/// Names in a page of a listing.
const PAGE: usize = 1000;

/// The object or file of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Item {
    pub(super) number: u64,
    /// Bytes of its contents.
    pub(super) size: u64,
    /// New number of a file that gets another name.
    pub(super) other: u64,
}

pub(super) enum Place {
    Bucket { conn: Box<Conn>, bucket: String, prefix: String },
    Pool { client: Client, pool: PoolId, prefix: String },
    Files { dir: PathBuf },
}

/// Contents of an object: they follow from seed and number.
fn contents(seed: u64, i: Item) -> Vec<u8> {
    let mut out = vec![0; i.size as usize];
    content::fill(&mut out, seed, i.number, 0);
    out
}

fn errno(r: i32) -> StepError {
    StepError(base::errno::name(r).to_owned())
}

fn io(e: std::io::Error) -> StepError {
    StepError(e.to_string())
}

impl Place {
    /// The place of a worker; `index` is that of its client.
    pub(super) async fn open(spec: &Steps, to: &To, index: usize) -> Result<Self, StepError> {
        Ok(match to {
            To::S3 { endpoint, bucket, keys } => {
                let host = s3::host(endpoint).ok_or_else(|| StepError(format!("{endpoint}: not an HTTP endpoint")))?;
                let conn = Box::new(Conn::new(&host, keys.clone()));
                Self::Bucket { conn, bucket: bucket.clone(), prefix: spec.prefix.clone() }
            }
            To::Pool { options, pool } => {
                let client = Client::connect(options.clone()).await.map_err(|e| StepError(e.to_string()))?;
                let pool = client.pool(pool).await.map_err(|e| StepError(e.to_string()))?;
                Self::Pool { client, pool, prefix: spec.prefix.clone() }
            }
            To::Files { dir } => {
                let dir = dir.join(&spec.prefix).join(format!("c{index}"));
                std::fs::create_dir_all(&dir).map_err(|e| StepError(format!("{}: {e}", dir.display())))?;
                Self::Files { dir }
            }
        })
    }

    /// A place for another worker of the same client.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Bucket { conn, bucket, prefix } => {
                Self::Bucket { conn: Box::new(conn.again()), bucket: bucket.clone(), prefix: prefix.clone() }
            }
            Self::Pool { client, pool, prefix } => {
                Self::Pool { client: client.clone(), pool: *pool, prefix: prefix.clone() }
            }
            Self::Files { dir } => Self::Files { dir: dir.clone() },
        }
    }

    /// Makes the bucket if it does not exist, and returns whether it made one.
    pub(super) async fn prepare(&mut self) -> Result<bool, StepError> {
        if let Self::Bucket { conn, bucket, .. } = self {
            let path = format!("/{bucket}");
            let (there, _) = conn.call(&Call { method: "HEAD", path: &path, query: "", body: &[], keep: 0 }).await?;
            if (200..300).contains(&there.status) {
                return Ok(false);
            }
            let (r, _) = conn.call(&Call { method: "PUT", path: &path, query: "", body: &[], keep: 0 }).await?;
            if !(200..300).contains(&r.status) && r.status != 409 {
                return Err(s3::refusal(&r));
            }
        }
        Ok(true)
    }

    /// Removes the directory that [`Place::open`] made and, if `made` says that the load made it, the bucket; each only if
    /// it is empty.
    pub(super) async fn remove(&mut self, made: bool) {
        match self {
            Self::Bucket { .. } if !made => {}
            Self::Bucket { conn, bucket, .. } => {
                let path = format!("/{bucket}");
                // A bucket with the objects of another load stays.
                let _ = conn.call(&Call { method: "DELETE", path: &path, query: "", body: &[], keep: 0 }).await;
            }
            Self::Files { dir } => {
                // Another client's directory may still be there; the last one removes the parent.
                let _ = std::fs::remove_dir(&*dir);
                let _ = dir.parent().map(std::fs::remove_dir);
            }
            Self::Pool { .. } => {}
        }
    }

    /// Carries out one operation.
    pub(super) async fn step(&mut self, spec: &Steps, kind: Kind, i: Item) -> Result<Done, StepError> {
        match self {
            Self::Bucket { conn, bucket, prefix } => bucket_step(conn, bucket, prefix, spec, kind, i).await,
            Self::Pool { client, pool, prefix } => {
                let obj = ObjectRef::new(*pool, &format!("{prefix}.{}", i.number));
                pool_step(client, &obj, spec, kind, i).await
            }
            Self::Files { dir } => file_step(dir, spec, kind, i),
        }
    }
}

/// Checks the contents of an object that was read.
fn judge(spec: &Steps, i: Item, have: u64, data: &[u8]) -> Result<(), StepError> {
    if have != i.size {
        return Err(StepError(format!("{have} bytes instead of {}", i.size)));
    }
    if spec.verify && i.size >= content::BLOCK_MIN {
        content::check(data, i.size as usize, spec.seed, i.number).map_err(|e| StepError(e.to_string()))?;
    }
    Ok(())
}

async fn bucket_step(
    conn: &mut Conn,
    bucket: &str,
    prefix: &str,
    spec: &Steps,
    kind: Kind,
    i: Item,
) -> Result<Done, StepError> {
    let (object, all) = (format!("/{bucket}/{prefix}/{:010}", i.number), format!("/{bucket}"));
    let body = if kind == Kind::Put { contents(spec.seed, i) } else { Vec::new() };
    let page = format!("list-type=2&max-keys={PAGE}&prefix={prefix}%2F&start-after={prefix}%2F{:010}", i.number);
    let keep = match kind {
        Kind::Get if spec.verify => i.size as usize,
        Kind::List => s3::PAGE_MAX,
        _ => 0,
    };
    let (method, path, query) = match kind {
        Kind::Put => ("PUT", &object, ""),
        Kind::Get => ("GET", &object, ""),
        Kind::Head => ("HEAD", &object, ""),
        Kind::Delete => ("DELETE", &object, ""),
        Kind::List => ("GET", &all, page.as_str()),
        _ => return Err(StepError(format!("a bucket has no {}", kind.name()))),
    };
    let (r, mut done) = conn.call(&Call { method, path, query, body: &body, keep }).await?;
    if !(200..300).contains(&r.status) {
        return Err(s3::refusal(&r));
    }
    match kind {
        Kind::Get => judge(spec, i, r.length, &r.body)?,
        Kind::Put => done.bytes = i.size,
        _ => done.bytes = 0,
    }
    Ok(done)
}

async fn pool_step(c: &Client, obj: &ObjectRef, spec: &Steps, kind: Kind, i: Item) -> Result<Done, StepError> {
    let op = match kind {
        Kind::Put => ops::refill(0, contents(spec.seed, i).into()),
        Kind::Get => ops::read(0, i.size.max(1)),
        Kind::Head => OsdOp::with_extent(OpCode::STAT, 0, 0, Bytes::new()),
        Kind::Delete => OsdOp::new(OpCode::DELETE),
        _ => return Err(StepError(format!("an object has no {}", kind.name()))),
    };
    let r = c.op(obj, vec![op]).await.map_err(|e| StepError(e.to_string()))?;
    // A reply of an OSD arrives as a whole.
    let first = Some(Instant::now());
    if r.result < 0 {
        return Err(errno(r.result));
    }
    let bytes = match kind {
        Kind::Get => {
            let data = r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default();
            judge(spec, i, data.len() as u64, &data)?;
            i.size
        }
        Kind::Put => i.size,
        _ => 0,
    };
    Ok(Done { first, bytes })
}

fn file_step(dir: &std::path::Path, spec: &Steps, kind: Kind, i: Item) -> Result<Done, StepError> {
    let path = dir.join(format!("f{}", i.number));
    let mut bytes = 0;
    match kind {
        Kind::Create => {
            let mut f = std::fs::OpenOptions::new().write(true).create_new(true).open(&path).map_err(io)?;
            f.write_all(&contents(spec.seed, i)).map_err(io)?;
            bytes = i.size;
        }
        Kind::Stat => {
            let have = std::fs::metadata(&path).map_err(io)?.len();
            judge(&Steps { verify: false, ..spec.clone() }, i, have, &[])?;
        }
        Kind::Rename => std::fs::rename(&path, dir.join(format!("f{}", i.other))).map_err(io)?,
        Kind::Unlink => std::fs::remove_file(&path).map_err(io)?,
        Kind::Readdir => {
            for e in std::fs::read_dir(dir).map_err(io)? {
                e.map_err(io)?;
            }
        }
        _ => return Err(StepError(format!("a directory has no {}", kind.name()))),
    }
    Ok(Done { first: None, bytes })
}
