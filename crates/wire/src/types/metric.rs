//! Performance queries that a manager puts to OSDs and MDSs (`rbd perf image iotop` and the like).

use crate::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};
use crate::macros::versioned;
use bytes::Bytes;

/// A vector whose count is a variable-length integer (seven bits a byte, low first).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarVec<T>(pub Vec<T>);

impl<T> Default for VarVec<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Encode> Encode for VarVec<T> {
    fn encode(&self, w: &mut Writer) {
        let mut n = self.0.len();
        while n > 0x7f {
            w.u8((n as u8 & 0x7f) | 0x80);
            n >>= 7;
        }
        w.u8(n as u8);
        for v in &self.0 {
            w.put(v);
        }
    }
}
impl<T: Decode> Decode for VarVec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut n = 0usize;
        for i in 0..5 {
            let b = r.u8()?;
            n |= usize::from(b & 0x7f) << (7 * i);
            if b & 0x80 == 0 {
                if n > r.remaining() {
                    return Err(DecodeError::Truncated {
                        what: "varint count",
                        at: r.position(),
                        need: n,
                        have: r.remaining(),
                    });
                }
                return (0..n).map(|_| T::decode(r)).collect::<Result<_>>().map(Self);
            }
        }
        Err(DecodeError::BadValue { what: "varint count", value: n as u64 })
    }
}

versioned! {
    /// `OSDPerfMetricSubKeyDescriptor`: one part of the key that operations are grouped by.
    PerfMetricSubKey = "OSDPerfMetricSubKeyDescriptor", 1, 1 {
        kind: u8,
        regex: String,
    }

    /// `PerformanceCounterDescriptor`: its kind is one of [`perf_counter`].
    PerformanceCounter = "PerformanceCounterDescriptor", 1, 1 {
        kind: u8,
    }

    /// `OSDPerfMetricQuery`.
    PerfMetricQuery = "OSDPerfMetricQuery", 1, 1 {
        /// What operations are grouped by, in order.
        key_descriptor: VarVec<PerfMetricSubKey>,
        performance_counters: VarVec<PerformanceCounter>,
    }

    /// `OSDPerfMetricLimit`: only the top so many by a counter.
    PerfMetricLimit = "OSDPerfMetricLimit", 1, 1 {
        order_by: PerformanceCounter,
        max_count: u64,
    }

    /// `OSDPerfMetricReport`.
    PerfMetricReport = "OSDPerfMetricReport", 1, 1 {
        performance_counter_descriptors: VarVec<PerformanceCounter>,
        /// By key, which is what the groups of each part's expression matched: the counters one after the other, latencies
        /// as a sum in nanoseconds and a count.
        group_packed_performance_counters: Vec<(Vec<Vec<Bytes>>, Bytes)>,
    }

    /// `MDSPerfMetricReport`.
    MdsPerfMetricReport = "MDSPerfMetricReport", 1, 1 {
        reports: Vec<(PerfMetricQuery, PerfMetricReport)>,
        rank_metrics_delayed: Vec<i32>,
    }
}

/// Kinds of [`PerfMetricSubKey`].
pub mod perf_key {
    /// `client.123`.
    pub const CLIENT_ID: u8 = 0;
    /// Its address.
    pub const CLIENT_ADDRESS: u8 = 1;
    /// Number of the pool.
    pub const POOL_ID: u8 = 2;
    /// Namespace.
    pub const NAMESPACE: u8 = 3;
    /// Number of the OSD.
    pub const OSD_ID: u8 = 4;
    /// The PG.
    pub const PG_ID: u8 = 5;
    /// Name of the object.
    pub const OBJECT_NAME: u8 = 6;
    /// Snapshot that is read.
    pub const SNAP_ID: u8 = 7;
}

/// Kinds of [`PerformanceCounter`].
pub mod perf_counter {
    /// Operations.
    pub const OPS: u8 = 0;
    /// Operations that write.
    pub const WRITE_OPS: u8 = 1;
    /// Operations that read.
    pub const READ_OPS: u8 = 2;
    /// Bytes both ways.
    pub const BYTES: u8 = 3;
    /// Bytes received by writes.
    pub const WRITE_BYTES: u8 = 4;
    /// Bytes sent by reads.
    pub const READ_BYTES: u8 = 5;
    /// Summed latency.
    pub const LATENCY: u8 = 6;
    /// Of writes.
    pub const WRITE_LATENCY: u8 = 7;
    /// Of reads.
    pub const READ_LATENCY: u8 = 8;
}

/// Queries with their limits.
pub type PerfQueries = Vec<(PerfMetricQuery, Vec<PerfMetricLimit>)>;
/// Answers by query.
pub type PerfReports = Vec<(PerfMetricQuery, PerfMetricReport)>;

const FOR_OSD: u32 = 0;
const FOR_MDS: u32 = 1;

/// `MetricConfigMessage`: queries for one kind of daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricConfig {
    /// For OSDs.
    Osd(PerfQueries),
    /// For MDSs.
    Mds(PerfQueries),
}

impl Encode for MetricConfig {
    fn encode(&self, w: &mut Writer) {
        let (kind, q) = match self {
            Self::Osd(q) => (FOR_OSD, q),
            Self::Mds(q) => (FOR_MDS, q),
        };
        w.u32(kind);
        w.versioned(1, 1, |w| w.put(q));
    }
}
impl Decode for MetricConfig {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let kind = r.u32()?;
        let q = r.versioned("MetricConfigMessage", 1, |r, _| r.get())?;
        match kind {
            FOR_OSD => Ok(Self::Osd(q)),
            FOR_MDS => Ok(Self::Mds(q)),
            k => Err(DecodeError::BadValue { what: "MetricConfigMessage", value: k.into() }),
        }
    }
}

/// `MetricReportMessage`: answers of one kind of daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricReport {
    /// From an OSD.
    Osd(PerfReports),
    /// From an MDS.
    Mds(MdsPerfMetricReport),
}

impl Encode for MetricReport {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Osd(q) => {
                w.u32(FOR_OSD);
                w.versioned(1, 1, |w| w.put(q));
            }
            Self::Mds(q) => {
                w.u32(FOR_MDS);
                w.versioned(1, 1, |w| w.put(q));
            }
        }
    }
}
impl Decode for MetricReport {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u32()? {
            FOR_OSD => r.versioned("OSDMetricPayload", 1, |r, _| r.get()).map(Self::Osd),
            FOR_MDS => r.versioned("MDSMetricPayload", 1, |r, _| r.get()).map(Self::Mds),
            k => Err(DecodeError::BadValue { what: "MetricReportMessage", value: k.into() }),
        }
    }
}
