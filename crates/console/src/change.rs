//! The commonest changes of a running cluster: their fields, their commands, and sentences about their effect.
//!
//! A preview asks the monitor for figures with commands that only read ([`Wanted::questions`]), by the user's own right,
//! and makes sentences of the answers ([`Wanted::effect`]).

use base::size;
use serde_json::{Value, json};

/// Longest value of a field, in bytes.
const VALUE_MAX: usize = 256;

/// Values that a field takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Id of an OSD.
    Osd,
    /// Name of a pool.
    Pool,
    /// Whole number.
    Number,
    /// Number from 0 to 1.
    Part,
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A field of a change.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in requests.
    pub name: &'static str,
    /// Label for people.
    pub label: &'static str,
    /// Values.
    pub kind: Kind,
}

/// A change that the console offers.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Name in requests.
    pub name: &'static str,
    /// Title for people.
    pub title: &'static str,
    /// Fields in the order of the command.
    pub fields: &'static [Field],
}

const fn field(name: &'static str, label: &'static str, kind: Kind) -> Field {
    Field { name, label, kind }
}

const OSD: Field = field("osd", "OSD", Kind::Osd);
const POOL: Field = field("pool", "Pool", Kind::Pool);
const FLAG: Field = field(
    "flag",
    "Flag",
    Kind::Choice(&[
        "noout",
        "norebalance",
        "nobackfill",
        "norecover",
        "noscrub",
        "nodeep-scrub",
        "nodown",
        "noup",
        "noin",
    ]),
);
const WHO: Field = field("who", "Section (osd, osd.3, global)", Kind::Text);
const OPTION: Field = field("name", "Option", Kind::Text);
const SETTINGS: Kind = Kind::Choice(&["size", "min_size", "pg_num", "pg_autoscale_mode", "nodelete"]);

/// All changes, in the order in which the page shows them.
pub const CHANGES: &[Change] = &[
    Change { name: "osd-out", title: "Move all data off an OSD (out)", fields: &[OSD] },
    Change { name: "osd-in", title: "Give data to an OSD again (in)", fields: &[OSD] },
    Change {
        name: "osd-reweight",
        title: "Give an OSD a part of its share",
        fields: &[OSD, field("weight", "Part of its share, 0 to 1", Kind::Part)],
    },
    Change {
        name: "pool-create",
        title: "Create a pool",
        fields: &[field("pool", "Name", Kind::Text), field("pg_num", "Placement groups", Kind::Number)],
    },
    Change {
        name: "pool-set",
        title: "Change a setting of a pool",
        fields: &[POOL, field("var", "Setting", SETTINGS), field("val", "Value", Kind::Text)],
    },
    Change {
        name: "pool-quota",
        title: "Limit the size of a pool",
        fields: &[
            POOL,
            field("field", "Limit of", Kind::Choice(&["max_bytes", "max_objects"])),
            field("val", "Limit; 0 for none", Kind::Number),
        ],
    },
    Change {
        name: "pool-delete",
        title: "Delete a pool with all its objects",
        fields: &[POOL, field("again", "The name once more", Kind::Text)],
    },
    Change { name: "flag-set", title: "Set a flag of the cluster", fields: &[FLAG] },
    Change { name: "flag-unset", title: "Take a flag back", fields: &[FLAG] },
    Change {
        name: "config-set",
        title: "Set an option of daemons",
        fields: &[WHO, OPTION, field("value", "Value", Kind::Text)],
    },
    Change { name: "config-rm", title: "Give an option its default again", fields: &[WHO, OPTION] },
    Change {
        name: "pg-scrub",
        title: "Compare the copies of a PG now",
        fields: &[
            field("how", "How", Kind::Choice(&["scrub", "deep-scrub", "repair"])),
            field("pgid", "PG, such as 1.2f", Kind::Text),
        ],
    },
];

/// The changes as JSON, for the page.
#[must_use]
pub fn list() -> Value {
    let kind = |k: Kind| match k {
        Kind::Osd => json!("osd"),
        Kind::Pool => json!("pool"),
        Kind::Number => json!("number"),
        Kind::Part => json!("part"),
        Kind::Text => json!("text"),
        Kind::Choice(words) => json!(words),
    };
    let fields = |c: &Change| -> Value {
        c.fields.iter().map(|f| json!({ "name": f.name, "label": f.label, "kind": kind(f.kind) })).collect()
    };
    CHANGES.iter().map(|c| json!({ "name": c.name, "title": c.title, "fields": fields(c) })).collect()
}

