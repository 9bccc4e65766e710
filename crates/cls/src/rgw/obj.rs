//! Methods on the gateway's data objects: removal that keeps xattrs, checks of xattrs and times, and the parts of an
//! upload.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, omap_opt, omap_put, optional, stored};
use base::Utime;
use base::errno::{ECANCELED, EEXIST, EINVAL};
use bytes::Bytes;
use std::collections::BTreeSet;
use wire::codec::Result as Decoded;
use wire::{Reader, Writer};

/// Removes the object. With prefixes, an empty object with the xattrs that begin with one of them replaces it.
pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let keep: Vec<Bytes> = input(i, |r| r.versioned("rgw_cls_obj_remove_op", 1, |r, _| r.get()))?;
    let mut kept = Vec::new();
    if !keep.is_empty() {
        kept = optional(c.getxattrs())?.unwrap_or_default();
        kept.retain(|(name, _)| keep.iter().any(|p| name.starts_with(p)));
    }
    c.remove()?;
    if !kept.is_empty() {
        c.create(false)?;
        for (name, value) in kept {
            c.setxattr(&name, &value)?;
        }
    }
    Ok(Output::default())
}

/// Writes the PG's version into an xattr.
pub(super) fn store_pg_ver(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let attr = input(i, |r| r.versioned("rgw_cls_obj_store_pg_ver_op", 1, |r, _| r.blob()))?;
    let version = c.current_version();
    c.setxattr(&attr, &version.to_le_bytes()).map(Output::from)
}

pub(super) fn check_attrs_prefix(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (prefix, must_not) =
        input(i, |r| r.versioned("rgw_cls_obj_check_attrs_prefix", 1, |r, _| Ok((r.blob()?, r.bool()?))))?;
    if prefix.is_empty() {
        return fail(EINVAL);
    }
    let attrs = optional(c.getxattrs())?.unwrap_or_default();
    let any = attrs.iter().any(|(name, _)| name.starts_with(&prefix));
    if any == must_not { fail(ECANCELED) } else { Ok(Output::default()) }
}

pub(super) fn check_mtime(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (want, how, precise) = input(i, |r| {
        r.versioned("rgw_cls_obj_check_mtime", 2, |r, v| Ok((r.get::<Utime>()?, r.u8()?, v >= 2 && r.bool()?)))
    })?;
    let mtime = optional(c.stat())?.map_or(Utime::ZERO, |(_, t)| t);
    let cut = |t: Utime| if precise { t } else { Utime { nsec: 0, ..t } };
    let (mtime, want) = (cut(mtime), cut(want));
    let holds = match how {
        0 => mtime == want,
        1 => mtime < want,
        2 => mtime <= want,
        3 => mtime > want,
        4 => mtime >= want,
        _ => return fail(EINVAL),
    };
    if holds { Ok(Output::default()) } else { fail(ECANCELED) }
}

/// `RGWUploadPartInfo`: a part of an upload, with the prefixes of its objects. Fields that only gateways read stay
/// undecoded.
struct Part {
    num: u32,
    size: u64,
    etag: Bytes,
    modified: Utime,
    /// Encoded `RGWObjManifest`.
    manifest: Bytes,
    /// Encoded `RGWCompressionInfo`.
    compression: Bytes,
    accounted_size: u64,
    /// Prefixes of objects written by earlier uploads of this part, to be removed.
    past: BTreeSet<Bytes>,
    /// Encoded optional checksum.
    checksum: Bytes,
}

/// Takes an encoded structure from the input.
fn whole(r: &mut Reader<'_>) -> Decoded<Bytes> {
    let (version, compat, body) = (r.u8()?, r.u8()?, r.blob()?);
    let mut w = Writer::new(wire::Features::PACIFIC);
    w.u8(version);
    w.u8(compat);
    w.blob(&body);
    Ok(w.into_bytes())
}

/// `RGWCompressionInfo` of uncompressed data.
fn no_compression() -> Bytes {
    enc(|w| {
        w.versioned(2, 1, |w| {
            w.blob(b"none");
            w.u64(0);
            w.bool(false);
            w.u32(0);
        });
    })
}

impl Part {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("RGWUploadPartInfo", 6, |r, v| {
            let (num, size, etag, modified) = (r.u32()?, r.u64()?, r.blob()?, r.get()?);
            let manifest = if v >= 3 { whole(r)? } else { Bytes::new() };
            let (compression, accounted_size) = if v >= 4 { (whole(r)?, r.u64()?) } else { (no_compression(), size) };
            let past = if v >= 5 { r.get()? } else { BTreeSet::new() };
            let checksum = if v >= 6 && r.bool()? { whole(r)? } else { Bytes::new() };
            Ok(Self { num, size, etag, modified, manifest, compression, accounted_size, past, checksum })
        })
    }

    fn encode(&self, w: &mut Writer) {
        w.versioned(6, 2, |w| {
            w.u32(self.num);
            w.u64(self.size);
            w.blob(&self.etag);
            w.put(&self.modified);
            w.raw(&self.manifest);
            w.raw(&self.compression);
            w.u64(self.accounted_size);
            w.put(&self.past);
            w.bool(!self.checksum.is_empty());
            w.raw(&self.checksum);
        });
    }

    /// Whether the manifest names objects, and their prefix.
    fn objects(&self) -> Decoded<(bool, Bytes)> {
        if self.manifest.is_empty() {
            return Ok((false, Bytes::new()));
        }
        Reader::shared(&self.manifest).versioned("RGWObjManifest", 8, |r, v| {
            r.u64()?;
            let skip = |r: &mut Reader<'_>| {
                r.u64()?;
                r.versioned("part of a manifest", u8::MAX, |_, _| Ok(()))
            };
            let listed = r.vec_with("RGWObjManifestPart", skip)?.len();
            if v < 3 {
                return Ok((listed > 0, Bytes::new()));
            }
            let explicit = r.bool()?;
            r.versioned("rgw_obj", u8::MAX, |_, _| Ok(()))?;
            r.u64()?;
            r.u64()?;
            let prefix = r.blob()?;
            let rules = r.vec_with("RGWObjManifestRule", skip)?.len();
            Ok((if explicit { listed > 0 } else { rules > 0 }, prefix))
        })
    }
}

/// Writes the entry of a part and keeps the prefixes of its earlier objects in it.
pub(super) fn update_part(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, mut part) = input(i, |r| {
        r.versioned("cls_rgw_mp_upload_part_info_update_op", 1, |r, _| Ok((r.blob()?, Part::decode(r)?)))
    })?;
    let (_, prefix) = part.objects()?;
    if let Some(b) = omap_opt(c, &key)? {
        let (old, (any, past)) = stored(&b, |r| {
            let p = Part::decode(r)?;
            let o = p.objects()?;
            Ok((p, o))
        })?;
        if any {
            part.past.insert(past);
        }
        part.past.extend(old.past);
    }
    if part.past.contains(&prefix) {
        c.log("rgw.mp_upload_part_info_update: the prefix was used for this part before");
        return fail(EEXIST);
    }
    omap_put(c, key, enc(|w| part.encode(w))).map(Output::from)
}
