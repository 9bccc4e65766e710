//! The safety of the data now, and after the loss of any one host.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Redundancy of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Copies or shards.
    pub size: usize,
    /// Fewest copies or shards with which it serves.
    pub min_size: usize,
    /// Fewest copies or shards from which its data can be read: 1, or the data shards of its code.
    pub needs: usize,
}

/// A PG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pg {
    /// Name.
    pub pg: String,
    /// Number of its pool.
    pub pool: i64,
    /// State, as `ceph pg dump` has it.
    pub state: String,
    /// Acting set of the report, without OSDs that are down now; negative or very large numbers are holes.
    pub acting: Vec<i32>,
    /// True if the newest map has another acting set than the report, so that the state is an older one.
    pub outdated: bool,
}

/// OSDs of a host.
pub type Hosts = BTreeMap<String, Vec<i32>>;

/// PGs after a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// PGs that would not serve until recovery has made copies.
    pub stopped: Vec<String>,
    /// PGs whose data would be lost if the host never came back.
    pub lost: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Safety {
    /// PGs that do not serve now.
    pub inactive: Vec<String>,
    /// PGs with fewer copies than their pools want.
    pub fewer: Vec<String>,
    /// PGs with copies that differ.
    pub inconsistent: Vec<String>,
    /// PGs with all copies.
    pub complete: usize,
    /// The hosts whose loss would stop or lose PGs.
    pub hosts: BTreeMap<String, Loss>,
    /// Number of hosts looked at.
    pub all_hosts: usize,
}

/// Largest number of an OSD; `2147483647` is a hole in an acting set.
const OSD_MAX: i32 = 0x7fff_fffe;

fn present(pg: &Pg) -> impl Iterator<Item = i32> + '_ {
    pg.acting.iter().copied().filter(|o| (0..=OSD_MAX).contains(o))
}

/// Judges the PGs, and what the loss of each host would do to them. Copies that are still being made count only if the PG is
/// not degraded.
#[must_use]
pub fn judge(pools: &BTreeMap<i64, Pool>, pgs: &[Pg], hosts: &Hosts) -> Safety {
    let mut s = Safety { all_hosts: hosts.len(), ..Safety::default() };
    for pg in pgs {
        let Some(pool) = pools.get(&pg.pool) else { continue };
        let incomplete = ["degraded", "undersized", "backfill", "recover", "incomplete", "down"];
        let enough = present(pg).count() >= pool.size && !pg.outdated;
        let whole = enough && !incomplete.iter().any(|w| pg.state.contains(w));
        if !pg.state.contains("active") {
            s.inactive.push(pg.pg.clone());
        }
        if pg.state.contains("inconsistent") {
            s.inconsistent.push(pg.pg.clone());
        }
        if whole {
            s.complete += 1;
        } else {
            s.fewer.push(pg.pg.clone());
        }
        // One copy at least may be incomplete in a PG that recovers.
        let reserve = usize::from(!whole && present(pg).count() >= pool.size);
        for (host, osds) in hosts {
            let left = present(pg).filter(|o| !osds.contains(o)).count().saturating_sub(reserve);
            if present(pg).all(|o| !osds.contains(&o)) {
                continue;
            }
            let l = s.hosts.entry(host.clone()).or_default();
            if left < pool.needs {
                l.lost.push(pg.pg.clone());
            } else if left < pool.min_size {
                l.stopped.push(pg.pg.clone());
            }
        }
    }
    s.hosts.retain(|_, l| !l.lost.is_empty() || !l.stopped.is_empty());
    s
}

fn some(pgs: &[String]) -> String {
    let first: Vec<&str> = pgs.iter().take(4).map(String::as_str).collect();
    let more = if pgs.len() > 4 { ", …" } else { "" };
    format!("{} PGs ({}{more})", pgs.len(), first.join(", "))
}

impl Safety {
    /// True if all data has all its copies, and no single host's loss stops or loses any.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.inactive.is_empty() && self.fewer.is_empty() && self.inconsistent.is_empty() && self.hosts.is_empty()
    }

    /// The answer as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let hosts: BTreeMap<&String, Value> =
            self.hosts.iter().map(|(h, l)| (h, json!({"stopped": l.stopped, "lost": l.lost}))).collect();
        json!({
            "safe": self.is_safe(), "complete": self.complete, "inactive": self.inactive, "fewer_copies": self.fewer,
            "inconsistent": self.inconsistent, "hosts": self.all_hosts, "if_host_dies": hosts,
        })
    }
}

