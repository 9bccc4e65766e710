//! Bounded queues between reactors: many senders, and one receiver that takes all queued items at once.
//!
//! Invariants:
//!  1. [`Sender::send`] respects the capacity: a full queue refuses the item and gives it back. Items that must
//!     not get lost, and whose number is bounded otherwise, go with [`Sender::push`].
//!  2. The receiver is woken only if it was asleep (had found the queue empty), so a busy pair of reactors pays no
//!     wake-ups.
//!  3. Items of one sender arrive in order.
//!
//! Tests: below.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct State<T> {
    queue: VecDeque<T>,
    /// Set while the receiver sleeps.
    waker: Option<Waker>,
    receiver_gone: bool,
    senders: usize,
}

struct Shared<T> {
    capacity: usize,
    state: Mutex<State<T>>,
}

impl<T> Shared<T> {
    /// Ignores poisoning: a thread that panicked with the lock held leaves the queue intact, since no foreign
    /// code runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reason why an item was refused. The item comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum SendError<T> {
    /// The queue is at its capacity.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// Sending half; clone it for every sender.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Receiving half.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

/// A queue for at most `capacity` items.
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        capacity,
        state: Mutex::new(State { queue: VecDeque::new(), waker: None, receiver_gone: false, senders: 1 }),
    });
    (Sender { shared: shared.clone() }, Receiver { shared })
}

impl<T> Sender<T> {
    /// Queues an item if there is room. Error: [`SendError::Full`] or [`SendError::Closed`], with the item.
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        self.put(item, self.shared.capacity)
    }

    /// Queues an item beyond the capacity if need be. Returns false if the receiver is gone.
    pub fn push(&self, item: T) -> bool {
        self.put(item, usize::MAX).is_ok()
    }

    fn put(&self, item: T, capacity: usize) -> Result<(), SendError<T>> {
        let mut s = self.shared.lock();
        if s.receiver_gone {
            return Err(SendError::Closed(item));
        }
        if s.queue.len() >= capacity {
            return Err(SendError::Full(item));
        }
        s.queue.push_back(item);
        let waker = s.waker.take();
        drop(s);
        if let Some(w) = waker {
            w.wake();
        }
        Ok(())
    }

    /// Items queued now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// True if nothing is queued now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.lock().senders += 1;
        Self { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut s = self.shared.lock();
        s.senders -= 1;
        let waker = if s.senders == 0 { s.waker.take() } else { None };
        drop(s);
        if let Some(w) = waker {
            w.wake();
        }
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mailbox::Sender")
    }
}

/// Items for which an empty queue keeps memory.
const KEPT: usize = 128;

impl<T> Receiver<T> {
    /// Moves all queued items into `out`, waiting if there are none. Returns false when all senders are gone
    /// and the queue is empty.
    pub async fn recv_batch(&mut self, out: &mut VecDeque<T>) -> bool {
        poll_fn(|cx| self.poll_batch(cx, out)).await
    }

    /// As [`Receiver::recv_batch`], for hand-written polls.
    pub fn poll_batch(&mut self, cx: &mut Context<'_>, out: &mut VecDeque<T>) -> Poll<bool> {
        let mut s = self.shared.lock();
        if !s.queue.is_empty() {
            if out.is_empty() {
                // Memory of a burst is given back when few items are queued.
                if out.capacity() > KEPT && s.queue.len() < KEPT / 8 {
                    out.shrink_to(KEPT);
                }
                std::mem::swap(&mut s.queue, out);
            } else {
                out.append(&mut s.queue);
            }
            return Poll::Ready(true);
        }
        if s.senders == 0 {
            return Poll::Ready(false);
        }
        match &mut s.waker {
            Some(w) => w.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Moves all queued items into `out` without waiting.
    pub fn try_batch(&mut self, out: &mut VecDeque<T>) {
        out.append(&mut self.shared.lock().queue);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut s = self.shared.lock();
        s.receiver_gone = true;
        let left = std::mem::take(&mut s.queue);
        drop(s);
        // Outside the lock: items may own senders of this very queue.
        drop(left);
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mailbox::Receiver")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn memory_of_a_burst_is_given_back() {
        let (tx, mut rx) = channel(100_000);
        let mut cx = Context::from_waker(Waker::noop());
        let mut out = VecDeque::new();
        for n in [50_000, 1, 1] {
            (0..n).for_each(|i| assert!(tx.push(i)));
            assert_eq!(rx.poll_batch(&mut cx, &mut out), Poll::Ready(true));
            assert_eq!(out.drain(..).count(), n);
        }
        assert!(out.capacity() <= 2 * KEPT, "{}", out.capacity());
        assert!(rx.shared.lock().queue.capacity() <= 2 * KEPT);
    }

    #[test]
    fn wakes_only_a_sleeper_and_drains_in_one_go() {
        let (tx, mut rx) = channel(3);
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut out = VecDeque::new();
        assert!(rx.poll_batch(&mut cx, &mut out).is_pending());
        assert_eq!(tx.send(1), Ok(()));
        assert_eq!(tx.send(2), Ok(()));
        assert_eq!(tx.clone().send(3), Ok(()));
        assert_eq!(tx.send(4), Err(SendError::Full(4)));
        assert!(tx.push(5), "what must not get lost is taken all the same");
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(rx.poll_batch(&mut cx, &mut out), Poll::Ready(true));
        assert_eq!(out, [1, 2, 3, 5]);
        assert!(rx.poll_batch(&mut cx, &mut out).is_pending());
        drop(tx);
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert_eq!(rx.poll_batch(&mut cx, &mut out), Poll::Ready(false));
    }

    #[test]
    fn a_gone_receiver_refuses() {
        let (tx, rx) = channel(1);
        drop(rx);
        assert_eq!(tx.send(7), Err(SendError::Closed(7)));
        assert!(!tx.push(7));
    }

    #[test]
    fn order_holds_across_threads() {
        let (tx, mut rx) = channel(64);
        let t = std::thread::spawn(move || {
            for i in 0..10_000u32 {
                let mut item = i;
                while let Err(e) = tx.send(item) {
                    match e {
                        SendError::Full(x) => item = x,
                        SendError::Closed(_) => return,
                    }
                    std::thread::yield_now();
                }
            }
        });
        let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
        rt.block_on(async {
            let mut next = 0;
            let mut out = VecDeque::new();
            while rx.recv_batch(&mut out).await {
                for i in out.drain(..) {
                    assert_eq!(i, next);
                    next += 1;
                }
            }
            assert_eq!(next, 10_000);
        });
        t.join().unwrap();
    }
}
