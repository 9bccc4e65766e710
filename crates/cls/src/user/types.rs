//! Encodings of class `user`: `cls_user_types.h`.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::util::stored;
use base::Utime;
use bytes::Bytes;
use wire::codec::Result as Decoded;
use wire::{Reader, Writer};

/// `cls_user_bucket`: the stored part of `rgw_bucket`.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    pub(super) name: Bytes,
    marker: Bytes,
    pub(super) id: Bytes,
    placement: Bytes,
    data_pool: Bytes,
    index_pool: Bytes,
    extra_pool: Bytes,
}

impl Bucket {
    /// Buckets with explicit pools are encoded in the old format, which old gateways can decode.
    pub(super) fn encode(&self, w: &mut Writer) {
        if self.placement.is_empty() {
            w.versioned(7, 3, |w| {
                w.blob(&self.name);
                w.blob(&self.data_pool);
                w.blob(&self.marker);
                w.blob(&self.id);
                w.blob(&self.index_pool);
                w.blob(&self.extra_pool);
            });
        } else {
            w.versioned(9, 8, |w| {
                w.blob(&self.name);
                w.blob(&self.marker);
                w.blob(&self.id);
                w.blob(&self.placement);
            });
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_user_bucket", 8, |r, v| {
            let mut b = Self { name: r.blob()?, ..Self::default() };
            if v < 8 {
                b.data_pool = r.blob()?;
            }
            if v >= 2 {
                b.marker = r.blob()?;
                b.id = if v <= 3 { r.u64()?.to_string().into() } else { r.blob()? };
            }
            if v < 8 {
                b.index_pool = if v >= 5 { r.blob()? } else { b.data_pool.clone() };
                if v >= 7 {
                    b.extra_pool = r.blob()?;
                }
            } else {
                b.placement = r.blob()?;
                if v == 8 && b.placement.is_empty() {
                    b.data_pool = r.blob()?;
                    b.index_pool = r.blob()?;
                    b.extra_pool = r.blob()?;
                }
            }
            Ok(b)
        })
    }
}

/// `cls_user_bucket_entry`.
#[derive(Clone, Debug, Default)]
pub(super) struct BucketEntry {
    pub(super) bucket: Bucket,
    pub(super) size: u64,
    pub(super) size_rounded: u64,
    pub(super) created: Utime,
    pub(super) count: u64,
    /// Whether the bucket is included in the header's statistics (`user_stats_sync`).
    pub(super) counted: bool,
}

impl BucketEntry {
    pub(super) fn encode(&self, w: &mut Writer) {
        w.versioned(9, 5, |w| {
            w.blob(b"");
            w.u64(self.size);
            w.u32(self.created.sec);
            w.u64(self.count);
            self.bucket.encode(w);
            w.u64(self.size_rounded);
            w.bool(self.counted);
            w.put(&self.created);
        });
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_user_bucket_entry", 9, |r, v| {
            r.blob()?;
            let size = r.u64()?;
            let mut e = Self { size, size_rounded: size, created: Utime { sec: r.u32()?, nsec: 0 }, ..Self::default() };
            if v >= 2 {
                e.count = r.u64()?;
            }
            if v >= 3 {
                e.bucket = Bucket::decode(r)?;
            }
            if v >= 4 {
                e.size_rounded = r.u64()?;
            }
            if v >= 6 {
                e.counted = r.bool()?;
            }
            if v >= 7 {
                e.created = r.get()?;
            }
            Ok(e)
        })
    }
}

/// `cls_user_stats`: sums over buckets. A gateway may report a decrease before the increase, so sums may wrap
/// temporarily.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stats {
    entries: u64,
    bytes: u64,
    bytes_rounded: u64,
}

impl Stats {
    pub(super) fn add(&mut self, e: &BucketEntry) {
        self.entries = self.entries.wrapping_add(e.count);
        self.bytes = self.bytes.wrapping_add(e.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_add(e.size_rounded);
    }

    pub(super) fn sub(&mut self, e: &BucketEntry) {
        self.entries = self.entries.wrapping_sub(e.count);
        self.bytes = self.bytes.wrapping_sub(e.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_sub(e.size_rounded);
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u64(self.entries);
            w.u64(self.bytes);
            w.u64(self.bytes_rounded);
        });
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_user_stats", 1, |r, _| {
            Ok(Self { entries: r.u64()?, bytes: r.u64()?, bytes_rounded: r.u64()? })
        })
    }
}

/// `cls_user_header`.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) stats: Stats,
    pub(super) last_sync: Utime,
    pub(super) last_update: Utime,
}

impl Header {
    pub(super) fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        let b = c.omap_header()?;
        if b.is_empty() {
            return Ok(Self::default());
        }
        stored(&b, |r| {
            r.versioned("cls_user_header", 1, |r, _| {
                Ok(Self { stats: Stats::decode(r)?, last_sync: r.get()?, last_update: r.get()? })
            })
        })
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            self.stats.encode(w);
            w.put(&self.last_sync);
            w.put(&self.last_update);
        });
    }
}
