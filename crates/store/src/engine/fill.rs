//! File blocks in advance: where frames and small data will be written, a sparse file gets its blocks before.
//!
//! A write into a hole is given to a thread of the kernel's, changes the file's map and waits for the file system's
//! journal, which costs a small commit more than all the rest. So the host writes zeros to the places that come next,
//! in the background and some megabytes at a time, where the file has holes. It has them only where nothing was ever
//! written.
//!
//! Invariant: while the host fills blocks they belong to nobody else. Blocks for data are allocated for that time, then
//! free again, and small writes go there by preference. No frame enters the part of the log that is being filled.
//!
//! Tests: below.

use super::Store;
use crate::layout::BLOCK;
use crate::space::{Runs, Stream};

/// Blocks for data filled at once: a part of the device, and the most. As many are kept ahead of the stream.
const DATA_PART: u64 = 64;
const DATA_MAX: u64 = 1024;
/// Part of the device that must be free besides.
const SPARE_PART: u64 = 8;
/// Blocks of the log filled at once: a part of the log, and the most. Four times as many are kept ahead of its head.
const LOG_PART: u64 = 16;
const LOG_MAX: u64 = 4096;

/// Blocks that the host fills.
#[derive(Debug)]
pub(super) struct Filling {
    stream: Stream,
    /// Blocks with the host.
    runs: Runs,
}

impl Default for Filling {
    fn default() -> Self {
        Self { stream: Stream::reusing(), runs: Runs::new() }
    }
}

impl Store {
    /// Ranges of the device (offset and length in bytes) in which the host shall write zeros where the file has
    /// holes, if there are any to fill. The host answers with [`Store::filled`].
    pub fn poll_fill(&mut self) -> Option<Vec<(u64, u64)>> {
        let busy = self.log.is_filling() || !self.filling.runs.is_empty();
        if !self.cfg.fill || busy || self.failed().is_some() {
            return None;
        }
        let chunk = (self.log.ring().blocks / LOG_PART).min(LOG_MAX);
        if let Some((first, end)) = self.log.begin_fill(4 * chunk, chunk) {
            return Some(vec![((self.log.ring().start + first) * BLOCK, (end - first) * BLOCK)]);
        }
        let all = self.space.total();
        let n = (all / DATA_PART).min(DATA_MAX);
        if self.streams.small().ahead() >= n || !self.space.reserve_leaving(n, all / SPARE_PART) {
            return None;
        }
        let got = self.space.take(&mut self.filling.stream, n, &mut self.filling.runs);
        self.space.unreserve(n - got);
        self.space.lend(got);
        (got > 0).then(|| self.filling.runs.iter().map(|(first, n)| (first * BLOCK, u64::from(*n) * BLOCK)).collect())
    }

    /// Takes the host's answer to [`Store::poll_fill`]. After a failure, the store asks no more.
    pub fn filled(&mut self, ok: bool) {
        self.cfg.fill &= ok;
        if self.log.end_fill() {
            // Plans may wait because the log could not be used.
            return self.unpark();
        }
        let runs = std::mem::take(&mut self.filling.runs);
        for (first, n) in &runs {
            self.space.release(*first, *n);
            self.space.returned(u64::from(*n));
        }
        if ok {
            self.space.offer(self.streams.small(), &runs);
        }
        // Plans may wait for these blocks.
        self.room_was_made();
    }

    /// Blocks for data that the host fills for this store.
    pub(super) fn with_host(&self) -> u64 {
        self.filling.runs.iter().map(|r| u64::from(r.1)).sum()
    }

    /// Takes note that the host has filled the next `bytes` of the log ([`Store::log_ahead`]). Without it, the store
    /// asks for data only.
    pub fn log_filled(&mut self, bytes: u64) {
        self.log.filled_ahead(bytes / BLOCK);
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::device::{drive, submit};
    use crate::engine::{Config, Store};
    use crate::layout::BLOCK;
    use crate::testing::disk::SimDisk;
    use crate::testing::fresh;
    use crate::{Cid, Event, ObjectStore as _, Oid, Op, ReadError, Tag, Transaction};
    use base::HObject;
    use base::device::IoKind;
    use bytes::Bytes;

    fn write(s: &mut Store, dev: &mut SimDisk, n: u64) {
        let oid = Oid::new(HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::default() });
        let mut t = Transaction::new();
        if n == 0 {
            t.push(Op::MakeCollection { cid: Cid::Meta, bits: 0 });
        }
        t.push(Op::Write { cid: Cid::Meta, oid, off: 0, data: Bytes::from(vec![7; BLOCK as usize]), sums: None });
        submit(s, dev, Tag(n), t).unwrap();
    }

    fn inside(ranges: &[(u64, u64)], off: u64) -> bool {
        ranges.iter().any(|r| (r.0..r.0 + r.1).contains(&off))
    }

    /// Places of the data written by `n` transactions.
    fn places(s: &mut Store, dev: &mut SimDisk, from: u64, n: u64) -> Vec<u64> {
        let before = dev.written();
        (from..from + n).for_each(|i| write(s, dev, i));
        let l = *s.meta.layout();
        dev.written().into_iter().filter(|b| !before.contains(b) && *b >= l.space_start).map(|b| b * BLOCK).collect()
    }

