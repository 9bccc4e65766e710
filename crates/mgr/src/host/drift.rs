//! Watches hosts for drift: one OSD at each address is asked now and then what costs it speed or safety there (`doctor`),
//! and what became worse is kept for the health check `HOST_DRIFT`.
//!
//! The monitors' `config-key` store has the best grades of a host at `mgr/doctor/hosts/<host>`, and what is worse now at
//! [`DRIFT`].
//!
//! Invariants:
//!  1. A check is told only if two looks in a row found it worse. It is told until a look at its host finds otherwise.
//!  2. A round asks [`HOSTS_MAX`] hosts at most, the next round those that follow, each for a bounded time. It writes only
//!     what has changed.
//!  3. A host that gives a wrong answer, or none, harms no other.
//!
//! Tests: below (1, `two_looks_tell_and_one_takes_back`; 3, `entries_of_hosts_that_are_silent_stay`).

use super::devices::{AT_ONCE, ask, tell, together, value_of};
use super::images::Service;
use base::errno::{EIO, Errno};
use base::{EntityAddr, Utime};
use bytes::Bytes;
use client::host::Client;
use cluster::OsdMap;
use doctor::{Grade, Worse, graded, grades_from_json, grades_to_json, worse};
use reactor::clock;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;

/// Key of what is worse now.
pub const DRIFT: &str = "mgr/doctor/drift";
/// Prefix of the keys with the best grades of hosts.
const HOSTS: &str = "mgr/doctor/hosts/";
/// Seconds between two rounds, unless an option says otherwise.
const INTERVAL: u64 = 3600;
/// Longest wait for the second look at what is found worse.
const AGAIN: Duration = Duration::from_secs(60);
/// Time after which the option is read again.
const REFRESH: Duration = Duration::from_secs(5);
/// Most hosts of a round.
const HOSTS_MAX: usize = 1024;
/// Most checks that are told, of all hosts, and most bytes of their entries: a key takes 64 KiB.
const TOLD_MAX: (usize, usize) = (100, 48 << 10);
/// Keys of hosts are kept until they are this many more than twice the addresses of OSDs.
const ABSENT_MAX: usize = 64;

type Failed = (Errno, String);

/// A check of a host.
type Place = (String, String);

/// Findings of the last look at each host.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Checks that were found worse.
    last: BTreeSet<Place>,
    /// The last address that was asked, if not all were.
    after: Option<IpAddr>,
}

impl Watch {
    /// Entries of [`DRIFT`] after a round that found `found` by host, and true if a second look is due soon. `old` are the
    /// entries so far; those of hosts in `absent`, which did not answer, stay.
    fn round(
        &mut self,
        found: &BTreeMap<String, Vec<Worse>>,
        absent: &BTreeSet<String>,
        old: &Value,
        now: Utime,
    ) -> (Value, bool) {
        let place = |v: &Value| Some((v["host"].as_str()?.to_owned(), v["check"].as_str()?.to_owned()));
        let told: BTreeMap<Place, &Value> =
            old.as_array().into_iter().flatten().filter_map(|v| Some((place(v)?, &v["since"]))).collect();
        let all = || found.iter().flat_map(|(host, all)| all.iter().map(move |w| ((host.clone(), w.check.clone()), w)));
        let since_now = Value::from(now.iso());
        let stay = old.as_array().into_iter().flatten();
        let stay = stay.filter(|v| v["host"].as_str().is_some_and(|h| absent.contains(h))).cloned();
        let sure = all().filter(|(p, _)| told.contains_key(p) || self.last.contains(p));
        let new = sure.map(|(place, w)| {
            json!({
                "host": place.0, "check": place.1, "was": w.was.word(), "now": w.now.severity.word(),
                "what": w.now.what, "change": w.now.change,
                "since": told.get(&place).copied().unwrap_or(&since_now),
            })
        });
        let (mut out, mut bytes) = (Vec::new(), 0);
        for entry in new.chain(stay).take(TOLD_MAX.0) {
            bytes += entry.to_string().len();
            if bytes > TOLD_MAX.1 {
                break;
            }
            out.push(entry);
        }
        let unsure = all().any(|(p, _)| !told.contains_key(&p) && !self.last.contains(&p));
        let kept: Vec<Place> = self.last.iter().filter(|p| absent.contains(&p.0)).cloned().collect();
        self.last = all().map(|(p, _)| p).chain(kept).collect();
        (out.into(), unsure)
    }
}

