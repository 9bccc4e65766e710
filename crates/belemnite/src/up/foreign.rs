//! Ceph daemons that `up` starts and supervises: where their programs are (on this machine or in a debootstrap root),
//! and how they are started.
//!
//! Such a daemon does not watch its standard input. `setpriv` makes the kernel end it with this process, and SIGTERM
//! stops it. In a root it sees only the root's files, so its files are below `ROOT/var/lib/belemnite/FSID`; otherwise
//! they are in the cluster's directory.

use super::Error;
use super::dir::write_private;
use super::layout::Layout;
use super::plan::Plan;
use super::supervisor::Spec;
use client::Client;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Directories of Debian's programs.
const PLACES: [&str; 4] = ["usr/bin", "usr/sbin", "usr/local/bin", "bin"];

/// A Ceph program and its root.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// Root directory to run in; `None` for this machine's.
    root: Option<PathBuf>,
    /// Path of the program in the root.
    program: PathBuf,
}

fn is_program(p: &Path) -> bool {
    p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

impl Foreign {
    /// Finds a program of the Debian package `package`; the error says what to install.
    pub(crate) fn find(root: Option<&Path>, program: &str, package: &str) -> Result<Self, String> {
        let base = root.unwrap_or(Path::new("/"));
        if root.is_some() && !base.is_dir() {
            return Err(format!("--ceph-root {}: no such directory", base.display()));
        }
        for place in PLACES {
            let inside = Path::new("/").join(place).join(program);
            if is_program(&base.join(place).join(program)) {
                return Ok(Self { root: root.map(Path::to_owned), program: inside });
            }
        }
        Err(match root {
            None => format!(
                "{program} is not installed. Debian: apt install {package}; or name a root that has it with --ceph-root DIR \
                 (debootstrap sid DIR && chroot DIR apt install {package})"
            ),
            Some(d) => format!("{program} is not in {}: chroot {} apt install {package}", d.display(), d.display()),
        })
    }

    /// The directory for the cluster's files in the root, by its path outside the root.
    pub(crate) fn dir(&self, l: &Layout, fsid: &str) -> PathBuf {
        match &self.root {
            None => l.dir.clone(),
            Some(r) => r.join("var/lib/belemnite").join(fsid),
        }
    }

    /// The same path as seen inside the root.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        match &self.root {
            None => path.to_owned(),
            Some(r) => Path::new("/").join(path.strip_prefix(r).unwrap_or(path)),
        }
    }

    /// Start command of a daemon of a type (`mds`, `mgr`), with the files made by [`Foreign::prepare`] and
    /// [`Foreign::make_key`].
    pub(crate) fn daemon(&self, kind: &str, id: &str, p: &Plan, l: &Layout) -> Spec {
        let dir = self.dir(l, &p.fsid);
        let name = format!("{kind}.{id}");
        let data = self.inside(&dir.join(&name));
        let at = |what: &str, path: &Path| format!("--{what}={}", path.display());
        let args = vec![
            "-f".into(),
            "-i".into(),
            id.to_owned(),
            "-c".into(),
            self.inside(&dir.join("ceph.conf")).display().to_string(),
            at("keyring", &data.join("keyring")),
            at(&format!("{kind}_data"), &data),
            at("admin_socket", &self.inside(&dir.join("run")).join(format!("{name}.asok"))),
            format!("--public_addr={}", p.ip),
            "--pid_file=".into(),
            "--log_to_file=false".into(),
            "--log_to_stderr=true".into(),
        ];
        self.spec(&name, args)
    }

    /// Makes the daemons' directory with a configuration.
    pub(crate) fn prepare(&self, p: &Plan, l: &Layout) -> Result<(), Error> {
        let dir = self.dir(l, &p.fsid);
        fs::create_dir_all(dir.join("run"))?;
        if dir != l.dir {
            write_private(&dir.join("ceph.conf"), &p.conf(l))?;
        }
        Ok(())
    }

    /// Makes a daemon's directory with its key; `caps` has service names and their caps in turn.
    pub(crate) async fn make_key(
        &self,
        c: &Client,
        name: &str,
        caps: &[&str],
        p: &Plan,
        l: &Layout,
    ) -> Result<(), Error> {
        let ring = ask(c, json!({ "prefix": "auth get-or-create", "entity": name, "caps": caps })).await?;
        let data = self.dir(l, &p.fsid).join(name);
        fs::create_dir_all(&data)?;
        write_private(&data.join("keyring"), &String::from_utf8_lossy(&ring))?;
        Ok(())
    }

    /// Start command for these arguments.
    pub(super) fn spec(&self, name: &str, args: Vec<String>) -> Spec {
        let mut all: Vec<String> = vec!["--pdeathsig".into(), "TERM".into()];
        if let Some(r) = &self.root {
            all.extend(["chroot".into(), r.display().to_string()]);
        }
        all.push(self.program.display().to_string());
        all.extend(args);
        Spec { name: name.to_owned(), args: all, program: Some("setpriv".into()) }
    }
}

/// Runs a monitor command and returns its output; an error names the command.
pub(crate) async fn ask(c: &Client, cmd: serde_json::Value) -> Result<Vec<u8>, Error> {
    let r = c.mon_command(&cmd.to_string(), Default::default()).await?;
    if r.rc < 0 {
        return Err(format!("{}: {}", cmd["prefix"].as_str().unwrap_or_default(), r.status).into());
    }
    Ok(r.out.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_named() {
        let dir = std::env::temp_dir().join(format!("belemnite-foreign-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("usr/bin")).unwrap();
        let missing = Foreign::find(Some(&dir), "ceph-mds", "ceph-mds").unwrap_err();
        assert!(missing.contains("apt install ceph-mds") && missing.contains("chroot"), "{missing}");
        let path = dir.join("usr/bin/ceph-mds");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(Foreign::find(Some(&dir), "ceph-mds", "ceph-mds").is_err(), "not executable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let f = Foreign::find(Some(&dir), "ceph-mds", "ceph-mds").unwrap();
        let l = Layout { dir: "/data".into() };
        let home = f.dir(&l, "id");
        assert_eq!(home, dir.join("var/lib/belemnite/id"));
        assert_eq!(f.inside(&home), Path::new("/var/lib/belemnite/id"));
        let s = f.spec("mds.a", vec!["-f".into()]);
        let chroot = dir.display().to_string();
        assert_eq!(s.args, ["--pdeathsig", "TERM", "chroot", &chroot, "/usr/bin/ceph-mds", "-f"]);
        assert!(Foreign::find(None, "no-such-program", "p").unwrap_err().contains("apt install p"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
