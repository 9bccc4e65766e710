//! Object classes over an abstract object context.
//!
//! `ctx` is what a method may do to its object; `registry` finds methods; one module per class. Pure: time, identity and
//! randomness come through the context.

pub mod ctx;
pub mod registry;

pub use ctx::{ClsError, ObjectCtx};
pub use registry::{Method, MethodFlags, find};
