//! From the words of a command line to a command of the monitor, by the monitor's own signatures.

use mon::command::commands;
use mon::command::language::sig::{Arg, Kind, Sig};
use serde_json::{Map, Value, json};

/// The command that words name. Error: there is none, or its arguments do not fit.
pub(super) fn command(words: &[&str]) -> Result<Value, String> {
    let matched = |sig: &Sig| {
        let prefix: Vec<&str> = sig.prefix.split(' ').collect();
        words.starts_with(&prefix).then_some(prefix.len())
    };
    let longest = commands().filter_map(|(sig, _)| matched(sig)).max();
    let longest = longest.ok_or_else(|| format!("{}: no such command", words.join(" ")))?;
    let mut wrong = None;
    for (sig, _) in commands().filter(|(sig, _)| matched(sig) == Some(longest)) {
        match fit(sig, words.get(longest..).unwrap_or_default()) {
            Ok(mut given) => {
                given.insert("prefix".into(), sig.prefix.as_str().into());
                return Ok(Value::Object(given));
            }
            Err(e) => wrong = wrong.or(Some(format!("{e}; usage: {} {}", sig.prefix, sig.usage()))),
        }
    }
    Err(wrong.unwrap_or_default())
}

/// The value of a word for an argument; `None` if it does not fit.
fn value(arg: &Arg, word: &str) -> Option<Value> {
    match arg.kind {
        Kind::Int => word.parse::<i64>().ok().map(Value::from),
        Kind::Float => word.parse::<f64>().ok().filter(|f| f.is_finite()).map(Value::from),
        Kind::Choices => arg.choices.contains(&word).then(|| word.into()),
        Kind::Bool => None,
        _ => Some(word.into()),
    }
}

/// The arguments of a signature from the words behind its prefix.
fn fit(sig: &Sig, words: &[&str]) -> Result<Map<String, Value>, String> {
    let mut given = Map::new();
    let mut plain: Vec<&str> = Vec::new();
    for word in words {
        let flag = word.strip_prefix("--").map(|w| w.replace('-', "_"));
        let named = sig.args.iter().find(|a| a.kind == Kind::Bool && Some(a.name) == flag.as_deref());
        match named {
            Some(a) => _ = given.insert(a.name.into(), true.into()),
            None => plain.push(word),
        }
    }
    let mut left = plain.as_slice();
    for arg in sig.args.iter().filter(|a| a.kind != Kind::Bool) {
        let Some((word, rest)) = left.split_first() else {
            if arg.optional {
                continue;
            }
            return Err(format!("{} is missing", arg.name));
        };
        if arg.many {
            given.insert(arg.name.into(), json!(left));
            left = &[];
            continue;
        }
        match value(arg, word) {
            Some(v) => _ = given.insert(arg.name.into(), v),
            None if arg.optional => continue,
            None => return Err(format!("{word} does not fit {}", arg.name)),
        }
        left = rest;
    }
    match left {
        [] => Ok(given),
        [word, ..] => Err(format!("{word} is one word too many")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Value, String> {
        command(&text.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn commands_of_operators_are_understood() {
        let cases = [
            ("osd out 12 osd.13", json!({"prefix": "osd out", "ids": ["12", "osd.13"]})),
            ("osd reweight 3 0.5", json!({"prefix": "osd reweight", "id": "3", "weight": 0.5})),
            ("osd crush reweight osd.3 1.5", json!({"prefix": "osd crush reweight", "name": "osd.3", "weight": 1.5})),
            (
                "osd crush move h3 root=default rack=r1",
                json!({"prefix": "osd crush move", "name": "h3", "args": ["root=default", "rack=r1"]}),
            ),
            ("osd pool set p size 3", json!({"prefix": "osd pool set", "pool": "p", "var": "size", "val": "3"})),
            (
                "osd purge 3 --yes-i-really-mean-it",
                json!({"prefix": "osd purge", "id": "3", "yes_i_really_mean_it": true}),
            ),
            (
                "osd pool set p size 1 --yes-i-really-mean-it",
                json!({"prefix": "osd pool set", "pool": "p", "var": "size", "val": "1", "yes_i_really_mean_it": true}),
            ),
        ];
        for (text, want) in cases {
            assert_eq!(of(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn words_that_do_not_fit_are_named() {
        for (text, word) in [
            ("make it so", "no such command"),
            ("osd reweight 3", "weight is missing"),
            ("osd reweight 3 much", "much does not fit weight"),
            ("osd crush reweight osd.3 1 2", "2 is one word too many"),
            ("osd pool set p nothing 3", "nothing does not fit var"),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
