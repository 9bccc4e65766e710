//! Buckets: inner nodes of the hierarchy, with the numbers each algorithm keeps.

/// Selection algorithm of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketAlg {
    /// Items of equal weight.
    Uniform = 1,
    /// Newest first.
    List = 2,
    /// Binary tree.
    Tree = 3,
    /// Longest straw; superseded.
    Straw = 4,
    /// Longest straw with independent weights: the default.
    Straw2 = 5,
}

impl BucketAlg {
    /// By number.
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

    /// By name.
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

    /// The name.
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

/// What a bucket keeps by algorithm. Vectors are as long as the items, but for the tree's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketData {
    /// The weight of each item.
    Uniform {
        /// One weight for all.
        item_weight: u32,
    },
    /// Weights and their running sums.
    List {
        /// Per item.
        item_weights: Vec<u32>,
        /// Sum of the weights up to and with the item.
        sum_weights: Vec<u32>,
    },
    /// Weights of the nodes of a binary tree; item `i` is node `2i + 1`.
    Tree {
        /// Per node.
        node_weights: Vec<u32>,
    },
    /// Weights and straw lengths.
    Straw {
        /// Per item.
        item_weights: Vec<u32>,
        /// Per item.
        straws: Vec<u32>,
    },
    /// Weights.
    Straw2 {
        /// Per item.
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
    /// Weight, the sum of its items'.
    pub weight: u32,
    /// Devices (from 0) and buckets (below 0).
    pub items: Vec<i32>,
    /// By algorithm.
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

    /// Its algorithm.
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
}

/// Node of item `i` in a tree bucket.
pub(crate) fn tree_node(i: usize) -> usize {
    ((i + 1) << 1) - 1
}
