//! Options of one running daemon: the values of each source, the value in force, and changes at run time.
//!
//! Names, types and defaults are those of [`crate::option_table`]. Options of our own are known only if a
//! source names them. The answers to `config show`, `get`, `set`, `unset`, `diff` and `injectargs` on a
//! daemon's admin socket are made here.

use crate::option_table::{self, Kind, Opt};
use crate::used_options::is_used;
use base::errno::{EINVAL, ENOENT, EPERM, Errno};
use std::collections::BTreeMap;

/// Most options that a running daemon keeps changed.
const OVERRIDES_MAX: usize = 1000;

/// Option values by source. Later sources win: default, monitor, file, override.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Values of the monitor's central configuration.
    pub central: BTreeMap<String, String>,
    /// Values of the configuration file.
    pub file: BTreeMap<String, String>,
    overrides: BTreeMap<String, String>,
    /// Kind and id of the daemon, for `$name` and similar variables.
    name: Option<(String, String)>,
}

/// A refusal: errno and text.
pub type Refusal = (Errno, String);

fn canonical(name: &str) -> String {
    name.trim().replace([' ', '-'], "_")
}

/// Canonical form of a value. Text that does not parse stays unchanged.
fn shown(o: Option<&Opt>, text: &str) -> String {
    match o {
        Some(o) if !text.is_empty() => o.normalize(text.trim()).unwrap_or_else(|_| text.to_owned()),
        _ => text.to_owned(),
    }
}

/// Ceph's text for an argument whose value is wrong.
fn wrong_value(name: &str, value: &str, why: &str) -> String {
    format!("Parse error setting {} to '{value}' using injectargs ({why}).\n", canonical(name))
}

impl Settings {
    /// Sets the kind and id of the daemon, which defaults may refer to.
    #[must_use]
    pub fn named(mut self, kind: &str, id: &str) -> Self {
        self.name = Some((kind.to_owned(), id.to_owned()));
        self
    }

    /// Replaces the variables in a default.
    fn expand(&self, text: &str) -> String {
        let Some((kind, id)) = self.name.as_ref().filter(|_| text.contains('$')) else { return text.to_owned() };
        let text = text.replace("$run_dir", "/var/run/ceph").replace("$cluster", "ceph");
        text.replace("$name", &format!("{kind}.{id}")).replace("$type", kind).replace("$id", id)
    }

    /// Options of a daemon with these values in its configuration file.
    #[must_use]
    pub fn new(file: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { file: file.into_iter().map(|(k, v)| (canonical(&k), v)).collect(), ..Self::default() }
    }

