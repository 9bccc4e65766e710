//! `belemnite health|df`, `belemnite osd status`, `belemnite pg status` and `belemnite top`: what an operator looks at
//! first, from the monitor's own answers.
//!
//! With `--format json` the commands print the monitor's JSON, whose form is Ceph's. The texts are pure functions of
//! that JSON.

use super::operate::{must_json, print};
use super::table::{Table, duration};
use super::{Ended, Error, Target};
use base::size;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

/// Most PGs, OSDs or details that a text lists.
const LISTED: usize = 20;

/// Form of the output of a view.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Form {
    /// Form of the output
    #[arg(long, short = 'f', value_name = "FORM", value_parser = ["plain", "json", "json-pretty"], default_value = "plain")]
    format: String,
}

impl Form {
    /// True for the plain form.
    pub(crate) fn is_plain(&self) -> bool {
        self.format == "plain"
    }

    /// Prints a value in this form.
    pub(crate) fn show(&self, v: &Value, text: impl FnOnce() -> String) {
        match self.format.as_str() {
            "json" => print(&v.to_string()),
            "json-pretty" => print(&format!("{v:#}")),
            _ => print(&text()),
        }
    }
}

/// `belemnite pg` with a command.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PgCommand {
    /// Show the PGs by state, and those that are not active+clean
    Status(Form),
}

/// `belemnite top`
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Seconds between two views
    #[arg(long, short = 'd', value_name = "SECONDS", default_value_t = 2.0)]
    every: f64,
    /// Number of views; without it, until the command is interrupted, or one view if the output is no terminal
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
}

/// Names of a JSON list, one a line.
pub(crate) fn lines(v: &Value) -> String {
    let names = v.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|n| format!("{n}\n")).collect()
}

fn list<'a>(v: &'a Value, key: &str) -> &'a [Value] {
    v[key].as_array().map_or(&[], Vec::as_slice)
}

fn word<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or_default()
}

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or_default()
}

fn bytes(n: f64) -> String {
    size::show(n.max(0.0) as u64)
}

/// Health with all reasons and their details.
fn health_text(v: &Value) -> String {
    let mut out = format!("{}\n", word(v, "status"));
    for (name, check) in v["checks"].as_object().into_iter().flatten() {
        let muted = if check["muted"] == true { " (muted)" } else { "" };
        let _ = writeln!(out, "  {name}: {}{muted}", check["summary"]["message"].as_str().unwrap_or_default());
        let details = list(check, "detail");
        for d in details.iter().take(LISTED) {
            let _ = writeln!(out, "      {}", word(d, "message"));
        }
        if let Some(more) = details.len().checked_sub(LISTED).filter(|m| *m > 0) {
            let _ = writeln!(out, "      and {more} more");
        }
    }
    out
}

/// `belemnite health`
///
/// # Errors
/// [`Ended`] with status 4 for HEALTH_WARN and 5 for HEALTH_ERR.
pub(crate) async fn health(t: &Target, f: &Form) -> Result<(), Error> {
    let v = must_json(&t.connect().await?, json!({ "prefix": "health", "detail": "detail" })).await?;
    f.show(&v, || health_text(&v));
    match word(&v, "status") {
        "HEALTH_OK" => Ok(()),
        "HEALTH_WARN" => Err(Ended::warned().into()),
        _ => Err(Ended::in_error().into()),
    }
}

fn df_text(v: &Value) -> String {
    let s = &v["stats"];
    let mut out = format!(
        "{} of {} used ({:.1} %), {} available\n\n",
        bytes(number(s, "total_used_raw_bytes")),
        bytes(number(s, "total_bytes")),
        100.0 * number(s, "total_used_raw_ratio"),
        bytes(number(s, "total_avail_bytes"))
    );
    let mut t = Table::new(&["POOL", ">STORED", ">OBJECTS", ">USED", ">USED %", ">STILL FITS"]);
    for p in list(v, "pools") {
        let s = &p["stats"];
        t.row([
            word(p, "name").to_owned(),
            bytes(number(s, "stored")),
            format!("{:.0}", number(s, "objects")),
            bytes(number(s, "bytes_used")),
            format!("{:.1}", 100.0 * number(s, "percent_used")),
            bytes(number(s, "max_avail")),
        ]);
    }
    out += &t.text();
    out
}

/// `belemnite df`
pub(crate) async fn df(t: &Target, f: &Form) -> Result<(), Error> {
    let v = must_json(&t.connect().await?, json!({ "prefix": "df" })).await?;
    f.show(&v, || df_text(&v));
    Ok(())
}

