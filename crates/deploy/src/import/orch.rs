//! Hosts and services of cephadm: `ceph orch host ls` and `ceph orch ls --export`, as YAML or JSON.

use super::ImportError;
use super::devices::drive_group;
use super::draft::{Draft, DraftRule};
use super::yaml::Node;
use crate::inventory::is_name;
use std::collections::BTreeSet;

/// A node with the name of its file.
type Doc = (String, Node);

/// Most hosts and services.
const DOCUMENTS_MAX: usize = 10_000;
/// Most hosts that the placements of all services look at.
const PLACED_MAX: usize = 1 << 20;
/// Longest pattern of hosts.
const PATTERN_MAX: usize = 64;
/// A label of hosts that get no daemons.
const NO_SCHEDULE: &str = "_no_schedule";

/// True if a name matches a pattern of `*`, `?`, `[…]` and `[!…]`. Takes no more steps than the product of both
/// lengths.
fn matches(pattern: &[char], name: &[char]) -> bool {
    // A set's end and whether it has a character.
    let set = |p: &[char], c: char| -> Option<(usize, bool)> {
        let from = if p.get(1) == Some(&'!') { 2 } else { 1 };
        let to = from + 1 + p.get(from + 1..)?.iter().position(|c| *c == ']')?;
        let (mut has, mut i) = (false, from);
        while i < to {
            if i + 2 < to && p[i + 1] == '-' {
                has |= (p[i]..=p[i + 2]).contains(&c);
                i += 3;
            } else {
                has |= p[i] == c;
                i += 1;
            }
        }
        Some((to + 1, has != (from == 2)))
    };
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => match set(&pattern[p..], name[n]) {
                Some((len, true)) => Some(len),
                Some((_, false)) => None,
                None => (name[n] == '[').then_some(1),
            },
            Some(c) => (*c == name[n]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(len), _) => (p, n) = (p + len, n + 1),
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Hosts of a service.
struct Placed {
    hosts: Vec<String>,
    label: Option<String>,
}

struct Orch<'a> {
    draft: &'a mut Draft,
    idle: BTreeSet<String>,
    placed: usize,
}

fn number(n: Option<&Node>) -> Option<usize> {
    n?.text()?.parse().ok()
}

