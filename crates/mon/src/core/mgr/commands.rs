//! Commands of a separate manager: its modules' descriptions for clients, and the way of commands that clients send to
//! the monitor, as those of Ceph's monitors.
//!
//! Invariants:
//!  1. The sender's rights are checked here, with the permission that the command's description asks for; the manager
//!     then gets the command from an entity that may do all there.
//!  2. Descriptions come from the active manager alone, within `COMMANDS_MAX` and `BYTES_MAX`.
//!
//! Tests: `tests/does_a_separate_manager_get_on.rs` (1,
//! `commands_of_a_separate_manager_are_described_and_passed_on`), below (2).

use base::{AuthName, errno};
use bytes::Bytes;
use cluster::caps::Need;
use mgr::host::forward::Forward;
use std::collections::BTreeMap;
use wire::types::MonCommand;

use crate::command;
use crate::core::commands::audit;
use crate::core::propose::waiter::CommandReply;
use crate::core::{Effect, JOBS, MonCore};
use crate::json::J;
use crate::state::log::Prio;
use crate::state::separate_mgr::MgrCommand;
use crate::state::{ClusterState, Role, SessionInfo};

/// Most commands that a manager may offer.
const COMMANDS_MAX: usize = 4096;
/// Most bytes of their descriptions.
const BYTES_MAX: usize = 2 << 20;
/// Most commands that wait for the manager.
const WAITING_MAX: usize = 64;

/// The words of a signature, and its arguments as clients take them.
fn signature(text: &str) -> (String, J) {
    let (mut words, mut sig) = (Vec::new(), Vec::new());
    for part in text.split_whitespace() {
        if !part.contains('=') {
            words.push(part);
            sig.push(J::from(part));
            continue;
        }
        let mut arg = J::object();
        for (k, v) in part.split(',').filter_map(|field| field.split_once('=')) {
            arg.put(k.to_owned(), v);
        }
        sig.push(arg);
    }
    (words.join(" "), J::Arr(sig))
}

/// The commands of a manager by their words; those within the bounds.
fn offered(all: &[MonCommand]) -> BTreeMap<String, MgrCommand> {
    let mut bytes = 0;
    let fits = |c: &&MonCommand| {
        bytes += c.cmdstring.len() + c.helpstring.len() + c.module.len() + c.req_perms.len();
        bytes <= BYTES_MAX
    };
    let one = |c: &MonCommand| {
        let (prefix, sig) = signature(&c.cmdstring);
        let flags = c.flags | u64::from(command::flag::MGR);
        let (help, module, perm) = (c.helpstring.clone(), c.module.clone(), c.req_perms.clone());
        (prefix, MgrCommand { sig, help, module, perm, flags })
    };
    all.iter().take(COMMANDS_MAX).take_while(fits).map(one).collect()
}

/// An entity that may do all at managers.
fn asker(state: &ClusterState) -> Option<(AuthName, Option<auth::CryptoKey>)> {
    let may = |n: &&AuthName| state.auth.get(*n).is_some_and(|e| e.caps.get("mgr").is_some_and(|c| c == "allow *"));
    let admin = AuthName::parse("client.admin");
    let name = admin.as_ref().filter(may).or_else(|| state.auth.keys().find(may))?;
    let key = state.options.auth.cephx.then(|| state.auth.get(name).map(|e| e.key.clone()))?;
    Some((name.clone(), key))
}

impl MonCore {
    /// Takes the commands of the active manager.
    pub(in crate::core) fn take_mgr_commands(&mut self, all: &[MonCommand]) {
        if !all.is_empty() {
            self.state.separate_mgr_mut().offers(offered(all));
        }
    }

    /// True once after the start, if the manager that was active before has not told its commands to this process: it
    /// tells them when the map no longer shows it as available.
    pub(in crate::core) fn asks_for_mgr_commands(&mut self) -> bool {
        self.state.separate_mgr_mut().take_question()
    }

    /// Passes a command on to the separate manager. Returns false if it is the monitor's own.
    pub(in crate::core) fn forward(
        &mut self,
        to: &CommandReply,
        info: &SessionInfo,
        text: &[String],
        input: &Bytes,
    ) -> bool {
        if info.role != Role::Mon || !self.state.options.external_mgr {
            return false;
        }
        let prefix;
        let (may, audited, shown) = match command::parse(text, Role::Mon) {
            Ok(p) if p.cmd.flags & command::flag::MGR == 0 => return false,
            Ok(p) => {
                prefix = p.sig.prefix.clone();
                (command::may_run(&info.principal, Role::Mon, &p), p.cmd.is_audited(), p.shown())
            }
            Err(_) => {
                let Some(words) = command::words_of(text) else { return false };
                let Some(c) = self.state.separate_mgr.commands().get(&words) else {
                    // What to use instead is said of the built-in role only.
                    let unknown = command::is_of_a_module(&words);
                    if unknown {
                        self.answer_command(to, errno::EINVAL, "command not known".into(), Bytes::new());
                    }
                    return unknown;
                };
                prefix = words;
                let need = Need::from_perm(&c.perm);
                let may = info.principal.allows_command(&c.module, &prefix, &BTreeMap::new(), need);
                // Its arguments may hold secrets, and no declaration here says which.
                (may, need.write || need.exec, prefix.clone())
            }
        };
        let head = {
            let who = &info.principal.who;
            format!("from='{} {}' entity='{}' cmd=[{}]", info.entity, who.socket, who.name, audit::cut(shown))
        };
        if !may {
            self.audit_forward(info, &prefix, head);
            self.answer_command(to, errno::EACCES, "access denied".into(), Bytes::new());
            return true;
        }
        let waiting = self.requests.jobs_of(to.conn);
        let manager = self.state.mgrmap.active_addrs.msgr2().copied();
        let refused = match (manager.filter(|_| self.state.mgrmap.available), asker(&self.state)) {
            _ if waiting >= JOBS => (errno::EBUSY, "too many of its commands are under way"),
            _ if self.requests.jobs() >= WAITING_MAX => (errno::EAGAIN, "too many commands wait for the manager"),
            (None, _) => (errno::EAGAIN, "no manager is active"),
            (_, None) => (errno::EACCES, "no entity may ask the manager: client.admin needs mgr 'allow *'"),
            (Some(manager), Some((name, key))) => {
                if audited {
                    self.pending.log(&self.state, self.now, Prio::INFO, "audit", format!("{head}: dispatch"));
                }
                let token = self.requests.add_job(to.clone());
                let f = Forward { manager, name, key, json: text.concat(), input: input.clone() };
                self.effects.push(Effect::Forward(token, Box::new(f)));
                return true;
            }
        };
        self.answer_command(to, refused.0, refused.1.into(), Bytes::new());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_modules_become_those_of_clients() {
        let c = |s: &str| MonCommand { cmdstring: s.into(), helpstring: "h".into(), ..MonCommand::default() };
        let all = offered(&[
            c("balancer dump name=plan,type=CephString"),
            c("osd df name=output_method,type=CephChoices,strings=plain|tree,req=false"),
        ]);
        assert_eq!(all["balancer dump"].sig.compact(), r#"["balancer","dump",{"name":"plan","type":"CephString"}]"#);
        assert_eq!(all["osd df"].flags & 8, 8);
        let many: Vec<MonCommand> = (0..COMMANDS_MAX + 10).map(|n| c(&format!("a{n} b"))).collect();
        assert_eq!(offered(&many).len(), COMMANDS_MAX);
        let long = vec![c(&"x".repeat(BYTES_MAX / 2)); 3];
        assert_eq!(offered(&long).len(), 1, "the same words, and the third is beyond the bound");
    }
}
