//! Commands of the `ceph` program against the descriptions by which it checks them, those of our monitor and OSD.

use super::{Printed, look_at_all};
use serde_json::Value;

/// Spans of code that begin with `ceph ` and are no commands.
const OTHERS: &[&str] = &[
    "ceph v027",
    "ceph --help",
    // Of a cluster that cephadm keeps.
    "ceph orch ls --export >services.yaml",
    "ceph orch host ls --format yaml >hosts.yaml",
];
/// Options of the `ceph` program that take a value.
const WITH_VALUE: &[&str] = &["-o", "-i", "-c", "-n", "-k", "-f", "--format", "--connect-timeout"];

/// The words of a shell command, without quotes.
fn words(command: &str) -> Vec<String> {
    let (mut out, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    for c in command.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => (quote, any) = (Some(c), true),
            (None, ' ') => {
                if any || !word.is_empty() {
                    out.push(std::mem::take(&mut word));
                }
                any = false;
            }
            _ => word.push(c),
        }
    }
    if any || !word.is_empty() {
        out.push(word);
    }
    out
}

/// One item of a signature: a word, or the description of an argument.
struct Item<'a>(&'a Value);

impl<'a> Item<'a> {
    fn text(&self, key: &str) -> &'a str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn is_optional(&self) -> bool {
        self.0["req"] == false || self.0["req"] == "false"
    }

    /// True if a word may be a value of the argument. Words in capitals stand for values.
    fn takes(&self, word: &str) -> bool {
        let stands_for = |w: &str| w.chars().any(|c| c.is_ascii_uppercase()) && !w.contains(|c: char| c.is_lowercase());
        if stands_for(word) {
            return true;
        }
        if !self.has_good_characters(word) {
            return false;
        }
        let number = |w: &str| w.parse::<f64>().ok();
        match self.text("type") {
            "CephInt" => word.parse::<i64>().is_ok() && self.in_range(number(word)),
            "CephFloat" => self.in_range(number(word)),
            "CephChoices" => self.text("strings").split('|').any(|s| s == word),
            "CephPgid" => word
                .split_once('.')
                .is_some_and(|(pool, seed)| pool.parse::<u64>().is_ok() && u32::from_str_radix(seed, 16).is_ok()),
            "CephOsdName" => {
                let id = word.strip_prefix("osd.").unwrap_or(word);
                stands_for(id) || id.parse::<u32>().is_ok()
            }
            "CephEntityAddr" | "CephIPAddr" => word.starts_with(|c: char| c.is_ascii_digit() || c == '['),
            "CephName" => word.contains('.'),
            "CephBool" => false,
            _ => !word.starts_with("--"),
        }
    }

    /// True if the argument allows all characters of a word; it names them in a class such as `[A-Za-z0-9-_.=]`.
    fn has_good_characters(&self, word: &str) -> bool {
        let class: Vec<char> = self.text("goodchars").trim_matches(['[', ']']).chars().collect();
        let is_range = |w: &[char], c: char| w[1] == '-' && w[0].is_alphanumeric() && (w[0]..=w[2]).contains(&c);
        class.is_empty() || word.chars().all(|c| class.contains(&c) || class.windows(3).any(|w| is_range(w, c)))
    }

    fn in_range(&self, v: Option<f64>) -> bool {
        let Some(v) = v else { return false };
        let mut limits = self.text("range").split('|').map(|l| l.parse::<f64>().ok());
        let (low, high) = (limits.next().flatten(), limits.next().flatten());
        low.is_none_or(|l| v >= l) && high.is_none_or(|h| v <= h)
    }
}

/// True if the words are a command of the signature; of its beginning, if not all arguments have to be there.
fn fits(sig: &[Value], words: &[String], is_whole: bool) -> bool {
    // Arguments by name, `--name VALUE` or `--name=VALUE`, may be anywhere.
    let (mut by_name, mut rest) = (Vec::new(), Vec::new());
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(w) = words.next() {
        let option = w.strip_prefix("--").map(|o| o.split_once('=').map_or((o, None), |(n, v)| (n, Some(v))));
        let Some((name, value)) = option else {
            rest.push(w);
            continue;
        };
        let name = name.replace('-', "_");
        match sig.iter().find(|i| i["name"] == name.as_str()).map(Item) {
            Some(a) if a.text("type") == "CephBool" => by_name.push(name),
            Some(a) if value.or_else(|| words.next()).is_some_and(|v| a.takes(v)) => by_name.push(name),
            // Some flags are choices that begin with `--`.
            _ => rest.push(w),
        }
    }
    let mut rest = rest.into_iter().peekable();
    for item in sig {
        if let Some(word) = item.as_str() {
            match rest.next() {
                Some(w) if w == word => {}
                None => return !is_whole,
                Some(_) => return false,
            }
            continue;
        }
        let a = Item(item);
        if by_name.iter().any(|n| n == a.text("name")) {
            continue;
        }
        let many = a.0["n"] == "N";
        let mut taken = 0;
        while (many || taken == 0) && rest.next_if(|w| a.takes(w)).is_some() {
            taken += 1;
        }
        if taken == 0 && !a.is_optional() {
            return rest.peek().is_none() && !is_whole;
        }
    }
    rest.next().is_none()
}

