//! Lives of devices among the `config-key` entries, where Ceph's manager keeps them.

use base::Utime;
use bytes::Bytes;
use serde_json::Value;

/// Prefix of the keys of devices in the `config-key` store.
pub(crate) const PREFIX: &str = "device/";
/// Longest value of such a key that is read, in bytes.
const VALUE_MAX: usize = 4096;

/// The life of a device. The state keeps one for each entry, because health looks at all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Life {
    /// Earliest end of its life; zero if none is set.
    pub min: Utime,
    /// Latest end; zero if none is set.
    pub max: Utime,
    /// Time at which they were set.
    pub stamp: Utime,
    /// Part of its writes that is used up.
    pub wear: Option<f64>,
}

/// The id of the device whose life is kept at a key of the `config-key` store.
pub(crate) fn id_of(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)
}

impl Life {
    /// The value of a key. Any client with the right to `config-key` may write there: what does not fit is left out.
    pub(crate) fn of(value: &Bytes) -> Option<Self> {
        let v: Value = serde_json::from_slice(value.get(..value.len().min(VALUE_MAX))?).ok()?;
        let time = |k: &str| v[k].as_str().and_then(Utime::parse).unwrap_or(Utime::ZERO);
        let wear = v["wear_level"].as_str().and_then(|w| w.parse().ok()).filter(|w: &f64| w.is_finite() && *w >= 0.0);
        Some(Self {
            min: time("life_expectancy_min"),
            max: time("life_expectancy_max"),
            stamp: time("life_expectancy_stamp"),
            wear,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_values_are_no_lives() {
        for v in ["", "[", "[]", "{}", "{\"life_expectancy_min\": 7, \"wear_level\": \"NaN\"}"] {
            assert!(Life::of(&Bytes::from_static(v.as_bytes())).is_none_or(|l| l == Life::default()), "{v}");
        }
        assert_eq!(Life::of(&format!("{{\"a\": \"{}\"}}", "x".repeat(9000)).into()), None);
        let worn = Life::of(&Bytes::from_static(b"{\"wear_level\": \"0.071\"}")).and_then(|l| l.wear);
        assert_eq!(worn, Some(0.071));
    }
}
