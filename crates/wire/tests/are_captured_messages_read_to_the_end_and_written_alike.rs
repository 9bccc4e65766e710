//! Every message of every captured connection (real 16.2 daemons and clients) is decoded to its last byte, and our
//! encoding of it equals the captured one.

mod support;

use std::collections::BTreeMap;
use wire::Features;
use wire::msg::registry;

/// Message types between Ceph's daemons that Belemnite does not use.
const NOT_SPOKEN: &[(u16, &str)] = &[
    (80, "OSD_PG_NOTIFY in its old form, between OSDs"),
    (83, "OSD_PG_LOG: log exchange, with replication"),
    (112, "OSD_REPOP: replication"),
    (113, "OSD_REPOPREPLY: replication"),
];

#[test]
fn every_message_survives_both_ways() {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    let mut failures: BTreeMap<u16, String> = BTreeMap::new();
    for (at, m) in support::messages() {
        let kind = m.header.kind;
        let Some(seen) = registry::inspect(&m, Features::PACIFIC) else {
            if !NOT_SPOKEN.iter().any(|(k, _)| *k == kind) {
                failures.entry(kind).or_insert_with(|| format!("{at}: type {kind} has no decoder"));
            }
            continue;
        };
        match seen {
            Err(e) => {
                failures.entry(kind).or_insert_with(|| format!("{at}: {} {e}", registry::name(kind)));
            }
            Ok(seen) => {
                *counts.entry(kind).or_default() += 1;
                let a = &seen.again;
                let same = a.front == m.front && a.middle == m.middle && a.data == m.data;
                // A monitor's ping has compat 0, which requires as little as 1.
                let (ours, theirs) = (a.header.compat, m.header.compat.max(1));
                if !same || a.header.version != m.header.version || ours != theirs {
                    let first = a.front.iter().zip(m.front.iter()).position(|(x, y)| x != y);
                    failures.entry(kind).or_insert_with(|| {
                        format!(
                            "{at}: {} v{}/{} differs: front {} ours {} first {first:?}, data {} ours {}",
                            registry::name(kind),
                            m.header.version,
                            m.header.compat,
                            m.front.len(),
                            a.front.len(),
                            m.data.len(),
                            a.data.len()
                        )
                    });
                }
            }
        }
    }
    for (k, n) in &counts {
        println!("{:5} {}", n, registry::name(*k));
    }
    assert!(failures.is_empty(), "{:#?}", failures);
    assert!(counts.values().sum::<usize>() > 1000);
}
