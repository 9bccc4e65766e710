//! Option commands that every daemon answers on its admin socket and to `tell`: `config …` and `injectargs`, in
//! Ceph's JSON.

use crate::admin_socket::{Arg, Command, strerror};
use base::errno::{EINVAL, ENOENT, Errno};
use cluster::option_table::{self, Kind, Opt};
use cluster::settings::Settings;
use serde_json::{Map, Value, json};

const fn arg(name: &'static str) -> Arg {
    Arg { name, kind: "CephString", optional: false, many: false }
}

const fn command(prefix: &'static str, args: &'static [Arg], help: &'static str) -> Command {
    Command { prefix, args, help }
}

const VAR: &[Arg] = &[arg("var")];
const OPTIONAL_VAR: &[Arg] = &[Arg { optional: true, ..arg("var") }];
const VAR_VAL: &[Arg] = &[arg("var"), Arg { many: true, ..arg("val") }];
const INJECTED: &[Arg] = &[Arg { many: true, ..arg("injected_args") }];

/// The option commands.
pub const COMMANDS: &[Command] = &[
    command("config diff", &[], "dump diff of current config and default config"),
    command("config diff get", VAR, "dump diff get <field>: dump diff of current and default config setting <field>"),
    command("config get", VAR, "config get <field>: get the config value"),
    command("config help", OPTIONAL_VAR, "get config setting schema and descriptions"),
    command("config set", VAR_VAL, "config set <field> <val> [<val> ...]: set a config variable"),
    command("config show", &[], "dump current config settings"),
    command("config unset", VAR, "config unset <field>: unset a config variable"),
    command("injectargs", INJECTED, "inject configuration arguments into running daemon"),
];

/// Result of an option command.
#[derive(Debug)]
pub struct Done {
    /// The answer.
    pub answer: Value,
    /// True if options changed: the daemon then applies them.
    pub changed: bool,
}

/// A value in JSON, with the type of its option.
fn typed(o: Option<&Opt>, text: &str) -> Value {
    let number = |t: &str| t.parse::<i64>().map(Value::from).or_else(|_| t.parse::<f64>().map(Value::from));
    match o.map(|o| o.kind) {
        Some(Kind::Bool) => Value::from(text == "true"),
        Some(Kind::Int | Kind::Uint | Kind::Size | Kind::Secs | Kind::Millisecs | Kind::Float) if !text.is_empty() => {
            number(text).unwrap_or_else(|_| text.into())
        }
        _ => text.into(),
    }
}

fn schema(o: &Opt) -> Value {
    let mut m = json!({
        "name": o.name,
        "type": o.kind_name,
        "level": o.level,
        "desc": o.description(),
        "long_desc": "",
        "default": typed(Some(o), o.default),
        "daemon_default": if o.daemon_default.is_empty() { "".into() } else { typed(Some(o), o.daemon_default) },
        "tags": [],
        "services": o.services,
        "see_also": [],
        "min": o.min,
        "max": o.max,
        "can_update_at_runtime": o.runtime,
        "flags": o.flags,
    });
    if o.kind == Kind::Str
        && let Some(m) = m.as_object_mut()
    {
        m.insert("enum_values".into(), json!(o.values));
    }
    m
}

