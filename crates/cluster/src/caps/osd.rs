//! Capabilities at an OSD: pools, namespaces, object name prefixes, application tags and object classes.
//!
//! ```text
//! caps   = grant { ("," | ";") grant }
//! grant  = "allow" spec match [network] | "allow" match spec [network] | "profile" NAME [pool [namespace]] [network]
//! spec   = "*" | "all" | [r][w][x] [class-read] [class-write] | "class" NAME [METHOD]
//! match  = [pool] [namespace] [object_prefix] | [namespace] "tag" APP KEY "=" VALUE
//! ```

use super::CapsError;
use super::lex::{Cursor, Lex, first_of, grants};
use super::network::{Network, allows};
use base::EntityAddr;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Permission bits.
mod bit {
    pub(super) const R: u8 = 2;
    pub(super) const W: u8 = 4;
    pub(super) const CLS_R: u8 = 8;
    pub(super) const CLS_W: u8 = 16;
    pub(super) const X: u8 = CLS_R | CLS_W;
    pub(super) const ANY: u8 = 0xff;
}

/// A call of an object class in an operation.
#[derive(Clone, Copy, Debug)]
pub struct ClassCall<'a> {
    /// Class.
    pub class: &'a str,
    /// Method.
    pub method: &'a str,
    /// True if the method reads.
    pub read: bool,
    /// True if the method changes the object.
    pub write: bool,
    /// True if holders of `x`, `class-read` and `class-write` may call the class (`osd_class_default_list`).
    pub allowed: bool,
}

/// Operation to be checked.
#[derive(Clone, Copy, Debug)]
pub struct OsdRequest<'a> {
    /// Name of the pool.
    pub pool: &'a str,
    /// Namespace.
    pub nspace: &'a [u8],
    /// The pool's application metadata.
    pub applications: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// Locator key if set, else the object's name.
    pub object: &'a [u8],
    /// True if the operation reads other than by class methods.
    pub read: bool,
    /// True if the operation changes the object other than by class methods.
    pub write: bool,
    /// Class methods that the operation calls.
    pub classes: &'a [ClassCall<'a>],
}

/// Parsed capabilities of one session.
#[derive(Clone, Debug, Default)]
pub struct OsdCaps {
    grants: Vec<Grant>,
    all: bool,
}

#[derive(Clone, Debug, Default)]
struct Grant {
    matching: Matching,
    spec: Spec,
    network: Option<Network>,
    /// Grants of an expanded profile. If set, `spec` and `matching` do not count.
    profile: Option<Vec<Grant>>,
}

#[derive(Clone, Debug, Default)]
struct Matching {
    pool: Option<String>,
    nspace: Option<Namespace>,
    prefix: Option<String>,
    tag: Option<Tag>,
}

#[derive(Clone, Debug)]
struct Namespace {
    name: String,
    /// True if the name ends in `*`.
    wild: bool,
}

#[derive(Clone, Debug)]
struct Tag {
    app: String,
    key: String,
    value: String,
}

#[derive(Clone, Debug, Default)]
struct Spec {
    allow: u8,
    class: String,
    method: String,
}

impl OsdCaps {
    /// Parses a capability string. Error: the place where the string is not understood.
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        Ok(Self { grants: grants("osd", text, grant)?, all: false })
    }

    /// Capabilities that allow everything (method none, own daemons).
    #[must_use]
    pub fn allow_all() -> Self {
        Self { grants: Vec::new(), all: true }
    }

    /// True if some grant allows everything everywhere.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        self.all || self.grants.iter().any(Grant::is_allow_all)
    }

    /// True if the operation is allowed to a client at `addr`.
    #[must_use]
    pub fn is_capable(&self, req: &OsdRequest<'_>, addr: &EntityAddr) -> bool {
        if self.all {
            return true;
        }
        // Different grants may allow different class calls, so allowed calls add up over the grants.
        let mut allowed: SmallVec<[bool; 16]> = SmallVec::from_elem(false, req.classes.len());
        self.grants.iter().any(|g| g.is_capable(req, addr, &mut allowed))
    }

    /// True if some possible object exists for which a client at `addr` may read or write (other than by class
    /// methods). The answer does not depend on the pools and names of a map.
    #[must_use]
    pub fn may_anywhere(&self, read: bool, write: bool, addr: &EntityAddr) -> bool {
        self.all || self.grants.iter().any(|g| g.may_anywhere(read, write, addr))
    }

    /// True if the client may write somewhere in the pool, in whatever namespace. Such a client may take
    /// self-managed snapshots of the pool.
    #[must_use]
    pub fn may_write_in(
        &self,
        pool: &str,
        applications: &BTreeMap<String, BTreeMap<String, String>>,
        addr: &EntityAddr,
    ) -> bool {
        self.all || self.grants.iter().any(|g| g.may_write_in(pool, applications, addr))
    }
}

impl Grant {
    fn is_allow_all(&self) -> bool {
        match &self.profile {
            Some(p) => p.iter().any(Self::is_allow_all),
            None => self.matching.is_all() && self.network.is_none() && self.spec.allow == bit::ANY,
        }
    }

