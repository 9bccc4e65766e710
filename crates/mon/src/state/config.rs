//! The central configuration, and the options in it that apply to a daemon or client.
//!
//! A section is `global`, a kind (`osd`), a name (`osd.3`, `client.rgw.a`) or a dotted prefix of it (`client.rgw`),
//! with masks after slashes: `osd/class:ssd`, `osd/rack:r1`, `global/host:h`. Of several values for an option, the
//! one in the more specific section wins, but a value with a narrower mask is never replaced by one with a wider
//! mask.

use std::collections::{BTreeMap, VecDeque};

use base::{AuthName, EntityKind, OsdId, Utime};
use cluster::option_table;

use super::ClusterState;

/// Number of configuration changes kept in the history.
pub(crate) const CONFIG_HISTORY_STORED: usize = 1000;

/// The central configuration.
#[derive(Clone, Debug, Default)]
pub struct ConfigDb {
    /// Version of the newest change.
    pub version: u64,
    /// All values.
    pub values: BTreeMap<ConfigKey, String>,
    /// The latest changes, newest last.
    pub history: VecDeque<ConfigChange>,
}

/// Key of an option: section with mask as written (`global`, `osd`, `osd.0`, `osd/class:ssd`) and option name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigKey {
    /// Section and mask.
    pub who: String,
    /// Name of the option.
    pub name: String,
}

/// One change of the central configuration, in its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Running number.
    pub version: u64,
    /// Time of the change.
    pub stamp: Utime,
    /// The command that made the change (`config set`, `config reset 5`, …).
    pub name: String,
    /// `who/key`, value before, value after.
    pub diff: Vec<(ConfigKey, Option<String>, Option<String>)>,
}

/// The daemon's properties that masks are compared with.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// CRUSH location: bucket type to bucket name; `host` is the host name for any daemon but an OSD.
    pub location: BTreeMap<String, String>,
    /// Device class of an OSD.
    pub device_class: String,
}

/// A section without its masks, and the masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// `global`, a kind, a name or its prefix.
    pub base: &'a str,
    /// `(type, value)` of a location mask.
    pub location: Option<(&'a str, &'a str)>,
    /// Device class of a class mask.
    pub class: Option<&'a str>,
}

/// Splits a section as users write it into its base and masks.
#[must_use]
pub fn parse_section(who: &str) -> Option<Section<'_>> {
    let mut parts = who.split('/').filter(|p| !p.is_empty());
    let mut s = Section { base: "global", location: None, class: None };
    for (i, part) in parts.by_ref().enumerate() {
        match part.split_once(':') {
            None if i == 0 => s.base = part,
            None => return None,
            Some(("class", c)) => s.class = Some(c),
            Some((kind, name)) => s.location = Some((kind, name)),
        }
    }
    Some(s)
}

/// The width of a mask: location types by their rank in the hierarchy, then classes, then no mask.
fn width(s: &Section<'_>, type_rank: &dyn Fn(&str) -> Option<usize>) -> usize {
    match (s.location.and_then(|(t, _)| type_rank(t)), s.class) {
        (Some(r), _) => r,
        (None, Some(_)) => usize::MAX - 1,
        (None, None) => usize::MAX,
    }
}

/// All options that apply to `name`.
#[must_use]
pub fn options_for(
    db: &ConfigDb,
    name: &AuthName,
    subject: &Subject,
    type_rank: &dyn Fn(&str) -> Option<usize>,
) -> BTreeMap<String, String> {
    resolve(db, name, subject, type_rank).into_iter().map(|(k, (_, v))| (k, v)).collect()
}

/// All options that apply to `name`, each with the entry it comes from.
#[must_use]
pub fn resolve(
    db: &ConfigDb,
    name: &AuthName,
    subject: &Subject,
    type_rank: &dyn Fn(&str) -> Option<usize>,
) -> BTreeMap<String, (ConfigKey, String)> {
    // Sections from the widest to the narrowest.
    let full = name.to_string();
    let mut order: Vec<&str> = vec!["global"];
    order.extend(full.match_indices('.').filter_map(|(i, _)| full.get(..i)));
    order.push(&full);
    let mut found: Vec<(usize, usize, &ConfigKey, &str)> = Vec::new();
    for (key, value) in &db.values {
        let Some(s) = parse_section(&key.who) else { continue };
        let Some(level) = order.iter().position(|o| *o == s.base) else { continue };
        let here = s.location.is_none_or(|(t, n)| subject.location.get(t).is_some_and(|l| l == n))
            && s.class.is_none_or(|c| c == subject.device_class);
        if here {
            found.push((level, width(&s, type_rank), key, value));
        }
    }
    found.sort_by_key(|(level, _, key, _)| (*level, *key));
    let mut best: BTreeMap<String, (usize, ConfigKey, String)> = BTreeMap::new();
    for (_, width, key, value) in found {
        if best.get(&key.name).is_none_or(|(w, ..)| *w >= width) {
            best.insert(key.name.clone(), (width, key.clone(), value.to_owned()));
        }
    }
    best.into_iter().map(|(k, (_, key, v))| (k, (key, v))).collect()
}

