//! Tests of the classes as a whole.
//!
//! | module | contents |
//! | --- | --- |
//! | `bounds` | effort, memory and answers of a call are bounded; counters and times do not turn over |
//! | `documented` | the method table in docs/design/classes.md equals the registry |
//! | `hostile` | every method with damaged and random input, on objects that are absent, empty, valid and damaged |
//! | `parts` | long calls: the result does not depend on the parts, and a part takes no more than its room |
//! | `recorded` | recorded operations of Ceph's clients, with every reply compared with a real OSD's |

mod bounds;
mod documented;
mod hostile;
mod parts;
mod recorded;
