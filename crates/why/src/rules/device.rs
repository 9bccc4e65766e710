//! Devices that answer slowly.

use super::{SHARE_MIN, names};
use crate::evidence::{Evidence, Osd};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

/// Mean time of a flush from which a device that is slower than the others is slow.
const SLOW_MS: f64 = 15.0;
/// The same for a device without others to compare with, and for all devices together.
const ALL_SLOW_MS: f64 = 60.0;
/// Factor over the other devices.
const SLOWER: f64 = 3.0;

/// Mean time in milliseconds of a flush, or of a read if that is longer.
fn latency_ms(o: &Osd) -> f64 {
    let reads = if o.ops == 0 { 0.0 } else { o.cause("read") as f64 / o.ops as f64 / 1000.0 };
    o.device.mean_ms().max(reads)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

pub(super) fn slow(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let measured: Vec<&Osd> = e.osds.iter().filter(|o| o.device.writes > 0 || o.device.pending_us > 0).collect();
    let mut all = Vec::new();
    for o in &measured {
        let others: Vec<f64> = measured.iter().filter(|x| x.osd != o.osd).map(|x| latency_ms(x)).collect();
        let (own, usual) = (latency_ms(o), median(others.clone()));
        let outstanding = if others.is_empty() { own >= ALL_SLOW_MS } else { own >= SLOW_MS && own >= SLOWER * usual };
        let us = l.at(o, "commit") + l.at(o, "read") + l.blamed(e, o.osd);
        let share = l.share(us);
        if !outstanding || o.lacks_cpu() || share < SHARE_MIN {
            continue;
        }
        let text = format!("its device is slow: {own:.0} ms for a flush, {usual:.1} ms on the other OSDs");
        let longest = o.device.max_us.max(o.device.pending_us) as f64 / 1000.0;
        let seen = format!("{} flushes in {:.0} s, the longest {longest:.0} ms", o.device.writes, o.seconds);
        let blamed = l.blamed(e, o.osd) / 1e6;
        let waits = format!("operations of other OSDs waited {blamed:.1} s for its acknowledgements alone");
        all.push(
            Verdict::new(Kind::SlowDisk, format!("osd.{}", o.osd), share, text)
                .osds([o.osd])
                .shows(seen)
                .shows(waits)
                .remedy(format!(
                    "check the drive on {} (`smartctl -x`, kernel log); replace it with `belemnite osd replace {}`",
                    o.host, o.osd
                )),
        );
    }
    all.extend(all_slow(&measured, l).filter(|_| all.is_empty()));
    all
}

/// All devices are slow alike.
fn all_slow(measured: &[&Osd], l: &Load) -> Option<Verdict> {
    let slow: Vec<&&Osd> = measured.iter().filter(|o| latency_ms(o) >= ALL_SLOW_MS && !o.lacks_cpu()).collect();
    let share = l.share(l.cause("commit") + l.cause("read") + l.cause("replica"));
    if slow.len() < 2 || slow.len() * 3 < measured.len() * 2 || share < SHARE_MIN {
        return None;
    }
    let osds: Vec<i32> = slow.iter().map(|o| o.osd).collect();
    let mean = slow.iter().map(|o| latency_ms(o)).sum::<f64>() / slow.len() as f64;
    Some(
        Verdict::new(Kind::SlowDisk, names(&osds), share, format!("all devices are slow: {mean:.0} ms for a flush"))
            .osds(osds)
            .shows(format!("{} of {} OSDs measure the same", slow.len(), measured.len()))
            .remedy("the devices share something (disk, controller, host): use drives of their own with power-loss protection"),
    )
}