/// The OSDs of `osd df tree`, with their hosts and the latencies of `osd perf`.
fn osds(tree: &Value, perf: &Value) -> Value {
    let hosts: Vec<&Value> = list(tree, "nodes").iter().filter(|n| n["type"] == "host").collect();
    let host = |id: &Value| hosts.iter().find(|h| list(h, "children").contains(id)).map_or("", |h| word(h, "name"));
    let infos = list(&perf["osdstats"], "osd_perf_infos");
    let commit = |id: &Value| infos.iter().find(|i| i["id"] == *id).map(|i| &i["perf_stats"]["commit_latency_ms"]);
    let osds = list(tree, "nodes").iter().filter(|n| n["type"] == "osd");
    osds.map(|n| {
        json!({
            "osd": n["id"],
            "host": host(&n["id"]),
            "class": n["device_class"],
            "status": n["status"],
            "weight": n["crush_weight"],
            "reweight": n["reweight"],
            "bytes": number(n, "kb") * 1024.0,
            "bytes_used": number(n, "kb_used") * 1024.0,
            "used_percent": n["utilization"],
            "pgs": n["pgs"],
            "commit_ms": commit(&n["id"]),
        })
    })
    .collect()
}

fn osds_text(v: &Value) -> String {
    let mut t = Table::new(&["OSD", "HOST", "CLASS", "STATE", ">SIZE", ">USED", ">USED %", ">PGS", ">COMMIT ms"]);
    for o in v.as_array().into_iter().flatten() {
        let is_out = number(o, "reweight") == 0.0;
        t.row([
            format!("osd.{}", o["osd"]),
            word(o, "host").to_owned(),
            word(o, "class").to_owned(),
            format!("{}{}", word(o, "status"), if is_out { ", out" } else { "" }),
            bytes(number(o, "bytes")),
            bytes(number(o, "bytes_used")),
            format!("{:.1}", number(o, "used_percent")),
            format!("{:.0}", number(o, "pgs")),
            o["commit_ms"].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}")),
        ]);
    }
    t.text()
}

/// `belemnite osd status`
pub(crate) async fn osd_status(t: &Target, f: &Form) -> Result<(), Error> {
    let c = t.connect().await?;
    let tree = must_json(&c, json!({ "prefix": "osd df", "output_method": "tree" })).await?;
    let perf = must_json(&c, json!({ "prefix": "osd perf" })).await?;
    let v = osds(&tree, &perf);
    f.show(&v, || osds_text(&v));
    Ok(())
}

/// A line on recovery, with the time that is left at the present rate; empty if nothing recovers.
fn recovery(pgmap: &Value) -> String {
    let (bad, rate) = (
        number(pgmap, "degraded_objects") + number(pgmap, "misplaced_objects"),
        number(pgmap, "recovering_objects_per_sec"),
    );
    if bad <= 0.0 {
        return String::new();
    }
    let left = if rate > 0.0 { format!(", {} left at this rate", duration(bad / rate)) } else { String::new() };
    format!(
        "recovery: {:.0} copies degraded, {:.0} misplaced; {}/s, {rate:.0} objects/s{left}\n",
        number(pgmap, "degraded_objects"),
        number(pgmap, "misplaced_objects"),
        bytes(number(pgmap, "recovering_bytes_per_sec"))
    )
}

fn pgs_text(status: &Value, stuck: &Value) -> String {
    let pgmap = &status["pgmap"];
    let all = number(pgmap, "num_pgs");
    let mut out = format!("{all:.0} PGs\n");
    for s in list(pgmap, "pgs_by_state") {
        let n = number(s, "count");
        let share = if all > 0.0 { 100.0 * n / all } else { 0.0 };
        let _ = writeln!(out, "  {n:>8.0}  {share:>5.1} %  {}", word(s, "state_name"));
    }
    out += &recovery(pgmap);
    let stuck = list(stuck, "stuck_pg_stats");
    if stuck.is_empty() {
        return out;
    }
    out += "\nnot active+clean for a while:\n";
    let mut t = Table::new(&["PG", "STATE", "ACTING", "SINCE"]);
    for p in stuck.iter().take(LISTED) {
        t.row([
            word(p, "pgid").to_owned(),
            word(p, "state").to_owned(),
            p["acting"].to_string(),
            word(p, "last_change").chars().take(19).collect(),
        ]);
    }
    out += &t.text();
    if let Some(more) = stuck.len().checked_sub(LISTED).filter(|m| *m > 0) {
        let _ = writeln!(out, "and {more} more");
    }
    out
}

