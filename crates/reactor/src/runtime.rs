//! Reactor threads: a tokio current-thread runtime with a `LocalSet` each, so that everything on it may be
//! `!Send`.
//!
//! [`Reactors::start`] runs the same entry function on every thread; what the function makes never leaves its
//! reactor. [`run_here`] does the same on the calling thread, for a daemon with a single reactor and for tests.

use crate::clock;
use crate::spin;
use crate::turn::Turn;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::LocalSet;

/// Counters of one reactor, readable from every thread.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Times the thread went to sleep because it was idle.
    pub parks: AtomicU64,
}

/// Argument of the entry function of a reactor.
#[derive(Clone, Debug)]
pub struct Context {
    /// Number of this reactor, from 0.
    pub index: usize,
    /// Number of reactors.
    pub count: usize,
    /// Counters.
    pub metrics: Arc<Metrics>,
    stop: watch::Receiver<bool>,
}

impl Context {
    /// Completes when the process is asked to stop.
    pub async fn stopped(&self) {
        let mut s = self.stop.clone();
        // An error means that the sender is gone, which is a stop as well.
        let _ = s.wait_for(|x| *x).await;
    }

    /// True once the process is asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

/// Asks reactors to stop; clone freely.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Asks all reactors to stop. Their entry functions see [`Context::stopped`] and return when they are done.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Running reactors.
#[derive(Debug)]
pub struct Reactors {
    stop: Stopper,
    threads: Vec<(String, JoinHandle<io::Result<()>>)>,
    metrics: Vec<Arc<Metrics>>,
}

/// Error with which a set of reactors ended.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A thread panicked; the message was printed by the panic hook.
    #[error("reactor {0} panicked")]
    Panicked(String),
    /// The runtime could not be created.
    #[error("reactor {name}: {error}")]
    Io {
        /// Name of the thread.
        name: String,
        /// Error of the system.
        error: io::Error,
    },
}

impl Reactors {
    /// Starts `count` threads named `name.0`, `name.1`, … and runs `entry` on each. Error: the system refuses a thread.
    pub fn start<F, Fut>(count: usize, name: &str, entry: F) -> io::Result<Self>
    where
        F: Fn(Context) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Self::start_awake(count, name, Duration::ZERO, entry)
    }

    /// Like [`Reactors::start`]; after work a thread stays awake for at most `awake` ([`crate::spin`]).
    pub fn start_awake<F, Fut>(count: usize, name: &str, awake: Duration, entry: F) -> io::Result<Self>
    where
        F: Fn(Context) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let (tx, rx) = watch::channel(false);
        let mut me = Self { stop: Stopper(Arc::new(tx)), threads: Vec::new(), metrics: Vec::new() };
        for index in 0..count {
            let metrics = Arc::new(Metrics::default());
            let cx = Context { index, count, metrics: metrics.clone(), stop: rx.clone() };
            let entry = entry.clone();
            let thread = format!("{name}.{index}");
            let join = std::thread::Builder::new().name(thread.clone()).spawn(move || {
                let m = cx.metrics.clone();
                run_with(&m, awake, || entry(cx))
            })?;
            me.threads.push((thread, join));
            me.metrics.push(metrics);
        }
        Ok(me)
    }

    /// A handle that asks these reactors to stop.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Counters of each reactor.
    #[must_use]
    pub fn metrics(&self) -> &[Arc<Metrics>] {
        &self.metrics
    }

    /// Waits until all entry functions have returned. If one panics, the others are asked to stop. Error: the first
    /// failure, in the order of the threads.
    pub fn join(self) -> Result<(), Failed> {
        let mut first = Ok(());
        for (name, t) in self.threads {
            let r = match t.join() {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => Failed::Io { name, error },
                Err(_) => Failed::Panicked(name),
            };
            self.stop.stop();
            if first.is_ok() {
                first = Err(r);
            }
        }
        first
    }
}