impl Orch<'_> {
    fn host(&mut self, n: &Node) -> Result<(), ImportError> {
        let Some(name) = n.text_of("hostname") else {
            self.draft.note("a host without a name");
            return Ok(());
        };
        let address = n.text_of("addr").unwrap_or(name);
        let labels: Vec<&str> = n.get("labels").into_iter().flat_map(Node::items).filter_map(Node::text).collect();
        if labels.contains(&NO_SCHEDULE) {
            self.idle.insert(name.to_owned());
        }
        let unknown: Vec<&str> = labels.iter().copied().filter(|l| !is_name(l) && *l != "_admin").collect();
        let Some(h) = self.draft.host(name)? else { return Ok(()) };
        h.address = address.parse().ok().or(h.address);
        h.labels.extend(labels.iter().filter(|l| is_name(l)).map(|l| (*l).to_owned()));
        if !unknown.is_empty() {
            self.draft.note(format!("host {name}: labels {}: not mapped", unknown.join(", ")));
        }
        let location = n.get("location").into_iter().flat_map(Node::entries);
        let location: Vec<(String, String)> =
            location.map(|(k, v)| (k.clone(), v.text().unwrap_or_default().to_owned())).collect();
        self.draft.place(name, location.into_iter());
        for (k, v) in n.entries().filter(|(_, v)| *v != Node::Null) {
            let is_said =
                ["hostname", "addr", "labels", "location", "service_type", "service_name"].contains(&k.as_str());
            let is_empty =
                v.text().is_some_and(str::is_empty) || v.items().all(|i| i.text() == Some("")) && v.text().is_none();
            if !is_said && !is_empty {
                self.draft.note(format!("host {name}: {k} {}: not mapped", v.shown()));
            }
        }
        Ok(())
    }

    /// A host that a placement names: a text `NAME`, `NAME:NETWORK`, `NAME=DAEMON`, or a map of these.
    fn named(&mut self, n: &Node) -> Result<Option<String>, ImportError> {
        let text = n.text().or_else(|| n.text_of("hostname")).unwrap_or_default();
        let (name, rest) = text.split_at(text.find([':', '=']).unwrap_or(text.len()));
        let network =
            n.text_of("network").unwrap_or_else(|| rest.trim_start_matches(':').split('=').next().unwrap_or(""));
        let Some(h) = self.draft.host(name)? else { return Ok(None) };
        h.address = h.address.or_else(|| network.trim_matches(['[', ']']).parse().ok());
        Ok(Some(name.to_owned()))
    }

    /// Hosts of a service. `count` chooses among those that are possible; cephadm's choice is not exported.
    fn placed(&mut self, what: &str, placement: Option<&Node>) -> Result<Placed, ImportError> {
        let (mut hosts, mut label, nothing) = (Vec::new(), None, Node::Null);
        let p = placement.unwrap_or(&nothing);
        let list = p.get("hosts");
        self.placed += list.map_or(self.draft.hosts.len(), |l| l.items().len());
        if self.placed > PLACED_MAX {
            return Err(ImportError::new(what, "the placements of all services name too many hosts"));
        }
        if list.is_none() {
            hosts.extend(self.draft.hosts.keys().filter(|n| !self.idle.contains(*n)).cloned());
        }
        if let Some(list) = list {
            for n in list.items() {
                Draft::add(&mut hosts, self.named(n)?);
            }
        } else if let Some(l) = p.text_of("label") {
            hosts.retain(|n| self.draft.hosts[n].labels.contains(l));
            label = Some(l.to_owned());
        } else if let Some(pattern) = p.get("host_pattern") {
            let is_regex = pattern.text_of("pattern_type").is_some_and(|t| t == "regex");
            match pattern.text().or_else(|| pattern.text_of("pattern")) {
                Some(s) if !is_regex && s.len() <= PATTERN_MAX => {
                    let s: Vec<char> = s.chars().collect();
                    hosts.retain(|n| matches(&s, &n.chars().collect::<Vec<_>>()));
                }
                _ => {
                    self.draft.note(format!("{what}: host_pattern {}: not mapped", pattern.shown()));
                    hosts.clear();
                }
            }
        }
        if let Some(n) = number(p.get("count")).filter(|n| *n < hosts.len()) {
            hosts.truncate(n);
            self.draft.note(format!("{what}: cephadm chooses {n} hosts; here they are {}", hosts.join(", ")));
        }
        for (k, v) in p.entries().filter(|(_, v)| *v != Node::Null) {
            let is_one = k == "count_per_host" && v.text() == Some("1");
            if !is_one && !["hosts", "label", "host_pattern", "count"].contains(&k.as_str()) {
                self.draft.note(format!("{what}: placement {k} {}: not mapped", v.shown()));
            }
        }
        if hosts.is_empty() {
            self.draft.note(format!("{what}: it is on no host"));
        }
        Ok(Placed { hosts, label })
    }

    fn gateway(&mut self, what: &str, spec: Option<&Node>) {
        let get = |k: &str| spec.and_then(|s| s.get(k));
        let is_tls = get("ssl").is_some_and(Node::is_true);
        let port = number(get("rgw_frontend_port")).and_then(|p| u16::try_from(p).ok()).unwrap_or(80);
        if is_tls {
            self.draft
                .note(format!("{what}: ssl: the gateways serve HTTP; put a proxy with the certificate before them"));
        } else if let Some(old) = self.draft.gateway_port.filter(|old| *old != port) {
            self.draft.note(format!("{what}: port {port}: all gateways have {old}"));
        } else {
            self.draft.gateway_port = Some(port);
        }
        self.rest(what, spec, &["ssl", "rgw_frontend_port"]);
    }

    fn service(&mut self, kind: &str, n: &Node) -> Result<(), ImportError> {
        let id = n.text_of("service_id").unwrap_or_default();
        let what = n.text_of("service_name").map_or_else(|| format!("{kind}.{id}"), str::to_owned);
        let what = what.trim_end_matches('.').to_owned();
        let is_role = ["mon", "osd", "mds", "rgw"].contains(&kind);
        match kind {
            "mgr" => return self.draft_note(format!("{what}: the monitors have the manager's role")),
            "crash" => {
                return self.draft_note(format!("{what}: a daemon that ends says why in the journal of its host"));
            }
            _ if !is_role => return self.draft_note(format!("{what}: services of this type are not deployed")),
            _ => {}
        }
        let placed = self.placed(&what, n.get("placement"))?;
        let spec = n.get("spec");
        match kind {
            "osd" => {
                let hosts = placed.hosts.into_iter().collect();
                let (keys, off) = (Vec::new(), None);
                let r = DraftRule { name: what.clone(), hosts, label: placed.label, keys, off };
                drive_group(self.draft, r, spec.unwrap_or(n), n.get("unmanaged").is_some_and(Node::is_true));
                if spec.is_none() {
                    return Ok(());
                }
            }
            "mon" => {
                Draft::add(&mut self.draft.monitors, placed.hosts);
                self.rest(&what, spec, &[]);
            }
            "mds" => {
                self.rest(&what, spec, &[]);
                Draft::add(&mut self.draft.metadata_servers, placed.hosts);
                if is_name(id) {
                    Draft::add(&mut self.draft.filesystems, [id.to_owned()]);
                }
            }
            _ => {
                Draft::add(&mut self.draft.gateways, placed.hosts);
                self.gateway(&what, spec);
            }
        }
        for (k, v) in n.entries().filter(|(_, v)| *v != Node::Null) {
            // `status` and `events` are no statements: `ceph orch ls --format yaml` has them.
            let is_said =
                ["service_type", "service_id", "service_name", "placement", "spec", "unmanaged", "status", "events"];
            if !is_said.contains(&k.as_str()) {
                self.draft.note(format!("{what}: {k} {}: not mapped", v.shown()));
            }
        }
        Ok(())
    }

    /// Notes the keys of a map that are not among those that were taken over.
    fn rest(&mut self, what: &str, n: Option<&Node>, said: &[&str]) {
        for (k, v) in
            n.into_iter().flat_map(Node::entries).filter(|(k, v)| *v != Node::Null && !said.contains(&k.as_str()))
        {
            self.draft.note(format!("{what}: {k} {}: not mapped", v.shown_of(k)));
        }
    }

    fn draft_note(&mut self, what: String) -> Result<(), ImportError> {
        self.draft.note(what);
        Ok(())
    }
}

