//! The result of a rehearsal: sums, the verdict with its reasons, a text and a tree.

use super::{ASSUMED_RATE, Facts, OsdFacts, Rate};
use base::{OsdId, PgId, size};
use cluster::OsdMap;
use cluster::osdmap::{map_flag, osd_state};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// OSDs that the text names.
const ROWS: usize = 24;
/// PGs that a reason names.
const NAMED: usize = 4;
/// PGs that a list of the tree has; its count has all.
const LISTED: usize = 1000;

/// Copies that an OSD receives and gives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OsdMoves {
    /// Bytes that it receives.
    pub bytes_in: f64,
    /// Bytes that it may remove afterwards.
    pub bytes_out: f64,
    /// Copies that it receives.
    pub pgs_in: u64,
    /// Copies that it gives up.
    pub pgs_out: u64,
    /// Its store; zero if it is not known.
    pub store: OsdFacts,
}

impl OsdMoves {
    fn ratio(&self, bytes: f64) -> f64 {
        if self.store.total == 0 { 0.0 } else { bytes.max(0.0) / self.store.total as f64 }
    }

    /// The part that is in use now.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.ratio(self.store.used as f64)
    }

    /// The part that is in use at most while data moves: all that comes has come, and nothing has gone.
    #[must_use]
    pub fn peak(&self, overhead: f64) -> f64 {
        self.ratio(self.store.used as f64 + self.bytes_in * overhead)
    }

    /// The part that is in use in the end.
    #[must_use]
    pub fn after(&self, overhead: f64) -> f64 {
        self.ratio(self.store.used as f64 + (self.bytes_in - self.bytes_out) * overhead)
    }
}

/// The judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing speaks against it.
    Safe,
    /// Something is to be looked at before.
    Risky,
    /// Service would stop, data would be lost, or there is no room for it.
    Refused,
}

impl Verdict {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Risky => "risky",
            Self::Refused => "refused",
        }
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct Report {
    /// The epoch of the map that it starts from.
    pub epoch: u32,
    /// Bytes to be copied, with those that the change did not cause.
    pub bytes: u64,
    /// Bytes to be copied before the change already.
    pub under_way: u64,
    /// PGs with a copy or shard in a new place.
    pub pgs_moved: u64,
    /// OSDs that receive or give.
    pub osds: BTreeMap<OsdId, OsdMoves>,
    /// Bytes that stores use for each byte of objects.
    pub overhead: f64,
    /// PGs that are held where they are, and the bytes that the balancer moves later.
    pub held: Option<(usize, u64)>,
    /// PGs that fall to their `min_size` or the last copy.
    pub low: Vec<PgId>,
    /// PGs that stop serving until copies are made.
    pub stopped: Vec<PgId>,
    /// PGs whose data cannot be read any more.
    pub lost: Vec<PgId>,
    /// PGs for which CRUSH finds fewer OSDs than before.
    pub unplaced: Vec<PgId>,
    /// Pools that are removed.
    pub removed: Vec<String>,
    /// PGs without a report.
    pub unknown: usize,
    /// PGs that lack copies already.
    pub incomplete: usize,
    /// PGs that do not serve already.
    pub inactive_now: usize,
    /// Seconds until all PGs are clean.
    pub seconds: f64,
    /// The rate for that.
    pub rate: Rate,
    /// Reasons to refuse it.
    pub refusals: Vec<String>,
    /// Reasons to look at it.
    pub risks: Vec<String>,
    /// The part of objects that the balancer moves at a time.
    at_once: f64,
    stores: BTreeMap<OsdId, OsdFacts>,
    /// Exact sums of bytes: all, and those that were to be copied before.
    sums: (f64, f64),
}

