//! The stored and sent form of a pool.
//!
//! Written as version 29 for userspace peers, as 26 or 27 for older ones. Versions up to 32 (Tentacle) are read.

use super::{PgPool, PoolOpt, PoolStretch, autoscale, flag};
use base::Epoch;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};

fn put_opts(w: &mut Writer, opts: &BTreeMap<i32, PoolOpt>) {
    let wide = w.features().nautilus();
    w.versioned(if wide { 2 } else { 1 }, 1, |w| {
        w.seq(opts.iter(), |w, (k, v)| {
            w.i32(*k);
            match v {
                PoolOpt::Str(s) => {
                    w.i32(0);
                    w.string(s);
                }
                PoolOpt::Int(i) => {
                    w.i32(1);
                    if wide {
                        w.i64(*i);
                    } else {
                        w.i32((*i).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32);
                    }
                }
                PoolOpt::Float(f) => {
                    w.i32(2);
                    w.f64(*f);
                }
            }
        });
    });
}

fn get_opts(r: &mut Reader<'_>) -> Result<BTreeMap<i32, PoolOpt>> {
    r.versioned("pool_opts_t", 2, |r, v| {
        let n = r.count(8, "pool_opts_t")?;
        let mut m = BTreeMap::new();
        for _ in 0..n {
            let key = r.i32()?;
            let val = match r.i32()? {
                0 => PoolOpt::Str(r.string()?),
                1 if v >= 2 => PoolOpt::Int(r.i64()?),
                1 => PoolOpt::Int(r.i32()?.into()),
                2 => PoolOpt::Float(r.f64()?),
                t => return Err(DecodeError::BadValue { what: "pool option type", value: t as u64 }),
            };
            m.insert(key, val);
        }
        Ok(m)
    })
}

impl Encode for PgPool {
    fn encode(&self, w: &mut Writer) {
        let f = w.features();
        let v = match self.stretch {
            _ if !f.luminous() => 24,
            _ if !f.mimic() => 26,
            _ if !f.nautilus() => 27,
            None => 29,
            Some(_) => 30,
        };
        w.versioned(v, 5, |w| {
            w.u8(self.kind);
            w.u8(self.size);
            w.u8(self.crush_rule);
            w.u8(self.object_hash);
            w.u32(self.pg_num);
            w.u32(self.pgp_num);
            w.u64(0); // lpg_num, lpgp_num
            w.put(&self.last_change);
            w.put(&self.snap_seq);
            w.put(&self.snap_epoch);
            w.put(&self.snaps);
            w.put(&self.removed_snaps);
            w.u64(self.auid);
            let flags = if v < 27 {
                // Before Mimic these flags were implied by the snapshots.
                self.flags & !(flag::SELFMANAGED_SNAPS | flag::POOL_SNAPS | flag::CREATING)
            } else {
                self.flags
            };
            w.u64(flags);
            w.u32(0); // crash_replay_interval
            w.u8(self.min_size);
            w.u64(self.quota_max_bytes);
            w.u64(self.quota_max_objects);
            w.put(&self.tiers);
            w.i64(self.tier_of);
            w.u8(self.cache_mode);
            w.i64(self.read_tier);
            w.i64(self.write_tier);
            w.put(&self.properties);
            w.versioned(1, 1, |w| w.raw(&self.hit_set_params));
            w.u32(self.hit_set_period);
            w.u32(self.hit_set_count);
            w.u32(self.stripe_width);
            w.u64(self.target_max_bytes);
            w.u64(self.target_max_objects);
            w.u32(self.cache_target_dirty_ratio_micro);
            w.u32(self.cache_target_full_ratio_micro);
            w.u32(self.cache_min_flush_age);
            w.u32(self.cache_min_evict_age);
            w.string(&self.erasure_code_profile);
            w.put(&self.last_force_op_resend_preluminous);
            w.i32(self.min_read_recency_for_promote);
            w.u64(self.expected_num_objects);
            w.u32(self.cache_target_dirty_high_ratio_micro);
            w.i32(self.min_write_recency_for_promote);
            w.bool(self.use_gmt_hitset);
            w.bool(self.fast_read);
            w.i32(self.hit_set_grade_decay_rate);
            w.i32(self.hit_set_search_last_n);
            put_opts(w, &self.opts);
            if v >= 25 {
                w.put(&self.last_force_op_resend_prenautilus);
            }
            if v >= 26 {
                w.put(&self.application_metadata);
            }
            if v >= 27 {
                w.put(&self.create_time);
            }
            if v >= 28 {
                w.u32(self.pg_num_target);
                w.u32(self.pgp_num_target);
                w.u32(self.pg_num_pending);
                w.put(&Epoch(0)); // pg_num_dec_last_epoch_started
                w.put(&Epoch(0)); // pg_num_dec_last_epoch_clean
                w.put(&self.last_force_op_resend);
                w.u8(self.pg_autoscale_mode);
            }
            if v >= 29 {
                w.put(&self.last_pg_merge_meta);
            }
            if v >= 30 {
                let s = self.stretch.unwrap_or_default();
                w.u32(s.bucket_count);
                w.u32(s.bucket_target);
                w.u32(s.bucket_barrier);
                w.i32(s.mandatory_member);
            }
        });
    }
}

