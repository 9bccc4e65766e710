//! Commands of the monitor and manager roles: what `ceph`, python3-rados and scripts send as one JSON object.
//!
//! Each module below holds the commands of one family: a table (`COMMANDS`) beside the functions that serve them. The way of
//! a command:
//!
//!  1. *Declared*: a row [`Cmd`] says its signature (words and typed arguments, in the language of [`sig`]), the service and
//!     permission it needs, [`flag`]s, help, and its function. Descriptions for clients, the list in the documents and the
//!     tests that draw commands are made of the same rows. A table of a new module is added to `TABLES`.
//!  2. *Parsed*: [`parse`] finds the signatures of the words that came, takes the one that fits most of the arguments and
//!     checks their types: a function finds in [`Args`] only what its signature allows.
//!  3. *Checked*: [`may_run`] is the one place that asks whether the sender may do it. Functions ask further only where rights
//!     depend on what they find (file systems, pools of images).
//!  4. *Planned*: the function reads [`ClusterState`] and puts changes into [`Pending`], which the host proposes.
//!     [`CommandOutcome`] says when the answer goes out: now, after the commit, or once something was loaded.
//!  5. *Rendered*: the function gives what it answers as a tree and as a text (`Ctx::tree`), or as one of them; `render`
//!     alone looks at the format that was asked for. Tables are declared by their columns ([`text::Column`]).
//!
//! [`dispatch`] does 3 to 5. Texts of status lines and the errno of each failure are Ceph's, since scripts and test suites match
//! them.
//!
//! Invariants:
//!  1. A function decides on `Pending`'s view and changes only `Pending`; what fails has changed nothing.
//!  2. Whatever bytes come as a command give an answer, never a panic; malformed JSON gives EINVAL.
//!  3. What the descriptions announce is served: every table entry has its function. What we can't do is refused with
//!     the errno and a text that says so.

pub mod args;
pub mod json;
pub mod sig;
pub mod text;

mod auth;
pub(crate) mod config;
mod config_key;
mod crash;
mod crush_edit;
mod crush_rule;
mod crush_show;
mod describe;
mod device;
mod df;
mod fs;
mod health;
mod hold;
mod log;
mod mgr;
mod modules;
mod mon;
mod osd_df;
mod osd_life;
mod osd_map;
mod osd_misc;
mod osd_safe;
mod osd_show;
mod osd_tree;
mod pg_show;
pub(crate) mod pool;
mod pool_app;
mod pool_make;
mod pool_set;
mod pool_snap;
mod profile;
mod rbd;
mod render;
mod scrub;
pub(crate) mod status;
mod tell;
mod versions;

pub use cluster::{option_table, units};
pub use health::{Check, Checks, Severity, checks, ended_mutes};
pub use pool_make::REPLICATION;
pub(crate) use rbd::MODULE as IMAGES_MODULE;
pub use render::Format;

use crate::core::access::Principal;
use crate::core::cluster_state::{ClusterState, CommandOutcome, Pending, Role, SessionInfo};
use crate::core::ops::OpTracker;
use crate::obj;
use args::{Args, Given};
use base::{Now, errno};
use bytes::Bytes;
use cluster::caps::Need;
use cluster::{Incremental, OsdMap};
use json::J;
use render::plain;
use sig::Sig;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Longest command text taken.
pub const COMMAND_LEN_MAX: usize = 1 << 20;
/// Words of the longest prefix.
const PREFIX_WORDS_MAX: usize = 8;

/// A command was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Negative errno.
    pub rc: i32,
    /// Status line.
    pub rs: String,
}

impl Refused {
    /// With errno and text.
    #[must_use]
    pub fn new(rc: i32, rs: impl Into<String>) -> Self {
        Self { rc, rs: rs.into() }
    }
}

/// Result of anything that may refuse.
pub type Res<T> = Result<T, Refused>;

/// EINVAL with a text.
fn invalid<T>(rs: impl Into<String>) -> Res<T> {
    Err(Refused::new(errno::EINVAL, rs))
}

