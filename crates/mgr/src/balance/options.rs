//! Options and state of the balancer.

use super::{Gather, Plan};
use base::{Epoch, Mono, Now, PoolId, Utime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The result of an optimization that found moves.
pub const CREATED: &str = "Optimization plan created successfully";
/// The result of an optimization that found none.
pub const NOTHING: &str =
    "Unable to find further optimization, or pool(s) pg_num is decreasing, or distribution is already perfect";
/// The result of an optimization of reads that found nothing to change.
pub const NOTHING_TO_READ: &str = "Unable to find further optimization, or distribution is already perfect";

/// The options `mgr/balancer/*`.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerOptions {
    /// True if the balancer runs by itself.
    pub active: bool,
    /// The mode: `upmap`, `read`, `upmap-read`, or `none`.
    pub mode: String,
    /// Time between two runs.
    pub sleep: Duration,
    /// Hours and minutes of the day (`HHMM`, UTC) between which the balancer runs.
    pub hours: (String, String),
    /// Days of the week between which the balancer runs; 0 and 7 are Sunday.
    pub days: (u64, u64),
    /// The number of PG shards by which an OSD may be off.
    pub deviation: f64,
    /// Most moves of a run.
    pub moves: usize,
    /// The pools; empty for all.
    pub pools: BTreeSet<PoolId>,
    /// True if PGs stay where they are when OSDs join, and move by the balancer's runs.
    pub hold_growth: bool,
}

impl BalancerOptions {
    /// The options of these texts, by name without `mgr/balancer/`. One that cannot be parsed has its default.
    #[must_use]
    pub fn of(all: &BTreeMap<String, String>) -> Self {
        let text = |k: &str, d: &str| all.get(k).cloned().unwrap_or_else(|| d.to_owned());
        let number = |k: &str, d: u64| all.get(k).and_then(|v| v.trim().parse().ok()).unwrap_or(d);
        let pools = text("pool_ids", "");
        let on = |k: &str| !matches!(text(k, "true").to_ascii_lowercase().as_str(), "false" | "0" | "no" | "off" | "");
        Self {
            active: on("active"),
            hold_growth: on("hold_growth"),
            mode: text("mode", "upmap"),
            sleep: Duration::from_secs(number("sleep_interval", 60).clamp(1, 86_400)),
            hours: (text("begin_time", "0000"), text("end_time", "2400")),
            days: (number("begin_weekday", 0), number("end_weekday", 7)),
            deviation: number("upmap_max_deviation", 1).max(1) as f64,
            moves: usize::try_from(number("upmap_max_optimizations", 10)).unwrap_or(usize::MAX).max(1),
            pools: pools.split(',').filter_map(|p| p.trim().parse().ok()).map(PoolId).collect(),
        }
    }

    /// True if the mode moves PG shards.
    #[must_use]
    pub fn moves_shards(&self) -> bool {
        matches!(self.mode.as_str(), "upmap" | "upmap-read")
    }

    /// True if the mode chooses primaries.
    #[must_use]
    pub fn chooses_primaries(&self) -> bool {
        matches!(self.mode.as_str(), "read" | "upmap-read")
    }

    /// True if the balancer may run at this time.
    #[must_use]
    pub fn permits(&self, at: Utime) -> bool {
        let within = |at: &str, (from, to): (&str, &str)| {
            if from <= to { from <= at && at < to } else { at >= from || at < to }
        };
        let [_, _, _, hour, minute, _] = at.utc();
        // The first of January 1970 was a Thursday.
        let day = (u64::from(at.sec / 86_400) + 4) % 7;
        let [day, from, to] = [day, self.days.0, self.days.1].map(|d| d.to_string());
        within(&format!("{hour:02}{minute:02}"), (&self.hours.0, &self.hours.1)) && within(&day, (&from, &to))
    }
}

/// A plan of an operator.
#[derive(Clone, Debug)]
pub struct NamedPlan {
    /// The epoch of the map that the plan is for.
    pub epoch: Epoch,
    /// The version of that map's CRUSH map.
    pub crush_version: i32,
    /// The mode in which it was made.
    pub mode: String,
    /// The pools given; empty for all.
    pub pools: BTreeSet<PoolId>,
    /// The moves.
    pub plan: Plan,
}

/// State of the balancer. Not stored.
#[derive(Debug, Default)]
pub struct Balancer {
    /// The gathering under way.
    gather: Option<Gather>,
    /// Time of the next run.
    next: Mono,
    /// Time of the start of the last run.
    began: Mono,
    /// The map under which a whole run found nothing to do, with the options then.
    rests: Option<(Epoch, BalancerOptions)>,
    /// Wall time of the start of the last run; zero for none.
    last_started: Utime,
    /// Duration of the last run.
    last_duration: Option<Duration>,
    /// The result of the last run.
    result: String,
    /// True if the last run found the distribution even.
    even: bool,
    /// Plans of operators, by name.
    plans: BTreeMap<String, NamedPlan>,
}

