//! `config help`, also about options that only a configuration file can set.

use crate::command::option_table::{self, Opt};
use crate::command::{CommandOutcome, Ctx, Res};
use crate::json::J;
use crate::obj;
use base::errno;
use cluster::option_texts::{self, FileOption};

/// The value of an option as JSON, in the type that the option table declares.
pub(in crate::command) fn typed(o: &Opt, v: &str) -> J {
    use option_table::Kind;
    match o.kind {
        _ if v.is_empty() => J::from(""),
        Kind::Bool => J::Bool(v == "true"),
        Kind::Int | Kind::Uint | Kind::Size => v.parse::<i64>().map_or_else(|_| J::from(v), J::from),
        Kind::Float => v.parse::<f64>().map_or_else(|_| J::from(v), J::from),
        _ => J::from(v),
    }
}

/// The refusal to store an option that a daemon reads before it has reached a monitor.
pub(in crate::command) fn only_in_file(o: &FileOption) -> String {
    let (name, section) = (o.name, o.section);
    format!(
        "{name} cannot be stored here: the daemon reads it from the section [{section}] of its configuration file when \
         it starts"
    )
}

/// Describes an option that only a configuration file can set.
fn file_help(c: &mut Ctx<'_>, o: &FileOption) -> Res<CommandOutcome> {
    let tree = || {
        obj! {
            "name": o.name,
            "type": "str",
            "level": "advanced",
            "desc": o.text,
            "long_desc": format!("read from the section [{}] of the configuration file when the daemon starts", o.section),
            "default": o.default,
            "daemon_default": "",
            "tags": Vec::<J>::new(),
            "services": vec![o.section],
            "see_also": Vec::<J>::new(),
            "enum_values": Vec::<J>::new(),
            "min": "",
            "max": "",
            "can_update_at_runtime": false,
            "flags": vec!["startup", "no_mon_update"],
        }
    };
    let text = || {
        let FileOption { name, section, default, text } = o;
        format!(
            "{name} - {text}\n  (str, advanced)\n  Default: {default}\n  Can update at runtime: false\n  Read from the \
             section [{section}] of the configuration file when the daemon starts\n"
        )
    };
    c.tree("option", tree).text(text)
}

/// `config help`
pub(in crate::command) fn help(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = c.args.str("key")?.replace([' ', '-'], "_");
    let Some(o) = option_table::find(&key) else {
        return match option_texts::file_option(&key) {
            Some(o) => file_help(c, o),
            None => Ok(CommandOutcome::fail(errno::ENOENT, "")),
        };
    };
    let tree = || {
        let mut j = obj! {
            "name": o.name,
            "type": o.kind_name,
            "level": o.level,
            "desc": o.description(),
            "long_desc": "",
            "default": typed(o, o.default),
            "daemon_default": typed(o, o.daemon_default),
            "tags": Vec::<J>::new(),
            "services": o.services.clone(),
            "see_also": Vec::<J>::new(),
        };
        if o.kind == option_table::Kind::Str {
            j.put("enum_values", o.values.clone());
        }
        j.put("min", typed(o, o.min))
            .put("max", typed(o, o.max))
            .put("can_update_at_runtime", o.runtime)
            .put("flags", o.flags.clone());
        j
    };
    let text = || {
        let mut s = format!("{} - {}\n  ({}, {})\n", o.name, o.description(), o.kind_name, o.level);
        if o.daemon_default.is_empty() {
            s += &format!("  Default: {}\n", o.default);
        } else {
            s += &format!("  Default (non-daemon): {}\n  Default (daemon): {}\n", o.default, o.daemon_default);
        }
        if !o.min.is_empty() {
            s += &format!("  Minimum: {}\n", o.min);
        }
        if !o.max.is_empty() {
            s += &format!("  Maximum: {}\n", o.max);
        }
        if !o.values.is_empty() {
            s += &format!("  Possible values:  {}\n", o.values.join(" "));
        }
        s += &format!("  Can update at runtime: {}\n", o.runtime);
        if !o.services.is_empty() {
            s += &format!("  Services: [{}]\n", o.services.join(", "));
        }
        s
    };
    c.tree("option", tree).text(text)
}
