//! Reports of daemons' counters, as the manager role takes them: several reports of one daemon in a row.

use super::{ALLOC_DECODER, Family};
use base::Mono;
use mgr::stats::counters::{DaemonCounters, MAX_COUNTERS};
use wire::msg::{CounterValue, MMgrReport, PackedCounters};
use wire::types::PerfCounterType;
use wire::{Encode as _, Features, WireMessage as _};

pub(super) const FAMILY: Family = Family { name: "counters", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 2 };

/// The input: reports, each after its length in two bytes. The lowest bit of the length begins another connection.
fn run(mut input: &[u8]) {
    let mut all = DaemonCounters::default();
    let mut conn = 1;
    while let Some((len, rest)) = input.split_first_chunk::<2>() {
        let len = u16::from_le_bytes(*len);
        conn += u64::from(len & 1);
        let (one, rest) = rest.split_at(usize::from(len >> 1).min(rest.len()));
        input = rest;
        let mut m = MMgrReport::default().to_message(Features::PACIFIC);
        m.front = bytes::Bytes::copy_from_slice(one);
        let Ok(report) = MMgrReport::from_message(&m) else { continue };
        // A refused report leaves counters that can be shown.
        let _ = all.report("osd.0", conn, &report, Mono(conn));
        for (_, counters) in all.iter() {
            assert!(counters.count() <= MAX_COUNTERS);
        }
        let _ = all.rate("osd.0", "osd.op");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let declare = |path: &str, kind: u8| PerfCounterType { path: path.into(), kind, ..PerfCounterType::default() };
    let packed = |kinds: &[u8]| {
        let value = CounterValue { value: 7, avgcount: 2, avgcount2: 2 };
        PackedCounters::from_values(kinds.iter().map(|k| (*k, value))).to_bytes(Features::PACIFIC)
    };
    let first = MMgrReport {
        declare_types: vec![declare("osd.op", 10), declare("osd.op_latency", 5)],
        packed: packed(&[10, 5]),
        ..MMgrReport::default()
    };
    let second = MMgrReport { packed: packed(&[10, 5]), ..MMgrReport::default() };
    let third = MMgrReport { undeclare_types: vec!["osd.op".into()], packed: packed(&[5]), ..MMgrReport::default() };
    let frame = |m: &MMgrReport, again: bool| {
        let front = m.to_message(Features::PACIFIC).front;
        let len = u16::try_from(front.len()).unwrap_or(0) << 1 | u16::from(again);
        [len.to_le_bytes().as_slice(), &front].concat()
    };
    let row = [&first, &second, &third].map(|m| frame(m, false)).concat();
    vec![row.clone(), [row, frame(&first, true)].concat(), frame(&third, false)]
}
