//! Commands: from the message to the dispatcher, and the answer at the right time.
//!
//! | module | contents |
//! | --- | --- |
//! | `audit` | the audit log: changes and refusals, each with the entity that sent the command |
//! | `listings` | commands whose output is made in pieces over several turns, one command after the other |

pub(super) mod audit;
pub(super) mod listings;

use base::id::Uuid;
use base::{Epoch, errno};
use bytes::Bytes;
use wire::msg::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MMonCommand, MMonCommandAck};
use wire::types::{PaxosHeader, Text};
use wire::{Message, WireMessage};

use super::propose::waiter::{CommandReply, Waiter};
use super::reply::fetch::Fetch;
use super::{Effect, JOBS, MonCore};
use crate::command::{self, CommandEffect, CommandOutcome, Parsed, When};
use crate::state::access::{Access, Principal};
use crate::state::balance;
use crate::state::{ConnKey, Pending, Role, SessionInfo};

/// True for the listing of pools that shows how evenly their PGs are led.
fn shows_read_scores(cmd: &Parsed) -> bool {
    cmd.sig.prefix == "osd pool ls" && cmd.args.opt("detail").is_some()
}

impl MonCore {
    /// Handles a command to the monitor.
    pub(super) fn mon_command(&mut self, c: ConnKey, m: Message, x: MMonCommand) {
        self.command_message(c, m, x.fsid, x.cmd, &x.data, Role::Mon);
    }

    /// Handles a command to the manager.
    pub(super) fn mgr_command(&mut self, c: ConnKey, m: Message, x: MMgrCommand) {
        self.command_message(c, m, x.fsid, x.cmd, &x.data, Role::Mgr);
    }

    /// Handles a command to the process (`tell`).
    pub(super) fn tell_command(&mut self, c: ConnKey, m: Message, x: MCommand) {
        let Some(session) = self.sender(c) else { return };
        // An old client sends ordinary manager commands this way, without a cluster id.
        let old = session.role() == Role::Mgr && x.fsid == Uuid::ZERO;
        let role = if old { Role::Mgr } else { Role::Tell };
        self.command_message(c, m, x.fsid, x.cmd, &x.data, role);
    }

    fn command_message(&mut self, c: ConnKey, m: Message, fsid: Uuid, cmd: Vec<Text>, input: &Bytes, role: Role) {
        let Some(session) = self.sender(c) else { return };
        let info = session.info(role);
        let to = CommandReply { conn: c, tid: m.header.tid, kind: m.header.kind, cmd };
        if fsid != self.state.fsid && fsid != Uuid::ZERO {
            self.answer_command(&to, errno::EPERM, "wrong cluster".into(), Bytes::new());
            return;
        }
        let text: Vec<String> = to.cmd.iter().map(|t| t.0.clone()).collect();
        if self.forward(&to, &info, &text, input) {
            return;
        }
        let parsed = match command::parse(&text, role) {
            Ok(p) => p,
            Err(r) => return self.finish_now(&to, command::refusal(r)),
        };
        let name = info.principal.who.name.clone();
        self.ops.begin(c, to.tid, self.now, || audit::cut(format!("{name}: {}", parsed.shown())));
        if !command::may_run(&info.principal, role, &parsed) {
            self.audit_refused(&info, &parsed);
            self.answer_command(&to, errno::EACCES, "access denied".into(), Bytes::new());
            return;
        }
        self.intake.work(self.work_of_command(&parsed));
        if shows_read_scores(&parsed) {
            let scores = balance::read_scores(&self.state);
            let epoch = self.state.osdmap.epoch;
            self.state.mgr_mut().keep_read_scores(epoch, scores);
        }
        if self.must_wait() {
            // A read is answered from committed state; a command that changes something waits while a commit is in
            // flight.
            let mut scratch = Pending::default();
            let outcome = self.dispatch_on(&mut scratch, &info, &parsed, input);
            match outcome.when {
                When::Now if scratch.is_empty() => self.finish(&to, &info, &parsed, outcome),
                When::Host => self.delegate(to, &info, &parsed, outcome),
                When::NeedMap(e) => self.fetch_for_command(c, m, e),
                _ => self.defer(c, m),
            }
            return;
        }
        let outcome = self.dispatch(&info, &parsed, input);
        match outcome.when {
            When::Now => self.finish(&to, &info, &parsed, outcome),
            When::Committed => {
                self.audit_command(&info, &parsed, 0, "finished");
                let CommandOutcome { rc, rs, out, effects, .. } = outcome;
                self.answers.wait(Waiter::Command { to, rc, rs, out, effects });
            }
            When::Retry if self.pending.is_empty() => {
                self.answer_command(&to, errno::EAGAIN, "try again".into(), Bytes::new());
            }
            When::Retry => self.answers.wait(Waiter::Again(c, m)),
            When::NeedMap(e) => self.fetch_for_command(c, m, e),
            When::Host => self.delegate(to, &info, &parsed, outcome),
        }
    }

