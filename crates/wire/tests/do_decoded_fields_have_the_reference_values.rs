//! Re-encoding cannot detect two swapped fields of the same type. This test therefore compares our fields by name with
//! the values of an independent decoder, stored next to the captured bytes.
//!
//! Method: the structure is printed with `{:?}`; every scalar of the reference must appear there as `name: value`.

mod support;

use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use wire::msg::registry;
use wire::types::*;
use wire::{Decode, Features, Message, MsgHeader};

/// Field names of the reference that differ from ours (which are Ceph's), with our names.
const RENAMED: &[(&str, &str)] = &[
    ("have", "version"),
    ("mon", "session_mon"),
    ("mon_tid", "session_mon_tid"),
    ("newest", "version"),
    ("oldest", "oldest_version"),
    ("interval", "osd_beacon_report_interval"),
    ("epoch", "epoch_sent"),
    ("les", "last_epoch_started"),
    ("lec", "last_epoch_clean"),
    ("type", "kind"),
    ("daemon", "daemon_name"),
    ("desc", "description"),
    ("features", "active_mgr_features"),
    ("period", "stats_period"),
    ("threshold", "stats_threshold"),
    ("mono_ping", "mono_ping_stamp"),
    ("mono_send", "mono_send_stamp"),
    ("trim_lower_bound", "cluster_osdmap_trim_lower_bound"),
];

/// Scalars of the reference without a counterpart here: constants, lengths, names and addresses as text.
const SKIPPED: &[&str] = &[
    "true",
    "gap",
    "values_bytes",
    "packed_raw",
    "payload",
    "crush",
    "commit_ms",
    "apply_ms",
    "name",
    "rank",
    "addr",
    "pgid",
    "parent",
    "osd_features",
    "mds_features",
    "features",
    "type",
    "service_daemon",
    "source",
];

/// Messages with map fields, which are undecoded bytes here.
const MAP_TYPES: &[u16] = &[4, 41];

fn candidates(name: &str) -> Vec<&str> {
    let mut c = vec![name];
    c.extend(RENAMED.iter().filter(|(n, _)| *n == name).map(|(_, o)| *o));
    c
}

/// Possible debug formats of `value`; none if it has no counterpart.
fn printed(value: &Value) -> Vec<String> {
    match value {
        Value::Bool(b) => vec![b.to_string()],
        Value::Number(n) if n.is_f64() => vec![format!("{:?}", n.as_f64().unwrap())],
        Value::Number(n) => {
            let mut v: Vec<String> = vec![n.to_string(), format!("({n})"), format!("Some(Epoch({n}))")];
            if let Some(u) = n.as_u64().filter(|u| *u > i32::MAX as u64) {
                v.push((u as u32 as i32).to_string());
            }
            v
        }
        Value::String(s) => {
            let mut v = vec![format!("{s:?}"), format!("b{s:?}"), format!("Text({s:?})")];
            if let Some((sec, nsec)) = s.split_once('.')
                && nsec.len() == 9
                && let (Ok(sec), Ok(nsec)) = (sec.parse::<u32>(), nsec.parse::<u32>())
            {
                v.push(format!("Utime {{ sec: {sec}, nsec: {nsec} }}"));
                v.push(format!("Span({})", u64::from(sec) * 1_000_000_000 + u64::from(nsec)));
                v.push(format!("Some(Span({}))", u64::from(sec) * 1_000_000_000 + u64::from(nsec)));
                v.push(format!("({})", u64::from(sec) * 1_000_000_000 + u64::from(nsec)));
            }
            if let Some((epoch, version)) = s.split_once('\'') {
                v.push(format!("Eversion {{ epoch: Epoch({epoch}), version: {version} }}"));
            }
            if s.len() == 36 {
                v.push(s.clone());
            }
            v
        }
        _ => Vec::new(),
    }
}

/// Number of scalars found, and an example of each field that was not found.
#[derive(Default)]
struct Tally {
    found: usize,
    wrong: BTreeMap<String, String>,
}

fn compare(what: &str, ours: &str, name: &str, value: &Value, tally: &mut Tally) {
    match value {
        Value::Object(m) => m.iter().for_each(|(k, v)| compare(what, ours, k, v, tally)),
        Value::Array(a) => a.iter().filter(|v| v.is_object()).for_each(|v| compare(what, ours, name, v, tally)),
        Value::Null => {}
        // Keys of maps are numbers or names of other things.
        _ if SKIPPED.contains(&name) || name.parse::<i64>().is_ok() => {}
        _ => {
            let names = candidates(name);
            // Compare only names that our type has; the others are keys of maps.
            let has = names.iter().any(|n| ours.contains(&format!(" {n}: ")));
            if !has {
                return;
            }
            let ok = names.iter().any(|n| {
                printed(value).iter().any(|p| {
                    [format!(" {n}: {p},"), format!(" {n}: {p} }}")].iter().any(|t| ours.contains(t.as_str()))
                        || ours
                            .match_indices(&format!(" {n}: "))
                            .any(|(at, t)| newtype_value(&ours[at + t.len()..]).is_some_and(|v| v == *p))
                })
            });
            if ok {
                tally.found += 1;
            } else {
                let kind = ours.split([' ', '(']).next().unwrap_or_default();
                tally.wrong.entry(format!("{kind} {name}")).or_insert_with(|| format!("{what}: {value}"));
            }
        }
    }
}

