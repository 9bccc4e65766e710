//! Commands of the monitor and manager roles: what `ceph`, python3-rados and scripts send as one JSON object.
//!
//! Each module below holds the commands of one family: a table (`COMMANDS`) of signatures beside the functions that
//! serve them. [`dispatch`] parses, finds the longest matching prefix, checks types and capabilities, runs the function
//! and renders its output. Texts of status lines and the errno of each failure are Ceph's, since scripts and test
//! suites match them.
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
mod config;
mod config_key;
mod crush_edit;
mod crush_rule;
mod crush_show;
mod describe;
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
mod scrub;
pub(crate) mod status;
mod tell;
mod versions;

pub use cluster::{option_table, units};
pub use health::{Check, Checks, Severity, checks, ended_mutes};
pub use pool_make::REPLICATION;

use crate::core::cluster_state::{ClusterState, CommandOutcome, Pending, Role, SessionInfo};
use args::Args;
use base::{Now, errno};
use bytes::Bytes;
use cluster::{Incremental, OsdMap};
use json::J;
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
#[derive(Clone, Copy)]
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

/// How to render output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Plain,
    /// JSON on one line.
    Json,
    /// JSON, indented.
    JsonPretty,
    /// XML.
    Xml,
}

impl Format {
    fn from_word(w: Option<&str>) -> Self {
        match w {
            Some("json") => Self::Json,
            Some("json-pretty") => Self::JsonPretty,
            Some("xml" | "xml-pretty") => Self::Xml,
            _ => Self::Plain,
        }
    }
}

/// What a command comes with.
pub struct Request<'a> {
    /// Committed state.
    pub state: &'a ClusterState,
    /// Proposal under construction.
    pub pending: &'a mut Pending,
    /// Who asks, and which role.
    pub session: &'a SessionInfo,
    /// The command: JSON text in one or more pieces.
    pub cmd: &'a [String],
    /// Input (`-i` of the CLI).
    pub input: &'a Bytes,
    /// Time.
    pub now: Now,
    /// Randomness for keys.
    pub random: &'a dyn ::auth::Random,
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

    /// True unless plain text is wanted.
    fn structured(&self) -> bool {
        self.format != Format::Plain
    }

    /// Renders a tree; plain means indented JSON.
    fn render(&self, root: &str, j: &J) -> String {
        match self.format {
            Format::Json => j.compact(),
            Format::JsonPretty | Format::Plain => j.pretty(),
            Format::Xml => j.xml(root),
        }
    }

    /// Answers with a tree.
    fn show(&self, root: &str, j: &J) -> Res<CommandOutcome> {
        Ok(CommandOutcome::output(self.render(root, j)))
    }

    /// Answers with a tree and a line break after it, as commands that also have a plain form do.
    fn show_line(&self, root: &str, j: &J) -> Res<CommandOutcome> {
        Ok(CommandOutcome::output(self.render(root, j) + "\n"))
    }

    /// A pool by name.
    fn pool_id(&mut self, key: &str) -> Res<base::PoolId> {
        let name = self.args.str(key)?;
        let map = self.map();
        map.pool_by_name(&name).ok_or_else(|| Refused::new(errno::ENOENT, format!("unrecognized pool '{name}'")))
    }
}

/// Success with plain text.
fn plain(out: impl Into<String>) -> Res<CommandOutcome> {
    Ok(CommandOutcome::output(out.into()))
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
    versions::COMMANDS,
    modules::COMMANDS,
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

/// Runs a command.
pub fn dispatch(req: Request<'_>) -> CommandOutcome {
    let text = req.cmd.concat();
    match run(req, &text) {
        Ok(o) => o,
        Err(r) => {
            let rs = if r.rs.is_empty() { errno_text(r.rc) } else { r.rs };
            CommandOutcome::fail(r.rc, rs)
        }
    }
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

fn run(req: Request<'_>, text: &str) -> Res<CommandOutcome> {
    if text.len() > COMMAND_LEN_MAX {
        return refuse(errno::E2BIG, "command too long");
    }
    // What follows the value is not looked at, as in Ceph: `rbd perf image iostat` of 16.2 sends a quote too many.
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let map = match values.next().unwrap_or(Ok(serde_json::Value::Null)) {
        Ok(serde_json::Value::Object(m)) => m,
        _ => return invalid(format!("unparseable JSON {}", text.chars().take(256).collect::<String>())),
    };
    let Some(prefix) = map.get("prefix").and_then(|p| p.as_str()) else {
        return invalid("command not known");
    };
    let words: Vec<&str> = prefix.split_whitespace().take(PREFIX_WORDS_MAX).collect();
    let prefix = words.join(" ");
    let Some(candidates) = registry().by_prefix.get(&prefix) else {
        return invalid("command not known");
    };
    // Of several signatures with one prefix the one that takes most of the arguments given.
    let mut chosen: Option<(usize, &Sig, &Cmd)> = None;
    let mut wrong = None;
    for (sig, c) in candidates.iter().filter_map(|i| registry().commands.get(*i)) {
        match sig.check(&map) {
            Ok(()) => {
                let fit = sig.args.iter().filter(|a| map.contains_key(a.name)).count();
                if chosen.is_none_or(|(best, ..)| fit > best) {
                    chosen = Some((fit, sig, c));
                }
            }
            Err(e) => wrong = wrong.or(Some(e)),
        }
    }
    let Some((_, sig, c)) = chosen else { return invalid(wrong.unwrap_or_default()) };
    if c.flags & flag::TELL == flag::TELL && req.session.role != Role::Tell && !also_untold(&sig.prefix) {
        return invalid("command not known");
    }
    let args = Args(map);
    if !allowed(req.session, c, &sig.prefix, &args) {
        tracing::warn!(entity = %req.session.name, command = sig.prefix, "command refused: caps");
        return refuse(errno::EACCES, "access denied");
    }
    let format = Format::from_word(args.0.get("format").and_then(|f| f.as_str()));
    let mut ctx = Ctx {
        state: req.state,
        pending: req.pending,
        session: req.session,
        prefix: sig.prefix.as_str(),
        args,
        input: req.input,
        now: req.now,
        random: req.random,
        format,
    };
    (c.run)(&mut ctx)
}

/// Commands marked for `tell` that clients also send to the monitor as such.
fn also_untold(prefix: &str) -> bool {
    matches!(prefix, "version" | "mon_status" | "get_command_descriptions" | "sessions" | "config get" | "config set")
}

fn allowed(session: &SessionInfo, c: &Cmd, prefix: &str, args: &Args) -> bool {
    let text: BTreeMap<String, String> =
        args.0.keys().filter(|k| *k != "prefix").map(|k| (k.clone(), args.list(k).join(","))).collect();
    if prefix.starts_with("rbd ") {
        // Of a module, which looks at pools itself.
        let addr = session.addrs.0.first().copied().unwrap_or_default();
        let need = cluster::caps::Need::from_perm(c.perm);
        return session.access.allows_module(rbd::MODULE, prefix, &text, need, &addr);
    }
    session.allows(c.module, prefix, &text, c.perm)
}