/// `belemnite pg status`
pub(crate) async fn pg(t: &Target, PgCommand::Status(f): PgCommand) -> Result<(), Error> {
    let c = t.connect().await?;
    let status = must_json(&c, json!({ "prefix": "status" })).await?;
    let stuck = must_json(&c, json!({ "prefix": "pg dump_stuck" })).await?;
    let v = json!({ "pgmap": status["pgmap"], "stuck": stuck["stuck_pg_stats"] });
    f.show(&v, || pgs_text(&status, &stuck));
    Ok(())
}

/// Answers of the monitor that one view of `top` shows.
#[derive(Debug, Default)]
struct Seen {
    status: Value,
    pools: Value,
    osds: Value,
}

fn top_text(s: &Seen, clock: &str) -> String {
    let (health, pgmap, osdmap) = (&s.status["health"], &s.status["pgmap"], &s.status["osdmap"]);
    // Releases since 14 have the numbers at this place; 13 had them one level deeper.
    let mut out = format!(
        "{clock}  {}  {:.0} OSDs: {:.0} up, {:.0} in  {} of {} used\n",
        word(health, "status"),
        number(osdmap, "num_osds"),
        number(osdmap, "num_up_osds"),
        number(osdmap, "num_in_osds"),
        bytes(number(pgmap, "bytes_used")),
        bytes(number(pgmap, "bytes_total"))
    );
    for (name, check) in health["checks"].as_object().into_iter().flatten().take(LISTED) {
        let _ = writeln!(out, "  {name}: {}", check["summary"]["message"].as_str().unwrap_or_default());
    }
    let io = |kind: &str| {
        let (b, ops) = (format!("{kind}_bytes_sec"), format!("{kind}_op_per_sec"));
        format!("{kind} {}/s, {:.0} op/s", bytes(number(pgmap, &b)), number(pgmap, &ops))
    };
    let _ = writeln!(out, "clients: {}; {}", io("read"), io("write"));
    out += &recovery(pgmap);
    let mut pools: Vec<&Value> = s.pools.as_array().map(|a| a.iter().collect()).unwrap_or_default();
    let rate = |p: &Value, key: &str| number(&p["client_io_rate"], key);
    let load = |p: &Value| rate(p, "read_bytes_sec") + rate(p, "write_bytes_sec");
    pools.sort_by(|a, b| load(b).total_cmp(&load(a)));
    let mut t = Table::new(&["POOL", ">READ/s", ">WRITTEN/s", ">READS/s", ">WRITES/s"]);
    for p in pools.iter().take(LISTED / 2) {
        t.row([
            word(p, "pool_name").to_owned(),
            bytes(rate(p, "read_bytes_sec")),
            bytes(rate(p, "write_bytes_sec")),
            format!("{:.0}", rate(p, "read_op_per_sec")),
            format!("{:.0}", rate(p, "write_op_per_sec")),
        ]);
    }
    let _ = write!(out, "\n{}\n", t.text());
    let mut osds = s.osds.as_array().cloned().unwrap_or_default();
    osds.sort_by(|a, b| number(b, "commit_ms").total_cmp(&number(a, "commit_ms")));
    osds.truncate(LISTED / 2);
    out += "slowest OSDs\n";
    out += &osds_text(&Value::Array(osds));
    out
}