/// `Epoch(5), ...` -> `(5)`.
fn newtype_value(s: &str) -> Option<String> {
    let open = s.find('(')?;
    let close = s.find(')')?;
    (open < close && s[..open].chars().all(char::is_alphanumeric)).then(|| s[open..=close].to_owned())
}

fn unhex(s: &str) -> Bytes {
    (0..s.len() / 2).map(|i| u8::from_str_radix(&s[2 * i..2 * i + 2], 16).unwrap()).collect::<Vec<_>>().into()
}

fn print<T: Decode + std::fmt::Debug>(b: &Bytes) -> String {
    let mut r = wire::Reader::shared(b);
    let v = T::decode(&mut r).unwrap();
    assert!(r.is_empty(), "{} bytes left", r.remaining());
    format!("{v:?}")
}

#[test]
fn structures() {
    let file = support::read(&support::vectors().join("daemons/enc.json.gz"));
    let all: BTreeMap<String, Vec<Value>> = serde_json::from_slice(&file).unwrap();
    let mut tally = Tally::default();
    for (name, samples) in all {
        let print: fn(&Bytes) -> String = match name.as_str() {
            "LogEntry" => print::<LogEntry>,
            "MgrMap" => print::<MgrMap>,
            "MgrMap::ModuleInfo" => print::<ModuleInfo>,
            "MonCommand" => print::<MonCommand>,
            "OSDSuperblock" => print::<OsdSuperblock>,
            "PastIntervals" => print::<PastIntervals>,
            "PerfCounterType" => print::<PerfCounterType>,
            "ProgressEvent" => print::<ProgressEvent>,
            "ServiceMap" => print::<ServiceMap>,
            "entity_addrvec_t" => print::<base::AddrVec>,
            "health_check_map_t" => print::<HealthCheckMap>,
            "object_stat_sum_t" => print::<ObjectStatSum>,
            "osd_stat_t" => print::<OsdStat>,
            "pg_history_t" => print::<PgHistory>,
            "pg_info_t" => print::<PgInfo>,
            "pg_lease_t" => print::<PgLease>,
            "pg_notify_t" => print::<PgNotify>,
            "pg_query_t" => print::<PgQuery>,
            "pg_stat_t" => print::<PgStat>,
            "pool_stat_t" => print::<PoolStat>,
            "spg_t" => print::<base::SpgId>,
            "store_statfs_t" => print::<StoreStatfs>,
            // Types of the `cluster` crate.
            "osd_xinfo_t" | "pg_pool_t" => continue,
            other => panic!("no type for {other}"),
        };
        let before = tally.found;
        for s in &samples {
            let ours = print(&unhex(s["hex"].as_str().unwrap()));
            compare(&name, &ours, &name, &s["value"], &mut tally);
        }
        let found = tally.found - before;
        println!("{name}: {} samples, {found} fields", samples.len());
        let keys = samples.iter().filter_map(|s| s["value"].as_object()).map(|m| m.len()).max().unwrap_or(0);
        let exempt =
            ["ServiceMap", "health_check_map_t", "pg_lease_t", "MonCommand", "pg_query_t", "MgrMap::ModuleInfo"];
        assert!(found * 2 >= keys || exempt.contains(&name.as_str()), "{name}: only {found} fields compared");
    }
    assert!(tally.wrong.is_empty(), "{:#?}", tally.wrong);
}

#[test]
fn messages() {
    let file = support::read(&support::vectors().join("daemons/samples.json.gz"));
    let all: BTreeMap<String, Vec<Value>> = serde_json::from_slice(&file).unwrap();
    let by_place: BTreeMap<String, Message> = support::messages().into_iter().collect();
    let mut tally = Tally::default();
    for (name, samples) in all {
        for s in samples.iter().filter(|s| s.get("front").is_some()).take(3) {
            let place = format!(
                "{}.{}.bin.gz@{}",
                s["connection"].as_str().unwrap(),
                s["dir"].as_str().unwrap(),
                s["offset"].as_u64().unwrap()
            );
            let m = &by_place[&place];
            let Some(seen) = registry::inspect(m, Features::PACIFIC) else { continue };
            if MAP_TYPES.contains(&m.header.kind) {
                continue;
            }
            compare(&place, &seen.unwrap().text, &name, &s["value"], &mut tally);
        }
    }
    println!("{} fields", tally.found);
    assert!(tally.wrong.is_empty(), "{:#?}", tally.wrong);
    assert!(tally.found > 1500, "only {} fields compared", tally.found);
}

#[test]
fn a_newer_sender_is_refused() {
    let m =
        Message { header: MsgHeader { kind: 73, version: 9, compat: 9, ..MsgHeader::default() }, ..Message::default() };
    assert!(registry::inspect(&m, Features::PACIFIC).unwrap().is_err());
}
