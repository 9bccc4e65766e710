//! The alert about hosts that became worse, from what the manager role keeps (`mgr::host::drift`).

use super::Severity;
use super::checks::Adder;
use crate::state::ClusterState;
use mgr::host::DRIFT;
use serde_json::Value;

/// Longest value that is read, in bytes.
const VALUE_MAX: usize = 64 << 10;
/// Most entries that are read.
const ENTRIES_MAX: usize = 100;
/// Longest text of an entry that is shown, in characters.
const TEXT_MAX: usize = 300;

/// Adds the alert if there is something to tell.
pub(super) fn add(a: &mut Adder, state: &ClusterState) {
    let Some(value) = state.kv.get(DRIFT).filter(|v| v.len() <= VALUE_MAX && !state.options.external_mgr) else {
        return;
    };
    // Any client with the right to `config-key` may write there: what does not fit is left out.
    let entries: Value = serde_json::from_slice(value).unwrap_or_default();
    let lines: Vec<String> = entries.as_array().into_iter().flatten().take(ENTRIES_MAX).filter_map(line).collect();
    a.add_some("HOST_DRIFT", Severity::Warn, "checks of hosts became worse", lines);
}

fn line(entry: &Value) -> Option<String> {
    let text = |k: &str| {
        let all = entry[k].as_str()?.chars().filter(|c| !c.is_control());
        Some(all.take(TEXT_MAX).collect::<String>())
    };
    let (host, check, was, now) = (text("host")?, text("check")?, text("was")?, text("now")?);
    Some(format!("{host}: {check}: {now} since {}, was {was}: {}; {}", text("since")?, text("what")?, text("change")?))
}
