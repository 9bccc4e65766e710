//! Tests of a reactor's turn: the OSD's own transactions on a simulated disk, failures, and a device that is silent.

use base::errno::{EIO, ENOSPC};
use base::rng::Rng;
use base::{HObject, Mono, Now, OsdId, PoolId, SnapId, Utime};
use osd::core::mapstore;
use osd::core::own::Need;
use osd::core::pgs::{Input, Output, Pgs};
use osd::core::places::Places;
use osd::core::reactor::Reactor;
use std::time::Duration;
use store::engine::{Config, FormatOptions};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore as _, Op, Tag, Transaction};

const DISK: u64 = 256 << 20;
const TIMEOUT: Duration = Duration::from_secs(20);

/// A reactor without PGs, its disk, and its outputs.
struct Host {
    reactor: Reactor,
    disk: SimDisk,
    rng: Rng,
    told: Vec<Output>,
}

fn at(ms: u64) -> Now {
    Now { mono: Mono((1000 + ms) * 1_000_000), wall: Utime { sec: 100, nsec: 0 } }
}

fn write(name: &'static str, bytes: usize) -> Transaction {
    let oid = HObject { oid: name.into(), snap: SnapId::HEAD, pool: PoolId(-1), ..HObject::min() }.into();
    let mut t = Transaction::new();
    t.push(Op::Write { cid: Cid::Meta, oid, off: 0, data: vec![7; bytes].into(), sums: None });
    t
}

impl Host {
    fn new() -> Self {
        let mut disk = SimDisk::new(DISK);
        let options = FormatOptions { uuid: Default::default(), reactors: 1, labels: Default::default() };
        store::engine::format(&mut disk, &options).unwrap();
        let mut store = store::engine::open(&mut disk, &Config::default()).unwrap().remove(0);
        store.submit(Tag(1), mapstore::first_transaction(&Default::default()));
        store::engine::device::drive(&mut store, &mut disk);
        while store.poll_event().is_some() {}
        let pgs = Pgs::new(OsdId(0), 1, Places::all_here());
        Self { reactor: Reactor::new(0, pgs, store, TIMEOUT), disk, rng: Rng::new(1), told: Vec::new() }
    }

    /// Runs turns until the disk has nothing more to do.
    fn settle(&mut self) {
        loop {
            while let Some(o) = self.reactor.poll_output(at(0)) {
                self.told.push(o);
            }
            self.reactor.end_turn();
            while let Some(r) = self.reactor.poll_io() {
                self.disk.submit(r);
            }
            match self.disk.step(&mut self.rng) {
                Some(c) => self.reactor.handle_io(c),
                None => return,
            }
        }
    }

    fn failures(&self) -> usize {
        self.told.iter().filter(|o| matches!(o, Output::StoreFailed(_))).count()
    }

    fn results(&self) -> Vec<(Tag, Result<(), i32>)> {
        self.told.iter().filter_map(|o| if let Output::Own(t, r) = o { Some((*t, *r)) } else { None }).collect()
    }
}

#[test]
fn own_transactions_end_in_the_order_in_which_they_were_given() {
    let mut h = Host::new();
    let tags = [Need::Must, Need::May, Need::Must].map(|need| h.reactor.submit(write("x", 4096), need));
    h.settle();
    assert_eq!(h.results(), tags.map(|t| (t, Ok(()))));
    assert!(!h.reactor.has_failed());
}

#[test]
fn a_refused_transaction_fails_the_store_only_if_it_must_happen() {
    let mut h = Host::new();
    let tag = h.reactor.submit(write("large", DISK as usize), Need::May);
    h.settle();
    assert_eq!(h.results(), [(tag, Err(ENOSPC))]);
    h.disk.write_error = Some(EIO);
    h.reactor.submit(write("x", 4096), Need::Must);
    h.settle();
    assert!(h.reactor.has_failed());
    h.reactor.submit(write("x", 4096), Need::Must);
    h.settle();
    assert_eq!(h.failures(), 1, "it is reported once");
}

#[test]
fn a_silent_device_is_reported_and_then_counts_as_failed() {
    let mut h = Host::new();
    let mut judge = |secs| h.reactor.judge_device(Some(Duration::from_secs(secs)));
    assert!(judge(1).is_none());
    assert!(matches!(judge(11), Some(Output::Silent(Some(_)))));
    assert!(matches!(judge(0), Some(Output::Silent(None))));
    assert!(matches!(judge(21), Some(Output::StoreFailed(_))));
    assert!(h.reactor.has_failed());
    h.disk.write_error = Some(EIO);
    h.reactor.submit(write("x", 4096), Need::Must);
    h.settle();
    assert_eq!(h.failures(), 0, "the host has it from the judgement");
}

#[test]
fn a_reactor_that_abandons_its_store_stops_at_once_and_reports_no_failure() {
    let mut h = Host::new();
    h.disk.write_error = Some(EIO);
    h.reactor.submit(write("x", 4096), Need::Must);
    h.reactor.handle(Input::Stop { abandon: true }, at(0));
    h.settle();
    assert!(h.reactor.has_failed());
    assert_eq!(h.failures(), 0);
    assert_eq!(h.told.iter().filter(|o| matches!(o, Output::Stopped)).count(), 1);
}
