//! Structures that many messages share: paxos header, signed durations, lenient text, feature sets.

use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::macros::plain;
use base::Epoch;
use std::collections::BTreeMap;
use std::time::Duration;

/// Map of strings, as in metadata, configuration and locations.
pub type StrMap = BTreeMap<String, String>;

/// `interval_set<snapid_t>` and similar: pairs of start and length, ascending.
pub type Intervals = Vec<(u64, u64)>;

/// `PaxosServiceMessage`: header of messages to a monitor's services.
///
/// Daemons put their newest map epoch into `version`, and the monitor acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaxosHeader {
    /// Map version of the sender (`have_version`).
    pub version: u64,
    /// Monitor of the session; -1 unless forwarded.
    pub session_mon: i16,
    /// Transaction number at that monitor; 0 unless forwarded.
    pub session_mon_tid: u64,
}

impl PaxosHeader {
    /// Header of a daemon or client with map `version`.
    #[must_use]
    pub fn have(version: u64) -> Self {
        Self { version, session_mon: -1, session_mon_tid: 0 }
    }
}

impl From<Epoch> for PaxosHeader {
    fn from(e: Epoch) -> Self {
        Self::have(e.0.into())
    }
}

impl Default for PaxosHeader {
    fn default() -> Self {
        Self::have(0)
    }
}

impl Encode for PaxosHeader {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.i16(self.session_mon);
        w.u64(self.session_mon_tid);
    }
}
impl Decode for PaxosHeader {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { version: r.u64()?, session_mon: r.i16()?, session_mon_tid: r.u64()? })
    }
}

/// Signed duration in nanoseconds (on the wire: i32 seconds and i32 nanoseconds, as `std::chrono` durations).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub i64);

const NANOS: i64 = 1_000_000_000;

impl Span {
    /// The duration; zero if negative.
    #[must_use]
    pub fn to_duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl From<Duration> for Span {
    fn from(d: Duration) -> Self {
        Self(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl Encode for Span {
    fn encode(&self, w: &mut Writer) {
        // Division and remainder truncate towards zero, so both parts carry the sign, as in Ceph.
        w.i32((self.0 / NANOS) as i32);
        w.i32((self.0 % NANOS) as i32);
    }
}
impl Decode for Span {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self(i64::from(r.i32()?) * NANOS + i64::from(r.i32()?)))
    }
}

/// Text from another program that may not be UTF-8: invalid bytes become U+FFFD, so that the sender's session survives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(pub String);

impl std::ops::Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}
impl From<&str> for Text {
    fn from(s: &str) -> Self {
        Self(s.to_owned())
    }
}
impl From<String> for Text {
    fn from(s: String) -> Self {
        Self(s)
    }
}
impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl Encode for Text {
    fn encode(&self, w: &mut Writer) {
        w.string(&self.0);
    }
}
impl Decode for Text {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.u32()? as usize;
        Ok(Self(String::from_utf8_lossy(r.take(n, "text")?).into_owned()))
    }
}

/// Fixed-size arrays are encoded without a count.
impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, w: &mut Writer) {
        for v in self {
            v.encode(w);
        }
    }
}
impl<T: Decode + Default + Copy, const N: usize> Decode for [T; N] {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut a = [T::default(); N];
        for v in &mut a {
            *v = T::decode(r)?;
        }
        Ok(a)
    }
}

plain! {
    /// `CompatSet::FeatureSet`.
    FeatureSet {
        /// Bit `n` is set if feature `n` is in `names`.
        mask: u64,
        names: BTreeMap<u64, String>,
    }

    /// `CompatSet`: on-disk features of a daemon.
    CompatSet {
        compat: FeatureSet,
        ro_compat: FeatureSet,
        incompat: FeatureSet,
    }
}

impl FeatureSet {
    /// Usable bits; bit 0 marks an obsolete encoding.
    const BITS: std::ops::Range<u64> = 1..64;

    /// Adds a feature; a number outside 1 to 63 changes nothing.
    pub fn insert(&mut self, bit: u64, name: &str) {
        if Self::BITS.contains(&bit) {
            self.mask |= 1 << bit;
            self.names.insert(bit, name.to_owned());
        }
    }

    /// Removes a feature.
    pub fn remove(&mut self, bit: u64) {
        if Self::BITS.contains(&bit) {
            self.mask &= !(1 << bit);
            self.names.remove(&bit);
        }
    }

    /// True if the set has the feature.
    #[must_use]
    pub fn contains(&self, bit: u64) -> bool {
        Self::BITS.contains(&bit) && self.mask & (1 << bit) != 0
    }

    /// Adds the features of another set.
    fn merge(&mut self, other: &Self) {
        for bit in Self::BITS.filter(|b| other.contains(*b) && !self.contains(*b)).collect::<Vec<_>>() {
            self.insert(bit, other.names.get(&bit).map_or("", String::as_str));
        }
    }
}

impl CompatSet {
    /// True if a daemon with these features may write data that needs the features of `other`.
    #[must_use]
    pub fn writeable(&self, other: &Self) -> bool {
        other.incompat.mask & !self.incompat.mask == 0 && other.ro_compat.mask & !self.ro_compat.mask == 0
    }

    /// True if both have the same features.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let masks = |c: &Self| (c.compat.mask, c.ro_compat.mask, c.incompat.mask);
        masks(self) == masks(other)
    }

    /// Adds the features of another set.
    pub fn merge(&mut self, other: &Self) {
        self.compat.merge(&other.compat);
        self.ro_compat.merge(&other.ro_compat);
        self.incompat.merge(&other.incompat);
    }
}
