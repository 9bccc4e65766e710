//! CPU and disk limits by control groups, version 2 or 1, whichever the machine has.

use std::fs;
use std::path::{Path, PathBuf};

/// Mount point of control groups.
const ROOT: &str = "/sys/fs/cgroup";
/// CPU quota period of a group, in microseconds.
const PERIOD: u64 = 50_000;

/// Error of setting a limit.
#[derive(Debug, thiserror::Error)]
#[error("limits need writable control groups (run as root): {path}: {source}")]
pub struct LimitError {
    /// File that could not be written.
    path: String,
    /// Cause.
    source: std::io::Error,
}

/// A control group with limits; removed when dropped.
#[derive(Debug)]
pub(super) struct Group {
    dirs: Vec<PathBuf>,
}

fn write(path: &Path, text: &str) -> Result<(), LimitError> {
    fs::write(path, text).map_err(|source| LimitError { path: path.display().to_string(), source })
}

fn make(dir: &Path) -> Result<(), LimitError> {
    match fs::create_dir(dir) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(LimitError { path: dir.display().to_string(), source })
        }
        _ => Ok(()),
    }
}

impl Group {
    /// Makes a group limited to `cores` (0: unlimited) and to the given bytes per second, read and written, of a disk.
    pub(super) fn new(name: &str, cores: f64, disk: Option<(&str, u64)>) -> Result<Self, LimitError> {
        let root = Path::new(ROOT);
        let v2 = root.join("cgroup.controllers").exists();
        let quota = (cores * PERIOD as f64) as u64;
        let mut g = Self { dirs: Vec::new() };
        if v2 {
            // Enabling fails if the controllers are enabled already, or if only an administrator may do it.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu +io");
            let dir = root.join(name);
            make(&dir)?;
            g.dirs.push(dir.clone());
            if cores > 0.0 {
                write(&dir.join("cpu.max"), &format!("{quota} {PERIOD}"))?;
            }
            if let Some((dev, bytes)) = disk {
                write(&dir.join("io.max"), &format!("{dev} rbps={bytes} wbps={bytes}"))?;
            }
            return Ok(g);
        }
        if cores > 0.0 {
            let dir = root.join("cpu").join(name);
            make(&dir)?;
            g.dirs.push(dir.clone());
            write(&dir.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
            write(&dir.join("cpu.cfs_quota_us"), &quota.to_string())?;
        }
        if let Some((dev, bytes)) = disk {
            let dir = root.join("blkio").join(name);
            make(&dir)?;
            g.dirs.push(dir.clone());
            for what in ["read", "write"] {
                write(&dir.join(format!("blkio.throttle.{what}_bps_device")), &format!("{dev} {bytes}"))?;
            }
        }
        Ok(g)
    }

    /// Moves a process into the group; its future children belong to the group, too.
    pub(super) fn add(&self, pid: u32) -> Result<(), LimitError> {
        self.dirs.iter().try_for_each(|d| write(&d.join("cgroup.procs"), &pid.to_string()))
    }

    /// CPU periods in which the group ran, and the number of them in which it was throttled.
    pub(super) fn throttled(&self) -> (u64, u64) {
        let mut out = (0, 0);
        for d in &self.dirs {
            let text = fs::read_to_string(d.join("cpu.stat")).unwrap_or_default();
            for l in text.lines() {
                match l.split_once(' ') {
                    Some(("nr_periods", n)) => out.0 = n.parse().unwrap_or(0),
                    Some(("nr_throttled", n)) => out.1 = n.parse().unwrap_or(0),
                    _ => {}
                }
            }
        }
        out
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for d in &self.dirs {
            // A group with processes cannot be removed: move them to the parent group.
            let parent = d.parent().map(|p| p.join("cgroup.procs"));
            for pid in fs::read_to_string(d.join("cgroup.procs")).unwrap_or_default().lines() {
                if let Some(p) = &parent {
                    let _ = fs::write(p, pid);
                }
            }
            let _ = fs::remove_dir(d);
        }
    }
}

/// `MAJOR:MINOR` of the whole disk that holds a file; limits apply to disks, not to partitions.
pub(super) fn device_of(path: &Path) -> std::io::Result<String> {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    let m = fs::metadata(path)?;
    let dev = if m.file_type().is_block_device() { m.rdev() } else { m.dev() };
    let (major, minor) = ((dev >> 8) & 0xfff | (dev >> 32) & !0xfff, dev & 0xff | (dev >> 12) & !0xff);
    let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if sys.join("partition").exists()
        && let Ok(whole) = fs::read_to_string(sys.join("../dev"))
    {
        return Ok(whole.trim().to_owned());
    }
    Ok(format!("{major}:{minor}"))
}