impl Report {
    pub(super) fn new(before: &OsdMap, after: &OsdMap, facts: &Facts) -> Self {
        let exists = |o: &OsdId| after.exists(*o) || before.exists(*o);
        Self {
            epoch: before.epoch.0,
            bytes: 0,
            under_way: 0,
            pgs_moved: 0,
            osds: BTreeMap::new(),
            overhead: facts.overhead,
            held: None,
            low: Vec::new(),
            stopped: Vec::new(),
            lost: Vec::new(),
            unplaced: Vec::new(),
            removed: Vec::new(),
            unknown: 0,
            incomplete: 0,
            inactive_now: 0,
            seconds: 0.0,
            rate: facts.rate,
            refusals: Vec::new(),
            risks: Vec::new(),
            at_once: facts.hold.as_ref().map_or(0.0, |h| h.at_once),
            stores: facts.osds.iter().filter(|(o, _)| exists(o)).map(|(o, f)| (*o, *f)).collect(),
            sums: (0.0, 0.0),
        }
    }

    fn osd(&mut self, o: OsdId) -> &mut OsdMoves {
        let store = self.stores.get(&o).copied().unwrap_or_default();
        self.osds.entry(o).or_insert_with(|| OsdMoves { store, ..OsdMoves::default() })
    }

    /// Counts a copy that an OSD receives; `new` if the change causes it.
    pub(super) fn receive(&mut self, o: OsdId, bytes: f64, new: bool) {
        let at = self.osd(o);
        at.bytes_in += bytes;
        at.pgs_in += 1;
        self.sums.0 += bytes;
        self.sums.1 += if new { 0.0 } else { bytes };
        (self.bytes, self.under_way) = (self.sums.0.round() as u64, self.sums.1.round() as u64);
    }

    /// Counts a copy that an OSD gives up.
    pub(super) fn release(&mut self, o: OsdId, bytes: f64) {
        let at = self.osd(o);
        at.bytes_out += bytes;
        at.pgs_out += 1;
    }

    /// Finds the time and the reasons.
    pub(super) fn judge(&mut self, before: &OsdMap, after: &OsdMap, facts: &Facts) {
        let most = self.osds.values().map(|o| o.bytes_in).fold(0.0, f64::max);
        self.seconds = match facts.rate {
            Rate::Given(bytes) | Rate::Measured { bytes, .. } => self.bytes as f64 / bytes.max(1) as f64,
            Rate::Assumed => most / ASSUMED_RATE as f64,
        };
        self.judge_copies(before, after);
        self.judge_space(after);
        self.judge_progress(after);
    }

    fn judge_copies(&mut self, before: &OsdMap, after: &OsdMap) {
        let mut refuse = |pgs: &[PgId], one: &str, many: &str| {
            if !pgs.is_empty() {
                self.refusals.push(format!("{} {}", named(pgs), if pgs.len() == 1 { one } else { many }));
            }
        };
        refuse(&self.lost, "loses its last readable copy", "lose their last readable copies");
        refuse(&self.stopped, "stops serving until copies are made", "stop serving until copies are made");
        for pool in &self.removed {
            self.refusals.push(format!("pool {pool} is removed with its data"));
        }
        if !self.low.is_empty() {
            let text = "at min_size until copies are made: one more failure stops service";
            self.risks.push(format!("{} {} {text}", named(&self.low), if self.low.len() == 1 { "is" } else { "are" }));
        }
        let ends = |o: &OsdId| {
            before.exists(*o) && (!after.exists(*o) || after.state(*o) & !before.state(*o) & osd_state::DESTROYED != 0)
        };
        let ended: Vec<String> = before.osds().filter(ends).map(|o| o.to_string()).collect();
        if !ended.is_empty() && self.incomplete + self.unknown > 0 {
            self.risks.push(format!("{} may have what {} PGs lack", ended.join(", "), self.incomplete + self.unknown));
        }
    }

