//! `messenger dump`: the endpoints of a process and their connections, in the form of Ceph's messengers.
//!
//! An endpoint that several reactors have is shown once, with the connections of all of them: each reactor gives its
//! part with [`Endpoint::dump`], and [`answer`] joins the parts by name.

use crate::admin_socket::{Arg, Command};
use crate::conn::Conn;
use crate::{Endpoint, Net};
use auth::ConMode;
use base::errno::{EINVAL, ENOENT, Errno};
use base::{AddrKind, AddrVec, EntityAddr, Mono};
use reactor::clock;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

const NAME: Arg = Arg { name: "msgr", kind: "CephString", optional: true, many: false };

/// The words of the command.
pub const PREFIX: &str = "messenger dump";

/// The commands that [`answer`] serves.
pub const COMMANDS: &[Command] = &[Command {
    prefix: PREFIX,
    args: &[NAME, Arg { name: "dumpcontents", many: true, ..NAME }],
    help: "list the messengers of this daemon, or show the sockets and connections of one",
}];

/// Lists of a messenger that `dumpcontents` selects.
const LISTS: [&str; 5] = ["listen_sockets", "connections", "anon_conns", "accepting_conns", "deleted_conns"];

/// Answers [`COMMANDS`] from the parts of all reactors, by the name of the endpoint. Error: `ENOENT` for a name that no
/// part has, `EINVAL` for contents that no messenger has.
pub fn answer(parts: Vec<(&'static str, Value)>, cmd: &Map<String, Value>) -> Result<Value, (Errno, String)> {
    let mut all: BTreeMap<&str, Value> = BTreeMap::new();
    for (name, part) in parts {
        match all.entry(name) {
            std::collections::btree_map::Entry::Vacant(e) => {
                e.insert(part);
            }
            std::collections::btree_map::Entry::Occupied(mut e) => join(e.get_mut(), part),
        }
    }
    let Some(name) = cmd.get("msgr").and_then(Value::as_str) else {
        return Ok(json!({ "messengers": all.keys().collect::<Vec<_>>() }));
    };
    let known = || all.keys().copied().collect::<Vec<_>>().join(", ");
    let Some(mut messenger) = all.get(name).cloned() else {
        return Err((ENOENT, format!("no messenger '{name}': there are {}", known())));
    };
    let wanted: Vec<&str> = match cmd.get("dumpcontents") {
        Some(Value::Array(a)) => a.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(s)) => vec![s.as_str()],
        _ => Vec::new(),
    };
    if let Some(w) = wanted.iter().find(|w| **w != "all" && !LISTS.contains(w)) {
        return Err((EINVAL, format!("'{w}' is none of all, {}", LISTS.join(", "))));
    }
    if let Value::Object(m) = &mut messenger
        && !wanted.is_empty()
        && !wanted.contains(&"all")
    {
        m.retain(|k, _| !LISTS.contains(&k.as_str()) || wanted.contains(&k.as_str()));
    }
    Ok(json!({ "name": name, "messenger": messenger }))
}

/// Answers [`COMMANDS`] for a process with one reactor whose endpoints differ in their kinds, which name them.
pub fn answer_by_kind(net: &Net, cmd: &Map<String, Value>) -> Result<Value, (Errno, String)> {
    // Only what was asked for: an endpoint may have very many connections.
    let named = cmd.get("msgr").and_then(Value::as_str);
    let part = |name: &str, e: &Endpoint| if named == Some(name) { e.dump(0) } else { Value::Null };
    answer(net.endpoints().iter().map(|e| (e.kind().word(), part(e.kind().word(), e))).collect(), cmd)
}

/// Adds the part of another reactor: its lists and counts.
fn join(to: &mut Value, part: Value) {
    let (Value::Object(to), Value::Object(part)) = (to, part) else { return };
    for (k, v) in part {
        match (to.get_mut(&k), v) {
            (Some(Value::Array(have)), Value::Array(more)) => have.extend(more),
            (Some(have), v) if k == "connections_count" => {
                *have = (have.as_u64().unwrap_or(0) + v.as_u64().unwrap_or(0)).into();
            }
            (Some(_), _) => {}
            (None, v) => {
                to.insert(k, v);
            }
        }
    }
}

fn addr(a: &EntityAddr) -> Value {
    let kind = match a.kind {
        AddrKind::NONE => "none",
        AddrKind::LEGACY => "v1",
        AddrKind::MSGR2 => "v2",
        AddrKind::ANY => "any",
        _ => "???",
    };
    json!({ "type": kind, "addr": a.sock.map_or_else(|| "-".to_owned(), |s| s.to_string()), "nonce": a.nonce })
}

fn addrvec(v: &AddrVec) -> Value {
    json!({ "addrvec": v.0.iter().map(addr).collect::<Vec<_>>() })
}

/// Time since `then`.
fn ago(now: Mono, then: Mono) -> String {
    format!("{:.3}s", now.since(then).as_secs_f64())
}