/// The commands of the monitors and the manager, of `ceph tell` to a monitor, and of `ceph tell` to an OSD.
struct Known {
    plain: Vec<Vec<Value>>,
    mon: Vec<Vec<Value>>,
    osd: Vec<Vec<Value>>,
}

impl Known {
    fn new() -> Self {
        let signatures = |all: Value| -> Vec<Vec<Value>> {
            all.as_object().unwrap().values().map(|c| c["sig"].as_array().unwrap().clone()).collect()
        };
        let of_mon = |told: bool| {
            use mon::command::commands;
            use mon::command::flag::TELL;
            use mon::command::language::sig::descriptions;
            let all = descriptions(commands().filter(|(_, c)| (c.flags & TELL == TELL) == told).map(|(s, c)| (s, *c)))
                .compact();
            signatures(serde_json::from_str(&all).unwrap())
        };
        Self { plain: of_mon(false), mon: of_mon(true), osd: signatures(osd::host::command_descriptions()) }
    }

    /// Why a printed command is none of ours.
    fn wrong(&self, c: &Printed) -> Option<String> {
        if OTHERS.contains(&c.text.as_str()) {
            return None;
        }
        // Brackets mark optional arguments; an ellipsis stands for all that follows.
        let (text, is_cut) = c.text.split_once('…').map_or((c.text.as_str(), false), |(before, _)| (before, true));
        let is_whole = c.is_line && !is_cut;
        let mut all = words(&text.replace(['[', ']'], "")).into_iter().skip(1);
        let mut command = Vec::new();
        while let Some(w) = all.next() {
            match w.as_str() {
                "-s" => command.push("status".to_owned()),
                o if WITH_VALUE.contains(&o) => drop(all.next()),
                _ => command.push(w),
            }
        }
        let parts: Vec<&str> = command.iter().map(String::as_str).collect();
        let (tables, rest) = match parts.as_slice() {
            // The `ceph` program asks the admin socket by itself.
            ["tell" | "daemon"] | ["daemonperf", ..] => return None,
            ["tell", to, ..] if to.starts_with("mds") => return None,
            ["tell", to, ..] if to.starts_with("osd") => (vec![&self.osd], &command[2..]),
            ["tell", to, ..] if to.starts_with("mon") || to.starts_with("mgr") => (vec![&self.mon], &command[2..]),
            // The `ceph` program sends these to the PG's primary.
            ["pg", _, "query" | "list_unfound" | "mark_unfound_lost", ..] => (vec![&self.osd], &command[..]),
            ["daemon", ..] => (vec![&self.osd, &self.mon], &command[2..]),
            _ => (vec![&self.plain], &command[..]),
        };
        let known = tables.into_iter().flatten().any(|sig| fits(sig, rest, is_whole));
        (!known).then(|| "no such command, or other arguments".to_owned())
    }
}

#[test]
fn printed_ceph_commands_are_served() {
    let known = Known::new();
    let found = look_at_all("ceph", |c| known.wrong(c));
    assert!(found > 100, "{found} commands");
}

#[test]
fn how_commands_are_compared() {
    let known = Known::new();
    let is_known = |text: &str, is_line| known.wrong(&Printed { text: text.to_owned(), is_line }).is_none();
    for line in [
        "ceph -s",
        "ceph osd pool create coded 32 32 erasure small",
        "ceph osd pool create data --size 3",
        "ceph osd purge N --force",
        "ceph auth get-or-create client.x mon 'allow r' osd 'allow rw pool=a' -o keyring",
        "ceph tell osd.N pg PGID query",
        "ceph osd blocklist add 10.1.2.9",
        "ceph osd blocklist range add 10.1.2.0/24 60",
        "ceph tell mon.ID mon_status",
    ] {
        assert!(is_known(line, true), "{line}");
    }
    for line in [
        "ceph osd pool create",
        "ceph osd pool crate data",
        "ceph osd crush reweight osd.0 heavy",
        "ceph osd pool create data 8 8 erasure profile rule 5 6 7 8 more",
        "ceph osd pool create data --sise 3",
        "ceph osd out",
        "ceph tell osd.N mon_status",
    ] {
        assert!(!is_known(line, true), "{line}");
    }
    assert!(is_known("ceph osd pool create", false) && is_known("ceph fs …", false));
    assert!(!is_known("ceph osd pool crate", false));
}
