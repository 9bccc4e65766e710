//! Erasure-coded pools in runs: their shapes, the faults that are drawn with them, and the steps that they refuse.

use crate::model::Step;
use crate::options::{Fault, Options, PoolShape, Size};
use base::rng::Rng;
use ec::{Codec, Layout, Technique};
use std::fmt;

/// Shapes that seeds draw, as numbers of data and coding shards.
const SHAPES: [(u8, u8); 4] = [(2, 1), (2, 2), (3, 2), (4, 2)];

/// The erasure code of a run's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Number of data shards.
    pub k: u8,
    /// Number of coding shards.
    pub m: u8,
    /// Plugin and technique.
    pub technique: (&'static str, &'static str),
    /// Bytes of a chunk: the part of a stripe on one shard.
    pub chunk: u32,
    /// True if objects may be overwritten in part.
    pub overwrites: bool,
}

impl Code {
    fn draw(r: &mut Rng, shape: Option<(u8, u8)>) -> Self {
        let drawn = SHAPES[r.below(SHAPES.len() as u64) as usize];
        let (k, m) = shape.unwrap_or(drawn);
        let technique = [("jerasure", "reed_sol_van"), ("isa", "reed_sol_van"), ("isa", "cauchy")];
        Self {
            k,
            m,
            technique: technique[r.below(3) as usize],
            chunk: [4096, 4096, 8192, 16384][r.below(4) as usize],
            overwrites: r.chance(3, 4),
        }
    }

    /// The codec of the production code; `None` for an unknown technique.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        let technique = Technique::from_profile(self.technique.0, self.technique.1)?;
        Codec::new(technique, self.k.into(), self.m.into()).ok()
    }

    /// The layout of objects over shards.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        Layout::new(self.k.into(), self.m.into(), self.chunk)
    }

    /// A code of the most common kind, with overwrites.
    #[must_use]
    pub fn plain(k: u8, m: u8) -> Self {
        Self { k, m, technique: ("jerasure", "reed_sol_van"), chunk: 4096, overwrites: true }
    }

    /// Number of all shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        usize::from(self.k) + usize::from(self.m)
    }

    /// Number of shards that writes need.
    #[must_use]
    pub fn min_size(&self) -> usize {
        usize::from(self.k) + usize::from(self.m > 1)
    }

    /// Bytes of an object in one stripe.
    #[must_use]
    pub fn stripe_width(&self) -> usize {
        usize::from(self.k) * self.chunk as usize
    }

    /// The operator's command that creates the pool's profile, named `code`.
    #[must_use]
    pub fn profile(&self) -> String {
        let (plugin, technique) = self.technique;
        let Self { k, m, chunk, .. } = self;
        format!(
            r#"{{"prefix":"osd erasure-code-profile set","name":"code","profile":["k={k}","m={m}","plugin={plugin}","technique={technique}","stripe_unit={chunk}"]}}"#
        )
    }

    /// True if the pool refuses the step on an object of `size` bytes.
    #[must_use]
    pub fn refuses(&self, step: &Step, size: usize) -> bool {
        let width = self.stripe_width();
        match step {
            Step::SetOmap { .. } | Step::RemoveOmap { .. } | Step::ClearOmap => true,
            Step::Zero { .. } | Step::Truncate { .. } => !self.overwrites,
            Step::Write { off, .. } => !self.overwrites && (*off != size || !off.is_multiple_of(width)),
            Step::Append { .. } => !self.overwrites && !size.is_multiple_of(width),
            _ => false,
        }
    }

    /// Changes a step so that the pool mostly accepts it.
    pub fn fit(&self, step: Step, r: &mut Rng) -> Step {
        if r.chance(1, 12) {
            return step;
        }
        let width = self.stripe_width();
        match step {
            Step::SetOmap { .. } => Step::Append { len: 1 + r.below(3 * width as u64) as usize },
            Step::RemoveOmap { key } => Step::SetAttr { key },
            Step::ClearOmap => Step::WriteFull { len: 1 + r.below(3 * width as u64) as usize },
            s if self.overwrites => s,
            Step::Write { len, .. } | Step::Append { len } => Step::Append { len: len.next_multiple_of(width) },
            Step::Zero { len, .. } => Step::WriteFull { len },
            Step::WriteFull { len } | Step::Truncate { size: len } if r.chance(2, 3) => {
                Step::WriteFull { len: len.max(1).next_multiple_of(width) }
            }
            Step::Truncate { size } => Step::WriteFull { len: size.max(1) },
            s => s,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = if self.overwrites { "" } else { " without overwrites" };
        write!(f, "{}+{} of {} by {} {}{parts}", self.k, self.m, self.chunk, self.technique.0, self.technique.1)
    }
}

impl Options {
    /// The options of a seed with an erasure-coded pool, of the given shape or a drawn one.
    #[must_use]
    pub fn coded(seed: u64, size: Size, shape: Option<(u8, u8)>) -> Self {
        let r = &mut Rng::new(seed ^ 0x636f_6465_6400);
        let code = Code::draw(r, shape);
        let copies = code.shards();
        let osds = size.osds.max(copies) + r.below(3) as usize;
        // The kinds of faults are those of a pool with three copies.
        let mut o = Self::plain(seed, Size { osds, copies: 3, ..size });
        // Acknowledged writes are whole without the rotten shard only while no other OSD is away. A log whose last
        // frames rot ends before them, and that version counts as soon as only `k` shards are left.
        if code.m < 2 || o.faults.len() > 1 {
            o.faults.retain(|f| *f != Fault::Rot);
        }
        o.pool = PoolShape::of_shards(code, o.pool.pgs);
        // PGs of shards stay on the reactor where they were created.
        o.osd.moves = false;
        o.without_one &= code.m >= 2 && osds > copies;
        o.extend();
        o
    }
}
