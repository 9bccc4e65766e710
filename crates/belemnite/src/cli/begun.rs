//! `belemnite osd add|remove|replace` that were interrupted: they go on when they are run again.
//!
//! Each of their steps is durable, but an OSD that was made is told from one that is still to be made only by what there
//! was before. So the command writes that to `osd-command.json` before its first step, and removes the file after its last
//! one. A command that finds its own file, written while another `up` served, goes on. With the same `up` the earlier
//! command was given up, and the new one begins anew.

use super::operate::{ASK_EVERY, seen};
use crate::up::control::{AskError, Seen};
use crate::up::dir::{self, write_private};
use crate::up::layout::Layout;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

type Error = Box<dyn std::error::Error>;

/// A command that changes the OSDs of `up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Goal {
    /// `osd add`
    Add {
        /// Block device of the new store.
        device: Option<PathBuf>,
        /// Size of the new store's file in bytes.
        size: Option<u64>,
    },
    /// `osd replace`
    Replace {
        /// Id of the OSD.
        osd: u32,
    },
    /// `osd remove`
    Remove {
        /// Id of the OSD.
        osd: u32,
    },
}

/// The state of the cluster when a command began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    goal: Goal,
    /// The `up` that served.
    up: String,
    /// Uuids of the OSDs of `up`, by id.
    osds: BTreeMap<u32, String>,
    /// The replaced OSD is marked in at the end.
    pub(super) marks_in: bool,
}

/// Uuids of the OSDs that the description names, by id.
fn described(l: &Layout) -> Result<BTreeMap<u32, String>, Error> {
    let plan = dir::description(l)?;
    Ok(plan.map(|p| p.osds.into_iter().map(|o| (o.id, o.uuid)).collect()).unwrap_or_default())
}

/// Ends the command that was begun last.
fn forget(l: &Layout) {
    // A file that stays is of use only to the same command under another `up`.
    let _ = std::fs::remove_file(l.osd_command());
}

/// Runs a command that goes on when it is run again after `up` ended.
pub(super) async fn goes_on(l: &Layout, f: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    seen(l).await?;
    let done = while_up_runs(l, f).await;
    // A command that was refused is at its end, too.
    if !done.as_ref().is_err_and(|e| matches!(e.downcast_ref(), Some(AskError::Ended(_)))) {
        forget(l);
    }
    done
}

