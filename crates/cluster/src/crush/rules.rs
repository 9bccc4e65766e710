//! Placement rules: programs of a few steps.

/// Numbers of rule steps.
pub mod op {
    /// Nothing.
    pub const NOOP: u32 = 0;
    /// Start at an item.
    pub const TAKE: u32 = 1;
    /// Pick items, gaps close.
    pub const CHOOSE_FIRSTN: u32 = 2;
    /// Pick items, gaps stay.
    pub const CHOOSE_INDEP: u32 = 3;
    /// Add what was picked to the result.
    pub const EMIT: u32 = 4;
    /// Pick items and a device below each.
    pub const CHOOSELEAF_FIRSTN: u32 = 6;
    /// The same with gaps.
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

    /// The names `osd crush rule dump` shows.
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
    /// See [`op`].
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
    /// Number of the old rule set; equals the rule's number in maps of today.
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
