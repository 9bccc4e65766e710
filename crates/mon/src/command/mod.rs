//! Commands of the monitor and manager roles: one JSON object, sent by `ceph`, python3-rados and scripts.
//!
//! Each folder below holds the commands on one subject, each file of it a family of them: a table (`COMMANDS`) beside
//! the functions that serve them. [`language`] has what all of them use. A command goes through these steps:
//!
//!  1. *Declared*: a row [`Cmd`] has its signature (words and typed arguments, in the language of
//!     [`language::sig`]), the service and permission it needs, [`flag`]s, help, and its function. The descriptions for
//!     clients, the list in the documents and the tests that draw commands are made from the same rows. A new module's
//!     table is added to `TABLES`.
//!  2. *Parsed*: [`parse`] finds the signatures with the command's words, takes the one that fits most of the
//!     arguments and checks their types. A function finds in [`Args`] only arguments that its signature allows.
//!  3. *Checked*: [`may_run`] alone decides whether the sender may run a command. A function checks rights only where
//!     they depend on the state it reads (file systems, pools of images).
//!  4. *Planned*: the function reads [`ClusterState`] and puts changes into [`Pending`], which the host proposes.
//!     [`CommandOutcome`] says when the answer is sent: now, after the commit, or once a record was loaded.
//!  5. *Rendered*: the function gives its answer as a tree and as a text (`Ctx::tree`), or as one of them; `render`
//!     alone looks at the requested format. Tables are declared by their columns ([`language::text::Column`]).
//!
//! [`dispatch`] does steps 3 to 5. Status lines and the errno of each failure are Ceph's, since scripts and test
//! suites match them.
//!
//! | module | contents |
//! | --- | --- |
//! | `absent` | families of Ceph's commands that this program does not have, each with what to use instead |
//! | `auth` | keys and capabilities of entities |
//! | `config` | the central configuration: options by section and mask, history, options in effect |
//! | `crush` | commands on the CRUSH map: nodes, rules, and what they look like |
//! | `device` | devices that daemons report, and their life expectancy |
//! | `fs` | file systems and their MDS daemons |
//! | `health` | `health`: its rendering, and mutes |
//! | `language` | the language of commands: signatures and arguments in, trees, tables and outcomes out |
//! | `mgr` | commands on the manager map |
//! | `mon` | commands on monitors |
//! | `osd` | commands on OSDs: their map and its texts, their life, weights and places, and flags that hold them |
//! | `pg` | commands on PGs: what they are and where, and requests to their OSDs |
//! | `pool` | commands that show pools, and those on quotas and on the autoscaler's view |
//! | `rehearse` | `rehearse`: the change of the OSD map that commands would make, without making it |
//!
//! Invariants:
//!  1. A function decides on `Pending`'s view and changes only `Pending`; a command that fails has changed nothing.
//!  2. Every byte sequence sent as a command gets an answer and causes no panic; malformed JSON gives EINVAL.
//!  3. Every command in the descriptions has its function. A command that this program cannot carry out is refused
//!     with an errno and a text that says so.
//!
//! Tests: an assertion (1, that a failure changes nothing; that the state is read only is the type's),
//! `tests/does_any_command_break_the_monitor.rs` (2), `tests/do_clients_understand_the_descriptions.rs` (3,
//! `every_entry_parses_and_has_help`).

mod absent;
mod auth;
pub(crate) mod config;
mod crush;
pub(crate) mod device;
mod fs;
mod health;
pub mod language;
mod mgr;
pub(crate) mod mon;
mod osd;
mod pg;
pub(crate) mod pool;
pub(crate) mod rehearse;

pub(crate) use self::absent::has_module as is_of_a_module;
pub(crate) use self::mgr::rbd::MODULE as IMAGES_MODULE;
pub use cluster::{option_table, units};
pub(crate) use fs::volume::mon_addrs;
pub use health::{Check, Checks, Severity, checks, ended_mutes, health_word};
pub(crate) use health::{health_word_of, versions_differ};
pub use language::outcome::{CommandEffect, CommandOutcome, HostJob, When};
pub use language::render::Format;
pub(crate) use mon::versions::VERSION;
pub use pool::make::REPLICATION;