/// One connection, as it stands in a list of a messenger.
fn connection(c: &Conn, nonce: u32, worker: usize) -> Value {
    let now = clock::read().mono;
    let machine = c.machine();
    let (peer, open) = (machine.peer(), machine.is_open());
    let state = match (open, machine.is_incoming()) {
        (true, _) => "STATE_CONNECTION_ESTABLISHED",
        (false, true) => "STATE_ACCEPTING",
        (false, false) => "STATE_CONNECTING",
    };
    let target = c.target();
    let addrs = if peer.addrs.0.is_empty() { target.map_or(&peer.addrs, |t| &t.addrs) } else { &peer.addrs };
    let kind = target.map_or(peer.claimed, |t| t.kind);
    let socket = peer.principal.socket;
    let protocol = json!({
        "state": machine.state_name(),
        "con_mode": if machine.mode() == ConMode::SECURE { "secure" } else { "crc" },
        "connect_seq": machine.view().map_or(0, |v| v.connect_seq),
        "peer_global_seq": machine.view().map_or(0, |v| v.peer_global_seq),
    });
    json!({
        "state": state,
        "messenger_nonce": nonce,
        "status": { "connected": open && c.has_socket(), "loopback": false },
        "socket_fd": c.descriptor(),
        "conn_id": c.id().0,
        "peer": {
            "entity_name": { "type": kind.word(), "id": peer.principal.name.id },
            "type": kind.word(),
            "id": peer.num,
            "addr": addrvec(addrs),
        },
        "last_connect_started_ago": ago(now, c.started()),
        "last_active_ago": ago(now, c.last_heard()),
        "socket_addr": { "type": "none", "addr": socket.to_string(), "nonce": 0 },
        "target_addr": target.map_or(Value::Null, |t| addr(&t.addr)),
        "lossy": machine.is_lossy(),
        "unsent_bytes": machine.output_bytes(),
        "unconsumed_bytes": c.unconsumed(),
        "protocol": if machine.view().is_some() { json!({ "v2": protocol }) } else { json!({ "v1": protocol }) },
        "worker_id": worker,
    })
}

impl Endpoint {
    /// This endpoint's part of `messenger dump` on reactor `worker`.
    #[must_use]
    pub fn dump(&self, worker: usize) -> Value {
        let (kind, num, addrs) = {
            let i = self.inner.config.identity.borrow();
            (self.inner.config.kind, i.num, i.addrs.clone())
        };
        let nonce = addrs.0.first().map_or(0, |a| a.nonce);
        let conns: Vec<Rc<Conn>> = self.net.upgrade().map_or_else(Vec::new, |n| {
            n.conns.borrow().iter().map(|(_, c)| c.clone()).filter(|c| c.is_of(&self.inner)).collect()
        });
        let (ready, accepting): (Vec<_>, Vec<_>) = conns.iter().partition(|c| {
            let m = c.machine();
            m.is_open() || !m.is_incoming() || m.view().is_some_and(|v| v.opened)
        });
        let listed = |c: &&Rc<Conn>| {
            let one = connection(c, nonce, worker);
            let mut entry = one["peer"]["addr"].clone();
            entry["async_connection"] = one;
            entry
        };
        json!({
            "nonce": nonce,
            "my_name": { "type": kind.word(), "num": num },
            "my_addrs": addrvec(&addrs),
            "listen_sockets":
                self.inner.listeners.borrow().iter().map(|_| json!({ "worker_id": worker })).collect::<Vec<_>>(),
            "connections_count": ready.len(),
            "connections": ready.iter().map(listed).collect::<Vec<_>>(),
            "anon_conns": [],
            "accepting_conns":
                accepting.iter().map(|c| json!({ "async_connection": connection(c, nonce, worker) })).collect::<Vec<_>>(),
            "deleted_conns": [],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(conns: &[u64]) -> Value {
        json!({ "nonce": 7, "connections_count": conns.len(), "connections": conns, "listen_sockets": [], "anon_conns": [] })
    }

    fn ask(cmd: Value) -> Result<Value, (Errno, String)> {
        let parts = vec![("cluster", part(&[9])), ("client", part(&[1, 2])), ("client", part(&[3]))];
        let Value::Object(cmd) = cmd else { unreachable!() };
        answer(parts, &cmd)
    }

    #[test]
    fn the_parts_of_all_reactors_are_one_messenger() {
        assert_eq!(ask(json!({})).unwrap(), json!({ "messengers": ["client", "cluster"] }));
        let one = ask(json!({ "msgr": "client", "dumpcontents": ["all"] })).unwrap();
        assert_eq!(one["name"], "client");
        assert_eq!(one["messenger"]["connections"], json!([1, 2, 3]));
        assert_eq!((&one["messenger"]["connections_count"], &one["messenger"]["nonce"]), (&json!(3), &json!(7)));
        let one = ask(json!({ "msgr": "client", "dumpcontents": ["listen_sockets"] })).unwrap();
        assert!(one["messenger"].get("connections").is_none() && one["messenger"].get("listen_sockets").is_some());
        assert_eq!(ask(json!({ "msgr": "x" })).unwrap_err().0, ENOENT);
        assert_eq!(ask(json!({ "msgr": "client", "dumpcontents": ["x"] })).unwrap_err().0, EINVAL);
    }
}
