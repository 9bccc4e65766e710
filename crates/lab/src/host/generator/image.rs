//! Data objects of an RBD image, found as librbd does: by the image id, then the header object.

use super::GeneratorError;
use base::{PoolId, SnapId};
use bytes::Bytes;
use client::{Client, ObjectRef};
use wire::msg::{OpCode, OsdOp};
use wire::types::SnapContext;
use wire::{Features, Reader, Writer};

/// Snapshot id of the head.
const HEAD: u64 = u64::MAX - 1;
/// Largest id and prefix in bytes that are accepted.
const NAME_MAX: u64 = 4096;
/// Image features that neither move data nor need a cooperating writer: layering, deep-flatten, data-pool.
const PLAIN: u64 = 1 | 32 | 128;

/// Layout of an image.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) data_pool: PoolId,
    pub(super) prefix: String,
    pub(super) objects: u64,
    pub(super) object_size: u64,
    pub(super) snaps: SnapContext,
}

fn input(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    f(&mut w);
    w.into_bytes()
}

async fn ask(c: &Client, obj: &ObjectRef, what: &'static str, op: OsdOp) -> Result<Bytes, GeneratorError> {
    let r = c.op(obj, vec![op]).await?;
    if r.result < 0 {
        return Err(GeneratorError::Image { what, errno: base::errno::name(r.result).to_owned() });
    }
    Ok(r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default())
}

/// Opens an image of a pool.
pub(super) async fn open(c: &Client, pool: PoolId, name: &str) -> Result<Image, GeneratorError> {
    let id = OsdOp::with_extent(OpCode::READ, 0, NAME_MAX, Bytes::new());
    let id = ask(c, &ObjectRef::new(pool, &format!("rbd_id.{name}")), "its id", id).await?;
    let id: Bytes = Reader::shared(&id).blob().map_err(client::ClientError::from)?;
    let header = ObjectRef::new(pool, &format!("rbd_header.{}", String::from_utf8_lossy(&id)));
    let call = async |what, input: Bytes| ask(c, &header, what, OsdOp::call("rbd", what, &input)).await;
    let decode = client::ClientError::from;

    let size = call("get_size", input(|w| w.u64(HEAD))).await?;
    let mut r = Reader::shared(&size);
    let (order, bytes) = (r.u8().map_err(decode)?, r.u64().map_err(decode)?);
    let features = call("get_features", input(|w| w.u64(HEAD))).await?;
    let features = Reader::shared(&features).u64().map_err(decode)?;
    if features & !PLAIN != 0 {
        return Err(GeneratorError::ImageFeatures(features & !PLAIN));
    }
    let prefix = call("get_object_prefix", Bytes::new()).await?;
    let prefix = Reader::shared(&prefix).blob().map_err(decode)?;
    let data_pool = match features & 128 {
        0 => pool,
        _ => {
            let p = call("get_data_pool", Bytes::new()).await?;
            PoolId(Reader::shared(&p).i64().map_err(decode)?)
        }
    };
    let snaps = call("get_snapcontext", Bytes::new()).await?;
    let mut r = Reader::shared(&snaps);
    let seq = SnapId(r.u64().map_err(decode)?);
    let snaps = r.vec_with("snaps", |r| Ok(SnapId(r.u64()?))).map_err(decode)?;
    let object_size = 1u64.checked_shl(u32::from(order)).filter(|n| (1 << 12..=1 << 25).contains(n));
    let object_size = object_size.ok_or(GeneratorError::ImageFeatures(0))?;
    Ok(Image {
        data_pool,
        prefix: String::from_utf8_lossy(&prefix).into_owned(),
        objects: bytes / object_size,
        object_size,
        snaps: SnapContext { seq, snaps },
    })
}
