//! Commands of operators beyond dumps of state: reports on request, upkeep of the store, scrubs, devices, heartbeats.

use super::commands::Answer;
use super::control::ControlHost;
use super::route::{Ask, Inspect, ToReactor};
use crate::core::control::prio;
use crate::core::pgs::Input;
use base::errno::{EINVAL, ENOENT, EOPNOTSUPP, EPERM, ETIMEDOUT, Errno};
use base::{OsdId, PgId, Utime};
use cluster::osdmap::osd_state;
use net::admin_socket::{Arg, Command};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::types::HbPingTime;

/// Longest wait for a checkpoint.
const COMPACT_MAX: Duration = Duration::from_secs(600);
/// Interval at which a wanted checkpoint is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// Ping times above these milliseconds are shown if no threshold is given, as in Ceph: 5 % of a grace of 20 s.
const THRESHOLD_MS: u64 = 1000;

const fn arg(name: &'static str, kind: &'static str, optional: bool, many: bool) -> Arg {
    Arg { name, kind, optional, many }
}

const PGID: &[Arg] = &[arg("pgid", "CephPgid", false, false)];

/// The commands.
pub(super) const COMMANDS: &[Command] = &[
    Command { prefix: "cache drop", args: &[], help: "Drop all OSD caches" },
    Command { prefix: "cache status", args: &[], help: "Get OSD caches statistics" },
    Command {
        prefix: "cluster_log",
        args: &[arg("level", "CephString", false, false), arg("message", "CephString", false, true)],
        help: "log a message to the cluster log",
    },
    Command {
        prefix: "compact",
        args: &[],
        help: "Compact object store's omap. WARNING: Compaction probably slows your requests",
    },
    Command { prefix: "deep-scrub", args: PGID, help: "deep scrub pg" },
    Command {
        prefix: "dump_osd_network",
        args: &[arg("value", "CephInt", true, false)],
        help: "Dump osd heartbeat network ping times",
    },
    Command { prefix: "doctor", args: &[], help: "what costs this OSD speed or safety on its host" },
    Command { prefix: "dump_scrub_reservations", args: &[], help: "show scrub reservations" },
    Command { prefix: "dump_scrubs", args: &[], help: "print scheduled scrubs" },
    Command { prefix: "flush_pg_stats", args: &[], help: "flush pg stats" },
    Command {
        prefix: "injectfull",
        args: &[arg("type", "CephString", true, false)],
        help: "for tests: report the OSD to the monitors as at least nearfull, backfillfull or full, until none",
    },
    Command { prefix: "get_mapped_pools", args: &[], help: "dump pools whose PG(s) are mapped to this OSD." },
    Command {
        prefix: "light",
        args: &[
            arg("devid", "CephString", false, false),
            arg("enable", "CephString", false, false),
            arg("light_type", "CephString", false, false),
        ],
        help: "switch the light of one of the OSD's drives: on or off, ident or fault",
    },
    Command { prefix: "list_devices", args: &[], help: "list OSD devices." },
    Command { prefix: "objecter_requests", args: &[], help: "show in-progress osd requests" },
    Command { prefix: "scrub", args: PGID, help: "scrub pg" },
    Command { prefix: "send_beacon", args: &[], help: "send OSD beacon to mon immediately" },
    Command {
        prefix: "smart",
        args: &[arg("devid", "CephString", true, false)],
        help: "probe OSD devices for SMART data.",
    },
];

