//! Checks every write against the places for its kind, so that a mistake elsewhere can't damage a superblock,
//! another ring or the log.
//!
//! Invariant: no write or discard of this store reaches blocks outside the places of its role. Such a request
//! fails the store instead.
//!
//! Tests: below.

use super::{Role, Store};
use crate::api::Event;
use crate::layout::{BLOCK, Layout, ROOT_BLOCKS, SUPER_BLOCKS};
use base::device::IoKind;
use base::errno;
use std::ops::Range;

/// True if the request changes the device.
pub(super) fn changes(kind: &IoKind) -> bool {
    matches!(kind, IoKind::Write { .. } | IoKind::WriteAhead { .. } | IoKind::Discard { .. })
}

/// Blocks that a request changes; `None` if they are not whole blocks.
fn range(kind: &IoKind) -> Option<Range<u64>> {
    let (off, len) = match kind {
        IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => {
            (*off, bufs.iter().map(|b| b.len() as u64).sum())
        }
        IoKind::Discard { off, len } => (*off, *len),
        IoKind::Read { .. } | IoKind::Flush => return None,
    };
    let whole = off.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
    whole.then(|| off / BLOCK..(off / BLOCK).saturating_add(len / BLOCK))
}

fn inside(r: &Range<u64>, start: u64, blocks: u64) -> bool {
    start <= r.start && r.end <= start + blocks
}

impl Store {
    /// Checks a request against the places of its role. A stray write is not issued and fails the store.
    pub(super) fn is_allowed(&mut self, role: &Role, kind: &IoKind) -> bool {
        let r = range(kind);
        if self.failed().is_none() {
            if r.as_ref().is_some_and(|r| self.may_touch(role, r)) {
                return true;
            }
            let at = r.map_or_else(|| "part of a block".into(), |r| format!("blocks {}..{}", r.start, r.end));
            self.fail(format!("a write to {at}, which is no place for {role:?}"), errno::EIO);
        }
        if let Role::Early { tag, .. } = role {
            // The waiting caller learns of the failure when it repeats its plan.
            self.events.push_back(Event::Ready(*tag));
        }
        false
    }

    fn may_touch(&self, role: &Role, r: &Range<u64>) -> bool {
        let l = self.meta.layout();
        match role {
            Role::Read { .. } | Role::Load { .. } | Role::CheckpointFlush => false,
            Role::Early { .. } | Role::Data { .. } | Role::Page { .. } | Role::Discard { .. } => {
                inside(r, l.space_start, l.space_end - l.space_start)
            }
            Role::Commit { .. } => inside(r, self.log.ring().start, self.log.ring().blocks),
            Role::Root => self.layouts().any(|l| self.is_own_root(l, r)),
            Role::Growth => self.layouts().any(|l| self.is_own_root(l, r) || is_super(l, r)),
        }
    }

    /// The present layout, and while growing the new one.
    fn layouts(&self) -> impl Iterator<Item = &Layout> {
        std::iter::once(self.meta.layout()).chain(self.growing.as_ref().map(|g| g.layout()))
    }

    fn is_own_root(&self, l: &Layout, r: &Range<u64>) -> bool {
        let slots = [(0, 0), (0, 1), (1, 0), (1, 1)];
        slots.iter().any(|(parity, copy)| inside(r, l.root_slot(self.log.ring().index, *parity, *copy), ROOT_BLOCKS))
    }
}

