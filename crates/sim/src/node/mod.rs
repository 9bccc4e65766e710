//! Hosts of the machines: they connect a core to the simulated network, disk and clock, as the real hosts do.
//!
//! | module | contents |
//! | --- | --- |
//! | `client` | a client's host: its monitor session and objecter |
//! | `fetch` | an OSD's own client, with which PGs read objects to copy from, as in the real host |
//! | `links` | the connections of a process that uses the cluster, on the simulated network |
//! | `mds` | a model of an MDS daemon |
//! | `mon` | the monitor's host: the core over a state store whose commits take time |
//! | `mons` | the host of one of several monitors: a front monitor until it is elected, then the leader |
//! | `osd` | an OSD's host: control machine, and PGs and production store of each reactor, all on one simulated disk |
//! | `promises` | checks leases against true time, which no OSD knows |
//! | `reactors` | several reactors of one OSD on one disk |

pub mod client;
pub mod fetch;
pub mod links;
pub mod mds;
pub mod mon;
pub mod mons;
pub mod osd;
pub mod promises;
pub mod reactors;

use crate::net::NodeId;
use crate::queue::{MS, Time};
use crate::world::{Clock, Ctx, Event, Input};
use base::id::Uuid;
use base::{EntityAddr, Mono};

/// The cluster's id.
pub const FSID: Uuid = Uuid([0x51; 16]);

/// Node of the first monitor. Further monitors have nodes behind the operator's.
pub const MON: NodeId = 0;

/// The index of an OSD in the world.
#[must_use]
pub fn osd_node(osd: usize) -> NodeId {
    1 + osd
}

/// An address of a node.
#[must_use]
pub fn addr(node: NodeId, port: u16, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(([10, 0, (node >> 8) as u8, node as u8], port).into(), nonce)
}

/// Address of the monitor at a node.
#[must_use]
pub fn mon_addr(node: NodeId) -> EntityAddr {
    addr(node, 3300, 0)
}

/// A node of the world.
pub enum Node {
    /// The monitor and manager.
    Mon(Box<mon::MonNode>),
    /// One of several monitors. The leader also has the manager role.
    Mons(Box<mons::MonsNode>),
    /// An OSD.
    Osd(Box<osd::OsdNode>),
    /// A client.
    Client(Box<client::ClientNode>),
    /// A model of an MDS daemon.
    Mds(Box<mds::MdsNode>),
}

impl Node {
    /// Number of the running process, if there is one.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        match self {
            Self::Mon(n) => n.inc(),
            Self::Mons(n) => n.inc(),
            Self::Osd(n) => n.inc(),
            Self::Client(n) => n.inc(),
            Self::Mds(n) => n.inc(),
        }
    }

    /// Starts a process.
    pub fn start(&mut self, cx: &mut Ctx) {
        match self {
            Self::Mon(n) => n.start(cx),
            Self::Mons(n) => n.start(cx),
            Self::Osd(n) => n.start(cx),
            Self::Client(n) => n.start(cx),
            Self::Mds(n) => n.start(cx),
        }
    }

    /// Kills the process; with `power` its host loses power.
    pub fn crash(&mut self, power: bool, cx: &mut Ctx) {
        match self {
            Self::Mon(n) => n.crash(),
            Self::Mons(n) => n.crash(),
            Self::Osd(n) => n.crash(power, cx),
            Self::Client(n) => n.crash(cx),
            Self::Mds(n) => n.crash(),
        }
    }

    /// Hands an event to the process.
    pub fn handle(&mut self, input: Input, cx: &mut Ctx) {
        match self {
            Self::Mon(n) => n.handle(input, cx),
            Self::Mons(n) => n.handle(input, cx),
            Self::Osd(n) => n.handle(input, cx),
            Self::Client(n) => n.handle(input, cx),
            Self::Mds(n) => n.handle(input, cx),
        }
    }

    /// If the process is to die now: true for a power cut, and the time until it starts again.
    pub fn wants_to_die(&mut self, cx: &mut Ctx) -> Option<(bool, Time)> {
        match self {
            Self::Osd(n) => n.wants_to_die(),
            Self::Mons(n) => n.wants_to_die(cx),
            Self::Mds(n) => n.wants_to_die(cx),
            _ => None,
        }
    }

    /// The node's clocks.
    pub fn clock(&mut self) -> &mut Clock {
        match self {
            Self::Mon(n) => &mut n.clock,
            Self::Mons(n) => &mut n.clock,
            Self::Osd(n) => &mut n.clock,
            Self::Client(n) => &mut n.clock,
            Self::Mds(n) => &mut n.clock,
        }
    }
}

/// Keeps one timer event in the queue, for the earliest deadline of a process.
#[derive(Debug, Default)]
pub struct Timer {
    at: Option<Time>,
}

impl Timer {
    /// Handles the timer event.
    pub fn fired(&mut self, now: Time) {
        if self.at.is_some_and(|t| t <= now) {
            self.at = None;
        }
    }

    /// Sets the earliest deadline.
    pub fn set(&mut self, deadline: Option<Mono>, clock: &Clock, node: NodeId, inc: u64, cx: &mut Ctx) {
        let Some(d) = deadline else { return };
        // Timers have a resolution of a millisecond, as in the real hosts.
        let at = clock.when(d).max(cx.now() + MS);
        if self.at.is_none_or(|t| at < t) {
            self.at = Some(at);
            cx.queue.at(at, Event::Timer(node, inc));
        }
    }
}
