//! A load of builds, as of a kernel: each client unpacks a source tree into a directory of its own on a mounted file
//! system, and builds it there. The times at which the equal clients finish are the result.

use super::proc;
use serde_json::{Map, Value, json};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Builds a tree without a program of its own for that: every C file is compiled by itself.
pub const COMPILE: &str = "find . -name '*.c' | sort | while read -r f; do cc -w -O0 -c -I\"$(dirname \"$f\")\" -o \"${f%.c}.o\" \"$f\" || exit 1; done";

/// A load of builds.
#[derive(Clone, Debug)]
pub struct Builds {
    /// Directories of the file system, in which the clients take turns: one, or a mount for each client.
    pub dirs: Vec<PathBuf>,
    /// Number of clients.
    pub clients: usize,
    /// Archive with the source tree, in a format that `tar` detects.
    pub source: PathBuf,
    /// Shell command that builds the tree, in the directory into which it was unpacked.
    pub command: String,
    /// Pins the directory of client `i` to rank `i` modulo this number, if it is given.
    pub ranks: Option<u64>,
    /// Name of the directory for all clients, below [`Builds::dirs`]; it must not exist.
    pub name: String,
    /// Keep the trees.
    pub keep: bool,
    /// Processes whose CPU is measured.
    pub cpu_of: Vec<u32>,
}

/// Error that ended a load of builds.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The load's description is invalid.
    #[error("{0}")]
    Spec(&'static str),
    /// A file or directory cannot be used.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A command of a client failed.
    #[error("client {client}: {what}: {why}")]
    Command {
        /// Number of the client.
        client: usize,
        /// The command.
        what: String,
        /// Status and last line of its messages.
        why: String,
    },
}

/// Times of a client, in seconds since all clients began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finish {
    /// The tree was unpacked.
    pub unpacked: f64,
    /// The tree was built.
    pub built: f64,
    /// Files in the built tree.
    pub files: u64,
}

/// Result of a load of builds.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Times of each client.
    pub clients: Vec<Finish>,
    /// CPU nanoseconds of each watched process.
    pub cpu: Vec<(u32, u64)>,
}

impl Outcome {
    /// Seconds until the last client finished.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.clients.iter().map(|c| c.built).fold(0.0, f64::max)
    }

    /// All results as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let cpu: Map<String, Value> =
            self.cpu.iter().map(|(pid, n)| (pid.to_string(), json!(*n as f64 / 1e9))).collect();
        let clients: Vec<Value> =
            self.clients.iter().map(|c| json!({"unpacked": c.unpacked, "built": c.built, "files": c.files})).collect();
        json!({"seconds": self.seconds(), "clients": clients, "cpu_seconds": cpu})
    }
}

fn at<T>(path: &Path, r: io::Result<T>) -> Result<T, BuildError> {
    r.map_err(|source| BuildError::Io { path: path.to_owned(), source })
}

/// Runs a command in a directory.
fn command(client: usize, dir: &Path, program: &str, args: &[&str]) -> Result<(), BuildError> {
    let what = std::iter::once(program).chain(args.iter().copied()).collect::<Vec<_>>().join(" ");
    let failed = |why: String| BuildError::Command { client, what: what.clone(), why };
    let out = Command::new(program).args(args).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).output();
    let out = out.map_err(|e| failed(e.to_string()))?;
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    Err(failed(format!("{}; {}", out.status, text.lines().last().unwrap_or_default())))
}

/// Number of files below a directory.
fn files(dir: &Path) -> Result<u64, BuildError> {
    let mut n = 0;
    for e in at(dir, fs::read_dir(dir))? {
        let e = at(dir, e)?;
        if at(dir, e.file_type())?.is_dir() {
            n += files(&e.path())?;
        } else {
            n += 1;
        }
    }
    Ok(n)
}

/// Builds as one client.
fn build(b: &Builds, client: usize, dir: &Path, begin: Instant) -> Result<Finish, BuildError> {
    command(client, dir, "tar", &["-xf", &b.source.display().to_string()])?;
    let unpacked = begin.elapsed().as_secs_f64();
    command(client, dir, "sh", &["-c", &b.command])?;
    Ok(Finish { unpacked, built: begin.elapsed().as_secs_f64(), files: 0 })
}

impl Builds {
    /// Makes and pins the directory of each client.
    fn directories(&self) -> Result<Vec<PathBuf>, BuildError> {
        let mut out = Vec::new();
        for i in 0..self.clients {
            let below = self.dirs.get(i % self.dirs.len().max(1)).ok_or(BuildError::Spec("no directory"))?;
            let all = below.join(&self.name);
            at(&all, fs::create_dir_all(&all))?;
            let own = all.join(format!("c{i}"));
            at(&own, fs::create_dir(&own))?;
            if let Some(ranks) = self.ranks.filter(|n| *n > 0) {
                let rank = (i as u64 % ranks).to_string();
                command(i, &own, "setfattr", &["-n", "ceph.dir.pin", "-v", &rank, "."])?;
            }
            out.push(own);
        }
        Ok(out)
    }

    fn cpu(&self) -> Result<Vec<(u32, u64)>, BuildError> {
        self.cpu_of.iter().map(|p| Ok((*p, at(Path::new("/proc"), proc::cpu_nanos(*p))?))).collect()
    }
}

