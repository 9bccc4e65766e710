//! Life expectancy of devices, the alerts by it, and OSDs that leave failing devices in time, as Ceph's manager and its
//! module `devicehealth` have them.
//!
//! Operators and their tools set the expectancy; it is kept where Ceph's manager keeps it, in the keys `device/<id>`.
//! Health data is asked for and kept by `mgr::host::devices`, when a command says so.

use super::devices;
use crate::command::health::Severity::{self, Warn};
use crate::command::mgr::rbd::host;
use crate::command::{
    Cmd, CommandEffect, CommandOutcome, Ctx, Res, cmd, committed, done, flag as cf, invalid, plain, refuse,
};
use crate::state::config::mgr_options;
use crate::state::device_life::{Life, PREFIX};
use crate::state::log::Prio;
use crate::state::{ClusterState, ConfigKey, Pending};
use base::{Now, OsdId, Utime, errno};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "device set-life-expectancy devid:String from:String to:String?",
        "mgr",
        "rw",
        cf::MGR,
        set,
        "set the life expectancy of a device",
    ),
    cmd(
        "device rm-life-expectancy devid:String",
        "mgr",
        "rw",
        cf::MGR,
        remove,
        "forget the life expectancy of a device",
    ),
    cmd(
        "device check-health",
        "mgr",
        "rw",
        cf::MGR,
        check,
        "mark OSDs out whose devices are expected to fail soon, as is done from time to time",
    ),
    cmd(
        "device monitoring on",
        "mgr",
        "rw",
        cf::MGR,
        |c| monitoring(c, true),
        "judge devices by their life expectancy",
    ),
    cmd("device monitoring off", "mgr", "rw", cf::MGR, |c| monitoring(c, false), "judge no devices"),
    cmd(
        "device predict-life-expectancy devid:String",
        "mgr",
        "r",
        cf::MGR,
        |_| refuse(errno::EPERM, "unable to enable any disk prediction model[local/cloud]"),
        "predict the life expectancy of a device (not supported)",
    ),
    cmd(
        "device scrape-health-metrics devid:String?",
        "mgr",
        "r",
        cf::MGR,
        scrape,
        "ask for the health data of all drives, or of one, and keep it",
    ),
    cmd(
        "device scrape-daemon-health-metrics who:String",
        "mgr",
        "r",
        cf::MGR,
        host,
        "ask for the health data of a daemon's drives, and keep it",
    ),
    cmd(
        "device query-daemon-health-metrics who:String",
        "mgr",
        "r",
        cf::MGR,
        host,
        "show the health data of a daemon's drives",
    ),
    cmd(
        "device get-health-metrics devid:String sample:String?",
        "mgr",
        "r",
        cf::MGR,
        metrics,
        "show the health data of a device that was kept, or one sample of it",
    ),
];

/// Prefix of the keys of samples of health data.
const METRICS: &str = "mgr/devicehealth/metrics/";
/// Most samples that an answer has.
const SAMPLES_MAX: usize = 100;
/// Prefix of the module's options.
const OPTIONS: &str = "mgr/devicehealth/";
/// Most devices with a life expectancy.
const DEVICES_MAX: usize = 20_000;
/// Longest device id, in bytes.
const ID_MAX: usize = 512;
const DAY: u64 = 86_400;

impl Life {
    /// The time that is left, for lists.
    pub(in crate::command) fn left(&self, now: Utime) -> String {
        if self.min == Utime::ZERO {
            return String::new();
        }
        if now >= self.min {
            return "now".to_owned();
        }
        let span = |t: Utime| timespan(t.to_unix().saturating_sub(now.to_unix()));
        match (span(self.min), span(self.max)) {
            (min, _) if self.max == Utime::ZERO => format!(">{min}"),
            (min, max) if min == max => min,
            (min, max) => format!("{min} to {max}"),
        }
    }

    /// The part of writes that is used up, for lists.
    pub(in crate::command) fn wear_text(&self) -> String {
        self.wear.map_or_else(String::new, |w| format!("{}%", (w * 100.0) as i64))
    }
}

