//! Parser of a probe's output. The text comes from a host and is not trusted: sizes are bounded, names are checked.

use super::{ConfFact, Device, FileFact, HostFacts, StoreFact, Unit, devices};
use std::collections::BTreeSet;

/// Script for `sh` that prints a host's facts. Its arguments are devices, and directories of files that
/// serve as devices.
pub const PROBE: &str = include_str!("probe.sh");
/// Most bytes of a probe's output that are read.
pub const PROBE_BYTES_MAX: usize = 1 << 20;
/// Most lines.
const LINES_MAX: usize = 20_000;
/// Longest word, except for the list of devices.
const WORD_MAX: usize = 512;

/// Error in the output of a probe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The output is longer than any host's.
    #[error("the probe printed more than {PROBE_BYTES_MAX} bytes")]
    TooLong,
    /// Its last line is missing.
    #[error("the probe was cut short; it printed: {0}")]
    Cut(String),
    /// A line is malformed.
    #[error("the probe printed a line that is not understood: {0}")]
    Line(String),
}

/// A piece of a foreign text that can be shown.
fn shown(s: &str) -> String {
    s.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Facts of a host from the output of its probe. `now_ms` is the time of the machine that asks, at the middle of the
/// question, in milliseconds since 1970.
///
/// # Errors
/// The output is too long, cut short, or malformed.
pub fn parse(text: &str, now_ms: i64) -> Result<HostFacts, ProbeError> {
    if text.len() > PROBE_BYTES_MAX {
        return Err(ProbeError::TooLong);
    }
    if text.lines().last() != Some("end") {
        return Err(ProbeError::Cut(shown(text)));
    }
    let mut p = Parser { facts: HostFacts::default(), labelled: BTreeSet::new(), lsblk: None, now_ms };
    for line in text.lines().take(LINES_MAX) {
        let words: Vec<&str> = line.split('\t').collect();
        let long = words.iter().any(|w| w.len() > WORD_MAX) && words[0] != "lsblk";
        if long || p.line(&words).is_none() {
            return Err(ProbeError::Line(shown(line)));
        }
    }
    p.end()
}

struct Parser<'a> {
    facts: HostFacts,
    labelled: BTreeSet<String>,
    lsblk: Option<&'a str>,
    now_ms: i64,
}

fn word(s: &str) -> Option<String> {
    (!s.is_empty() && !s.chars().any(char::is_control)).then(|| s.to_owned())
}

fn path(s: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+@".contains(c);
    (s.starts_with('/') && s.chars().all(plain)).then(|| s.to_owned())
}

