//! Counters of a PG: the sums that `pg_stat_t` reports, and the change that one operation makes to them.

use base::{EntityName, Now, Utime};
use std::time::Duration;
use wire::types::pg_state;
use wire::{Decode, Encode, Reader, Writer};

macro_rules! sums {
    ($($(#[$m:meta])* $f:ident),* $(,)?) => {
        /// The fields of `object_stat_sum_t` that a PG maintains.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StatSum { $($(#[$m])* pub $f: i64),* }

        impl StatSum {
            /// Adds `d`.
            pub fn add(&mut self, d: &Self) { $(self.$f += d.$f;)* }
            /// Subtracts `d`.
            pub fn take_back(&mut self, d: &Self) { $(self.$f -= d.$f;)* }
            /// True if nothing is counted.
            #[must_use]
            pub fn is_zero(&self) -> bool { $(self.$f == 0 &&)* true }
            /// Calls `f` with each pair of counts.
            pub(crate) fn each_with(&mut self, o: &mut Self, mut f: impl FnMut(&mut i64, &mut i64)) {
                $(f(&mut self.$f, &mut o.$f);)*
            }
            fn fields(&self) -> impl Iterator<Item = i64> { [$(self.$f),*].into_iter() }
            fn fields_mut(&mut self) -> impl Iterator<Item = &mut i64> { [$(&mut self.$f),*].into_iter() }
        }
    };
}

sums! {
    /// Bytes; those that clones share are counted once.
    num_bytes,
    /// Objects, clones included.
    num_objects,
    /// Clones.
    num_object_clones,
    /// Objects with omap.
    num_objects_omap,
    /// Objects changed since the last UNDIRTY.
    num_objects_dirty,
    /// Write operations.
    num_wr,
    /// KiB written.
    num_wr_kb,
    /// Read operations.
    num_rd,
    /// KiB read.
    num_rd_kb,
    /// Errors of the last scrub other than those that only a deep scrub finds.
    num_shallow_scrub_errors,
    /// Errors of the last deep scrub.
    num_deep_scrub_errors,
    /// Objects with large omap, as of the last deep scrub.
    num_large_omap_objects,
    /// Copies of objects repaired.
    num_objects_repaired,
    /// Not 0: the sums are estimates after a split, until a scrub has counted (`stats_invalid`).
    estimated,
    /// Bytes of omap values, as of the last deep scrub.
    num_omap_bytes,
    /// Omap entries, as of the last deep scrub.
    num_omap_keys,
}

/// Encoded as a bit per nonzero field, then those fields as zigzag varints: a plain write costs 5 bytes.
impl Encode for StatSum {
    fn encode(&self, w: &mut Writer) {
        let mask = self.fields().enumerate().fold(0u16, |m, (i, v)| m | (u16::from(v != 0) << i));
        w.u16(mask);
        for v in self.fields().filter(|v| *v != 0) {
            put_varint(w, ((v << 1) ^ (v >> 63)) as u64);
        }
    }
}

impl Decode for StatSum {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        let mask = r.u16()?;
        let mut s = Self::default();
        for (i, f) in s.fields_mut().enumerate() {
            if mask >> i & 1 != 0 {
                let z = get_varint(r)?;
                *f = (z >> 1) as i64 ^ -((z & 1) as i64);
            }
        }
        Ok(s)
    }
}

fn put_varint(w: &mut Writer, mut v: u64) {
    while v >= 0x80 {
        w.u8(v as u8 | 0x80);
        v >>= 7;
    }
    w.u8(v as u8);
}

fn get_varint(r: &mut Reader<'_>) -> wire::codec::Result<u64> {
    let mut v = 0;
    for shift in (0..64).step_by(7) {
        let b = r.u8()?;
        v |= u64::from(b & 0x7f) << shift;
        if b < 0x80 {
            return Ok(v);
        }
    }
    Err(wire::DecodeError::BadValue { what: "varint", value: v })
}

/// Counts since the machine was created, for perf counters; never stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Operations answered.
    pub ops: u64,
    /// Resends answered from the log, without another execution.
    pub dups: u64,
    /// Operations dropped without a reply; the client resends them here or elsewhere.
    pub dropped: u64,
    /// Plans that were run again because data had to be read.
    pub replans: u64,
    /// Operations refused as unsupported.
    pub unsupported: u64,
    /// Objects pushed to members or pulled from them.
    pub recovered_objects: u64,
    /// Bytes of these objects.
    pub recovered_bytes: u64,
    /// Omap entries of these objects.
    pub recovered_keys: u64,
    /// Ranges read from other shards.
    pub shard_reads: u64,
    /// Members on which a write was deferred, counted for each write.
    pub shards_spared: u64,
}

impl Counters {
    /// Adds `o`.
    pub fn add(&mut self, o: &Self) {
        self.ops += o.ops;
        self.dups += o.dups;
        self.dropped += o.dropped;
        self.replans += o.replans;
        self.unsupported += o.unsupported;
        self.recovered_objects += o.recovered_objects;
        self.recovered_bytes += o.recovered_bytes;
        self.recovered_keys += o.recovered_keys;
        self.shard_reads += o.shard_reads;
        self.shards_spared += o.shards_spared;
    }
}