/// Runs a load of builds. Every client has a thread; all begin at the same time. Error: no clients, a file or directory
/// that cannot be used, or a failed command of a client.
pub fn run(b: &Builds) -> Result<Outcome, BuildError> {
    if b.clients == 0 {
        return Err(BuildError::Spec("clients: at least 1"));
    }
    let b = &Builds { source: at(&b.source, fs::canonicalize(&b.source))?, ..b.clone() };
    let dirs = b.directories()?;
    let before = b.cpu()?;
    let begin = Instant::now();
    let ended: Vec<Result<Finish, BuildError>> = std::thread::scope(|s| {
        let all: Vec<_> = dirs.iter().enumerate().map(|(i, dir)| s.spawn(move || build(b, i, dir, begin))).collect();
        all.into_iter().map(|t| t.join().unwrap_or(Err(BuildError::Spec("a client's thread ended early")))).collect()
    });
    let after = b.cpu()?;
    let mut clients = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (c, dir) in clients.iter_mut().zip(&dirs) {
        c.files = files(dir)?;
    }
    if !b.keep {
        for dir in &dirs {
            at(dir, fs::remove_dir_all(dir))?;
        }
    }
    let cpu = after.iter().zip(&before).map(|((pid, a), (_, b))| (*pid, a.saturating_sub(*b))).collect();
    Ok(Outcome { clients, cpu })
}

/// The archive that a plan's key `source` names: a path, or `crate:NAME` for the newest archive of that crate in
/// Cargo's cache. Error: a text that says where it was looked for.
pub fn find_source(text: &str) -> Result<PathBuf, String> {
    let Some(name) = text.strip_prefix("crate:") else {
        let path = PathBuf::from(text);
        return if path.is_file() { Ok(path) } else { Err(format!("{text}: no such archive of a source tree")) };
    };
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cache = home.unwrap_or_default().join("registry/cache");
    let prefix = format!("{name}-");
    let of = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let is = |p: &PathBuf| {
        let file = p.file_name().and_then(|f| f.to_str()).unwrap_or_default();
        let version = file.strip_prefix(&prefix).and_then(|r| r.strip_suffix(".crate"));
        version.is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
    };
    of(cache.clone()).flat_map(of).filter(is).max().ok_or_else(|| {
        format!(
            "crate {name} is not in {}: `cargo fetch` of a project that uses it brings it, or name an archive of a source tree (load.source)",
            cache.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("lab-build-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(dir.join("tree/sub")).unwrap();
            fs::write(dir.join("tree/a"), "one").unwrap();
            fs::write(dir.join("tree/sub/b"), "two").unwrap();
            command(0, &dir, "tar", &["-czf", "tree.tar.gz", "tree"]).unwrap();
            fs::create_dir(dir.join("mount")).unwrap();
            Self(dir)
        }

        fn builds(&self, command: &str) -> Builds {
            Builds {
                dirs: vec![self.0.join("mount")],
                clients: 3,
                source: self.0.join("tree.tar.gz"),
                command: command.into(),
                ranks: None,
                name: "all".into(),
                keep: false,
                cpu_of: vec![std::process::id()],
            }
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn every_client_unpacks_and_builds_in_its_own_directory() {
        let d = Dir::new("each");
        let b = d.builds("cat tree/a tree/sub/b > tree/out && test ! -e ../done && pwd | grep -q 'all/c[012]$'");
        let o = run(&Builds { keep: true, ..b.clone() }).unwrap();
        assert_eq!(o.clients.iter().map(|c| c.files).collect::<Vec<_>>(), [3, 3, 3]);
        assert!(o.clients.iter().all(|c| 0.0 < c.unpacked && c.unpacked < c.built && c.built <= o.seconds()));
        let out = |i: usize| fs::read_to_string(d.0.join(format!("mount/all/c{i}/tree/out"))).unwrap();
        assert_eq!([out(0), out(1), out(2)], ["onetwo"; 3]);
        let text = o.to_json().to_string();
        let m = crate::result::from_build(&text).unwrap();
        assert_eq!((m.metrics["ops"], m.clients.len(), m.finishes.len()), (9.0, 3, 3));
        assert!(m.metrics["finish_spread"] >= 1.0 && m.cpu.contains_key(&std::process::id()));
        assert!(run(&b).is_err(), "directories that exist are not used");
        fs::remove_dir_all(d.0.join("mount/all")).unwrap();
        run(&b).unwrap();
        assert_eq!(fs::read_dir(d.0.join("mount/all")).unwrap().count(), 0);
    }

    #[test]
    fn failures_name_client_and_command() {
        let d = Dir::new("fails");
        let e = run(&d.builds("echo no such thing >&2; exit 3")).unwrap_err().to_string();
        assert!(e.starts_with("client 0: sh -c ") && e.contains("exit status: 3; no such thing"), "{e}");
        let e = run(&Builds { source: d.0.join("none.tar"), ..d.builds("true") }).unwrap_err().to_string();
        assert!(e.contains("none.tar"), "{e}");
        assert!(run(&Builds { clients: 0, ..d.builds("true") }).is_err());
        assert!(find_source("crate:no-such-crate-at-all").unwrap_err().contains("load.source"));
        assert!(find_source("/no/such/archive.tar").is_err());
        assert!(find_source(&d.0.join("tree.tar.gz").display().to_string()).is_ok());
    }
}
