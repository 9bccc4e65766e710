//! The nodes of a run: monitors, OSDs, clients, the operator, with several monitors the witness, and MDS daemons.

use crate::load::Load;
use crate::net::NodeId;
use crate::node::client::ClientNode;
use crate::node::mds::MdsNode;
use crate::node::mon::{self, MonNode};
use crate::node::mons::MonsNode;
use crate::node::osd::OsdNode;
use crate::node::{FSID, Node};
use crate::options::Options;
use crate::run::Run;
use crate::several::Several;
use crate::world::{Clock, Ctx, World};
use base::OsdId;
use base::rng::Rng;
use state::StateStore as _;
use state::simulated::{Cluster, Faults};
use std::cell::RefCell;
use std::rc::Rc;
use store::engine::Config;

/// The world of a run, in which nothing has started, and the load of its clients.
pub(super) fn world(o: &Options, words: bool) -> (World, Rc<RefCell<Load>>) {
    let mut r = Rng::new(o.seed ^ 0x6e6f_6465);
    let load = Rc::new(RefCell::new(Load::new(o)));
    let mut nodes = Vec::new();
    let clock = Clock::draw(&mut r, o.drift_ppm);
    let monitors = monitors(o);
    nodes.push(match &monitors {
        None => Node::Mon(Box::new(MonNode::new(clock, o.seed, mon::options(o.down_out, o.rough.trims)))),
        Some((cluster, at)) => several_monitor(clock, 0, o, cluster, at),
    });
    let config = Config {
        checkpoint_log_bytes: o.disk.checkpoint_bytes,
        checkpoint_turn_bytes: 64 << 10,
        first_fit: o.disk.first_fit,
        reactors: o.osd.reactors,
        kids_max: o.disk.kids,
        ..Config::default()
    };
    for n in 0..o.size.osds {
        let clock = Clock::draw(&mut r, o.drift_ppm);
        nodes.push(Node::Osd(Box::new(OsdNode::new(
            clock,
            OsdId(n as i32),
            o.rough.disk(o.disk.bytes, n),
            config.clone(),
            FSID,
        ))));
    }
    for n in 0..=o.work.clients {
        let clock = Clock::draw(&mut r, o.drift_ppm);
        let number = (n < o.work.clients).then_some(n);
        nodes.push(Node::Client(Box::new(ClientNode::new(clock, nodes.len(), number, load.clone()))));
    }
    if let Some((cluster, at)) = &monitors {
        for i in 1..at.len() {
            nodes.push(several_monitor(Clock::draw(&mut r, o.drift_ppm), i, o, cluster, at));
        }
        let clock = Clock::draw(&mut r, o.drift_ppm);
        nodes.push(Node::Client(Box::new(ClientNode::new(clock, nodes.len(), None, load.clone()))));
    }
    for (i, n) in mds(o).enumerate() {
        let clock = Clock::draw(&mut r, o.drift_ppm);
        nodes.push(Node::Mds(Box::new(MdsNode::new(clock, n, i))));
    }
    let mut ctx = Ctx::new(o.clone(), nodes.len(), words);
    ctx.several = monitors.map(|(cluster, at)| Box::new(Several::new(cluster, at, o.state.lost_lease > 0)));
    (World::new(ctx, nodes), load)
}

/// The nodes of MDS daemons, after all others.
pub(super) fn mds(o: &Options) -> std::ops::Range<NodeId> {
    let operator = 1 + o.size.osds + o.work.clients;
    let first = operator + if o.mons > 1 { o.mons + 1 } else { 1 };
    first..first + o.mds
}

/// The state that several monitors share, and where they are.
fn monitors(o: &Options) -> Option<(Cluster, Vec<NodeId>)> {
    let behind = 1 + o.size.osds + o.work.clients;
    (o.mons > 1).then(|| {
        let at = std::iter::once(0).chain(behind + 1..behind + o.mons).collect();
        (Cluster::new(o.seed ^ 0x7368_6172_6564, Faults::default()), at)
    })
}

/// Monitor number `i` of several; the first one makes the cluster.
fn several_monitor(clock: Clock, i: usize, o: &Options, cluster: &Cluster, at: &[NodeId]) -> Node {
    if i == 0
        && let Some(t) = mon::new_cluster(&clock, o.seed, at)
    {
        cluster.handle().submit(state::Request { token: 0, op: state::Op::Txn(t) });
        cluster.advance(base::Mono(0));
    }
    Node::Mons(Box::new(MonsNode::new(clock, at[i], i, cluster.clone(), mon::options(o.down_out, o.rough.trims))))
}

impl Run {
    /// The load of the clients.
    pub(crate) fn load(&self) -> Rc<RefCell<Load>> {
        self.load.clone()
    }

    /// Starts the clients.
    pub(crate) fn begin(&mut self) {
        for c in self.clients.clone() {
            self.w.start(c);
        }
    }
}