/// Value of an option for this monitor: as set centrally, else the default.
#[must_use]
pub(crate) fn mon_option(state: &ClusterState, name: &str) -> String {
    if let Some(v) = state.options.settings.given(name) {
        return v.to_owned();
    }
    let me = AuthName { kind: EntityKind::MON, id: state.mon_name.clone() };
    effective(state, &me)
        .remove(name)
        .map(|(_, v)| v)
        .or_else(|| option_table::find(name).map(|o| o.default_for(true).to_owned()))
        .unwrap_or_default()
}

/// The options of a module of the manager role, without `prefix` (`mgr/balancer/`).
pub(crate) fn mgr_options(state: &ClusterState, prefix: &str) -> BTreeMap<String, String> {
    let me = AuthName { kind: EntityKind::MGR, id: state.mon_name.clone() };
    let all = effective(state, &me).into_iter();
    all.filter_map(|(k, (_, v))| Some((k.strip_prefix(prefix)?.to_owned(), v))).collect()
}

fn subject(state: &ClusterState, name: &AuthName) -> Subject {
    let mut s = Subject::default();
    if name.kind == EntityKind::OSD
        && let Ok(id) = name.id.parse::<i32>()
    {
        s.location = state.osdmap.crush.full_location(id).into_iter().collect();
        s.device_class = state.osdmap.crush.class_of(id).unwrap_or_default().to_owned();
        if let Some(h) = state.osds.metadata.get(&OsdId(id)).and_then(|m| m.get("hostname")) {
            s.location.entry("host".into()).or_insert_with(|| h.clone());
        }
    }
    s
}

/// The options in effect for an entity, each with the section and mask it comes from.
pub(crate) fn effective(state: &ClusterState, name: &AuthName) -> BTreeMap<String, (ConfigKey, String)> {
    let crush = state.osdmap.crush.clone();
    let rank = |t: &str| crush.type_id(t).and_then(|t| usize::try_from(t).ok());
    resolve(&state.config, name, &subject(state, name), &rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn db(values: &[(&str, &str, &str)]) -> ConfigDb {
        let values = values
            .iter()
            .map(|(who, name, v)| (ConfigKey { who: (*who).into(), name: (*name).into() }, (*v).to_owned()))
            .collect();
        ConfigDb { values, ..ConfigDb::default() }
    }

    fn get(db: &ConfigDb, who: &str, class: &str, host: &str, key: &str) -> Option<String> {
        let subject = Subject { location: [("host".to_owned(), host.to_owned())].into(), device_class: class.into() };
        let rank = |t: &str| ["osd", "host", "rack", "root"].iter().position(|x| *x == t);
        options_for(db, &AuthName::parse(who).unwrap(), &subject, &rank).remove(key)
    }

    #[test]
    fn narrower_sections_and_masks_win() {
        let d = db(&[
            ("global", "a", "global"),
            ("osd", "a", "osd"),
            ("osd.1", "a", "one"),
            ("osd/class:ssd", "b", "ssd"),
            ("osd/host:h1", "b", "h1"),
            ("osd", "b", "osd"),
            ("osd.1", "b", "one"),
            ("client.rgw", "c", "rgw"),
            ("client.rgw.x", "c", "x"),
        ]);
        assert_eq!(get(&d, "client.admin", "", "h", "a").as_deref(), Some("global"));
        assert_eq!(get(&d, "osd.0", "", "h", "a").as_deref(), Some("osd"));
        assert_eq!(get(&d, "osd.1", "", "h", "a").as_deref(), Some("one"));
        assert_eq!(get(&d, "osd.0", "", "h", "b").as_deref(), Some("osd"));
        assert_eq!(get(&d, "osd.0", "ssd", "h", "b").as_deref(), Some("ssd"));
        assert_eq!(get(&d, "osd.0", "ssd", "h1", "b").as_deref(), Some("h1"));
        assert_eq!(get(&d, "osd.1", "ssd", "h1", "b").as_deref(), Some("h1"), "a wider value does not replace it");
        assert_eq!(get(&d, "client.rgw.x", "", "", "c").as_deref(), Some("x"));
        assert_eq!(get(&d, "client.rgw.y", "", "", "c").as_deref(), Some("rgw"));
        assert_eq!(get(&d, "client.admin", "", "", "b"), None);
    }
}
