//! Removes the leftovers of a laboratory that was killed: processes, files, network namespaces.

use super::deploy::PIDS;
use crate::host::command;
use std::fs;
use std::path::Path;

/// Cleans below a folder of cluster directories; returns a line for each action.
pub fn clean(work: &Path) -> Vec<String> {
    let mut said = Vec::new();
    for e in fs::read_dir(work).into_iter().flatten().flatten() {
        let dir = e.path();
        let name = e.file_name().to_string_lossy().into_owned();
        let Some((port, owner)) = name.strip_prefix("lab-").and_then(|n| n.split_once('-')) else { continue };
        if is_laboratory(owner) {
            said.push(format!("{} belongs to a run that goes on", dir.display()));
            continue;
        }
        for pid in fs::read_to_string(dir.join(PIDS)).unwrap_or_default().lines() {
            // The process id may have been reused: the process is ours only if its command line names the folder.
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if line.contains(&name)
                && let Ok(pid) = pid.parse()
            {
                command::signal(pid, "KILL");
                said.push(format!("ended process {pid} of {name}"));
            }
        }
        super::services::unmount(&dir);
        match fs::remove_dir_all(&dir) {
            Ok(()) => said.push(format!("removed {}", dir.display())),
            Err(e) => said.push(format!("{}: {e}", dir.display())),
        }
        for e in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            let ns = e.file_name().to_string_lossy().into_owned();
            if ns.starts_with(&format!("lab{port}n")) {
                let _ = std::process::Command::new("ip").args(["netns", "del", &ns]).status();
                said.push(format!("removed namespace {ns}"));
            }
        }
        if Path::new(&format!("/sys/class/net/lab{port}")).exists() {
            let _ = std::process::Command::new("ip").args(["link", "del", &format!("lab{port}")]).status();
        }
    }
    said
}

/// Whether the laboratory process that made a folder is still running.
fn is_laboratory(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|l| l.split('\0').any(|w| w == "lab"))
}
