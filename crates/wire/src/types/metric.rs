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

    /// `PerformanceCounterDescriptor`.
    PerformanceCounter = "PerformanceCounterDescriptor", 1, 1 {
        kind: u8,
    }

    /// `OSDPerfMetricQuery`.
    PerfMetricQuery = "OSDPerfMetricQuery", 1, 1 {
        key_descriptor: VarVec<VarVec<PerfMetricSubKey>>,
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
        group_packed_performance_counters: Vec<(VarVec<VarVec<String>>, Bytes)>,
    }

    /// `MDSPerfMetricReport`.
    MdsPerfMetricReport = "MDSPerfMetricReport", 1, 1 {
        reports: Vec<(PerfMetricQuery, PerfMetricReport)>,
        rank_metrics_delayed: Vec<i32>,
    }
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
