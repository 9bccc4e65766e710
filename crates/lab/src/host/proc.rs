//! Process statistics from `/proc`.

use std::io;

/// CPU nanoseconds of the live threads of a process; terminated threads no longer count.
///
/// # Errors
/// That of the system if `/proc/PID/task` cannot be listed: `ENOENT` for a process that has ended.
pub fn cpu_nanos(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|e| io::Error::new(e.kind(), format!("process {pid}: {e}")))?;
    for t in tasks {
        let text = std::fs::read_to_string(t?.path().join("schedstat")).unwrap_or_default();
        sum += text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
