//! The places that CRUSH finds for a PG, and the steps that help where they are too few.

use serde::Deserialize;

/// Places that CRUSH finds for a PG, on OSDs that are up or down.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Placement {
    /// Name of the pool.
    pub pool: String,
    /// Name of its CRUSH rule.
    pub rule: String,
    /// Bucket type that separates the places: `host`.
    pub domain: String,
    /// True for an erasure-coded pool.
    pub coded: bool,
    /// Number of OSDs from which the rule can choose: those that are in.
    pub osds: usize,
    /// OSDs of the rule that are out.
    pub out: Vec<i32>,
    /// Places found.
    pub found: usize,
    /// Copies or shards of the pool.
    pub wanted: usize,
    /// Fewest copies or shards with which a PG serves.
    pub min_size: usize,
}

impl Placement {
    /// True if some copies have no place.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.found < self.wanted
    }

    /// True if the places are too few for a new PG to serve.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.is_short() && self.found < self.min_size
    }

    /// The shortage in words.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { pool, rule, domain, found, wanted, .. } = self;
        format!("CRUSH finds {found} of {wanted} places for pool {pool} with rule {rule} (failure domain {domain})")
    }

    /// The steps that end the shortage.
    #[must_use]
    pub fn remedy(&self) -> String {
        let add = self.more_places();
        match self.out.as_slice() {
            [] => add,
            [one] => {
                format!("bring osd.{one} back, which is out (`ceph osd in`, and start it if it is down); or {add}")
            }
            some => format!(
                "bring {} back, which are out (`ceph osd in`, and start those that are down); or {add}",
                names(some)
            ),
        }
    }

    fn more_places(&self) -> String {
        if self.domain == OSD {
            return "add OSDs".to_owned();
        }
        let plural = if self.domain.ends_with('s') { "" } else { "s" };
        let add = format!("add {}{plural} with OSDs", self.domain);
        if self.osds < self.wanted {
            return format!("{add}; the rule has {} OSDs to choose from", self.osds);
        }
        let make = if self.coded {
            "`ceph osd crush rule create-erasure NEW PROFILE`, where PROFILE has the same k and m and \
             `crush-failure-domain=osd`"
        } else {
            "`ceph osd crush rule create-replicated NEW default osd`"
        };
        format!(
            "{add}, or take a rule with failure domain osd, where one {} may have several copies: {make}, then `ceph osd \
             pool set {} crush_rule NEW`",
            self.domain, self.pool
        )
    }
}

/// Names of OSDs, at most five of them.
pub(crate) fn names(osds: &[i32]) -> String {
    let mut shown: Vec<String> = osds.iter().take(5).map(|o| format!("osd.{o}")).collect();
    if osds.len() > 5 {
        shown.push(format!("{} more", osds.len() - 5));
    }
    shown.join(", ")
}

/// The bucket type of OSDs.
const OSD: &str = "osd";