    /// The units of work of a command beyond those of its message: some look at every PG or OSD.
    fn work_of_command(&self, cmd: &Parsed) -> u64 {
        if cmd.sig.prefix == command::rehearse::PREFIX {
            return command::rehearse::rehearsed(cmd).iter().map(|p| 1 + self.work_of_command(p)).sum();
        }
        const WHOLE: [&str; 13] = [
            "status",
            "health",
            "report",
            "df",
            "osd df",
            "osd utilization",
            "osd safe-to-destroy",
            "osd ok-to-stop",
            "pg stat",
            "osd pool autoscale-status",
            "pg ls",
            "pg getmap",
            "crash ls",
        ];
        // Commands that place PGs, some ten in a unit.
        const PLACING: [&str; 7] = [
            "balancer eval",
            "balancer eval-verbose",
            "balancer optimize",
            "osd reweight-by-pg",
            "osd reweight-by-utilization",
            "osd test-reweight-by-pg",
            "osd test-reweight-by-utilization",
        ];
        if PLACING.contains(&cmd.sig.prefix.as_str()) {
            return self.state.osdmap.pools.values().map(|p| u64::from(p.pg_num)).sum::<u64>() / 10;
        }
        if shows_read_scores(cmd) {
            return balance::placed_by_listing(&self.state) / 10;
        }
        if !WHOLE.contains(&cmd.sig.prefix.as_str()) {
            return 0;
        }
        let (pgs, osds) = (self.state.mgr.stats.len(), self.state.osdmap.osd_state.len());
        (pgs / 1024 + osds / 64) as u64
    }

    /// Finishes a command that is answered at once.
    fn finish(&mut self, to: &CommandReply, info: &SessionInfo, cmd: &Parsed, o: CommandOutcome) {
        self.audit_command(info, cmd, o.rc, "finished");
        self.finish_now(to, o);
    }

    /// Hands a job to the host; the answer comes as [`super::Event::Answer`].
    fn delegate(&mut self, to: CommandReply, info: &SessionInfo, cmd: &Parsed, o: CommandOutcome) {
        if self.requests.jobs_of(to.conn) >= JOBS {
            return self.answer_command(
                &to,
                errno::EBUSY,
                "too many of its commands are under way".into(),
                Bytes::new(),
            );
        }
        self.audit_command(info, cmd, 0, "dispatch");
        for e in o.effects {
            if let CommandEffect::Job(job) = e {
                let token = self.requests.add_job(to.clone());
                self.effects.push(Effect::Job(token, job));
            }
        }
    }

    /// Answers a command with the result of its host job.
    pub(super) fn job_done(&mut self, token: u64, rc: i32, rs: String, out: Bytes) {
        if let Some(to) = self.requests.take_job(token) {
            self.answer_command(&to, rc, rs, out);
        }
    }

    pub(super) fn finish_now(&mut self, to: &CommandReply, mut o: CommandOutcome) {
        if let Some(l) = o.listing.take() {
            return self.begin_listing(to, o, l);
        }
        self.answer_command(to, o.rc, o.rs, o.out);
        self.command_effects(to.conn, o.effects);
    }

    pub(super) fn dispatch(&mut self, info: &SessionInfo, cmd: &Parsed, input: &Bytes) -> CommandOutcome {
        let mut pending = std::mem::take(&mut self.pending);
        let outcome = self.dispatch_on(&mut pending, info, cmd, input);
        self.pending = pending;
        outcome
    }

