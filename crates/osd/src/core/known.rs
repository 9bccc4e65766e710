//! The newest map of each client, so that a client that is behind gets the missing maps before its answer.

use super::maps::MapFeed;
use base::Epoch;
use std::cell::Cell;
use wire::Features;
use wire::msg::MOsdMap;

/// Newest map that a client is known to have.
#[derive(Debug, Default)]
pub struct KnownMap(Cell<Epoch>);

impl KnownMap {
    /// Maps to send before the answer to an operation made with map `made_with`, if the client lacks any. They
    /// then count as known, since a connection delivers in order.
    #[must_use]
    pub fn share(&self, made_with: Epoch, feed: Option<&MapFeed>, features: Features) -> Option<MOsdMap> {
        let have = self.0.get().max(made_with);
        self.0.set(have);
        let feed = feed.filter(|f| f.map.epoch > have)?;
        self.0.set(feed.map.epoch);
        feed.share(have, features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::maps::{MapHistory, Source};
    use base::Utime;
    use base::id::Uuid;
    use cluster::{Incremental, OsdMap};

    #[test]
    fn each_map_is_sent_once() {
        let fsid = Uuid([7; 16]);
        let mut map = OsdMap { fsid, epoch: Epoch(1), ..OsdMap::default() };
        let mut history = MapHistory::new(fsid);
        let full = map.encode_blob(Features::PACIFIC).0;
        let mut m = MOsdMap { fsid, maps: [(Epoch(1), full)].into(), ..MOsdMap::default() };
        for e in 2..=5 {
            let inc = Incremental::new(fsid, Epoch(e), Utime { sec: e, nsec: 0 });
            map = map.apply(&inc).unwrap();
            let crc = map.encode_blob(Features::PACIFIC).1;
            m.incremental_maps.insert(Epoch(e), inc.encode_blob(Features::PACIFIC, crc));
        }
        history.absorb(&m, Source::Monitor).unwrap();
        let feed = history.feed().unwrap();
        let share = |k: &KnownMap, e| {
            let m = k.share(Epoch(e), Some(&*feed), Features::PACIFIC);
            m.map(|m| (m.maps.into_keys().collect(), m.incremental_maps.into_keys().map(|e| e.0).collect()))
        };
        let k = KnownMap::default();
        assert_eq!(k.share(Epoch(3), None, Features::PACIFIC), None);
        assert_eq!(share(&k, 2), Some((Vec::<Epoch>::new(), vec![4, 5])), "it had 3 before");
        assert_eq!(share(&k, 2), None);
        let k = KnownMap::default();
        assert_eq!(share(&k, 7), None, "newer than here");
        let k = KnownMap::default();
        assert_eq!(share(&k, 0), Some((vec![Epoch(5)], Vec::<u32>::new())), "all of it at once");
    }
}