/// A change of the balancer's volatile state by a command.
#[derive(Clone, Debug)]
pub enum BalancerChange {
    /// Begin the next run with the next tick.
    Wake,
    /// Keep the result of an optimization, with its plan if it found one.
    Optimized(Result<(String, Box<NamedPlan>), String>),
    /// Drop a plan.
    Drop(String),
    /// Drop all plans.
    DropAll,
}

impl Balancer {
    /// Carries out a command's change.
    pub fn change(&mut self, c: BalancerChange, now: Now) {
        match c {
            BalancerChange::Wake => (self.next, self.rests) = (now.mono, None),
            BalancerChange::Optimized(r) => {
                (self.last_started, self.last_duration) = (now.wall, Some(Duration::ZERO));
                self.even = r.as_ref().is_err_and(|e| e == NOTHING || e == NOTHING_TO_READ);
                self.result = match r {
                    Ok((name, plan)) => {
                        self.plans.insert(name, *plan);
                        CREATED.to_owned()
                    }
                    Err(text) => text,
                };
            }
            BalancerChange::Drop(name) => _ = self.plans.remove(&name),
            BalancerChange::DropAll => self.plans.clear(),
        }
    }

    /// True if a run gathers, or the next one is due.
    #[must_use]
    pub fn is_due(&self, now: Mono) -> bool {
        self.is_gathering() || now >= self.next
    }

    /// True if a run gathers the placement of PGs.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        self.gather.is_some()
    }

    /// Sets the time of the next run.
    pub fn wait_until(&mut self, next: Mono) {
        self.next = next;
    }

    /// True if a whole run found nothing to do under this map, with these options.
    #[must_use]
    pub fn rests(&self, epoch: Epoch, options: &BalancerOptions) -> bool {
        self.rests.as_ref().is_some_and(|(e, o)| *e == epoch && o == options)
    }

    /// Begins a run, which gathers first.
    pub fn begin(&mut self, now: Now) {
        (self.last_started, self.began) = (now.wall, now.mono);
        self.gather = Some(Gather::default());
    }

    /// The gathering of the run.
    pub fn gather(&mut self) -> Option<&mut Gather> {
        self.gather.as_mut()
    }

    /// Takes what the run has gathered.
    pub fn take_gathered(&mut self) -> Gather {
        self.gather.take().unwrap_or_default()
    }

    /// Ends a run that moves PGs.
    pub fn moved(&mut self, now: Mono) {
        self.end(now);
        (self.result, self.even, self.rests) = (CREATED.to_owned(), false, None);
    }

    /// Ends a run that moves nothing, and why. One that found all even rests under the map `epoch` and these options.
    pub fn stayed(&mut self, now: Mono, why: String, even: bool, epoch: Epoch, options: BalancerOptions) {
        self.end(now);
        (self.result, self.even) = (why, even);
        self.rests = even.then_some((epoch, options));
    }

    fn end(&mut self, now: Mono) {
        self.gather = None;
        self.last_duration = Some(now.since(self.began));
    }

    /// Wall time of the start of the last run; zero for none.
    #[must_use]
    pub fn last_started(&self) -> Utime {
        self.last_started
    }

    /// Duration of the last run.
    #[must_use]
    pub fn last_duration(&self) -> Option<Duration> {
        self.last_duration
    }

    /// The result of the last run.
    #[must_use]
    pub fn result(&self) -> &str {
        &self.result
    }

    /// True if the last run found the distribution even.
    #[must_use]
    pub fn is_even(&self) -> bool {
        self.even
    }

    /// Plans of operators, by name.
    #[must_use]
    pub fn plans(&self) -> &BTreeMap<String, NamedPlan> {
        &self.plans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> BalancerOptions {
        BalancerOptions {
            active: true,
            mode: "upmap".into(),
            sleep: Duration::from_secs(60),
            hours: ("0000".into(), "2400".into()),
            days: (0, 7),
            deviation: 1.0,
            moves: 10,
            pools: BTreeSet::new(),
            hold_growth: true,
        }
    }

    #[test]
    fn hours_and_days_limit_the_runs() {
        // 2026-11-27 is a Friday.
        let at = |h: u32| Utime { sec: 1_795_737_600 + h * 3600, nsec: 0 };
        assert!((0..24).all(|h| options().permits(at(h))));
        let night = BalancerOptions { hours: ("2200".into(), "0600".into()), ..options() };
        let allowed: Vec<u32> = (0..24).filter(|h| night.permits(at(*h))).collect();
        assert_eq!(allowed, [0, 1, 2, 3, 4, 5, 22, 23]);
        assert!(!BalancerOptions { days: (0, 5), ..options() }.permits(at(3)), "until Thursday");
        assert!(BalancerOptions { days: (5, 1), ..options() }.permits(at(3)), "over the weekend");
    }
}
