//! Daemons of a cluster: started on this machine or on a host, and stopped in an order in which none waits for another.

use super::ExecError;
use super::deploy::{PIDS, io};
use super::remote::{At, Remote};
use crate::host::command;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for a daemon to stop.
const STOP_GRACE: Duration = Duration::from_secs(8);

/// Whether a daemon is a gateway, a metadata server or a mount, which use the cluster.
fn is_service(d: &Daemon) -> bool {
    ["rgw.", "mds.", "fuse."].iter().any(|p| d.name.starts_with(p))
}

/// A daemon and the command that starts it again.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) name: String,
    pub(super) child: Child,
    pub(super) program: String,
    pub(super) args: Vec<String>,
    /// The host on which it runs, and its process id there.
    pub(super) remote: Option<At>,
}

impl Daemon {
    /// The daemon's process. On another host, the child is the connection to it.
    pub(super) fn process(&self) -> At {
        self.remote.clone().unwrap_or_else(|| At { pid: self.child.id(), host: None })
    }

    /// Ends the daemon, by force if it takes too long.
    pub(super) fn stop(&mut self) {
        command::stop(&mut self.child, STOP_GRACE);
    }
}

/// Starts a daemon on this machine.
pub(super) fn spawn(dir: &Path, name: &str, program: &str, args: &[String]) -> Result<Child, ExecError> {
    let log = dir.join("log").join(format!("{name}.out"));
    let out = io(&log, fs::OpenOptions::new().create(true).append(true).open(&log))?;
    let err = io(&log, out.try_clone())?;
    let child = command::start(program, args, |c| {
        c.stdout(Stdio::from(out)).stderr(Stdio::from(err));
    })?;
    let pids = dir.join(PIDS);
    let f = io(&pids, fs::OpenOptions::new().create(true).append(true).open(&pids));
    let _ = f.and_then(|mut f| io(&pids, std::io::Write::write_all(&mut f, format!("{}\n", child.id()).as_bytes())));
    Ok(child)
}

/// Starts a daemon on a host; returns the connection, and the daemon's process there.
pub(super) fn spawn_on(
    dir: &Path,
    host: &Arc<Remote>,
    name: &str,
    program: &str,
    args: &[String],
) -> Result<(Child, At), ExecError> {
    let log = dir.join("log").join(format!("{name}.out"));
    let before = fs::read_to_string(&log).unwrap_or_default().len();
    let file = io(&log, fs::OpenOptions::new().create(true).append(true).open(&log))?;
    let err = io(&log, file.try_clone())?;
    let mut child = command::start(program, args, |c| {
        // The daemon ends when this pipe is closed.
        c.stdin(Stdio::piped()).stdout(Stdio::from(file)).stderr(Stdio::from(err));
    })?;
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let new = text.get(before..).unwrap_or_default();
        if let Some(pid) = new.lines().find_map(|l| l.strip_prefix("pid ")?.trim().parse().ok()) {
            return Ok((child, At { pid, host: Some(host.clone()) }));
        }
        if Instant::now() > end || !matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(ExecError::Plan(format!("host {}: {name} did not start: {}", host.name, new.trim())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stops daemons: services, OSDs, the others.
pub(super) fn stop_all(daemons: &mut Vec<Daemon>) {
    // Services use the OSDs to the end, so they stop before them.
    for d in daemons.iter_mut().rev().filter(|d| is_service(d)) {
        d.stop();
    }
    // OSDs stop all at once: they announce their shutdown to the monitor, which stops last.
    for d in daemons.iter().filter(|d| d.name.starts_with("osd")) {
        d.process().signal("TERM");
    }
    for d in daemons.iter_mut().rev() {
        d.stop();
    }
    daemons.clear();
}
