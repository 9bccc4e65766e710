//! Networks that lose packets or take small ones only.

use super::names;
use crate::evidence::{Evidence, Osd};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};
use std::collections::BTreeMap;

/// Part of the segments sent again from which a link is lossy. A loss of one packet of fifty on a loopback interface, which
/// takes up to 64 KiB in one, was half a percent of the segments; a busy machine without loss had less than 0.1 %.
const AGAIN_MIN: f64 = 0.002;
/// The same for an OSD that lacks CPU: its answers are late, so that segments are sent again which were not lost.
const AGAIN_BUSY_MIN: f64 = 0.005;
/// Smallest number of segments sent again in the span.
const AGAIN_COUNT_MIN: u64 = 10;
/// Smallest MTU of an ordinary network.
const MTU_MIN: u32 = 1500;

pub(super) fn lossy(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let part = |o: &Osd| o.network.again as f64 / o.network.sent.max(1) as f64;
    let least = |o: &Osd| if o.lacks_cpu() { AGAIN_BUSY_MIN } else { AGAIN_MIN };
    let bad: Vec<&Osd> = e.osds.iter().filter(|o| o.network.again >= AGAIN_COUNT_MIN && part(o) >= least(o)).collect();
    let Some(worst) = bad.iter().max_by(|a, b| part(a).total_cmp(&part(b))) else { return Vec::new() };
    let osds: Vec<i32> = bad.iter().map(|o| o.osd).collect();
    let mut hosts: Vec<&str> = bad.iter().map(|o| o.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let text = format!("its network loses packets: {:.1} % of the segments are sent again", part(worst) * 100.0);
    let slowest = e.osds.iter().flat_map(|o| o.peers.iter().map(move |p| (o.osd, p))).max_by_key(|(_, p)| p.max_us);
    let seen = slowest.map_or_else(String::new, |(from, p)| {
        format!("slowest acknowledgement: osd.{} to osd.{from} after {:.0} ms", p.osd, p.max_us as f64 / 1000.0)
    });
    vec![
        Verdict::new(Kind::LossyLink, format!("host {}", hosts.join(", ")), l.share(l.cause("replica")), text)
            .osds(osds.clone())
            .shows(format!(
                "{} of {} segments in {:.0} s ({})",
                worst.network.again,
                worst.network.sent,
                worst.seconds,
                names(&osds)
            ))
            .shows(seen)
            .remedy("look at the errors of NIC, cable and switch port (`ip -s link`, `ethtool -S`)"),
    ]
}

pub(super) fn mtu(e: &Evidence, _: &Load) -> Vec<Verdict> {
    let smallest = |o: &Osd| o.network.mtu.iter().min_by_key(|(_, m)| **m).map(|(n, m)| (n.clone(), *m));
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, m) in e.osds.iter().filter_map(smallest) {
        *count.entry(m).or_default() += 1;
    }
    let Some((usual, _)) = count.iter().max_by_key(|(m, n)| (**n, **m)) else { return Vec::new() };
    let mut all: BTreeMap<(String, String, u32), Vec<i32>> = BTreeMap::new();
    for o in &e.osds {
        if let Some((nic, m)) = smallest(o).filter(|(_, m)| m < usual || *m < MTU_MIN) {
            all.entry((o.host.clone(), nic, m)).or_default().push(o.osd);
        }
    }
    let verdict = |((host, nic, m), osds): ((String, String, u32), Vec<i32>)| {
        let than =
            if m < *usual { format!("the other hosts {usual}") } else { format!("networks have {MTU_MIN} or more") };
        let text = format!("interface {nic} has an MTU of {m}, {than}");
        Verdict::new(Kind::SmallMtu, format!("host {host}"), 0.0, text)
            .shows(format!("{} send through it; small packets cost CPU, mixed sizes may lose large ones", names(&osds)))
            .osds(osds)
            .remedy(format!("`ip link set {nic} mtu {}` on {host}, and in its configuration", usual.max(&MTU_MIN)))
    };
    all.into_iter().map(verdict).collect()
}
