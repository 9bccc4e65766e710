//! All stages of a plan, by the effects of their steps.

use crate::facts::{ClusterState, Facts};
use crate::inventory::Inventory;
use crate::next::{Next, Stage};
use crate::problem::Problem;
use crate::step::Action;

/// Most stages of a plan. Members of etcd and monitors move one by one, so this is far above any real plan.
const STAGES_MAX: usize = 200;

/// A plan to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// Stages in order.
    pub stages: Vec<Stage>,
    /// Seconds that each stage takes, about.
    pub seconds: Vec<u64>,
    /// The steps of each stage in words, with the data that they move.
    pub lines: Vec<Vec<String>>,
    /// Problems that stop it after these stages.
    pub problems: Vec<Problem>,
}

impl Planned {
    /// Seconds in all, about.
    #[must_use]
    pub fn total_seconds(&self) -> u64 {
        self.seconds.iter().sum()
    }
}

/// Time of steps of which `parallel` run at once.
fn time(seconds: impl Iterator<Item = u64>, parallel: usize) -> u64 {
    let mut all: Vec<u64> = seconds.collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.chunks(parallel.max(1)).filter_map(|c| c.first()).sum()
}

/// Plans to the end, with `next` as the rule for the next stage.
pub fn plan(i: &Inventory, f: &Facts, next: impl Fn(&Inventory, &Facts) -> Next) -> Planned {
    let (mut f, mut p) = (f.clone(), Planned::default());
    while p.stages.len() < STAGES_MAX {
        match next(i, &f) {
            Next::Done => return p,
            Next::Blocked(problems) => {
                p.problems = problems;
                return p;
            }
            Next::Stage(stage) => {
                p.seconds.push(time(stage.steps.iter().map(|s| s.seconds(&f)), i.ssh.parallel));
                p.lines.push(stage.steps.iter().map(|s| s.line(&f)).collect());
                stage.steps.iter().for_each(|s| s.apply_to(i, &mut f));
                let starts = stage.steps.iter().any(|s| matches!(s.action, Action::StartMonitor | Action::StateToEtcd));
                p.stages.push(stage);
                if starts && matches!(f.cluster, ClusterState::Silent(_)) {
                    p.problems.push(Problem::new("", "the rest is planned once the monitors answer"));
                    return p;
                }
            }
        }
    }
    p.problems.push(Problem::new("", format!("the plan has more than {STAGES_MAX} stages; the rest is not shown")));
    p
}
