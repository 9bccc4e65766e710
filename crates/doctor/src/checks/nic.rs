//! Checks of network interfaces that have a device: speed, MTU, offloads, errors.

use super::names;
use crate::facts::Facts;
use crate::finding::Finding;

const NET: &str = "/sys/class/net/";

/// Names of interfaces with a device that are up.
fn interfaces(f: &Facts) -> Vec<&str> {
    let with_device = f.each(NET, "/device/uevent").map(|(n, _)| n);
    with_device.filter(|n| f.text(&format!("{NET}{n}/operstate")) != "down").collect()
}

/// Speed in Mb/s; `None` for virtual devices, which do not tell.
fn mbit(f: &Facts, name: &str) -> Option<f64> {
    f.number(&format!("{NET}{name}/speed")).filter(|s| *s > 0.0)
}

/// The finding of a check on a host without interfaces that it could look at.
fn none(check: &'static str) -> Vec<Finding> {
    vec![Finding::unknown(check, "no interface tells")]
}

/// Speed and duplex.
pub(super) fn speed(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "network speed";
    let mut out = Vec::new();
    let mut good = Vec::new();
    for name in interfaces(f) {
        let Some(speed) = mbit(f, name) else { continue };
        let shown = if speed < 1000.0 { format!("{speed:.0} Mb/s") } else { format!("{:.0} Gb/s", speed / 1000.0) };
        if f.text(&format!("{NET}{name}/duplex")) == "half" {
            out.push(Finding::warn(
                CHECK,
                format!("{name} half duplex"),
                "collisions and losses under load",
                "negotiate again: check cable, switch port, and `ethtool -s NAME autoneg on`",
            ));
        }
        let what = format!("{name} {shown}");
        let cost = "each written byte crosses the network once for each copy; recovery is bound by it, too";
        let change = "a faster card and port for the cluster's network";
        if speed < 1000.0 {
            out.push(Finding::warn(CHECK, what, cost, "check cable and switch port: it should have negotiated more"));
        } else if speed < 10_000.0 {
            out.push(Finding::note(CHECK, what, cost, change));
        } else {
            good.push(what);
        }
    }
    if out.is_empty() {
        return if good.is_empty() { none(CHECK) } else { vec![Finding::fine(CHECK, names(&good))] };
    }
    out
}

/// Size of packets on fast interfaces.
pub(super) fn mtu(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "MTU";
    const LARGE: f64 = 8000.0;
    let all: Vec<(&str, f64)> =
        interfaces(f).into_iter().filter_map(|n| Some((n, f.number(&format!("{NET}{n}/mtu"))?))).collect();
    let shown = |of: &[&(&str, f64)]| names(&of.iter().map(|(n, m)| format!("{n} {m:.0}")).collect::<Vec<_>>());
    let small: Vec<&(&str, f64)> =
        all.iter().filter(|(n, m)| *m < LARGE && mbit(f, n).is_some_and(|s| s >= 10_000.0)).collect();
    match (all.is_empty(), small.is_empty()) {
        (true, _) => none(CHECK),
        (_, true) => vec![Finding::fine(CHECK, shown(&all.iter().collect::<Vec<_>>()))],
        _ => vec![Finding::note(
            CHECK,
            shown(&small),
            "more packets and interrupts for each large operation; small ones do not notice",
            "`ip link set NAME mtu 9000` on all hosts and on the switch, or on none: with --hosts the sizes are tried",
        )],
    }
}

/// Work that the card can do.
pub(super) fn offloads(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "offloads";
    const WANTED: [&str; 5] =
        ["rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload", "generic-receive-offload"];
    let mut out = Vec::new();
    let mut seen = 0;
    for (name, text) in f.each("/cmd/offloads/", "") {
        seen += 1;
        // `off [fixed]` is what the device cannot do.
        let off: Vec<&str> = text
            .lines()
            .filter_map(|l| l.split_once(':').filter(|(_, v)| v.trim() == "off"))
            .map(|(k, _)| k.trim())
            .filter(|k| WANTED.contains(k))
            .collect();
        if !off.is_empty() {
            out.push(Finding::warn(
                CHECK,
                format!("{name} without {}", names(&off)),
                "processor time for each packet, several times as much for large operations",
                format!("`ethtool -K {name} {} on`", off.join(" on ")),
            ));
        }
    }
    match (out.is_empty(), seen) {
        (true, 0) => vec![Finding::unknown(CHECK, "`ethtool` is not installed, or no interface has a device")],
        (true, _) => vec![Finding::fine(CHECK, "on")],
        _ => out,
    }
}

/// Packets that were lost or damaged since the boot.
pub(super) fn errors(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "network errors";
    /// Lost packets of a million that are reported.
    const MILLIONTH: f64 = 10.0;
    let mut out = Vec::new();
    let mut seen = false;
    for name in interfaces(f) {
        let count = |k: &str| f.number(&format!("{NET}{name}/statistics/{k}"));
        let Some(packets) = count("rx_packets") else { continue };
        seen = true;
        let lost: f64 = ["rx_dropped", "rx_errors", "tx_errors"].iter().filter_map(|k| count(k)).sum();
        if lost * 1e6 > packets * MILLIONTH {
            out.push(Finding::warn(
                CHECK,
                format!("{name} lost {lost:.0} of {packets:.0} packets since the boot"),
                "each lost packet delays its operation by a round trip, or by 200 ms",
                "check cable and optics (errors), or `ethtool -G NAME rx` for larger rings (dropped)",
            ));
        }
    }
    match (out.is_empty(), seen) {
        (true, false) => none(CHECK),
        (true, true) => vec![Finding::fine(CHECK, "none")],
        _ => out,
    }
}
