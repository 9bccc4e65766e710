//! Makes a monitor's state serve a cluster that is ahead of it: after the import of a backup, or from maps of OSDs.

use std::path::Path;

use base::Epoch;
use bytes::Bytes;
use cluster::OsdMap;
use reactor::{clock, run_here};
use state::{Compare, Op, Outcome, Txn, Write};

use super::archive::Place;
use super::mkfs::{MkfsOptions, mkfs};
use super::{MonError, STATE_FILE, Store};
use crate::core::start::advance::{self, Advance};
use crate::core::start::load;
use crate::state::records::key;

/// Makes the writes of an advance. Error: a monitor leads, there is no cluster, or the store fails.
async fn write(store: &mut Store, shown: &str, parts: Vec<Vec<Write>>) -> Result<(), MonError> {
    let failed = |error| MonError::Store { path: shown.to_owned(), error };
    let format = Bytes::from_static(key::FORMAT.as_bytes());
    let have = match store.ask(Op::get(vec![format.clone()])).await.map_err(failed)? {
        Outcome::Values(v) => v.into_iter().next().flatten(),
        _ => None,
    };
    let Some(mut have) = have.map(|e| e.value) else {
        return Err(MonError::Archive(format!("{shown} holds no cluster")));
    };
    for then in parts {
        let new_format = then.iter().find_map(|w| match w {
            Write::Put(k, v, _) if *k == format => Some(v.clone()),
            _ => None,
        });
        let no_leader = Compare::Modified(Bytes::from_static(key::MON_LEADER.as_bytes()), 0);
        let compare = vec![no_leader, Compare::Value(format.clone(), have.clone())];
        if store.ask(Op::Txn(Txn { compare, then })).await.map_err(failed)? != Outcome::Committed {
            return Err(MonError::Archive(format!("a monitor leads with its state in {shown}; stop all monitors")));
        }
        have = new_format.unwrap_or(have);
    }
    Ok(())
}

/// The newest map of a state, and the end of the global ids that it has given out.
async fn read(store: &mut Store, shown: &str) -> Result<(OsdMap, u64), MonError> {
    let failed = |error| MonError::Store { path: shown.to_owned(), error };
    let bad = |error| MonError::Load { path: shown.to_owned(), error };
    let mut at = 0;
    let records = store.read(load::ranges(), &mut at).await.map_err(failed)?;
    let record = |name: &str| records.iter().find(|(k, _)| k == name).map(|(_, e)| e.value.clone());
    load::check_format(record, true).map_err(bad)?;
    let maps = store.read(load::map_ranges(&records).map_err(bad)?, &mut at).await.map_err(failed)?;
    Ok((advance::newest(&records, &maps).map_err(bad)?, advance::global_ids(&records).map_err(bad)?))
}

/// The newest OSD map of a state. Error: it cannot be read.
pub fn newest(place: &Place) -> Result<OsdMap, MonError> {
    let shown = place.shown();
    run_here(|_, _| async { Ok(read(&mut place.open(false)?, &shown).await?.0) })
        .map_err(|error| MonError::Io { path: place.shown(), error })?
}

/// Moves the OSD map of a state `by` epochs on, with all OSDs down, after the map that an OSD has kept if the state does
/// not know of changes in it: what the OSDs have follows their maps, not the state. All monitors must be stopped.
/// Returns the epochs before and after. Error: the state cannot be read or written, or a monitor leads.
pub fn advance(place: &Place, by: u32, kept: Option<&OsdMap>) -> Result<(Epoch, Epoch), MonError> {
    let shown = place.shown();
    run_here(|_, _| async {
        let mut store = place.open(false)?;
        let (map, ids) = read(&mut store, &shown).await?;
        let made = advance::advance(&advance::base(map, kept), ids, by, clock::read().wall);
        let Advance { parts, from, to } = made.map_err(|error| MonError::Load { path: shown.clone(), error })?;
        write(&mut store, &shown, parts).await?;
        Ok((from, to))
    })
    .map_err(|error| MonError::Io { path: place.shown(), error })?
}

/// Makes a monitor's state in a directory from an OSD map that OSDs have kept: keys and addresses of `o`, and `map`,
/// moved on by `by` epochs. The state appears when it is whole. Returns the new epoch. Error: there is a state already,
/// or it cannot be written.
pub fn rebuild(o: &MkfsOptions, map: &OsdMap, by: u32) -> Result<Epoch, MonError> {
    let path = o.data_dir.join(STATE_FILE);
    let io = |path: &Path, error| MonError::Io { path: path.display().to_string(), error };
    if path.exists() {
        return Err(MonError::Exists(path.display().to_string()));
    }
    let making = o.data_dir.join("rebuilding");
    match std::fs::remove_dir_all(&making) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(&making, e)),
        _ => {}
    }
    let made = making.join(STATE_FILE);
    let bad = |error| MonError::Load { path: made.display().to_string(), error };
    mkfs(&MkfsOptions { data_dir: making.clone(), ..o.clone() })?;
    let Advance { parts, to, .. } = advance::advance(map, 0, by, clock::read().wall).map_err(bad)?;
    let shown = made.display().to_string();
    run_here(|_, _| async { write(&mut Store::open(&made)?, &shown, parts).await }).map_err(|e| io(&made, e))??;
    let put = || {
        std::fs::rename(&made, &path)?;
        std::fs::remove_dir_all(&making)?;
        std::fs::File::open(&o.data_dir)?.sync_all()
    };
    put().map_err(|e| io(&path, e))?;
    Ok(to)
}
