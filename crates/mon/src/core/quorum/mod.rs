//! Several monitors that share a state: who leads, the copies of the others, and their clocks.

pub mod clocks;
pub mod follow;
pub mod front;
pub mod member;
