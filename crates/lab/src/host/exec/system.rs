//! The system under test and the place of its programs: Belemnite is one program, which has the floor as well; Ceph's
//! are on this machine or in a root directory.

use super::ExecError;
use crate::host::command;
use crate::plan::keys;
use std::path::{Path, PathBuf};

/// The system under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum System {
    Belemnite,
    Ceph {
        root: PathBuf,
    },
    Existing {
        conf: PathBuf,
    },
    /// Our monitor, and the floor's servers as OSDs.
    Floor,
}

impl System {
    pub(super) fn parse(s: &str) -> Self {
        match s.split_once(':') {
            Some(("existing", conf)) => Self::Existing { conf: conf.into() },
            Some((_, root)) => Self::Ceph { root: root.into() },
            None if keys::is_floor(s) => Self::Floor,
            None if s == "ceph" => Self::Ceph { root: "/".into() },
            None => Self::Belemnite,
        }
    }
}

impl System {
    /// Whether the daemons are of our program.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Belemnite | Self::Floor)
    }

    /// Program and arguments of a daemon or of the tool that makes it; `kind` is `mon`, `mgr`, `osd` or a program's name.
    pub(super) fn command(
        &self,
        binary: &Path,
        kind: &str,
        args: &[String],
    ) -> Result<(String, Vec<String>), ExecError> {
        match self {
            Self::Belemnite | Self::Floor => {
                let words: &[&str] = match (self, kind) {
                    (Self::Floor, "osd") => &["lab", "floor"],
                    _ => &[kind],
                };
                let mut all: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
                all.extend_from_slice(args);
                Ok((binary.display().to_string(), all))
            }
            Self::Ceph { root } => {
                let name = if matches!(kind, "mon" | "mgr" | "osd") { format!("ceph-{kind}") } else { kind.to_owned() };
                let program = command::find(root, &name)
                    .ok_or_else(|| ExecError::Missing { program: name.clone(), root: root.clone() })?;
                if root == Path::new("/") {
                    return Ok((program.display().to_string(), args.to_vec()));
                }
                let mut all = vec![root.display().to_string(), program.display().to_string()];
                all.extend_from_slice(args);
                Ok(("chroot".into(), all))
            }
            Self::Existing { .. } => Err(ExecError::Plan("an existing cluster is not started".into())),
        }
    }

    /// The system whose programs serve S3 and files: Ceph's own in all cases, this machine's for Belemnite.
    pub(super) fn of_services(&self) -> Self {
        match self {
            Self::Belemnite | Self::Floor => Self::Ceph { root: "/".into() },
            other => other.clone(),
        }
    }
}