/// Answers one of [`COMMANDS`].
pub(super) async fn answer(host: &Rc<ControlHost>, prefix: &str, cmd: &Map<String, Value>) -> Answer {
    match prefix {
        "flush_pg_stats" => Ok(host.flush_stats().into()),
        "send_beacon" => {
            host.beacon();
            Ok(Value::Null)
        }
        "injectfull" => {
            host.inject_full(full_state(cmd.get("type").and_then(Value::as_str).unwrap_or("full"))?);
            Ok(Value::Null)
        }
        "compact" => compact(host).await,
        "cache drop" => Err((
            EOPNOTSUPP,
            "the caches of a running store are not dropped: lower 'store_cache_size' or restart the OSD".to_owned(),
        )),
        "cache status" => Ok(super::commands::sums(host, Inspect::Caches).await["caches"].clone()),
        "cluster_log" => cluster_log(host, cmd),
        "scrub" | "deep-scrub" => scrub(host, cmd, prefix == "deep-scrub").await,
        "dump_scrubs" => {
            let mut all = super::commands::collect(host, Inspect::Scrubs).await;
            all.sort_by(|a, b| a["sched_time"].as_str().cmp(&b["sched_time"].as_str()));
            Ok(all.into())
        }
        "dump_scrub_reservations" => {
            let (used, max) = host.scrub_slots();
            Ok(json!({ "scrubs_local": used, "scrubs_remote": 0, "osd_max_scrubs": max }))
        }
        "get_mapped_pools" => {
            let pgs = super::commands::collect(host, Inspect::Pools).await;
            let pools: std::collections::BTreeSet<i64> = pgs.iter().filter_map(Value::as_i64).collect();
            Ok(json!(pools))
        }
        "list_devices" => Ok(devices(&host.metadata()).into()),
        "light" => super::light::set(drives(host), super::light::Switch::of(cmd)?).await,
        "smart" => {
            Ok(super::smart::probe(drives(host), cmd.get("devid").and_then(Value::as_str).map(str::to_owned)).await)
        }
        "doctor" => super::doctor::report().await,
        "objecter_requests" => Ok(host.requests()),
        _ => {
            let least = match cmd.get("value") {
                Some(Value::Number(n)) => n.as_u64(),
                Some(Value::String(t)) => t.parse().ok(),
                _ => Some(THRESHOLD_MS),
            };
            let least = least.ok_or((EINVAL, "'value' is a number of milliseconds".to_owned()))?;
            Ok(network(host.whoami(), &host.ping_times(), least))
        }
    }
}