    fn may_anywhere(&self, read: bool, write: bool, addr: &EntityAddr) -> bool {
        if !allows(&self.network, addr) {
            return false;
        }
        if let Some(p) = &self.profile {
            return p.iter().any(|g| g.may_anywhere(read, write, addr));
        }
        (!read || self.spec.allow & bit::R != 0) && (!write || self.spec.allow & bit::W != 0)
    }

    fn may_write_in(&self, pool: &str, apps: &BTreeMap<String, BTreeMap<String, String>>, addr: &EntityAddr) -> bool {
        if !allows(&self.network, addr) {
            return false;
        }
        if let Some(p) = &self.profile {
            return p.iter().any(|g| g.may_write_in(pool, apps, addr));
        }
        self.spec.allow & bit::W != 0
            && self.matching.pool.as_ref().is_none_or(|p| p == pool)
            && self.matching.tag.as_ref().is_none_or(|t| t.matches(apps))
    }

    fn is_capable(&self, req: &OsdRequest<'_>, addr: &EntityAddr, allowed: &mut [bool]) -> bool {
        if !allows(&self.network, addr) {
            return false;
        }
        if let Some(p) = &self.profile {
            return p.iter().any(|g| g.is_capable(req, addr, allowed));
        }
        let allow = self.spec.allow;
        if !self.matching.matches(req) || req.read && allow & bit::R == 0 || req.write && allow & bit::W == 0 {
            return false;
        }
        if allow == bit::ANY {
            return true;
        }
        for (call, ok) in req.classes.iter().zip(allowed.iter_mut()) {
            let named = !self.spec.class.is_empty()
                && call.class == self.spec.class
                && (self.spec.method.is_empty() || call.method == self.spec.method);
            let general =
                call.allowed && (!call.read || allow & bit::CLS_R != 0) && (!call.write || allow & bit::CLS_W != 0);
            *ok |= named || general;
        }
        allowed.iter().all(|ok| *ok)
    }
}

impl Matching {
    fn is_all(&self) -> bool {
        self.pool.is_none() && self.nspace.is_none() && self.prefix.is_none() && self.tag.is_none()
    }

    fn matches(&self, req: &OsdRequest<'_>) -> bool {
        self.pool.as_ref().is_none_or(|p| p == req.pool)
            && self.nspace.as_ref().is_none_or(|n| n.matches(req.nspace))
            && self.tag.as_ref().is_none_or(|t| t.matches(req.applications))
            && self.prefix.as_ref().is_none_or(|p| req.object.starts_with(p.as_bytes()))
    }
}

impl Namespace {
    fn matches(&self, ns: &[u8]) -> bool {
        if self.wild { ns.starts_with(self.name.as_bytes()) } else { ns == self.name.as_bytes() }
    }
}

impl Tag {
    fn matches(&self, apps: &BTreeMap<String, BTreeMap<String, String>>) -> bool {
        let Some(kv) = apps.get(&self.app) else { return false };
        match (self.key.as_str(), self.value.as_str()) {
            ("*", "*") => true,
            ("*", v) => kv.values().any(|x| x == v),
            (k, "*") => kv.contains_key(k),
            (k, v) => kv.get(k).is_some_and(|x| x == v),
        }
    }
}

fn pool(c: &mut Cursor<'_>) -> Option<String> {
    c.optional(|c| {
        c.spaces()?;
        c.lit("pool")?;
        c.equals_or_spaces()?;
        c.word()
    })
}

fn namespace(c: &mut Cursor<'_>) -> Lex<Namespace> {
    c.spaces()?;
    c.lit("namespace")?;
    c.equals_or_spaces()?;
    let mut name = c.word_or_empty()?;
    let mut wild = c.lit("*").is_ok();
    // The star may also be inside the quotes.
    if !wild && name.ends_with('*') {
        name.pop();
        wild = true;
    }
    Ok(Namespace { name, wild })
}

fn object_prefix(c: &mut Cursor<'_>) -> Option<String> {
    c.optional(|c| {
        c.spaces()?;
        c.lit("object_prefix")?;
        c.spaces()?;
        c.word()
    })
}

fn word_or_wildcard(c: &mut Cursor<'_>) -> Lex<String> {
    if c.lit("*").is_ok() {
        return Ok("*".to_owned());
    }
    let w = c.word()?;
    Ok(if w == "all" { "*".to_owned() } else { w })
}

fn tag(c: &mut Cursor<'_>) -> Lex<Tag> {
    c.spaces()?;
    c.lit("tag")?;
    c.spaces()?;
    let app = c.word()?;
    c.spaces()?;
    let key = word_or_wildcard(c)?;
    c.skip_spaces();
    c.lit("=")?;
    c.skip_spaces();
    Ok(Tag { app, key, value: word_or_wildcard(c)? })
}

