//! CRUSH: the hierarchy of devices and the rules that pick them.
//!
//! [`CrushMap`] is the map as Ceph encodes it. `mapper` holds the placement function, `codec` the wire form.
//! The other files edit maps for the monitor's commands. Bucket ids are negative: bucket `-1 - i` is in slot
//! `i`. Device numbers start at 0.
//!
//! | module | contents |
//! | --- | --- |
//! | `bucket` | buckets: inner nodes of the hierarchy, with the numbers each algorithm keeps |
//! | `classes` | device classes and their shadow trees |
//! | `codec` | wire form of CRUSH maps |
//! | `edit` | changes of the hierarchy, as the monitor's `osd crush` commands make them |
//! | `hash` | hashes of placement: CRUSH's rjenkins1 over integers, and the two string hashes of object names |
//! | `ln` | fixed-point logarithm of straw2, as a table over its 65,536 inputs |
//! | `mapper` | the placement function: from a rule and a number to devices, exactly as in Ceph |
//! | `rules` | placement rules: programs of a few steps, and the rules that commands create |
//! | `weights` | weights: of items, of whole trees, and of weight sets |

mod bucket;
mod classes;
mod codec;
mod edit;
pub mod hash;
mod ln;
mod mapper;
mod rules;
mod weights;

pub use bucket::{Bucket, BucketAlg, BucketData};
pub use edit::Location;
pub use mapper::{Scratch, do_rule};
pub use rules::{Rule, RuleSpec, Step, op};
pub use weights::weight_from_float;

use std::collections::BTreeMap;
use std::sync::Arc;

/// "No item": a hole in an erasure-coded set.
pub const ITEM_NONE: i32 = 0x7fff_ffff;
/// "Not decided yet", used during placement only.
pub(crate) const ITEM_UNDEF: i32 = 0x7fff_fffe;
/// Greatest depth that is followed; it ends walks of maps with loops.
pub const MAX_DEPTH: usize = 64;
/// Most bucket slots a map may have.
pub const MAX_BUCKETS: usize = 1 << 20;
/// Most rule slots a map may have (`CRUSH_MAX_RULES`).
pub const MAX_RULES: usize = 256;
/// Type number of devices.
pub const TYPE_OSD: i32 = 0;
/// Weight 1.0, in 16.16 fixed point: the unit of all CRUSH weights.
pub const WEIGHT_ONE: u32 = 0x1_0000;
/// Key of the weight set that old clients use.
pub const CHOOSE_ARGS_COMPAT: i64 = -1;

/// Types of a new cluster's map.
pub const DEFAULT_TYPES: [(i32, &str); 12] = [
    (0, "osd"),
    (1, "host"),
    (2, "chassis"),
    (3, "rack"),
    (4, "row"),
    (5, "pdu"),
    (6, "pod"),
    (7, "room"),
    (8, "datacenter"),
    (9, "zone"),
    (10, "region"),
    (11, "root"),
];

/// Retry parameters of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Retries within a bucket.
    pub choose_local_tries: u32,
    /// Retries within a bucket by permutation.
    pub choose_local_fallback_tries: u32,
    /// Retries from the top.
    pub choose_total_tries: u32,
    /// True (1) if a leaf is tried once, and a retry starts at the top.
    pub chooseleaf_descend_once: u32,
    /// The leaf's attempt depends on the parent's.
    pub chooseleaf_vary_r: u8,
    /// Version of the straw length calculation.
    pub straw_calc_version: u8,
    /// Bit `1 << alg` for each bucket algorithm that users may choose.
    pub allowed_bucket_algs: u32,
    /// Leaves do not move when an inner choice fails.
    pub chooseleaf_stable: u8,
    /// Limits of multi-step retry rules; present in maps of Squid and later.
    pub msr: Option<(u32, u32)>,
}

const LEGACY_ALGS: u32 = 1 << 1 | 1 << 2 | 1 << 4;
const STRAW2_ALGS: u32 = LEGACY_ALGS | 1 << 5;

