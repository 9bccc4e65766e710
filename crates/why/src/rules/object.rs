//! Objects that many operations want, and locks on objects.

use crate::evidence::{Evidence, Object, Osd};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

/// Part of an OSD's operations from which one object is hot.
const HOT_MIN: f64 = 0.4;
/// Smallest number of operations a second on a hot object.
const RATE_MIN: f64 = 50.0;
/// Part of its time for which the reactor runs that makes it the bottleneck.
const BUSY_MIN: f64 = 0.7;
/// Part of the operations' time spent waiting for the object's lock that makes the lock the bottleneck.
const LOCK_MIN: f64 = 0.2;

pub(super) fn hot(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let mut all = Vec::new();
    for o in &e.osds {
        let Some(x) = o.objects.iter().max_by_key(|x| x.ops) else { continue };
        let part = x.ops as f64 / o.ops.max(1) as f64;
        let rate = x.ops as f64 / o.seconds.max(1.0);
        let locked = l.share(x.lock_us as f64);
        let limits = o.worst(|c| c.ran_us) >= BUSY_MIN || l.is_slow();
        if part >= HOT_MIN && rate >= RATE_MIN && limits || locked >= LOCK_MIN {
            all.push(hot_object(e, l, o, x, part));
        }
    }
    all
}

fn hot_object(e: &Evidence, l: &Load, o: &Osd, x: &Object, part: f64) -> Verdict {
    let pool = e.pool_name(x.pool);
    let time: u64 = o.us.iter().filter(|(c, _)| *c != "client").map(|(_, t)| *t).sum();
    let users = o.clients.len();
    let text = format!(
        "one object takes {:.0} % of the operations of osd.{}: {:.0} a second",
        part * 100.0,
        o.osd,
        x.ops as f64 / o.seconds.max(1.0)
    );
    Verdict::new(Kind::HotObject, format!("{pool}/{}", x.object), l.share(time as f64 * part), text)
        .osds([o.osd])
        .pools([x.pool])
        .shows(format!(
            "osd.{}'s reactor runs {:.0} % of the time; operations waited {:.1} s for the object's lock; {users} clients",
            o.osd,
            o.worst(|c| c.ran_us) * 100.0,
            x.lock_us as f64 / 1e6
        ))
        .remedy("spread the data over more objects (smaller or striped objects, several indexes), or ask it less often")
}

pub(super) fn dead_lock(e: &Evidence, _: &Load) -> Vec<Verdict> {
    let verdict = |x: &crate::evidence::Lock| {
        let text = format!("{} at {} holds its lock and does not watch it: that client is gone", x.owner, x.addr);
        let refused = e.osds.iter().flat_map(|o| &o.refused).filter(|y| y.pool == x.pool && y.object == x.object);
        let busy: u64 = refused.map(|y| y.calls).sum();
        Verdict::new(Kind::DeadLock, format!("{}/{}", e.pool_name(x.pool), x.object), 0.0, text)
            .pools([x.pool])
            .shows(format!("{busy} calls of other clients were refused with EBUSY"))
            .remedy(format!(
                "make sure that the client is gone, then `ceph osd blocklist add {}` and `rbd lock rm`",
                x.addr
            ))
    };
    e.locks.iter().filter(|x| !x.watches).map(verdict).collect()
}
