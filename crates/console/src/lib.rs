//! HTTP for the manager role, and its module `dashboard`: a page for operators.
//!
//! Pure parts: [`http`] (requests and answers, also for metrics), [`session`] (who is signed in), [`history`] (figures
//! over time), [`change`] (changes with their effects), [`route`] (what a request asks for). [`host`]
//! joins them to sockets, TLS and the monitor.
//!
//! Invariants:
//!  1. A signed-in user is a client of the monitor with the user's own key, so a command is allowed exactly if `ceph`
//!     with that key may run it. The console has no rights of its own that a request could use.
//!  2. A request that changes something, or that asks for anything but the page itself, names a session by its cookie;
//!     one that changes something also has the session's token and comes from the page's own origin.
//!  3. Requests, connections, sessions, attempts to sign in and history are bounded, each by a named limit.
//!  4. The page loads nothing from elsewhere, and puts text into the document as text only.
//!
//! Tests: `tests/does_the_console_keep_strangers_out.rs` (1, 2), `session`, `history` and `http` (3), `route` (4,
//! `the_page_is_whole_and_loads_nothing_from_elsewhere`).

#![forbid(unsafe_code)]

pub mod change;
pub mod history;
pub mod host;
pub mod http;
pub mod route;
pub mod session;
