//! Commands on OSDs: their map and its texts, their life, weights and places, and flags that hold them.
//!
//! | module | contents |
//! | --- | --- |
//! | `df` | `osd df`, `osd perf`, `osd status`, `osd blocked-by`: space, latencies, load and peering of each OSD |
//! | `dump` | the OSD map as a tree and as a text, which show the same fields |
//! | `flags` | `osd set`/`unset`, pause, and noup/nodown/noin/noout on OSDs, nodes and classes |
//! | `life` | the life of an OSD id: create, in, out, down, lost, destroy, purge; and its weights |
//! | `map` | the map's settings: temporary sets and primaries, blocklist, ratios, required releases |
//! | `misc` | OSD commands of Ceph that this program refuses, each with a reason: cache tiering, stretch pools |
//! | `primary` | chosen primaries: exceptions to which OSD of a PG's set leads it |
//! | `report` | reports of an OSD about its own device: that it does not answer, and that the store failed |
//! | `reweight` | `osd reweight-by-utilization` and `-by-pg`, and their trials |
//! | `safe` | safety checks before OSDs are stopped, destroyed or purged: the copies that their PGs would have left |
//! | `show` | the OSD map as commands show it: the whole of it, single OSDs, and places of objects and PGs |
//! | `tree` | the CRUSH hierarchy as a tree: `osd tree`, `osd crush tree`, `osd ls-tree` |
//! | `upmap` | upmaps: exceptions to CRUSH's choice of a PG's OSDs |

pub(super) mod df;
pub(super) mod dump;
pub(super) mod flags;
pub(super) mod life;
pub(super) mod map;
pub(super) mod misc;
pub(super) mod primary;
pub(super) mod report;
pub(super) mod reweight;
pub(super) mod safe;
pub(super) mod show;
pub(super) mod tree;
pub(super) mod upmap;