/// A change that cannot be made as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadChange {
    /// No change has this name.
    #[error("no such change")]
    Unknown,
    /// A field is missing or has a value of another kind.
    #[error("{0}: a value is missing or not of its kind")]
    Field(&'static str),
    /// The name of the pool was not repeated.
    #[error("the name of the pool has to be given twice")]
    NotRepeated,
}

/// A change with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    name: &'static str,
    values: Vec<(&'static str, String)>,
}

fn is_of(kind: Kind, v: &str) -> bool {
    match kind {
        Kind::Osd => v.parse::<u32>().is_ok_and(|n| n <= i32::MAX as u32),
        Kind::Number => v.parse::<u64>().is_ok(),
        Kind::Part => v.parse::<f64>().is_ok_and(|n| (0.0..=1.0).contains(&n)),
        Kind::Pool | Kind::Text => !v.is_empty(),
        Kind::Choice(words) => words.contains(&v),
    }
}

impl Wanted {
    /// Reads `{"change": NAME, "values": {FIELD: TEXT}}`.
    ///
    /// # Errors
    /// See [`BadChange`].
    pub fn parse(v: &Value) -> Result<Self, BadChange> {
        let name = v["change"].as_str().unwrap_or_default();
        let change = CHANGES.iter().find(|c| c.name == name).ok_or(BadChange::Unknown)?;
        let mut values = Vec::new();
        for f in change.fields {
            let given = v["values"][f.name].as_str().map(str::trim).unwrap_or_default();
            if given.len() > VALUE_MAX || given.chars().any(char::is_control) || !is_of(f.kind, given) {
                return Err(BadChange::Field(f.label));
            }
            values.push((f.name, given.to_owned()));
        }
        let me = Self { name: change.name, values };
        if me.name == "pool-delete" && me.get("pool") != me.get("again") {
            return Err(BadChange::NotRepeated);
        }
        Ok(me)
    }

