//! Health data of drives: OSDs are asked (`smart`), and the answers are kept as samples in the monitors' `config-key`
//! store, below `mgr/devicehealth/metrics/<device>/<time>`. Lights of drives are switched the same way (`light`), and those
//! that are on are kept at [`LIGHTS`].
//!
//! Invariants:
//!  1. No more than [`SAMPLES_MAX`] samples are kept, [`PER_DEVICE`] of one device, none longer than [`SAMPLE_MAX`] or older
//!     than `mgr/devicehealth/retention_period`; the oldest go first.
//!  2. A drive that cannot be read gets no sample; that nothing was read is told.
//!
//! Tests: below (1, `the_newest_samples_stay`; 2, `only_health_data_is_kept`).

use super::images::{Job, Service};
use base::errno::{EAGAIN, EINVAL, EIO, ENOENT, EOPNOTSUPP, ETIMEDOUT, Errno};
use base::{EntityAddr, EntityKind, OsdId, Utime};
use bytes::Bytes;
use client::host::Client;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

/// Prefix of the keys of samples.
const METRICS: &str = "mgr/devicehealth/metrics/";
/// Most samples that are kept.
const SAMPLES_MAX: usize = 1600;
/// Most samples of a device that are kept.
const PER_DEVICE: usize = 100;
/// Longest sample, in bytes.
const SAMPLE_MAX: usize = 64 << 10;
/// Longest device id, in bytes.
const ID_MAX: usize = 512;
/// OSDs that are asked at a time.
pub(super) const AT_ONCE: usize = 16;
/// Time limit for an OSD's answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Time for which samples are kept, unless an option says otherwise.
const RETENTION: u64 = 180 * 86_400;
/// Seconds between two scrapes, unless an option says otherwise.
const FREQUENCY: u64 = 86_400;
/// The key of the last scrape's time.
const LAST: &str = "mgr/devicehealth/last_scrape";
/// The key of the lights that are on, where Ceph's module `orchestrator` has it.
pub const LIGHTS: &str = "mgr/orchestrator/active_devices";
/// Most lights of a kind that are remembered.
const LIGHTS_MAX: usize = 256;
/// Prefix of the options.
const OPTIONS: &str = "mgr/devicehealth/";
/// Time for OSDs to start, before the first look.
const START: Duration = Duration::from_secs(20);
/// Time between two looks whether a scrape is due.
const LOOK: Duration = Duration::from_secs(5);

type Failed = (Errno, String);

/// The sample of a drive's health data. Error: the drive could not be read, or says too much.
fn sample(id: &str, data: &Value) -> Result<String, String> {
    if let Some(e) = data.get("error").and_then(Value::as_str) {
        let more = data.get("smartctl_output").and_then(Value::as_str).unwrap_or_default();
        return Err(format!("{e}: {}", more.chars().take(200).collect::<String>()));
    }
    let text = data.to_string();
    if text.len() > SAMPLE_MAX || id.len() > ID_MAX || !data.is_object() {
        return Err(format!("{} bytes of health data are no sample", text.len()));
    }
    Ok(text)
}

/// The part of the drive's writes that is used up, as the module `devicehealth` takes it from health data.
fn wear(data: &Value) -> Option<f64> {
    let pages = data["ata_device_statistics"]["pages"].as_array().into_iter().flatten();
    let table = pages.filter(|p| p["number"] == 7).filter_map(|p| p["table"].as_array()).flatten();
    let ata = table.filter(|i| i["offset"] == 8).find_map(|i| i["value"].as_f64());
    let used = ata.or_else(|| data["nvme_smart_health_information_log"]["percentage_used"].as_f64());
    used.map(|n| n / 100.0).filter(|n| (0.0..=100.0).contains(n))
}

/// The name of a sample of this time.
fn stamp(t: Utime) -> String {
    let [y, m, d, hour, minute, second] = t.utc();
    format!("{y:04}{m:02}{d:02}-{hour:02}{minute:02}{second:02}")
}

