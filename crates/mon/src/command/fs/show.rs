//! The FSMap as tree and as text, and its lines in `status`.

use super::J;
use super::features::FEATURES;
use crate::command::osd::dump::addrvec;
use crate::obj;
use base::addr::AddrKind;
use base::{AddrVec, EntityAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use wire::types::{CompatSet, FeatureSet, Filesystem, FsMap, MdsInfo, MdsMap, MirrorInfo, fs_flag, mds_state};

fn features_tree(f: &FeatureSet) -> J {
    J::Obj(f.names.iter().map(|(n, t)| (format!("feature_{n}").into(), J::from(t))).collect())
}

/// On-disk features.
pub(super) fn compat_tree(c: &CompatSet) -> J {
    obj! {
        "compat": features_tree(&c.compat),
        "ro_compat": features_tree(&c.ro_compat),
        "incompat": features_tree(&c.incompat),
    }
}

/// On-disk features as text.
pub(super) fn compat_text(c: &CompatSet) -> String {
    let set = |f: &FeatureSet| {
        let v: Vec<String> = f.names.iter().map(|(n, t)| format!("{n}={t}")).collect();
        format!("{{{}}}", v.join(","))
    };
    format!("compat={},rocompat={},incompat={}", set(&c.compat), set(&c.ro_compat), set(&c.incompat))
}

/// `IP:PORT/NONCE` of the msgr1 address if there is one.
fn plain_addr(v: &AddrVec) -> String {
    let a = v.legacy().or_else(|| v.0.first()).copied().unwrap_or_default();
    EntityAddr { kind: AddrKind::ANY, ..a }.to_string().trim_start_matches("any:").to_owned()
}

fn info_tree(i: &MdsInfo) -> J {
    let mut j = obj! {
        "gid": i.global_id,
        "name": &i.name,
        "rank": i.rank,
        "incarnation": i.inc,
        "state": mds_state::name(i.state),
        "state_seq": i.state_seq,
        "addr": plain_addr(&i.addrs),
        "addrs": addrvec(Some(&i.addrs)),
        "join_fscid": i.join_fscid,
    };
    if i.is_laggy() {
        j.put("laggy_since", i.laggy_since.iso());
    }
    j.put("export_targets", i.export_targets.iter().copied().collect::<J>())
        .put("features", i.mds_features)
        .put("flags", i.flags)
        .put("compat", compat_tree(&i.compat));
    j
}

const FLAGS: [(u32, &str); 7] = [
    (fs_flag::NOT_JOINABLE, "joinable"),
    (fs_flag::ALLOW_SNAPS, "allow_snaps"),
    (fs_flag::ALLOW_MULTIMDS_SNAPS, "allow_multimds_snaps"),
    (fs_flag::ALLOW_STANDBY_REPLAY, "allow_standby_replay"),
    (fs_flag::REFUSE_CLIENT_SESSION, "refuse_client_session"),
    (fs_flag::REFUSE_STANDBY_FOR_ANOTHER_FS, "refuse_standby_for_another_fs"),
    (fs_flag::BALANCE_AUTOMATE, "balance_automate"),
];

fn shown_flags(m: &MdsMap) -> impl Iterator<Item = (&'static str, bool)> + '_ {
    // Ceph shows the first flag, NOT_JOINABLE, inverted as "joinable".
    FLAGS.iter().map(|(f, n)| (*n, m.has_flag(*f) != (*f == fs_flag::NOT_JOINABLE)))
}

/// Flags of an MDSMap by name.
pub(super) fn flags_tree(m: &MdsMap) -> J {
    J::Obj(shown_flags(m).map(|(n, on)| (n.into(), on.into())).collect())
}

/// Names of the flags that are set, each after a space.
pub(super) fn flags_text(m: &MdsMap) -> String {
    shown_flags(m).filter(|(_, on)| *on).map(|(n, _)| format!(" {n}")).collect()
}

fn required(m: &MdsMap) -> Vec<(usize, &'static str)> {
    FEATURES.iter().enumerate().filter(|(i, _)| m.requires_client(*i)).map(|(i, n)| (i, *n)).collect()
}

fn ranks(s: &BTreeSet<i32>) -> J {
    s.iter().copied().collect()
}

fn map_tree(m: &MdsMap) -> J {
    obj! {
        "epoch": m.epoch.0,
        "flags": m.flags,
        "flags_state": flags_tree(m),
        "ever_allowed_features": m.ever_allowed_features,
        "explicitly_allowed_features": m.explicitly_allowed_features,
        "created": m.created.iso(),
        "modified": m.modified.iso(),
        "tableserver": m.tableserver,
        "root": m.root,
        "session_timeout": m.session_timeout,
        "session_autoclose": m.session_autoclose,
        "required_client_features":
            J::Obj(required(m).into_iter().map(|(i, n)| (format!("feature_{i}").into(), n.into())).collect()),
        "max_file_size": m.max_file_size,
        "max_xattr_size": m.max_xattr_size,
        "last_failure": m.last_failure.0,
        "last_failure_osd_epoch": m.last_failure_osd_epoch.0,
        "compat": compat_tree(&m.compat),
        "max_mds": m.max_mds,
        "in": ranks(&m.ranks_in),
        "up": J::Obj(m.up.iter().map(|(r, g)| (format!("mds_{r}").into(), J::from(*g))).collect()),
        "failed": ranks(&m.failed),
        "damaged": ranks(&m.damaged),
        "stopped": ranks(&m.stopped),
        "info": J::Obj(m.mds_info.iter().map(|(g, i)| (format!("gid_{g}").into(), info_tree(i))).collect()),
        "data_pools": m.data_pools.iter().map(|p| p.0).collect::<J>(),
        "metadata_pool": m.metadata_pool.0,
        "enabled": m.enabled,
        "fs_name": &m.fs_name,
        "balancer": &m.balancer,
        "bal_rank_mask": &m.bal_rank_mask,
        "standby_count_wanted": m.standby_count_wanted.max(0),
        "qdb_leader": m.qdb_leader,
        "qdb_cluster": m.qdb_members.iter().copied().collect::<J>(),
    }
}

fn mirror_tree(i: &MirrorInfo) -> J {
    let peer = |p: &wire::types::MirrorPeer| {
        let remote = obj! {
            "client_name": &p.remote.client_name,
            "cluster_name": &p.remote.cluster_name,
            "fs_name": &p.remote.fs_name,
        };
        (p.uuid.clone().into(), obj! { "remote": remote })
    };
    obj! { "peers": J::Obj(i.peers.iter().map(peer).collect()) }
}

/// One file system as a tree.
pub(super) fn fs_tree(f: &Filesystem) -> J {
    let mut j = obj! { "mdsmap": map_tree(&f.mds_map), "id": f.fscid };
    if f.mirror_info.mirrored {
        j.put("mirror_info", mirror_tree(&f.mirror_info));
    }
    j
}

/// The creation time of an epoch in Ceph's form: a colon before the microseconds.
fn btime(t: base::Utime) -> String {
    t.iso().replacen('.', ":", 1)
}

/// The whole FSMap as a tree.
pub(in crate::command) fn tree(m: &FsMap) -> J {
    let mut j = obj! { "epoch": m.epoch.0 };
    if let Some(t) = m.btime {
        j.put("btime", btime(t));
    }
    let standby = |(gid, i): (&u64, &MdsInfo)| {
        let mut s = info_tree(i);
        s.put("epoch", m.standby_epochs.get(gid).map_or(0, |e| e.0));
        s
    };
    j.put("default_fscid", m.legacy_client_fscid)
        .put("compat", compat_tree(&m.default_compat))
        .put(
            "feature_flags",
            obj! { "enable_multiple": m.enable_multiple, "ever_enabled_multiple": m.ever_enabled_multiple },
        )
        .put("standbys", m.standby_daemons.iter().map(standby).collect::<J>())
        .put("filesystems", m.filesystems.values().map(fs_tree).collect::<J>());
    j
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(",")
}

fn info_text(i: &MdsInfo) -> String {
    let mut s =
        format!("[mds.{}{{{}:{}}} state {} seq {}", i.name, i.rank, i.global_id, mds_state::name(i.state), i.state_seq);
    if i.is_laggy() {
        s += &format!(" laggy since {}", i.laggy_since);
    }
    if !i.export_targets.is_empty() {
        s += &format!(" export targets {}", list(&i.export_targets));
    }
    if i.is_frozen() {
        s += " frozen";
    }
    if i.join_fscid != -1 {
        s += &format!(" join_fscid={}", i.join_fscid);
    }
    // Ceph sets the lowest bit in every mask that it shows.
    let mask = |f: &FeatureSet| f.mask | 1;
    let c = &i.compat;
    let masks = (mask(&c.compat), mask(&c.ro_compat), mask(&c.incompat));
    s + &format!(" addr {} compat {{c=[{:x}],r=[{:x}],i=[{:x}]}}]", i.addrs, masks.0, masks.1, masks.2)
}

fn map_text(m: &MdsMap, s: &mut String) -> std::fmt::Result {
    writeln!(s, "fs_name\t{}\nepoch\t{}\nflags\t{:x}{}", m.fs_name, m.epoch, m.flags, flags_text(m))?;
    writeln!(s, "created\t{}\nmodified\t{}", m.created, m.modified)?;
    writeln!(s, "tableserver\t{}\nroot\t{}", m.tableserver, m.root)?;
    writeln!(s, "session_timeout\t{}\nsession_autoclose\t{}", m.session_timeout, m.session_autoclose)?;
    writeln!(s, "max_file_size\t{}\nmax_xattr_size\t{}", m.max_file_size, m.max_xattr_size)?;
    let features: Vec<String> = required(m).iter().map(|(i, n)| format!("{i}={n}")).collect();
    writeln!(s, "required_client_features\t{{{}}}", features.join(","))?;
    writeln!(s, "last_failure\t{}\nlast_failure_osd_epoch\t{}", m.last_failure, m.last_failure_osd_epoch)?;
    writeln!(s, "compat\t{}\nmax_mds\t{}\nin\t{}", compat_text(&m.compat), m.max_mds, list(&m.ranks_in))?;
    writeln!(s, "up\t{{{}}}", list(m.up.iter().map(|(r, g)| format!("{r}={g}"))))?;
    writeln!(s, "failed\t{}\ndamaged\t{}\nstopped\t{}", list(&m.failed), list(&m.damaged), list(&m.stopped))?;
    writeln!(s, "data_pools\t[{}]", list(m.data_pools.iter().map(|p| p.0)))?;
    writeln!(s, "metadata_pool\t{}", m.metadata_pool.0)?;
    writeln!(s, "inline_data\t{}", if m.inline_data_enabled { "enabled" } else { "disabled" })?;
    writeln!(s, "balancer\t{}\nbal_rank_mask\t{}", m.balancer, m.bal_rank_mask)?;
    writeln!(s, "standby_count_wanted\t{}", m.standby_count_wanted.max(0))?;
    writeln!(s, "qdb_cluster\tleader: {} members: {}", m.qdb_leader, list(&m.qdb_members))?;
    let mut infos: Vec<&MdsInfo> = m.mds_info.values().collect();
    infos.sort_by_key(|i| (i.rank, i.inc));
    for i in infos {
        writeln!(s, "{}", info_text(i))?;
    }
    Ok(())
}

/// One file system as text.
pub(super) fn fs_text(f: &Filesystem) -> String {
    let mut s = format!("Filesystem '{}' ({})\n", f.mds_map.fs_name, f.fscid);
    let r = map_text(&f.mds_map, &mut s);
    debug_assert!(r.is_ok(), "writing to a String");
    if f.mirror_info.mirrored {
        let peer = |p: &wire::types::MirrorPeer| {
            format!(
                "[uuid={}, remote=[client_name={}, cluster_name={}, fs_name={}]\n]\n",
                p.uuid, p.remote.client_name, p.remote.cluster_name, p.remote.fs_name
            )
        };
        s += &format!("[peers={}]\n", list(f.mirror_info.peers.iter().map(peer)));
    }
    s
}

/// The whole FSMap as text.
pub(super) fn text(m: &FsMap) -> String {
    let mut s = format!("e{}\n", m.epoch);
    if let Some(t) = m.btime {
        s += &format!("btime {}\n", btime(t));
    }
    let (on, ever) = (u8::from(m.enable_multiple), u8::from(m.ever_enabled_multiple));
    s += &format!("enable_multiple, ever_enabled_multiple: {on},{ever}\n");
    s += &format!(
        "default compat: {}\nlegacy client fscid: {}\n \n",
        compat_text(&m.default_compat),
        m.legacy_client_fscid
    );
    if m.filesystems.is_empty() {
        s += "No filesystems configured\n";
    }
    for f in m.filesystems.values() {
        s += &fs_text(f);
        s += " \n \n";
    }
    if !m.standby_daemons.is_empty() {
        s += "Standby daemons:\n \n";
    }
    for i in m.standby_daemons.values() {
        s += &info_text(i);
        s.push('\n');
    }
    s
}

/// Name of an MDS state, marked if the daemon is laggy.
fn state_text(i: &MdsInfo) -> String {
    format!("{}{}", mds_state::name(i.state), if i.is_laggy() { "(laggy or crashed)" } else { "" })
}

/// The whole FSMap in one line.
pub(super) fn summary(m: &FsMap) -> String {
    let up_of_in = |m: &MdsMap| format!("{}:{}/{}", m.fs_name, m.up.len(), m.ranks_in.len());
    let maps: Vec<&MdsMap> = m.filesystems.values().map(|f| &f.mds_map).collect();
    let mut s = if maps.len() <= 3 {
        let one =
            |m: &&MdsMap| if m.is_degraded() { up_of_in(m) } else { format!("{}:{}", m.fs_name, m.ranks_in.len()) };
        maps.iter().map(one).collect::<Vec<_>>().join(" ")
    } else {
        let bad: Vec<&&MdsMap> = maps.iter().filter(|m| m.is_degraded()).collect();
        let bad = match bad.len() {
            0 => String::new(),
            n if n <= 3 => format!(" (degraded: {})", bad.iter().map(|m| up_of_in(m)).collect::<Vec<_>>().join(" ")),
            n => format!(" (degraded: {n} fs)"),
        };
        format!("{} fs{bad}", maps.len())
    };
    let mut by_state: BTreeMap<i32, usize> = [(mds_state::STANDBY, m.standby_daemons.len())].into();
    let mut by_rank: BTreeMap<(i32, i32), (i32, String)> = BTreeMap::new();
    for (id, f) in &m.filesystems {
        for i in f.mds_map.mds_info.values() {
            *by_state.entry(i.state).or_default() += 1;
            if !i.is_follower() {
                by_rank.insert((*id, i.rank), (i.state, format!("{}={}", i.name, state_text(i))));
            }
        }
    }
    if (1..5).contains(&by_rank.len()) {
        let mut v: Vec<String> = Vec::new();
        for ((id, rank), (state, t)) in &by_rank {
            let name = m.filesystems.get(id).map(|f| f.mds_map.fs_name.as_str()).unwrap_or_default();
            v.push(if maps.len() > 1 { format!("{name}:{rank}={t}") } else { format!("{rank}={t}") });
            if let Some(n) = by_state.get_mut(state) {
                *n = n.saturating_sub(1);
            }
        }
        v.sort_unstable();
        s += &format!(" {{{}}}", v.join(","));
    }
    for (state, n) in by_state.iter().filter(|(_, n)| **n > 0) {
        s += &format!(" {n} {}", mds_state::name(*state));
    }
    for (n, word) in [
        (maps.iter().map(|m| m.failed.len()).sum::<usize>(), "failed"),
        (maps.iter().map(|m| m.damaged.len()).sum::<usize>(), "damaged"),
    ] {
        if n > 0 {
            s += &format!(", {n} {word}");
        }
    }
    s
}

/// The line of `status`, services: how many MDS daemons are up, and in which states.
pub(in crate::command) fn daemon_summary(m: &FsMap) -> String {
    let sum = |f: &dyn Fn(&MdsMap) -> usize| m.filesystems.values().map(|x| f(&x.mds_map)).sum::<usize>();
    let (up, inn, failed) = (sum(&|m| m.up.len()), sum(&|m| m.ranks_in.len()), sum(&|m| m.failed.len()));
    let hot = sum(&|m| m.count(mds_state::STANDBY_REPLAY));
    let mut s = format!("{up}/{inn} daemons up");
    if failed > 0 {
        s += &format!(" ({failed} failed)");
    }
    if !m.standby_daemons.is_empty() {
        s += &format!(", {} standby", m.standby_daemons.len());
    }
    if hot > 0 {
        s += &format!(", {hot} hot standby");
    }
    s
}

/// The line of `status`, data: how many file systems are healthy.
pub(in crate::command) fn fs_summary(m: &FsMap) -> Option<String> {
    if m.filesystems.is_empty() {
        return None;
    }
    let (mut healthy, mut recovering, mut failed, mut stopped, mut damaged) = (0, 0, 0, 0, 0);
    for x in m.filesystems.values().map(|f| &f.mds_map) {
        damaged += usize::from(!x.damaged.is_empty());
        let which = if !x.failed.is_empty() {
            &mut failed
        } else if x.is_degraded() {
            &mut recovering
        } else if x.max_mds == 0 {
            &mut stopped
        } else {
            &mut healthy
        };
        *which += 1;
    }
    let mut s = format!("{healthy}/{} healthy", m.filesystems.len());
    for (n, sep, word) in
        [(recovering, ",", "recovering"), (failed, ",", "failed"), (stopped, ",", "stopped"), (damaged, ";", "damaged")]
    {
        if n > 0 {
            s += &format!("{sep} {n} {word}");
        }
    }
    Some(s)
}

/// The part of `status` about file systems, as a tree.
pub(in crate::command) fn status_tree(m: &FsMap) -> J {
    let mut j = obj! { "epoch": m.epoch.0 };
    if let Some(t) = m.btime {
        j.put("btime", btime(t));
    }
    for (id, f) in &m.filesystems {
        let x = &f.mds_map;
        j.put("id", *id).put("up", x.up.len()).put("in", x.ranks_in.len()).put("max", x.max_mds);
    }
    let mut by_rank = Vec::new();
    for (gid, id) in m.mds_roles.iter().filter(|(_, id)| **id != -1) {
        if let Some(i) = m.daemon(*gid) {
            by_rank.push(obj! {
                "filesystem_id": *id,
                "rank": i.rank,
                "name": &i.name,
                "status": state_text(i),
                "gid": *gid,
            });
        }
    }
    j.put("by_rank", by_rank).put("up:standby", m.standby_daemons.len());
    for (n, word) in [
        (m.filesystems.values().map(|f| f.mds_map.failed.len()).sum::<usize>(), "failed"),
        (m.filesystems.values().map(|f| f.mds_map.damaged.len()).sum::<usize>(), "damaged"),
    ] {
        if n > 0 {
            j.put(word, n);
        }
    }
    j
}