/// A duration in its largest unit that is not small (`timespan_str`).
fn timespan(d: Duration) -> String {
    let s = d.as_secs();
    let (m, h, days) = (s / 60, s / 3600, s / DAY);
    match () {
        () if s < 2 => format!("{}s", d.as_secs_f32()),
        () if s < 120 => format!("{s}s"),
        () if m < 120 => format!("{m}m"),
        () if h < 48 => format!("{h}h"),
        () if days < 14 => format!("{days}d"),
        () if days / 7 < 12 => format!("{}w", days / 7),
        () if days / 30 < 24 => format!("{}M", days / 30),
        () => format!("{}y", days / 365),
    }
}

/// A time as Ceph writes it.
pub(in crate::command) fn shown(t: Utime) -> String {
    if t == Utime::ZERO { "0.000000".to_owned() } else { t.iso() }
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, from, to) = (c.args.str("devid")?, c.args.str("from")?, c.args.str_or("to", ""));
    let time = |text: &str| match Utime::parse(text) {
        Some(t) => Ok(t),
        None => invalid(format!("unable to parse datetime '{text}'")),
    };
    let (min, max) = (time(&from)?, if to.is_empty() { Utime::ZERO } else { time(&to)? });
    if id.is_empty() || id.len() > ID_MAX {
        return invalid(format!("a device id has 1 to {ID_MAX} bytes"));
    }
    let key = format!("{PREFIX}{id}");
    let had = c.pending.kv(c.state, &key).cloned();
    if had.is_none() && c.state.kv.lives().len() >= DEVICES_MAX {
        return refuse(errno::ENOSPC, format!("{DEVICES_MAX} devices have a life expectancy already"));
    }
    let mut v = json!({"life_expectancy_min": min.iso(), "life_expectancy_stamp": c.now.wall.iso()});
    v["life_expectancy_max"] = if max == Utime::ZERO { String::new() } else { max.iso() }.into();
    if let Some(wear) = had.as_ref().and_then(Life::of).and_then(|l| l.wear) {
        v["wear_level"] = wear.to_string().into();
    }
    c.pending.set_kv(key, Some(v.to_string().into()));
    committed("")
}

fn remove(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = format!("{PREFIX}{}", c.args.str("devid")?);
    let Some(had) = c.pending.kv(c.state, &key).cloned() else { return done("") };
    let wear = Life::of(&had).and_then(|l| l.wear);
    let left = wear.map(|w| json!({"wear_level": w.to_string()}).to_string().into());
    c.pending.set_kv(key, left);
    committed("")
}

/// Asks one of a device's daemons, or all daemons.
fn scrape(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let Some(id) = c.args.opt("devid").filter(|id| !id.is_empty()) else { return host(c) };
    let Some(d) = devices(c).remove(&id) else { return refuse(errno::ENOENT, format!("device {id} not found")) };
    let Some(who) = d.daemons.iter().find(|d| d.starts_with("osd.")).or(d.daemons.first()).cloned() else {
        return refuse(errno::EAGAIN, format!("device {id} not claimed by any active daemons"));
    };
    let mut o = host(c)?;
    for e in &mut o.effects {
        if let CommandEffect::Job(job) = e {
            job.args.insert("who".into(), who.clone());
        }
    }
    Ok(o)
}

/// The samples of a device by their names.
fn metrics(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, sample) = (c.args.str("devid")?, c.args.str_or("sample", ""));
    if !devices(c).contains_key(&id) {
        return refuse(errno::ENOENT, format!("device {id} not found"));
    }
    let prefix = format!("{METRICS}{id}/");
    let all = c.state.kv.range(prefix.clone()..).take_while(|(k, _)| k.starts_with(&prefix));
    let named = all.filter_map(|(k, v)| Some((k.strip_prefix(&prefix)?, v)));
    let wanted = named.filter(|(at, _)| !at.contains('/') && (sample.is_empty() || *at == sample)).take(SAMPLES_MAX);
    let out: serde_json::Map<String, Value> =
        wanted.filter_map(|(at, v)| Some((at.to_owned(), serde_json::from_slice(v).ok()?))).collect();
    plain(net::admin_socket::to_pretty(&Value::Object(out)).trim_end())
}

fn monitoring(c: &mut Ctx<'_>, on: bool) -> Res<CommandOutcome> {
    let key = ConfigKey { who: "mgr".into(), name: format!("{OPTIONS}enable_monitoring") };
    c.pending.set_config(key, Some(if on { "true" } else { "false" }.to_owned()));
    committed("")
}