    fn judge_space(&mut self, after: &OsdMap) {
        let (near, wait, full) =
            (f64::from(after.nearfull_ratio), f64::from(after.backfillfull_ratio), f64::from(after.full_ratio));
        let (mut unknown, mut refusals, mut risks) = (0, Vec::new(), Vec::new());
        for (o, m) in self.osds.iter().filter(|(_, m)| m.bytes_in > 0.0) {
            if m.store.total == 0 {
                unknown += 1;
                continue;
            }
            let (peak, end) = (m.peak(self.overhead), m.after(self.overhead));
            let over = |limit: f64, at: f64| limit > 0.0 && at >= limit;
            if over(full, end) {
                refusals.push(format!(
                    "{o} has no room: it would be {} full, and full_ratio is {}",
                    part(end),
                    part(full)
                ));
            } else if over(wait, end) {
                let text = "backfillfull_ratio stops the move before its end";
                risks.push(format!("{o} would be {} full: {text} ({})", part(end), part(wait)));
            } else if over(wait, peak) {
                let text = "the move waits at backfillfull_ratio for space that other moves free";
                risks.push(format!("{o} reaches up to {} while data moves: {text} ({})", part(peak), part(wait)));
            } else if over(near, peak) {
                risks.push(format!(
                    "{o} reaches up to {} while data moves, nearfull_ratio is {}",
                    part(peak),
                    part(near)
                ));
            }
        }
        limit(&mut refusals);
        limit(&mut risks);
        self.refusals.extend(refusals);
        self.risks.extend(risks);
        if unknown > 0 {
            self.risks.push(format!("the size of {unknown} OSDs that receive data is not known"));
        }
    }

    fn judge_progress(&mut self, after: &OsdMap) {
        if !self.unplaced.is_empty() {
            let text = "too few OSDs by CRUSH and never get clean";
            let verb = if self.unplaced.len() == 1 { "finds" } else { "find" };
            self.risks.push(format!("{} {verb} {text}", named(&self.unplaced)));
        }
        let flags = [
            (map_flag::NORECOVER, "norecover"),
            (map_flag::NOBACKFILL, "nobackfill"),
            (map_flag::NOREBALANCE, "norebalance"),
        ];
        let set: Vec<&str> = flags.iter().filter(|(f, _)| after.has_flag(*f)).map(|(_, n)| *n).collect();
        if self.bytes > 0 && !set.is_empty() {
            self.risks.push(format!("the map has the flags {}: data does not move", set.join(", ")));
        }
        let changes = self.pgs_moved > 0 || !self.low.is_empty();
        if changes && self.incomplete > 0 {
            self.risks.push(format!("{} PGs lack copies already: wait until they have them", self.incomplete));
        }
        if changes && self.inactive_now > 0 {
            self.risks.push(format!("{} PGs do not serve already", self.inactive_now));
        }
        if self.unknown > 0 {
            self.risks.push(format!("{} PGs have not reported: their data is not counted", self.unknown));
        }
    }

    /// The judgement.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (self.refusals.is_empty(), self.risks.is_empty()) {
            (false, _) => Verdict::Refused,
            (true, false) => Verdict::Risky,
            (true, true) => Verdict::Safe,
        }
    }

    /// The OSDs that receive or give, those that receive most first.
    fn by_bytes(&self) -> Vec<(&OsdId, &OsdMoves)> {
        let mut all: Vec<_> = self.osds.iter().collect();
        let key = |m: &OsdMoves| m.bytes_in.max(m.bytes_out);
        all.sort_by(|a, b| key(b.1).total_cmp(&key(a.1)).then(a.0.cmp(b.0)));
        all
    }

    fn rate_text(&self) -> String {
        match self.rate {
            Rate::Given(b) => format!("{}/s as given", size::show(b)),
            Rate::Measured { bytes, age } => {
                format!("{}/s, measured in this cluster {} ago", size::show(bytes), duration(age as f64))
            }
            Rate::Assumed => {
                format!(
                    "an assumption: {}/s for each OSD that receives; nothing was measured",
                    size::show(ASSUMED_RATE)
                )
            }
        }
    }

    /// The result as a tree.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let osd = |(o, m): (&OsdId, &OsdMoves)| {
            json!({
                "osd": o.0, "bytes_in": m.bytes_in.round() as u64, "bytes_out": m.bytes_out.round() as u64,
                "pgs_in": m.pgs_in, "pgs_out": m.pgs_out, "total": m.store.total, "used": m.store.used,
                "ratio_now": m.now(), "ratio_peak": m.peak(self.overhead), "ratio_after": m.after(self.overhead),
            })
        };
        let pgs = |v: &[PgId]| {
            let named: Vec<String> = v.iter().take(LISTED).map(PgId::to_string).collect();
            json!({"count": v.len(), "pgs": named})
        };
        let (source, bytes) = match self.rate {
            Rate::Given(b) => ("given", b),
            Rate::Measured { bytes, .. } => ("measured", bytes),
            Rate::Assumed => ("assumed_per_osd", ASSUMED_RATE),
        };
        let mut reasons = self.refusals.clone();
        reasons.extend(self.risks.iter().cloned());
        let held = self.held.map(|(n, bytes)| json!({"pgs": n, "bytes_later": bytes, "at_once_ratio": self.at_once}));
        json!({
            "verdict": self.verdict().word(), "reasons": reasons, "epoch": self.epoch,
            "bytes": self.bytes, "bytes_under_way": self.under_way, "pgs_moved": self.pgs_moved,
            "seconds": self.seconds.ceil(), "rate": json!({"bytes_per_sec": bytes, "source": source}),
            "held": held, "at_min_size": pgs(&self.low), "inactive": pgs(&self.stopped), "lost": pgs(&self.lost),
            "unplaced": pgs(&self.unplaced), "pgs_unknown": self.unknown, "space_per_byte": self.overhead,
            "osds": self.osds.iter().map(osd).collect::<Vec<_>>(),
        })
    }
}

