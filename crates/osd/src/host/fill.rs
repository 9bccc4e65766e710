//! The thread that allocates file blocks where the stores will write small data next (`store::engine::fill`).

use super::route::ToShard;
use reactor::disk::DiskFile;
use reactor::mailbox;
use std::sync::{Arc, mpsc};

/// Ranges of the file (offset and length in bytes) that a reactor wants to be filled.
type Job = (usize, Vec<(u64, u64)>);

/// Hands ranges to the thread, which ends with the last of these.
#[derive(Clone)]
pub(super) struct Fills(mpsc::Sender<Job>);

impl Fills {
    /// Starts the thread. Without it, small writes are slower while the file has holes.
    pub(super) fn start(file: Arc<DiskFile>, shards: Vec<mailbox::Sender<ToShard>>) -> Option<Self> {
        let (tx, rx) = mpsc::channel::<Job>();
        let work = move || {
            for (reactor, ranges) in rx {
                let filled = ranges.iter().try_for_each(|(off, len)| file.fill_holes(*off, *len).map(|_| ()));
                if let Err(errno) = filled {
                    let errno = base::errno::name(errno);
                    tracing::warn!(
                        reactor,
                        errno,
                        "cannot allocate file blocks in advance; small writes are slower at first"
                    );
                }
                if let Some(s) = shards.get(reactor) {
                    // A stopped reactor needs no answer.
                    s.push(ToShard::Filled(filled.is_ok()));
                }
            }
        };
        match std::thread::Builder::new().name("fill".into()).spawn(work) {
            Ok(_) => Some(Self(tx)),
            Err(error) => {
                tracing::warn!(%error, "no thread for allocating file blocks in advance");
                None
            }
        }
    }

    /// Requests that these ranges be filled; [`ToShard::Filled`] is the answer. Returns false if the thread has
    /// ended.
    pub(super) fn fill(&self, reactor: usize, ranges: Vec<(u64, u64)>) -> bool {
        self.0.send((reactor, ranges)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn ranges_get_file_blocks_and_their_reactor_is_told() {
        let path = std::env::temp_dir().join(format!("belemnite-fills-{}", std::process::id()));
        let file = reactor::disk::prepare(&path, Some(1 << 20), true).unwrap();
        let holes = || file.room().map_or(0, |r| r.0);
        let before = holes();
        let ((tx0, _rx0), (tx1, mut rx1)) = (mailbox::channel(4), mailbox::channel(4));
        let fills = Fills::start(file.clone(), vec![tx0, tx1]).unwrap();
        assert!(fills.fill(1, vec![(4096, 8192), (65_536, 4096)]));
        let mut got = VecDeque::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(rx1.recv_batch(&mut got)));
        assert!(matches!(got.make_contiguous(), [ToShard::Filled(true)]));
        assert_eq!(before - holes(), 12_288);
        std::fs::remove_file(&path).unwrap();
    }
}
