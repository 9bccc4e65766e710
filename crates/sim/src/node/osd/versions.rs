//! The versions that an OSD announces: those of this build, or of a made-up newer one.
//!
//! A newer OSD speaks to this build's as they do with each other, with version numbers and feature bits that they do not
//! know.

use super::OsdNode;
use crate::world::Ctx;
use base::OsdId;
use std::collections::BTreeMap;
use wire::Message;
use wire::msg::PeerVersions;

/// Number of versions by which the newer OSD is ahead.
const AHEAD: u16 = 4;

impl OsdNode {
    /// True if this OSD is of a newer version.
    pub(super) fn is_newer(&self, cx: &Ctx) -> bool {
        cx.options.osd.newer && self.osd == OsdId(0)
    }
}

/// The metadata of an OSD's boot.
pub(super) fn versions(newer: bool, host: &str) -> BTreeMap<String, String> {
    let PeerVersions { oldest, newest } = PeerVersions::OURS;
    let newest = if newer { newest + AHEAD } else { newest };
    let [of_oldest, of_newest] = PeerVersions::FIELDS.map(str::to_owned);
    let all =
        [("hostname".to_owned(), host.to_owned()), (of_oldest, oldest.to_string()), (of_newest, newest.to_string())];
    all.into()
}

/// A message to another OSD, as OSD `from` sends it.
pub(super) fn stamped(cx: &Ctx, from: usize, mut m: Message) -> Message {
    if cx.options.osd.newer && from == 0 {
        m.header.version += AHEAD;
    }
    m
}