/// Writes a checkpoint on every reactor, which is what compaction is in this store.
async fn compact(host: &Rc<ControlHost>) -> Answer {
    let begin = Instant::now();
    for i in 0..host.routes.reactors.len() {
        let (tx, rx) = tokio::sync::oneshot::channel();
        host.routes.reactor(i, ToReactor::Ask(Ask::Checkpoint(tx)));
        let Ok(Some(before)) = rx.await else { continue };
        while let Some(now) = checkpoints(host, i).await.filter(|now| *now <= before) {
            if begin.elapsed() > COMPACT_MAX {
                return Err((ETIMEDOUT, format!("reactor {i} is at checkpoint {now} since {COMPACT_MAX:?}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(json!({ "elapsed_time": begin.elapsed().as_secs_f64() }))
}

/// Number of checkpoints of a reactor's store; `None` once the reactor has ended.
async fn checkpoints(host: &Rc<ControlHost>, i: usize) -> Option<u64> {
    let (tx, rx) = tokio::sync::oneshot::channel();
    host.routes.reactor(i, ToReactor::Ask(Ask::Counters(tx)));
    let (sections, _) = rx.await.ok()?;
    sections.iter().find(|s| s.name == "store")?.value("checkpoints").map(|v| v.sum)
}

/// The state in the map that `injectfull` names. An OSD that is full for its own safety is full for the monitors.
fn full_state(word: &str) -> Result<Option<u32>, (Errno, String)> {
    match word {
        "none" => Ok(None),
        "nearfull" => Ok(Some(osd_state::NEARFULL)),
        "backfillfull" => Ok(Some(osd_state::BACKFILLFULL)),
        "full" | "failsafe" => Ok(Some(osd_state::FULL)),
        _ => Err((EINVAL, "Invalid type use (none, nearfull, backfillfull, full, failsafe)".to_owned())),
    }
}

fn cluster_log(host: &Rc<ControlHost>, cmd: &Map<String, Value>) -> Answer {
    let level = match cmd.get("level").and_then(Value::as_str).unwrap_or_default() {
        "error" => prio::ERROR,
        "warning" | "warn" => prio::WARN,
        "info" => prio::INFO,
        "debug" => prio::DEBUG,
        other => return Err((EINVAL, format!("invalid level '{other}': error, warning, info or debug"))),
    };
    let message = match cmd.get("message") {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(Value::String(text)) => text.clone(),
        _ => return Err((EINVAL, "'message' is missing".to_owned())),
    };
    host.log_line(level, message);
    Ok(Value::Null)
}

async fn scrub(host: &Rc<ControlHost>, cmd: &Map<String, Value>, deep: bool) -> Answer {
    let text = cmd.get("pgid").and_then(Value::as_str).unwrap_or_default();
    let pg = PgId::parse(text).ok_or((EINVAL, "bad pgid".to_owned()))?;
    let found = super::commands::ask(host, Inspect::Leads(pg)).await.into_iter().find_map(|v| v.as_bool());
    match found {
        None => Err((ENOENT, format!("i don't have pgid {pg}"))),
        Some(false) => Err((EPERM, format!("{} is not the primary of {pg}", host.whoami()))),
        Some(true) => {
            let pgs = Arc::new(vec![pg.into()]);
            host.routes.inputs(|| Input::Scrub(Arc::clone(&pgs), deep, false));
            Ok(json!({ "deep": deep, "must": true, "stamp": Utime::ZERO.iso() }))
        }
    }
}

/// The disks in an OSD's metadata.
fn devices(metadata: &BTreeMap<String, String>) -> Vec<Value> {
    let list = |key: &str| metadata.get(key).map(String::as_str).unwrap_or_default().split(',');
    let ids: BTreeMap<&str, &str> = list("device_ids").filter_map(|p| p.split_once('=')).collect();
    list("devices")
        .filter(|d| !d.is_empty())
        .map(|d| json!({ "device": format!("/dev/{d}"), "device_id": ids.get(d).copied().unwrap_or_default() }))
        .collect()
}

/// The names and ids of the disks in an OSD's metadata.
fn drives(host: &Rc<ControlHost>) -> Vec<super::smart::Drive> {
    let text = |d: &Value, k: &str| d[k].as_str().unwrap_or_default().to_owned();
    let drive = |d: &Value| (text(d, "device").trim_start_matches("/dev/").to_owned(), text(d, "device_id"));
    devices(&host.metadata()).iter().map(drive).collect()
}

/// Ping times of at least `least` milliseconds, slowest first.
fn network(me: OsdId, times: &BTreeMap<OsdId, HbPingTime>, least: u64) -> Value {
    let ms = |us: u32| f64::from(us) / 1000.0;
    let mut all: Vec<(u32, Value)> = Vec::new();
    for (peer, t) in times {
        let links = [
            ("back", &t.back_pingtime, &t.back_min, &t.back_max, t.back_last),
            ("front", &t.front_pingtime, &t.front_min, &t.front_max, t.front_last),
        ];
        for (interface, mean, min, max, last) in links {
            let worst = mean.iter().copied().max().unwrap_or(0);
            if u64::from(worst) < least.saturating_mul(1000) {
                continue;
            }
            let three = |v: &[u32; 3]| json!({ "1min": ms(v[0]), "5min": ms(v[1]), "15min": ms(v[2]) });
            let entry = json!({
                "last update": Utime { sec: t.last_update, nsec: 0 }.iso(),
                "stale": false,
                "from osd": me.0,
                "to osd": peer.0,
                "interface": interface,
                "average": three(mean),
                "min": three(min),
                "max": three(max),
                "last": ms(last),
            });
            all.push((worst, entry));
        }
    }
    all.sort_by_key(|(worst, _)| std::cmp::Reverse(*worst));
    json!({ "threshold": least, "entries": all.into_iter().map(|(_, e)| e).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_links_are_listed_slowest_first() {
        let t = |back: u32, front: u32| HbPingTime {
            last_update: 86_400,
            back_pingtime: [back, 1, 1],
            front_pingtime: [1, front, 1],
            ..HbPingTime::default()
        };
        let times = BTreeMap::from([(OsdId(1), t(2_000_000, 10)), (OsdId(2), t(5, 3_500_000))]);
        let v = network(OsdId(0), &times, 1000);
        let shown: Vec<_> = v["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| {
                (
                    e["to osd"].as_i64().unwrap(),
                    e["interface"].as_str().unwrap(),
                    e["average"]["1min"].as_f64().unwrap(),
                )
            })
            .collect();
        assert_eq!(shown, [(2, "front", 0.001), (1, "back", 2000.0)]);
        assert_eq!(network(OsdId(0), &times, 0)["entries"].as_array().unwrap().len(), 4);
        assert_eq!(network(OsdId(0), &times, 60_000)["entries"], json!([]));
    }

    #[test]
    fn disks_are_listed_with_their_ids() {
        let m = |devices: &str, ids: &str| {
            BTreeMap::from([("devices".to_owned(), devices.to_owned()), ("device_ids".to_owned(), ids.to_owned())])
        };
        assert_eq!(
            devices(&m("sda,sdb", "sdb=X_1")),
            [json!({"device": "/dev/sda", "device_id": ""}), json!({"device": "/dev/sdb", "device_id": "X_1"})]
        );
        assert!(devices(&m("", "")).is_empty());
    }
}
