//! The list of seeds that found a bug once (`regressions.toml`), each with the options it was found with.

use serde::Deserialize;
use std::path::Path;

/// A seed of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Regression {
    /// The seed.
    pub(crate) seed: u64,
    /// Options of the run, as on the command line.
    pub(crate) args: String,
    /// What was wrong.
    pub(crate) found: String,
}

#[derive(Deserialize)]
struct List {
    seed: Vec<Regression>,
}

/// The entries of the list at `path`. The error is for a person.
pub(crate) fn read(path: &Path) -> Result<Vec<Regression>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list: List = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(list.seed)
}