fn words(cmd: &Map<String, Value>, key: &str) -> Result<Vec<String>, (Errno, String)> {
    match cmd.get(key) {
        Some(Value::String(s)) => Ok(vec![s.clone()]),
        Some(Value::Array(a)) => Ok(a.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        Some(other) => Ok(vec![other.to_string()]),
        None => Err((EINVAL, format!("argument '{key}' is missing"))),
    }
}

/// Answers one of [`COMMANDS`]; `None` for any other. `observed` tells which options the daemon applies at
/// once. Error: an errno with a text for the sender, `EINVAL` for a missing argument or a value that is refused, `ENOENT`
/// for an unknown option, `EPERM` for one that Ceph reads at the start only.
pub fn answer(
    settings: &mut Settings,
    prefix: &str,
    cmd: &Map<String, Value>,
    observed: impl Fn(&str) -> bool,
) -> Option<Result<Done, (Errno, String)>> {
    let var = || words(cmd, "var").or_else(|_| words(cmd, "key")).map(|w| w.join(" "));
    let shown = |answer| Ok(Done { answer, changed: false });
    let changed = |answer| Ok(Done { answer, changed: true });
    let run = |settings: &mut Settings| match prefix {
        "config show" => shown(json!(settings.show())),
        "config get" => {
            let var = var()?;
            let value = settings.get(&var)?;
            shown(json!({ var: value }))
        }
        "config help" => match var() {
            Ok(v) => match option_table::find(&v) {
                Some(o) => shown(json!({ "option": schema(o) })),
                None => Err((ENOENT, format!("no option '{v}': {}", strerror(ENOENT)))),
            },
            Err(_) => shown(json!({ "options": option_table::all().map(schema).collect::<Vec<_>>() })),
        },
        "config set" => {
            let said = settings.set(&var()?, &words(cmd, "val")?.join(" "), observed)?;
            changed(json!({ "success": said }))
        }
        "config unset" => {
            let var = var()?;
            settings.get(&var)?;
            settings.unset(&var);
            changed(json!({}))
        }
        "config diff" | "config diff get" => {
            let only = if prefix == "config diff" { None } else { Some(var()?) };
            let rows = settings.diff().into_iter().filter(|(n, _)| only.as_ref().is_none_or(|v| v == n));
            let all: Map<String, Value> = rows
                .map(|(n, row)| {
                    let o = option_table::find(&n);
                    let row: Map<String, Value> = row.into_iter().map(|(s, v)| (s.to_owned(), typed(o, &v))).collect();
                    (n, Value::Object(row))
                })
                .collect();
            shown(json!({ "diff": all }))
        }
        "injectargs" => {
            let said = settings.inject(&words(cmd, "injected_args")?, observed)?;
            changed(if said.is_empty() { json!({}) } else { json!({ "success": said }) })
        }
        _ => shown(Value::Null),
    };
    COMMANDS.iter().any(|c| c.prefix == prefix).then(|| run(settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_answer_in_cephs_json() {
        let mut s = Settings::new([("osd_heartbeat_grace".to_owned(), "21".to_owned())]);
        let mut run = |text: &str| {
            let Value::Object(m) = serde_json::from_str(text).unwrap() else { unreachable!() };
            let prefix = m["prefix"].as_str().unwrap().to_owned();
            answer(&mut s, &prefix, &m, |n| n == "debug_osd").map(|r| r.map(|d| (d.answer.to_string(), d.changed)))
        };
        assert!(run(r#"{"prefix":"status"}"#).is_none());
        assert_eq!(
            run(r#"{"prefix":"config get","var":"osd_heartbeat_grace"}"#).unwrap().unwrap(),
            (r#"{"osd_heartbeat_grace":"21"}"#.to_owned(), false)
        );
        assert_eq!(
            run(r#"{"prefix":"config set","var":"debug_osd","val":["5/5"]}"#).unwrap().unwrap(),
            (r#"{"success":"debug_osd = '5/5' "}"#.to_owned(), true)
        );
        let diff = run(r#"{"prefix":"config diff get","var":"osd_heartbeat_grace"}"#).unwrap().unwrap().0;
        assert_eq!(diff, r#"{"diff":{"osd_heartbeat_grace":{"default":20,"file":21,"final":21}}}"#);
        assert_eq!(run(r#"{"prefix":"config get","var":"nosuch"}"#).unwrap().unwrap_err().0, ENOENT);
        assert_eq!(run(r#"{"prefix":"config set","var":"x"}"#).unwrap().unwrap_err().0, EINVAL);
        let help = run(r#"{"prefix":"config help","var":"osd_heartbeat_grace"}"#).unwrap().unwrap().0;
        assert!(help.contains(r#""default":20"#) && help.contains(r#""can_update_at_runtime":true"#), "{help}");
        assert_eq!(run(r#"{"prefix":"config unset","var":"debug_osd"}"#).unwrap().unwrap(), ("{}".to_owned(), true));
    }
}
