//! Performance queries from a manager to OSDs and MDSs (`rbd perf image iotop` and similar).

use crate::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};
use crate::macros::versioned;
use bytes::Bytes;

/// A vector whose count is a varint (seven bits per byte, low first).
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

    /// `OSDPerfMetricQuery`: what an OSD counts, and how it groups operations.
    PerfMetricQuery = "OSDPerfMetricQuery", 1, 1 {
        /// Key by which operations are grouped: its parts, in order.
        key_descriptor: VarVec<PerfMetricSubKey>,
        performance_counters: VarVec<PerformanceCounter>,
    }

    /// `OSDPerfMetricLimit`: report only the entries with the highest values of a counter.
    PerfMetricLimit = "OSDPerfMetricLimit", 1, 1 {
        order_by: PerformanceCounter,
        max_count: u64,
    }

    /// `OSDPerfMetricReport`: counters of an OSD for one query.
    PerfMetricReport = "OSDPerfMetricReport", 1, 1 {
        performance_counter_descriptors: VarVec<PerformanceCounter>,
        /// Counters by key. A key has the regex captures of each of its parts. The counters follow each other; a
        /// latency is a sum in nanoseconds and a count.
        group_packed_performance_counters: Vec<(Vec<Vec<Bytes>>, Bytes)>,
    }

    /// `MDSPerfMetricReport`: counters of an MDS for its queries.
    MdsPerfMetricReport = "MDSPerfMetricReport", 1, 1 {
        reports: Vec<(PerfMetricQuery, PerfMetricReport)>,
        rank_metrics_delayed: Vec<i32>,
    }
}

/// Kinds of [`PerfMetricSubKey`].
pub mod perf_key {
    /// Client id, as `client.123`.
    pub const CLIENT_ID: u8 = 0;
    /// Address of the client.
    pub const CLIENT_ADDRESS: u8 = 1;
    /// Id of the pool.
    pub const POOL_ID: u8 = 2;
    /// Namespace.
    pub const NAMESPACE: u8 = 3;
    /// Id of the OSD.
    pub const OSD_ID: u8 = 4;
    /// The PG.
    pub const PG_ID: u8 = 5;
    /// Name of the object.
    pub const OBJECT_NAME: u8 = 6;
    /// Snapshot that the operation reads.
    pub const SNAP_ID: u8 = 7;
}

/// Kinds of [`PerformanceCounter`].
pub mod perf_counter {
    /// Number of operations.
    pub const OPS: u8 = 0;
    /// Number of write operations.
    pub const WRITE_OPS: u8 = 1;
    /// Number of read operations.
    pub const READ_OPS: u8 = 2;
    /// Bytes read and written.
    pub const BYTES: u8 = 3;
    /// Bytes written.
    pub const WRITE_BYTES: u8 = 4;
    /// Bytes read.
    pub const READ_BYTES: u8 = 5;
    /// Sum of latencies.
    pub const LATENCY: u8 = 6;
    /// Sum of write latencies.
    pub const WRITE_LATENCY: u8 = 7;
    /// Sum of read latencies.
    pub const READ_LATENCY: u8 = 8;
}

/// Queries, each with its limits.
pub type PerfQueries = Vec<(PerfMetricQuery, Vec<PerfMetricLimit>)>;
/// Reports by query.
pub type PerfReports = Vec<(PerfMetricQuery, PerfMetricReport)>;

const FOR_OSD: u32 = 0;
const FOR_MDS: u32 = 1;

/// `MetricConfigMessage`: queries for one type of daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricConfig {
    /// Queries for OSDs.
    Osd(PerfQueries),
    /// Queries for MDSs.
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

/// `MetricReportMessage`: reports of one type of daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricReport {
    /// Reports of an OSD.
    Osd(PerfReports),
    /// Report of an MDS.
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
