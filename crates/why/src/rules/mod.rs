//! The rules, one for each kind of cause.
//!
//! | module | contents |
//! | --- | --- |
//! | `background` | work of the cluster itself beside that of clients |
//! | `clock` | clocks that differ, and the store of the monitors |
//! | `cpu` | CPU that an OSD's threads do not get |
//! | `device` | devices that answer slowly |
//! | `network` | networks that lose packets or take small ones only |
//! | `object` | objects that many operations want, and locks on objects |
//! | `service` | PGs that do not serve |
//! | `space` | space that is used up: quotas of pools, OSDs, and the file systems under the files of OSDs |

mod background;
mod clock;
mod cpu;
mod device;
mod network;
mod object;
mod service;
mod space;

use crate::evidence::Evidence;
use crate::load::Load;
use crate::placement::names;
use crate::verdict::Verdict;

pub(crate) use cpu::{THROTTLED_MIN, WAITED_MIN};

/// A rule: the verdicts of one kind of cause.
type Rule = fn(&Evidence, &Load) -> Vec<Verdict>;

/// All rules.
pub(crate) const ALL: &[Rule] = &[
    service::not_serving,
    space::quota,
    space::full,
    space::not_running,
    device::slow,
    cpu::taken,
    cpu::quota,
    cpu::stolen,
    network::lossy,
    network::mtu,
    object::hot,
    object::dead_lock,
    background::deep_scrub,
    background::recovery,
    clock::off,
    clock::mon_store,
];

/// Smallest share of the operations' time for which a cause is named.
const SHARE_MIN: f64 = 0.1;
