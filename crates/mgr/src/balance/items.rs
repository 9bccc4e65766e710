//! Upmap items that turn one set of OSDs into another.

use base::OsdId;

/// The items that replace OSDs of `raw`, CRUSH's choice, so that `want` results, position by position; none if both are
/// equal. Items take effect one after the other, and one whose target is in the set already has none, so they are in an
/// order in which each has its effect. `None` if there is no such order, or if the sets differ in length or holes.
#[must_use]
pub fn items_between(raw: &[OsdId], want: &[OsdId]) -> Option<Vec<(OsdId, OsdId)>> {
    if raw.len() != want.len() {
        return None;
    }
    let mut left: Vec<(OsdId, OsdId)> = raw.iter().copied().zip(want.iter().copied()).filter(|(r, w)| r != w).collect();
    if left.iter().any(|(r, w)| *r == OsdId::NONE || *w == OsdId::NONE) {
        return None;
    }
    let mut now = raw.to_vec();
    let mut out = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let at = left.iter().position(|(_, to)| !now.contains(to))?;
        let (from, to) = left.remove(at);
        *now.iter_mut().find(|o| **o == from)? = to;
        out.push((from, to));
    }
    (now == want).then_some(out)
}