/// The module's options.
#[derive(Debug)]
struct Options {
    /// `enable_monitoring`.
    on: bool,
    /// `self_heal`.
    heal: bool,
    /// `mark_out_threshold`.
    out: Duration,
    /// `warn_threshold`.
    warn: Duration,
    /// `sleep_interval`.
    sleep: u64,
}

impl Options {
    fn of(state: &ClusterState) -> Self {
        let all = mgr_options(state, OPTIONS);
        let on = |k: &str| {
            let text = all.get(k).map_or("true", String::as_str).to_ascii_lowercase();
            !matches!(text.as_str(), "false" | "0" | "no" | "off" | "")
        };
        let secs = |k: &str, d: u64| all.get(k).and_then(|v| v.trim().parse().ok()).unwrap_or(d);
        Self {
            on: on("enable_monitoring"),
            heal: on("self_heal"),
            out: Duration::from_secs(secs("mark_out_threshold", 28 * DAY)),
            warn: Duration::from_secs(secs("warn_threshold", 84 * DAY)),
            sleep: secs("sleep_interval", 600).clamp(1, DAY),
        }
    }
}

/// Seconds between two checks by the monitor itself; `None` while devices are not judged.
pub(crate) fn interval(state: &ClusterState) -> Option<u64> {
    let o = Options::of(state);
    (o.on && o.heal && !state.options.external_mgr).then_some(o.sleep)
}

/// A device that is in use and has a life expectancy.
struct Used {
    id: String,
    life: Life,
    places: BTreeSet<String>,
    osds: BTreeSet<OsdId>,
}

/// Devices of OSDs with a latest end of their lives.
fn used(state: &ClusterState) -> Vec<Used> {
    let lives = state.kv.lives().iter().filter(|(_, l)| l.max != Utime::ZERO);
    let lives: BTreeMap<&str, &Life> = lives.map(|(id, l)| (id.as_str(), l)).collect();
    if lives.is_empty() {
        return Vec::new();
    }
    let mut all: BTreeMap<&str, Used> = BTreeMap::new();
    for (o, m) in state.osds.metadata.iter().filter(|(o, _)| state.osdmap.exists(**o)) {
        let host = m.get("hostname").map(String::as_str).unwrap_or_default();
        for (dev, id) in super::pairs(m.get("device_ids")) {
            let Some((id, life)) = lives.get_key_value(id) else { continue };
            let new =
                || Used { id: (*id).to_owned(), life: (*life).clone(), places: BTreeSet::new(), osds: BTreeSet::new() };
            let at = all.entry(*id).or_insert_with(new);
            at.places.insert(format!("{host}:{dev}"));
            at.osds.insert(*o);
        }
    }
    all.into_values().collect()
}

/// True if a time comes within a span, or has passed.
fn within(t: Utime, span: Duration, now: Now) -> bool {
    t.to_unix().saturating_sub(now.wall.to_unix()) <= span
}

/// OSDs to be marked out, those first whose devices fail first, and the detail of an alert if they are too many.
fn failing(state: &ClusterState, used: &[Used], o: &Options, now: Now) -> (Vec<OsdId>, Option<String>) {
    let mut bad: BTreeMap<OsdId, Utime> = BTreeMap::new();
    for d in used.iter().filter(|d| o.heal && within(d.life.max, o.out, now)) {
        for osd in d.osds.iter().filter(|o| state.osdmap.is_in(**o)) {
            let at = bad.entry(*osd).or_insert(d.life.max);
            *at = d.life.max.min(*at);
        }
    }
    let mut bad: Vec<(Utime, OsdId)> = bad.into_iter().map(|(o, t)| (t, o)).collect();
    bad.sort_unstable();
    let (all, _, inn) = state.osdmap.osd_counts();
    let least = state.options.osds.min_in_ratio;
    let ratio = |out: usize| inn.saturating_sub(out) as f64 / all.max(1) as f64;
    let may = (0..bad.len()).take_while(|did| ratio(did + 1) >= least).count();
    let text = (may < bad.len()).then(|| {
        let (left, end) = (bad.len() - may, ratio(bad.len()));
        format!(
            "{left} OSDs with failing device(s) would bring \"in\" ratio to {end:.6} < mon_osd_min_in_ratio {least:.6}"
        )
    });
    (bad.into_iter().take(may).map(|(_, o)| o).collect(), text)
}

