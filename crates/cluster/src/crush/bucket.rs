//! Buckets: inner nodes of the hierarchy, with the numbers each algorithm keeps.
//!
//! Invariant: `weight` and the vectors of [`BucketData`] are derived from the items and their weights. Every
//! change goes through [`Bucket::set_items`], which recomputes them.
//!
//! Tests: below (`rebuilt_buckets_equal_cephs`), `tests/crush_edits.rs`.

use super::CrushError;

/// Selection algorithm of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketAlg {
    /// Items of equal weight.
    Uniform = 1,
    /// A list of items, the newest first.
    List = 2,
    /// A binary tree of items.
    Tree = 3,
    /// Each item draws a straw whose length depends on all weights; superseded by `Straw2`.
    Straw = 4,
    /// Each item draws a straw whose length depends on its own weight only: the default.
    Straw2 = 5,
}

impl BucketAlg {
    /// Algorithm with this number.
    #[must_use]
    pub fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            1 => Self::Uniform,
            2 => Self::List,
            3 => Self::Tree,
            4 => Self::Straw,
            5 => Self::Straw2,
            _ => return None,
        })
    }

    /// Algorithm with this name.
    #[must_use]
    pub fn from_name(s: &str) -> Option<Self> {
        Some(match s {
            "uniform" => Self::Uniform,
            "list" => Self::List,
            "tree" => Self::Tree,
            "straw" => Self::Straw,
            "straw2" => Self::Straw2,
            _ => return None,
        })
    }

    /// Name as Ceph prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::List => "list",
            Self::Tree => "tree",
            Self::Straw => "straw",
            Self::Straw2 => "straw2",
        }
    }
}

/// Data of a bucket that depend on its algorithm. Vectors have one element per item, except for the nodes of a
/// tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketData {
    /// Items that all have the same weight.
    Uniform {
        /// Weight of each item.
        item_weight: u32,
    },
    /// Weights of the items and their running sums.
    List {
        /// Weight of each item.
        item_weights: Vec<u32>,
        /// Sum of the weights up to and with the item.
        sum_weights: Vec<u32>,
    },
    /// Weights of the nodes of a binary tree; item `i` is node `2i + 1`.
    Tree {
        /// Weight of each node.
        node_weights: Vec<u32>,
    },
    /// Weights and straw lengths of the items.
    Straw {
        /// Weight of each item.
        item_weights: Vec<u32>,
        /// Straw length of each item.
        straws: Vec<u32>,
    },
    /// Weights of the items.
    Straw2 {
        /// Weight of each item.
        item_weights: Vec<u32>,
    },
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Negative id.
    pub id: i32,
    /// Type (see [`super::CrushMap::type_names`]).
    pub kind: u16,
    /// Hash function, 0 = rjenkins1.
    pub hash: u8,
    /// Sum of the weights of the items, in 16.16 fixed point.
    pub weight: u32,
    /// Devices (from 0) and buckets (below 0).
    pub items: Vec<i32>,
    /// Data that depend on the algorithm.
    pub data: BucketData,
}

impl Bucket {
    /// An empty bucket.
    #[must_use]
    pub fn new(id: i32, kind: u16, alg: BucketAlg) -> Self {
        let data = match alg {
            BucketAlg::Uniform => BucketData::Uniform { item_weight: 0 },
            BucketAlg::List => BucketData::List { item_weights: Vec::new(), sum_weights: Vec::new() },
            BucketAlg::Tree => BucketData::Tree { node_weights: Vec::new() },
            BucketAlg::Straw => BucketData::Straw { item_weights: Vec::new(), straws: Vec::new() },
            BucketAlg::Straw2 => BucketData::Straw2 { item_weights: Vec::new() },
        };
        Self { id, kind, hash: 0, weight: 0, items: Vec::new(), data }
    }

    /// Algorithm of the bucket.
    #[must_use]
    pub fn alg(&self) -> BucketAlg {
        match &self.data {
            BucketData::Uniform { .. } => BucketAlg::Uniform,
            BucketData::List { .. } => BucketAlg::List,
            BucketData::Tree { .. } => BucketAlg::Tree,
            BucketData::Straw { .. } => BucketAlg::Straw,
            BucketData::Straw2 { .. } => BucketAlg::Straw2,
        }
    }

    /// Weight of the item at a position.
    #[must_use]
    pub fn item_weight(&self, pos: usize) -> u32 {
        if pos >= self.items.len() {
            return 0;
        }
        match &self.data {
            BucketData::Uniform { item_weight } => *item_weight,
            BucketData::List { item_weights, .. }
            | BucketData::Straw { item_weights, .. }
            | BucketData::Straw2 { item_weights } => item_weights.get(pos).copied().unwrap_or(0),
            BucketData::Tree { node_weights } => node_weights.get(tree_node(pos)).copied().unwrap_or(0),
        }
    }