    #[test]
    fn small_writes_go_where_the_host_has_filled_and_never_where_it_fills() {
        let (mut dev, mut s) = fresh(64 << 20, 1, &Config { fill: true, ..Config::default() });
        let ranges = s.poll_fill().unwrap();
        let free = s.space.unreserved();
        assert!(s.poll_fill().is_none(), "one at a time");
        assert!(places(&mut s, &mut dev, 0, 300).iter().all(|off| !inside(&ranges, *off)));
        s.filled(true);
        let blocks = ranges.iter().map(|r| r.1 / BLOCK).sum::<u64>();
        assert_eq!(s.space.unreserved(), free - 300 + blocks);
        let got = places(&mut s, &mut dev, 300, 20);
        assert_eq!((got.len(), got.iter().all(|off| inside(&ranges, *off))), (20, true), "{got:?}");
        // The next part is wanted before this one is full.
        let next = s.poll_fill().unwrap();
        assert!(next.iter().all(|r| !inside(&ranges, r.0)));
        s.filled(false);
        assert!(s.poll_fill().is_none(), "a host that failed is not asked again");
        drive(&mut s, &mut dev);
        s.check(&mut dev).unwrap();
    }

    #[test]
    fn frames_wait_while_the_log_before_them_is_filled() {
        let (mut dev, mut s) = fresh(64 << 20, 1, &Config { fill: true, ..Config::default() });
        let ring = (s.log.ring().start * BLOCK, s.log.ring().blocks * BLOCK);
        // Unless the host says that the next part has no holes, it is not asked for the parts behind.
        let data = s.poll_fill().unwrap();
        assert!(data.iter().all(|r| !inside(&[ring], r.0)));
        s.filled(true);
        s.log_filled(s.log_ahead(64 * BLOCK).1);
        let log = s.poll_fill().unwrap();
        assert!(matches!(&log[..], [r] if inside(&[ring], r.0)), "{log:?}");
        let mut last = 0;
        let t = loop {
            let oid = Oid::new(HObject::default());
            let mut t = Transaction::new();
            if last == 0 {
                t.push(Op::MakeCollection { cid: Cid::Meta, bits: 0 });
            }
            t.push(Op::SetAttrs { cid: Cid::Meta, oid, attrs: vec![(Bytes::from_static(b"a"), vec![1; 9000].into())] });
            last += 1;
            match s.prepare(Tag(last), &t) {
                Ok(()) => s.submit(Tag(last), t),
                Err(ReadError::Wait) => break t,
                Err(e) => panic!("{e:?}"),
            }
            s.end_turn();
            while let Some(r) = s.poll_io() {
                if let IoKind::Write { off, .. } = &r.kind {
                    assert!(!inside(&log, *off), "a frame where the host fills");
                }
                dev.submit(r);
            }
            let mut rng = base::rng::Rng::new(last);
            while let Some(c) = dev.step(&mut rng) {
                s.handle_io(c);
            }
        };
        assert!(last > 15, "{last}");
        while s.poll_event().is_some() {}
        s.filled(true);
        assert_eq!(s.poll_event(), Some(Event::Ready(Tag(last))));
        submit(&mut s, &mut dev, Tag(last), t).unwrap();
        // The rest of the ring follows, and nothing after that.
        let mut parts = 0;
        while s.log_ahead(u64::MAX).1 > 0 && s.log.filled_to() < s.log.ring().blocks {
            if s.poll_fill().is_some() {
                s.filled(true);
            }
            parts += 1;
            write(&mut s, &mut dev, 1000 + parts);
            assert!(parts < 10_000);
        }
        assert_eq!(s.log.filled_to(), s.log.ring().blocks);
    }

