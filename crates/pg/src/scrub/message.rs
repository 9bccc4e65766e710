//! What OSDs tell each other about a scrub: the body of `peer::Body::Scrub`.
//!
//! The primary asks, numbering its questions within the interval; members answer with the same number, and answer a
//! question that comes twice from what they kept.

use super::map::Family;
use crate::stats::StatSum;
use base::{Eversion, HObject};
use wire::codec::Result;
use wire::types::PgHistory;
use wire::{DecodeError, Reader, Writer};

/// A question.
#[allow(clippy::large_enum_variant, reason = "few exist at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// May this PG be scrubbed on your OSD now? Yes takes a slot there.
    Reserve,
    /// Which objects do you have after `begin`, up to and including `end`?
    List {
        /// Exclusive.
        begin: HObject,
        /// Inclusive.
        end: HObject,
    },
    /// What do you have of these?
    Scan {
        /// Heads.
        heads: Vec<HObject>,
        /// Read data and omap.
        deep: bool,
    },
    /// Your copies of these are bad: write down that you lack them; good ones will be pushed.
    Lack(Vec<(HObject, Eversion)>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Ask::Reserve`].
    Reserved(bool),
    /// To [`Ask::List`]: all heads up to and including `upto`, which may be less than was asked for.
    Listed {
        /// Complete up to here.
        upto: HObject,
        /// In order.
        heads: Vec<HObject>,
    },
    /// To [`Ask::Scan`], in the order asked.
    Scanned(Vec<Family>),
    /// To [`Ask::Lack`]: it is durable.
    Lacks,
    /// It could not be done: the store does not list.
    Failed,
}

/// See the module.
#[allow(clippy::large_enum_variant, reason = "few exist at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum ScrubMsg {
    /// Primary to member.
    Ask {
        /// Its number.
        n: u64,
        /// Answer as of this write of the interval, or later: no write of the objects asked about follows before the answer.
        seq: u64,
        /// The question.
        ask: Ask,
    },
    /// Member to primary.
    Answer {
        /// Number of the question.
        n: u64,
        /// The answer.
        answer: Answer,
    },
    /// Primary to member: the scrub is over; give the slot back.
    Release {
        /// Questions up to this number are void.
        n: u64,
    },
    /// Primary to member: what a scrub found.
    Done {
        /// History with its stamps.
        history: Box<PgHistory>,
        /// Errors that are left: shallow, deep, objects with large omap, objects repaired so far.
        counts: [i64; 4],
        /// What the statistics must be corrected by.
        delta: StatSum,
    },
}

impl ScrubMsg {
    /// Its encoding.
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Self::Ask { n, seq, ask } => {
                w.u8(1);
                w.u64(*n);
                w.u64(*seq);
                match ask {
                    Ask::Reserve => w.u8(1),
                    Ask::List { begin, end } => {
                        w.u8(2);
                        w.put(begin);
                        w.put(end);
                    }
                    Ask::Scan { heads, deep } => {
                        w.u8(3);
                        w.seq(heads.iter(), |w, h| w.put(h));
                        w.bool(*deep);
                    }
                    Ask::Lack(v) => {
                        w.u8(4);
                        w.seq(v.iter(), |w, (h, v)| {
                            w.put(h);
                            w.put(v);
                        });
                    }
                }
            }
            Self::Answer { n, answer } => {
                w.u8(2);
                w.u64(*n);
                match answer {
                    Answer::Reserved(yes) => {
                        w.u8(1);
                        w.bool(*yes);
                    }
                    Answer::Listed { upto, heads } => {
                        w.u8(2);
                        w.put(upto);
                        w.seq(heads.iter(), |w, h| w.put(h));
                    }
                    Answer::Scanned(families) => {
                        let objects = || families.iter().flat_map(|f| &f.objects);
                        let shards = objects().any(|o| o.parity.is_some());
                        w.u8(if shards { 6 } else { 3 });
                        w.seq(families.iter(), |w, f| w.put(f));
                        objects().filter(|_| shards).for_each(|o| w.put(&o.parity));
                    }
                    Answer::Lacks => w.u8(4),
                    Answer::Failed => w.u8(5),
                }
            }
            Self::Release { n } => {
                w.u8(3);
                w.u64(*n);
            }
            Self::Done { history, counts, delta } => {
                w.u8(4);
                w.put(&**history);
                w.put(delta);
                for c in counts {
                    w.u64(*c as u64);
                }
            }
        }
    }

    /// From its encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let bad = |what, value: u8| DecodeError::BadValue { what, value: value.into() };
        Ok(match r.u8()? {
            1 => Self::Ask {
                n: r.u64()?,
                seq: r.u64()?,
                ask: match r.u8()? {
                    1 => Ask::Reserve,
                    2 => Ask::List { begin: r.get()?, end: r.get()? },
                    3 => Ask::Scan { heads: r.vec_with("objects", |r| r.get())?, deep: r.bool()? },
                    4 => Ask::Lack(r.vec_with("objects", |r| Ok((r.get()?, r.get()?)))?),
                    v => return Err(bad("scrub question", v)),
                },
            },
            2 => Self::Answer {
                n: r.u64()?,
                answer: match r.u8()? {
                    1 => Answer::Reserved(r.bool()?),
                    2 => Answer::Listed { upto: r.get()?, heads: r.vec_with("objects", |r| r.get())? },
                    3 => Answer::Scanned(r.vec_with("objects", |r| r.get())?),
                    4 => Answer::Lacks,
                    5 => Answer::Failed,
                    6 => {
                        let mut families: Vec<Family> = r.vec_with("objects", |r| r.get())?;
                        for o in families.iter_mut().flat_map(|f| &mut f.objects) {
                            o.parity = r.get()?;
                        }
                        Answer::Scanned(families)
                    }
                    v => return Err(bad("scrub answer", v)),
                },
            },
            3 => Self::Release { n: r.u64()? },
            4 => {
                let history = Box::new(r.get()?);
                let delta = r.get()?;
                let mut counts = [0; 4];
                for c in &mut counts {
                    *c = r.u64()? as i64;
                }
                Self::Done { history, counts, delta }
            }
            v => return Err(bad("scrub message", v)),
        })
    }
}