use crate::json::J;
use crate::obj;
use crate::state::access::Principal;
use crate::state::ops::OpTracker;
use crate::state::{ClusterState, Pending, Role, SessionInfo};
use base::{Now, errno};
use bytes::Bytes;
use cluster::caps::Need;
use cluster::{Incremental, OsdMap};
use language::args::{Args, Given};
use language::render::plain;
use language::sig::Sig;
pub(crate) use osd::map::has_twice;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Longest command text accepted, in bytes.
pub const COMMAND_LEN_MAX: usize = 1 << 20;
/// Most words in a command's prefix.
const PREFIX_WORDS_MAX: usize = 8;

/// The refusal of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Negative errno.
    pub rc: i32,
    /// Status line of the answer.
    pub rs: String,
}

impl Refused {
    /// A refusal with errno and status line.
    #[must_use]
    pub fn new(rc: i32, rs: impl Into<String>) -> Self {
        Self { rc, rs: rs.into() }
    }
}

/// The result of a function that may refuse the command.
pub type Res<T> = Result<T, Refused>;

/// A refusal with EINVAL and a status line.
fn invalid<T>(rs: impl Into<String>) -> Res<T> {
    Err(Refused::new(errno::EINVAL, rs))
}

/// A refusal with any errno and a status line.
fn refuse<T>(rc: i32, rs: impl Into<String>) -> Res<T> {
    Err(Refused::new(rc, rs))
}

/// One row of the command tables.
#[derive(Clone, Copy, Debug)]
pub struct Cmd {
    /// Signature, in the language of [`language::sig`].
    pub sig: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The service or manager module whose caps are checked.
    pub module: &'static str,
    /// The permission needed: `r`, `rw` or `rwx`.
    pub perm: &'static str,
    /// Bits of [`flag`].
    pub flags: u32,
    /// The function that serves the command.
    pub run: fn(&mut Ctx<'_>) -> Res<CommandOutcome>,
}

/// Bits of [`Cmd::flags`], with Ceph's values.
pub mod flag {
    /// Not forwarded between monitors.
    pub const NOFORWARD: u32 = 1;
    /// Old name of another command.
    pub const DEPRECATED: u32 = 4;
    /// Served by the manager.
    pub const MGR: u32 = 8;
    /// The CLI may poll it (`-p`).
    pub const POLL: u32 = 16;
    /// Not listed by `ceph help`.
    pub const HIDDEN: u32 = 32;
    /// Sent with `ceph tell`.
    pub const TELL: u32 = NOFORWARD | HIDDEN;
}

/// The rights that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// An authenticated session.
    Session,
    /// Permission at a service, or a grant of the command itself.
    Service(&'static str, Need),
    /// Permission at a module of the manager, or a grant of the command itself.
    Module(&'static str, Need),
}

impl Cmd {
    /// The rights that the command needs.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let need = Need::from_perm(self.perm);
        // Clients ask for descriptions before they know their caps.
        if self.sig == language::describe::DESCRIPTIONS {
            Needs::Session
        } else if self.sig.starts_with("rbd ") {
            Needs::Module(mgr::rbd::MODULE, need)
        } else {
            Needs::Service(self.module, need)
        }
    }

    /// True if the command may change something or hands out keys. The audit log keeps such commands permanently.
    #[must_use]
    pub fn is_audited(&self) -> bool {
        let need = Need::from_perm(self.perm);
        need.write || need.exec
    }
}

const fn cmd(
    sig: &'static str,
    module: &'static str,
    perm: &'static str,
    flags: u32,
    run: fn(&mut Ctx<'_>) -> Res<CommandOutcome>,
    help: &'static str,
) -> Cmd {
    Cmd { sig, help, module, perm, flags, run }
}

/// A command to run, with its surroundings.
pub struct Request<'a> {
    /// The committed state.
    pub state: &'a ClusterState,
    /// The proposal under construction.
    pub pending: &'a mut Pending,
    /// The sender's session, with the role it was sent to.
    pub session: &'a SessionInfo,
    /// The command.
    pub cmd: &'a Parsed,
    /// The input data of the command (`-i` of the CLI).
    pub input: &'a Bytes,
    /// The current time.
    pub now: Now,
    /// The source of randomness for keys.
    pub random: &'a dyn ::auth::Random,
    /// Requests in flight, and recent ones.
    pub ops: &'a OpTracker,
}

/// The context that a command's function works in.
pub struct Ctx<'a> {
    /// The committed state.
    pub state: &'a ClusterState,
    /// The proposal under construction.
    pub pending: &'a mut Pending,
    /// The sender's session.
    pub session: &'a SessionInfo,
    /// The words of the command.
    pub prefix: &'static str,
    /// The arguments of the command.
    pub args: Args,
    /// The input data of the command.
    pub input: &'a Bytes,
    /// The current time.
    pub now: Now,
    /// The source of randomness for keys.
    pub random: &'a dyn ::auth::Random,
    /// Requests in flight, and recent ones.
    pub ops: &'a OpTracker,
    /// The requested rendering.
    pub format: Format,
}