/// Adds the alerts by `add`: code, severity, count, summary and details.
pub(in crate::command) fn alerts(
    state: &ClusterState,
    now: Now,
    mut add: impl FnMut(&str, Severity, usize, String, Vec<String>),
) {
    let o = Options::of(state);
    if !o.on || state.options.external_mgr {
        return;
    }
    let all = used(state);
    let soon: Vec<String> = all.iter().filter(|d| within(d.life.max, o.warn, now)).map(line).collect();
    if !soon.is_empty() {
        add("DEVICE_HEALTH", Warn, soon.len(), format!("{} device(s) expected to fail soon", soon.len()), soon);
    }
    let gone = all.iter().filter(|d| o.heal && within(d.life.max, o.out, now)).flat_map(|d| &d.osds);
    let out: BTreeSet<OsdId> = gone.copied().filter(|o| !state.osdmap.is_in(*o)).collect();
    let holds = |osd: &OsdId| {
        let n = state.mgr.stats.osd(*osd).map(|s| s.num_pgs).filter(|n| *n > 0)?;
        Some(format!("{osd} is marked out but still has {n} PG(s)"))
    };
    let kept: Vec<String> = out.iter().filter_map(holds).collect();
    if !kept.is_empty() {
        let text = format!("{} daemon(s) expected to fail soon and still contain data", kept.len());
        add("DEVICE_HEALTH_IN_USE", Warn, kept.len(), text, kept);
    }
    if let (_, Some(text)) = failing(state, &all, &o, now) {
        add("DEVICE_HEALTH_TOOMANY", Warn, 1, "Too many daemons are expected to fail soon".into(), vec![text]);
    }
}

/// The line of a device that is expected to fail.
fn line(d: &Used) -> String {
    let places: Vec<&str> = d.places.iter().map(String::as_str).collect();
    let daemons: Vec<String> = d.osds.iter().map(OsdId::to_string).collect();
    let (min, max) = (shown(d.life.min), shown(d.life.max));
    let (places, daemons) = (places.join(","), daemons.join(","));
    format!("{} ({places}); daemons {daemons}; life expectancy between {min} and {max}", d.id)
}

/// Marks OSDs out, and takes the role of primary from them, whose devices are expected to fail. Returns their number.
pub(crate) fn heal(state: &ClusterState, pending: &mut Pending, now: Now) -> usize {
    let o = Options::of(state);
    if !o.on || !o.heal {
        return 0;
    }
    let changes = pending.map(state);
    let (osds, _) = failing(state, &used(state), &o, now);
    let osds: Vec<OsdId> = osds.into_iter().filter(|o| changes.is_in(*o)).collect();
    for osd in &osds {
        let inc = pending.inc_mut(state);
        inc.new_weight.insert(*osd, 0);
        inc.new_primary_affinity.insert(*osd, 0);
        let text = format!("Marking {osd} out, because its device is expected to fail soon");
        pending.log(state, now, Prio::WARN, "cluster", text);
    }
    osds.len()
}

fn check(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if heal(c.state, c.pending, c.now) > 0 { committed("") } else { done("") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_life_is_told_in_one_unit() {
        let now = Utime { sec: 1_700_000_000, nsec: 0 };
        let life = |min: u64, max: u64| {
            let at = |d: u64| if d == 0 { Utime::ZERO } else { now.plus(Duration::from_secs(d)) };
            Life { min: at(min), max: at(max), ..Life::default() }.left(now)
        };
        assert_eq!(life(0, 0), "");
        assert_eq!(life(100 * DAY, 0), ">3M");
        assert_eq!(life(3 * 7 * DAY, 6 * 7 * DAY), "3w to 6w");
        assert_eq!(life(90, 90), "90s");
        assert_eq!([119 * 60, 47 * 3600, 13 * DAY, 800 * DAY].map(|s| life(s, 0)), [">119m", ">47h", ">13d", ">2y"]);
        let past = Life { min: Utime { sec: 5, nsec: 0 }, ..Life::default() };
        assert_eq!(past.left(now), "now");
    }
}
