//! PG log entries of a collection: a row of pages, appended behind, dropped in front.

use super::Meta;
use super::page::Body;
use crate::codec::{Get, Malformed, Put};
use base::Eversion;
use bytes::Bytes;
use std::collections::VecDeque;

const PAGE_ENTRIES_MAX: usize = 64;

pub(crate) type LogEntries = VecDeque<(Eversion, Bytes)>;

/// The log of one collection. Invariant: pages are in version order and none is empty.
#[derive(Debug, Default)]
pub(crate) struct PgLog {
    pub(crate) pages: VecDeque<u32>,
    /// Stored entries up to here are void.
    pub(crate) trimmed: Option<Eversion>,
}

pub(crate) fn encode_entries(e: &LogEntries, w: &mut Vec<u8>) {
    w.var(e.len() as u64);
    for (v, b) in e {
        w.version(*v);
        w.bytes(b);
    }
}

pub(crate) fn decode_entries(r: &mut Get<'_>) -> Result<LogEntries, Malformed> {
    let n = r.count(13)?;
    let mut out = LogEntries::with_capacity(n);
    for _ in 0..n {
        out.push_back((r.version()?, r.bytes()?));
    }
    Ok(out)
}

impl Meta {
    fn log_page(&self, page: u32) -> Option<&LogEntries> {
        match self.pages.get(page as usize).map(|p| &p.body) {
            Some(Body::Log { entries, .. }) => Some(entries),
            _ => None,
        }
    }

    fn log_page_mut(&mut self, page: u32) -> Option<&mut LogEntries> {
        match self.pages.get_mut(page as usize).map(|p| &mut p.body) {
            Some(Body::Log { entries, .. }) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn log_append(&mut self, coll: u32, version: Eversion, entry: &[u8]) {
        let entry = Bytes::copy_from_slice(entry);
        self.log_bytes += entry.len() as u64 + 20;
        let Some(c) = self.colls.get(coll as usize) else { return };
        if c.log.trimmed.is_some_and(|t| version <= t) {
            self.forget_trim(coll);
        }
        let Some(c) = self.colls.get(coll as usize) else { return };
        let last = c.log.pages.back().copied();
        let newest = last.and_then(|p| self.log_page(p)).and_then(|e| e.back()).map(|e| e.0);
        if newest.is_some_and(|n| version <= n) {
            self.log_insert(coll, version, entry);
            return;
        }
        let room = last.and_then(|p| self.log_page(p)).is_some_and(|e| e.len() < PAGE_ENTRIES_MAX);
        match last {
            Some(p) if room => {
                self.touch(p);
                if let Some(e) = self.log_page_mut(p) {
                    e.push_back((version, entry));
                }
            }
            _ => {
                let mut entries = LogEntries::new();
                entries.push_back((version, entry));
                let p = self.new_page(Body::Log { coll, entries });
                if let Some(c) = self.colls.get_mut(coll as usize) {
                    c.log.pages.push_back(p);
                }
            }
        }
    }

    /// Puts an entry in the middle: a log rebuilt out of order. Replaces one of equal version.
    fn log_insert(&mut self, coll: u32, version: Eversion, entry: Bytes) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let pages = &c.log.pages;
        let i = pages
            .partition_point(|p| self.log_page(*p).and_then(|e| e.front()).is_some_and(|e| e.0 <= version))
            .saturating_sub(1);
        let Some(&p) = pages.get(i) else { return };
        self.touch(p);
        let mut replaced = 0;
        if let Some(e) = self.log_page_mut(p) {
            let at = e.partition_point(|x| x.0 < version);
            match e.get_mut(at) {
                Some(x) if x.0 == version => replaced = std::mem::replace(&mut x.1, entry).len() as u64 + 20,
                _ => e.insert(at, (version, entry)),
            }
        }
        self.log_bytes -= replaced;
    }

    /// The stored front page may hold void entries that are older than what comes now: have it written again.
    fn forget_trim(&mut self, coll: u32) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (page, front) = (c.page, c.log.pages.front().copied());
        self.touch(page);
        if let Some(p) = front {
            self.touch(p);
        }
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.log.trimmed = None;
        }
    }

    pub(crate) fn log_trim(&mut self, coll: u32, to: Eversion) {
        while let Some(p) = self.colls.get(coll as usize).and_then(|c| c.log.pages.front().copied()) {
            let Some(e) = self.log_page(p) else { return };
            let all = e.back().is_none_or(|e| e.0 <= to);
            if all {
                self.log_bytes -= e.iter().map(|e| e.1.len() as u64 + 20).sum::<u64>();
                self.free_page(p);
                if let Some(c) = self.colls.get_mut(coll as usize) {
                    c.log.pages.pop_front();
                }
                continue;
            }
            // Not touched: the stored page keeps entries that `trimmed` makes void. But a page that the running checkpoint
            // has yet to write must be written as it was.
            self.settle(p);
            let mut gone = 0;
            if let Some(e) = self.log_page_mut(p) {
                while e.front().is_some_and(|e| e.0 <= to) {
                    gone += e.pop_front().map_or(0, |e| e.1.len() as u64 + 20);
                }
            }
            self.log_bytes -= gone;
            break;
        }
        let Some(c) = self.colls.get(coll as usize) else { return };
        if c.log.trimmed.is_none_or(|t| t < to) {
            let page = c.page;
            self.touch(page);
            if let Some(c) = self.colls.get_mut(coll as usize) {
                c.log.trimmed = Some(to);
            }
        }
    }

    pub(crate) fn log_rewind(&mut self, coll: u32, to: Eversion) {
        while let Some(p) = self.colls.get(coll as usize).and_then(|c| c.log.pages.back().copied()) {
            let Some(e) = self.log_page(p) else { return };
            if e.back().is_some_and(|e| e.0 <= to) {
                return;
            }
            if e.front().is_none_or(|e| e.0 > to) {
                self.log_bytes -= e.iter().map(|e| e.1.len() as u64 + 20).sum::<u64>();
                self.free_page(p);
                if let Some(c) = self.colls.get_mut(coll as usize) {
                    c.log.pages.pop_back();
                }
                continue;
            }
            self.touch(p);
            let mut gone = 0;
            if let Some(e) = self.log_page_mut(p) {
                while e.back().is_some_and(|e| e.0 > to) {
                    gone += e.pop_back().map_or(0, |e| e.1.len() as u64 + 20);
                }
            }
            self.log_bytes -= gone;
            return;
        }
    }

    pub(crate) fn log_after(&self, coll: u32, after: Eversion) -> Vec<(Eversion, Bytes)> {
        let Some(c) = self.colls.get(coll as usize) else { return Vec::new() };
        let pages = c.log.pages.iter().filter_map(|p| self.log_page(*p));
        pages
            .skip_while(|e| e.back().is_some_and(|e| e.0 <= after))
            .flat_map(|e| e.iter().filter(|e| e.0 > after).cloned())
            .collect()
    }
}
