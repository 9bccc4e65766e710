//! Pools and erasure-code profiles that a run makes in a cluster, and their removal.
//!
//! Invariants:
//!  1. On an existing cluster a pool is removed only if this run made it: the id that the monitor gave it still has the
//!     name that was asked for. A pool that somebody renamed stays.
//!  2. A name that exists already is refused, so a pool or profile of somebody else is never taken for one of the run.
//!  3. Each way out of a run on an existing cluster removes what it made: the next pool, a failure, Ctrl-C. After a killed
//!     run the record in the run's folder names what is left, and `--resume` removes it.
//!
//! Tests: below (1, 2; 3, `leftovers_of_a_killed_run_are_removed_by_its_record`), `interop/tests/lab.sh` (3).

use super::ExecError;
use crate::host::control::{Control, ControlError};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Carries out a monitor command and returns its output.
pub(super) trait Ask {
    /// Error: of the command.
    fn ask(&self, command: &Value) -> Result<Value, ControlError>;
}

impl Ask for Control {
    fn ask(&self, command: &Value) -> Result<Value, ControlError> {
        let reads = ["osd lspools", "osd erasure-code-profile ls"].iter().any(|p| command["prefix"] == **p);
        if reads { self.json(command.clone()) } else { self.run(command, &[]).map(|_| Value::Null) }
    }
}

/// A pool made by the run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MadePool {
    id: i64,
    name: String,
}

#[derive(Debug, Default)]
struct Left {
    pools: Vec<MadePool>,
    profiles: Vec<String>,
}

/// Pools and profiles that a run has made in a cluster and not removed.
#[derive(Debug)]
pub(super) struct Made {
    /// Random part of all names.
    tag: String,
    /// Whether the cluster is the user's, who has pools of his own in it.
    theirs: bool,
    /// File that names what is left, for the time after a killed run.
    record: Option<PathBuf>,
    left: Mutex<Left>,
}

fn pools(c: &dyn Ask) -> Result<Vec<MadePool>, ControlError> {
    let all = c.ask(&json!({"prefix": "osd lspools"}))?;
    let pool = |p: &Value| Some(MadePool { id: p["poolnum"].as_i64()?, name: p["poolname"].as_str()?.to_owned() });
    Ok(all.as_array().into_iter().flatten().filter_map(pool).collect())
}

fn taken(what: &str, name: &str) -> ExecError {
    ExecError::Plan(format!("{what} {name} exists already, and is not of this run: it is left as it is"))
}

impl Made {
    /// For a cluster of the run's own, which is removed as a whole.
    pub(super) fn own(tag: &str) -> Self {
        Self { tag: tag.to_owned(), theirs: false, record: None, left: Mutex::default() }
    }

    /// For an existing cluster; `record` names what is left.
    pub(super) fn theirs(tag: &str, record: PathBuf) -> Self {
        Self { tag: tag.to_owned(), theirs: true, record: Some(record), left: Mutex::default() }
    }

    /// A name for a pool or a profile, unique to this run.
    pub(super) fn name(&self, rest: &str) -> String {
        format!("lab-{}-{rest}", self.tag)
    }