/// Does something that needs a running `up`.
///
/// # Errors
/// [`AskError::Ended`] if `up` ends meanwhile.
pub(super) async fn while_up_runs<T>(l: &Layout, f: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let is_gone = |r: Result<Seen, Error>| {
        r.is_err_and(|e| matches!(e.downcast_ref(), Some(AskError::NotRunning(_) | AskError::Broken(_))))
    };
    let gone = async {
        while !is_gone(seen(l).await) {
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let ended = || Err(AskError::Ended(l.dir.clone()).into());
    tokio::select! {
        r = f => match r {
            // The failure may be that of a monitor that has ended with `up`.
            Err(_) if is_gone(seen(l).await) => ended(),
            r => r,
        },
        () = gone => ended(),
    }
}

impl Begun {
    /// Begins a command while the `up` of this name serves, or takes up the same command that was interrupted by the end
    /// of an earlier `up`.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn begin(l: &Layout, goal: Goal, up: &str) -> Result<Self, Error> {
        let text = std::fs::read_to_string(l.osd_command()).unwrap_or_default();
        // A damaged file is of no command.
        let before = serde_json::from_str::<Self>(&text).ok().filter(|b| b.goal == goal && b.up != up);
        let me = match before {
            Some(b) => b,
            None => Self { goal, up: up.to_owned(), osds: described(l)?, marks_in: true },
        };
        me.store(l)?;
        Ok(me)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The file system refuses it.
    pub(super) fn store(&self, l: &Layout) -> Result<(), Error> {
        let path = l.osd_command();
        Ok(write_private(&path, &serde_json::to_string(self)?).map_err(|e| format!("{}: {e}", path.display()))?)
    }

    /// The OSD that the command has made before it was interrupted, if it has: a new one, or a replaced one with a new
    /// uuid.
    ///
    /// # Errors
    /// The description cannot be read.
    pub(super) fn made(&self, l: &Layout) -> Result<Option<u32>, Error> {
        let now = described(l)?;
        Ok(match &self.goal {
            Goal::Add { .. } => now.keys().find(|id| !self.osds.contains_key(id)).copied(),
            Goal::Replace { osd } => now.get(osd).filter(|uuid| self.osds.get(osd) != Some(uuid)).map(|_| *osd),
            Goal::Remove { .. } => None,
        })
    }

    /// True if the OSD to be removed was there when the command began, and is gone.
    ///
    /// # Errors
    /// The description cannot be read.
    pub(super) fn removed(&self, l: &Layout) -> Result<bool, Error> {
        let Goal::Remove { osd } = &self.goal else { return Ok(false) };
        Ok(self.osds.contains_key(osd) && !described(l)?.contains_key(osd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::plan;

    struct Dir(Layout);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("belemnite-begun-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Self(Layout { dir })
        }

        /// Writes a description with OSDs of these ids and uuids.
        fn describe(&self, osds: &[(u32, &str)]) {
            let mut p = plan::tests::plan();
            p.osds = osds.iter().map(|(id, uuid)| plan::tests::osd(*id, uuid)).collect();
            dir::store(&p, &self.0).unwrap();
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0.dir);
        }
    }

    const ADD: Goal = Goal::Add { device: None, size: None };

    #[test]
    fn an_interrupted_command_knows_what_it_has_made() {
        let d = Dir::new("made");
        d.describe(&[(0, "a"), (1, "b")]);
        let b = Begun::begin(&d.0, ADD, "first").unwrap();
        assert_eq!(b.made(&d.0).unwrap(), None);
        d.describe(&[(0, "a"), (1, "b"), (2, "c")]);
        let again = Begun::begin(&d.0, ADD, "second").unwrap();
        assert_eq!((again.made(&d.0).unwrap(), &again), (Some(2), &b));
        forget(&d.0);
        assert_eq!(Begun::begin(&d.0, ADD, "second").unwrap().made(&d.0).unwrap(), None, "another OSD");

        let b = Begun::begin(&d.0, Goal::Replace { osd: 1 }, "second").unwrap();
        assert_eq!(b.made(&d.0).unwrap(), None);
        d.describe(&[(0, "a"), (1, "new"), (2, "c")]);
        assert_eq!(b.made(&d.0).unwrap(), Some(1));

        let b = Begun::begin(&d.0, Goal::Remove { osd: 2 }, "second").unwrap();
        assert!(!b.removed(&d.0).unwrap());
        d.describe(&[(0, "a"), (1, "new")]);
        assert!(Begun::begin(&d.0, Goal::Remove { osd: 2 }, "third").unwrap().removed(&d.0).unwrap());
        assert!(!Begun::begin(&d.0, Goal::Remove { osd: 7 }, "third").unwrap().removed(&d.0).unwrap());
    }

    #[test]
    fn a_command_that_was_given_up_begins_anew() {
        let d = Dir::new("given-up");
        d.describe(&[(0, "a")]);
        Begun::begin(&d.0, ADD, "up").unwrap();
        d.describe(&[(0, "a"), (1, "b")]);
        assert_eq!(Begun::begin(&d.0, ADD, "up").unwrap().made(&d.0).unwrap(), None);
        // Another command, or a file that is none.
        let b = Begun::begin(&d.0, Goal::Add { device: None, size: Some(1) }, "next").unwrap();
        assert_eq!(b.made(&d.0).unwrap(), None);
        std::fs::write(d.0.osd_command(), "{").unwrap();
        assert_eq!(Begun::begin(&d.0, ADD, "next").unwrap().made(&d.0).unwrap(), None);
    }
}
