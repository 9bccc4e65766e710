//! Processes that an earlier `up` of the directory has left: daemons of an `up` that was killed end by themselves, but
//! hold their stores and ports for a moment longer.

use super::layout::Layout;
use super::say;
use std::path::Path;
use std::time::Duration;

/// Time that they get. What holds a store or a port after that is said by those who need it.
const LEFT_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits until the daemons of an `up` that was killed have ended.
pub(super) async fn wait(l: &Layout) {
    let end = tokio::time::Instant::now() + LEFT_MAX;
    let mut said = false;
    while tokio::time::Instant::now() < end {
        let Some(name) = find(l) else { return };
        if !std::mem::replace(&mut said, true) {
            say(format_args!("waiting for {name} of an `up` that was killed"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The name of a daemon that an earlier `up` started and that runs.
fn find(l: &Layout) -> Option<String> {
    let files = std::fs::read_dir(l.run()).ok()?.flatten().map(|e| e.path());
    let mut pids = files.filter(|p| p.extension().is_some_and(|e| e == "pid"));
    let found = pids.find(|p| {
        let pid = std::fs::read_to_string(p).ok().and_then(|t| t.trim().parse::<u32>().ok());
        pid.is_some_and(|pid| is_ours(pid, &l.dir))
    })?;
    found.file_stem().map(|n| n.to_string_lossy().into_owned())
}

/// True if the process runs for this directory: another may have its number by now.
fn is_ours(pid: u32, dir: &Path) -> bool {
    // A zombie has no arguments.
    let args = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let dir = [dir.as_os_str().as_encoded_bytes(), b"/"].concat();
    args.windows(dir.len()).any(|w| w == dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_daemons_of_the_directory_are_found() {
        let dir = std::env::temp_dir().join(format!("belemnite-left-{}", std::process::id()));
        let l = Layout { dir: dir.clone() };
        std::fs::create_dir_all(l.run()).unwrap();
        // A number that no process has, and that of this process, whose arguments do not name the directory.
        std::fs::write(l.pid("osd.0"), "4194305\n").unwrap();
        std::fs::write(l.pid("osd.1"), format!("{}\n", std::process::id())).unwrap();
        std::fs::write(l.pid("osd.2"), "no number").unwrap();
        assert_eq!(find(&l), None);
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read -r line", &l.conf().display().to_string()])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::fs::write(l.pid("mon.a"), format!("{}\n", child.id())).unwrap();
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while find(&l).is_none() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(find(&l).as_deref(), Some("mon.a"));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(find(&l), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
