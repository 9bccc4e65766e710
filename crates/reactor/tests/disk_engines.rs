//! Tests of both disk engines: they carry out what a store requests, and keep other processes out.

use base::buf::{AlignedBuf, PAGE};
use base::device::{IoCompletion, IoId, IoKind, IoRequest};
use base::rng::Rng;
use bytes::Bytes;
use reactor::disk::{self, Disk, DiskError, DiskFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn path(name: &str) -> PathBuf {
    let p = std::env::temp_dir().join(format!("belemnite-disk-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&p);
    p
}

fn open(p: &Path) -> Arc<DiskFile> {
    disk::prepare(p, Some(16 << 20), false).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn page(fill: u8, n: usize) -> Bytes {
    let mut b = AlignedBuf::zeroed(n * PAGE);
    b.fill(fill);
    b.freeze()
}

/// Writes and flushes in the pattern of commits, several in flight. Each completes once, and a flush after all
/// writes before it.
async fn commits(thread: bool, name: &str) {
    let p = path(name);
    let disk = Disk::new(open(&p), thread).unwrap();
    let mut rng = Rng::new(11);
    let (mut next, mut open_writes, mut flushes) = (0, Vec::new(), BTreeMap::new());
    let mut done = Vec::new();
    for round in 0..400u64 {
        for part in 0..rng.below(4) {
            let off = ((round * 4 + part) % 4000) * PAGE as u64;
            let bufs = vec![page(round as u8, 1)];
            let ahead = rng.chance(1, 4);
            disk.submit(IoRequest {
                id: IoId(next),
                kind: if ahead { IoKind::WriteAhead { off, bufs } } else { IoKind::Write { off, bufs } },
            });
            if !ahead {
                open_writes.push(IoId(next));
            }
            next += 1;
            if rng.chance(1, 8) {
                disk.flush_submissions();
            }
        }
        if rng.chance(3, 4) {
            disk.submit(IoRequest { id: IoId(next), kind: IoKind::Flush });
            flushes.insert(IoId(next), open_writes.clone());
            next += 1;
        }
        disk.flush_submissions();
        while next as usize - done.len() > rng.below(12) as usize {
            disk.ready().await;
            let mut out = Vec::new();
            disk.poll(&mut out);
            for c in out {
                assert_eq!(c.result, Ok(Bytes::new()));
                assert!(!done.contains(&c.id), "{:?} twice", c.id);
                done.push(c.id);
                if let Some(before) = flushes.remove(&c.id) {
                    assert!(before.iter().all(|w| done.contains(w)), "flush {:?} before a write", c.id);
                }
                open_writes.retain(|w| *w != c.id);
            }
        }
    }
    // The engine is dropped with requests in flight and one completion that was never polled.
    disk.submit(IoRequest { id: IoId(next), kind: IoKind::Write { off: 0, bufs: vec![page(1, 1)] } });
    drop(disk);
    std::fs::remove_file(p).unwrap();
}

#[test]
fn flushes_come_after_writes_by_io_uring() {
    runtime().block_on(commits(false, "commits"));
}

#[test]
fn flushes_come_after_writes_by_thread() {
    runtime().block_on(commits(true, "commits-thread"));
}

async fn random_io(thread: bool, name: &str) {
    let p = path(name);
    let mut disk = Disk::new(open(&p), thread).unwrap();
    let mut rng = Rng::new(5);
    let pages = (16 << 20) / PAGE;
    let mut model = vec![0u8; pages];
    let mut reads: BTreeMap<IoId, Vec<u8>> = BTreeMap::new();
    let mut next = 0;
    let mut seen = 0;
    for _ in 0..60 {
        // The writes of a round do not overlap its reads, since the order of completion is free.
        let n = rng.below(300);
        for _ in 0..n {
            let id = IoId(next);
            next += 1;
            let at = rng.below(pages as u64 - 8) as usize;
            let kind = match rng.below(8) {
                0 => IoKind::Flush,
                _ => IoKind::Read { off: (at * PAGE) as u64, len: (PAGE * (1 + rng.below(8) as usize)) as u32 },
            };
            if let IoKind::Read { len, .. } = &kind {
                reads.insert(id, model[at..at + *len as usize / PAGE].to_vec());
            }
            disk.submit(IoRequest { id, kind });
        }
        run(&mut disk, &mut reads, &mut seen, next).await;
        let mut taken = vec![false; pages];
        for _ in 0..rng.below(300) {
            let (at, n) = (rng.below(pages as u64 - 8) as usize, 1 + rng.below(4) as usize);
            if taken[at..at + n].iter().any(|t| *t) {
                continue;
            }
            let bufs: Vec<Bytes> = (0..n)
                .map(|i| {
                    (taken[at + i], model[at + i]) = (true, rng.next_u64() as u8);
                    page(model[at + i], 1)
                })
                .collect();
            let off = (at * PAGE) as u64;
            let kind = if rng.chance(1, 3) { IoKind::WriteAhead { off, bufs } } else { IoKind::Write { off, bufs } };
            disk.submit(IoRequest { id: IoId(next), kind });
            next += 1;
        }
        run(&mut disk, &mut reads, &mut seen, next).await;
    }
    drop(disk);
    let file = disk::open(&p).unwrap();
    for (i, got) in file.read(0, 16 << 20).unwrap().chunks(PAGE).enumerate() {
        assert!(got.iter().all(|b| *b == model[i]), "page {i}");
    }
    std::fs::remove_file(&p).unwrap();
}

async fn run(disk: &mut Disk, reads: &mut BTreeMap<IoId, Vec<u8>>, seen: &mut u64, until: u64) {
    disk.flush_submissions();
    let mut out: Vec<IoCompletion> = Vec::new();
    while *seen < until {
        disk.ready().await;
        disk.poll(&mut out);
        for c in out.drain(..) {
            *seen += 1;
            let data = c.result.unwrap();
            if let Some(want) = reads.remove(&c.id) {
                assert_eq!(data.len(), want.len() * PAGE);
                assert!(data.chunks(PAGE).zip(want).all(|(g, w)| g.iter().all(|b| *b == w)));
            }
        }
    }
}

#[test]
fn uring_reads_what_was_written() {
    runtime().block_on(random_io(false, "uring"));
}

#[test]
fn thread_reads_what_was_written() {
    runtime().block_on(random_io(true, "thread"));
}

async fn oldest_request(thread: bool, name: &str) {
    let p = path(name);
    let disk = Disk::new(open(&p), thread).unwrap();
    assert_eq!(disk.oldest(), None);
    let mut at = Vec::new();
    for id in 0..3 {
        at.push(reactor::clock::read().mono);
        disk.submit(IoRequest { id: IoId(id), kind: IoKind::Read { off: 0, len: PAGE as u32 } });
        disk.flush_submissions();
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // The oldest request is the first, or a later one where the thread is fast.
    assert!(disk.oldest().is_none_or(|o| o >= at[0]), "{:?}", disk.oldest());
    let mut out = Vec::new();
    while out.len() < 3 {
        disk.ready().await;
        disk.poll(&mut out);
    }
    assert_eq!(disk.oldest(), None);
    // The engine is abandoned with a request in flight and one still queued; dropping it waits for neither.
    disk.submit(IoRequest { id: IoId(9), kind: IoKind::Write { off: 0, bufs: vec![page(1, 1)] } });
    disk.flush_submissions();
    disk.submit(IoRequest { id: IoId(10), kind: IoKind::Write { off: 0, bufs: vec![page(1, 1)] } });
    disk.abandon();
    drop(disk);
    std::fs::remove_file(p).unwrap();
}

#[test]
fn the_oldest_request_is_known_and_an_abandoned_engine_waits_for_none() {
    runtime().block_on(oldest_request(false, "oldest"));
    runtime().block_on(oldest_request(true, "oldest-thread"));
}

#[test]
fn every_completion_wakes_the_reactor() {
    for thread in [false, true] {
        let p = path(&format!("wake-{thread}"));
        runtime().block_on(async {
            let disk = Disk::new(open(&p), thread).unwrap();
            let mut out = Vec::new();
            for i in 0..200 {
                let kind = IoKind::Write { off: i * PAGE as u64, bufs: vec![page(i as u8, 1)] };
                disk.submit(IoRequest { id: IoId(2 * i), kind });
                disk.submit(IoRequest { id: IoId(2 * i + 1), kind: IoKind::Flush });
                disk.flush_submissions();
                while out.len() < 2 * (i as usize + 1) {
                    disk.ready().await;
                    disk.poll(&mut out);
                }
            }
            assert!(out.iter().all(|c| c.result.is_ok()));
        });
        std::fs::remove_file(&p).unwrap();
    }
}

#[test]
fn errors_come_back_as_errnos() {
    for thread in [false, true] {
        let p = path(&format!("err-{thread}"));
        runtime().block_on(async {
            let disk = Disk::new(open(&p), thread).unwrap();
            disk.submit(IoRequest { id: IoId(1), kind: IoKind::Read { off: 1 << 30, len: 4096 } });
            disk.flush_submissions();
            let mut out: Vec<IoCompletion> = Vec::new();
            while out.is_empty() {
                disk.ready().await;
                disk.poll(&mut out);
            }
            assert_eq!(out[0].result, Err(base::errno::EIO));
        });
        std::fs::remove_file(&p).unwrap();
    }
}

/// A write and its flush are not affected by an earlier write that fails.
#[test]
fn a_failed_write_does_not_affect_a_later_write_and_its_flush() {
    for thread in [false, true] {
        let p = path(if thread { "behind-thread" } else { "behind-uring" });
        runtime().block_on(async {
            let disk = Disk::new(open(&p), thread).unwrap();
            for round in 0..20u64 {
                let at = round * 8 * PAGE as u64;
                // Every other round is misaligned, which a file opened for direct I/O refuses.
                let skew = round % 2 * 100;
                let write = |id, off| IoRequest { id, kind: IoKind::Write { off, bufs: vec![page(7, 1)] } };
                disk.submit(write(IoId(3 * round), at + skew));
                disk.submit(write(IoId(3 * round + 1), at + 4 * PAGE as u64));
                disk.submit(IoRequest { id: IoId(3 * round + 2), kind: IoKind::Flush });
                disk.flush_submissions();
                let mut done = Vec::new();
                while done.len() < 3 {
                    disk.ready().await;
                    disk.poll(&mut done);
                }
                let result =
                    |n| done.iter().find(|c: &&IoCompletion| c.id == IoId(3 * round + n)).unwrap().result.clone();
                assert!(skew > 0 || result(0).is_ok());
                assert_eq!((result(1), result(2)), (Ok(Bytes::new()), Ok(Bytes::new())), "round {round}");
            }
        });
        std::fs::remove_file(p).unwrap();
    }
}

#[test]
fn a_second_opener_and_foreign_content_are_refused() {
    let p = path("lock");
    let first = open(&p);
    assert!(matches!(disk::open(&p), Err(DiskError::InUse)));
    let mut b = AlignedBuf::zeroed(PAGE);
    b[..15].copy_from_slice(b"belemnite store");
    first.write(0, &[b.freeze()]).unwrap();
    drop(first);
    assert!(matches!(disk::prepare(&p, None, false), Err(DiskError::Foreign(_))));
    assert!(disk::prepare(&p, None, true).is_ok());
    std::fs::remove_file(&p).unwrap();
}

/// `DISK_BLOCK_DEVICE` names a device of 16 MiB or more that the test may overwrite, such as a loop device.
#[test]
fn ranges_of_a_block_device_are_discarded_beside_other_requests() {
    let Some(p) = std::env::var_os("DISK_BLOCK_DEVICE").map(PathBuf::from) else { return };
    for thread in [false, true] {
        runtime().block_on(async {
            let mut disk = Disk::new(disk::prepare(&p, None, true).unwrap(), thread).unwrap();
            let (mut reads, mut seen) = (BTreeMap::new(), 0);
            let write = IoKind::Write { off: 1 << 20, bufs: vec![page(7, 512)] };
            disk.submit(IoRequest { id: IoId(1), kind: write });
            disk.submit(IoRequest { id: IoId(2), kind: IoKind::Flush });
            run(&mut disk, &mut reads, &mut seen, 2).await;
            disk.submit(IoRequest { id: IoId(3), kind: IoKind::Discard { off: 1 << 20, len: 1 << 20 } });
            disk.submit(IoRequest { id: IoId(4), kind: IoKind::Read { off: 2 << 20, len: 4096 } });
            reads.insert(IoId(4), vec![7]);
            run(&mut disk, &mut reads, &mut seen, 4).await;
            // A loop device reads zeros after that.
            reads.insert(IoId(5), vec![0]);
            disk.submit(IoRequest { id: IoId(5), kind: IoKind::Read { off: 1 << 20, len: 4096 } });
            run(&mut disk, &mut reads, &mut seen, 5).await;
            assert!(reads.is_empty(), "{thread}");
        });
    }
}