/// The time of a sample's name.
fn stamped(name: &str) -> Option<u64> {
    let (date, time) = name.trim().split_once('-').filter(|(d, t)| d.len() == 8 && t.len() == 6)?;
    let part = |s: &str, from: usize, n: usize| s.get(from..from + n).map(str::to_owned);
    let date = [part(date, 0, 4)?, part(date, 4, 2)?, part(date, 6, 2)?].join("-");
    let time = [part(time, 0, 2)?, part(time, 2, 2)?, part(time, 4, 2)?].join(":");
    Utime::parse(&format!("{date}T{time}")).map(|t| t.to_unix().as_secs())
}

/// True if a scrape is due: times are multiples of `every`, as with Ceph's module. All are seconds since 1970.
fn is_due(last: Option<u64>, now: u64, every: u64) -> bool {
    let every = every.max(1);
    // A clock that went back does not put scrapes off for long.
    last.is_none_or(|last| now >= last - last % every + every || last > now.saturating_add(every))
}

/// The lights that are on after one was switched, from what was kept before.
fn lights_after(known: &[u8], id: &str, kind: &str, on: bool) -> String {
    let known: Value = serde_json::from_slice(known).unwrap_or_default();
    let lit = |kind: &str| -> BTreeSet<String> {
        known[kind].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut all = BTreeMap::from(["ident", "fault"].map(|k| (k, lit(k))));
    if let Some(set) = all.get_mut(kind) {
        if !on {
            set.remove(id);
        } else if set.len() < LIGHTS_MAX {
            set.insert(id.to_owned());
        }
    }
    json!(all).to_string()
}

/// The samples among keys that are to be removed; `oldest` is the oldest name that is kept. The last samples of a drive's
/// days stay before others, so that many on one day displace no history.
fn excess<'a>(keys: impl Iterator<Item = &'a str>, oldest: &str) -> Vec<&'a str> {
    let parts = |k: &'a str| Some((k.strip_prefix(METRICS)?.rsplit_once('/')?, k));
    let mut all: Vec<(&str, &str, &str)> = keys.filter_map(parts).map(|((id, at), k)| (at, id, k)).collect();
    all.sort_unstable();
    let mut days: BTreeMap<&str, &str> = BTreeMap::new();
    let is_last = |(at, id, _): &(&'a str, &'a str, &'a str)| {
        let day = at.split('-').next().unwrap_or_default();
        days.insert(id, day) != Some(day)
    };
    let (daily, others): (Vec<_>, Vec<_>) = all.into_iter().rev().partition(is_last);
    let (mut kept, mut of): (usize, BTreeMap<&str, usize>) = (0, BTreeMap::new());
    let mut gone = Vec::new();
    for (at, id, key) in daily.into_iter().chain(others) {
        let n = of.entry(id).or_default();
        if at < oldest || kept >= SAMPLES_MAX || *n >= PER_DEVICE {
            gone.push(key);
        } else {
            kept += 1;
            *n += 1;
        }
    }
    gone
}

