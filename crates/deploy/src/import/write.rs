//! The text of an inventory.

use super::draft::{Draft, DraftHost, DraftRule};
use crate::inventory::is_name;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A text in TOML.
pub(super) fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

/// A list of texts.
pub(super) fn list<'a>(all: impl IntoIterator<Item = &'a String>) -> String {
    format!("[{}]", all.into_iter().map(|s| quote(s)).collect::<Vec<_>>().join(", "))
}

fn key(s: &str) -> String {
    let is_bare = s.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if is_bare && !s.is_empty() { s.to_owned() } else { quote(s) }
}

/// Labels that rules get.
#[derive(Default)]
struct Labels {
    /// Labels that were made, by the hosts that have them.
    made: BTreeMap<BTreeSet<String>, String>,
    used: BTreeSet<String>,
    /// Number of labels with the same beginning.
    count: BTreeMap<String, usize>,
}

impl Labels {
    /// A label that selects the hosts of a rule; none if all hosts are selected.
    fn of(&mut self, d: &mut Draft, r: &DraftRule) -> Option<String> {
        if r.hosts.len() == d.hosts.len() {
            return None;
        }
        let has = |l: &String| d.hosts.iter().filter(|(_, h)| h.labels.contains(l)).map(|(n, _)| n.clone()).collect();
        if let Some(l) = r.label.as_ref().filter(|l| is_name(l) && r.hosts == has(l)) {
            return Some(l.clone());
        }
        if let Some(l) = self.made.get(&r.hosts) {
            return Some(l.clone());
        }
        let plain = r.name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').take(40);
        let stem = format!("osd-{}", plain.collect::<String>());
        let n = self.count.entry(stem.clone()).or_default();
        let l = loop {
            *n += 1;
            let l = if *n == 1 { stem.clone() } else { format!("{stem}-{n}") };
            if self.used.insert(l.clone()) {
                break l;
            }
        };
        for (_, h) in d.hosts.iter_mut().filter(|(n, _)| r.hosts.contains(*n)) {
            h.labels.insert(l.clone());
        }
        self.made.insert(r.hosts.clone(), l.clone());
        Some(l)
    }
}

fn rules(d: &mut Draft) -> String {
    let mut labels = Labels { used: d.hosts.values().flat_map(|h| h.labels.clone()).collect(), ..Labels::default() };
    let mut s = String::new();
    for r in std::mem::take(&mut d.rules) {
        let label = if r.off.is_some() { r.label.clone() } else { labels.of(d, &r) };
        let hash = if r.off.is_some() { "# " } else { "" };
        s.push('\n');
        if let Some(why) = &r.off {
            let hosts = r.hosts.len();
            let _ = writeln!(s, "# {}, on {hosts} hosts, as a comment: {}", clean(&r.name), clean(why));
        }
        let _ = writeln!(s, "{hash}[[devices]]");
        if let Some(l) = label {
            let _ = writeln!(s, "{hash}label = {}", quote(&l));
        }
        for (k, v) in &r.keys {
            let _ = writeln!(s, "{hash}{k} = {v}");
        }
    }
    s
}

fn clean(s: &str) -> String {
    s.chars().filter(|c| !c.is_control()).take(300).collect()
}

fn host(name: &str, h: &DraftHost, user: Option<&String>) -> String {
    let Some(address) = h.address else {
        return format!("# {} = \"\"  # its address is not stated\n", key(name));
    };
    let mut parts = vec![format!("address = {}", quote(&address.to_string()))];
    if let Some(u) = h.user.as_ref().filter(|u| Some(*u) != user) {
        parts.push(format!("user = {}", quote(u)));
    }
    parts.extend(h.place.iter().map(|(k, v)| format!("{k} = {}", quote(v))));
    if !h.labels.is_empty() {
        parts.push(format!("labels = {}", list(&h.labels)));
    }
    match parts.as_slice() {
        [one] => format!("{} = {}\n", key(name), &one["address = ".len()..]),
        _ => format!("{} = {{ {} }}\n", key(name), parts.join(", ")),
    }
}

/// The account that most hosts have.
fn account(d: &Draft) -> Option<String> {
    let mut count: BTreeMap<&String, usize> = BTreeMap::new();
    for u in d.hosts.values().filter_map(|h| h.user.as_ref()) {
        *count.entry(u).or_default() += 1;
    }
    let all = d.hosts.values().all(|h| h.user.is_some());
    count.into_iter().max_by_key(|(_, n)| *n).map(|(u, _)| u.clone()).filter(|_| all)
}

/// The inventory of a draft, with its notes; `files` are the names of what was read.
pub(super) fn inventory(d: &mut Draft, files: &[&str]) -> String {
    d.choose_monitors();
    d.guess_network();
    let without: Vec<String> =
        d.hosts.iter().filter(|(_, h)| h.address.is_none()).map(|(n, _)| n.clone()).take(20).collect();
    if !without.is_empty() {
        d.note(format!("[hosts]: the IP address is not stated, or is a name, for {}", without.join(", ")));
    }
    d.end_notes();
    let devices = rules(d);
    let mut s = String::from("# Written by `belemnite deploy import` from:\n");
    for f in files {
        let _ = writeln!(s, "#   {}", clean(f));
    }
    if !d.notes.is_empty() {
        s += "# These statements are not in it, or were decided here:\n";
        for n in &d.notes {
            let _ = writeln!(s, "#   - {n}");
        }
    }
    s += "\n# The Debian package or the program file, beside this file.\npackage = \"belemnite.deb\"\n";
    for (k, v) in [("public_network", &d.public_network), ("cluster_network", &d.cluster_network)] {
        if let Some(v) = v {
            let _ = writeln!(s, "{k} = {}", quote(v));
        }
    }
    let _ = writeln!(s, "monitors = {}", list(&d.monitors));
    let roles = [("metadata_servers", &d.metadata_servers), ("filesystems", &d.filesystems), ("gateways", &d.gateways)];
    for (k, v) in roles.into_iter().filter(|(_, v)| !v.is_empty()) {
        let _ = writeln!(s, "{k} = {}", list(v));
    }
    if let (Some(p), false) = (d.gateway_port, d.gateways.is_empty()) {
        let _ = writeln!(s, "gateway_port = {p}");
    }
    s += "\n[hosts]\n";
    let user = account(d);
    for (n, h) in &d.hosts {
        s += &host(n, h, user.as_ref());
    }
    s += &devices;
    for (section, options) in &d.options {
        let _ = writeln!(s, "\n[options.{}]", key(section));
        for (k, v) in options {
            let _ = writeln!(s, "{} = {}", key(k), quote(v));
        }
    }
    if let Some(u) = user {
        let _ = writeln!(s, "\n[ssh]\nuser = {}", quote(&u));
    }
    s
}
