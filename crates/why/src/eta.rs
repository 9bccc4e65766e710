//! The end of recovery, from measured rates.

use serde_json::{Value, json};
use std::fmt;

/// Objects that are to be recovered or moved, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Time of the sample in seconds.
    pub at: f64,
    /// Copies that are missing.
    pub degraded: u64,
    /// Copies that are in the wrong place.
    pub misplaced: u64,
    /// Objects without a copy that can be read.
    pub unfound: u64,
    /// PGs that have not reported since the map gave them another acting set.
    pub unreported: u64,
}

impl Sample {
    /// Copies to be made.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.degraded + self.misplaced
    }

    /// True if all PGs say that nothing is to be made.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left() == 0 && self.unreported == 0
    }
}

/// Reasons for which recovery stands still, as far as the maps show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Flags of the map that stop it (`norecover`, `nobackfill`, `norebalance`).
    pub flags: Vec<String>,
    /// PGs that wait for space at their targets.
    pub too_full: u64,
    /// OSDs that are down and in.
    pub down: Vec<i32>,
}

/// Answer to the question when recovery is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Eta {
    /// There is nothing to recover.
    Done,
    /// PGs, of this number, have to report before it is known what is to be recovered.
    Unreported(u64),
    /// So many seconds from the last sample, at this number of copies a second.
    In {
        /// Seconds.
        seconds: f64,
        /// Copies a second.
        rate: f64,
        /// Copies to be made.
        left: u64,
    },
    /// Nothing was recovered between the samples.
    Stands {
        /// Copies to be made.
        left: u64,
        /// Objects without a readable copy.
        unfound: u64,
        /// Reasons.
        stops: Stops,
    },
}

/// Estimates the end of recovery from samples in order of time, of which the last is the present. The rate is that from the
/// sample with the most left to the last one, so that a change of the map meanwhile counts as a new begin.
#[must_use]
pub fn estimate(samples: &[Sample], stops: Stops) -> Eta {
    let Some(last) = samples.last().copied() else { return Eta::Done };
    if last.left() == 0 && last.unfound == 0 {
        return if last.unreported > 0 { Eta::Unreported(last.unreported) } else { Eta::Done };
    }
    let top = samples.iter().rev().max_by_key(|s| s.left()).copied().unwrap_or(last);
    let (made, took) = (top.left().saturating_sub(last.left()), last.at - top.at);
    if made == 0 || took <= 0.0 || last.left() == 0 {
        return Eta::Stands { left: last.left(), unfound: last.unfound, stops };
    }
    let rate = made as f64 / took;
    Eta::In { seconds: last.left() as f64 / rate, rate, left: last.left() }
}

/// A duration in the largest units that matter.
fn duration(seconds: f64) -> String {
    let s = seconds.ceil() as u64;
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s.div_ceil(60)),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

impl fmt::Display for Eta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => write!(f, "nothing is to be recovered"),
            Self::Unreported(1) => write!(f, "not known yet: 1 PG has not reported since the map changed"),
            Self::Unreported(n) => write!(f, "not known yet: {n} PGs have not reported since the map changed"),
            Self::In { seconds, rate, left } => {
                write!(
                    f,
                    "recovery is done in about {}: {left} copies are left, {rate:.1} are made a second",
                    duration(*seconds)
                )
            }
            Self::Stands { left, unfound, stops } => {
                write!(f, "recovery stands still: {left} copies are left")?;
                if *unfound > 0 {
                    write!(f, "; {unfound} objects have no copy that can be read (`ceph health detail`)")?;
                }
                if !stops.flags.is_empty() {
                    write!(
                        f,
                        "; the map has the flags {} (`ceph osd unset {}`)",
                        stops.flags.join(", "),
                        stops.flags[0]
                    )?;
                }
                if stops.too_full > 0 {
                    write!(f, "; {} PGs wait for space on their targets: add OSDs or remove data", stops.too_full)?;
                }
                if !stops.down.is_empty() {
                    let down: Vec<String> = stops.down.iter().map(|o| format!("osd.{o}")).collect();
                    let (be, them) = if down.len() == 1 { ("is", "it") } else { ("are", "them") };
                    write!(f, "; {} {be} down and still in: start {them}, or mark {them} out", down.join(", "))?;
                }
                Ok(())
            }
        }
    }
}

impl Eta {
    /// The answer as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Done => json!({"state": "done"}),
            Self::Unreported(n) => json!({"state": "unknown", "pgs_unreported": n}),
            Self::In { seconds, rate, left } => {
                json!({"state": "recovering", "seconds": seconds.ceil(), "copies_per_second": rate, "copies_left": left})
            }
            Self::Stands { left, unfound, stops } => json!({
                "state": "standing", "copies_left": left, "unfound": unfound, "flags": stops.flags,
                "pgs_too_full": stops.too_full, "down": stops.down,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: f64, degraded: u64) -> Sample {
        Sample { at, degraded, ..Sample::default() }
    }

    #[test]
    fn the_rate_is_measured_from_the_highest_point() {
        let all = [sample(0.0, 100), sample(5.0, 900), sample(10.0, 800), sample(15.0, 700)];
        let eta = estimate(&all, Stops::default());
        assert_eq!(eta, Eta::In { seconds: 35.0, rate: 20.0, left: 700 });
        assert_eq!(eta.to_string(), "recovery is done in about 35 s: 700 copies are left, 20.0 are made a second");
    }

    #[test]
    fn a_standstill_names_its_reasons() {
        let stops = Stops { flags: vec!["norecover".into()], too_full: 0, down: vec![2] };
        let eta = estimate(&[sample(0.0, 7), sample(10.0, 7)], stops);
        let text = eta.to_string();
        assert!(
            text.contains("7 copies") && text.contains("ceph osd unset norecover") && text.contains("osd.2"),
            "{text}"
        );
        assert_eq!(estimate(&[sample(0.0, 7), sample(9.0, 0)], Stops::default()), Eta::Done);
        assert_eq!(estimate(&[], Stops::default()), Eta::Done);
    }

    #[test]
    fn nothing_is_done_before_the_pgs_have_reported() {
        let silent = Sample { unreported: 3, ..Sample::default() };
        assert!(!silent.is_done() && Sample::default().is_done());
        let eta = estimate(&[silent], Stops::default());
        assert_eq!(eta.to_string(), "not known yet: 3 PGs have not reported since the map changed");
        assert_eq!(eta.to_json()["state"], "unknown");
        // What other PGs lack is known.
        let some = Sample { degraded: 7, ..silent };
        assert!(matches!(estimate(&[some], Stops::default()), Eta::Stands { left: 7, .. }));
    }

    #[test]
    fn durations_have_fitting_units() {
        assert_eq!([1.2, 150.0, 9000.0].map(duration), ["2 s", "3 min", "2 h 30 min"]);
    }
}
