//! Capabilities at a metadata server. Monitors parse them when a key is created or changed, so that no key
//! holds text that a metadata server refuses. The metadata server checks requests against them.
//!
//! ```text
//! caps   = "allow" | grant { ("," | ";") grant }
//! grant  = "allow" spec ["fsname=" NAME] ["path=" PATH] ["root_squash"] ["uid=" N ["gids=" N {"," N}]] ["network" CIDR]
//! spec   = "*" | "all" | "r" | "rw" ["f"] ["p"] ["s"]
//! ```
//!
//! The order is fixed, as in Ceph (`MDSAuthCaps.cc`).

use super::lex::{Cursor, Lex};
use super::network::Network;
use super::{CapsError, MAX_CAPS_LEN};

/// Permissions of a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MdsSpec {
    /// Everything, also commands.
    pub all: bool,
    /// Reads.
    pub read: bool,
    /// Changes.
    pub write: bool,
    /// Allows writes when the file system is full.
    pub full: bool,
    /// Sets layouts and quotas.
    pub set_vxattr: bool,
    /// Makes and removes snapshots.
    pub snapshot: bool,
}

/// One grant: permissions, and the conditions under which they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsGrant {
    /// Permissions.
    pub spec: MdsSpec,
    /// Name of the file system; empty for all.
    pub fs_name: String,
    /// Directory below which the grant holds, without a leading `/`; empty for the root.
    pub path: String,
    /// True if writes as user or group 0 are refused.
    pub root_squash: bool,
    /// The only user for which the grant holds, if given.
    pub uid: Option<u32>,
    /// The only groups for which the grant holds, together with a user.
    pub gids: Vec<u32>,
    /// The only client network for which the grant holds, if given.
    pub network: Option<Network>,
}

/// Parsed capabilities of one entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdsCaps {
    grants: Vec<MdsGrant>,
}

impl MdsCaps {
    /// Parses a capability string. Unlike at the other services, an empty one is an error.
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        let error = |rest: &str, reason: &str| CapsError {
            service: "mds",
            text: text.chars().take(MAX_CAPS_LEN).collect(),
            rest: rest.to_owned(),
            at: text.len().saturating_sub(rest.len()),
            reason: reason.to_owned(),
        };
        if text.len() > MAX_CAPS_LEN {
            return Err(error("", "longer than 16384 bytes"));
        }
        if text == "allow" {
            // Keys made by Ceph before Infernalis have this text, and `bootstrap-mds` still has.
            return Ok(Self { grants: vec![MdsGrant::of(spec_of(true, "ps"))] });
        }
        let mut c = Cursor { text, at: 0 };
        c.skip_spaces();
        let mut grants = vec![grant(&mut c).map_err(|(_, what)| error(c.rest(), &format!("expected {what}")))?];
        while let Some(g) = c.optional(|c| {
            skip_blanks(c);
            if c.lit(",").is_err() {
                c.lit(";")?;
            }
            skip_blanks(c);
            grant(c)
        }) {
            grants.push(g);
        }
        c.skip_spaces();
        if c.rest().is_empty() { Ok(Self { grants }) } else { Err(error(c.rest(), "expected ',' or the end")) }
    }

    /// The grants, in the order of the text.
    #[must_use]
    pub fn grants(&self) -> &[MdsGrant] {
        &self.grants
    }

    /// True if some grant allows everything everywhere.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(|g| *g == MdsGrant::of(g.spec) && g.spec.all)
    }
}

impl MdsGrant {
    fn of(spec: MdsSpec) -> Self {
        Self {
            spec,
            fs_name: String::new(),
            path: String::new(),
            root_squash: false,
            uid: None,
            gids: Vec::new(),
            network: None,
        }
    }
}

fn skip_blanks(c: &mut Cursor<'_>) {
    while c.lit(" ").is_ok() {}
}

fn spec_of(write: bool, more: &str) -> MdsSpec {
    MdsSpec {
        all: false,
        read: true,
        write,
        full: more.contains('f'),
        set_vxattr: more.contains('p'),
        snapshot: more.contains('s'),
    }
}

fn spec(c: &mut Cursor<'_>) -> Lex<MdsSpec> {
    c.spaces()?;
    if c.lit("*").is_ok() || c.lit("all").is_ok() {
        return Ok(MdsSpec { all: true, ..spec_of(true, "fps") });
    }
    // The order matters: the first match counts.
    for (word, more) in [
        ("rwfps", "fps"),
        ("rwps", "ps"),
        ("rwfp", "fp"),
        ("rwfs", "fs"),
        ("rwp", "p"),
        ("rws", "s"),
        ("rwf", "f"),
        ("rw", ""),
    ] {
        if c.lit(word).is_ok() {
            return Ok(spec_of(true, more));
        }
    }
    c.lit("r").map(|()| spec_of(false, "")).map_err(|(at, _)| (at, "one of *, r, rw with f, p, s"))
}

fn number(c: &mut Cursor<'_>) -> Lex<u32> {
    let digits = c.rest().bytes().take_while(u8::is_ascii_digit).count();
    match c.rest().get(..digits).and_then(|d| d.parse().ok()) {
        Some(n) => {
            c.at += digits;
            Ok(n)
        }
        None => c.fail("a number"),
    }
}

fn run(c: &mut Cursor<'_>, fits: impl Fn(u8) -> bool) -> Lex<String> {
    let n = c.rest().bytes().take_while(|b| fits(*b)).count();
    match c.rest().get(..n).filter(|s| !s.is_empty()).map(str::to_owned) {
        Some(s) => {
            c.at += n;
            Ok(s)
        }
        None => c.fail("a name"),
    }
}

/// Accepts a path. In quotes it may contain any character, and may be empty.
fn path(c: &mut Cursor<'_>) -> Lex<String> {
    if let Some(q) = c.rest().chars().next().filter(|q| matches!(q, '"' | '\''))
        && let Some((inside, _)) = c.rest().get(1..).and_then(|r| r.split_once(q))
    {
        let inside = inside.to_owned();
        c.at += inside.len() + 2;
        return Ok(inside);
    }
    run(c, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'/' | b'-'))
}

fn numbers(c: &mut Cursor<'_>) -> Lex<Vec<u32>> {
    let mut all = vec![number(c)?];
    while let Some(n) = c.optional(|c| {
        c.lit(",")?;
        number(c)
    }) {
        all.push(n);
    }
    Ok(all)
}

/// Accepts an optional part: white space, a word, and what `f` accepts after it.
fn part<'a, T>(c: &mut Cursor<'a>, word: &'static str, f: impl FnOnce(&mut Cursor<'a>) -> Lex<T>) -> Option<T> {
    c.optional(|c| {
        c.spaces()?;
        c.lit(word)?;
        f(c)
    })
}

fn grant(c: &mut Cursor<'_>) -> Lex<MdsGrant> {
    let start = *c;
    let spec = c.lit("allow").and_then(|()| spec(c)).inspect_err(|_| *c = start)?;
    let mut g = MdsGrant::of(spec);
    g.fs_name = part(c, "fsname=", |c| run(c, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')))
        .unwrap_or_default();
    g.path = part(c, "path=", path).unwrap_or_default().trim_start_matches('/').to_owned();
    g.root_squash = part(c, "root_squash", |_| Ok(())).is_some();
    g.uid = part(c, "uid=", number);
    if g.uid.is_some() {
        g.gids = part(c, "gids=", numbers).unwrap_or_default();
    }
    g.network = c.network();
    Ok(g)
}
