//! Monitors whose state is an old copy: they refuse OSDs that have newer maps.

use crate::evidence::Check;

/// The health check about OSDs with newer maps.
pub(crate) const CODE: &str = "OSD_MAP_AHEAD";

/// The steps that help, as docs/operate/monitor-lost.md describes them.
pub(crate) const REMEDY: &str = "stop all monitors, run `belemnite state advance`, and start them again \
                                 (docs/operate/monitor-lost.md)";

/// The finding in words; `None` if no OSD has newer maps than the monitors.
pub(crate) fn found(health: &[Check]) -> Option<String> {
    let check = health.iter().find(|c| c.code == CODE)?;
    // A detail names both epochs before the colon.
    let epochs = check.detail.first().map_or(check.summary.as_str(), |d| d.split(": ").next().unwrap_or(d));
    let more = match check.detail.len() {
        0 | 1 => String::new(),
        n => format!(", and {} more OSDs", n - 1),
    };
    Some(format!(
        "the monitors' state is an old copy, as after a restored backup, and refuses the OSDs: {epochs}{more}"
    ))
}