impl<'a> Parser<'a> {
    /// Takes a line; `None` if it is malformed.
    fn line(&mut self, words: &[&'a str]) -> Option<()> {
        let f = &mut self.facts;
        match words {
            ["" | "end"] => {}
            ["time", ns] => {
                let ms = ns.parse::<i64>().ok()? / 1_000_000;
                f.clock_ms = ms.checked_sub(self.now_ms)?;
            }
            ["root"] => f.is_root = true,
            ["systemd"] => f.has_systemd = true,
            ["system", name, _] => f.system = word(name)?,
            ["package", name, version] => {
                f.packages.insert(word(name)?, word(version)?);
            }
            ["program", digest] => f.program = Some(word(digest)?),
            ["conf", digest, fsid, state] => {
                let (fsid, has_etcd) = ((*fsid).to_owned(), *state == "etcd");
                f.conf = Some(ConfFact { digest: word(digest)?, fsid, has_etcd });
            }
            ["bootstrap"] => f.has_bootstrap_key = true,
            ["admin"] => f.has_admin_key = true,
            ["certificate", digest] => f.certificate = Some(word(digest)?),
            ["etcd", name, initial] => {
                f.etcd.insert(word(name)?, (*initial).to_owned());
            }
            ["state", name] => {
                f.states.insert(word(name)?);
            }
            ["key", kind, id] => {
                f.keys.insert((word(kind)?, word(id)?));
            }
            ["store", id, at] => f.stores.push(StoreFact { id: id.parse().ok()?, path: path(at)? }),
            ["making", at] => {
                f.making.insert(path(at)?);
            }
            ["link", from, to] => {
                f.links.insert(path(from)?, path(to)?);
            }
            ["unit", name, active, program, conf] => {
                let active = *active == "active" || *active == "activating" || *active == "reloading";
                let unit = Unit { active, old_program: *program == "other", old_conf: *conf == "newer" };
                f.units.insert(word(name)?, unit);
            }
            ["lsblk", json] => self.lsblk = Some(json),
            ["label", at] => {
                self.labelled.insert(path(at)?);
            }
            ["file", at, _, data] => {
                // Names that no rule makes are of no interest.
                if let Some(path) = path(at) {
                    f.files.push(FileFact { path, has_data: *data == "data" });
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn end(mut self) -> Result<HostFacts, ProbeError> {
        if let Some(json) = self.lsblk {
            let bad = || ProbeError::Line(shown(json));
            let found: Vec<Device> = devices::parse(json, &self.labelled).ok_or_else(bad)?;
            self.facts.devices = found;
        }
        // A store that is not finished is made again.
        let making = &self.facts.making;
        self.facts.stores.retain(|s| !making.contains(&s.path));
        self.facts.stores.sort_unstable_by_key(|s| s.id);
        Ok(self.facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "time\t1000500000000\nroot\nsystem\tdebian 12\tx86_64\nsystemd\n\
        package\tbelemnite\t0.1.0\nprogram\tabc\nconf\tdef\tf-s-i-d\tetcd\nbootstrap\nadmin\ncertificate\tca\netcd\tone\tone=https://10.0.0.1:2380\nmaking\t/dev/sdc\nstore\t7\t/dev/sdc\n\
        link\t/dev/disk/by-id/x\t/dev/sda\n\
        key\tmds\tone\nstore\t12\t/dev/sdb\nstore\t3\t/dev/sda\n\
        unit\tbelemnite-osd@3\tactive\tother\tnewer\nunit\tceph-mds@one\tfailed\tnone\tread\n\
        lsblk\t{\"blockdevices\":[]}\nfile\t/x/a b\t4\tdata\nfile\t/x/c\t4\tdata\nend\n";

    #[test]
    fn a_probe_is_understood() {
        let f = parse(SAMPLE, 1_000_000).unwrap();
        assert_eq!(f.clock_ms, 500);
        assert!(f.is_root && f.has_systemd && f.has_bootstrap_key && f.has_admin_key);
        assert_eq!(f.stores.iter().map(|s| s.id).collect::<Vec<_>>(), [3, 12]);
        let unit = &f.units["belemnite-osd@3"];
        assert!(unit.active && unit.old_program && unit.old_conf && !f.runs("ceph-mds@one"));
        assert_eq!(f.files, [FileFact { path: "/x/c".into(), has_data: true }]);
        let conf = f.conf.unwrap();
        assert!(conf.fsid == "f-s-i-d" && conf.has_etcd);
    }

    #[test]
    fn malformed_output_is_an_error() {
        assert_eq!(parse("", 0), Err(ProbeError::Cut(String::new())));
        assert!(matches!(parse("time\t1\nsudo: a password is required", 0), Err(ProbeError::Cut(_))));
        for bad in ["time\tx", "store\t1\t/dev/$(reboot)", "store\t-1\t/dev/a", "what\t1", "lsblk\t{", "label\tx"] {
            let e = parse(&format!("{bad}\nend\n"), 0);
            assert!(matches!(e, Err(ProbeError::Line(_))), "{bad}: {e:?}");
        }
        assert_eq!(parse(&"x".repeat(PROBE_BYTES_MAX + 1), 0), Err(ProbeError::TooLong));
        assert!(matches!(parse(&format!("program\t{}\nend", "x".repeat(600)), 0), Err(ProbeError::Line(_))));
    }

    proptest! {
        #[test]
        fn any_text_gives_facts_or_an_error(lines in prop::collection::vec("[a-z]{0,8}(\t[ -~]{0,9}){0,4}", 0..9)) {
            let _ = parse(&(lines.join("\n") + "\nend"), 0);
        }
    }
}