    fn get(&self, name: &str) -> &str {
        self.values.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v.as_str())
    }

    fn number(&self, name: &str) -> f64 {
        self.get(name).parse().unwrap_or_default()
    }

    /// The monitor's command.
    #[must_use]
    pub fn command(&self) -> Value {
        let g = |n: &str| self.get(n);
        let whole = |n: &str| self.get(n).parse::<u64>().unwrap_or_default();
        match self.name {
            "osd-out" => json!({ "prefix": "osd out", "ids": [g("osd")] }),
            "osd-in" => json!({ "prefix": "osd in", "ids": [g("osd")] }),
            "osd-reweight" => json!({ "prefix": "osd reweight", "id": whole("osd"), "weight": self.number("weight") }),
            "pool-create" => json!({ "prefix": "osd pool create", "pool": g("pool"), "pg_num": whole("pg_num") }),
            "pool-set" => json!({ "prefix": "osd pool set", "pool": g("pool"), "var": g("var"), "val": g("val") }),
            "pool-quota" => {
                json!({ "prefix": "osd pool set-quota", "pool": g("pool"), "field": g("field"), "val": g("val") })
            }
            "pool-delete" => json!({ "prefix": "osd pool delete", "pool": g("pool"), "pool2": g("again"),
                "yes_i_really_really_mean_it": true }),
            "flag-set" => json!({ "prefix": "osd set", "key": g("flag") }),
            "flag-unset" => json!({ "prefix": "osd unset", "key": g("flag") }),
            "config-set" => {
                json!({ "prefix": "config set", "who": g("who"), "name": g("name"), "value": g("value") })
            }
            "config-rm" => json!({ "prefix": "config rm", "who": g("who"), "name": g("name") }),
            _ => json!({ "prefix": format!("pg {}", g("how")), "pgid": g("pgid") }),
        }
    }

    /// The same command for a shell.
    #[must_use]
    pub fn shell(&self) -> String {
        let (verb, end) = match self.name {
            "osd-out" => ("osd out", ""),
            "osd-in" => ("osd in", ""),
            "osd-reweight" => ("osd reweight", ""),
            "pool-create" => ("osd pool create", ""),
            "pool-set" => ("osd pool set", ""),
            "pool-quota" => ("osd pool set-quota", ""),
            "pool-delete" => ("osd pool delete", " --yes-i-really-really-mean-it"),
            "flag-set" => ("osd set", ""),
            "flag-unset" => ("osd unset", ""),
            "config-set" => ("config set", ""),
            "config-rm" => ("config rm", ""),
            _ => ("pg", ""),
        };
        let words: Vec<String> = self.values.iter().map(|(_, v)| quote(v)).collect();
        format!("ceph {verb} {}{end}", words.join(" "))
    }

    /// Commands that only read, whose answers [`Self::effect`] takes in the same order.
    #[must_use]
    pub fn questions(&self) -> Vec<Value> {
        let ask = |prefix: &str| json!({ "prefix": prefix, "format": "json" });
        match self.name {
            "osd-out" | "osd-in" | "osd-reweight" => vec![ask("osd df")],
            "pool-create" => vec![ask("status")],
            "pool-set" => {
                let get = json!({ "prefix": "osd pool get", "pool": self.get("pool"), "var": self.get("var"),
                    "format": "json" });
                vec![ask("df"), get]
            }
            "pool-quota" | "pool-delete" => vec![ask("df")],
            "config-set" | "config-rm" => {
                vec![ask("config dump"), json!({ "prefix": "config help", "key": self.get("name"), "format": "json" })]
            }
            _ => Vec::new(),
        }
    }

    /// Sentences on the effect. An answer that could not be had is [`Value::Null`].
    #[must_use]
    pub fn effect(&self, answers: &[Value]) -> Vec<String> {
        let first = answers.first().unwrap_or(&Value::Null);
        let second = answers.get(1).unwrap_or(&Value::Null);
        match self.name {
            "osd-out" | "osd-in" | "osd-reweight" => self.weight_effect(first),
            "pool-create" => {
                let osds = number(&first["osdmap"], "num_in_osds").max(1.0);
                let copies = self.number("pg_num") * 3.0 / osds;
                vec![
                    format!(
                        "{} new PGs; with three copies {copies:.0} more on each of {osds:.0} OSDs.",
                        self.get("pg_num")
                    ),
                    "No data move.".into(),
                ]
            }
            "pool-set" => self.setting_effect(first, second),
            "pool-quota" => {
                let (objects, stored) = self.pool_size(first);
                vec![
                    format!("The pool has {objects:.0} objects with {}.", bytes(stored)),
                    "Writes beyond the limit fail or wait until there is room.".into(),
                ]
            }
            "pool-delete" => {
                let (objects, stored) = self.pool_size(first);
                vec![
                    format!("{objects:.0} objects with {} are destroyed, in all copies.", bytes(stored)),
                    "Nothing brings them back.".into(),
                ]
            }
            "flag-set" => {
                vec![flag_effect(self.get("flag")).into(), "Health warns until the flag is taken back.".into()]
            }
            "flag-unset" => vec![format!("Ends this: {}", flag_effect(self.get("flag")))],
            "config-set" | "config-rm" => self.option_effect(first, second),
            _ => vec![match self.get("how") {
                "scrub" => "The sizes and attributes of all copies are compared.".into(),
                "deep-scrub" => "All copies are read and compared; it adds reads to their drives.".into(),
                _ => "All copies are read and compared, and damaged ones are replaced by good ones.".into(),
            }],
        }
    }

    fn weight_effect(&self, df: &Value) -> Vec<String> {
        let nodes = df["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let id = self.number("osd");
        let Some(osd) = nodes.iter().find(|n| n["id"].as_f64() == Some(id)) else {
            return vec![format!("There is no osd.{}.", self.get("osd"))];
        };
        let now = number(osd, "reweight");
        let then = match self.name {
            "osd-out" => 0.0,
            "osd-in" => 1.0,
            _ => self.number("weight"),
        };
        let (used, pgs) = (number(osd, "kb_used") * 1024.0, number(osd, "pgs"));
        let free: f64 = nodes
            .iter()
            .filter(|n| n["id"].as_f64() != Some(id) && number(n, "reweight") > 0.0)
            .map(|n| number(n, "kb_avail") * 1024.0)
            .sum();
        let mut out = vec![format!("Its share goes from {now:.2} to {then:.2} of its size.")];
        if then < now && now > 0.0 {
            let part = (now - then) / now;
            out.push(format!(
                "About {} in {:.0} PGs move to other OSDs, which have {} free.",
                bytes(used * part),
                pgs * part,
                bytes(free)
            ));
            if used * part > free {
                out.push("They have not enough room for it.".into());
            }
            out.push("The OSD serves its PGs until they are complete elsewhere.".into());
        } else if then > now {
            out.push("PGs move to it from other OSDs while clients work.".into());
        } else {
            out.push("Nothing changes.".into());
        }
        out
    }

    /// Objects and stored bytes of the pool.
    fn pool_size(&self, df: &Value) -> (f64, f64) {
        let pools = df["pools"].as_array().map_or(&[][..], Vec::as_slice);
        let stats = pools.iter().find(|p| p["name"] == self.get("pool")).map(|p| &p["stats"]);
        stats.map_or((0.0, 0.0), |s| (number(s, "objects"), number(s, "stored")))
    }

    fn setting_effect(&self, df: &Value, get: &Value) -> Vec<String> {
        let (var, val) = (self.get("var"), self.get("val"));
        let now = &get[var];
        let shown = now.as_str().map_or_else(|| now.to_string(), str::to_owned);
        let mut out = vec![match now {
            Value::Null => format!("{var} becomes {val}."),
            _ => format!("{var} goes from {shown} to {val}."),
        }];
        let (old, new) = (now.as_f64().unwrap_or_default(), val.parse::<f64>().unwrap_or_default());
        let stored = self.pool_size(df).1;
        match var {
            "size" if new > old => {
                let more = bytes(stored * (new - old));
                let free = bytes(number(&df["stats"], "total_avail_bytes"));
                out.push(format!("More copies take {more} of {free} that are free."));
            }
            "size" => out.push(format!("{} become free. Fewer failures are survived.", bytes(stored * (old - new)))),
            "min_size" if new <= 1.0 => {
                out.push("Writes are taken with one copy left; if its drive fails then, they are lost.".into());
            }
            "min_size" => out.push("PGs with fewer copies than this do not serve.".into()),
            "pg_num" => out.push("PGs are split or merged step by step, and their data move.".into()),
            _ => {}
        }
        out
    }

    fn option_effect(&self, dump: &Value, help: &Value) -> Vec<String> {
        let mut out = Vec::new();
        let set = dump.as_array().map_or(&[][..], Vec::as_slice);
        let old = set.iter().find(|o| o["section"] == self.get("who") && o["name"] == self.get("name"));
        let default = help["daemon_default"].as_str().filter(|d| !d.is_empty()).or_else(|| help["default"].as_str());
        let default = default.map(str::to_owned).or_else(|| help["default"].as_f64().map(|n| n.to_string()));
        let was = old.and_then(|o| o["value"].as_str()).map(str::to_owned);
        let default_shown = default.map_or_else(|| "its default".to_owned(), |d| format!("its default, {d}"));
        let now = was.unwrap_or_else(|| default_shown.clone());
        let then = if self.name == "config-set" { self.get("value").to_owned() } else { default_shown };
        out.push(format!("For {}: from {now} to {then}.", self.get("who")));
        if let Some(d) = help["desc"].as_str().filter(|d| !d.is_empty()) {
            out.push(format!("{}: {d}.", self.get("name")));
        }
        match help["can_update_at_runtime"].as_bool() {
            Some(true) => out.push("Running daemons take it at once.".into()),
            Some(false) => out.push("Daemons take it when they start.".into()),
            None => {}
        }
        out
    }
}

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or_default()
}