fn is_super(l: &Layout, r: &Range<u64>) -> bool {
    (0..4).any(|slot| inside(r, l.super_slot(slot), SUPER_BLOCKS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::device::{drive, submit};
    use crate::engine::{Config, FormatOptions, Growth, format, open};
    use crate::layout::SHARDS;
    use crate::testing::{disk::SimDisk, fresh};
    use crate::{Cid, Health, ObjectStore, Op, Tag, Transaction};
    use base::buf::AlignedBuf;

    const BYTES: u64 = 64 << 20;

    fn roles() -> Vec<(&'static str, Role)> {
        vec![
            ("early", Role::Early { tag: Tag(1), plan: 1, first: 0, n: 1 }),
            ("data", Role::Data { seq: 1, first: 0 }),
            ("page", Role::Page { bytes: 4096, write: 1 }),
            ("discard", Role::Discard { first: 0, n: 1 }),
            ("frame", Role::Commit { seq: 1 }),
            ("root", Role::Root),
            ("growth", Role::Growth),
            ("read", Role::Read { tag: Tag(1), plan: 1, first: 0, n: 1 }),
            ("load", Role::Load { load: 0, part: 0 }),
            ("flush", Role::CheckpointFlush),
        ]
    }

    fn write(block: u64, blocks: u64) -> IoKind {
        IoKind::Write { off: block * BLOCK, bufs: vec![AlignedBuf::zeroed((blocks * BLOCK) as usize).freeze()] }
    }

    /// Roles that may write to each block of the device.
    #[test]
    fn each_role_keeps_to_its_places() {
        let (mut dev, mut s) = fresh(BYTES, 1, &Config::default());
        let l = Layout::of(BYTES).unwrap();
        let allowed = |s: &Store, b: u64| {
            let may = |r: &&(&str, Role)| s.may_touch(&r.1, &(b..b + 1));
            roles().iter().filter(may).map(|r| r.0).collect::<Vec<_>>()
        };
        let space = ["early", "data", "page", "discard"];
        for b in 0..l.blocks + 10 {
            let roots: Vec<u64> =
                (0..2).flat_map(|c| (0..2).map(move |p| (p, c))).map(|(p, c)| l.root_slot(0, p, c)).collect();
            let want: &[&str] = if (l.space_start..l.space_end).contains(&b) {
                &space
            } else if (l.log_start..l.space_start).contains(&b) {
                &["frame"]
            } else if roots.iter().any(|r| (*r..r + ROOT_BLOCKS).contains(&b)) {
                &["root", "growth"]
            } else if is_super(&l, &(b..b + 1)) {
                &["growth"]
            } else {
                &[]
            };
            assert_eq!(allowed(&s, b), want, "block {b}");
        }
        // Ranges over an edge, or with part of a block, are refused.
        assert!(!s.may_touch(&Role::Page { bytes: 0, write: 1 }, &(l.space_end - 1..l.space_end + 1)));
        assert!(!s.may_touch(&Role::Commit { seq: 1 }, &(l.space_start - 1..l.space_start + 1)));
        assert_eq!(range(&IoKind::Discard { off: 100, len: BLOCK }), None);
        assert_eq!(
            range(&IoKind::Discard { off: u64::MAX / BLOCK * BLOCK, len: BLOCK }),
            Some(u64::MAX / BLOCK..u64::MAX / BLOCK + 1)
        );
        // The layouts while the device grows.
        dev.grow(2 * BYTES);
        let new = l.grown_to(2 * BYTES);
        let _ = s.grow(Tag(1), Growth::Begin(2 * BYTES));
        drive(&mut s, &mut dev);
        assert_eq!(allowed(&s, new.root_slot(0, 1, 1)), ["root", "growth"]);
        assert_eq!(allowed(&s, l.root_slot(0, 1, 1)), ["root", "growth"]);
        assert_eq!(allowed(&s, new.super_slot(3)), ["growth"]);
        assert!(allowed(&s, l.space_end + 300).is_empty());
    }

    #[test]
    fn reactors_keep_to_their_rings_and_roots() {
        let mut dev = SimDisk::new(BYTES);
        let o = FormatOptions { uuid: base::Uuid([1; 16]), reactors: 2, labels: Default::default() };
        format(&mut dev, &o).unwrap();
        let stores = open(&mut dev, &Config { reactors: 2, ..Config::default() }).unwrap();
        let l = Layout::of(BYTES).unwrap();
        for (i, s) in (0u16..).zip(&stores) {
            for ring in 0..2 {
                let (first, n) = l.ring(ring, 2);
                for b in [first, first + n - 1] {
                    assert_eq!(s.may_touch(&Role::Commit { seq: 1 }, &(b..b + 1)), i == ring);
                }
            }
            for ring in 0..SHARDS {
                let r = l.root_slot(ring, 1, 1);
                assert_eq!(s.may_touch(&Role::Root, &(r..r + ROOT_BLOCKS)), i == ring);
            }
        }
    }

    #[test]
    fn a_write_that_strays_fails_the_store_and_is_not_written() {
        for (name, role) in roles() {
            for block in [0, 8, 300, 1 << 40] {
                let (mut dev, mut s) = fresh(BYTES, 1, &Config::default());
                if s.may_touch(&role, &(block..block + 1)) {
                    continue;
                }
                s.request(role.clone(), write(block, 1));
                assert!(s.poll_io().is_none(), "{name} at {block}");
                assert!(
                    matches!(s.health(), Health::Failed { what, errno: errno::EIO } if what.contains("no place for"))
                );
                // After the failure no other write is issued either; reads still work.
                s.request(Role::Page { bytes: 4096, write: 1 }, write(s.meta.layout().space_start, 1));
                assert!(s.poll_io().is_none());
                s.request(Role::Read { tag: Tag(1), plan: 1, first: 0, n: 1 }, IoKind::Read { off: 0, len: 4096 });
                assert!(s.poll_io().is_some());
                drop(s);
                assert_eq!(open(&mut dev, &Config::default()).unwrap().len(), 1);
            }
        }
    }

    /// Pages without a place are not written to block 0.
    #[test]
    fn a_checkpoint_without_room_writes_nothing() {
        let (mut dev, mut s) = fresh(BYTES, 1, &Config::default());
        let ops = vec![Op::MakeCollection { cid: Cid::Meta, bits: 0 }];
        submit(&mut s, &mut dev, Tag(1), Transaction { ops }).unwrap();
        let all = s.space.unreserved();
        for leave in [0, 1] {
            // The headroom was taken: one page of the tree finds room, the map does not.
            let (mut dev, mut s) = fresh(BYTES, 1, &Config::default());
            let ops = vec![Op::MakeCollection { cid: Cid::Meta, bits: 0 }];
            submit(&mut s, &mut dev, Tag(1), Transaction { ops }).unwrap();
            assert!(s.space.reserve(all - leave));
            s.request_checkpoint();
            s.end_turn();
            while let Some(r) = s.poll_io() {
                if let IoKind::Write { off, .. } | IoKind::WriteAhead { off, .. } = r.kind {
                    assert!(off >= s.meta.layout().space_start * BLOCK, "a write at {off}");
                }
            }
            drive(&mut s, &mut dev);
            assert!(matches!(s.health(), Health::Failed { errno: errno::ENOSPC, .. }), "{:?}", s.health());
            drop(s);
            assert_eq!(open(&mut dev, &Config::default()).unwrap()[0].collections().len(), 1);
        }
    }

    #[test]
    fn a_block_freed_twice_fails_every_store_of_the_device() {
        let (_, mut s) = fresh(BYTES, 1, &Config::default());
        s.end_turn();
        assert_eq!(*s.health(), Health::Ok);
        s.space.release(s.meta.layout().space_start + 5, 1);
        s.end_turn();
        assert!(matches!(s.health(), Health::Failed { what, .. } if what.contains("freed while it was free")));
    }

    #[test]
    fn a_record_longer_than_promised_is_not_written() {
        let (mut dev, mut s) = fresh(BYTES, 1, &Config::default());
        let t = Transaction { ops: vec![Op::MakeCollection { cid: Cid::Meta, bits: 0 }] };
        s.prepare(Tag(1), &t).unwrap();
        let p = s.tag_state(Tag(1));
        let before = std::mem::replace(&mut p.log_bytes, 5);
        s.log.promise(before, 5);
        s.submit(Tag(1), t);
        assert!(matches!(s.health(), Health::Failed { what, .. } if what.contains("longer than")), "{:?}", s.health());
        drive(&mut s, &mut dev);
        assert_eq!(s.poll_event().map(|e| matches!(e, Event::Health(_))), Some(true));
        assert_eq!(s.poll_event(), Some(Event::Durable(Tag(1), Err(errno::EIO))));
        drop(s);
        assert!(open(&mut dev, &Config::default()).unwrap()[0].collections().is_empty());
    }
}
