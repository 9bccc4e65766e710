//! Are the file-system maps of real monitors decoded to the end and re-encoded unchanged, with the right values?

use bytes::Bytes;
use std::path::Path;
use wire::types::{FsMap, MdsMap, fs_flag, mds_state};
use wire::{Decode, Encode, Features};

fn vectors() -> Vec<(String, Bytes)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/fsmap");
    let mut v: Vec<(String, Bytes)> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|x| x == "bin"))
        .map(|p| (p.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read(&p).unwrap().into()))
        .collect();
    v.sort();
    assert!(v.len() >= 16, "{}", v.len());
    v
}

fn map(name: &str) -> FsMap {
    let all = vectors();
    let (_, b) = all.iter().find(|(n, _)| n == name).unwrap();
    FsMap::from_bytes(b).unwrap()
}

#[test]
fn read_and_written_alike() {
    for (name, bytes) in vectors() {
        let m = FsMap::from_bytes(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(m.to_bytes(Features::PACIFIC), bytes, "{name}");
        let tentacle = name.starts_with('t');
        assert_eq!(m.btime.is_some(), tentacle, "{name}");
        for f in m.filesystems.values() {
            assert_eq!(f.mds_map.ev, if tentacle { 19 } else { 16 }, "{name}");
        }
        for cut in 0..bytes.len() {
            assert!(FsMap::from_bytes(&bytes.slice(..cut)).is_err(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn fields_of_maps() {
    let m = map("t-48");
    let fs = m.fs_by_name("home").unwrap();
    assert!(fs.mds_map.has_flag(fs_flag::ALLOW_STANDBY_REPLAY));
    assert_eq!((fs.mds_map.max_mds, fs.mds_map.ranks_in.len()), (2, 2));
    assert_eq!(fs.mds_map.follower(0).unwrap().name, "c");
    assert_eq!(fs.mds_map.holder(1).unwrap().state, mds_state::ACTIVE);
    assert!(m.standby_daemons.is_empty() && fs.mds_map.is_resizeable() && !fs.mds_map.is_degraded());
    assert_eq!((fs.mds_map.bal_rank_mask.as_str(), fs.mds_map.max_xattr_size), ("-1", 65_536));
    assert_eq!(fs.mds_map.qdb_members.len(), 2);

    let m = map("t-62");
    let fs = m.fs_by_name("home").unwrap();
    assert!(fs.mds_map.is_degraded() && fs.mds_map.failed.contains(&1) && fs.mds_map.last_failure_osd_epoch.0 > 0);

    let m = map("t-83");
    let fs = m.fs_by_name("house").unwrap();
    assert_eq!(fs.mirror_info.peers[0].remote.client_name, "client.x");
    assert_eq!(m.standby_daemons.len(), 3);

    let m = map("p-63");
    let fs = m.fs_by_name("home").unwrap();
    assert!(fs.mds_map.requires_client(13) || !fs.mds_map.required_client_features.is_empty());
    assert_eq!(m.effective_epoch(*m.standby_daemons.keys().next().unwrap()), m.standby_epochs.values().next().copied());
}

#[test]
fn client_features_are_kept_in_whole_blocks() {
    let mut m = MdsMap::default();
    m.require_client(70, true);
    m.require_client(8, true);
    assert_eq!(m.required_client_features.len(), 16);
    assert!(m.requires_client(70) && m.requires_client(8) && !m.requires_client(9));
    m.require_client(70, false);
    assert_eq!(m.required_client_features.len(), 8);
    m.require_client(8, false);
    assert!(m.required_client_features.is_empty());
}

#[test]
fn a_file_system_that_is_there_twice_is_refused() {
    let bytes = map("t-100").to_bytes(Features::PACIFIC);
    let mut m = FsMap::from_bytes(&bytes).unwrap();
    let (first, second) = (*m.filesystems.keys().next().unwrap(), m.filesystems.values_mut().last().unwrap());
    assert_ne!(second.fscid, first);
    second.fscid = first;
    let bytes = m.to_bytes(Features::PACIFIC);
    assert!(FsMap::from_bytes(&bytes).is_err());
}
