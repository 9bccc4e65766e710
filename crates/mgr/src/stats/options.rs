//! Options of running daemons, as they report them: for `config show`.
//!
//! Invariant: the number of daemons and the bytes of each are bounded, whatever they report.
//!
//! Tests: below.

use std::collections::BTreeMap;
use wire::Decode as _;
use wire::types::DaemonConfig;

/// Most daemons whose options are kept.
const MAX_DAEMONS: usize = 20_000;
/// Most bytes of one daemon's encoded options.
const MAX_BYTES: usize = 64 << 10;

/// Reported options that are not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionsError {
    /// The daemon reports more than is kept.
    #[error("more than {MAX_BYTES} bytes")]
    TooLong,
    /// The report cannot be decoded.
    #[error("malformed: {0}")]
    Malformed(#[from] wire::DecodeError),
}

/// Options by daemon, such as `osd.3`.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    daemons: BTreeMap<String, DaemonConfig>,
}

impl DaemonOptions {
    /// Takes a daemon's options in place of those that it reported before. Error: the earlier ones stay.
    pub fn take(&mut self, daemon: &str, encoded: &[u8]) -> Result<(), OptionsError> {
        if encoded.len() > MAX_BYTES {
            return Err(OptionsError::TooLong);
        }
        if self.daemons.len() < MAX_DAEMONS || self.daemons.contains_key(daemon) {
            self.daemons.insert(daemon.to_owned(), DaemonConfig::from_bytes(&bytes::Bytes::copy_from_slice(encoded))?);
        }
        Ok(())
    }

    /// The options that a daemon reported.
    #[must_use]
    pub fn get(&self, daemon: &str) -> Option<&DaemonConfig> {
        self.daemons.get(daemon)
    }

    /// Forgets a daemon.
    pub fn remove(&mut self, daemon: &str) {
        self.daemons.remove(daemon);
    }

    /// Forgets daemons for which `keep` is false.
    pub fn keep(&mut self, keep: impl Fn(&str) -> bool) {
        self.daemons.retain(|name, _| keep(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::Text;
    use wire::{Encode as _, Features};

    fn encoded(value: &str) -> bytes::Bytes {
        let values = BTreeMap::from([("debug_osd".to_owned(), BTreeMap::from([(1, Text(value.to_owned()))]))]);
        DaemonConfig { values, ..DaemonConfig::default() }.to_bytes(Features::PACIFIC)
    }

    #[test]
    fn the_newest_options_are_kept_and_large_ones_are_not() {
        let mut all = DaemonOptions::default();
        all.take("osd.0", &encoded("1/5")).unwrap();
        all.take("osd.0", &encoded("2/5")).unwrap();
        assert_eq!(all.take("osd.0", &encoded(&"x".repeat(MAX_BYTES))), Err(OptionsError::TooLong));
        assert!(matches!(all.take("osd.0", b"abc"), Err(OptionsError::Malformed(_))));
        assert_eq!(all.get("osd.0").unwrap().values["debug_osd"][&1].0, "2/5");
        all.keep(|n| n != "osd.0");
        assert!(all.get("osd.0").is_none());
        for n in 0..=MAX_DAEMONS {
            all.take(&format!("osd.{n}"), &encoded("1/5")).unwrap();
        }
        assert!(all.get("osd.0").is_some() && all.get(&format!("osd.{MAX_DAEMONS}")).is_none());
    }
}
