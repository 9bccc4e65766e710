//! The newest map that all PGs of a reactor have seen.

use super::Views;
use super::views::SharedPools;
use crate::core::maps::MapFeed;
use base::{Epoch, OsdId};
use cluster::OsdMap;
use std::sync::Arc;

/// Newest map of a reactor; see the module.
#[derive(Default)]
pub(super) struct Current {
    feed: Option<Arc<MapFeed>>,
    /// Views of pools in the newest map, kept for the next one.
    pools: SharedPools,
}

impl Current {
    /// The map, with the incrementals that lead to it.
    pub(super) fn feed(&self) -> Option<&Arc<MapFeed>> {
        self.feed.as_ref()
    }

    /// The map.
    pub(super) fn map(&self) -> Option<&Arc<OsdMap>> {
        self.feed.as_ref().map(|f| &f.map)
    }

    /// Its epoch, 0 if there is none.
    pub(super) fn epoch(&self) -> Epoch {
        self.feed.as_ref().map_or(Epoch(0), |f| f.map.epoch)
    }

    /// First epoch since which this OSD has seen every map.
    pub(super) fn since(&self) -> Epoch {
        self.feed.as_ref().map_or(Epoch(0), |f| f.since)
    }

    /// Sets the map.
    pub(super) fn set(&mut self, feed: Option<Arc<MapFeed>>) {
        self.feed = feed;
    }

    /// Views of another map for `whoami`, which has seen every map from `since` on.
    pub(super) fn views_of(&self, map: &Arc<OsdMap>, whoami: OsdId, since: Epoch) -> Views {
        Views::new(map, whoami, since, &self.pools)
    }

    /// Views of this map.
    pub(super) fn views(&self, whoami: OsdId) -> Option<Views> {
        self.feed.as_ref().map(|f| self.views_of(&f.map, whoami, f.since))
    }
}
