//! Asks hosts and monitors for the facts of a plan.

use super::cluster;
use super::dir::Known;
use super::run::together;
use super::ssh::Host;
use super::{Error, Site, scripts, tls};
use deploy::facts::{Member, PROBE, Reach, Release};
use deploy::inventory::Select;
use deploy::{ClusterState, Facts, Home};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for a host to answer all questions.
const PROBE_MAX: Duration = Duration::from_secs(60);

/// The release of a package or program file.
fn release(package: &Path) -> Result<Release, Error> {
    let shown = package.display();
    if package.extension().is_some_and(|e| e == "deb") {
        let out = std::process::Command::new("dpkg-deb").arg("-f").arg(package).arg("Version").output();
        let out = out.map_err(|e| format!("dpkg-deb: {e}"))?;
        let version = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        if !out.status.success() || version.is_empty() {
            return Err(format!("package {shown}: {}", String::from_utf8_lossy(&out.stderr).trim()).into());
        }
        return Ok(Release::Package(version));
    }
    let out = std::process::Command::new("sha256sum").arg(package).output().map_err(|e| format!("sha256sum: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    match text.split(' ').next().filter(|d| out.status.success() && !d.is_empty()) {
        Some(digest) => Ok(Release::Program(digest.trim_start_matches('\\').to_owned())),
        None => Err(format!("package {shown}: {}", String::from_utf8_lossy(&out.stderr).trim()).into()),
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// How far a time is outside a span that begins at 0, in milliseconds.
fn outside(at: i64, span: i64) -> i64 {
    if at < 0 { at } else { at.saturating_sub(span).max(0) }
}

impl Site {
    /// How a host of the inventory, or an earlier one, is reached.
    pub(super) fn reach(&self, name: &str) -> Result<Host, Error> {
        if let Some(h) = self.inventory.hosts.get(name) {
            return Ok(self.ssh.host(h.address, h.user.as_ref()));
        }
        let known = self.dir.known()?;
        let k = known.get(name).ok_or_else(|| format!("{name}: its address is not known"))?;
        Ok(self.ssh.host(k.address, k.user.as_ref()))
    }

    /// Devices and directories that the probe of a host looks at.
    fn watched(&self, name: &str) -> Vec<String> {
        let of = |s: &Select| match s {
            Select::Free { .. } => Vec::new(),
            Select::Paths(p) => p.clone(),
            Select::Files { directory, .. } => vec![directory.clone()],
        };
        self.inventory.rules_of(name).flat_map(|r| of(&r.select)).collect()
    }

    async fn probe(&self, name: &str) -> Reach {
        let asked = async {
            let before = now_ms();
            let text = self.ssh.script(&self.reach(name)?, PROBE, &self.watched(name), PROBE_MAX).await?;
            let mut f = deploy::facts::parse(&text, before)?;
            f.clock_ms = outside(f.clock_ms, now_ms() - before);
            Ok::<_, Error>(f)
        };
        match asked.await {
            Ok(f) => Reach::Answers(Box::new(f)),
            Err(e) => Reach::Silent(e.to_string()),
        }
    }

    /// Members of etcd, as the first host tells that has one that answers.
    async fn members(&self, facts: &Facts) -> Result<Vec<Member>, Error> {
        let mut failed = "no host with a member answers".to_owned();
        let hosts = facts.hosts.keys().filter(|n| facts.host(n).is_some_and(|h| !h.etcd.is_empty()));
        for name in hosts {
            let address = self.reach(name)?.address;
            match self.ssh.script(&self.reach(name)?, &scripts::members(address), &[], PROBE_MAX).await {
                Ok(text) => {
                    return parse_members(&text).ok_or_else(|| format!("etcdctl on {name} printed {text}").into());
                }
                Err(e) => failed = format!("{name}: {e}"),
            }
        }
        Err(failed.into())
    }
}

/// The address in a URL with a port.
fn address(url: &str) -> Option<IpAddr> {
    let at: std::net::SocketAddr = url.split("://").nth(1)?.parse().ok()?;
    Some(at.ip())
}

/// Members from two answers of `etcdctl`, one a line: the list, and the health of those with a client's URL.
fn parse_members(text: &str) -> Option<Vec<Member>> {
    let mut lines = text.lines().filter(|l| l.starts_with(['{', '[']));
    let list: Value = serde_json::from_str(lines.next()?).ok()?;
    let health: Value = lines.next().and_then(|l| serde_json::from_str(l).ok()).unwrap_or_default();
    let healthy: Vec<IpAddr> = health
        .as_array()
        .into_iter()
        .flatten()
        .filter(|h| h["health"] == true)
        .filter_map(|h| address(h["endpoint"].as_str()?))
        .collect();
    let member = |m: &Value| {
        let address = address(m["peerURLs"][0].as_str()?)?;
        let id = format!("{:x}", m["ID"].as_u64()?);
        let started = m["name"].as_str().is_some_and(|n| !n.is_empty());
        Some(Member { id, address, started, healthy: healthy.contains(&address) })
    };
    list["members"].as_array()?.iter().map(member).collect()
}

/// Facts of all hosts and of the cluster.
pub(super) async fn facts(site: &Site) -> Result<Facts, Error> {
    let fsid = site.dir.fsid()?;
    site.dir.write_conf(&site.inventory, &fsid)?;
    let authority = if site.inventory.has_etcd() { tls::authority(&site.dir)? } else { String::new() };
    let known = site.dir.known()?;
    let is_former = |(n, _): &(&String, &Known)| !site.inventory.hosts.contains_key(*n);
    let former: BTreeMap<String, IpAddr> =
        known.iter().filter(is_former).map(|(n, k)| (n.clone(), k.address)).collect();
    let skipped = site.without.iter().cloned().collect();
    let names = site.inventory.hosts.keys().filter(|n| !site.without.contains(n)).chain(former.keys());
    let names: Vec<String> = names.cloned().collect();
    let asked = together(site.ssh.parallel(), names.iter().map(|n| site.probe(n))).await;
    let hosts = names.iter().cloned().zip(asked).collect();
    let release = release(&site.package)?;
    let mut f = Facts { fsid, release, authority, hosts, skipped, former, cluster: ClusterState::Absent };
    if !site.dir.is_made() {
        return Ok(f);
    }
    f.cluster = match cluster::ask(site, &f).await {
        Ok(mut c) => {
            // While the state is in a file, etcd is being made for it.
            if f.stated_home() == Home::Etcd {
                c.etcd = site.members(&f).await.map_err(|e| format!("members of etcd: {e}"))?;
            }
            ClusterState::Answers(Box::new(c))
        }
        Err(e) => ClusterState::Silent(e.to_string()),
    };
    Ok(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_right_within_the_time_of_the_question() {
        assert_eq!([outside(-5, 10), outside(0, 10), outside(10, 10), outside(17, 10)], [-5, 0, 0, 7]);
    }

    #[test]
    fn members_of_etcd_are_parsed() {
        let text = "{\"header\":{},\"members\":[\
            {\"ID\":10501334649042878790,\"name\":\"a\",\"peerURLs\":[\"https://10.0.0.1:2380\"],\"clientURLs\":[\"https://10.0.0.1:2379\"]},\
            {\"ID\":3,\"name\":\"\",\"peerURLs\":[\"https://10.0.0.2:2380\"]}]}\n\
            [{\"endpoint\":\"https://10.0.0.1:2379\",\"health\":true,\"took\":\"1ms\"}]\n";
        let all = parse_members(text).unwrap();
        let shown: Vec<_> = all.iter().map(|m| (m.id.as_str(), m.started, m.healthy)).collect();
        assert_eq!(shown, [("91bc3c398fb3c146", true, true), ("3", false, false)]);
        assert!(parse_members("Error: context deadline exceeded").is_none());
        assert!(parse_members("{\"members\":[{\"ID\":1,\"peerURLs\":[\"unix:///x\"]}]}").is_none());
    }
}