impl Tunables {
    /// Values of Argonaut.
    pub const LEGACY: Self = Self {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: LEGACY_ALGS,
        chooseleaf_stable: 0,
        msr: None,
    };
    /// Values of Bobtail.
    pub const BOBTAIL: Self = Self {
        choose_local_tries: 0,
        choose_local_fallback_tries: 0,
        choose_total_tries: 50,
        chooseleaf_descend_once: 1,
        ..Self::LEGACY
    };
    /// Values of Firefly.
    pub const FIREFLY: Self = Self { chooseleaf_vary_r: 1, ..Self::BOBTAIL };
    /// Values of Hammer.
    pub const HAMMER: Self = Self { allowed_bucket_algs: STRAW2_ALGS, ..Self::FIREFLY };
    /// Values of Jewel, the default and optimum.
    pub const JEWEL: Self = Self { chooseleaf_stable: 1, straw_calc_version: 1, ..Self::HAMMER };

    /// Profile by its name in commands.
    #[must_use]
    pub fn profile(name: &str) -> Option<Self> {
        Some(match name {
            "legacy" | "argonaut" => Self::LEGACY,
            "bobtail" => Self::BOBTAIL,
            "firefly" => Self::FIREFLY,
            "hammer" => Self::HAMMER,
            "jewel" | "optimal" | "default" => Self::JEWEL,
            _ => return None,
        })
    }

    /// Name of the profile with these values, `unknown` if none. `straw_calc_version` is ignored.
    #[must_use]
    pub fn profile_name(&self) -> &'static str {
        let norm = |t: &Self| Self { straw_calc_version: 0, msr: None, ..*t };
        for (name, t) in [
            ("jewel", Self::JEWEL),
            ("hammer", Self::HAMMER),
            ("firefly", Self::FIREFLY),
            ("bobtail", Self::BOBTAIL),
            ("argonaut", Self::LEGACY),
        ] {
            if norm(self) == norm(&t) {
                return name;
            }
        }
        "unknown"
    }

    /// Oldest release whose clients support these values.
    #[must_use]
    pub fn min_required_version(&self) -> &'static str {
        if self.chooseleaf_stable != 0 {
            "jewel"
        } else if self.allowed_bucket_algs & 1 << 5 != 0 {
            "hammer"
        } else if self.chooseleaf_vary_r != 0 {
            "firefly"
        } else if self.chooseleaf_descend_once != 0 || self.choose_local_tries != 2 {
            "bobtail"
        } else {
            "argonaut"
        }
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Self::JEWEL
    }
}

/// Replacement of one bucket's weights and ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChooseArg {
    /// Weights per position of the result; the last one serves all later positions.
    pub weight_sets: Vec<Vec<u32>>,
    /// Ids that are hashed instead of the ids of the items.
    pub ids: Vec<i32>,
}

/// A weight set: substitutes by bucket slot.
pub type ChooseArgMap = BTreeMap<usize, ChooseArg>;

/// A CRUSH map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrushMap {
    /// Buckets by slot; the number of slots is part of the encoding.
    pub buckets: Vec<Option<Arc<Bucket>>>,
    /// Rules by number.
    pub rules: Vec<Option<Rule>>,
    /// The highest device number plus one.
    pub max_devices: i32,
    /// Type names.
    pub type_names: BTreeMap<i32, String>,
    /// Names of buckets and devices.
    pub item_names: BTreeMap<i32, String>,
    /// Rule names.
    pub rule_names: BTreeMap<i32, String>,
    /// Tunables.
    pub tunables: Tunables,
    /// Device to class.
    pub class_map: BTreeMap<i32, i32>,
    /// Class names.
    pub class_names: BTreeMap<i32, String>,
    /// Bucket to class to shadow bucket.
    pub class_bucket: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Weight sets by pool, or [`CHOOSE_ARGS_COMPAT`].
    pub choose_args: BTreeMap<i64, ChooseArgMap>,
}

/// Refusal of a change to a CRUSH map. [`CrushError::errno`] is the command's answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrushError {
    /// No item with that name or id.
    #[error("item {0} does not exist")]
    NoSuchItem(String),
    /// No type with that name.
    #[error("type '{0}' does not exist")]
    NoSuchType(String),
    /// No rule with that name or number.
    #[error("rule {0} does not exist")]
    NoSuchRule(String),
    /// No class with that name.
    #[error("device class {0} does not exist")]
    NoSuchClass(String),
    /// The name or id exists already.
    #[error("{0} already exists")]
    Exists(String),
    /// The bucket still holds items.
    #[error("bucket {0} is not empty")]
    NotEmpty(String),
    /// The item is still in use.
    #[error("{0}")]
    Busy(String),
    /// The change would put a bucket below itself.
    #[error("bucket {0} would be below itself")]
    Loop(String),
    /// Any other invalid argument.
    #[error("{0}")]
    Invalid(String),
    /// No slot is free, or a limit is exceeded.
    #[error("{0}")]
    NoSpace(String),
}