/// Any errno with a text.
fn refuse<T>(rc: i32, rs: impl Into<String>) -> Res<T> {
    Err(Refused::new(rc, rs))
}

/// One entry of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Cmd {
    /// Signature, in the language of [`sig`].
    pub sig: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Module the capability check is for.
    pub module: &'static str,
    /// `r`, `rw`, `rwx`.
    pub perm: &'static str,
    /// Bits of [`flag`].
    pub flags: u32,
    /// The function.
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

/// What a command asks of who sends it.
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
    /// What it asks of who sends it.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let need = Need::from_perm(self.perm);
        // Clients ask for descriptions before they know what they may do.
        if self.sig == describe::DESCRIPTIONS {
            Needs::Session
        } else if self.sig.starts_with("rbd ") {
            Needs::Module(rbd::MODULE, need)
        } else {
            Needs::Service(self.module, need)
        }
    }

    /// True if it may change something, or hands out keys: then it is in the audit log for good.
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

/// What a command comes with.
pub struct Request<'a> {
    /// Committed state.
    pub state: &'a ClusterState,
    /// Proposal under construction.
    pub pending: &'a mut Pending,
    /// Who asks, and which role.
    pub session: &'a SessionInfo,
    /// The command.
    pub cmd: &'a Parsed,
    /// Input (`-i` of the CLI).
    pub input: &'a Bytes,
    /// Time.
    pub now: Now,
    /// Randomness for keys.
    pub random: &'a dyn ::auth::Random,
    /// Requests under way, and the last ones.
    pub ops: &'a OpTracker,
}

/// What a command's function works with.
pub struct Ctx<'a> {
    /// Committed state.
    pub state: &'a ClusterState,
    /// Proposal under construction.
    pub pending: &'a mut Pending,
    /// Who asks.
    pub session: &'a SessionInfo,
    /// The command's words.
    pub prefix: &'static str,
    /// Arguments.
    pub args: Args,
    /// Input.
    pub input: &'a Bytes,
    /// Time.
    pub now: Now,
    /// Randomness for keys.
    pub random: &'a dyn ::auth::Random,
    /// Requests under way, and the last ones.
    pub ops: &'a OpTracker,
    /// Rendering wanted.
    pub format: Format,
}

impl Ctx<'_> {
    /// The map with pending changes.
    fn map(&mut self) -> Arc<OsdMap> {
        self.pending.map(self.state)
    }

    /// The map change under construction.
    fn inc(&mut self) -> &mut Incremental {
        self.pending.inc_mut(self.state)
    }

    /// A pool by name.
    fn pool_id(&mut self, key: &str) -> Res<base::PoolId> {
        let name = self.args.str(key)?;
        let map = self.map();
        map.pool_by_name(&name).ok_or_else(|| Refused::new(errno::ENOENT, format!("unrecognized pool '{name}'")))
    }
}

/// Success with a status line, now.
fn done(rs: impl Into<String>) -> Res<CommandOutcome> {
    Ok(CommandOutcome::done(rs))
}

/// Success with a status line, once committed.
fn committed(rs: impl Into<String>) -> Res<CommandOutcome> {
    Ok(CommandOutcome::committed(rs))
}

