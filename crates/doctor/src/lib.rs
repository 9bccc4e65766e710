//! Findings about a host: its facts in, what costs an OSD speed or safety there out.
//!
//! A shell script ([`script`]) collects [`Facts`], here or on another host; [`findings`] judges them, and [`worse`] tells
//! which checks a host passed better before. Pure: who runs the script has its output from outside, so every text is
//! bounded and clean.
//!
//! | module | contents |
//! | --- | --- |
//! | `checks` | the checks: from facts to findings, without I/O |
//! | `drift` | drift: checks of a host that became worse than they once were |
//! | `facts` | facts about a host: texts of files in `/proc` and `/sys` and outputs of commands, by path |
//! | `finding` | findings, and their texts |

#![forbid(unsafe_code)]

mod checks;
mod drift;
mod facts;
mod finding;

pub use checks::{all as findings, machine};
pub use drift::{CHECKS_MAX, Grade, Grades, Worse, graded, grades_from_json, grades_to_json, worse};
pub use facts::{Facts, OUTPUT_MAX, clean, script};
pub use finding::{Finding, HostReport, Severity};
