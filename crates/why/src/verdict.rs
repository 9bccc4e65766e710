//! A verdict: cause, culprit, share, evidence, remedy.

use serde_json::{Value, json};
use std::fmt;

/// Kind of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The monitors' state is an old copy, so OSDs cannot boot.
    OldState,
    /// PGs do not serve.
    NotServing,
    /// A pool, an OSD or the file system under its file has no space.
    Full,
    /// A device answers slowly.
    SlowDisk,
    /// Other programs have the CPU.
    CpuTaken,
    /// The quota of a cgroup stops the OSD.
    CpuQuota,
    /// The hypervisor gives the CPUs to others.
    CpuStolen,
    /// Packets get lost.
    LossyLink,
    /// Hosts differ in MTU, or it is small.
    SmallMtu,
    /// One object takes most operations.
    HotObject,
    /// A client that is gone holds a lock.
    DeadLock,
    /// A deep scrub runs beside slow clients.
    DeepScrub,
    /// Recovery runs beside slow clients.
    Recovery,
    /// A clock is off.
    Clock,
    /// The store of the monitors is slow.
    MonStore,
}

impl Kind {
    /// Name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OldState => "old_state",
            Self::NotServing => "not_serving",
            Self::Full => "full",
            Self::SlowDisk => "slow_disk",
            Self::CpuTaken => "cpu_taken",
            Self::CpuQuota => "cpu_quota",
            Self::CpuStolen => "cpu_stolen",
            Self::LossyLink => "lossy_link",
            Self::SmallMtu => "small_mtu",
            Self::HotObject => "hot_object",
            Self::DeadLock => "dead_lock",
            Self::DeepScrub => "deep_scrub",
            Self::Recovery => "recovery",
            Self::Clock => "clock",
            Self::MonStore => "mon_store",
        }
    }
}

/// A cause with its culprit and its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The cause.
    pub kind: Kind,
    /// The daemon, host, object or pool that causes it.
    pub culprit: String,
    /// OSDs that the cause concerns; none if it concerns all.
    pub osds: Vec<i32>,
    /// Pools that the cause concerns; none if it concerns all.
    pub pools: Vec<i64>,
    /// Share of the operations' time that is lost by it, from 0 to 1.
    pub share: f64,
    /// The cause in one sentence.
    pub text: String,
    /// Measurements that show it, at most two lines.
    pub evidence: Vec<String>,
    /// The step that ends it.
    pub remedy: String,
}

impl Verdict {
    pub(crate) fn new(kind: Kind, culprit: impl Into<String>, share: f64, text: impl Into<String>) -> Self {
        Self {
            kind,
            culprit: culprit.into(),
            osds: Vec::new(),
            pools: Vec::new(),
            share: share.clamp(0.0, 1.0),
            text: text.into(),
            evidence: Vec::new(),
            remedy: String::new(),
        }
    }

    pub(crate) fn osds(mut self, osds: impl IntoIterator<Item = i32>) -> Self {
        self.osds = osds.into_iter().collect();
        self
    }

    pub(crate) fn pools(mut self, pools: impl IntoIterator<Item = i64>) -> Self {
        self.pools = pools.into_iter().collect();
        self
    }

    pub(crate) fn shows(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// The verdict as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "cause": self.kind.name(),
            "culprit": self.culprit,
            "share": (self.share * 1000.0).round() / 1000.0,
            "text": self.text,
            "evidence": self.evidence,
            "remedy": self.remedy,
            "osds": self.osds,
            "pools": self.pools,
        })
    }
}

/// At most five lines: cause and culprit, share, evidence, remedy.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.culprit, self.text)?;
        if self.share >= 0.005 {
            writeln!(f, "  share:    {:.0} % of the operations' time", self.share * 100.0)?;
        }
        for (i, e) in self.evidence.iter().take(2).enumerate() {
            writeln!(f, "  {} {e}", if i == 0 { "evidence:" } else { "         " })?;
        }
        write!(f, "  remedy:   {}", self.remedy)
    }
}
