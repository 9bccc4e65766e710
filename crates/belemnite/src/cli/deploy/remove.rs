//! `deploy remove`: the whole cluster, with its data.

use super::run::together;
use super::{Error, Site, cluster, scripts};
use crate::cli::operate::{must_json, print};
use base::size;
use deploy::{ClusterState, Facts, HostFacts, Reach};
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;

/// Time for all daemons of a host to stop and its stores to be erased.
const HOST_MAX: Duration = Duration::from_secs(600);

/// Contents of the cluster, in words.
async fn held(site: &Site, f: &Facts) -> String {
    let asked = async {
        let d = must_json(&cluster::connect(site).await?, json!({"prefix": "df"})).await?;
        let pools = d["pools"].as_array().map_or(0, Vec::len);
        let objects: u64 =
            d["pools"].as_array().into_iter().flatten().filter_map(|p| p["stats"]["objects"].as_u64()).sum();
        let bytes = d["stats"]["total_used_bytes"].as_u64().unwrap_or_default();
        Ok::<_, Error>(format!("{pools} pools with {objects} objects, {}", size::show(bytes)))
    };
    match f.cluster {
        ClusterState::Absent => "no state".into(),
        _ => asked.await.unwrap_or_else(|e| format!("data that nobody can list ({e})")),
    }
}

/// Commands that remove metadata servers and gateways from a host.
fn services(name: &str, h: &HostFacts) -> String {
    let mut s = String::new();
    for u in [format!("ceph-mds@{name}"), format!("ceph-radosgw@rgw.{name}")] {
        if h.units.contains_key(&u) {
            let _ = writeln!(s, "systemctl -q disable --now {u} || true");
        }
    }
    let _ = writeln!(s, "rm -rf /var/lib/ceph/mds/ceph-{name} /var/lib/ceph/radosgw/ceph-rgw.{name}");
    scripts::script(&s)
}

/// Commands that remove OSDs from a host.
fn osds(h: &HostFacts) -> String {
    let mut s = String::new();
    for o in &h.stores {
        s += &scripts::erase(o.id, Some(&o.path), true);
    }
    for path in &h.making {
        let _ = writeln!(s, "belemnite osd zap --yes-i-really-mean-it {path} >/dev/null || true");
        let _ = writeln!(s, "if [ -f {path} ]; then rm -f {path}; fi");
    }
    scripts::script(&s)
}

/// Commands that remove monitors, etcd, configuration and keys from a host.
fn rest(name: &str) -> String {
    scripts::script(&format!(
        "systemctl -q disable --now belemnite-mon@{name} belemnite-etcd@{name} 2>/dev/null || true\n\
         systemctl reset-failed 'belemnite-*' 2>/dev/null || true\n\
         rm -rf /var/lib/ceph/mon/ceph-{name} /var/lib/belemnite/etcd/{name}\n{}",
        scripts::LEAVE
    ))
}

/// Runs a script on each host; says which hosts failed.
async fn on_all(site: &Site, all: Vec<(&String, String)>) -> Result<(), Error> {
    let one = async |(n, text): &(&String, String)| -> Result<(), String> {
        let host = site.reach(n).map_err(|e| e.to_string())?;
        let r = site.ssh.script(&host, text, &[], HOST_MAX).await;
        r.map(|_| ()).map_err(|e| format!("{n}: {e}"))
    };
    let failed = together(site.ssh.parallel(), all.iter().map(one)).await;
    let failed: Vec<String> = failed.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

/// `belemnite deploy remove`
pub(super) async fn remove(site: &Site, confirmed: bool) -> Result<(), Error> {
    let f = site.facts().await?;
    let held = held(site, &f).await;
    if !confirmed {
        return Err(format!(
            "this destroys the cluster {} with all its data: {held}. Add --yes-i-really-mean-it",
            f.fsid
        )
        .into());
    }
    for (n, r) in &f.hosts {
        if let Reach::Silent(why) = r {
            return Err(
                format!("{n}: does not answer: {why}. Nothing was changed; --without {n} leaves it as it is").into()
            );
        }
    }
    let is_ours = |h: &HostFacts| h.conf.as_ref().is_none_or(|c| c.fsid == f.fsid);
    let hosts: Vec<(&String, &HostFacts)> =
        f.hosts.keys().filter_map(|n| Some((n, f.host(n)?))).filter(|(_, h)| is_ours(h)).collect();
    print(&format!("removing the cluster {}: {held}", f.fsid));
    // Services end with their last requests, which OSDs answer.
    on_all(site, hosts.iter().map(|(n, h)| (*n, services(n, h))).collect()).await?;
    print("metadata servers and gateways are gone");
    on_all(site, hosts.iter().map(|(n, h)| (*n, osds(h))).collect()).await?;
    print("OSDs are gone");
    on_all(site, hosts.iter().map(|(n, _)| (*n, rest(n))).collect()).await?;
    site.dir.remove()?;
    print(&format!("the cluster is gone from {} hosts; the packages stay", hosts.len()));
    Ok(())
}
