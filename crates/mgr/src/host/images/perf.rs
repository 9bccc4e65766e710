//! `rbd perf image stats|counters`: image I/O reported by OSDs, collected while clients query it.

use super::image::Place;
use super::{Job, Service, errno_text, seconds};
use crate::images::rates::{self, Followed, NAMES, Names};
use base::PoolId;
use base::errno::{EACCES, EINVAL, ENOENT, Errno};
use bytes::Bytes;
use cluster::OsdMap;
use cluster::caps::Need;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;
use wire::types::PerfMetricQuery;

/// A query is dropped if no client has repeated it for this time, in seconds.
const EXPIRE_SECONDS: f64 = 60.0;
/// Seconds after which image names are read again.
const NAMES_SECONDS: f64 = 300.0;
/// Interval for checking for queries while OSD reports are rare or disabled.
const IDLE: Duration = Duration::from_secs(5);
/// Most distinct queries at a time.
const ASKED_MAX: usize = 64;
/// Most images of a pool and namespace whose names are read.
const NAMES_MAX: usize = 1 << 20;
/// Names per request.
const NAMES_PAGE: u64 = 1024;

/// Queried pool and namespace; `None` for all pools.
type Key = Option<(String, String)>;

struct Asked {
    pool: Option<PoolId>,
    query: PerfMetricQuery,
    images: Followed,
    last: f64,
}

/// Active queries with their results, and image names.
#[derive(Default)]
pub(super) struct Perf {
    asked: BTreeMap<Key, Asked>,
    names: Names,
    names_at: f64,
}

/// Parses `pool[/namespace]`; `None` if the text is invalid.
fn parse(spec: &str) -> Option<Key> {
    if spec.is_empty() {
        return Some(None);
    }
    let (pool, nspace) = spec.split_once('/').unwrap_or((spec, ""));
    let ok = !pool.is_empty() && !nspace.contains('/') && !(spec.ends_with('/'));
    ok.then(|| Some((pool.to_owned(), nspace.to_owned())))
}

fn python_string(s: &str) -> String {
    serde_json::Value::from(s).to_string()
}

/// A number as Python's JSON shows it: zero as `0`, sums without a fraction.
fn number(v: f64, rate: bool) -> String {
    if v == 0.0 {
        "0".to_owned()
    } else if rate {
        format!("{v:?}")
    } else {
        format!("{v:.0}")
    }
}

impl Service {
    /// Collects OSD reports; never completes.
    pub(super) async fn run_perf(&self) {
        loop {
            let period = u64::from(self.monitor.report_period());
            let wait = if period == 0 { IDLE } else { Duration::from_secs(period) };
            tokio::time::sleep(wait).await;
            self.perf_round().await;
        }
    }

    async fn perf_round(&self) {
        let now = seconds();
        let missing = {
            let mut perf = self.perf.borrow_mut();
            let old: Vec<Key> =
                perf.asked.iter().filter(|(_, a)| a.last + EXPIRE_SECONDS < now).map(|(k, _)| k.clone()).collect();
            let map = self.monitor.osdmap();
            for k in old {
                if let Some(a) = perf.asked.remove(&k) {
                    self.monitor.remove_query(&a.query);
                }
            }
            if perf.names_at + NAMES_SECONDS < now {
                perf.names.clear();
            }
            let perf = &mut *perf;
            let mut missing = BTreeSet::new();
            for (k, a) in &mut perf.asked {
                let pools = pools_of(&map, a.pool);
                let nspace = k.as_ref().map(|(_, n)| n.as_str());
                a.images.round(self.monitor.take_reports(&a.query), &pools, nspace, now as u64);
                missing.extend(a.images.unnamed(&perf.names));
            }
            missing
        };
        if missing.is_empty() {
            return;
        }
        for (pool, nspace) in missing {
            let used = self.current();
            match self.names(PoolId(pool), &nspace).await {
                Ok(names) => {
                    self.perf.borrow_mut().names.insert((pool, nspace), names);
                }
                Err(e) => {
                    self.look_at(used.as_ref(), e);
                    tracing::debug!("mgr: names of images of pool {pool} not read: {}", base::errno::name(e));
                }
            }
        }
        let mut perf = self.perf.borrow_mut();
        perf.names_at = now;
        let perf = &mut *perf;
        for a in perf.asked.values_mut() {
            a.images.forget_unnamed(&perf.names);
        }
    }