impl Ctx<'_> {
    /// The OSD map with pending changes.
    fn map(&mut self) -> Arc<OsdMap> {
        self.pending.map(self.state)
    }

    /// The pending map change.
    fn inc(&mut self) -> &mut Incremental {
        self.pending.inc_mut(self.state)
    }

    /// The id of the pool that argument `key` names. Error: ENOENT.
    fn pool_id(&mut self, key: &str) -> Res<base::PoolId> {
        let name = self.args.str(key)?;
        let map = self.map();
        map.pool_by_name(&name).ok_or_else(|| Refused::new(errno::ENOENT, format!("unrecognized pool '{name}'")))
    }
}

/// Success with a status line, answered at once.
fn done(rs: impl Into<String>) -> Res<CommandOutcome> {
    Ok(CommandOutcome::done(rs))
}

/// Success with a status line, answered after the commit.
fn committed(rs: impl Into<String>) -> Res<CommandOutcome> {
    Ok(CommandOutcome::committed(rs))
}

struct Registry {
    commands: Vec<(Sig, &'static Cmd)>,
    by_prefix: BTreeMap<String, Vec<usize>>,
}

/// The command tables in the order of the descriptions.
const TABLES: &[&[Cmd]] = &[
    language::describe::COMMANDS,
    mon::status::COMMANDS,
    health::COMMANDS,
    pool::df::COMMANDS,
    osd::show::COMMANDS,
    osd::tree::COMMANDS,
    osd::df::COMMANDS,
    osd::life::COMMANDS,
    osd::report::COMMANDS,
    osd::safe::COMMANDS,
    osd::map::COMMANDS,
    osd::upmap::COMMANDS,
    osd::primary::COMMANDS,
    osd::misc::COMMANDS,
    osd::reweight::COMMANDS,
    rehearse::COMMANDS,
    rehearse::steps::COMMANDS,
    osd::flags::COMMANDS,
    osd::flags::AUTOSCALE,
    pool::profile::COMMANDS,
    crush::show::COMMANDS,
    crush::edit::COMMANDS,
    crush::rule::COMMANDS,
    pool::make::COMMANDS,
    pool::COMMANDS,
    pool::set::COMMANDS,
    pool::app::COMMANDS,
    pool::snap::COMMANDS,
    pg::show::COMMANDS,
    pg::getmap::COMMANDS,
    pg::scrub::COMMANDS,
    auth::COMMANDS,
    config::COMMANDS,
    config::key::COMMANDS,
    mon::log::COMMANDS,
    mon::COMMANDS,
    mon::elect::COMMANDS,
    mgr::COMMANDS,
    fs::COMMANDS,
    fs::mds::COMMANDS,
    fs::subvolume::COMMANDS,
    fs::snap_schedule::COMMANDS,
    fs::volume::COMMANDS,
    fs::authorize::COMMANDS,
    mon::versions::COMMANDS,
    mgr::balancer::COMMANDS,
    mgr::modules::COMMANDS,
    mgr::dashboard::COMMANDS,
    mgr::crash::COMMANDS,
    device::COMMANDS,
    device::life::COMMANDS,
    device::light::COMMANDS,
    mgr::rbd::COMMANDS,
    mon::tell::COMMANDS,
    mgr::tell::COMMANDS,
];

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut r = Registry { commands: Vec::new(), by_prefix: BTreeMap::new() };
        for c in TABLES.iter().flat_map(|t| t.iter()) {
            // A malformed row is left out; a test proves that there is none.
            let Some(s) = Sig::parse(c.sig) else { continue };
            r.by_prefix.entry(s.prefix.clone()).or_default().push(r.commands.len());
            r.commands.push((s, c));
        }
        r
    })
}

