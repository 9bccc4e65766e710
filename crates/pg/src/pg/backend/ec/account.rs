//! An object with its clones as another shard describes it, page by page, for a primary that lacks it.
//!
//! A copy of last resort may have another version of the object. Its head comes last in the list, so the primary first
//! asks for all pages, keeps only what shows the version (the account), judges it, and then asks for the pages again.
//! Nothing is filled while the primary lacks an object, so the copy tells the same twice.
//!
//! Invariant: of a copy of last resort no page is used before its account was found to be right.
//!
//! Tests: below; `tests/coded_last_resorts.rs`.

use super::read::ShardReads;
use crate::limits::FAMILY_MAX;
use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use crate::shards::PeerId;
use base::{Eversion, HObject, SnapId};
use bytes::Bytes;
use std::collections::BTreeSet;

/// An object with its attributes, as another shard reports it.
pub(crate) type Described = (HObject, Vec<(Bytes, Bytes)>);

/// A page of an object and its clones, in the order of a list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub of: Vec<Described>,
    /// The clone with which the next page begins.
    pub more: Option<HObject>,
}

/// The account of a copy of last resort: the part of its pages that shows the version.
#[derive(Debug)]
pub(in crate::pg) struct Account {
    of: PeerId,
    /// Clones with an info.
    clones: BTreeSet<SnapId>,
    /// Version and snapset of the head, or of the snapdir if there is no head.
    left: Option<(Eversion, SnapSet)>,
    /// The clone with which the next page begins; `None` after the last one.
    next: Option<HObject>,
}

impl Account {
    fn add(&mut self, page: &Page) {
        for (h, attrs) in &page.of {
            let get = |name: &[u8]| attrs.iter().find(|(k, _)| k == name).map(|(_, v)| v);
            let Some(oi) = get(OI_ATTR).and_then(|a| ObjectInfo::from_attr(a).ok()) else { continue };
            if h.snap < SnapId::HEAD {
                self.clones.insert(h.snap);
            } else if self.left.is_none() {
                let snaps = get(SS_ATTR).map_or(Ok(SnapSet::default()), SnapSet::from_attr);
                self.left = snaps.ok().map(|s| (oi.version, s));
            }
        }
        self.next = page.more.clone().filter(|_| self.clones.len() <= FAMILY_MAX);
    }
}

impl ShardReads {
    /// Takes a page of a description. That of a copy of last resort only adds to its account until that was judged.
    pub(super) fn take_page(&mut self, from: PeerId, mut page: Page, last_resort: bool) {
        page.of.retain(|(h, _)| self.family_from.as_ref().is_none_or(|from| h >= from));
        // A page that brings nothing would be asked for again and again.
        page.more = page.more.filter(|m| page.of.last().is_some_and(|(h, _)| m > h));
        if !last_resort || self.vouches(from) {
            self.family = Some(page);
            return;
        }
        let new = || Box::new(Account { of: from, clones: BTreeSet::new(), left: None, next: None });
        let mut account = self.account.take().filter(|a| a.of == from).unwrap_or_else(new);
        account.add(&page);
        self.account = Some(account);
    }

    /// True if the account of this copy of last resort was found to be right.
    pub(in crate::pg) fn vouches(&self, p: PeerId) -> bool {
        self.vouched == Some(p)
    }

    /// The clone with which the account of this copy goes on.
    pub(in crate::pg) fn account_goes_on(&self, p: PeerId) -> Option<HObject> {
        self.account.as_ref().filter(|a| a.of == p)?.next.clone()
    }

    /// Judges a complete account: it must be of the object in the version `need`, with all clones. Its copy is asked for the
    /// pages again, or for nothing more.
    pub(in crate::pg) fn judge_account(&mut self, need: Eversion) {
        let Some(a) = self.account.take_if(|a| a.next.is_none()) else { return };
        let whole = |s: &SnapSet| s.clones.iter().all(|c| a.clones.contains(&SnapId(c.id)));
        if a.left.as_ref().is_some_and(|(v, s)| *v == need && whole(s)) {
            self.vouched = Some(a.of);
        } else {
            self.cannot_tell.insert(a.of);
        }
    }
}
