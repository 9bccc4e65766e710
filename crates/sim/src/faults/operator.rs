//! Commands of an operator that move data or change pools.

use super::{Faults, Undo};
use crate::net::NodeId;
use crate::options::Fault;
use crate::oracle;
use crate::world::World;

/// Times a run's pool gets more PGs.
const PG_GROWTHS_MAX: u64 = 3;
/// Most decreases of `pg_num` in a run.
const PG_SHRINKS_MAX: u64 = 3;
/// Most PGs of a pool that grows and shrinks: each merge takes a map.
const PGS_MAX: u32 = 64;

impl Faults {
    /// Gives a command that concerns `osd` or pools. Most of them are revoked after a while.
    pub(super) fn operate(&mut self, kind: Fault, osd: NodeId, w: &mut World) {
        match kind {
            Fault::Reweight => {
                let weight = 0.1 * (1 + self.rng.below(10)) as f64;
                self.command(w, &format!(r#"{{"prefix":"osd reweight","id":{},"weight":{weight:.2}}}"#, osd - 1));
            }
            Fault::OutIn => {
                self.command(w, &format!(r#"{{"prefix":"osd out","ids":["{}"]}}"#, osd - 1));
                self.until(w, Undo::Command(format!(r#"{{"prefix":"osd in","ids":["{}"]}}"#, osd - 1)));
            }
            Fault::MarkDown => {
                self.command(w, &format!(r#"{{"prefix":"osd down","ids":["{}"]}}"#, osd - 1));
            }
            Fault::Flag => {
                let flags =
                    ["nodown", "noout", "noup", "noin", "pause", "norecover", "nobackfill", "norebalance", "noscrub"];
                let f = flags[self.rng.below(flags.len() as u64) as usize];
                self.command(w, &format!(r#"{{"prefix":"osd set","key":"{f}"}}"#));
                self.until(w, Undo::Command(format!(r#"{{"prefix":"osd unset","key":"{f}"}}"#)));
            }
            Fault::PoolChurn => {
                self.pools += 1;
                let p = format!("churn{}", self.pools);
                let kind = match w.ctx.options.pool.code {
                    Some(_) => r#""pool_type":"erasure","erasure_code_profile":"code""#.into(),
                    None => format!(r#""size":{}"#, w.ctx.options.pool.copies),
                };
                self.command(
                    w,
                    &format!(r#"{{"prefix":"osd pool create","pool":"{p}","pg_num":8,"pgp_num":8,{kind}}}"#),
                );
                self.until(
                    w,
                    Undo::Command(format!(
                        r#"{{"prefix":"osd pool rm","pool":"{p}","pool2":"{p}","yes_i_really_really_mean_it":true}}"#
                    )),
                );
            }
            other => unreachable!("{other:?} is no command of the operator"),
        }
    }

    /// Raises or lowers the `pg_num` of the run's pool, sometimes to a number that is no power of two.
    pub(super) fn pg_num(&mut self, kind: Fault, w: &mut World) -> bool {
        let before = *self.kinds.get(&kind).unwrap_or(&0) as u64;
        let pgs = if kind == Fault::PgShrink {
            let Some(now) = Self::pgs_wanted(w).filter(|n| *n > 1 && before < PG_SHRINKS_MAX) else { return false };
            let less = u64::from((now >> (1 + self.rng.below(3))).max(1));
            if self.rng.chance(1, 3) { (less + self.rng.below(less)).min(u64::from(now) - 1) } else { less }
        } else {
            if before >= PG_GROWTHS_MAX {
                return false;
            }
            let pgs = if w.ctx.options.faults.contains(&Fault::PgShrink) {
                let Some(now) = Self::pgs_wanted(w).filter(|n| n * 2 <= PGS_MAX) else { return false };
                u64::from(now.next_power_of_two()) * 2
            } else {
                u64::from(w.ctx.options.pool.pgs) << (before + 1)
            };
            if self.rng.chance(1, 3) { pgs - 1 - self.rng.below(pgs / 4 + 1) } else { pgs }
        };
        self.command(w, &format!(r#"{{"prefix":"osd pool set","pool":"data","var":"pg_num","val":"{pgs}"}}"#));
        true
    }

    /// The pool's target of `pg_num`.
    fn pgs_wanted(w: &World) -> Option<u32> {
        let m = oracle::map(w)?;
        Some(m.pool(m.pool_by_name("data")?)?.pg_num_target)
    }
}
