//! Modules with I/O: the generator's threads and connections, and the executor of plans.
//!
//! | module | contents |
//! | --- | --- |
//! | `build` | a load of builds: each client unpacks a source tree on a file system, and builds it |
//! | `command` | child processes: programs run to completion within a time, daemons that are stopped later |
//! | `control` | commands to a cluster's monitor by our own client, and to daemons by their admin sockets |
//! | `exec` | executes a plan: makes clusters and pools, runs loads, disturbs, stores results |
//! | `floor` | the floor: a server that answers clients' reads and writes with the least work |
//! | `generator` | runs a load with threads that have a reactor each, and clients with their own connections on them |
//! | `proc` | process statistics from `/proc` |
//! | `steps` | loads of whole objects (S3, RADOS) and of file metadata |

pub mod build;
pub mod command;
pub mod control;
pub mod exec;
pub mod floor;
pub mod generator;
pub mod proc;
pub mod steps;