/// The first OSD that is up at each address.
fn hosts(map: &OsdMap) -> BTreeMap<IpAddr, EntityAddr> {
    let mut all: BTreeMap<IpAddr, EntityAddr> = BTreeMap::new();
    for osd in map.osds().filter(|o| map.is_up(*o)) {
        let Some(addr) = map.client_addr(osd).and_then(|a| a.msgr2().copied()) else { continue };
        let Some(socket) = addr.sock else { continue };
        all.entry(socket.ip()).or_insert(addr);
    }
    all
}

/// Grades that an OSD gives its host.
async fn look(c: &Client, addr: EntityAddr) -> Result<(String, BTreeMap<String, Grade>), Failed> {
    let answer = tell(c, &addr, addr, json!({"prefix": "doctor", "format": "json"})).await?;
    let report: Value = serde_json::from_slice(&answer).map_err(|e| (EIO, e.to_string()))?;
    graded(&report).ok_or_else(|| (EIO, "the answer is no report about a host".to_owned()))
}

/// The JSON of a key; null if the key does not exist.
async fn stored(c: &Client, key: &str) -> Result<Value, Failed> {
    Ok(value_of(c, key).await?.and_then(|v| serde_json::from_slice(&v).ok()).unwrap_or_default())
}

impl Service {
    /// Seconds between two rounds; `None` if hosts are not watched.
    fn doctor_interval(&self) -> Option<Duration> {
        let option = self.monitor.stored_option("mgr", "mgr/doctor/interval");
        let every = option.and_then(|v| v.trim().parse().ok()).unwrap_or(INTERVAL);
        (every > 0).then(|| Duration::from_secs(every))
    }

    /// Looks at the hosts in rounds; never completes.
    pub(super) async fn watch_hosts(&self) {
        let mut watch = Watch::default();
        let mut last: Option<tokio::time::Instant> = None;
        let (mut soon, mut is_off) = (false, false);
        loop {
            let interval = self.doctor_interval();
            if interval.is_none() && !is_off {
                is_off = self.tell_nothing().await.is_ok();
            }
            is_off &= interval.is_none();
            let due = interval.is_some_and(|every| {
                let wait = if soon { every.min(AGAIN) } else { every };
                last.is_none_or(|l| l.elapsed() >= wait)
            });
            if due && self.has_osds() {
                last = Some(tokio::time::Instant::now());
                match self.look_at_hosts(&mut watch).await {
                    Ok(unsure) => soon = unsure,
                    Err((e, text)) => {
                        tracing::debug!("mgr: hosts are not looked at this time: {text} ({})", base::errno::name(e));
                    }
                }
            }
            tokio::time::sleep(REFRESH).await;
        }
    }

    /// Takes back what is told, since hosts are not watched any more.
    async fn tell_nothing(&self) -> Result<(), Failed> {
        let c = self.connect().await.map_err(|e| (e, "the cluster does not answer".to_owned()))?;
        if !stored(&c, DRIFT).await?.is_null() {
            ask(&c, json!({"prefix": "config-key rm", "key": DRIFT})).await?;
        }
        Ok(())
    }

    fn has_osds(&self) -> bool {
        let map = self.monitor.osdmap();
        map.osds().any(|o| map.is_up(o))
    }

