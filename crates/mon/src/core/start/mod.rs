//! The start of a process: its state from the records, and a map that continues at a later epoch.
//!
//! | module | contents |
//! | --- | --- |
//! | `advance` | continues an OSD map at a later epoch, for a state that is older than the cluster |
//! | `load` | builds a running core from the state store, and the first records of a new cluster |
//! | `reading` | reads ranges of the state store as they were at one revision |

pub mod advance;
pub mod load;
pub mod reading;