    fn dispatch_on(&self, pending: &mut Pending, info: &SessionInfo, cmd: &Parsed, input: &Bytes) -> CommandOutcome {
        command::dispatch(command::Request {
            state: &self.state,
            pending,
            session: info,
            cmd,
            input,
            now: self.now,
            random: &*self.state.random,
            ops: &self.ops,
        })
    }

    /// Runs a read-only command from the admin socket and returns its output.
    pub fn local_command(&mut self, prefix: &str, args: &serde_json::Map<String, serde_json::Value>) -> Bytes {
        let name = base::AuthName { kind: base::EntityKind::MON, id: self.state.mon_name.clone() };
        let nobody = auth::Principal::nobody(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let principal = Principal { who: auth::Principal { name, ..nobody }, access: Access::all() };
        let info = SessionInfo {
            principal,
            entity: base::EntityName::new(base::EntityKind::MON, 0),
            addrs: base::AddrVec::default(),
            features: wire::Features::PACIFIC,
            role: if prefix == "quorum_status" { Role::Mon } else { Role::Tell },
            by: None,
        };
        let mut cmd = args.clone();
        cmd.retain(|_, v| !v.is_null());
        cmd.insert("prefix".to_owned(), prefix.into());
        cmd.insert("format".to_owned(), "json-pretty".into());
        self.read_command(&info, &[serde_json::Value::Object(cmd).to_string()])
    }

    /// Output of a read-only command; empty if it failed.
    pub(super) fn read_command(&mut self, info: &SessionInfo, cmd: &[String]) -> Bytes {
        let Ok(parsed) = command::parse(cmd, info.role) else { return Bytes::new() };
        let mut scratch = Pending::default();
        let o = self.dispatch_on(&mut scratch, info, &parsed, &Bytes::new());
        match o.listing {
            Some(mut l) => {
                l.step(&self.state, usize::MAX);
                l.finish().into()
            }
            None if o.rc == 0 => o.out,
            None => Bytes::new(),
        }
    }

    fn fetch_for_command(&mut self, c: ConnKey, message: Message, epoch: Epoch) {
        let ranges = self.state.history.ranges_for_fulls(epoch, epoch);
        self.fetch(ranges, 0, Fetch::Command { conn: c, message, epoch });
    }

    pub(super) fn answer_command(&mut self, to: &CommandReply, rc: i32, rs: String, out: Bytes) {
        self.ops.end(to.conn, to.tid, self.now);
        let rs = rs.into();
        match to.kind {
            MMonCommand::KIND => {
                let paxos = PaxosHeader::default();
                let m = MMonCommandAck { paxos, r: rc, rs, cmd: to.cmd.clone(), data: out };
                self.reply(to.conn, to.tid, &m);
            }
            MMgrCommand::KIND => self.reply(to.conn, to.tid, &MMgrCommandReply { r: rc, rs, data: out }),
            _ => self.reply(to.conn, to.tid, &MCommandReply { r: rc, rs, data: out }),
        }
    }

    pub(super) fn command_effects(&mut self, conn: ConnKey, effects: Vec<CommandEffect>) {
        for e in effects {
            match e {
                CommandEffect::ToOsd(osd, m) => {
                    let conn = self.state.sessions.newest_of(osd);
                    match conn {
                        Some(c) => self.send(c, m),
                        None => tracing::warn!("mgr: dropping a request to {osd}, which has no manager session"),
                    }
                }
                CommandEffect::ScrubState => self.scrub_state(conn),
                CommandEffect::ForgetPool(p) => self.state.mgr_mut().stats.forget_pool(p),
                CommandEffect::Settings(s) => self.state.change_options(|o| {
                    o.settings = *s;
                    o.apply_settings();
                }),
                CommandEffect::Balancer(b) => self.state.mgr_mut().balancer_mut().change(b, self.now),
                CommandEffect::Rehearsal(by) => self.state.mgr_mut().rehearsal_mut().take(by, self.now),
                // `delegate` has already taken the job.
                CommandEffect::Job(_) => {}
                CommandEffect::Restart => self.effects.push(Effect::Stop("asked to by a command".into())),
            }
        }
    }
}