impl fmt::Display for Safety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.complete + self.fewer.len();
        match self.fewer.len() {
            0 => writeln!(f, "now: all {all} PGs have all their copies")?,
            _ => {
                writeln!(f, "now: {} of {all} PGs have all their copies; fewer: {}", self.complete, some(&self.fewer))?
            }
        }
        if !self.inactive.is_empty() {
            writeln!(f, "     {} do not serve", some(&self.inactive))?;
        }
        if !self.inconsistent.is_empty() {
            writeln!(f, "     copies differ in {}; `ceph pg repair PGID`", some(&self.inconsistent))?;
        }
        if self.hosts.is_empty() {
            return write!(f, "if any one of {} hosts dies: no data is lost, and all PGs go on", self.all_hosts);
        }
        for (i, (host, l)) in self.hosts.iter().enumerate() {
            let lost = if l.lost.is_empty() {
                "no data is lost".into()
            } else {
                format!("the data of {} is lost", some(&l.lost))
            };
            let stopped = if l.stopped.is_empty() {
                String::new()
            } else {
                format!("; {} stop until recovery", some(&l.stopped))
            };
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "if {host} dies: {lost}{stopped}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        BTreeMap::from([("a".into(), vec![0, 1]), ("b".into(), vec![2]), ("c".into(), vec![3])])
    }

    fn pools() -> BTreeMap<i64, Pool> {
        let pool = |name: &str, size, min_size, needs| Pool { name: name.into(), size, min_size, needs };
        BTreeMap::from([(1, pool("rbd", 3, 2, 1)), (2, pool("coded", 4, 3, 2)), (3, pool("scratch", 1, 1, 1))])
    }

    fn pg(name: &str, pool: i64, state: &str, acting: &[i32]) -> Pg {
        Pg { pg: name.into(), pool, state: state.into(), acting: acting.to_vec(), outdated: false }
    }

    #[test]
    fn three_copies_on_three_hosts_are_safe() {
        let s = judge(&pools(), &[pg("1.0", 1, "active+clean", &[0, 2, 3])], &hosts());
        assert!(s.is_safe(), "{s:?}");
        assert!(s.to_string().contains("if any one of 3 hosts dies: no data is lost"), "{s}");
    }

    #[test]
    fn copies_on_one_host_are_found() {
        let all = [
            pg("1.1", 1, "active+clean", &[0, 1, 2]),
            pg("2.0", 2, "active+clean", &[0, 1, 2, 3]),
            pg("3.0", 3, "active+clean", &[3]),
        ];
        let s = judge(&pools(), &all, &hosts());
        assert_eq!(s.hosts["a"], Loss { stopped: vec!["1.1".into(), "2.0".into()], lost: vec![] });
        assert_eq!(s.hosts["c"], Loss { stopped: vec![], lost: vec!["3.0".into()] });
        assert_eq!(s.hosts.len(), 2);
        assert!(!s.is_safe() && s.fewer.is_empty());
    }

    #[test]
    fn a_report_from_before_an_osd_went_down_is_not_believed() {
        let old = Pg { outdated: true, ..pg("1.0", 1, "active+clean", &[0, -1, 3]) };
        let moved = Pg { outdated: true, ..pg("1.1", 1, "active+clean", &[0, 2, 3]) };
        let s = judge(&pools(), &[old, moved], &hosts());
        assert_eq!((s.complete, s.fewer.len()), (0, 2));
        assert_eq!(s.hosts["a"].stopped, ["1.0", "1.1"]);
    }

    #[test]
    fn copies_that_are_still_made_do_not_count() {
        let all = [
            pg("1.0", 1, "active+undersized+degraded", &[0, 2]),
            pg("1.1", 1, "active+recovering+degraded", &[0, 2, 3]),
            pg("2.1", 2, "undersized+degraded+peered", &[0, i32::MAX, 2, i32::MAX]),
        ];
        let s = judge(&pools(), &all, &hosts());
        assert_eq!((s.fewer.len(), s.inactive.as_slice()), (3, ["2.1".to_owned()].as_slice()));
        assert_eq!(s.hosts["b"].stopped, ["1.0", "1.1"]);
        assert_eq!(s.hosts["b"].lost, ["2.1"]);
    }
}
