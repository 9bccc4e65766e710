//! The list of seeds that found a bug once (`regressions.toml`), each with the options it was found with.

use serde::Deserialize;

/// A seed of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Regression {
    /// The seed.
    pub(crate) seed: u64,
    /// Options of the run, as on the command line.
    pub(crate) args: String,
    /// The mistake that it found.
    pub(crate) found: String,
}

#[derive(Deserialize)]
struct List {
    seed: Vec<Regression>,
}

/// The entries of the list with this text. The error is for a person.
pub(crate) fn parse(text: &str) -> Result<Vec<Regression>, String> {
    let list: List = toml::from_str(text).map_err(|e| e.to_string())?;
    Ok(list.seed)
}
