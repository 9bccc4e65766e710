//! The host: where its OSDs are, and how their daemons are started and stopped.

use super::activate::places;
use super::crypt::{self, Container};
use super::{Error, store};
use crate::admin::StoreLabels;
use crate::conf::Conf;
use std::fs::{self, File, TryLockError};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Configuration that units read.
const CONF_OF_UNITS: &str = "/etc/ceph/ceph.conf";

/// Name of an OSD's unit.
pub(super) fn unit(id: u32) -> String {
    format!("belemnite-osd@{id}.service")
}

/// Runs systemctl.
///
/// # Errors
/// It fails; the text is its own.
pub(super) fn systemctl(args: &[&str]) -> Result<(), Error> {
    let out = Command::new("systemctl").args(args).output().map_err(|e| format!("systemctl: {e}"))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(format!("systemctl {}: {}", args.join(" "), why.trim()).into());
    }
    Ok(())
}

/// The OSDs of this host, by its configuration.
pub(super) struct Host {
    pub(super) conf: Conf,
    /// Path of the configuration.
    pub(super) conf_path: PathBuf,
    /// The cluster.
    pub(super) fsid: String,
}

impl Host {
    /// # Errors
    /// The configuration cannot be read, or names no cluster.
    pub(super) fn new(conf_path: PathBuf) -> Result<Self, Error> {
        if conf_path.parent().is_some_and(|d| d.join("cluster.json").exists()) {
            return Err(format!(
                "{} is of a cluster that `belemnite up` runs; `belemnite osd add` makes its OSDs",
                conf_path.display()
            )
            .into());
        }
        let conf = Conf::load(&conf_path)?;
        let shown = conf_path.display();
        let fsid = conf.get("osd", "0", "fsid").ok_or_else(|| format!("{shown}: no fsid"))?;
        Ok(Self { conf, conf_path, fsid })
    }

    /// True if systemd runs the OSDs of this configuration.
    pub(super) fn has_units(&self) -> bool {
        Path::new("/run/systemd/system").is_dir() && self.conf_path == Path::new(CONF_OF_UNITS)
    }

    /// Data directory of an OSD, and its block file.
    pub(super) fn places(&self, id: u32) -> (PathBuf, PathBuf) {
        places(&self.conf, id)
    }

    /// Directory of the OSDs' data directories.
    pub(super) fn osds(&self) -> PathBuf {
        let (data, _) = self.places(0);
        data.parent().map_or_else(|| "/var/lib/ceph/osd".into(), Path::to_owned)
    }

    /// Ids of the OSDs with a data directory here, in order.
    pub(super) fn ids(&self) -> Vec<u32> {
        let name = |e: fs::DirEntry| e.file_name().to_string_lossy().into_owned();
        let number = |n: String| n[n.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1)..].parse::<u32>().ok();
        let found = fs::read_dir(self.osds()).into_iter().flatten().flatten();
        let is_data = |id: &u32| self.places(*id).0.is_dir();
        let mut ids: Vec<u32> = found.filter_map(|e| number(name(e))).filter(is_data).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The container that an encrypted OSD's store is in.
    pub(super) fn container(&self, id: u32) -> Option<Container> {
        let (data, block) = self.places(id);
        Container::of(&data, &block)
    }

    /// The file or device of an OSD's store; with dm-crypt the device below the mapping.
    pub(super) fn device(&self, id: u32) -> PathBuf {
        self.container(id).map_or_else(|| self.places(id).1, |c| c.device)
    }

    /// Line that starts an OSD in the foreground.
    pub(super) fn start_line(&self, id: u32) -> String {
        let program = match self.conf_path == Path::new(CONF_OF_UNITS) {
            true => "belemnite".to_owned(),
            false => format!("belemnite --conf {}", self.conf_path.display()),
        };
        // Only root opens a mapping, and without systemd the daemon runs as the account that starts it.
        let opens = self.container(id).map(|_| format!("{program} osd activate {id} --account root && "));
        format!("{}{program} osd -i {id}", opens.unwrap_or_default())
    }

    /// Starts an OSD as a process of its own, with its log in the data directory. Returns its process id.
    ///
    /// # Errors
    /// The process or its log cannot be made.
    pub(super) fn spawn(&self, id: u32) -> Result<u32, Error> {
        let path = self.places(id).0.join("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(|e| format!("{}: {e}", path.display()))?;
        let child = Command::new(std::env::current_exe()?)
            .arg("--conf")
            .arg(&self.conf_path)
            .args(["osd", "-i", &id.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(child.id())
    }

    /// Stops the daemon of an OSD and keeps systemd from starting it again.
    ///
    /// # Errors
    /// It runs, and systemd did not start it.
    pub(super) fn stop(&self, id: u32) -> Result<(), Error> {
        if self.has_units() {
            systemctl(&["disable", "--now", &unit(id)])?;
        }
        if is_in_use(&self.places(id).1) {
            return Err(format!("osd.{id} runs on this host, without its unit; stop it, and try again").into());
        }
        Ok(())
    }

    /// Labels of the store of an OSD with a data directory here.
    pub(super) fn labels(&self, id: u32) -> Result<StoreLabels, Error> {
        labels_at(&self.device(id))
    }
}

/// Labels of the store on a file or device, or of the OSD whose container is on it.
pub(super) fn labels_at(path: &Path) -> Result<StoreLabels, Error> {
    if let Some(l) = crypt::labels_at(path) {
        return Ok(l);
    }
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    store::labels(&file).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// True if a daemon holds the lock of a store.
pub(super) fn is_in_use(path: &Path) -> bool {
    File::open(path).is_ok_and(|f| matches!(f.try_lock(), Err(TryLockError::WouldBlock)))
}

/// A file or device without links.
///
/// # Errors
/// Its directory does not exist.
pub(super) fn real_path(path: &Path) -> Result<PathBuf, Error> {
    let shown = |e: std::io::Error| format!("{}: {e}", path.display());
    match fs::canonicalize(path) {
        Ok(p) => Ok(p),
        // A file to be made.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let path = std::path::absolute(path).map_err(shown)?;
            let name = path.file_name().ok_or_else(|| format!("{}: not a file name", path.display()))?;
            let dir = path.parent().unwrap_or(Path::new("/"));
            Ok(fs::canonicalize(dir).map_err(shown)?.join(name))
        }
        Err(e) => Err(shown(e).into()),
    }
}

/// A path of a device that stays its own when devices get other names at the next boot; the given one if there is
/// none.
pub(super) fn lasting_path(device: &Path) -> PathBuf {
    let links = fs::read_dir("/dev/disk/by-id").into_iter().flatten().flatten().map(|e| e.path());
    let mut links: Vec<PathBuf> = links.filter(|l| fs::canonicalize(l).is_ok_and(|p| p == device)).collect();
    links.sort_unstable();
    links.into_iter().next().unwrap_or_else(|| device.to_owned())
}
