//! `config show`: the options of a running daemon, with the source of each, as the daemon reported them.
//!
//! OSDs, MDS daemons and services report to the manager role. The leading monitor knows its own. Of another monitor, or of
//! a daemon without a report, the central configuration is shown.

use super::secret::shown;
use crate::command::language::text::{Column, Table};
use crate::command::{CommandOutcome, Ctx, Refused, Res, option_table, plain, refuse};
use crate::json::J;
use crate::obj;
use crate::state::config::effective;
use base::{AuthName, EntityKind, OsdId, errno};
use std::collections::BTreeMap;
use wire::types::{DaemonConfig, Text};

/// An option of a running daemon.
struct ShownOption {
    name: String,
    value: String,
    source: &'static str,
    /// Values of weaker sources, from the weakest.
    overrides: Vec<(&'static str, String)>,
    /// True if the daemon does not take the monitor's value.
    ignores_mon: bool,
}

impl ShownOption {
    /// The overridden values for people, from the strongest; those equal to the value are in parentheses.
    fn overrides_text(&self) -> String {
        let one = |(source, v): &(&str, String)| {
            if *v == self.value { format!("({source}[{v}])") } else { format!("{source}[{v}]") }
        };
        self.overrides.iter().rev().map(one).collect::<Vec<_>>().join(",")
    }

    fn tree(&self) -> J {
        let mut j = obj! { "name": &self.name, "value": &self.value, "source": self.source };
        if !self.overrides.is_empty() {
            let all = self.overrides.iter().map(|(source, v)| obj! { "source": *source, "value": v });
            j.put("overrides", all.collect::<J>());
        }
        if self.ignores_mon {
            j.put("ignores", "mon");
        }
        j
    }
}

const COLUMNS: &[Column<ShownOption>] = &[
    Column::left("NAME", |r: &ShownOption| r.name.clone()),
    Column::left("VALUE", |r: &ShownOption| r.value.clone()),
    Column::left("SOURCE", |r: &ShownOption| r.source.into()),
    Column::left("OVERRIDES", ShownOption::overrides_text),
    Column::left("IGNORES", |r: &ShownOption| if r.ignores_mon { "mon".into() } else { String::new() }),
];

/// Ceph's name of a source.
fn source(number: i32) -> &'static str {
    match number {
        0 => "default",
        1 => "mon",
        2 => "file",
        3 => "env",
        4 => "cmdline",
        5 => "override",
        6 => "final",
        _ => "unknown",
    }
}

/// The options of a running daemon; `None` if no such daemon runs.
fn options_of(c: &Ctx<'_>, who: &str) -> Option<DaemonConfig> {
    let s = c.state;
    if let Some(reported) = s.mgr.options().get(who) {
        return Some(reported.clone());
    }
    let name = AuthName::parse(who)?;
    let texts = |by: BTreeMap<i32, String>| by.into_iter().map(|(n, v)| (n, Text(v))).collect();
    let running = match name.kind {
        EntityKind::OSD => name.id.parse().is_ok_and(|id| s.osdmap.is_up(OsdId(id))),
        EntityKind::MON if name.id == s.mon_name => {
            let values = s.options.settings.held().into_iter().map(|(n, by)| (n, texts(by))).collect();
            return Some(DaemonConfig { values, ..DaemonConfig::default() });
        }
        EntityKind::MON => s.monmap.mons.contains_key(&name.id),
        EntityKind::MGR => s.mgrmap.active_name == name.id,
        _ => false,
    };
    running.then(|| {
        let all = effective(s, &name).into_iter();
        let values = all.map(|(n, (_, v))| (n, BTreeMap::from([(1, Text(v))]))).collect();
        DaemonConfig { values, ..DaemonConfig::default() }
    })
}

/// An option with the values of all its sources; `None` without any.
fn shown_option(c: &Ctx<'_>, name: &str, values: &BTreeMap<i32, Text>, ignores_mon: bool) -> Option<ShownOption> {
    let seen = |(n, v): (&i32, &Text)| (source(*n), shown(c, name, &v.0).to_owned());
    let mut all: Vec<_> = values.iter().map(seen).collect();
    let (source, value) = all.pop()?;
    Some(ShownOption { name: name.to_owned(), value, source, overrides: all, ignores_mon })
}

/// Shows the options that a daemon has from some source, or all of them.
pub(super) fn show(c: &mut Ctx<'_>, defaults: bool) -> Res<CommandOutcome> {
    let who = super::trimmed(&c.args.str("who")?);
    let missing = || Refused::new(errno::ENOENT, format!("no config state for daemon {who}"));
    let is_down =
        who.strip_prefix("osd.").is_some_and(|id| !id.parse().is_ok_and(|id| c.state.osdmap.is_up(OsdId(id))));
    let options = options_of(c, &who).filter(|_| !is_down).ok_or_else(missing)?;
    let option = |name: &String, values| shown_option(c, name, values, options.ignored_mon_values.contains_key(name));
    if let Some(key) = c.args.opt("key").filter(|k| !k.is_empty()) {
        return match (options.values.get(&key).and_then(|v| option(&key, v)), option_table::find(&key)) {
            (Some(h), _) => plain(format!("{}\n", h.value)),
            (None, Some(o)) => plain(format!("{}\n", o.default_for(true))),
            (None, None) => refuse(errno::ENOENT, ""),
        };
    }
    let given = options.values.iter().filter_map(|(name, v)| Some((name.clone(), option(name, v)?)));
    let mut rows: BTreeMap<String, ShownOption> = given.collect();
    if defaults {
        for o in option_table::all() {
            rows.entry(o.name.to_owned()).or_insert_with(|| ShownOption {
                name: o.name.to_owned(),
                value: o.default_for(true).to_owned(),
                source: source(0),
                overrides: Vec::new(),
                ignores_mon: false,
            });
        }
    }
    c.tree("config", || rows.values().map(ShownOption::tree).collect::<J>())
        .text(|| Table::of(COLUMNS, rows.values()).render())
}