fn bytes(n: f64) -> String {
    size::show(n.max(0.0) as u64)
}

fn flag_effect(flag: &str) -> &'static str {
    match flag {
        "noout" => "OSDs that are down stay in, so their data are not copied elsewhere.",
        "norebalance" => "PGs that are complete do not move.",
        "nobackfill" => "PGs are not copied to new OSDs, even if copies are missing.",
        "norecover" => "Missing objects are not copied.",
        "noscrub" => "No scrub begins.",
        "nodeep-scrub" => "No deep scrub begins.",
        "nodown" => "OSDs that fail are not marked down, so their clients wait.",
        "noup" => "OSDs that start are not marked up.",
        _ => "OSDs that start are not marked in, so they get no data.",
    }
}

/// A word quoted for a shell, if it needs that.
fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:=@%+,".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(change: &str, values: &[(&str, &str)]) -> Wanted {
        let values: serde_json::Map<String, Value> = values.iter().map(|(k, v)| ((*k).into(), json!(v))).collect();
        Wanted::parse(&json!({ "change": change, "values": values })).unwrap()
    }

    #[test]
    fn every_change_has_command_shell_and_effect() {
        for c in CHANGES {
            let value = |f: &Field| match f.kind {
                Kind::Choice(w) => w[0].to_owned(),
                Kind::Part => "0.5".into(),
                _ => "3".into(),
            };
            let values: Vec<(&str, String)> = c.fields.iter().map(|f| (f.name, value(f))).collect();
            let values: Vec<(&str, &str)> = values.iter().map(|(k, v)| (*k, v.as_str())).collect();
            let w = wanted(c.name, &values);
            let prefix = w.command()["prefix"].as_str().unwrap().to_owned();
            assert!(w.shell().starts_with(&format!("ceph {prefix}")), "{}: {}", prefix, w.shell());
            // Without rights to read, the effect is vague but there.
            assert!(!w.effect(&vec![Value::Null; 2]).is_empty(), "{}", c.name);
            for q in w.questions() {
                assert_eq!(q["format"], "json");
            }
        }
        assert_eq!(list().as_array().unwrap().len(), CHANGES.len());
    }

    #[test]
    fn values_of_other_kinds_are_refused() {
        let parse = |v: Value| Wanted::parse(&v);
        assert_eq!(parse(json!({ "change": "rm -rf" })), Err(BadChange::Unknown));
        assert_eq!(parse(json!(null)), Err(BadChange::Unknown));
        for osd in [json!("x"), json!("-1"), json!("4294967295"), json!(""), json!(3), json!({}), json!("1\n2")] {
            assert_eq!(parse(json!({ "change": "osd-out", "values": { "osd": osd } })), Err(BadChange::Field("OSD")));
        }
        let weight =
            |w: &str| parse(json!({ "change": "osd-reweight", "values": { "osd": "1", "weight": w } })).is_ok();
        assert!(weight("0.5") && !weight("2") && !weight("nan"));
        let pool = json!({ "change": "pool-delete", "values": { "pool": "a", "again": "b" } });
        assert_eq!(parse(pool), Err(BadChange::NotRepeated));
        let long = json!({ "change": "config-rm", "values": { "who": "osd", "name": "x".repeat(1000) } });
        assert_eq!(parse(long), Err(BadChange::Field("Option")));
    }

    #[test]
    fn shells_get_quoted_words() {
        let w = wanted("config-set", &[("who", "osd"), ("name", "osd_x"), ("value", "a b; rm 'c'")]);
        assert_eq!(w.shell(), r"ceph config set osd osd_x 'a b; rm '\''c'\'''");
        assert_eq!(
            w.command(),
            json!({ "prefix": "config set", "who": "osd", "name": "osd_x", "value": "a b; rm 'c'" })
        );
        let w = wanted("pool-delete", &[("pool", "p"), ("again", "p")]);
        assert_eq!(w.shell(), "ceph osd pool delete p p --yes-i-really-really-mean-it");
    }

    #[test]
    fn effects_have_figures() {
        let node = |id: i32, used: u64, free: u64| json!({ "id": id, "reweight": 1.0, "kb_used": used, "kb_avail": free, "pgs": 33 });
        let df = json!({ "nodes": [node(1, 12 << 20, 5 << 20), node(2, 0, 8 << 20)] });
        assert_eq!(
            wanted("osd-out", &[("osd", "1")]).effect(std::slice::from_ref(&df)),
            [
                "Its share goes from 1.00 to 0.00 of its size.",
                "About 12 GiB in 33 PGs move to other OSDs, which have 8 GiB free.",
                "They have not enough room for it.",
                "The OSD serves its PGs until they are complete elsewhere."
            ]
        );
        assert_eq!(wanted("osd-out", &[("osd", "7")]).effect(&[df]), ["There is no osd.7."]);
        let df = json!({ "stats": { "total_avail_bytes": 9u64 << 30 },
            "pools": [{ "name": "p", "stats": { "stored": 1u64 << 30, "objects": 300 } }] });
        let w = wanted("pool-set", &[("pool", "p"), ("var", "size"), ("val", "3")]);
        assert_eq!(
            w.effect(&[df.clone(), json!({ "size": 2 })]),
            ["size goes from 2 to 3.", "More copies take 1 GiB of 9 GiB that are free."]
        );
        let w = wanted("pool-delete", &[("pool", "p"), ("again", "p")]);
        assert_eq!(w.effect(&[df])[0], "300 objects with 1 GiB are destroyed, in all copies.");
        let w = wanted("config-set", &[("who", "osd"), ("name", "osd_max_backfills"), ("value", "4")]);
        let help = json!({ "daemon_default": "1", "desc": "Backfills at a time", "can_update_at_runtime": true });
        assert_eq!(
            w.effect(&[json!([]), help]),
            [
                "For osd: from its default, 1 to 4.",
                "osd_max_backfills: Backfills at a time.",
                "Running daemons take it at once."
            ]
        );
    }
}