/// All commands with their signatures, in table order.
pub fn commands() -> impl Iterator<Item = (&'static Sig, &'static Cmd)> {
    registry().commands.iter().map(|(s, c)| (s, *c))
}

/// A parsed command: its row in the tables, and its arguments.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The signature that matched.
    pub sig: &'static Sig,
    /// The row of the command tables.
    pub cmd: &'static Cmd,
    /// The arguments, checked against the signature.
    pub args: Args,
    /// The requested rendering.
    pub format: Format,
}

impl Parsed {
    /// The command for logs: its declared arguments, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut j = obj! { "prefix": self.sig.prefix.as_str() };
        let name = ["name", "key", "var"].iter().find_map(|k| self.args.opt(k)).unwrap_or_default();
        for (k, v) in self.args.iter() {
            let marked = self.sig.args.iter().any(|a| a.name == k && a.secret);
            // For some options the value is a secret.
            let option = matches!(k, "value" | "val") && is_secret_name(&name);
            let hide = |s: &str| k == "injected_args" && is_secret_name(s);
            let shown = match v {
                _ if marked || option => J::from("***"),
                language::args::Value::List(l) => l.iter().map(|s| if hide(s) { "***" } else { s.as_str() }).collect(),
                language::args::Value::Int(n) => J::from(*n),
                language::args::Value::Bool(b) => J::from(*b),
                language::args::Value::Float(_) | language::args::Value::Text(_) => {
                    J::from(self.args.opt(k).unwrap_or_default())
                }
            };
            j.put(k, shown);
        }
        j.compact()
    }
}

/// True for names of options that hold a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["secret", "password", "passwd", "passphrase", "token", "credential", "_key", "-key"]
        .iter()
        .any(|w| name.contains(w))
        || name == "key"
}

/// Runs a command.
pub fn dispatch(req: Request<'_>) -> CommandOutcome {
    let before = cfg!(debug_assertions).then(|| req.pending.extent());
    let Request { state, pending, session, cmd, input, now, random, ops } = req;
    let outcome = run(Request { state, pending: &mut *pending, session, cmd, input, now, random, ops });
    let unchanged = || before.is_none_or(|b| b == pending.extent());
    debug_assert!(outcome.is_ok() || unchanged(), "'{}' failed and has changed something", cmd.sig.prefix);
    outcome.unwrap_or_else(refusal)
}

/// The answer to a command that is refused.
#[must_use]
pub fn refusal(r: Refused) -> CommandOutcome {
    let rs = if r.rs.is_empty() { errno_text(r.rc) } else { r.rs };
    CommandOutcome::fail(r.rc, rs)
}

/// The text of Ceph's `cpp_strerror`, for a failure without a text of its own.
fn errno_text(rc: i32) -> String {
    let text = match rc {
        errno::EPERM => "Operation not permitted",
        errno::ENOENT => "No such file or directory",
        errno::EACCES => "Permission denied",
        errno::EBUSY => "Device or resource busy",
        errno::EEXIST => "File exists",
        errno::EINVAL => "Invalid argument",
        errno::ERANGE => "Numerical result out of range",
        errno::EOPNOTSUPP => "Operation not supported",
        errno::EAGAIN => "Resource temporarily unavailable",
        _ => return String::new(),
    };
    format!("({}) {text}", -rc)
}

/// The words of a command, if it is one.
pub(crate) fn words_of(cmd: &[String]) -> Option<String> {
    if cmd.iter().map(String::len).sum::<usize>() > COMMAND_LEN_MAX {
        return None;
    }
    let given = Given::parse(&cmd.concat()).ok()?;
    Some(given.prefix()?.split_whitespace().take(PREFIX_WORDS_MAX).collect::<Vec<_>>().join(" "))
}