thread_local! {
    static ON_EXIT: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` on this reactor after its entry function has returned. Values in a cycle of handles (a network and
/// the handlers that send on it) release their sockets here.
pub fn on_exit(f: impl FnOnce() + 'static) {
    ON_EXIT.with(|x| x.borrow_mut().push(Box::new(f)));
}

fn run_exit_hooks() {
    loop {
        let batch = ON_EXIT.with(RefCell::take);
        if batch.is_empty() {
            return;
        }
        for f in batch {
            f();
        }
    }
}

fn run_with<Fut: Future>(
    metrics: &Arc<Metrics>,
    awake: Duration,
    entry: impl FnOnce() -> Fut,
) -> io::Result<Fut::Output> {
    let m = metrics.clone();
    let mut rt = tokio::runtime::Builder::new_current_thread();
    if !awake.is_zero() {
        // A thread that stays awake looks for events each time that it has run its tasks.
        rt.event_interval(1);
    }
    let rt = rt
        .enable_all()
        .on_thread_park(move || {
            m.parks.fetch_add(1, Ordering::Relaxed);
        })
        .on_thread_unpark(clock::expire)
        .build()?;
    let local = LocalSet::new();
    // The entry function runs inside the set, so that it may spawn local tasks and schedule turn hooks.
    let out = local.block_on(&rt, async move {
        spin::start(awake);
        let out = entry().await;
        run_exit_hooks();
        out
    });
    // Remaining tasks (connections, listeners) are dropped with the set, before the runtime they registered
    // with.
    drop(local);
    Turn::forget();
    spin::forget();
    Ok(out)
}

/// Runs one reactor on this thread until `entry`'s future completes. Error: the runtime cannot be made.
pub fn run_here<F, Fut>(entry: F) -> io::Result<Fut::Output>
where
    F: FnOnce(Context, Stopper) -> Fut,
    Fut: Future,
{
    let (tx, rx) = watch::channel(false);
    let metrics = Arc::new(Metrics::default());
    let cx = Context { index: 0, count: 1, metrics: metrics.clone(), stop: rx };
    run_with(&metrics, Duration::ZERO, || entry(cx, Stopper(Arc::new(tx))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn every_reactor_runs_and_stops() {
        let (tx, rx) = std::sync::mpsc::channel();
        let r = Reactors::start(3, "t", move |cx| {
            let tx = tx.clone();
            async move {
                let local = Rc::new(Cell::new(0));
                let l = local.clone();
                tokio::task::spawn_local(async move { l.set(7) }).await.unwrap();
                tx.send((cx.index, cx.count, local.get(), std::thread::current().name().map(str::to_owned))).unwrap();
                cx.stopped().await;
            }
        })
        .unwrap();
        let mut seen: Vec<_> = (0..3).map(|_| rx.recv().unwrap()).collect();
        seen.sort();
        assert_eq!(seen[2], (2, 3, 7, Some("t.2".to_owned())));
        r.stopper().stop();
        r.join().unwrap();
    }

    /// Work that comes quickly keeps the thread awake; it sleeps again when none comes, and the reactor still stops.
    #[test]
    fn a_reactor_that_stays_awake_sleeps_in_the_end() {
        let (tx, rx) = std::sync::mpsc::channel();
        let r = Reactors::start_awake(1, "s", Duration::from_micros(200), move |cx| {
            let tx = tx.clone();
            async move {
                let turn = Turn::current();
                let hook = Rc::new(turn.on_end(|| {}));
                for _ in 0..1000 {
                    hook.schedule();
                    tokio::task::yield_now().await;
                }
                tx.send(()).unwrap();
                cx.stopped().await;
            }
        })
        .unwrap();
        rx.recv().unwrap();
        while r.metrics()[0].parks.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        r.stopper().stop();
        r.join().unwrap();
    }

    #[test]
    fn exit_hooks_run_once_also_those_added_last() {
        let log = Rc::new(Cell::new(0));
        let l = log.clone();
        run_here(|_, _| async move {
            on_exit(move || {
                l.set(l.get() + 1);
                on_exit(move || l.set(l.get() + 10));
            });
        })
        .unwrap();
        assert_eq!(log.get(), 11);
        run_here(|_, _| async {}).unwrap();
        assert_eq!(log.get(), 11);
    }

    #[test]
    fn a_panic_is_reported() {
        let r = Reactors::start(1, "p", |_| async { panic!("on purpose") }).unwrap();
        assert!(matches!(r.join(), Err(Failed::Panicked(n)) if n == "p.0"));
    }
}