    /// Position of an item.
    #[must_use]
    pub fn position(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|i| *i == item)
    }

    /// Weights of all items in order.
    #[must_use]
    pub fn weights(&self) -> Vec<u32> {
        (0..self.items.len()).map(|i| self.item_weight(i)).collect()
    }

    /// Replaces the items and their weights (16.16 fixed point), and recomputes the derived data. Error: `Invalid` if
    /// the weights of a uniform bucket differ or their sum exceeds 32 bits; `NoSpace` for too many items in a tree
    /// bucket.
    pub fn set_items(&mut self, items: Vec<i32>, weights: Vec<u32>, straw_calc_version: u8) -> Result<(), CrushError> {
        debug_assert_eq!(items.len(), weights.len());
        let total = weights.iter().map(|w| u64::from(*w)).sum::<u64>();
        let total = u32::try_from(total)
            .map_err(|_| CrushError::Invalid(format!("weight of bucket {} exceeds the limit", self.id)))?;
        self.data = match self.alg() {
            BucketAlg::Uniform => {
                let item_weight = weights.first().copied().unwrap_or(0);
                if weights.iter().any(|w| *w != item_weight) {
                    return Err(CrushError::Invalid(format!("items of uniform bucket {} differ in weight", self.id)));
                }
                BucketData::Uniform { item_weight }
            }
            BucketAlg::List => {
                let sums = weights.iter().scan(0u32, |s, w| {
                    *s = s.wrapping_add(*w);
                    Some(*s)
                });
                BucketData::List { sum_weights: sums.collect(), item_weights: weights }
            }
            BucketAlg::Tree => BucketData::Tree { node_weights: tree_weights(&weights)? },
            BucketAlg::Straw => {
                BucketData::Straw { straws: straw_lengths(&weights, straw_calc_version), item_weights: weights }
            }
            BucketAlg::Straw2 => BucketData::Straw2 { item_weights: weights },
        };
        self.items = items;
        self.weight = total;
        Ok(())
    }
}

/// Most items of a tree bucket: its node count must fit a byte.
const TREE_ITEMS_MAX: usize = 64;

fn tree_weights(weights: &[u32]) -> Result<Vec<u32>, CrushError> {
    if weights.len() > TREE_ITEMS_MAX {
        return Err(CrushError::NoSpace(format!("a tree bucket holds at most {TREE_ITEMS_MAX} items")));
    }
    if weights.is_empty() {
        return Ok(Vec::new());
    }
    let depth = 1 + (usize::BITS - (weights.len() - 1).leading_zeros());
    let mut nodes = vec![0u32; 1 << depth];
    for (i, w) in weights.iter().enumerate() {
        let mut n = tree_node(i);
        for _ in 0..depth {
            if let Some(x) = nodes.get_mut(n) {
                *x = x.wrapping_add(*w);
            }
            // Moves up, towards the middle of the next level.
            let h = n.trailing_zeros();
            n = if n & (1 << (h + 1)) != 0 { n - (1 << h) } else { n + (1 << h) };
        }
    }
    Ok(nodes)
}

/// Node of item `i` in a tree bucket.
pub(crate) fn tree_node(i: usize) -> usize {
    ((i + 1) << 1) - 1
}

/// Lengths of the straws of a straw bucket (`straw_calc_version` 0 or 1).
pub(crate) fn straw_lengths(weights: &[u32], version: u8) -> Vec<u32> {
    let n = weights.len();
    let mut straws = vec![0u32; n];
    // Positions by ascending weight; equal weights keep their order.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| weights.get(*i).copied().unwrap_or(0));
    let weight = |i: usize| order.get(i).and_then(|p| weights.get(*p)).copied().unwrap_or(0);
    let mut numleft = n;
    let (mut straw, mut wbelow, mut lastw) = (1.0f64, 0.0f64, 0.0f64);
    let mut i = 0;
    while i < n {
        let Some(slot) = order.get(i).and_then(|p| straws.get_mut(*p)) else { break };
        if weight(i) == 0 {
            *slot = 0;
            i += 1;
            if version >= 1 {
                numleft -= 1;
            }
            continue;
        }
        *slot = (straw * 65536.0) as u32;
        i += 1;
        if i == n {
            break;
        }
        if version == 0 && weight(i) == weight(i - 1) {
            continue;
        }
        wbelow += (f64::from(weight(i - 1)) - lastw) * numleft as f64;
        if version == 0 {
            // All items of the next weight leave at once.
            let mut j = i;
            while j < n && weight(j) == weight(i) {
                numleft -= 1;
                j += 1;
            }
        } else {
            numleft -= 1;
        }
        let wnext = numleft as f64 * (f64::from(weight(i)) - f64::from(weight(i - 1)));
        let pbelow = wbelow / (wbelow + wnext);
        straw *= (1.0 / pbelow).powf(1.0 / numleft as f64);
        lastw = f64::from(weight(i - 1));
    }
    straws
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CrushMap;
    use bytes::Bytes;

    /// Rebuilding the buckets of real maps gives the numbers that Ceph computed.
    #[test]
    fn rebuilt_buckets_equal_cephs() {
        let mut algs = std::collections::BTreeSet::new();
        for name in ["flat-list", "flat-straw", "flat-straw2", "flat-uniform", "full", "tun-argonaut", "hier"] {
            let p = format!("{}/../../vectors/crush/{name}.crush", env!("CARGO_MANIFEST_DIR"));
            let m = CrushMap::decode_blob(&Bytes::from(std::fs::read(p).unwrap())).unwrap();
            for b in m.iter_buckets() {
                let mut again = Bucket::new(b.id, b.kind, b.alg());
                again.set_items(b.items.clone(), b.weights(), m.tunables.straw_calc_version).unwrap();
                assert_eq!(&again, b.as_ref(), "{name} bucket {}", b.id);
                algs.insert(b.alg().name());
            }
        }
        assert!(algs.len() >= 4, "{algs:?}");
    }
}
