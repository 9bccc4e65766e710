//! Crash reports of daemons among the `config-key` entries, and their summaries.

use bytes::Bytes;
use serde_json::Value;

/// Prefix of the keys of crash reports in the `config-key` store.
pub(crate) const PREFIX: &str = "mgr/crash/crash/";
/// Longest crash report, in bytes.
pub(crate) const REPORT_MAX: usize = 64 << 10;
/// Longest stored report: an archived one is longer than its input.
const STORED_MAX: usize = 2 * REPORT_MAX;

/// Summary of a crash for lists and health. The state keeps one for each report, because reports are long to parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashSummary {
    /// The time of the crash in a form that sorts.
    pub stamp: String,
    /// The time as the report gives it.
    pub time: String,
    /// The daemon that crashed.
    pub entity: String,
    /// Its host.
    pub host: String,
    /// True if the crash is not archived.
    pub new: bool,
}

/// The id of the crash whose report is kept at a key of the `config-key` store.
pub(crate) fn id_of(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)
}

impl CrashSummary {
    /// The summary of a stored report. Any client with the right to `config-key` may write there, so a value that is
    /// no JSON, or is too long, is no report.
    pub(crate) fn of(report: &Bytes) -> Option<Self> {
        if report.len() > STORED_MAX {
            return None;
        }
        let report: Value = serde_json::from_slice(report).ok()?;
        let text = |field: &str| report.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let time = text("timestamp");
        Some(Self {
            stamp: time.replacen(' ', "T", 1),
            time,
            entity: text("entity_name"),
            host: text("utsname_hostname"),
            new: report.get("archived").is_none(),
        })
    }
}