struct Registry {
    commands: Vec<(Sig, &'static Cmd)>,
    by_prefix: BTreeMap<String, Vec<usize>>,
}

/// Tables in the order of descriptions.
const TABLES: &[&[Cmd]] = &[
    describe::COMMANDS,
    status::COMMANDS,
    health::COMMANDS,
    df::COMMANDS,
    osd_show::COMMANDS,
    osd_tree::COMMANDS,
    osd_df::COMMANDS,
    osd_life::COMMANDS,
    osd_safe::COMMANDS,
    osd_map::COMMANDS,
    osd_misc::COMMANDS,
    hold::COMMANDS,
    profile::COMMANDS,
    crush_show::COMMANDS,
    crush_edit::COMMANDS,
    crush_rule::COMMANDS,
    pool_make::COMMANDS,
    pool::COMMANDS,
    pool_set::COMMANDS,
    pool_app::COMMANDS,
    pool_snap::COMMANDS,
    pg_show::COMMANDS,
    scrub::COMMANDS,
    auth::COMMANDS,
    config::COMMANDS,
    config_key::COMMANDS,
    log::COMMANDS,
    mon::COMMANDS,
    mgr::COMMANDS,
    fs::COMMANDS,
    fs::mds::COMMANDS,
    fs::volume::COMMANDS,
    fs::authorize::COMMANDS,
    versions::COMMANDS,
    modules::COMMANDS,
    crash::COMMANDS,
    device::COMMANDS,
    rbd::COMMANDS,
    tell::COMMANDS,
];

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut r = Registry { commands: Vec::new(), by_prefix: BTreeMap::new() };
        for c in TABLES.iter().flat_map(|t| t.iter()) {
            // A malformed entry is left out; a test proves that there is none.
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

/// A command that was parsed: its row in the tables, and its arguments.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// Signature.
    pub sig: &'static Sig,
    /// What it does and needs.
    pub cmd: &'static Cmd,
    /// Arguments.
    pub args: Args,
    /// Rendering wanted.
    pub format: Format,
}

impl Parsed {
    /// The command for logs: what is declared and was given, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut j = obj! { "prefix": self.sig.prefix.as_str() };
        let name = ["name", "key", "var"].iter().find_map(|k| self.args.opt(k)).unwrap_or_default();
        for (k, v) in self.args.iter() {
            let marked = self.sig.args.iter().any(|a| a.name == k && a.secret);
            // Options by the name of which their value is a secret.
            let option = matches!(k, "value" | "val") && is_secret_name(&name);
            let hide = |s: &str| k == "injected_args" && is_secret_name(s);
            let shown = match v {
                _ if marked || option => J::from("***"),
                args::Value::List(l) => l.iter().map(|s| if hide(s) { "***" } else { s.as_str() }).collect(),
                args::Value::Int(n) => J::from(*n),
                args::Value::Bool(b) => J::from(*b),
                args::Value::Float(_) | args::Value::Text(_) => J::from(self.args.opt(k).unwrap_or_default()),
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
    run(req).unwrap_or_else(refusal)
}

/// The answer to a command that is refused.
#[must_use]
pub fn refusal(r: Refused) -> CommandOutcome {
    let rs = if r.rs.is_empty() { errno_text(r.rc) } else { r.rs };
    CommandOutcome::fail(r.rc, rs)
}

/// The text Ceph's `cpp_strerror` gives where a command has none of its own.
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

/// Parses a command sent to a role.
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
    let Some(candidates) = registry().by_prefix.get(&prefix) else {
        return invalid("command not known");
    };
    // Of several signatures with one prefix the one that takes most of the arguments given, and of those what is told to a
    // process only if that is so.
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

/// Commands marked for `tell` that clients also send to the monitor as such.
fn also_untold(prefix: &str) -> bool {
    matches!(prefix, "version" | "mon_status" | "get_command_descriptions" | "sessions" | "config get" | "config set")
}

/// True if somebody may run a command: the one place that is asked, for every command.
#[must_use]
pub fn may_run(who: &Principal, role: Role, p: &Parsed) -> bool {
    let (c, prefix) = (p.cmd, p.sig.prefix.as_str());
    match c.needs() {
        // `ceph tell` of any command, as in Ceph (`Monitor::handle_tell_command`, `DaemonServer::_handle_command`).
        _ if role == Role::Tell => who.access.is_allow_all(),
        // A monitor hands these to the manager, whose module looks for caps of pools and sees none of the sender's.
        Needs::Module(..) if role == Role::Mon && prefix.starts_with("rbd perf ") => who.access.is_allow_all(),
        Needs::Session => true,
        // A module looks at pools itself.
        Needs::Module(module, need) => who.allows_module(module, prefix, &p.args.for_caps(), need),
        Needs::Service(service, need) => who.allows_command(service, prefix, &p.args.for_caps(), need),
    }
}