/// Parses a command sent to a role. Error: E2BIG for a command longer than [`COMMAND_LEN_MAX`], else EINVAL, with the
/// status line for the sender.
pub fn parse(cmd: &[String], role: Role) -> Res<Parsed> {
    if cmd.iter().map(String::len).sum::<usize>() > COMMAND_LEN_MAX {
        return refuse(errno::E2BIG, "command too long");
    }
    let given = Given::parse(&cmd.concat())?;
    let Some(prefix) = given.prefix() else {
        return invalid("command not known");
    };
    let words: Vec<&str> = prefix.split_whitespace().take(PREFIX_WORDS_MAX).collect();
    let prefix = words.join(" ");
    if given.get("output-file").is_some() {
        // `ceph --daemon-output-file`: whoever may send commands would choose files of this host.
        return refuse(errno::EOPNOTSUPP, "answers are not written to files of this host; redirect the output of ceph");
    }
    let Some(candidates) = registry().by_prefix.get(&prefix) else {
        absent::check(&prefix)?;
        return invalid("command not known");
    };
    // Several signatures may share a prefix. The one that takes the most of the given arguments is chosen; among
    // equals, one whose `TELL` flag agrees with the role.
    let mut chosen: Option<((usize, bool), &Sig, &Cmd, Args)> = None;
    let mut wrong = None;
    for (sig, c) in candidates.iter().filter_map(|i| registry().commands.get(*i)) {
        match sig.take(&given) {
            Ok(args) => {
                let told = c.flags & flag::TELL == flag::TELL;
                let fit = (args.iter().count(), told == (role == Role::Tell));
                if chosen.as_ref().is_none_or(|(best, ..)| fit > *best) {
                    chosen = Some((fit, sig, c, args));
                }
            }
            Err(e) => wrong = wrong.or(Some(e)),
        }
    }
    let Some((_, sig, c, args)) = chosen else { return invalid(wrong.unwrap_or_default()) };
    if c.flags & flag::TELL == flag::TELL && role != Role::Tell && !also_untold(&sig.prefix) {
        return invalid("command not known");
    }
    let format = Format::from_word(given.get("format").and_then(|f| f.as_str()));
    Ok(Parsed { sig, cmd: c, args, format })
}

fn run(req: Request<'_>) -> Res<CommandOutcome> {
    let p = req.cmd;
    if !may_run(&req.session.principal, req.session.role, p) {
        return refuse(errno::EACCES, "access denied");
    }
    if p.cmd.flags & flag::DEPRECATED != 0 && req.state.options.refuse_old_names {
        return refuse(errno::EOPNOTSUPP, "command is obsolete; please check usage and/or man page");
    }
    let mut ctx = Ctx {
        state: req.state,
        pending: req.pending,
        session: req.session,
        prefix: p.sig.prefix.as_str(),
        args: p.args.clone(),
        input: req.input,
        now: req.now,
        random: req.random,
        ops: req.ops,
        format: p.format,
    };
    (p.cmd.run)(&mut ctx)
}

/// True for `tell` commands that clients also send to the monitor without `tell`.
fn also_untold(prefix: &str) -> bool {
    matches!(prefix, "version" | "mon_status" | "get_command_descriptions" | "sessions" | "config get" | "config set")
}

/// True if the sender may run the command. All commands are checked here and nowhere else.
#[must_use]
pub fn may_run(who: &Principal, role: Role, p: &Parsed) -> bool {
    let (c, prefix) = (p.cmd, p.sig.prefix.as_str());
    match c.needs() {
        // `ceph tell` needs all capabilities, as in Ceph (`Monitor::handle_tell_command`,
        // `DaemonServer::_handle_command`).
        _ if role == Role::Tell => who.access.is_allow_all(),
        // A monitor of Ceph forwards these to the manager without the sender's caps of pools, for which the module
        // looks.
        Needs::Module(..) if role == Role::Mon && prefix.starts_with("rbd perf ") => who.access.is_allow_all(),
        Needs::Session => true,
        // The manager module checks pools itself.
        Needs::Module(module, need) => who.allows_module(module, prefix, &p.args.for_caps(), need),
        Needs::Service(service, need) => who.allows_command(service, prefix, &p.args.for_caps(), need),
    }
}