    /// Whether the cluster is the user's.
    pub(super) fn is_theirs(&self) -> bool {
        self.theirs
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the record, or removes it when nothing is left.
    fn note(&self, left: &Left) -> Result<(), ExecError> {
        let Some(path) = &self.record else { return Ok(()) };
        let pools: Vec<Value> = left.pools.iter().map(|p| json!({"id": p.id, "name": p.name})).collect();
        let text = json!({"pools": pools, "profiles": left.profiles}).to_string();
        let done = if left.pools.is_empty() && left.profiles.is_empty() && path.exists() {
            fs::remove_file(path)
        } else {
            fs::write(path, text)
        };
        done.map_err(|source| ExecError::Io { path: path.clone(), source })
    }

    /// Makes a pool by `command`, an `osd pool create` of `name`.
    ///
    /// # Errors
    /// [`ExecError::Plan`] if a pool of the name exists, else that of the command.
    pub(super) fn pool(&self, c: &dyn Ask, name: &str, command: &Value) -> Result<(), ExecError> {
        if self.theirs && pools(c)?.iter().any(|p| p.name == name) {
            return Err(taken("pool", name));
        }
        c.ask(command)?;
        if let Some(p) = pools(c)?.into_iter().find(|p| p.name == name) {
            let mut left = self.left();
            left.pools.push(p);
            self.note(&left)?;
        }
        Ok(())
    }

    /// Makes an erasure-code profile by `command`, an `osd erasure-code-profile set` of `name`, unless this run has.
    ///
    /// # Errors
    /// [`ExecError::Plan`] if somebody else's profile has the name, else that of the command.
    pub(super) fn profile(&self, c: &dyn Ask, name: &str, command: &Value) -> Result<(), ExecError> {
        if self.left().profiles.iter().any(|p| p == name) {
            return Ok(());
        }
        let names = c.ask(&json!({"prefix": "osd erasure-code-profile ls"}))?;
        if self.theirs && names.as_array().into_iter().flatten().any(|n| n == name) {
            return Err(taken("erasure-code profile", name));
        }
        c.ask(command)?;
        let mut left = self.left();
        left.profiles.push(name.to_owned());
        self.note(&left)
    }

    /// Removes those of the pools `names` that this run made.
    ///
    /// # Errors
    /// Of the monitor; the pool then counts as left.
    pub(super) fn remove(&self, c: &dyn Ask, names: &[String]) -> Result<(), ExecError> {
        let ours: Vec<MadePool> = self.left().pools.iter().filter(|p| names.contains(&p.name)).cloned().collect();
        for p in ours {
            if pools(c)?.contains(&p) {
                c.ask(&json!({"prefix": "osd pool rm", "pool": p.name, "pool2": p.name, "yes_i_really_really_mean_it": true}))?;
            }
            let mut left = self.left();
            left.pools.retain(|x| *x != p);
            self.note(&left)?;
        }
        Ok(())
    }

    /// Removes everything that is left on an existing cluster.
    ///
    /// # Errors
    /// Of the monitor; what could not be removed stays in the record.
    pub(super) fn remove_all(&self, c: &dyn Ask) -> Result<(), ExecError> {
        if !self.theirs {
            return Ok(());
        }
        let names: Vec<String> = self.left().pools.iter().map(|p| p.name.clone()).collect();
        self.remove(c, &names)?;
        let profiles = self.left().profiles.clone();
        for name in profiles {
            c.ask(&json!({"prefix": "osd erasure-code-profile rm", "name": name}))?;
            let mut left = self.left();
            left.profiles.retain(|p| *p != name);
            self.note(&left)?;
        }
        Ok(())
    }

    /// Pools and profiles that an earlier, killed run of the same folder left, by its record.
    pub(super) fn of_record(record: &Path) -> Option<Self> {
        let v: Value = serde_json::from_str(&fs::read_to_string(record).ok()?).ok()?;
        let pool = |p: &Value| Some(MadePool { id: p["id"].as_i64()?, name: p["name"].as_str()?.to_owned() });
        let pools = v["pools"].as_array()?.iter().filter_map(pool).collect();
        let profiles = v["profiles"].as_array()?.iter().filter_map(|p| Some(p.as_str()?.to_owned())).collect();
        let left = Mutex::new(Left { pools, profiles });
        Some(Self { tag: String::new(), theirs: true, record: Some(record.to_owned()), left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A monitor with pools, which answers as Ceph's: making a pool that exists is no error.
    #[derive(Default)]
    struct Monitor {
        pools: RefCell<Vec<MadePool>>,
        profiles: RefCell<Vec<String>>,
        last: RefCell<i64>,
        deaf: RefCell<bool>,
    }

    impl Ask for Monitor {
        fn ask(&self, command: &Value) -> Result<Value, ControlError> {
            if *self.deaf.borrow() {
                return Err(ControlError::Cancelled);
            }
            let word = |k: &str| command[k].as_str().unwrap_or_default().to_owned();
            match command["prefix"].as_str().unwrap_or_default() {
                "osd lspools" => {
                    let all = self.pools.borrow();
                    return Ok(all.iter().map(|p| json!({"poolnum": p.id, "poolname": p.name})).collect());
                }
                "osd erasure-code-profile ls" => return Ok(json!(*self.profiles.borrow())),
                "osd pool create" => self.make(&word("pool")),
                "osd pool rm" => self.pools.borrow_mut().retain(|p| p.name != word("pool")),
                "osd erasure-code-profile set" => self.profiles.borrow_mut().push(word("name")),
                "osd erasure-code-profile rm" => self.profiles.borrow_mut().retain(|p| *p != word("name")),
                other => panic!("{other}"),
            }
            Ok(Value::Null)
        }
    }

    impl Monitor {
        fn make(&self, name: &str) {
            if self.names().iter().all(|n| n != name) {
                *self.last.borrow_mut() += 1;
                self.pools.borrow_mut().push(MadePool { id: *self.last.borrow(), name: name.to_owned() });
            }
        }

        fn names(&self) -> Vec<String> {
            self.pools.borrow().iter().map(|p| p.name.clone()).collect()
        }
    }

    fn record(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("belemnite-made-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    fn create(name: &str) -> Value {
        json!({"prefix": "osd pool create", "pool": name})
    }

    #[test]
    fn a_pool_of_somebody_else_is_neither_used_nor_removed() {
        let (m, file) = (Monitor::default(), record("other"));
        m.make("lab1");
        m.make("lab-x-1");
        let made = Made::theirs("x", file.clone());
        let e = made.pool(&m, &made.name("1"), &create("lab-x-1")).unwrap_err().to_string();
        assert!(e.contains("lab-x-1 exists already"), "{e}");
        made.remove(&m, &["lab1".into(), "lab-x-1".into()]).unwrap();
        made.remove_all(&m).unwrap();
        assert_eq!(m.names(), ["lab1", "lab-x-1"]);
        assert!(!file.exists());
    }

    #[test]
    fn a_pool_that_was_renamed_or_made_again_stays() {
        let (m, file) = (Monitor::default(), record("renamed"));
        let made = Made::theirs("x", file);
        for n in ["a", "b"] {
            made.pool(&m, &made.name(n), &create(&made.name(n))).unwrap();
        }
        m.pools.borrow_mut()[0].name = "kept".into();
        // Removed by somebody, who then made a pool of the same name.
        m.pools.borrow_mut().remove(1);
        m.make("lab-x-b");
        made.remove_all(&m).unwrap();
        assert_eq!(m.names(), ["kept", "lab-x-b"]);
    }

    #[test]
    fn leftovers_of_a_killed_run_are_removed_by_its_record() {
        let (m, file) = (Monitor::default(), record("killed"));
        m.make("theirs");
        let made = Made::theirs("x", file.clone());
        made.pool(&m, "lab-x-1", &create("lab-x-1")).unwrap();
        let profile = json!({"prefix": "osd erasure-code-profile set", "name": "lab-x-2-1"});
        for _ in 0..2 {
            made.profile(&m, "lab-x-2-1", &profile).unwrap();
        }
        assert_eq!(m.profiles.borrow().len(), 1, "a profile is made once");
        drop(made);
        let left = Made::of_record(&file).unwrap();
        *m.deaf.borrow_mut() = true;
        assert!(left.remove_all(&m).is_err());
        *m.deaf.borrow_mut() = false;
        Made::of_record(&file).unwrap().remove_all(&m).unwrap();
        assert_eq!(m.names(), ["theirs"]);
        assert!(m.profiles.borrow().is_empty() && !file.exists());
    }

    #[test]
    fn a_profile_of_somebody_else_is_left() {
        let m = Monitor::default();
        m.profiles.borrow_mut().push("lab-x-2-1".into());
        let made = Made::theirs("x", record("profile"));
        let e = made.profile(&m, "lab-x-2-1", &json!({"prefix": "osd erasure-code-profile set", "name": "lab-x-2-1"}));
        assert!(e.unwrap_err().to_string().contains("exists already"));
        made.remove_all(&m).unwrap();
        assert_eq!(m.profiles.borrow().len(), 1);
    }
}
