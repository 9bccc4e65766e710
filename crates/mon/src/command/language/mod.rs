//! The language of commands: signatures and arguments in, trees, tables and outcomes out.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the arguments of a command: its JSON, parsed into the types that the command's signature declares |
//! | `describe` | `get_command_descriptions` and the few commands that describe the program itself |
//! | `listing` | output with a row for each PG, made in pieces over several turns of the core |
//! | `outcome` | a command's answer, its time, and side effects for the core to carry out |
//! | `render` | output of commands in the requested format: plain text, JSON, indented JSON, XML |
//! | `sig` | signatures: the language of the tables, matching, argument checks, descriptions |
//! | `text` | plain-text tables in Ceph's layout |

pub mod args;
pub(super) mod describe;
pub(crate) mod listing;
pub(super) mod outcome;
pub(super) mod render;
pub mod sig;
pub mod text;
