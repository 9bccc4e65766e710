//! Inventories from those of an existing Ceph cluster: what cephadm exports (`ceph orch ls --export`,
//! `ceph orch host ls`), or the files of ceph-ansible.
//!
//! Statements that the inventory has words for are written as such; every other one becomes a note. A rule for devices that would
//! select others than Ceph's does, or leave out encryption, is written as a comment: the operator decides.
//!
//! | module | contents |
//! | --- | --- |
//! | `ansible` | inventories and variables of ceph-ansible |
//! | `devices` | rules for devices, from cephadm's drive groups and ceph-ansible's lists |
//! | `draft` | parts of an inventory that is being written |
//! | `ini` | inventories of Ansible in their older form: sections of hosts, of variables, and of other sections |
//! | `orch` | hosts and services of cephadm: `ceph orch host ls` and `ceph orch ls --export`, as YAML or JSON |
//! | `write` | the text of an inventory |
//! | `yaml` | YAML and JSON as trees |

mod ansible;
mod devices;
mod draft;
mod ini;
mod orch;
mod write;
mod yaml;

use crate::inventory::{Inventory, InventoryError};
use draft::Draft;
use yaml::Node;

/// Most bytes of a file.
pub const FILE_MAX: usize = 2 << 20;
/// Most files.
const FILES_MAX: usize = 256;

/// A file of an existing cluster.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its path. In `group_vars` and `host_vars` it says whose variables the file has.
    pub name: &'a str,
    /// Its contents.
    pub text: &'a str,
}

/// An inventory that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The inventory, with the notes as comments at its start.
    pub text: String,
    /// Statements that do not map, and choices that the operator has to check.
    pub notes: Vec<String>,
    /// Gaps of the inventory before it can be used.
    pub lacks: Option<InventoryError>,
}

/// Error in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {what}")]
pub struct ImportError {
    name: String,
    what: String,
}

impl ImportError {
    fn new(name: &str, what: impl Into<String>) -> Self {
        Self { name: name.into(), what: what.into() }
    }
}

/// Contents of a file.
enum Kind {
    /// Hosts and services of cephadm.
    Orch(Vec<Node>),
    /// An inventory of Ansible.
    Hosts(Node),
    /// The same in its older form.
    Ini,
    /// Variables of Ansible.
    Variables(Node),
}

/// True if a map has the groups of an inventory of Ansible.
fn has_groups(n: &Node) -> bool {
    let part = |k: &str| ["hosts", "children", "vars"].contains(&k);
    let is_group = |g: &Node| match g {
        Node::Null => true,
        Node::Map(m) => m.iter().all(|(k, _)| part(k)),
        _ => false,
    };
    n.entries().all(|(_, g)| is_group(g)) && n.entries().any(|(_, g)| g.entries().len() > 0)
}

fn kind(s: Source<'_>) -> Result<Kind, ImportError> {
    if s.text.len() > FILE_MAX {
        return Err(ImportError::new(s.name, format!("it has more than {FILE_MAX} bytes")));
    }
    if ini::is_ini(s.text) {
        return Ok(Kind::Ini);
    }
    let mut all = Vec::new();
    for d in yaml::parse(s.name, s.text)? {
        match d {
            Node::List(l) => all.extend(l),
            Node::Null => {}
            d => all.push(d),
        }
    }
    let is_orch = |n: &Node| n.get("service_type").is_some() || n.get("hostname").is_some();
    if !all.is_empty() && all.iter().all(is_orch) {
        return Ok(Kind::Orch(all));
    }
    match all.len() {
        0 => Ok(Kind::Variables(Node::Map(Vec::new()))),
        1 if has_groups(&all[0]) => Ok(Kind::Hosts(all.remove(0))),
        1 if matches!(all[0], Node::Map(_)) => Ok(Kind::Variables(all.remove(0))),
        _ => {
            let what = "neither services or hosts of `ceph orch`, nor hosts or variables of Ansible";
            Err(ImportError::new(s.name, what))
        }
    }
}

/// Writes an inventory from files of an existing cluster.
///
/// # Errors
/// A file is too large, malformed, or of none of the known kinds.
pub fn import(sources: &[Source<'_>]) -> Result<Imported, ImportError> {
    if sources.is_empty() || sources.len() > FILES_MAX {
        return Err(ImportError::new("import", format!("1 to {FILES_MAX} files are read at a time")));
    }
    let (mut services, mut ansible) = (Vec::new(), ansible::Ansible::default());
    for s in sources {
        match kind(*s)? {
            Kind::Orch(all) => services.extend(all.into_iter().map(|n| (s.name.to_owned(), n))),
            Kind::Hosts(n) => ansible.hosts(s.name, &n)?,
            Kind::Ini => ini::read(&mut ansible, s.name, s.text)?,
            Kind::Variables(n) => ansible.variables(s.name, &n)?,
        }
    }
    let mut draft = Draft::default();
    orch::read(&mut draft, &services)?;
    ansible.read(&mut draft)?;
    let names: Vec<&str> = sources.iter().map(|s| s.name).collect();
    let text = write::inventory(&mut draft, &names);
    let lacks = Inventory::parse(&text).err();
    Ok(Imported { text, notes: draft.notes, lacks })
}

#[cfg(test)]
mod tests;