fn now() -> Utime {
    Utime::from_unix(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
}

/// The OSD of a daemon's name.
fn osd_of(who: &str) -> Result<OsdId, Failed> {
    match who.split_once('.') {
        Some(("mon", _)) => Err((EOPNOTSUPP, "monitors do not read health data (not supported)".to_owned())),
        Some(("osd", id)) => id.parse().map(OsdId).map_err(|_| (EINVAL, format!("{who}: not an OSD"))),
        _ => Err((EINVAL, "not a valid mon or osd daemon name".to_owned())),
    }
}

/// Runs a command of the monitor.
pub(super) async fn ask(c: &Client, cmd: Value) -> Result<Bytes, Failed> {
    let r = c.mon_command(&cmd.to_string(), Bytes::new()).await.map_err(|e| (EAGAIN, e.to_string()))?;
    if r.rc < 0 { Err((r.rc, r.status)) } else { Ok(r.out) }
}

/// The value of a key; `None` if it does not exist.
pub(super) async fn value_of(c: &Client, key: &str) -> Result<Option<Bytes>, Failed> {
    match ask(c, json!({"prefix": "config-key get", "key": key})).await {
        Err((ENOENT, _)) => Ok(None),
        known => known.map(Some),
    }
}

/// The answer of an OSD at an address to a command; `who` names it in errors.
pub(super) async fn tell(c: &Client, who: &impl Display, addr: EntityAddr, cmd: Value) -> Result<Bytes, Failed> {
    match tokio::time::timeout(ANSWER_MAX, c.tell(EntityKind::OSD, addr, &cmd.to_string())).await {
        Ok(Ok(r)) if r.rc < 0 => Err((r.rc, format!("{who}: {}", r.status))),
        Ok(Ok(r)) => Ok(r.out),
        Ok(Err(e)) => Err((EAGAIN, format!("{who}: {e}"))),
        Err(_) => Err((ETIMEDOUT, format!("{who} does not answer"))),
    }
}

impl Service {
    /// Serves the commands that ask daemons for health data.
    pub(super) async fn devices_command(&self, job: &Job) -> Result<Bytes, Failed> {
        let arg = |k: &str| job.args.get(k).map(String::as_str).unwrap_or_default();
        let c = self.connect().await.map_err(|e| (e, "the cluster does not answer".to_owned()))?;
        if job.prefix == "device query-daemon-health-metrics" {
            let v = self.smart(&c, osd_of(arg("who"))?, "").await?;
            return Ok(format!("{:#}\n", Value::Object(v)).into());
        }
        if job.prefix == "device light" {
            return self.light(&c, job).await;
        }
        let osds = match arg("who") {
            "" => {
                let map = self.monitor.osdmap();
                map.osds().filter(|o| map.is_up(*o)).collect()
            }
            who => vec![osd_of(who)?],
        };
        let (mut found, mut failed, one) = (Map::new(), Vec::new(), osds.len() == 1);
        for some in osds.chunks(AT_ONCE) {
            let asked = some.iter().map(|o| self.smart(&c, *o, arg("devid")));
            for answer in together(asked.collect()).await {
                match answer {
                    Ok(v) => found.extend(v),
                    Err(e) if one => return Err(e),
                    Err((_, text)) => failed.push(text),
                }
            }
        }
        let mut stored = 0;
        for (id, data) in found.iter().filter(|(id, _)| arg("devid").is_empty() || *id == arg("devid")) {
            match sample(id, data) {
                Ok(text) => {
                    self.keep_sample(&c, id, text, wear(data)).await?;
                    stored += 1;
                }
                Err(text) => failed.push(format!("{id}: {text}")),
            }
        }
        self.prune_samples(&c).await?;
        match failed.first() {
            Some(first) if stored == 0 => Err((EIO, format!("no health data was read; {first}"))),
            _ => Ok(Bytes::new()),
        }
    }

    /// Takes samples of all drives when it is time; never completes.
    pub(super) async fn run_scrapes(&self) {
        let mut last = None;
        let mut pause = START;
        loop {
            tokio::time::sleep(pause).await;
            pause = LOOK;
            if let Err((_, why)) = self.scrape_if_due(&mut last).await {
                tracing::debug!("mgr: health data of devices cannot be kept yet, will retry: {why}");
                pause = START;
            }
        }
    }

    /// Scrapes if it is time. `last` is the time of the last scrape as far as this process knows.
    async fn scrape_if_due(&self, last: &mut Option<u64>) -> Result<(), Failed> {
        let option = |name: &str| self.monitor.stored_option("mgr", &format!("{OPTIONS}{name}"));
        let is_on = option("enable_monitoring").is_none_or(|v| !matches!(v.trim(), "false" | "0" | "no" | "off"));
        let every = option("scrape_frequency").and_then(|v| v.trim().parse().ok()).filter(|n| *n > 0);
        let every = every.unwrap_or(FREQUENCY);
        let second = now().to_unix().as_secs();
        if !is_on || !is_due(*last, second, every) {
            return Ok(());
        }
        let c = self.connect().await.map_err(|e| (e, "the cluster does not answer".to_owned()))?;
        let known = value_of(&c, LAST).await?.and_then(|v| stamped(&String::from_utf8_lossy(&v)));
        *last = known;
        if !is_due(known, second, every) {
            return Ok(());
        }
        let all = Job { prefix: "device scrape-health-metrics", args: BTreeMap::new(), may: Box::new(|_, _, _| true) };
        // Also a scrape that has read nothing was one: hosts without drives or `smartctl` are asked once a time.
        if let Err((_, why)) = self.devices_command(&all).await {
            tracing::info!("mgr: the scrape of devices' health data failed: {why}");
        }
        ask(&c, json!({"prefix": "config-key set", "key": LAST, "val": stamp(now())})).await?;
        *last = Some(second);
        Ok(())
    }

    /// Switches the light of a drive by an OSD on it, and keeps what is on.
    async fn light(&self, c: &Client, job: &Job) -> Result<Bytes, Failed> {
        let arg = |k: &str| job.args.get(k).map(String::as_str).unwrap_or_default();
        let (id, kind, enable, who) = (arg("devid"), arg("light_type"), arg("enable"), arg("who"));
        let cmd = json!({"prefix": "light", "devid": id, "enable": enable, "light_type": kind, "format": "json"});
        let done = match osd_of(who) {
            Ok(osd) => self.tell(c, osd, cmd).await.map(drop),
            Err(_) => Err((EAGAIN, format!("device {id} not claimed by any active daemons"))),
        };
        if arg("forced") != "true" {
            done?;
        }
        let known = value_of(c, LIGHTS).await?.unwrap_or_default();
        let text = lights_after(&known, id, kind, enable == "on");
        ask(c, json!({"prefix": "config-key set", "key": LIGHTS, "val": text})).await?;
        Ok(format!("Set {kind} light of {id}: {enable}\n").into())
    }

    /// The health data of an OSD's drives.
    async fn smart(&self, c: &Client, osd: OsdId, devid: &str) -> Result<Map<String, Value>, Failed> {
        let out = self.tell(c, osd, json!({"prefix": "smart", "devid": devid, "format": "json"})).await?;
        serde_json::from_slice(&out).map_err(|e| (EIO, format!("{osd}: {e}")))
    }

    /// The answer of an OSD to a command.
    async fn tell(&self, c: &Client, osd: OsdId, cmd: Value) -> Result<Bytes, Failed> {
        let map = self.monitor.osdmap();
        let addr = map.client_addr(osd).filter(|_| map.is_up(osd)).and_then(|a| a.msgr2().copied());
        let addr = addr.ok_or_else(|| (EAGAIN, format!("{osd} is down")))?;
        tell(c, &osd, addr, cmd).await
    }

    /// Keeps a sample, and how worn the drive is.
    async fn keep_sample(&self, c: &Client, id: &str, text: String, wear: Option<f64>) -> Result<(), Failed> {
        let key = format!("{METRICS}{id}/{}", stamp(now()));
        ask(c, json!({"prefix": "config-key set", "key": key, "val": text})).await?;
        let key = format!("device/{id}");
        // What an operator has noted there stays, also when it cannot be read now.
        let known = value_of(c, &key).await?.unwrap_or_default();
        let mut known: Map<String, Value> = serde_json::from_slice(&known).unwrap_or_default();
        let worn = wear.map(|w| Value::from(w.to_string()));
        if known.get("wear_level") == worn.as_ref() {
            return Ok(());
        }
        match worn {
            Some(w) => known.insert("wear_level".into(), w),
            None => known.remove("wear_level"),
        };
        ask(c, json!({"prefix": "config-key set", "key": key, "val": Value::Object(known).to_string()})).await?;
        Ok(())
    }

    /// Removes samples that are too old or too many.
    async fn prune_samples(&self, c: &Client) -> Result<(), Failed> {
        let all = ask(c, json!({"prefix": "config-key ls", "format": "json"})).await?;
        let all: Vec<String> = serde_json::from_slice(&all).unwrap_or_default();
        let option = self.monitor.stored_option("mgr", "mgr/devicehealth/retention_period");
        let keep = option.and_then(|v| v.trim().parse().ok()).unwrap_or(RETENTION);
        let oldest = now().to_unix().saturating_sub(Duration::from_secs(keep));
        for key in excess(all.iter().map(String::as_str), &stamp(Utime::from_unix(oldest))) {
            ask(c, json!({"prefix": "config-key rm", "key": key})).await?;
        }
        Ok(())
    }
}

/// Waits for all of these, which run at the same time.
pub(super) async fn together<F: Future>(all: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = all.into_iter().map(Box::pin).map(Some).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (f, out) in waiting.iter_mut().zip(&mut done) {
            if let Some(std::task::Poll::Ready(v)) = f.as_mut().map(|f| f.as_mut().poll(cx)) {
                (*out, *f) = (Some(v), None);
            }
        }
        if waiting.iter().all(Option::is_none) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_samples_stay() {
        let key = |id: &str, at: usize| format!("{METRICS}{id}/20260101-{at:06}");
        let old = format!("{METRICS}A/20250101-000000");
        let other = "mgr/devicehealth/last_scrape";
        let mut keys: Vec<String> = (0..PER_DEVICE + 2).map(|i| key("A", i)).collect();
        keys.extend([old.clone(), key("B/x", 7), other.to_owned()]);
        let mut gone = excess(keys.iter().map(String::as_str), "20250601-000000");
        gone.sort_unstable();
        assert_eq!(gone, [old.as_str(), key("A", 0).as_str(), key("A", 1).as_str()]);
        let many: Vec<String> = (0..SAMPLES_MAX + 5).map(|i| key(&format!("D{i}"), i)).collect();
        assert_eq!(excess(many.iter().map(String::as_str), "").len(), 5);
        assert_eq!(stamp(Utime { sec: 1_795_937_401, nsec: 0 }), "20261129-073001");
    }

    #[test]
    fn many_samples_of_a_day_displace_no_history() {
        let daily: Vec<String> =
            (1..=50).map(|d| format!("{METRICS}A/2026{:02}{:02}-000001", 1 + d / 28, 1 + d % 28)).collect();
        let many = (0..120).map(|s| format!("{METRICS}A/20260601-{s:06}"));
        let keys: Vec<String> = daily.iter().cloned().chain(many).collect();
        let gone = excess(keys.iter().map(String::as_str), "");
        assert_eq!(gone.len(), 170 - PER_DEVICE);
        assert!(!gone.iter().any(|k| daily.iter().any(|d| d == k)), "one of each day stays");
        assert!(!gone.contains(&keys[169].as_str()), "and the newest");
    }

    #[test]
    fn scrapes_are_due_at_multiples_of_their_interval() {
        assert_eq!(stamped("20261129-073001"), Some(1_795_937_401));
        assert_eq!((stamped("20261129"), stamped("2026112x-073001"), stamped("äääää-000000")), (None, None, None));
        let day = 86_400;
        let at = 20_000 * day + 3600;
        assert!(is_due(None, at, day) && !is_due(Some(at), at + 60, day));
        assert!(!is_due(Some(at), 20_001 * day - 1, day) && is_due(Some(at), 20_001 * day, day));
        assert!(!is_due(Some(at), at - 60, day) && is_due(Some(at), at - 2 * day, day), "a clock that went back");
        assert!(is_due(Some(at), at + 1, 0));
    }

    #[test]
    fn lights_are_remembered() {
        let one = lights_after(b"", "A", "ident", true);
        assert_eq!(one, r#"{"fault":[],"ident":["A"]}"#);
        let two = lights_after(one.as_bytes(), "B", "fault", true);
        assert_eq!(two, r#"{"fault":["B"],"ident":["A"]}"#);
        assert_eq!(lights_after(two.as_bytes(), "A", "ident", false), r#"{"fault":["B"],"ident":[]}"#);
        assert_eq!(lights_after(b"[]", "A", "other", false), r#"{"fault":[],"ident":[]}"#);
    }

    #[test]
    fn wear_is_taken_from_either_kind_of_drive() {
        let ata = json!({"ata_device_statistics": {"pages": [null, {"number": 7, "table": [
            {"offset": 16, "value": 9}, {"offset": 8, "value": 3}]}]}});
        assert_eq!(wear(&ata), Some(0.03));
        assert_eq!(wear(&json!({"nvme_smart_health_information_log": {"percentage_used": 41}})), Some(0.41));
        assert_eq!(wear(&json!({"ata_device_statistics": 7})), None);
    }

    #[test]
    fn only_health_data_is_kept() {
        let e = sample("A", &json!({"error": "smartctl failed", "smartctl_output": "no such file"})).unwrap_err();
        assert_eq!(e, "smartctl failed: no such file");
        assert!(sample("A", &json!({"x": "y".repeat(SAMPLE_MAX)})).is_err() && sample("A", &json!([])).is_err());
        assert_eq!(sample("A", &json!({"x": 1})), Ok("{\"x\":1}".to_owned()));
        assert!(osd_of("mon.a").is_err() && osd_of("x").is_err() && osd_of("osd.a").is_err());
        assert_eq!(osd_of("osd.7"), Ok(OsdId(7)));
    }
}