fn matching(c: &mut Cursor<'_>) -> Matching {
    if let Some(tag) = c.optional(tag) {
        return Matching { tag: Some(tag), ..Matching::default() };
    }
    if let Some((n, t)) = c.optional(|c| Ok((namespace(c)?, tag(c)?))) {
        return Matching { nspace: Some(n), tag: Some(t), ..Matching::default() };
    }
    Matching { pool: pool(c), nspace: c.optional(namespace), prefix: object_prefix(c), tag: None }
}

fn spec(c: &mut Cursor<'_>) -> Lex<Spec> {
    let word_end = |c: &Cursor<'_>| !c.rest().starts_with(|x: char| x.is_ascii_alphanumeric() || x == '-' || x == '_');
    let wildcard = c.optional(|c| {
        c.spaces()?;
        match c.rwx() {
            Ok(super::Perms::ANY) if word_end(c) => Ok(()),
            _ => c.fail("*"),
        }
    });
    if wildcard.is_some() {
        return Ok(Spec { allow: bit::ANY, ..Spec::default() });
    }
    let mut allow = 0;
    if let Some(p) = c.optional(|c| {
        c.spaces()?;
        let mut p = 0;
        for (s, b) in [("r", bit::R), ("w", bit::W), ("x", bit::X)] {
            if c.lit(s).is_ok() {
                p |= b;
            }
        }
        if p == 0 || !word_end(c) { c.fail("permissions") } else { Ok(p) }
    }) {
        allow |= p;
    }
    for (s, b) in [("class-read", bit::CLS_R), ("class-write", bit::CLS_W)] {
        let found = c.optional(|c| {
            c.spaces()?;
            c.lit(s)
        });
        if found.is_some() {
            allow |= b;
        }
    }
    if allow != 0 {
        return Ok(Spec { allow, ..Spec::default() });
    }
    c.spaces()?;
    if c.lit("class").is_err() {
        return c.fail("permissions (*, rwx, class-read, class-write) or 'class'");
    }
    c.spaces()?;
    let class = c.word()?;
    let method = c.optional(|c| {
        c.spaces()?;
        c.word()
    });
    Ok(Spec { allow: 0, class, method: method.unwrap_or_default() })
}

fn grant(c: &mut Cursor<'_>) -> Lex<Grant> {
    first_of(
        c,
        &[
            &|c| {
                c.lit("allow")?;
                let spec = spec(c)?;
                let matching = matching(c);
                let network = c.network();
                end_of_grant(c)?;
                Ok(Grant { matching, spec, network, profile: None })
            },
            &|c| {
                c.lit("allow")?;
                let matching = matching(c);
                let spec = spec(c)?;
                let network = c.network();
                end_of_grant(c)?;
                Ok(Grant { matching, spec, network, profile: None })
            },
            &|c| {
                c.lit("profile")?;
                c.equals_or_spaces()?;
                let name = c.word()?;
                let place = Matching { pool: pool(c), nspace: c.optional(namespace), ..Matching::default() };
                let network = c.network();
                end_of_grant(c)?;
                Ok(Grant { profile: Some(expand(&name, &place)), network, ..Grant::default() })
            },
        ],
    )
}

/// Fails, so that the next alternative is tried, if the grant has not ended.
fn end_of_grant(c: &Cursor<'_>) -> Lex<()> {
    let mut c = *c;
    c.skip_spaces();
    if c.rest().is_empty() || c.rest().starts_with([',', ';']) { Ok(()) } else { c.fail("the end of the grant") }
}

/// Grants of a profile; empty for an unknown one.
fn expand(name: &str, place: &Matching) -> Vec<Grant> {
    let plain =
        |matching: Matching, allow: u8| Grant { matching, spec: Spec { allow, ..Spec::default() }, ..Grant::default() };
    let anywhere = |prefix: &str| Matching { prefix: Some(prefix.to_owned()), ..Matching::default() };
    let method = |prefix: &str, nspace: Option<Namespace>, method: &str| Grant {
        matching: Matching { prefix: Some(prefix.to_owned()), nspace, ..place.clone() },
        spec: Spec { allow: 0, class: "rbd".to_owned(), method: method.to_owned() },
        ..Grant::default()
    };
    // The pool's own settings are in the default namespace, whatever namespace the grant names.
    let pool_metadata = || method("rbd_info", Some(Namespace { name: String::new(), wild: false }), "metadata_list");
    match name {
        "read-only" => vec![plain(place.clone(), bit::R)],
        "read-write" => vec![plain(place.clone(), bit::R | bit::W)],
        "rbd" => vec![
            plain(anywhere("rbd_info"), bit::R),
            plain(anywhere("rbd_children"), bit::CLS_R),
            plain(anywhere("rbd_mirroring"), bit::CLS_R),
            pool_metadata(),
            plain(place.clone(), bit::R | bit::W | bit::X),
        ],
        "rbd-read-only" => vec![
            pool_metadata(),
            plain(place.clone(), bit::R | bit::CLS_R),
            method("rbd_header.", place.nspace.clone(), "child_attach"),
            method("rbd_header.", place.nspace.clone(), "child_detach"),
        ],
        _ => Vec::new(),
    }
}
