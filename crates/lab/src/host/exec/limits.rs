//! Limits on CPU and disk by control groups, of version 2 or 1, whichever the machine has.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// Length of the period in which a group may use its share of CPU, in microseconds.
const PERIOD: u64 = 50_000;

/// Why a limit cannot be set.
#[derive(Debug, thiserror::Error)]
#[error("limits need control groups that this user may make: {path}: {source}")]
pub struct LimitError {
    /// What was to be written.
    path: String,
    /// Why not.
    source: std::io::Error,
}

/// A group of processes with limits; removed when dropped.
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
    /// A group that may use so many cores (0: all), and write and read so many bytes per second of a device.
    pub(super) fn new(name: &str, cores: f64, disk: Option<(&str, u64)>) -> Result<Self, LimitError> {
        let root = Path::new(ROOT);
        let v2 = root.join("cgroup.controllers").exists();
        let quota = (cores * PERIOD as f64) as u64;
        let mut g = Self { dirs: Vec::new() };
        if v2 {
            // Controllers may be enabled already, or by somebody else only.
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

    /// Puts a process and what it starts into the group.
    pub(super) fn add(&self, pid: u32) -> Result<(), LimitError> {
        self.dirs.iter().try_for_each(|d| write(&d.join("cgroup.procs"), &pid.to_string()))
    }

    /// Periods in which the group ran, and those of them in which it had to wait.
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
            // A group with processes left cannot be removed: they go back to where they came from.
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

/// `MAJOR:MINOR` of the disk that holds a file; its partition's disk, which is what limits apply to.
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
