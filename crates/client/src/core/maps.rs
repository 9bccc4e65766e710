//! OSD map updates of a client: the maps that a map message leads to.

use base::Epoch;
use cluster::{Incremental, MapError, OsdMap};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::msg::MOsdMap;

/// Applies the message `m` to the map `current`. Returns the later maps in order of their epochs, and the epochs that
/// could not be used, each with its error.
///
/// The caller must look at every returned map: a PG whose interval changed in one of them and changed back in a later
/// one has dropped the operations it was sent.
#[must_use]
pub fn advance(current: Option<Arc<OsdMap>>, m: &MOsdMap) -> (Vec<Arc<OsdMap>>, Vec<(Epoch, MapError)>) {
    let mut cur = current;
    let mut maps = Vec::new();
    let mut refused = Vec::new();
    let epochs: BTreeSet<Epoch> = m.maps.keys().chain(m.incremental_maps.keys()).copied().collect();
    for e in epochs {
        match next(cur.as_deref(), e, m) {
            Ok(Some(n)) => {
                let n = Arc::new(n);
                maps.push(n.clone());
                cur = Some(n);
            }
            Ok(None) => {}
            Err(error) => refused.push((e, error)),
        }
    }
    (maps, refused)
}

fn next(cur: Option<&OsdMap>, e: Epoch, m: &MOsdMap) -> Result<Option<OsdMap>, MapError> {
    if cur.is_some_and(|c| c.epoch >= e) {
        return Ok(None);
    }
    if let (Some(c), Some(inc)) = (cur, m.incremental_maps.get(&e))
        && c.epoch.next() == e
    {
        return c.apply(&Incremental::decode_blob(inc)?).map(Some);
    }
    m.maps.get(&e).map(OsdMap::decode_blob).transpose()
}
