//! The laboratory: a load generator, plans of measurements, their statistics and reports.
//!
//! [`load`] describes a load: where each operation goes, when it starts, what bytes it carries. [`plan`] describes
//! measurements; [`host`] carries them out. Everything outside [`host`] does no I/O and reads no clock.
//!
//! | module | contents |
//! | --- | --- |
//! | `findings` | findings and notes: named reasons why a measurement was limited or is doubtful |
//! | `host` | modules with I/O: the generator's threads and connections, and the executor of plans |
//! | `load` | a load: kind and targets of its operations, concurrency or rate, and duration |
//! | `plan` | plans of measurements as TOML, and the matrix of cells that follows from them |
//! | `report` | reports: tables of medians, ratios between systems, CSV, and one HTML file with everything |
//! | `result` | result of one measurement: figures for tables, series for plots, and facts for findings |
//! | `stats` | statistics of few measurements: medians, spread, and confidence intervals of ratios |

#![forbid(unsafe_code)]

pub mod findings;
pub mod host;
pub mod load;
pub mod plan;
pub mod report;
pub mod result;
pub mod stats;