impl CrushError {
    /// Ceph's errno for this error.
    #[must_use]
    pub fn errno(&self) -> base::errno::Errno {
        use base::errno::{EBUSY, EEXIST, EINVAL, ELOOP, ENOENT, ENOSPC, ENOTEMPTY};
        match self {
            Self::NoSuchItem(_) | Self::NoSuchType(_) | Self::NoSuchRule(_) | Self::NoSuchClass(_) => ENOENT,
            Self::Exists(_) => EEXIST,
            Self::NotEmpty(_) => ENOTEMPTY,
            Self::Busy(_) => EBUSY,
            Self::Loop(_) => ELOOP,
            Self::Invalid(_) => EINVAL,
            Self::NoSpace(_) => ENOSPC,
        }
    }
}

/// Slot of a bucket id.
pub(crate) fn slot_of(id: i32) -> usize {
    if id < 0 { (-1i64 - i64::from(id)) as usize } else { usize::MAX }
}

impl CrushMap {
    /// Bucket by its (negative) id.
    #[must_use]
    pub fn bucket(&self, id: i32) -> Option<&Arc<Bucket>> {
        self.buckets.get(slot_of(id))?.as_ref()
    }

    /// Mutable bucket by its id.
    pub fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(slot_of(id))?.as_mut().map(Arc::make_mut)
    }

    /// All buckets in slot order (ids -1, -2, ...), shadow buckets included.
    pub fn iter_buckets(&self) -> impl Iterator<Item = &Arc<Bucket>> {
        self.buckets.iter().flatten()
    }

    /// True if the map has a bucket with this id, or a bucket that holds this device.
    #[must_use]
    pub fn item_exists(&self, id: i32) -> bool {
        if id < 0 { self.bucket(id).is_some() } else { self.parent_of(id).is_some() }
    }

    /// Name of an item.
    #[must_use]
    pub fn name_of(&self, id: i32) -> Option<&str> {
        self.item_names.get(&id).map(String::as_str)
    }

    /// Id of the item with this name.
    #[must_use]
    pub fn id_of(&self, name: &str) -> Option<i32> {
        self.item_names.iter().find(|(_, n)| *n == name).map(|(i, _)| *i)
    }

    /// Number of the type with this name.
    #[must_use]
    pub fn type_id(&self, name: &str) -> Option<i32> {
        self.type_names.iter().find(|(_, n)| *n == name).map(|(i, _)| *i)
    }

    /// Name of a type.
    #[must_use]
    pub fn type_name(&self, t: i32) -> Option<&str> {
        self.type_names.get(&t).map(String::as_str)
    }

    /// Type of an item: 0 for devices.
    #[must_use]
    pub fn type_of(&self, id: i32) -> Option<i32> {
        if id >= 0 { Some(TYPE_OSD) } else { self.bucket(id).map(|b| i32::from(b.kind)) }
    }

    /// Number of the rule with this name.
    #[must_use]
    pub fn rule_id(&self, name: &str) -> Option<i32> {
        self.rule_names.iter().find(|(_, n)| *n == name).map(|(i, _)| *i)
    }

    /// Name of a rule.
    #[must_use]
    pub fn rule_name(&self, id: i32) -> Option<&str> {
        self.rule_names.get(&id).map(String::as_str)
    }

    /// A rule by number.
    #[must_use]
    pub fn rule(&self, id: i32) -> Option<&Rule> {
        self.rules.get(usize::try_from(id).ok()?)?.as_ref()
    }

    /// Id of the class with this name.
    #[must_use]
    pub fn class_id(&self, name: &str) -> Option<i32> {
        self.class_names.iter().find(|(_, n)| *n == name).map(|(i, _)| *i)
    }

    /// Class of a device.
    #[must_use]
    pub fn class_of(&self, id: i32) -> Option<&str> {
        self.class_names.get(self.class_map.get(&id)?).map(String::as_str)
    }

    /// True for shadow buckets: their names hold a `~`.
    #[must_use]
    pub fn is_shadow(&self, id: i32) -> bool {
        id < 0 && self.name_of(id).is_some_and(|n| n.contains('~'))
    }

    /// Original bucket and class of a shadow bucket.
    #[must_use]
    pub fn split_shadow(&self, id: i32) -> Option<(i32, i32)> {
        let (base, class) = self.name_of(id)?.split_once('~')?;
        Some((self.id_of(base)?, self.class_id(class)?))
    }

    /// The first bucket by slot that holds an item. A shadow bucket counts only if no other holds the item.
    #[must_use]
    pub fn parent_of(&self, id: i32) -> Option<i32> {
        let mut shadow = None;
        for b in self.iter_buckets() {
            if b.items.contains(&id) {
                if !self.is_shadow(b.id) {
                    return Some(b.id);
                }
                shadow.get_or_insert(b.id);
            }
        }
        shadow
    }

    /// Parent of every item that has one, as [`CrushMap::parent_of`] gives it, in one pass over the map.
    #[must_use]
    pub fn parents(&self) -> BTreeMap<i32, i32> {
        let mut out = BTreeMap::new();
        // Shadow trees come last, so that they only fill gaps.
        for shadow in [false, true] {
            for b in self.iter_buckets().filter(|b| self.is_shadow(b.id) == shadow) {
                for item in &b.items {
                    out.entry(*item).or_insert(b.id);
                }
            }
        }
        out
    }

    /// Location of an item: `(type name, bucket name)` from the nearest bucket up.
    #[must_use]
    pub fn full_location(&self, id: i32) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut at = id;
        while let Some(p) = self.parent_of(at) {
            if out.len() >= MAX_DEPTH {
                break;
            }
            let ty = self.type_of(p).and_then(|t| self.type_name(t)).unwrap_or_default();
            out.push((ty.to_owned(), self.name_of(p).unwrap_or_default().to_owned()));
            at = p;
        }
        out
    }

    /// Buckets without a parent, ascending by id (the newest first, as ids are negative), without shadow trees.
    #[must_use]
    pub fn roots(&self) -> Vec<i32> {
        self.all_roots().into_iter().filter(|id| !self.is_shadow(*id)).collect()
    }

    /// Buckets without a parent, shadow trees included.
    #[must_use]
    pub fn all_roots(&self) -> Vec<i32> {
        let held: std::collections::BTreeSet<i32> =
            self.iter_buckets().flat_map(|b| b.items.iter().copied().filter(|i| *i < 0)).collect();
        let mut v: Vec<i32> = self.iter_buckets().map(|b| b.id).filter(|id| !held.contains(id)).collect();
        v.sort_unstable();
        v
    }

    /// True if `item` is in the tree of `root`.
    #[must_use]
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        let mut found = false;
        self.walk(root, &mut |id, _| {
            found |= id == item;
            !found
        });
        found
    }

    /// Devices below an item, in tree order.
    #[must_use]
    pub fn leaves(&self, root: i32) -> Vec<i32> {
        let mut v = Vec::new();
        self.walk(root, &mut |id, _| {
            if id >= 0 {
                v.push(id);
            }
            true
        });
        v
    }

    /// Visits an item and everything below it, parents first, with the depth. If `f` returns false, the items
    /// below are skipped. Each bucket is visited once, so a map with loops ends too.
    pub fn walk(&self, root: i32, f: &mut impl FnMut(i32, usize) -> bool) {
        let mut seen = std::collections::BTreeSet::new();
        let mut stack = vec![(root, 0)];
        while let Some((id, depth)) = stack.pop() {
            if id < 0 && !seen.insert(id) {
                continue;
            }
            if !f(id, depth) {
                continue;
            }
            if let Some(b) = self.bucket(id) {
                stack.extend(b.items.iter().rev().map(|i| (*i, depth + 1)));
            }
        }
    }

    /// Weight set for the placement of a pool: the pool's own, else the compat one.
    #[must_use]
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgMap> {
        self.choose_args.get(&pool).or_else(|| self.choose_args.get(&CHOOSE_ARGS_COMPAT))
    }

    /// True if the name is valid for an item: letters, digits and `-_.` (and `~` in shadow names).
    #[must_use]
    pub fn is_valid_name(name: &str) -> bool {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    }
}
