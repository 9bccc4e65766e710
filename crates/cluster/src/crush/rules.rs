//! Placement rules: programs of a few steps, and the rules that commands create.

use super::{CrushError, CrushMap};

/// Numbers of rule steps.
pub mod op {
    /// No operation.
    pub const NOOP: u32 = 0;
    /// Starts at an item.
    pub const TAKE: u32 = 1;
    /// Picks items; gaps close.
    pub const CHOOSE_FIRSTN: u32 = 2;
    /// Picks items; gaps stay.
    pub const CHOOSE_INDEP: u32 = 3;
    /// Adds the picked items to the result.
    pub const EMIT: u32 = 4;
    /// Picks items and a device below each; gaps close.
    pub const CHOOSELEAF_FIRSTN: u32 = 6;
    /// Picks items and a device below each; gaps stay.
    pub const CHOOSELEAF_INDEP: u32 = 7;
    /// Sets the total tries.
    pub const SET_CHOOSE_TRIES: u32 = 8;
    /// Sets the tries for a leaf.
    pub const SET_CHOOSELEAF_TRIES: u32 = 9;
    /// Sets the local tries.
    pub const SET_CHOOSE_LOCAL_TRIES: u32 = 10;
    /// Sets the local fallback tries.
    pub const SET_CHOOSE_LOCAL_FALLBACK_TRIES: u32 = 11;
    /// Sets vary_r.
    pub const SET_CHOOSELEAF_VARY_R: u32 = 12;
    /// Sets stable.
    pub const SET_CHOOSELEAF_STABLE: u32 = 13;

    /// Name of a step in `osd crush rule dump`.
    #[must_use]
    pub fn name(op: u32) -> &'static str {
        match op {
            NOOP => "noop",
            TAKE => "take",
            CHOOSE_FIRSTN => "choose_firstn",
            CHOOSE_INDEP => "choose_indep",
            EMIT => "emit",
            CHOOSELEAF_FIRSTN => "chooseleaf_firstn",
            CHOOSELEAF_INDEP => "chooseleaf_indep",
            SET_CHOOSE_TRIES => "set_choose_tries",
            SET_CHOOSELEAF_TRIES => "set_chooseleaf_tries",
            SET_CHOOSE_LOCAL_TRIES => "set_choose_local_tries",
            SET_CHOOSE_LOCAL_FALLBACK_TRIES => "set_choose_local_fallback_tries",
            SET_CHOOSELEAF_VARY_R => "set_chooseleaf_vary_r",
            SET_CHOOSELEAF_STABLE => "set_chooseleaf_stable",
            _ => "unknown",
        }
    }
}

/// One step of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Operation; see [`op`].
    pub op: u32,
    /// First argument: an item, a count (0 = as many as asked for, negative = fewer by that) or a setting.
    pub arg1: i32,
    /// Second argument: the type to pick.
    pub arg2: i32,
}

impl Step {
    /// A step.
    #[must_use]
    pub fn new(op: u32, arg1: i32, arg2: i32) -> Self {
        Self { op, arg1, arg2 }
    }
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Number of the old rule set; equals the rule's number in maps of current releases.
    pub ruleset: u8,
    /// Pool kind (see [`crate::pool::kind`]).
    pub kind: u8,
    /// Smallest pool size (old).
    pub min_size: u8,
    /// Largest pool size (old).
    pub max_size: u8,
    /// The program.
    pub steps: Vec<Step>,
}

impl Rule {
    /// Items the rule starts at.
    pub fn takes(&self) -> impl Iterator<Item = i32> + '_ {
        self.steps.iter().filter(|s| s.op == op::TAKE).map(|s| s.arg1)
    }

    /// For each step that chooses buckets, the last step first: their type, and the most shards that the steps after it
    /// place in each of them, for a pool of a size.
    #[must_use]
    pub fn most_in_buckets(&self, size: u8) -> Vec<(i32, u32)> {
        let mut below = 1u32;
        let mut out = Vec::new();
        for s in self.steps.iter().rev() {
            if s.op == op::EMIT {
                below = 1;
            }
            if matches!(s.op, op::CHOOSE_FIRSTN | op::CHOOSE_INDEP | op::CHOOSELEAF_FIRSTN | op::CHOOSELEAF_INDEP) {
                if s.arg2 > 0 {
                    out.push((s.arg2, below));
                }
                let n = if s.arg1 > 0 { s.arg1 } else { i32::from(size).saturating_add(s.arg1) };
                below = below.saturating_mul(u32::try_from(n).unwrap_or(0).max(1));
            }
        }
        out
    }
}

/// Parameters of [`CrushMap::add_simple_rule`].
#[derive(Clone, Copy, Debug)]
pub struct RuleSpec<'a> {
    /// Name of the rule.
    pub name: &'a str,
    /// Bucket to start at.
    pub root: &'a str,
    /// Type that separates copies; `osd` or empty for none.
    pub failure_domain: &'a str,
    /// Device class, empty for any.
    pub class: &'a str,
    /// True if gaps stay (erasure code); else they close.
    pub indep: bool,
    /// Pool kind; see [`crate::pool::kind`].
    pub kind: u8,
    /// Largest set that the rule serves, 0 for the default of its mode.
    pub size_max: u8,
}

