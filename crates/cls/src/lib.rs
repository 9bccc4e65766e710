//! Object classes over an abstract object context.
//!
//! `ctx` is what a method may do to its object; `registry` finds methods and holds them to their flags; one module per
//! class. Pure: time, identity and randomness come through the context. How to add a class: docs/design/classes.md.
//! Invariants:
//!  1. A method reads its object before it changes it where a read may have to wait, or is indifferent to being begun
//!     again: `ClsError::Wait` is passed on untouched and the caller starts over with the state as it was.
//!  2. Stored formats (xattr names, omap keys, value encodings) are Ceph's, since other tools read them directly.

#![forbid(unsafe_code)]

pub mod ctx;
mod guard;
pub mod registry;
mod util;

mod cas;
mod cephfs;
mod cmpomap;
mod fifo;
mod hello;
mod journal;
mod lock;
mod log;
mod lua;
mod numops;
mod otp;
mod queue;
mod rbd;
mod refcount;
mod rgw;
mod rgw_gc;
mod sdk;
mod sem_set;
mod timeindex;
mod timekey;
mod user;
mod version;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use ctx::{ClsError, ClsResult, ObjectCtx, Watcher};
pub use registry::{Method, MethodFlags, Output, find};