    /// A round; true if a second look is due soon.
    async fn look_at_hosts(&self, watch: &mut Watch) -> Result<bool, Failed> {
        let c = self.connect().await.map_err(|e| (e, "the cluster does not answer".to_owned()))?;
        let all = hosts(&self.monitor.osdmap());
        let next = watch.after.map_or(Bound::Unbounded, Bound::Excluded);
        let turn: Vec<(IpAddr, EntityAddr)> =
            all.range((next, Bound::Unbounded)).take(HOSTS_MAX).map(|(ip, a)| (*ip, *a)).collect();
        watch.after = turn.last().map(|(ip, _)| *ip).filter(|ip| all.keys().next_back() != Some(ip));
        let addrs: Vec<EntityAddr> = turn.into_iter().map(|(_, a)| a).collect();
        let mut found: BTreeMap<String, Vec<Worse>> = BTreeMap::new();
        for some in addrs.chunks(AT_ONCE) {
            let asked = some.iter().map(|a| look(&c, *a)).collect();
            for answer in together(asked).await {
                match answer {
                    Ok((host, now)) if !found.contains_key(&host) => match self.compare(&c, &host, &now).await {
                        Ok(all) => _ = found.insert(host, all),
                        Err((e, text)) => {
                            tracing::warn!(
                                "mgr: the grades of host {host} are not kept: {text} ({})",
                                base::errno::name(e)
                            );
                        }
                    },
                    Ok(_) => {}
                    Err((_, text)) => tracing::debug!("mgr: no look at a host: {text}"),
                }
            }
        }
        let absent = self.absent_hosts(&c, &found, all.len()).await?;
        let told = stored(&c, DRIFT).await?;
        let (new, unsure) = watch.round(&found, &absent, &told, clock::now().wall);
        let none = new.as_array().is_none_or(Vec::is_empty);
        match (none, told.is_null()) {
            (true, false) => drop(ask(&c, json!({"prefix": "config-key rm", "key": DRIFT})).await?),
            (false, _) if new != told => {
                ask(&c, json!({"prefix": "config-key set", "key": DRIFT, "val": new.to_string()})).await?;
            }
            _ => {}
        }
        Ok(unsure)
    }

    /// Checks that are worse on a host than its best grades, which are kept.
    async fn compare(&self, c: &Client, host: &str, now: &BTreeMap<String, Grade>) -> Result<Vec<Worse>, Failed> {
        let key = format!("{HOSTS}{host}");
        let known = grades_from_json(&stored(c, &key).await?);
        let mut best = known.clone();
        let all = worse(&mut best, now);
        if best != known {
            ask(c, json!({"prefix": "config-key set", "key": key, "val": grades_to_json(&best).to_string()})).await?;
        }
        Ok(all)
    }