    /// Names of the images at a place, by id.
    pub(super) async fn names(&self, pool: PoolId, nspace: &str) -> Result<BTreeMap<String, String>, Errno> {
        let place: Place = self.place_in(pool, nspace).await?;
        let mut out = BTreeMap::new();
        let mut after = Bytes::new();
        while out.len() < NAMES_MAX {
            let input = super::image::enc(|w| {
                w.blob(&after);
                w.u64(NAMES_PAGE);
            });
            let page: BTreeMap<Bytes, Bytes> = match place.rbd_as("rbd_directory", "dir_list", input).await {
                Err(ENOENT) => break,
                r => r?,
            };
            let Some((last, _)) = page.last_key_value() else { break };
            after = last.clone();
            let text = |b: Bytes| String::from_utf8_lossy(&b).into_owned();
            let full = page.len() as u64 >= NAMES_PAGE;
            out.extend(page.into_iter().map(|(name, id)| (text(id), text(name))));
            if !full {
                break;
            }
        }
        Ok(out)
    }

    /// Runs a command.
    pub(super) fn perf_command(&self, job: &Job) -> Result<Bytes, (Errno, String)> {
        let arg = |k: &str| job.args.get(k).map(String::as_str).unwrap_or_default();
        let (spec, stats) = (arg("pool_spec"), job.prefix.ends_with("stats"));
        let Some(key) = parse(spec) else { return Err((EINVAL, format!("Invalid pool spec: {spec}"))) };
        let (pool, nspace) = key.clone().unwrap_or_default();
        if !Self::may_in(job, &pool, &nspace, Need::R) {
            return Err((EACCES, format!("not authorized on pool={pool}, namespace={nspace}")));
        }
        let sort_by = NAMES.iter().position(|n| *n == arg("sort_by")).unwrap_or(0);
        let map = self.monitor.osdmap();
        let id = match &key {
            None => None,
            Some((pool, _)) => Some(
                map.pool_by_name(pool)
                    .ok_or_else(|| (ENOENT, format!("[errno 2] RADOS object not found (Pool '{pool}' not found)")))?,
            ),
        };
        let mut perf = self.perf.borrow_mut();
        let perf = &mut *perf;
        let now = seconds();
        if !perf.asked.contains_key(&key) {
            if perf.asked.len() >= ASKED_MAX {
                return Err(errno_text(base::errno::EBUSY));
            }
            let query = rates::query(id.map(|p| p.0), key.as_ref().map(|(_, n)| n.as_str()));
            self.monitor.add_query(query.clone());
            perf.asked.insert(key.clone(), Asked { pool: id, query, images: Followed::default(), last: now });
        }
        let Some(a) = perf.asked.get_mut(&key) else { return Ok(Bytes::new()) };
        a.last = now;
        let (places, images) = a.images.report(&pools_of(&map, a.pool), &perf.names, sort_by, stats);
        let kind = if stats { "stat" } else { "counter" };
        let list = |items: Vec<String>| items.join(", ");
        let mut out = format!("{{\"timestamp\": {:.1}, ", now.floor());
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "\"{kind}_descriptors\": [{}], \"pool_descriptors\": {{{}}}, \"{kind}s\": [{}]}}",
            list(NAMES.iter().map(|n| python_string(n)).collect()),
            list(places.iter().map(|(i, p)| format!("\"{i}\": {}", python_string(p))).collect()),
            list(
                images
                    .iter()
                    .map(|(name, values)| {
                        let values = values.iter().map(|v| number(*v, stats)).collect();
                        format!("{{{}: [{}]}}", python_string(name), list(values))
                    })
                    .collect()
            ),
        );
        Ok(out.into())
    }
}

fn pools_of(map: &OsdMap, only: Option<PoolId>) -> BTreeMap<i64, String> {
    map.pools
        .iter()
        .filter(|(id, p)| only.map_or_else(|| p.application_metadata.contains_key("rbd"), |o| o == **id))
        .filter_map(|(id, _)| Some((id.0, map.pool_name(*id)?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_of_pools() {
        let some = |p: &str, n: &str| Some(Some((p.to_owned(), n.to_owned())));
        assert_eq!(parse(""), Some(None));
        assert_eq!(parse("rbd"), some("rbd", ""));
        assert_eq!(parse("rbd/ns"), some("rbd", "ns"));
        for bad in ["/", "rbd/", "/ns", "a/b/c"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!([number(0.0, true), number(2.0, true), number(7.0, false)], ["0", "2.0", "7"]);
    }
}