impl Default for RuleSpec<'_> {
    fn default() -> Self {
        Self {
            name: "",
            root: "default",
            failure_domain: "host",
            class: "",
            indep: false,
            kind: crate::pool::kind::REPLICATED,
            size_max: 0,
        }
    }
}

/// Default sizes of rules that are created by name.
const REPLICATED_SIZES: (u8, u8) = (1, 10);
const INDEP_SIZES: (u8, u8) = (3, 20);
const INDEP_LEAF_TRIES: i32 = 5;
const INDEP_TRIES: i32 = 100;

impl CrushMap {
    /// `osd crush rule create-simple/-replicated/-erasure`: adds a rule and returns its number, the lowest free one.
    /// Error: `Exists`, `NoSuchItem` for the root, `Invalid` for the type or class, `NoSpace`.
    pub fn add_simple_rule(&mut self, spec: &RuleSpec<'_>) -> Result<i32, CrushError> {
        if self.rule_id(spec.name).is_some() {
            return Err(CrushError::Exists(format!("rule '{}'", spec.name)));
        }
        let mut root = self.id_of(spec.root).ok_or_else(|| CrushError::NoSuchItem(format!("root '{}'", spec.root)))?;
        let ty = match spec.failure_domain {
            "" => 0,
            d => self.type_id(d).ok_or_else(|| CrushError::Invalid(format!("unknown type {d}")))?,
        };
        if !spec.class.is_empty() {
            let class = self
                .class_id(spec.class)
                .ok_or_else(|| CrushError::Invalid(format!("device class {} does not exist", spec.class)))?;
            root = self.class_bucket.get(&root).and_then(|m| m.get(&class)).copied().ok_or_else(|| {
                CrushError::Invalid(format!("root item {} has no devices with class {}", spec.root, spec.class))
            })?;
        }
        let mut steps = Vec::new();
        if spec.indep {
            steps.push(Step::new(op::SET_CHOOSELEAF_TRIES, INDEP_LEAF_TRIES, 0));
            steps.push(Step::new(op::SET_CHOOSE_TRIES, INDEP_TRIES, 0));
        }
        steps.push(Step::new(op::TAKE, root, 0));
        let choose = match (ty, spec.indep) {
            (0, false) => op::CHOOSE_FIRSTN,
            (0, true) => op::CHOOSE_INDEP,
            (_, false) => op::CHOOSELEAF_FIRSTN,
            (_, true) => op::CHOOSELEAF_INDEP,
        };
        steps.push(Step::new(choose, 0, ty));
        steps.push(Step::new(op::EMIT, 0, 0));
        let (min_size, mut max_size) = if spec.indep { INDEP_SIZES } else { REPLICATED_SIZES };
        if spec.size_max > 0 {
            max_size = spec.size_max;
        }
        self.add_rule(spec.name, Rule { ruleset: 0, kind: spec.kind, min_size, max_size, steps })
    }

    /// Adds a rule and returns its number, the lowest free one. Error: `NoSpace`.
    pub fn add_rule(&mut self, name: &str, mut rule: Rule) -> Result<i32, CrushError> {
        let at = self.rules.iter().position(Option::is_none).unwrap_or(self.rules.len());
        let Ok(ruleset) = u8::try_from(at) else {
            return Err(CrushError::NoSpace("no free rule number".to_owned()));
        };
        if at >= self.rules.len() {
            self.rules.push(None);
        }
        rule.ruleset = ruleset;
        if let Some(slot) = self.rules.get_mut(at) {
            *slot = Some(rule);
        }
        self.rule_names.insert(at as i32, name.to_owned());
        Ok(at as i32)
    }

    /// `osd crush rule rm`. The caller checks that no pool uses the rule. Error: `NoSuchRule`.
    pub fn remove_rule(&mut self, id: i32) -> Result<(), CrushError> {
        let slot = usize::try_from(id).ok().and_then(|i| self.rules.get_mut(i)).filter(|r| r.is_some());
        *slot.ok_or_else(|| CrushError::NoSuchRule(id.to_string()))? = None;
        self.rule_names.remove(&id);
        Ok(())
    }

    /// `osd crush rule rename`. Error: `NoSuchRule`, or `Exists` if the new name is in use.
    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<(), CrushError> {
        let id = self.rule_id(from).ok_or_else(|| CrushError::NoSuchRule(from.to_owned()))?;
        if self.rule_id(to).is_some() {
            return Err(CrushError::Exists(format!("rule '{to}'")));
        }
        self.rule_names.insert(id, to.to_owned());
        Ok(())
    }

    /// Rules that exist, by number.
    pub fn iter_rules(&self) -> impl Iterator<Item = (i32, &Rule)> {
        (0i32..).zip(&self.rules).filter_map(|(i, r)| r.as_ref().map(|r| (i, r)))
    }
}