    fn attrs(n: u64) -> Transaction {
        let oid = Oid::new(HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::default() });
        let mut t = Transaction::new();
        t.push(Op::SetAttrs { cid: Cid::Meta, oid, attrs: vec![(Bytes::from_static(b"a"), vec![1; 40].into())] });
        t
    }

    #[test]
    fn prepared_transactions_that_get_a_frame_each_stay_before_the_log_being_filled() {
        let (mut dev, mut s) = fresh(64 << 20, 1, &Config { fill: true, ..Config::default() });
        write(&mut s, &mut dev, 0);
        s.log_filled(s.log_ahead(64 * BLOCK).1);
        let log = s.poll_fill().unwrap();
        assert!(inside(&log, (s.log.ring().start + s.log.filled_to()) * BLOCK));
        let n = (1..).find(|n| s.prepare(Tag(*n), &attrs(*n)) == Err(ReadError::Wait)).unwrap();
        assert!(n > 20, "{n}");
        for i in 1..n {
            s.submit(Tag(i), attrs(i));
            s.end_turn();
            while let Some(r) = s.poll_io() {
                if let IoKind::Write { off, .. } = &r.kind {
                    assert!(!inside(&log, *off), "frame {i} where the host fills");
                }
                dev.submit(r);
            }
            drive(&mut s, &mut dev);
            let mut rng = base::rng::Rng::new(i);
            while let Some(c) = dev.step(&mut rng) {
                s.handle_io(c);
            }
        }
        let durable = std::iter::from_fn(|| s.poll_event()).filter(|e| matches!(e, Event::Durable(_, Ok(())))).count();
        assert_eq!(durable as u64, n - 1);
        s.filled(true);
        drop(s);
        let s = crate::engine::open(&mut dev, &Config::default()).unwrap().remove(0);
        assert_eq!(s.collection_usage(Cid::Meta).0, n);
    }

    /// Prepares a write of `n` blocks and gives it up again.
    fn fits(s: &mut Store, dev: &mut SimDisk, n: u64) -> Result<(), ReadError> {
        let tag = Tag(77_000 + n);
        let mut t = Transaction::new();
        let data = Bytes::from(vec![3; (n * BLOCK) as usize]);
        t.push(Op::Write { cid: Cid::Meta, oid: Oid::new(HObject::default()), off: 0, data, sums: None });
        let r = loop {
            let r = s.prepare(tag, &t);
            if r != Err(ReadError::Wait) || s.room.waits(tag) {
                break r;
            }
            drive(s, dev);
        };
        drive(s, dev);
        s.release(tag);
        drive(s, dev);
        r
    }

    #[test]
    fn blocks_with_the_host_count_as_free_and_a_write_that_needs_them_waits() {
        let (mut dev, mut s) = fresh(64 << 20, 1, &Config { fill: true, early_bytes: 1 << 30, ..Config::default() });
        write(&mut s, &mut dev, 0);
        let all = s.statfs().available / BLOCK;
        let (mut most, mut too_many) = (0, all);
        while too_many - most > 1 {
            let n = u64::midpoint(most, too_many);
            *(if fits(&mut s, &mut dev, n).is_ok() { &mut most } else { &mut too_many }) = n;
        }
        // The reserve for checkpoints varies by a few blocks.
        let most = most - 16;
        let before = (s.statfs(), s.space.unreserved());
        let ranges = s.poll_fill().unwrap();
        let blocks = ranges.iter().map(|r| r.1 / BLOCK).sum::<u64>();
        assert_eq!((s.statfs(), s.space.unreserved()), (before.0, before.1 - blocks));
        assert_eq!(fits(&mut s, &mut dev, most - blocks), Ok(()));
        assert_eq!(fits(&mut s, &mut dev, most), Err(ReadError::Wait));
        let mut t = Transaction::new();
        let data = Bytes::from(vec![3; (most * BLOCK) as usize]);
        t.push(Op::Write { cid: Cid::Meta, oid: Oid::new(HObject::default()), off: 0, data, sums: None });
        while s.poll_event().is_some() {}
        assert_eq!(s.prepare(Tag(1), &t), Err(ReadError::Wait));
        drive(&mut s, &mut dev);
        s.filled(true);
        assert!(std::iter::from_fn(|| s.poll_event()).any(|e| e == Event::Ready(Tag(1))));
        assert_eq!((s.statfs(), s.space.unreserved()), before);
        submit(&mut s, &mut dev, Tag(1), t).unwrap();
        assert!(s.poll_fill().is_none(), "an eighth stays free");
        s.check(&mut dev).unwrap();
    }

    #[test]
    fn a_device_that_grows_or_fails_meanwhile() {
        use crate::engine::{Growth, open};
        use crate::{Health, Tag};
        let cfg = Config { fill: true, ..Config::default() };
        let (mut dev, mut s) = fresh(64 << 20, 1, &cfg);
        write(&mut s, &mut dev, 0);
        s.log_filled(s.log_ahead(64 * BLOCK).1);
        let bytes = (192 << 20) + 8192;
        dev.grow(bytes);
        let total = s.statfs().total;
        for (n, step) in [Growth::Begin(bytes), Growth::Name, Growth::Switch, Growth::Use].into_iter().enumerate() {
            let ranges = s.poll_fill().unwrap();
            while s.grow(Tag(100), step) == Err(ReadError::Wait) {
                drive(&mut s, &mut dev);
            }
            s.release(Tag(100));
            s.request_checkpoint();
            drive(&mut s, &mut dev);
            let got = places(&mut s, &mut dev, 1 + 50 * n as u64, 50);
            assert!(got.iter().all(|off| !inside(&ranges, *off)));
            s.filled(true);
        }
        assert!(s.statfs().total > 2 * total);
        s.check(&mut dev).unwrap();
        // A crash forgets what the host does.
        s.poll_fill().unwrap();
        let mut s = open(&mut dev, &cfg).unwrap().remove(0);
        assert_eq!(s.collection_usage(Cid::Meta).0, 201);
        s.check(&mut dev).unwrap();
        // So does a failure.
        let free = s.space.unreserved();
        s.poll_fill().unwrap();
        s.fail("test".into(), base::errno::EIO);
        s.filled(true);
        assert_eq!(s.space.unreserved(), free);
        assert!(s.poll_fill().is_none() && matches!(s.health(), Health::Failed { .. }));
    }
}
