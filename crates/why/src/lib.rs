//! Verdicts about a cluster: why operations are slow ([`judge`]), whether the data is safe ([`safe`]), and when recovery
//! is done ([`eta`]).
//!
//! Pure: a collector gathers the [`Evidence`], everything here is arithmetic on it. A rule looks at one kind of cause and
//! returns a [`Verdict`] only if operations lose time by it, or if it endangers the cluster.
//!
//! | module | contents |
//! | --- | --- |
//! | `eta` | the end of recovery, from measured rates |
//! | `evidence` | the evidence: measurements of the daemons, as a collector gathers them |
//! | `load` | the time of all operations in the span, as the measure of every cause's share |
//! | `old_state` | monitors whose state is an old copy: they refuse OSDs that have newer maps |
//! | `placement` | the places that CRUSH finds for a PG, and the steps that help where they are too few |
//! | `rules` | the rules, one for each kind of cause |
//! | `safe` | the safety of the data now, and after the loss of any one host |
//! | `unclean` | PGs that are not clean, and what each group of them waits for |
//! | `verdict` | a verdict: cause, culprit, share, evidence, remedy |

#![forbid(unsafe_code)]

pub mod eta;
mod evidence;
mod load;
mod old_state;
mod placement;
mod rules;
pub mod safe;
pub mod unclean;
mod verdict;

pub use evidence::{
    Activity, Background, Check, Client, Cpu, Device, Evidence, Lock, Mon, Network, Object, Osd, Peer, Pool, PoolTime,
    Refused, Space, Waiting,
};
pub use load::Load;
pub use placement::Placement;
pub use verdict::{Kind, Verdict};

/// Subject of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// The whole cluster.
    #[default]
    Cluster,
    /// One OSD.
    Osd(i32),
    /// One client, as `client.4711`.
    Client(String),
    /// One pool.
    Pool(i64),
    /// The OSDs of one PG.
    Pg(Vec<i32>),
}

impl Subject {
    /// The evidence without the operations of others.
    #[must_use]
    pub fn part_of(&self, e: &Evidence) -> Evidence {
        let mut e = e.clone();
        match self {
            Self::Cluster => {}
            Self::Osd(n) => e.osds.retain(|o| o.osd == *n),
            Self::Pg(osds) => e.osds.retain(|o| osds.contains(&o.osd)),
            Self::Client(name) => e.osds.iter_mut().for_each(|o| {
                let own = o.clients.iter().find(|x| x.client == *name);
                (o.ops, o.us) = own.map(|x| (x.ops, x.us.clone())).unwrap_or_default();
            }),
            Self::Pool(n) => e.osds.iter_mut().for_each(|o| {
                let own = o.pools.iter().find(|x| x.pool == *n);
                (o.ops, o.us) = own.map(|x| (x.ops, x.us.clone())).unwrap_or_default();
            }),
        }
        e
    }

    /// True if a verdict about these OSDs concerns the subject. A verdict without OSDs concerns all.
    fn concerns(&self, v: &Verdict, e: &Evidence) -> bool {
        let touches = |osds: &[i32]| v.osds.is_empty() || v.osds.iter().any(|o| osds.contains(o));
        match self {
            Self::Cluster => true,
            Self::Osd(o) => touches(&[*o]),
            Self::Pg(osds) => touches(osds),
            Self::Client(c) => {
                let serves = |o: &&Osd| o.clients.iter().any(|x| x.client == *c);
                let mut osds: Vec<i32> = e.osds.iter().filter(serves).map(|o| o.osd).collect();
                let peers = e.osds.iter().filter(serves).flat_map(|o| &o.peers).filter(|p| p.blamed_us > 0);
                osds.extend(peers.map(|p| p.osd));
                touches(&osds)
            }
            Self::Pool(p) => v.pools.is_empty() || v.pools.contains(p),
        }
    }
}

/// The causes of lost time, the one with the largest share first. Empty if nothing is wrong.
#[must_use]
pub fn judge(e: &Evidence, about: &Subject) -> Vec<Verdict> {
    let load = Load::of(e);
    let mut all: Vec<Verdict> = rules::ALL.iter().flat_map(|rule| rule(e, &load)).collect();
    all.retain(|v| about.concerns(v, e));
    all.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.kind.cmp(&b.kind)));
    all
}