/// Keeps the first reasons, and says how many more there are.
fn limit(reasons: &mut Vec<String>) {
    if reasons.len() > NAMED {
        let more = reasons.len() - NAMED;
        reasons.truncate(NAMED);
        reasons.push(format!("and so {more} more OSDs"));
    }
}

fn part(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn named(pgs: &[PgId]) -> String {
    let first: Vec<String> = pgs.iter().take(NAMED).map(PgId::to_string).collect();
    let more = if pgs.len() > NAMED { ", …" } else { "" };
    format!("{} PG{} ({}{more})", pgs.len(), if pgs.len() == 1 { "" } else { "s" }, first.join(", "))
}

/// A duration in the largest units that matter.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let s = seconds.ceil() as u64;
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s.div_ceil(60)),
        7200..172_800 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} days {} h", s / 86_400, s % 86_400 / 3600),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_way = match self.under_way {
            0 => String::new(),
            n => format!("; {} of it before the change already", size::show(n)),
        };
        writeln!(f, "data to copy    {} in {} PGs{under_way}", size::show(self.bytes), self.pgs_moved)?;
        if let Some((n, bytes)) = self.held {
            let pace = format!("at most {} of all objects at a time", part(self.at_once));
            writeln!(f, "held            {n} PGs stay; the balancer moves {} later, {pace}", size::show(bytes))?;
        }
        if self.bytes > 0 {
            writeln!(f, "time to clean   about {} at {}", duration(self.seconds), self.rate_text())?;
        }
        let counts = [("at min_size", &self.low), ("inactive", &self.stopped), ("lost", &self.lost)];
        for (what, pgs) in counts {
            writeln!(f, "{what:15} {}", if pgs.is_empty() { "0 PGs".to_owned() } else { named(pgs) })?;
        }
        let all = self.by_bytes();
        if !all.is_empty() {
            writeln!(f, "{:>8}  {:>10}  {:>10}  {:>7}  {:>7}  {:>7}", "OSD", "IN", "OUT", "NOW", "PEAK", "AFTER")?;
        }
        for (o, m) in all.iter().take(ROWS) {
            let mut row = format!("{:>8}  {:>10}  {:>10}", o.to_string(), bytes(m.bytes_in), bytes(m.bytes_out));
            for ratio in [m.now(), m.peak(self.overhead), m.after(self.overhead)] {
                let text = if m.store.total == 0 { "?".to_owned() } else { part(ratio) };
                write!(row, "  {text:>7}")?;
            }
            writeln!(f, "{row}")?;
        }
        if all.len() > ROWS {
            writeln!(f, "{:>8}  and {} more (--json has all)", "", all.len() - ROWS)?;
        }
        match self.verdict() {
            Verdict::Safe => write!(f, "safe"),
            v => {
                let reasons: Vec<&str> = self.refusals.iter().chain(&self.risks).map(String::as_str).collect();
                write!(f, "{}: {}", v.word(), reasons.join("; "))
            }
        }
    }
}

fn bytes(n: f64) -> String {
    size::show(n.round() as u64)
}