/// Takes hosts first, then the services on them.
pub(super) fn read(draft: &mut Draft, all: &[Doc]) -> Result<(), ImportError> {
    if all.len() > DOCUMENTS_MAX {
        return Err(ImportError::new(&all[0].0, format!("more than {DOCUMENTS_MAX} hosts and services")));
    }
    let mut o = Orch { draft, idle: BTreeSet::new(), placed: 0 };
    let is_host = |n: &Node| n.text_of("service_type").is_none_or(|t| t == "host");
    for (_, n) in all.iter().filter(|(_, n)| is_host(n)) {
        o.host(n)?;
    }
    for (_, n) in all.iter().filter(|(_, n)| !is_host(n)) {
        let kind = n.text_of("service_type").unwrap_or_default().to_owned();
        o.service(&kind, n)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_a_shell() {
        let m = |p: &str, n: &str| matches(&p.chars().collect::<Vec<_>>(), &n.chars().collect::<Vec<_>>());
        assert!(
            m("*", "osd1") && m("osd*", "osd1") && m("osd?", "osd1") && m("osd[0-9]", "osd1") && m("[!a]sd1", "osd1")
        );
        assert!(m("*-a*b", "x-aab") && m("o[sx]d[]1]", "osd1") && m("a", "a") && m("**", "") && m("[", "["));
        assert!(
            !m("osd", "osd1") && !m("osd[2-9]", "osd1") && !m("?", "") && !m("*x", "osd1") && !m("[!o]sd1", "osd1")
        );
        assert!(!m(&"*a".repeat(50), &"a".repeat(40)));
    }
}
