//! Several monitors that share a state: who leads, the copies of the others, and their clocks.
//!
//! | module | contents |
//! | --- | --- |
//! | `clocks` | compares the clocks of monitors |
//! | `follow` | keeps a front monitor's copy of the state current by one watch |
//! | `front` | the state that a front monitor keeps for handshakes: keys, caps, options, the monmap |
//! | `member` | membership of one of several monitors over a shared state store: which one leads, and which run |

pub mod clocks;
pub mod follow;
pub mod front;
pub mod member;