/// `belemnite top`
pub(crate) async fn top(t: &Target, a: &TopArgs) -> Result<(), Error> {
    let every = super::bench::seconds(a.every)?.max(Duration::from_millis(100));
    let is_terminal = std::io::stdout().is_terminal();
    let count = a.count.unwrap_or(if is_terminal { u64::MAX } else { 1 });
    let c = t.connect().await?;
    for n in 0..count {
        if n > 0 {
            tokio::time::sleep(every).await;
        }
        let tree = must_json(&c, json!({ "prefix": "osd df", "output_method": "tree" })).await?;
        let perf = must_json(&c, json!({ "prefix": "osd perf" })).await?;
        let s = Seen {
            status: must_json(&c, json!({ "prefix": "status" })).await?,
            pools: must_json(&c, json!({ "prefix": "osd pool stats" })).await?,
            osds: osds(&tree, &perf),
        };
        let clock = reactor::clock::read().wall.iso();
        let text = top_text(&s, clock.get(11..19).unwrap_or_default());
        let mut out = std::io::stdout().lock();
        // Each view takes the place of the last one; the rest of the screen is cleared after it.
        let text = if is_terminal { format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")) } else { text + "\n" };
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            // Nobody reads on.
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_lists_reasons_with_a_bound() {
        let details: Vec<Value> = (0..50).map(|i| json!({ "message": format!("osd.{i} is down") })).collect();
        let v = json!({ "status": "HEALTH_WARN", "checks": { "OSD_DOWN": {
            "severity": "HEALTH_WARN", "summary": { "message": "50 osds down" }, "detail": details, "muted": true } } });
        let text = health_text(&v);
        assert!(text.starts_with("HEALTH_WARN\n  OSD_DOWN: 50 osds down (muted)\n      osd.0 is down\n"), "{text}");
        assert!(text.ends_with("      and 30 more\n"), "{text}");
        assert_eq!(health_text(&json!({ "status": "HEALTH_OK", "checks": {} })), "HEALTH_OK\n");
    }

    fn tree() -> Value {
        json!({ "nodes": [
            { "id": -2, "name": "a", "type": "host", "children": [1, 0] },
            { "id": 0, "type": "osd", "status": "up", "device_class": "ssd", "reweight": 1.0, "crush_weight": 1.0,
              "kb": 2048, "kb_used": 1024, "utilization": 50.0, "pgs": 8 },
            { "id": 1, "type": "osd", "status": "down", "device_class": "ssd", "reweight": 0.0, "pgs": 0 },
        ] })
    }

    fn perf() -> Value {
        json!({ "osdstats": { "osd_perf_infos": [{ "id": 0, "perf_stats": { "commit_latency_ms": 7 } }] } })
    }

    #[test]
    fn osds_have_host_and_latency() {
        let v = osds(&tree(), &perf());
        assert_eq!((v[0]["host"].clone(), v[0]["commit_ms"].clone()), (json!("a"), json!(7)));
        assert_eq!(
            osds_text(&v),
            "OSD    HOST  CLASS  STATE       SIZE   USED  USED %  PGS  COMMIT ms\n\
             osd.0  a     ssd    up         2 MiB  1 MiB    50.0    8          7\n\
             osd.1  a     ssd    down, out    0 B    0 B     0.0    0          -\n"
        );
    }

    #[test]
    fn pgs_are_counted_and_recovery_has_an_end() {
        let status = json!({ "pgmap": { "num_pgs": 16, "degraded_objects": 600, "recovering_objects_per_sec": 5,
            "recovering_bytes_per_sec": 1048576,
            "pgs_by_state": [{ "state_name": "active+clean", "count": 12 }, { "state_name": "peering", "count": 4 }] } });
        let stuck = json!({ "stuck_pg_stats": [{ "pgid": "1.f", "state": "peering", "acting": [0, 1],
            "last_change": "2026-11-21T17:11:42.000123+0000" }] });
        let text = pgs_text(&status, &stuck);
        for part in [
            "75.0 %  active+clean",
            "600 copies degraded, 0 misplaced; 1 MiB/s, 5 objects/s, 2 min 0 s left at this rate",
            "1.f  peering  [0,1]   2026-11-21T17:11:42",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(pgs_text(&json!({}), &json!({})), "0 PGs\n");
    }

    #[test]
    fn top_shows_pools_by_load() {
        let io = |name: &str, b: u64| json!({ "pool_name": name, "client_io_rate": { "write_bytes_sec": b } });
        let s = Seen {
            status: json!({ "health": { "status": "HEALTH_OK" }, "osdmap": { "num_osds": 2, "num_up_osds": 1 },
                "pgmap": { "read_op_per_sec": 12, "read_bytes_sec": 4096 } }),
            pools: json!([io("idle", 0), io("busy", 1 << 20)]),
            osds: osds(&tree(), &perf()),
        };
        let text = top_text(&s, "12:00:00");
        assert!(text.starts_with("12:00:00  HEALTH_OK  2 OSDs: 1 up, 0 in"), "{text}");
        assert!(text.find("busy").unwrap() < text.find("idle").unwrap(), "{text}");
        assert!(text.contains("read 4 KiB/s, 12 op/s; write 0 B/s"), "{text}");
        top_text(&Seen::default(), "");
    }

    #[test]
    fn df_lists_pools() {
        let v = json!({ "stats": { "total_bytes": 1 << 30, "total_used_raw_bytes": 1 << 29, "total_used_raw_ratio": 0.5 },
            "pools": [{ "name": "p", "stats": { "stored": 4096, "objects": 3, "bytes_used": 12288, "percent_used": 0.01,
            "max_avail": 1 << 20 } }] });
        let text = df_text(&v);
        assert!(text.starts_with("512 MiB of 1 GiB used (50.0 %), 0 B available\n"), "{text}");
        assert!(text.contains("p      4 KiB        3  12 KiB     1.0       1 MiB"), "{text}");
    }
}
