//! The answers of a front monitor about itself: on its admin socket, and to `ceph tell mon.ID` about options. All
//! other `tell` commands go to the leader, which knows the monitor that relayed them.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use base::errno::EOPNOTSUPP;
use net::admin_socket::{self, AdminSocket, Answer, Command, Handler, to_pretty};
use net::{Net, admin_config, log_filter, messengers};
use serde_json::{Map, Value, json};
use wire::msg::{MCommand, MCommandReply, MPing};
use wire::{Features, Message, WireMessage as _};

use super::admin;
use crate::core::quorum::front::Replica;
use crate::core::quorum::member::Presence;
use crate::core::session::Peer;
use crate::state::Role;
use crate::state::access::Principal;

const COMMANDS: &[Command] = &[
    Command { prefix: "perf dump", args: &[], help: "dump perfcounters value" },
    Command { prefix: "git_version", args: &[], help: "get git sha1" },
    Command { prefix: "log flush", args: &[], help: "flush log entries to log file" },
    Command { prefix: "mon_status", args: &[], help: "report status of this monitor" },
];

/// The parts of a front monitor that its answers need.
#[derive(Clone)]
pub(super) struct FrontAdmin {
    pub(super) name: String,
    pub(super) replica: Rc<RefCell<Replica>>,
    pub(super) net: Net,
}

/// A front monitor's relay state at the time of a question.
pub(super) struct Seen {
    /// The leader, if the link to it is open.
    pub(super) leader: Option<Presence>,
    /// Number of client sessions.
    pub(super) sessions: usize,
}

impl FrontAdmin {
    /// Serves the admin socket until the returned handle is dropped.
    pub(super) fn serve(self, path: &Path, seen: impl Fn() -> Seen + 'static) -> io::Result<AdminSocket> {
        let handler: Handler = Rc::new(move |prefix, args| {
            let answer = self.answer(&prefix, &args, &seen());
            Box::pin(std::future::ready(answer))
        });
        admin_socket::serve(path, &[COMMANDS, messengers::COMMANDS, admin_config::COMMANDS], handler)
    }

    fn answer(&self, prefix: &str, args: &Map<String, Value>, seen: &Seen) -> Answer {
        if let Some(done) = self.options(prefix, args) {
            return done;
        }
        let v = match prefix {
            "perf dump" => self.perf_dump(seen),
            "messenger dump" => messengers::answer_by_kind(&self.net, args)?,
            "git_version" => json!({ "git_version": concat!("belemnite ", env!("CARGO_PKG_VERSION")) }),
            // Log lines go to standard error without a buffer, so there is nothing to flush.
            "log flush" => json!({}),
            "mon_status" => self.status(seen),
            other => {
                let leader = seen.leader.as_ref().map_or_else(String::new, |l| format!(": ask mon.{}", l.name));
                return Err((EOPNOTSUPP, format!("'{other}' is for the monitor that leads{leader}")));
            }
        };
        Ok(to_pretty(&v))
    }

    /// The answer to a command about options; `None` for other commands.
    fn options(&self, prefix: &str, args: &Map<String, Value>) -> Option<Answer> {
        let o = &mut self.replica.borrow_mut().options;
        let done = admin::options(o, prefix, args)?;
        Some(done.map(|d| {
            if d.changed {
                log_filter::apply(&o.settings);
                tracing::info!("mon.{}: changed options of this process ({prefix})", self.name);
            }
            to_pretty(&d.answer)
        }))
    }

    fn status(&self, seen: &Seen) -> Value {
        let replica = self.replica.borrow();
        let map = &replica.monmap;
        let mons: Vec<Value> = map
            .ranks
            .iter()
            .enumerate()
            .filter_map(|(rank, name)| {
                let addrs = map.mons.get(name)?.public_addrs.to_string();
                Some(json!({ "rank": rank, "name": name, "public_addrs": addrs }))
            })
            .collect();
        json!({
            "name": self.name,
            "rank": map.rank_of(&self.name),
            "state": if seen.leader.is_some() { "peon" } else { "electing" },
            "leader": seen.leader.as_ref().map(|l| &l.name),
            "state_revision": replica.revision,
            "sessions": seen.sessions,
            "monmap": { "epoch": map.epoch.0, "fsid": map.fsid.to_string(), "mons": mons },
        })
    }

    fn perf_dump(&self, seen: &Seen) -> Value {
        let n = self.net.stats();
        json!({
            "AsyncMessenger::Worker-0": {
                "msgr_recv_messages": n.messages_in,
                "msgr_send_messages": n.messages_out,
                "msgr_recv_bytes": n.bytes_in,
                "msgr_send_bytes": n.bytes_out,
                "msgr_active_connections": n.connections,
            },
            "mon": { "num_sessions": seen.sessions },
        })
    }

    /// The reply to `ceph ping` of this monitor; `None` for another message.
    pub(super) fn pinged(&self, m: &Message, seen: &Seen) -> Option<Message> {
        (m.header.kind == MPing::KIND).then(|| {
            let text = json!({ "mon_status": self.status(seen) }).to_string();
            MPing::with_text(&text).to_message(Features::PACIFIC)
        })
    }

    /// The reply to a `tell` command about this monitor's own options; `None` if the leader answers. Only clients with
    /// all caps may use `tell`. Other clients are passed on to the leader, whose refusal is in the audit log.
    pub(super) fn told(&self, m: &Message, peer: &Peer) -> Option<Message> {
        if m.header.kind != MCommand::KIND {
            return None;
        }
        let x = MCommand::from_message(m).ok()?;
        if x.fsid != self.replica.borrow().monmap.fsid {
            return None;
        }
        let text: String = x.cmd.iter().map(|t| t.0.as_str()).collect();
        let args: Map<String, Value> = serde_json::from_str(&text).ok()?;
        let prefix: Vec<&str> = args.get("prefix")?.as_str()?.split_whitespace().collect();
        let prefix = prefix.join(" ");
        let own = [messengers::COMMANDS, admin_config::COMMANDS];
        if !own.iter().flat_map(|c| c.iter()).any(|c| c.prefix == prefix) {
            return None;
        }
        let mut who = peer.principal.clone();
        // The rights may have changed since the session opened. The leader answers a session that is refused here.
        self.replica.borrow().judge(&mut who).ok()?;
        let who = Principal::new(who, Role::Mon);
        if !who.access.is_allow_all() {
            return None;
        }
        let messengers = || Ok(to_pretty(&messengers::answer_by_kind(&self.net, &args)?));
        let answer = self.options(&prefix, &args).unwrap_or_else(messengers);
        let reply = match answer {
            Ok(out) => MCommandReply { r: 0, rs: String::new().into(), data: out.into() },
            Err((r, why)) => MCommandReply { r, rs: why.into(), data: Default::default() },
        };
        let mut reply = reply.to_message(Features::PACIFIC);
        reply.header.tid = m.header.tid;
        Some(reply)
    }
}