    /// Value of an option from any source but the default.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<&str> {
        [&self.overrides, &self.file, &self.central].into_iter().find_map(|m| m.get(name)).map(String::as_str)
    }

    /// Value in force, in its canonical form. Error: ENOENT for an unknown option that no source sets.
    pub fn get(&self, name: &str) -> Result<String, Refusal> {
        let name = canonical(name);
        let o = option_table::find(&name);
        match (self.given(&name), o) {
            (Some(v), _) => Ok(shown(o, v)),
            (None, Some(o)) => Ok(shown(Some(o), &self.expand(o.default_for(true)))),
            (None, None) => Err((ENOENT, format!("error getting '{name}': (2) No such file or directory"))),
        }
    }

    /// All options with their values in force.
    #[must_use]
    pub fn show(&self) -> BTreeMap<String, String> {
        let named = [&self.central, &self.file, &self.overrides].into_iter().flat_map(|m| m.keys().map(String::as_str));
        let names = option_table::all().map(|o| o.name).chain(named);
        names.filter_map(|n| Some((n.to_owned(), self.get(n).ok()?))).collect()
    }

    /// Changes an option at run time and returns Ceph's answer. `observed` tells whether the daemon applies the
    /// change at once. A change to an option that our daemons do not use is kept, and the answer says so. Error:
    /// ENOENT for an unknown option, EINVAL for an invalid value or too many changed options, EPERM for an option
    /// that is read only at start.
    pub fn set(&mut self, name: &str, text: &str, observed: impl Fn(&str) -> bool) -> Result<String, Refusal> {
        let name = canonical(name);
        let fail = |e: Errno, why: &str| (e, format!("error setting '{name}' to '{text}': ({}) {why}", -e));
        let Some(o) = option_table::find(&name) else { return Err(fail(ENOENT, "No such file or directory")) };
        let value = o.normalize(text.trim()).map_err(|_| fail(EINVAL, "Invalid argument"))?;
        let used = is_used(&name);
        let observed = used && observed(&name);
        // As in Ceph, options that are read only at start are refused.
        if !o.runtime && !observed {
            return Err(fail(EPERM, "Operation not permitted"));
        }
        if self.overrides.len() >= OVERRIDES_MAX {
            return Err((EINVAL, format!("more than {OVERRIDES_MAX} options are set")));
        }
        let said = if observed {
            format!("{name} = '{value}' ")
        } else if !used {
            format!("{name} = '{value}' (without effect: this daemon does not look at it) ")
        } else {
            format!("{name} = '{value}' (not observed, change may require restart) ")
        };
        self.overrides.insert(name, value);
        Ok(said)
    }

    /// Options that were changed at run time.
    #[must_use]
    pub fn overrides(&self) -> &BTreeMap<String, String> {
        &self.overrides
    }

    /// Reverts a change. Returns true if there was one.
    pub fn unset(&mut self, name: &str) -> bool {
        self.overrides.remove(&canonical(name)).is_some()
    }

    /// Changes options from `--name=value`, `--name value`, `--name` for true, or `--no-name` for false. Returns the
    /// joined answers. Error: EINVAL in Ceph's words for a word without `--`, a missing or an invalid value, or an error
    /// of [`Settings::set`]; earlier changes stay in force.
    pub fn inject(&mut self, words: &[String], observed: impl Fn(&str) -> bool) -> Result<String, Refusal> {
        let words: Vec<&str> = words.iter().flat_map(|w| w.split_whitespace()).collect();
        let mut said = String::new();
        let mut it = words.iter().peekable();
        while let Some(w) = it.next() {
            let Some(bare) = w.strip_prefix("--") else {
                return Err((EINVAL, format!("failed to parse arguments: {w}")));
            };
            let (name, value) = match bare.split_once('=') {
                Some((n, v)) => (n, v),
                None => match it.peek() {
                    Some(v) if !v.starts_with("--") => {
                        let v = **v;
                        it.next();
                        (bare, v)
                    }
                    _ if option_table::find(&canonical(bare)).is_some_and(|o| o.kind != Kind::Bool) => {
                        let text = format!("Option --{} requires an argument.\n", canonical(bare));
                        return Err((EINVAL, wrong_value(bare, "", &text)));
                    }
                    // A switch without a value, or its negation.
                    _ => match bare.strip_prefix("no-").or_else(|| bare.strip_prefix("no_")) {
                        Some(n) if option_table::find(&canonical(bare)).is_none() => (n, "false"),
                        _ => (bare, "true"),
                    },
                },
            };
            if let Some(why) = option_table::find(&canonical(name)).and_then(|o| o.normalize(value.trim()).err()) {
                return Err((EINVAL, wrong_value(name, value, &why)));
            }
            said += &self.set(name, value, &observed)?;
        }
        Ok(said)
    }

    /// The values that sources give to options, by Ceph's number of the source: 1 monitor, 2 file, 5 override. A greater
    /// number wins.
    #[must_use]
    pub fn held(&self) -> BTreeMap<String, BTreeMap<i32, String>> {
        let mut all: BTreeMap<String, BTreeMap<i32, String>> = BTreeMap::new();
        for (source, values) in [(1, &self.central), (2, &self.file), (5, &self.overrides)] {
            for (name, v) in values {
                let v = shown(option_table::find(name), v);
                all.entry(name.clone()).or_default().insert(source, v);
            }
        }
        all
    }

    /// Options that some source sets to another value than the default: `(name, [(source, value)])`, `default`
    /// first and `final` last.
    #[must_use]
    pub fn diff(&self) -> BTreeMap<String, Vec<(&'static str, String)>> {
        let sources = [("mon", &self.central), ("file", &self.file), ("override", &self.overrides)];
        let mut out = BTreeMap::new();
        for name in sources.iter().flat_map(|(_, m)| m.keys()) {
            let o = option_table::find(name);
            let mut row = Vec::with_capacity(5);
            row.push(("default", o.map(|o| shown(Some(o), o.default_for(true))).unwrap_or_default()));
            row.extend(sources.iter().filter_map(|(s, m)| m.get(name).map(|v| (*s, shown(o, v)))));
            row.push(("final", self.get(name).unwrap_or_default()));
            out.insert(name.clone(), row);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_override_each_other_and_changes_are_checked() {
        let mut s = Settings::new([("osd heartbeat-grace".to_owned(), "22".to_owned())]);
        let observed = |n: &str| n == "osd_op_history_size";
        assert_eq!(s.get("osd_heartbeat_interval").unwrap(), "6");
        s.central.insert("osd_heartbeat_grace".into(), "21".into());
        assert_eq!(s.get("osd_heartbeat_grace").unwrap(), "22");
        assert_eq!(
            s.set("osd_heartbeat_grace", "25", observed).unwrap(),
            "osd_heartbeat_grace = '25' (not observed, change may require restart) "
        );
        assert_eq!(s.set("osd_op_history_size", "5", observed).unwrap(), "osd_op_history_size = '5' ");
        assert_eq!(
            s.set("bluestore_cache_size", "5G", |_| true).unwrap(),
            "bluestore_cache_size = '5368709120' (without effect: this daemon does not look at it) "
        );
        s.unset("bluestore_cache_size");
        assert_eq!(
            s.diff()["osd_heartbeat_grace"].iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>(),
            ["default 20", "mon 21", "file 22", "override 25", "final 25"]
        );
        let grace = [(1, "21"), (2, "22"), (5, "25")].map(|(n, v)| (n, v.to_owned()));
        assert_eq!(s.held()["osd_heartbeat_grace"], grace.into());
        assert!(s.unset("osd_heartbeat_grace") && !s.unset("osd_heartbeat_grace"));
        assert_eq!(s.get("osd_heartbeat_grace").unwrap(), "22");
        let no = |r: Result<String, Refusal>| r.unwrap_err();
        assert_eq!(
            no(s.set("osd_heartbeat_grace", "abc", observed)),
            (EINVAL, "error setting 'osd_heartbeat_grace' to 'abc': (22) Invalid argument".into())
        );
        assert_eq!(no(s.set("nosuch", "1", observed)).0, ENOENT);
        assert_eq!(
            no(s.set("osd_data", "/x", observed)),
            (EPERM, "error setting 'osd_data' to '/x': (1) Operation not permitted".into())
        );
        assert_eq!(no(s.get("nosuch")), (ENOENT, "error getting 'nosuch': (2) No such file or directory".into()));
        s.inject(&["--osd_scrub_auto_repair".into()], observed).unwrap();
        assert_eq!(s.get("osd_scrub_auto_repair").unwrap(), "true");
        s.inject(&["--no-osd_scrub_auto_repair --no-osd-scrub-during-recovery".into()], observed).unwrap();
        assert_eq!(s.get("osd_scrub_auto_repair").unwrap(), "false");
        assert_eq!(no(s.inject(&["--no-osd_op_history_size".into()], observed)).0, EINVAL, "not a switch");
        s.inject(&["--osd_op_history_size 7 --debug-osd=5".into()], observed).unwrap();
        assert_eq!((s.get("osd_op_history_size").unwrap(), s.get("debug_osd").unwrap()), ("7".into(), "5/5".into()));
        assert_eq!(no(s.inject(&["osd_op_history_size".into()], observed)).0, EINVAL);
        assert_eq!(
            no(s.inject(&["--osd-scrub-auto-repair-num-errors".into(), "-1".into()], observed)).1,
            "Parse error setting osd_scrub_auto_repair_num_errors to '-1' using injectargs (strict_si_cast: value should not be negative).\n"
        );
        let missing = no(s.inject(&["--osd_op_history_duration".into()], observed)).1;
        assert!(missing.contains("(Option --osd_op_history_duration requires an argument."), "{missing}");
        assert!(s.show().len() > 1700);
        assert_eq!(s.get("mon_data").unwrap(), "/var/lib/ceph/mon/$cluster-$id");
        assert_eq!(s.named("osd", "3").get("mon_data").unwrap(), "/var/lib/ceph/mon/ceph-3");
    }
}
