//! Objects that many operations want, and locks on objects.

use crate::evidence::{Evidence, Lock, Object, Osd};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

/// Part of an OSD's operations from which one object is hot.
const HOT_MIN: f64 = 0.4;
/// Smallest number of operations a second on a hot object.
const RATE_MIN: f64 = 50.0;
/// Part of its time for which the reactor runs that makes it the bottleneck.
const BUSY_MIN: f64 = 0.7;
/// Mean number of operations in flight on an object from which they wait for each other.
const IN_FLIGHT_MIN: f64 = 32.0;
/// Part of the time of all operations that those on an object take, from which so many in flight make it the bottleneck.
const QUEUED_MIN: f64 = 0.3;
/// Number of operations of a client in the span from which it works; taking a lock and dying needs fewer.
const WORKS_MIN: u64 = 10;
/// Part of the operations' time spent waiting for the object's lock that makes the lock the bottleneck.
const LOCK_MIN: f64 = 0.2;

/// Time of an OSD's operations, without that before it had them.
fn own_us(o: &Osd) -> f64 {
    o.us.iter().filter(|(c, _)| *c != "client").map(|(_, t)| *t as f64).sum()
}

pub(super) fn hot(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let mut all = Vec::new();
    for o in &e.osds {
        let Some(x) = o.objects.iter().max_by_key(|x| x.ops) else { continue };
        let part = x.ops as f64 / o.ops.max(1) as f64;
        let rate = x.ops as f64 / o.seconds.max(1.0);
        let locked = l.share(x.lock_us as f64);
        let time = own_us(o) * part;
        let queued = time / 1e6 / o.seconds.max(1.0) >= IN_FLIGHT_MIN && l.share(time) >= QUEUED_MIN;
        let limits = o.worst(|c| c.ran_us) >= BUSY_MIN || l.is_slow() || queued;
        if part >= HOT_MIN && rate >= RATE_MIN && limits || locked >= LOCK_MIN {
            all.push(hot_object(e, l, o, x, part));
        }
    }
    all
}

fn hot_object(e: &Evidence, l: &Load, o: &Osd, x: &Object, part: f64) -> Verdict {
    let pool = e.pool_name(x.pool);
    let time = own_us(o) * part;
    let waited = match x.lock_us as f64 / 1e6 {
        s if s < 0.05 => String::new(),
        s => format!(", and waited {s:.1} s for its lock"),
    };
    let text = format!(
        "one object takes {:.0} % of the operations of osd.{}: {:.0} a second",
        part * 100.0,
        o.osd,
        x.ops as f64 / o.seconds.max(1.0)
    );
    Verdict::new(Kind::HotObject, format!("{pool}/{}", x.object), l.share(time), text)
        .osds([o.osd])
        .pools([x.pool])
        .shows(format!(
            "{:.0} of its operations are in flight at a time{waited}; the reactor runs {:.0} % of the time",
            time / 1e6 / o.seconds.max(1.0),
            o.worst(|c| c.ran_us) * 100.0,
        ))
        .remedy("spread the data over more objects (smaller or striped objects, several indexes), or ask it less often")
}

fn is_image(x: &Lock) -> bool {
    x.object.starts_with("rbd_header.")
}

/// True if nobody ends this lock: it does not expire, and its holder neither watches the object nor works. Live holders of
/// locks on images watch, so that what else they did in the span tells nothing.
fn is_dead(e: &Evidence, x: &Lock) -> bool {
    let works = || e.osds.iter().flat_map(|o| &o.clients).any(|c| c.client == x.owner && c.ops >= WORKS_MIN);
    !x.expires && !x.watches && (is_image(x) || !works())
}

/// The command that removes a lock.
fn breaking(pool: &str, x: &Lock) -> String {
    if is_image(x) {
        return "`rbd lock ls IMAGE` and `rbd lock rm`".to_owned();
    }
    format!("`rados -p {pool} lock break {} {} {} --lock-cookie '{}'`", x.object, x.name, x.owner, x.cookie)
}

pub(super) fn dead_lock(e: &Evidence, _: &Load) -> Vec<Verdict> {
    let verdict = |x: &Lock| {
        let text = format!(
            "{} at {} holds its lock {}, but does not watch it as {}: it seems to be gone",
            x.owner,
            x.addr,
            x.name,
            if is_image(x) { "live holders do" } else { "a live one may, and does hardly anything" }
        );
        let refused = e.osds.iter().flat_map(|o| &o.refused).filter(|y| y.pool == x.pool && y.object == x.object);
        let busy: u64 = refused.map(|y| y.calls).sum();
        let pool = e.pool_name(x.pool);
        Verdict::new(Kind::DeadLock, format!("{pool}/{}", x.object), 0.0, text)
            .pools([x.pool])
            .shows(format!("{busy} calls of other clients were refused with EBUSY"))
            .remedy(format!(
                "make sure that it is gone, then `ceph osd blocklist add {}` and {}",
                x.addr,
                breaking(&pool, x)
            ))
    };
    e.locks.iter().filter(|x| is_dead(e, x)).map(verdict).collect()
}