/// A client operation in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpDump {
    /// The client that sent the operation.
    pub client: EntityName,
    /// The client's number for the operation.
    pub tid: u64,
    /// Time since the operation arrived.
    pub age: Duration,
    /// Ceph's name of its stage (`flag_point`).
    pub stage: &'static str,
    /// Cause of its present wait.
    pub cause: base::ledger::Cause,
}

/// Times of state changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stamps {
    last_change: Utime,
    last_became_active: Utime,
    /// Seconds of the wall clock at which a report first saw the PG without each of the five [`Held`] properties; 0
    /// while it has it.
    without: [u32; 5],
}

/// Times at which the PG last had each of these properties: the present time for those that it has. A PG without one says
/// the time of the first report in which it lacked it, so that no wait seems longer than it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) active: Utime,
    pub(crate) peered: Utime,
    pub(crate) clean: Utime,
    pub(crate) undegraded: Utime,
    pub(crate) fullsized: Utime,
}

impl Stamps {
    /// Notes a change of the interval or the state.
    pub(crate) fn changed(&mut self, now: Now) {
        self.last_change = now.wall;
    }

    /// Time since the interval or the state changed.
    pub(crate) fn since_change(&self, now: Now) -> Duration {
        now.wall.to_unix().saturating_sub(self.last_change.to_unix())
    }

    /// Time of the last change of the interval or the state.
    pub(crate) fn last_change(&self) -> Utime {
        self.last_change
    }

    /// Time at which the PG became active.
    pub(crate) fn last_became_active(&self) -> Utime {
        self.last_became_active
    }

    /// Notes the state bits of a report, and returns its times.
    pub(crate) fn see(&mut self, bits: u64, now: Now) -> Held {
        let has = |any: u64| bits & any != 0;
        let have = [
            has(pg_state::ACTIVE),
            has(pg_state::ACTIVE | pg_state::PEERED),
            has(pg_state::CLEAN),
            !has(pg_state::DEGRADED),
            !has(pg_state::UNDERSIZED),
        ];
        let mut last = [now.wall; 5];
        for ((without, has), last) in self.without.iter_mut().zip(have).zip(&mut last) {
            if has {
                *without = 0;
                continue;
            }
            if *without == 0 {
                *without = now.wall.sec.max(1);
            }
            *last = Utime { sec: *without, nsec: 0 };
        }
        let [active, peered, clean, undegraded, fullsized] = last;
        Held { active, peered, clean, undegraded, fullsized }
    }

    /// Notes that the PG became active.
    pub(crate) fn activated(&mut self, now: Now) {
        self.last_change = now.wall;
        self.last_became_active = now.wall;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Features;

    #[test]
    fn sums_round_trip_and_stay_small() {
        let s = StatSum { num_wr: 1, num_wr_kb: 4, ..StatSum::default() };
        assert!(s.to_bytes(Features::PACIFIC).len() <= 5);
        for s in [s, StatSum { num_bytes: -(1 << 40), num_objects: i64::MAX, num_rd: i64::MIN, ..s }] {
            assert_eq!(StatSum::from_bytes(&s.to_bytes(Features::PACIFIC)).unwrap(), s);
        }
    }

    #[test]
    fn a_wait_begins_with_the_report_that_first_saw_it() {
        let at = |sec| Now { wall: Utime { sec, nsec: 5 }, ..Now::default() };
        let whole = |sec| Utime { sec, nsec: 0 };
        let mut s = Stamps::default();
        let good = pg_state::ACTIVE | pg_state::CLEAN;
        let t = s.see(good, at(10));
        assert_eq!([t.active, t.peered, t.clean, t.undegraded, t.fullsized], [at(10).wall; 5]);
        // After an hour without a report the PG has lacked a copy for no longer than since the next one.
        let few = pg_state::ACTIVE | pg_state::UNDERSIZED | pg_state::DEGRADED;
        for sec in [3600, 3660] {
            let t = s.see(few, at(sec));
            assert_eq!([t.active, t.peered], [at(sec).wall; 2]);
            assert_eq!([t.clean, t.undegraded, t.fullsized], [whole(3600); 3]);
        }
        let t = s.see(pg_state::PEERED, at(3700));
        assert_eq!([t.active, t.peered, t.clean], [whole(3700), at(3700).wall, whole(3600)]);
        assert_eq!(s.see(good, at(3800)).clean, at(3800).wall);
        assert_eq!(s.see(few, at(3900)).clean, whole(3900));
    }

    #[test]
    fn all_counters_are_added() {
        let of = |k: u64| {
            let [
                ops,
                dups,
                dropped,
                replans,
                unsupported,
                recovered_objects,
                recovered_bytes,
                recovered_keys,
                shard_reads,
                shards_spared,
            ] = std::array::from_fn(|i| k * (i as u64 + 1));
            Counters {
                ops,
                dups,
                dropped,
                replans,
                unsupported,
                recovered_objects,
                recovered_bytes,
                recovered_keys,
                shard_reads,
                shards_spared,
            }
        };
        let mut sum = of(1);
        sum.add(&of(1));
        assert_eq!(sum, of(2));
        sum.add(&Counters::default());
        assert_eq!(sum, of(2));
    }
}