    /// Hosts with grades that were not found. If they are many more than the addresses, their grades are removed.
    async fn absent_hosts(
        &self,
        c: &Client,
        found: &BTreeMap<String, Vec<Worse>>,
        addresses: usize,
    ) -> Result<BTreeSet<String>, Failed> {
        let all: Bytes = ask(c, json!({"prefix": "config-key ls", "format": "json"})).await?;
        let all: Vec<String> = serde_json::from_slice(&all).unwrap_or_default();
        let of_hosts = || all.iter().filter_map(|k| k.strip_prefix(HOSTS));
        let absent: BTreeSet<String> = of_hosts().filter(|h| !found.contains_key(*h)).map(str::to_owned).collect();
        if of_hosts().count() <= 2 * addresses + ABSENT_MAX {
            return Ok(absent);
        }
        for host in absent {
            ask(c, json!({"prefix": "config-key rm", "key": format!("{HOSTS}{host}")})).await?;
        }
        Ok(BTreeSet::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doctor::Severity;

    fn found(all: &[(&str, &str)]) -> BTreeMap<String, Vec<Worse>> {
        let mut out: BTreeMap<String, Vec<Worse>> = BTreeMap::new();
        for (host, check) in all {
            let now = Grade { severity: Severity::Warning, what: "bad".into(), change: "mend it".into() };
            out.entry((*host).into()).or_default().push(Worse { check: (*check).into(), was: Severity::Fine, now });
        }
        out
    }

    fn nobody() -> BTreeSet<String> {
        BTreeSet::new()
    }

    #[test]
    fn entries_of_hosts_that_are_silent_stay() {
        let mut w = Watch::default();
        w.round(&found(&[("a", "mtu")]), &nobody(), &Value::Null, at(1));
        let (one, _) = w.round(&found(&[("a", "mtu")]), &nobody(), &Value::Null, at(2));
        let (same, unsure) = w.round(&found(&[]), &BTreeSet::from(["a".to_owned()]), &one, at(3));
        assert_eq!((&same, unsure), (&one, false));
        let (gone, _) = w.round(&found(&[]), &nobody(), &same, at(4));
        assert_eq!(told(&gone), []);
        // The two looks of a host need not be those of two rounds: a round may not get to it.
        w.round(&found(&[("b", "clock")]), &nobody(), &gone, at(5));
        w.round(&found(&[]), &BTreeSet::from(["b".to_owned()]), &gone, at(6));
        let (two, _) = w.round(&found(&[("b", "clock")]), &nobody(), &gone, at(7));
        assert_eq!(told(&two).len(), 1);
    }

    fn at(sec: u32) -> Utime {
        Utime { sec, nsec: 0 }
    }

    fn told(v: &Value) -> Vec<(String, String, String)> {
        let text = |v: &'_ Value, k: &str| v[k].as_str().unwrap_or_default().to_owned();
        v.as_array().unwrap().iter().map(|v| (text(v, "host"), text(v, "check"), text(v, "since"))).collect()
    }

    #[test]
    fn two_looks_tell_and_one_takes_back() {
        let mut w = Watch::default();
        let (none, unsure) = w.round(&found(&[("a", "mtu")]), &nobody(), &Value::Null, at(100));
        assert_eq!((told(&none).len(), unsure), (0, true));
        let (one, unsure) = w.round(&found(&[("a", "mtu"), ("b", "clock")]), &nobody(), &none, at(160));
        let since = at(160).iso();
        assert_eq!((told(&one), unsure), (vec![("a".to_owned(), "mtu".to_owned(), since)], true));
        // A manager that has just taken over goes on with what is told.
        let mut other = Watch::default();
        let (same, unsure) = other.round(&found(&[("a", "mtu")]), &nobody(), &one, at(3760));
        assert_eq!((&same, unsure), (&one, false));
        let (gone, unsure) = other.round(&found(&[("a", "other")]), &nobody(), &one, at(7360));
        assert_eq!((told(&gone).len(), unsure), (0, true));
    }

    #[test]
    fn all_entries_fit_a_key() {
        let checks: Vec<String> = (0..doctor::CHECKS_MAX).map(|i| format!("check{i}")).collect();
        let hosts: Vec<String> = (0..100).map(|i| format!("{}{i}", "\u{1f980}".repeat(296))).collect();
        let all: Vec<(&str, &str)> =
            hosts.iter().flat_map(|h| checks.iter().map(move |c| (h.as_str(), c.as_str()))).collect();
        let mut w = Watch::default();
        w.round(&found(&all), &nobody(), &Value::Null, at(1));
        let (v, _) = w.round(&found(&all), &nobody(), &Value::Null, at(2));
        assert!(told(&v).len() > 20 && v.to_string().len() < 64 << 10);
        let all = found(&(0..200).map(|_| ("a", "mtu")).collect::<Vec<_>>());
        let (v, _) = w.round(&all, &nobody(), &Value::Null, at(3));
        let (v, _) = w.round(&all, &nobody(), &v, at(4));
        assert_eq!(told(&v).len(), TOLD_MAX.0);
    }
}
