//! The client's parts without I/O. Time comes in as an argument; effects are returned as values.
//!
//! | module | contents |
//! | --- | --- |
//! | `maps` | OSD map updates of a client: the maps that a map message leads to |
//! | `mds` | sessions with the MDS daemons of one file system, and the requests in them |
//! | `mon` | a session with one of the monitors: hunting, subscriptions, commands |
//! | `objecter` | targets operations at the OSD that serves their PG, and resends them when that changes |
//! | `striping` | places of a file's bytes in objects |

pub mod maps;
pub mod mds;
pub mod mon;
pub mod objecter;
pub mod striping;

use std::time::Duration;

/// First pause between two connection attempts.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two connection attempts.
const RETRY_MAX: Duration = Duration::from_secs(5);
