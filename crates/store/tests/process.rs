//! Tests that all acknowledged transactions survive `kill -9` of a real process on a real file, with both disk
//! engines.
//!
//! The test runs itself as the process to be killed. With `STORE_CHILD` set, [`writer`] writes forever and
//! prints each acknowledged number.

use base::device::Device;
use base::rng::Rng;
use base::{Eversion, HObject, PgId, Uuid};
use bytes::Bytes;
use reactor::disk::{self, Disk, DiskFile};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use store::engine::{self, Config, FormatOptions, Store};
use store::mem::MemStore;
use store::testing::compare::same;
use store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const BYTES: u64 = 64 << 20;

/// The file without a disk engine.
struct Plain(Arc<DiskFile>);

impl Device for Plain {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, i32>> {
        ranges.iter().map(|(o, l)| self.0.read(*o, *l)).collect()
    }
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), i32> {
        self.0.write(off, data)
    }
    fn flush(&mut self) -> Result<(), i32> {
        self.0.sync()
    }
}

fn config() -> Config {
    Config { checkpoint_log_bytes: 300 << 10, first_fit: true, ..Config::default() }
}

fn cid() -> Cid {
    Cid::Pg(PgId::new(2, 1).into())
}

fn oid(n: u64) -> Oid {
    HObject { oid: format!("object{n}").into(), hash: n as u32 * 77, ..HObject::min() }.into()
}

/// Transaction `n` of every run; the PG info has its number.
fn transaction(n: u64) -> Transaction {
    let (cid, mut rng) = (cid(), Rng::new(n));
    let mut t = Transaction::new();
    if n == 1 {
        t.push(Op::MakeCollection { cid, bits: 0 });
    }
    let o = oid(rng.below(40));
    let mut data = vec![0; 1 + rng.below(30_000) as usize];
    rng.fill(&mut data);
    match rng.below(8) {
        0 => t.push(Op::Remove { cid, oid: o.clone() }),
        1 => t.push(Op::Clone { cid, src: o.clone(), dst: oid(rng.below(40)) }),
        2 => t.push(Op::Truncate { cid, oid: o.clone(), size: rng.below(100_000) }),
        _ => t.push(Op::Write { cid, oid: o.clone(), off: rng.below(100_000), data: data.into(), sums: None }),
    }
    let value = Bytes::from(n.to_string());
    t.push(Op::OmapSet { cid, oid: o, entries: vec![(Bytes::from(format!("k{}", rng.below(500))), value.clone())] });
    t.push(Op::LogAppend { cid, version: Eversion::new(1, n), entry: value.clone() });
    if n.is_multiple_of(50) {
        t.push(Op::LogTrim { cid, to: Eversion::new(1, n - 40) });
    }
    t.push(Op::PgInfo { cid, info: value });
    t
}

fn newest(s: &mut Store) -> u64 {
    match s.pg_info(Tag(0), cid()) {
        Ok(Some(i)) => String::from_utf8_lossy(&i).parse().unwrap(),
        _ => 0,
    }
}

/// The process that is killed; not a test of its own.
#[test]
#[ignore = "run by the other tests as a child process"]
fn writer() {
    let Ok(path) = std::env::var("STORE_CHILD") else { return };
    let file = disk::open(Path::new(&path)).unwrap();
    let mut s = engine::open(&mut Plain(file.clone()), &config()).unwrap().remove(0);
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let d = Disk::new(file, std::env::var("STORE_CHILD_THREAD").is_ok()).unwrap();
        let mut next = newest(&mut s) + 1;
        let mut done = Vec::new();
        let mut out = std::io::stdout();
        loop {
            // As many transactions as fit a turn; a wait ends the batch.
            for _ in 0..4 {
                let t = transaction(next);
                match s.prepare(Tag(next), &t) {
                    Ok(()) => s.submit(Tag(next), t),
                    Err(ReadError::Wait) => break,
                    Err(e) => panic!("{e:?}"),
                }
                next += 1;
            }
            s.end_turn();
            while let Some(r) = s.poll_io() {
                d.submit(r);
            }
            d.flush_submissions();
            d.ready().await;
            d.poll(&mut done);
            for c in done.drain(..) {
                s.handle_io(c);
            }
            while let Some(e) = s.poll_event() {
                if let Event::Durable(t, r) = e {
                    r.unwrap();
                    writeln!(out, "acked {}", t.0).unwrap();
                }
            }
        }
    });
}

fn kill_loop(name: &str, thread: bool, rounds: u64) {
    let path: PathBuf = std::env::temp_dir().join(format!("belemnite-store-{}-{name}", std::process::id()));
    let file = disk::prepare(&path, Some(BYTES), true).unwrap();
    let o = FormatOptions { uuid: Uuid([9; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut Plain(file.clone()), &o).unwrap();
    drop(file);
    let (mut model, mut applied) = (MemStore::new(), 0);
    let mut rng = Rng::new(rounds);
    for round in 0..rounds {
        let mut c = Command::new(std::env::current_exe().unwrap());
        c.args(["writer", "--exact", "--ignored", "--nocapture"]).env("STORE_CHILD", &path);
        if thread {
            c.env("STORE_CHILD_THREAD", "1");
        }
        let mut child = c.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acked = 0;
        let want = 1 + rng.below(300);
        let mut seen = 0;
        // Lines in the pipe count, since they were acknowledged.
        for l in lines.by_ref().map_while(Result::ok) {
            if let Some(n) = l.strip_prefix("acked ") {
                acked = n.parse().unwrap();
                seen += 1;
                if seen == want {
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        assert!(seen >= want, "the writer ended by itself in round {round}");
        let file = disk::open(&path).unwrap();
        let mut dev = Plain(file);
        let mut s = engine::open(&mut dev, &config()).unwrap().remove(0);
        s.check(&mut dev).unwrap();
        let have = newest(&mut s);
        assert!(have >= acked, "acknowledged {acked}, found {have} in round {round}");
        while applied < have {
            applied += 1;
            model.submit(Tag(applied), transaction(applied));
        }
        while model.poll_event().is_some() {}
        same(&mut s, &mut model, &mut |s| engine::device::drive(s, &mut dev), false)
            .unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn killed_on_io_uring() {
    kill_loop("uring", false, 8);
}

#[test]
fn killed_on_the_thread_engine() {
    kill_loop("thread", true, 5);
}
