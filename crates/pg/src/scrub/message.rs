//! Messages between OSDs about a scrub: the body of `peer::Body::Scrub`.
//!
//! The primary numbers its questions within the interval. A member answers with the same number, and answers a
//! repeated question from its stored answer.

use super::map::Family;
use crate::stats::StatSum;
use base::{Eversion, HObject};
use wire::codec::Result;
use wire::types::PgHistory;
use wire::{DecodeError, Reader, Writer};

/// A question of the primary to a member.
#[allow(clippy::large_enum_variant, reason = "few exist at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Reserve a scrub slot on your OSD for this PG.
    Reserve,
    /// List your objects after `begin`, up to and including `end`.
    List {
        /// Exclusive lower bound.
        begin: HObject,
        /// Inclusive upper bound.
        end: HObject,
    },
    /// Report your copies of these objects.
    Scan {
        /// Heads of the objects.
        heads: Vec<HObject>,
        /// Also read data and omap.
        deep: bool,
    },
    /// Mark these objects as missing, since your copies are bad; recovery will replace them.
    Lack(Vec<(HObject, Eversion)>),
}

/// An answer of a member.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Answer to [`Ask::Reserve`]: true if the slot was free.
    Reserved(bool),
    /// Answer to [`Ask::List`]: all heads up to and including `upto`, which may be before the bound that was asked
    /// for.
    Listed {
        /// The list is complete up to here.
        upto: HObject,
        /// Heads in order.
        heads: Vec<HObject>,
    },
    /// Answer to [`Ask::Scan`], in the order asked.
    Scanned(Vec<Family>),
    /// Answer to [`Ask::Lack`]: the mark is durable.
    Lacks,
    /// The member's store could not list its objects.
    Failed,
}

/// A message about a scrub; see the module.
#[allow(clippy::large_enum_variant, reason = "few exist at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum ScrubMsg {
    /// Primary to member: a question.
    Ask {
        /// Number of the question.
        n: u64,
        /// The member answers after it has applied this write of the interval. Until the answer no further write
        /// changes the objects in question.
        seq: u64,
        /// The question.
        ask: Ask,
    },
    /// Member to primary: an answer.
    Answer {
        /// Number of the question.
        n: u64,
        /// The answer.
        answer: Answer,
    },
    /// Primary to member: the scrub is over; free the slot.
    Release {
        /// Questions up to this number are void.
        n: u64,
    },
    /// Primary to member: the results of a scrub.
    Done {
        /// The PG's history with the new scrub stamps.
        history: Box<PgHistory>,
        /// Remaining errors: shallow, deep, objects with large omap, objects repaired so far.
        counts: [i64; 4],
        /// Correction of the statistics.
        delta: StatSum,
    },
}

impl ScrubMsg {
    /// Encodes the message.
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

    /// Decodes a message.
    ///
    /// # Errors
    ///
    /// If the kind is unknown or the bytes are malformed.
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