impl Decode for PgPool {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("pg_pool_t", 32, |r, v| {
            if v < 21 {
                return Err(DecodeError::BadValue { what: "pg_pool_t version", value: v.into() });
            }
            let mut p = Self {
                kind: r.u8()?,
                size: r.u8()?,
                crush_rule: r.u8()?,
                object_hash: r.u8()?,
                pg_num: r.u32()?,
                pgp_num: r.u32()?,
                ..Self::default()
            };
            r.u64()?;
            p.last_change = r.get()?;
            p.snap_seq = r.get()?;
            p.snap_epoch = r.get()?;
            p.snaps = r.get()?;
            p.removed_snaps = r.get()?;
            p.auid = r.u64()?;
            p.flags = r.u64()?;
            r.u32()?;
            p.min_size = r.u8()?;
            p.quota_max_bytes = r.u64()?;
            p.quota_max_objects = r.u64()?;
            p.tiers = r.get()?;
            p.tier_of = r.i64()?;
            p.cache_mode = r.u8()?;
            p.read_tier = r.i64()?;
            p.write_tier = r.i64()?;
            p.properties = r.get()?;
            // Copied, because a slice would keep the buffer of the whole map alive.
            p.hit_set_params = r.versioned("HitSet::Params", 1, |r, _| Ok(Bytes::copy_from_slice(&r.rest())))?;
            p.hit_set_period = r.u32()?;
            p.hit_set_count = r.u32()?;
            p.stripe_width = r.u32()?;
            p.target_max_bytes = r.u64()?;
            p.target_max_objects = r.u64()?;
            p.cache_target_dirty_ratio_micro = r.u32()?;
            p.cache_target_full_ratio_micro = r.u32()?;
            p.cache_min_flush_age = r.u32()?;
            p.cache_min_evict_age = r.u32()?;
            p.erasure_code_profile = r.string()?;
            p.last_force_op_resend_preluminous = r.get()?;
            p.min_read_recency_for_promote = r.i32()?;
            p.expected_num_objects = r.u64()?;
            p.cache_target_dirty_high_ratio_micro = r.u32()?;
            p.min_write_recency_for_promote = r.i32()?;
            p.use_gmt_hitset = r.bool()?;
            if v >= 22 {
                p.fast_read = r.bool()?;
            }
            if v >= 23 {
                p.hit_set_grade_decay_rate = r.i32()?;
                p.hit_set_search_last_n = r.i32()?;
            }
            if v >= 24 {
                p.opts = get_opts(r)?;
            }
            p.last_force_op_resend_prenautilus = if v >= 25 { r.get()? } else { p.last_force_op_resend_preluminous };
            if v >= 26 {
                p.application_metadata = r.get()?;
            }
            if v >= 27 {
                p.create_time = r.get()?;
            }
            if v >= 28 {
                p.pg_num_target = r.u32()?;
                p.pgp_num_target = r.u32()?;
                p.pg_num_pending = r.u32()?;
                r.u64()?;
                p.last_force_op_resend = r.get()?;
                p.pg_autoscale_mode = r.u8()?;
            } else {
                p.pg_num_target = p.pg_num;
                p.pgp_num_target = p.pgp_num;
                p.pg_num_pending = p.pg_num;
                p.last_force_op_resend = p.last_force_op_resend_prenautilus;
                p.pg_autoscale_mode = autoscale::WARN;
            }
            if v >= 29 {
                p.last_pg_merge_meta = r.get()?;
            }
            if v == 30 {
                p.stretch = Some(PoolStretch {
                    bucket_count: r.u32()?,
                    bucket_target: r.u32()?,
                    bucket_barrier: r.u32()?,
                    mandatory_member: r.i32()?,
                });
            }
            Ok(p)
        })
    }
}
