//! The command `doctor`: what costs this OSD speed or safety on its host, as `belemnite doctor` finds it there.

use super::child;
use base::errno::{EIO, Errno};
use doctor::{Facts, HostReport, OUTPUT_MAX};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Time limit for the look at the host.
const TIME_MAX: Duration = Duration::from_secs(10);

/// One look at a time.
static TURN: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(1);

/// The report about this host. Error: it cannot be looked at.
pub(super) async fn report() -> Result<Value, (Errno, String)> {
    let _turn = TURN.acquire().await;
    let looked = tokio::task::spawn_blocking(|| look(TIME_MAX)).await;
    looked.unwrap_or_else(|e| Err(e.to_string())).map_err(|e| (EIO, format!("this host cannot be looked at: {e}")))
}

fn look(limit: Duration) -> Result<Value, String> {
    let script = doctor::script();
    // `timeout` ends what the shell has started, too.
    let seconds = limit.as_secs().saturating_sub(1).max(1).to_string();
    let args = ["-k", "1", &seconds, "sh", "-c", &script];
    let run = child::run(Path::new("timeout"), &args, OUTPUT_MAX as u64, limit);
    let (out, status) = run.map_err(|e| e.to_string())?;
    if status.is_none_or(|s| matches!(s.code(), Some(124 | 137) | None)) {
        return Err(format!("the look did not end within {} s", limit.as_secs_f64()));
    }
    let facts = Facts::parse(&out);
    let report = HostReport {
        host: facts.command("name").to_owned(),
        machine: doctor::machine(&facts),
        findings: doctor::findings(&facts),
        error: None,
    };
    Ok(report.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_looked_at() {
        let report = look(Duration::from_secs(60)).unwrap();
        let (host, grades) = doctor::graded(&report).unwrap();
        assert!(!host.is_empty() && grades.len() > 5, "{report}");
    }

    #[test]
    fn a_look_that_takes_too_long_is_an_error() {
        assert!(look(Duration::ZERO).unwrap_err().contains("did not end"));
    }
}
