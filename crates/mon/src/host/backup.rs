//! Exports of the state while the monitor runs: on request, and on a timer.
//!
//! | option | meaning |
//! | --- | --- |
//! | `mon_backup_dir` | directory of the timer's exports; without it there are none |
//! | `mon_backup_interval` | seconds between two exports, default 3600; 0: none |
//! | `mon_backup_keep` | number of newest exports that are kept, default 24 |
//!
//! An export reads the state at one revision through the monitor's own handle, and a thread writes the file. The file is
//! whole or absent.

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use state::{Entry, Range};

use super::MonError;
use super::archive;
use super::bridge::Bridge;

/// Names of the timer's exports begin and end so, with a sortable time between.
const NAME: (&str, &str) = ("state-", ".export");

/// The ranges of the whole state.
pub(super) fn everything() -> Vec<Range> {
    let at = |k: &'static str| Bytes::from_static(k.as_bytes());
    // Maps and log lines are most of a state. Divided, no single read holds up the store for long.
    let cuts = ["", "log/", "osdmap/full/", "osdmap/inc/", "osdmap0"];
    let ends = cuts.iter().skip(1).map(|k| Some(at(k))).chain([None]);
    cuts.iter().zip(ends).map(|(start, end)| Range { start: at(start), end }).collect()
}

/// The settings of the timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    dir: PathBuf,
    interval: Duration,
    keep: usize,
}

impl Timer {
    /// From the configuration; `None` without a timer. Error: a value that is no number.
    pub(super) fn from(config: &BTreeMap<String, String>) -> Result<Option<Self>, MonError> {
        let number = |k: &str, d: u64| {
            let wrong = |v: &String| MonError::Archive(format!("{k} = {v}: not a number"));
            config.get(k).map_or(Ok(d), |v| v.trim().parse().map_err(|_| wrong(v)))
        };
        let (interval, keep) = (number("mon_backup_interval", 3600)?, number("mon_backup_keep", 24)?);
        let dir = config.get("mon_backup_dir").filter(|d| !d.is_empty() && interval > 0);
        Ok(dir.map(|d| Self {
            dir: d.into(),
            interval: Duration::from_secs(interval),
            keep: usize::try_from(keep).unwrap_or(usize::MAX).max(1),
        }))
    }

    /// Exports in the directory, the oldest first.
    fn files(&self) -> Vec<PathBuf> {
        let is_mine = |p: &PathBuf| {
            let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with(NAME.0) && name.ends_with(NAME.1)
        };
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = entries.map(|e| e.path()).filter(is_mine).collect();
        all.sort();
        all
    }

    /// Time until the next export, by the age of the newest file.
    fn wait(&self) -> Duration {
        let age = self.files().last().and_then(|f| f.metadata().ok()?.modified().ok()?.elapsed().ok());
        age.map_or(Duration::ZERO, |a| self.interval.saturating_sub(a))
    }

    fn remove_old(&self) {
        let all = self.files();
        for f in all.iter().take(all.len().saturating_sub(self.keep)) {
            if let Err(error) = std::fs::remove_file(f) {
                tracing::warn!(%error, path = %f.display(), "an old export of the state cannot be removed");
            }
        }
    }
}

/// Writes the records to a new file, which is whole or absent. Error: the file exists, or cannot be written.
fn write_file(path: &Path, records: &[(Bytes, Entry)]) -> Result<usize, MonError> {
    let io = |error| MonError::Io { path: path.display().to_string(), error };
    if path.symlink_metadata().is_ok() {
        return Err(io(std::io::ErrorKind::AlreadyExists.into()));
    }
    let mut tmp = path.as_os_str().to_owned();
    tmp.push(".tmp");
    let tmp = PathBuf::from(tmp);
    match std::fs::remove_file(&tmp) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
        _ => {}
    }
    let written = || {
        let out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tmp).map_err(io)?;
        let sync = out.try_clone().map_err(io)?;
        let n = archive::write_records(records, &path.display().to_string(), &mut BufWriter::new(out))?;
        sync.sync_all().map_err(io)?;
        // Unlike a rename, a link does not replace a file that was made meanwhile.
        std::fs::hard_link(&tmp, path).map_err(io)?;
        Ok(n)
    };
    let r = written();
    let _ = std::fs::remove_file(&tmp);
    r
}

/// Exports the state to a new file, and returns the number of records. Error: the state cannot be read, or the file
/// exists or cannot be written.
pub(super) async fn export(bridge: &Bridge, path: PathBuf) -> Result<usize, MonError> {
    let records = bridge.read_everything().await?;
    let (done, written) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("export".into()).spawn(move || {
        // The requester may be gone.
        let _ = done.send(write_file(&path, &records));
    });
    thread.map_err(|error| MonError::Io { path: "thread".into(), error })?;
    written.await.map_err(|_| MonError::Archive("the export was given up".into()))?
}

/// Makes the timer's exports; never returns.
pub(super) async fn run(bridge: Rc<Bridge>, timer: Option<Timer>) {
    let Some(t) = timer else { return std::future::pending().await };
    loop {
        tokio::time::sleep(t.wait()).await;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&t.dir);
        let now = reactor::clock::read().wall.sec;
        let path = t.dir.join(format!("{}{now:010}{}", NAME.0, NAME.1));
        let done = match made {
            Ok(()) => export(&bridge, path.clone()).await,
            Err(error) => Err(MonError::Io { path: t.dir.display().to_string(), error }),
        };
        match done {
            Ok(records) => {
                tracing::info!(records, path = %path.display(), "the state was exported");
                t.remove_old();
            }
            Err(error) => tracing::warn!(%error, "the state cannot be exported"),
        }
        // A failure is not repeated at once.
        tokio::time::sleep(t.interval.min(Duration::from_secs(60))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_exports_are_kept() {
        let dir = testkit::TempDir::new("backup");
        let config = |keep: &str| {
            let d = dir.display().to_string();
            [("mon_backup_dir", d.as_str()), ("mon_backup_keep", keep)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into()
        };
        let t = Timer::from(&config("2")).unwrap().unwrap();
        assert_eq!(t.wait(), Duration::ZERO);
        for n in ["state-0000000001.export", "state-0000000003.export", "state-0000000002.export", "notes"] {
            std::fs::write(dir.join(n), "x").unwrap();
        }
        assert!(t.wait() > Duration::from_secs(3000));
        t.remove_old();
        let mut left: Vec<_> =
            std::fs::read_dir(&*dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["notes", "state-0000000002.export", "state-0000000003.export"]);
        assert!(Timer::from(&config("two")).is_err());
        assert_eq!(Timer::from(&BTreeMap::new()).unwrap(), None);
        // A file that is there is not replaced.
        assert!(write_file(&dir.join("notes"), &[]).is_err());
        assert_eq!(std::fs::read_to_string(dir.join("notes")).unwrap(), "x");
    }

    #[test]
    fn the_ranges_are_everything_once() {
        let all = everything();
        assert!(all[0].start.is_empty() && all.last().unwrap().end.is_none());
        assert!(all.windows(2).all(|w| w[0].end.as_ref() == Some(&w[1].start) && w[0].start < w[1].start));
    }
}
