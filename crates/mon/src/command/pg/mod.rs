//! Commands on PGs: what they are and where, and requests to their OSDs.
//!
//! | module | contents |
//! | --- | --- |
//! | `dump` | `pg dump`: the statistics of PGs, pools and OSDs as trees and as texts, which show the same fields |
//! | `getmap` | `pg getmap`: the statistics in the binary form of Ceph's PG map, for programs that decode it |
//! | `scrub` | requests that the manager role sends to OSDs: scrubs, repairs, forced recovery |
//! | `show` | statistics of PGs and OSDs: `pg dump`, the `pg ls` family, `pg dump_stuck` |

pub(super) mod dump;
pub(super) mod getmap;
pub(super) mod scrub;
pub(super) mod show;
