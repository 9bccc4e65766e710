//! The thread that allocates file blocks where the stores will write small data next (`store::engine::fill`).

use super::route::ToReactor;
use reactor::disk::DiskFile;
use reactor::mailbox;
use std::sync::{Arc, mpsc};

/// Ranges of the file (offset and length in bytes) that a reactor wants to be filled. Its end, however it comes, is
/// the answer, because the store writes nothing there before.
struct Job {
    ranges: Vec<(u64, u64)>,
    done: bool,
    to: mailbox::Sender<ToReactor>,
}

impl Drop for Job {
    fn drop(&mut self) {
        // A stopped reactor needs no answer.
        self.to.push(ToReactor::Filled(self.done));
    }
}

/// Hands ranges to the thread, which ends with the last of these.
#[derive(Clone)]
pub(super) struct Fills {
    jobs: mpsc::Sender<Job>,
    reactors: Vec<mailbox::Sender<ToReactor>>,
}

impl Fills {
    /// Starts the thread, which fills nothing while the file system has less than `least` bytes free. Without it,
    /// small writes are slower while the file has holes.
    pub(super) fn start(file: Arc<DiskFile>, least: u64, reactors: Vec<mailbox::Sender<ToReactor>>) -> Option<Self> {
        let (jobs, rx) = mpsc::channel();
        let work = move || {
            for job in rx {
                work(&file, least, job);
            }
        };
        match std::thread::Builder::new().name("fill".into()).spawn(work) {
            Ok(_) => Some(Self { jobs, reactors }),
            Err(error) => {
                tracing::warn!(%error, "no thread for allocating file blocks in advance");
                None
            }
        }
    }

    /// Requests that these ranges be filled; [`ToReactor::Filled`] is the answer.
    pub(super) fn fill(&self, reactor: usize, ranges: Vec<(u64, u64)>) {
        if let Some(to) = self.reactors.get(reactor) {
            // If the thread has ended, the job ends here.
            let _ = self.jobs.send(Job { ranges, done: false, to: to.clone() });
        }
    }
}

fn work(file: &DiskFile, least: u64, mut job: Job) {
    // The rest of a file system that is almost full is for writes that can't wait.
    let free = file.room().map_or(0, |r| r.1);
    let filled = if free < least {
        None
    } else {
        let all = job.ranges.iter().try_fold(0, |n, (off, len)| Ok(n + file.fill_holes(*off, *len)?));
        // Here, so that the next commit of a client does not wait for the file system's journal.
        Some(all.and_then(|n| if n > 0 { file.sync() } else { Ok(()) }))
    };
    job.done = filled == Some(Ok(()));
    drop(job);
    let why = match filled {
        Some(Ok(())) => return,
        Some(Err(errno)) => base::errno::name(errno).to_string(),
        None => format!("{free} bytes free on the file system"),
    };
    tracing::warn!(why, "file blocks are not allocated in advance any more; small writes are slower at first");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn file(name: &str) -> (std::path::PathBuf, Arc<DiskFile>) {
        let path = std::env::temp_dir().join(format!("belemnite-fills-{name}-{}", std::process::id()));
        let file = reactor::disk::prepare(&path, Some(1 << 20), true).unwrap();
        (path, file)
    }

    fn holes(file: &DiskFile) -> u64 {
        file.room().map_or(0, |r| r.0)
    }

    /// The next answer.
    fn answer(rx: &mut mailbox::Receiver<ToReactor>) -> bool {
        let mut got = VecDeque::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(rx.recv_batch(&mut got)));
        match got.make_contiguous() {
            [ToReactor::Filled(ok)] => *ok,
            _ => panic!("{} answers", got.len()),
        }
    }

    #[test]
    fn ranges_get_file_blocks_and_their_reactor_is_told() {
        let (path, file) = file("get");
        let before = holes(&file);
        let ((tx0, _rx0), (tx1, mut rx1)) = (mailbox::channel(4), mailbox::channel(4));
        let fills = Fills::start(file.clone(), 0, vec![tx0, tx1]).unwrap();
        fills.fill(1, vec![(4096, 8192), (65_536, 4096)]);
        assert!(answer(&mut rx1));
        assert_eq!(before - holes(&file), 12_288);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_system_that_is_almost_full_keeps_its_rest() {
        let (path, file) = file("rest");
        let before = holes(&file);
        let (tx, mut rx) = mailbox::channel(4);
        let fills = Fills::start(file.clone(), u64::MAX, vec![tx]).unwrap();
        fills.fill(0, vec![(4096, 8192)]);
        assert!(!answer(&mut rx));
        assert_eq!(before, holes(&file));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_thread_that_ends_early_answers_what_it_has_not_done() {
        let (tx, mut rx) = mailbox::channel(4);
        let (jobs, queue) = mpsc::channel();
        let fills = Fills { jobs, reactors: vec![tx] };
        fills.fill(0, vec![(0, 4096)]);
        drop(queue);
        assert!(!answer(&mut rx));
        fills.fill(0, vec![(0, 4096)]);
        assert!(!answer(&mut rx));
    }
}
