//! The next stage of a plan: rules in the order in which a cluster is made, changed and taken apart.
//!
//! | module | contents |
//! | --- | --- |
//! | `etcd` | members of the etcd that holds the state of several monitors |
//! | `hosts` | programs and configuration of hosts |
//! | `monitors` | monitors of the inventory |
//! | `moves` | the monitors' state between a file, for one monitor, and etcd, for several |
//! | `osds` | OSDs of the inventory's hosts |
//! | `removal` | removal of parts that are in no inventory any more: services, OSDs, monitors, members of etcd, hosts |
//! | `services` | options, file systems, metadata servers and gateways |

mod etcd;
mod hosts;
mod monitors;
pub(crate) mod moves;
pub(crate) mod osds;
mod removal;
mod services;

use crate::facts::{ClusterState, Facts, HostFacts};
use crate::inventory::Inventory;
use crate::problem::{Problem, problems};
use crate::step::Step;

/// Steps that do not depend on each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Purpose of the stage, as a heading.
    pub title: String,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// The next part of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These steps.
    Stage(Stage),
    /// The operator has to settle something; nothing that depends on it is begun.
    Blocked(Vec<Problem>),
    /// Nothing: the facts are what the inventory says.
    Done,
}

/// Steps of a rule, or what keeps it from naming them.
type Steps = Result<Vec<Step>, Vec<Problem>>;
type Rule = fn(&Inventory, &Facts) -> Steps;

/// Rules in order. A rule sees facts in which all earlier rules are satisfied.
const ORDER: &[(&str, Rule)] = &[
    ("install", hosts::install),
    ("configure", hosts::configure),
    ("prepare etcd", etcd::clear_unused),
    ("start etcd", etcd::start),
    ("move the monitors' state", moves::to_etcd),
    ("make the cluster", monitors::make_state),
    ("start monitors", monitors::start),
    ("replace lost members of etcd", etcd::remove_lost),
    ("add a member to etcd", etcd::add),
    ("add monitors", monitors::add),
    ("set options", services::options),
    ("give keys", osds::bootstrap_keys),
    ("move hosts in the CRUSH map", osds::places),
    ("make OSDs", osds::create),
    ("start OSDs", osds::start),
    ("make file systems", services::filesystems),
    ("start metadata servers and gateways", services::start),
    ("restart a monitor for its configuration", monitors::restart),
    ("stop metadata servers and gateways", removal::services),
    ("drain OSDs", removal::drain),
    ("remove OSDs", removal::retire),
    ("remove hosts from the CRUSH map", removal::drop_hosts),
    ("remove a monitor", removal::monitor),
    ("move the monitors' state", moves::to_file),
    ("remove a member of etcd", removal::member),
    ("clear etcd", removal::clear_etcd),
    ("leave hosts", removal::leave),
];

/// The next stage from the facts to what the inventory says.
#[must_use]
pub fn next(i: &Inventory, f: &Facts) -> Next {
    let found = problems(i, f);
    if !found.is_empty() {
        return Next::Blocked(found);
    }
    for (title, rule) in ORDER {
        match rule(i, f) {
            Err(problems) => return Next::Blocked(problems),
            Ok(steps) if steps.is_empty() => {}
            Ok(steps) => return Next::Stage(Stage { title: (*title).into(), steps }),
        }
    }
    match &f.cluster {
        ClusterState::Silent(why) => {
            Next::Blocked(vec![Problem::new("", format!("all monitors run, and none answers: {why}"))])
        }
        _ => Next::Done,
    }
}

/// Hosts of the inventory that answer, in order.
fn present<'a>(i: &'a Inventory, f: &'a Facts) -> impl Iterator<Item = (&'a str, &'a HostFacts)> {
    let all = i.hosts.keys().filter(|n| !f.skipped.contains(*n));
    all.filter_map(|n| Some((n.as_str(), f.host(n)?)))
}

/// Hosts with a monitor that answer, in the inventory's order.
fn monitor_hosts<'a>(i: &'a Inventory, f: &'a Facts) -> impl Iterator<Item = (&'a str, &'a HostFacts)> {
    let all = i.monitors.iter().filter(|n| !f.skipped.contains(*n));
    all.filter_map(|n| Some((n.as_str(), f.host(n)?)))
}
