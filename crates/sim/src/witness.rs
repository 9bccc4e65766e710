//! The witness: a client that changes state by commands and asks for the newest epoch while monitors fail. It checks
//! that the answers hold.

use crate::net::NodeId;
use crate::node::Node;
use crate::queue::{MS, SEC, Time};
use crate::world::{Event, World};
use base::errno::EIO;
use base::rng::Rng;
use std::collections::BTreeMap;

/// Most unanswered questions at a time.
const OPEN_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
enum What {
    /// `config-key set`.
    Set(u64),
    /// A question for the newest epoch, with the newest one that was sent to any process before.
    Epoch(u32),
    /// A new key.
    Key,
}

/// The witness; see the module.
pub struct Witness {
    /// The witness's node.
    pub node: NodeId,
    rng: Rng,
    count: u64,
    /// Open questions by number of the command, each with its session.
    asked: BTreeMap<u64, (What, u64)>,
    acknowledged: Vec<u64>,
    /// Numbers of the changes that were reported as failed.
    failed: Vec<u64>,
    /// The witness asks nothing more.
    pub stopped: bool,
}

impl Witness {
    /// Creates the witness at this node.
    #[must_use]
    pub fn new(node: NodeId, seed: u64) -> Self {
        let rng = Rng::new(seed ^ 0x7769_746e_6573);
        Self {
            node,
            rng,
            count: 0,
            asked: BTreeMap::new(),
            acknowledged: Vec::new(),
            failed: Vec::new(),
            stopped: false,
        }
    }

    /// Number of acknowledged changes.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Handles answers, and sends the next question.
    pub fn next(&mut self, w: &mut World) {
        self.take_answers(w);
        let pause: Time = 100 * MS + self.rng.below(2 * SEC);
        w.ctx.queue.after(pause, Event::Witness);
        if !self.stopped && self.asked.len() < OPEN_MAX {
            self.ask(w);
        }
        if let Some(s) = &mut w.ctx.several {
            s.waiting = self.asked.len();
        }
    }

    fn ask(&mut self, w: &mut World) {
        self.count += 1;
        let n = self.count;
        let known = w.ctx.several.as_ref().map_or(0, |s| s.newest);
        let (what, json) = match self.rng.below(4) {
            0 | 1 => (What::Set(n), format!(r#"{{"prefix":"config-key set","key":"w/{n}","val":"{n}"}}"#)),
            2 => (What::Epoch(known), r#"{"prefix":"osd stat","format":"json"}"#.to_owned()),
            _ => {
                let key =
                    format!(r#"{{"prefix":"auth get-or-create","entity":"client.w{n}","caps":["mon","allow r"]}}"#);
                (What::Key, key)
            }
        };
        let Node::Client(c) = &mut w.nodes[self.node] else { return };
        let tid = c.command(&json, &mut w.ctx);
        let session = c.sessions;
        self.asked.insert(tid, (what, session));
        w.ctx.line(|| format!("witness: command {tid}: {json}"));
        for (at, e) in w.ctx.net.take_events() {
            w.ctx.queue.at(at, Event::Net(e));
        }
    }

    fn take_answers(&mut self, w: &mut World) {
        let Node::Client(c) = &mut w.nodes[self.node] else { return };
        let session = c.sessions;
        let answers = std::mem::take(&mut c.answers);
        let mut wrong = Vec::new();
        for (tid, (rc, status, out)) in answers {
            let Some((what, asked_in)) = self.asked.remove(&tid) else { continue };
            match what {
                What::Set(n) if rc == 0 => self.acknowledged.push(n),
                // The change was sent only once.
                What::Set(n) if rc == -EIO && asked_in == session => self.failed.push(n),
                What::Epoch(before) if rc == 0 => {
                    let said: Option<serde_json::Value> = serde_json::from_slice(&out).ok();
                    let epoch = said.and_then(|v| u32::try_from(v["epoch"].as_u64()?).ok());
                    match (epoch, &mut w.ctx.several) {
                        (Some(epoch), Some(s)) => wrong.extend(s.answered(epoch, before)),
                        _ => wrong.push(format!("no epoch in the answer to osd stat: {out:?}")),
                    }
                }
                _ if rc != 0 => wrong.push(format!("{what:?} is answered {rc} {status}")),
                _ => {}
            }
        }
        for what in wrong {
            w.ctx.violation(what);
        }
    }

    /// A change that the cluster has, or lacks, contrary to its answer; `None` if there is none.
    #[must_use]
    pub fn contradicted(&self, w: &World) -> Option<String> {
        let core = crate::oracle::core(w)?;
        let has = |n: &u64| core.state().kv.get(&format!("w/{n}")).is_some_and(|v| *v == n.to_string());
        if let Some(n) = self.acknowledged.iter().find(|n| !has(n)) {
            return Some(format!("change {n} was acknowledged and is lost"));
        }
        let n = self.failed.iter().find(|n| has(n))?;
        Some(format!("change {n} was said to have failed, and is there"))
    }
}
