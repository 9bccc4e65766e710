//! Does every backend keep the promises of the trait, and does the embedded one keep them across a restart?

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bytes::Bytes;
use state::conformance::{Driver, run_all};
use state::embedded::EmbeddedStore;
use state::memory::MemoryStore;
use state::{Op, Outcome, Txn, Write};

struct TempDir(std::path::PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let p = std::env::temp_dir().join(format!("belemnite-state-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&p);
        std::fs::create_dir_all(&p).expect("temp dir");
        Self(p)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn memory() {
    run_all(MemoryStore::new, &|| panic!("the memory store answers at once"));
}

#[test]
fn embedded() {
    let dir = TempDir::new("conformance");
    let (tx, rx) = sync_channel::<()>(1);
    let tx = Arc::new(tx);
    let mut n = 0;
    run_all(
        || {
            n += 1;
            let tx = Arc::clone(&tx);
            let wake = Box::new(move || {
                let _ = tx.try_send(());
            });
            EmbeddedStore::open(&dir.0.join(format!("s{n}.redb")), wake).expect("open")
        },
        &|| rx.recv_timeout(Duration::from_secs(60)).expect("an event"),
    );
}

#[test]
fn embedded_state_survives_reopening() {
    let dir = TempDir::new("reopen");
    let path = dir.0.join("s.redb");
    let (tx, rx) = sync_channel::<()>(1);
    let tx = Arc::new(tx);
    let open = || {
        let tx = Arc::clone(&tx);
        let wake = Box::new(move || {
            let _ = tx.try_send(());
        });
        EmbeddedStore::open(&path, wake).expect("open")
    };
    let wait = || rx.recv_timeout(Duration::from_secs(60)).expect("an event");
    let mut d = Driver::new(open(), &wait);
    let lease = match d.ask(Op::Grant(Duration::from_secs(5))).result {
        Ok(Outcome::Lease(l)) => l,
        other => panic!("{other:?}"),
    };
    let then = vec![
        Write::Put(Bytes::from_static(b"k"), Bytes::from_static(b"v"), None),
        Write::Put(Bytes::from_static(b"leased"), Bytes::from_static(b"v"), Some(lease)),
    ];
    let before = d.ask(Op::Txn(Txn { then, ..Txn::default() })).revision;
    drop(d);
    let mut d = Driver::new(open(), &wait);
    let get = |d: &mut Driver<'_, EmbeddedStore>| {
        d.ask(Op::Get(vec![Bytes::from_static(b"k"), Bytes::from_static(b"leased")]))
    };
    let r = get(&mut d);
    assert_eq!(r.revision, before);
    match r.result {
        Ok(Outcome::Values(v)) => assert!(v.iter().all(|e| e.as_ref().is_some_and(|e| e.modified == before))),
        other => panic!("{other:?}"),
    }
    // The lease starts anew at the first tick after opening, and still ends.
    use state::StateStore;
    d.store.tick(base::Mono(1_000_000_000));
    d.store.tick(base::Mono(7_000_000_000));
    match get(&mut d).result {
        Ok(Outcome::Values(v)) => assert!(v[0].is_some() && v[1].is_none()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_handle_on_the_same_file_is_refused() {
    let dir = TempDir::new("lock");
    let path = dir.0.join("s.redb");
    let _first = EmbeddedStore::open(&path, Box::new(|| ())).expect("open");
    assert!(EmbeddedStore::open(&path, Box::new(|| ())).is_err());
}
