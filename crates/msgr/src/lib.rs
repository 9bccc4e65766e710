//! msgr2.1 connections as pure state machines: bytes in, messages out.

#![forbid(unsafe_code)]

pub mod policy;

pub use policy::{Policies, Policy};
