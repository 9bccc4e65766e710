//! A stand-in for the monitor; and does the role leave images alone while a separate manager is expected to work on them?

use super::images::Service;
use crate::files::Counted;
use crate::images::rates::Reported;
use crate::monitor::{FileSystem, FirstRank, Monitor};
use auth::CryptoKey;
use base::{AddrVec, AuthName, EntityAddr, Epoch};
use client::core::mds::RankInfo;
use cluster::OsdMap;
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use wire::types::PerfMetricQuery;

/// A monitor that counts reads of the OSD map: all work on images begins with one.
pub(super) struct Fake {
    pub(super) active: bool,
    pub(super) looks: Rc<Cell<u32>>,
}

impl Monitor for Fake {
    fn is_active(&self) -> bool {
        self.active
    }
    fn osdmap(&self) -> Arc<OsdMap> {
        self.looks.set(self.looks.get() + 1);
        Arc::new(OsdMap::default())
    }
    fn identity(&self) -> Option<(AuthName, Option<CryptoKey>)> {
        None
    }
    fn names_clients(&self, _: Vec<AddrVec>) -> bool {
        true
    }
    fn option(&self, _: &str) -> Option<String> {
        None
    }
    fn stored_option(&self, _: &str, _: &str) -> Option<String> {
        None
    }
    fn report_period(&self) -> u32 {
        5
    }
    fn add_query(&self, _: PerfMetricQuery) {}
    fn remove_query(&self, _: &PerfMetricQuery) {}
    fn take_reports(&self, _: &PerfMetricQuery) -> Reported {
        Reported::default()
    }
    fn first_ranks(&self) -> Vec<FirstRank> {
        Vec::new()
    }
    fn ask_mds(&self, _: Vec<PerfMetricQuery>) {}
    fn mds_counted(&self, _: &str) -> Option<Rc<Counted>> {
        None
    }
    fn file_system(&self, _: &str) -> Option<FileSystem> {
        None
    }
    fn file_systems(&self) -> Vec<(i32, String)> {
        Vec::new()
    }
    fn ranks(&self, _: i32) -> (Epoch, Vec<RankInfo>) {
        (Epoch(0), Vec::new())
    }
    fn mon_addrs(&self) -> Vec<String> {
        vec!["192.0.2.1:6789".to_owned()]
    }
}

/// Number of map reads until the role waits.
fn looks(active: bool) -> u32 {
    let looks = Rc::new(Cell::new(0));
    let service = Service::new(Box::new(Fake { active, looks: Rc::clone(&looks) }), EntityAddr::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut run = Box::pin(service.run());
        std::future::poll_fn(|cx| {
            assert!(run.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    });
    looks.get()
}

#[test]
fn the_role_works_only_while_it_is_the_clusters_manager() {
    assert!(looks(true) > 0);
    assert_eq!(looks(false), 0);
}
