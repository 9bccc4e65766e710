//! Mirrors of file systems: whether one is mirrored, and its peers.

use super::{changed, modify};
use crate::command::{CommandOutcome, Ctx, Res, committed, done, invalid};
use wire::types::{MirrorCluster, MirrorInfo, MirrorPeer};

/// Most mirror peers of a file system.
const MAX_PEERS: usize = 100;

pub(super) fn mirror_enable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if fs.mirror_info.mirrored {
        return done("");
    }
    modify(c, fs.fscid, |f| f.mirror_info.mirrored = true);
    committed("")
}

pub(super) fn mirror_disable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if !fs.mirror_info.mirrored {
        return done("");
    }
    modify(c, fs.fscid, |f| f.mirror_info = MirrorInfo::default());
    committed("")
}

pub(super) fn peer_add(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if !fs.mirror_info.mirrored {
        return invalid(format!("Mirroring not enabled for filesystem '{}'", fs.mds_map.fs_name));
    }
    let uuid = c.args.str("uuid")?;
    let spec = c.args.str("remote_cluster_spec")?;
    let Some((client, cluster)) = spec.split_once('@') else {
        return invalid("invalid remote cluster spec -- should be <client>@<cluster>");
    };
    let remote = MirrorCluster {
        client_name: client.to_owned(),
        cluster_name: cluster.to_owned(),
        fs_name: c.args.str("remote_fs_name")?,
    };
    if fs.mirror_info.peers.iter().any(|p| p.uuid == uuid || p.remote == remote) {
        return done("peer already exists");
    }
    if fs.mirror_info.peers.len() >= MAX_PEERS {
        return invalid(format!("no more than {MAX_PEERS} peers"));
    }
    modify(c, fs.fscid, |f| {
        f.mirror_info.peers.push(MirrorPeer { uuid, remote });
        f.mirror_info.peers.sort_by(|a, b| a.uuid.cmp(&b.uuid));
    });
    committed("")
}

pub(super) fn peer_remove(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if !fs.mirror_info.mirrored {
        return invalid(format!("Mirroring not enabled for filesystem '{}'", fs.mds_map.fs_name));
    }
    let uuid = c.args.str("uuid")?;
    if !fs.mirror_info.peers.iter().any(|p| p.uuid == uuid) {
        return done(format!("cannot find peer with uuid: {uuid}"));
    }
    modify(c, fs.fscid, |f| f.mirror_info.peers.retain(|p| p.uuid != uuid));
    committed("")
}
