//! A pool that reaches a quota while its cluster becomes clean.

use super::{HEAL_MAX, Run};
use crate::oracle;
use crate::queue::{SEC, Time};
use crate::world::World;
use cluster::pool::flag::FULL_QUOTA;

/// Longest time until a pool that has reached its quota is full.
const FULL_MAX: Time = 60 * SEC;
/// Time for which an OSD is out while the pool is full.
const AWAY: Time = 60 * SEC;

impl Run {
    /// Lets the pool reach a quota while clients write: recovery, backfill and the trimming of snapshots must end although
    /// writes wait for space.
    pub(super) fn full(&mut self) {
        let quota =
            |n: u32| format!(r#"{{"prefix":"osd pool set-quota","pool":"data","field":"max_objects","val":"{n}"}}"#);
        if let Err(e) = self.command(quota(1)) {
            return self.w.ctx.violation(e);
        }
        let full = |w: &mut World| {
            let map = oracle::map(w);
            map.and_then(|m| Some(m.pool(m.pool_by_name("data")?)?.flags & FULL_QUOTA != 0)).unwrap_or(false)
        };
        // A pool of one object and less never is.
        let full = self.advance(FULL_MAX, full);
        self.load.borrow_mut().held = true;
        // Objects with waiting writes move, too.
        for step in ["out", "in"] {
            if full
                && self.w.ctx.violations.is_empty()
                && let Err(e) = self.command(format!(r#"{{"prefix":"osd {step}","ids":["0"]}}"#))
            {
                self.w.ctx.violation(e);
            }
            let clean = |w: &mut World| oracle::unclean(w, None).is_none();
            if step == "out" {
                // Without it some PGs may have no place for all copies.
                self.advance(AWAY, clean);
            } else if full && !self.advance(HEAL_MAX, clean) && self.w.ctx.violations.is_empty() {
                let why = oracle::unclean(&self.w, None).unwrap_or_default();
                let stuck = self.stuck();
                self.w.ctx.violation(format!("not clean while the pool is full: {why}; {stuck}"));
            }
        }
        self.load.borrow_mut().held = false;
        if let Err(e) = self.command(quota(0))
            && self.w.ctx.violations.is_empty()
        {
            self.w.ctx.violation(e);
        }
    }
}
