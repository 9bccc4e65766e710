//! The end of a loop turn, where queued work is handed to the kernel at once.
//!
//! Handlers only queue (frames for a socket, requests for the ring). The first handler that queues in a turn
//! schedules the hook of that socket or ring. Hooks run once every ready task has been polled. So a turn makes
//! one vectored write per connection and one ring submission.
//!
//! Invariants:
//!  1. A hook runs once for all times that it was scheduled before it runs.
//!  2. Hooks run in order of registration, those of [`Turn::before_end`] first. A hook may schedule others, also
//!     earlier ones; these run at the same turn's end, in at most [`ROUNDS_MAX`] rounds. The rest runs in the next
//!     turn.
//!  3. Nothing runs in a turn in which nothing was scheduled.
//!
//! Tests: below.

use crate::clock;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// Rounds of hooks at one turn's end.
pub const ROUNDS_MAX: usize = 4;

struct Hook {
    scheduled: Cell<bool>,
    run: RefCell<Option<Box<dyn FnMut()>>>,
}

#[derive(Default)]
struct Inner {
    hooks: RefCell<Vec<Rc<Hook>>>,
    any: Cell<bool>,
    started: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    turns: Cell<u64>,
}

/// Turn ends of one reactor. A clone is another handle to the same.
#[derive(Clone, Default)]
pub struct Turn {
    inner: Rc<Inner>,
}

/// A registered hook; dropping the handle unregisters it.
pub struct TurnHook {
    hook: Rc<Hook>,
    inner: Weak<Inner>,
}

thread_local! {
    static CURRENT: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

impl Turn {
    /// Turn object of this thread, created at the first call. Scheduling a hook needs a surrounding `LocalSet`
    /// for the runner.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.with(|c| c.borrow_mut().get_or_insert_with(Self::default).clone())
    }

    /// Drops the turn object of this thread. Called when a runtime ends, so that the next runtime starts its
    /// own runner.
    pub(crate) fn forget() {
        CURRENT.with(|c| c.borrow_mut().take());
    }

    /// Registers `run` to be called at the end of each turn in which the returned handle was scheduled.
    #[must_use]
    pub fn on_end(&self, run: impl FnMut() + 'static) -> TurnHook {
        let at = self.inner.hooks.borrow().len();
        self.register(at, Box::new(run))
    }

    /// Like [`Turn::on_end`], but runs before all hooks of that kind: for hooks that make work for them.
    #[must_use]
    pub fn before_end(&self, run: impl FnMut() + 'static) -> TurnHook {
        self.register(0, Box::new(run))
    }

    fn register(&self, at: usize, run: Box<dyn FnMut()>) -> TurnHook {
        let hook = Rc::new(Hook { scheduled: Cell::new(false), run: RefCell::new(Some(run)) });
        self.inner.hooks.borrow_mut().insert(at, hook.clone());
        TurnHook { hook, inner: Rc::downgrade(&self.inner) }
    }

    /// Number of turn ends so far at which hooks ran.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.turns.get()
    }
}

impl Inner {
    fn arm(self: &Rc<Self>) {
        if self.any.replace(true) {
            return;
        }
        if !self.started.replace(true) {
            let weak = Rc::downgrade(self);
            tokio::task::spawn_local(poll_fn(move |cx| {
                let Some(inner) = weak.upgrade() else { return Poll::Ready(()) };
                match &mut *inner.waker.borrow_mut() {
                    Some(w) => w.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                inner.run();
                Poll::Pending
            }));
        } else if let Some(w) = &*self.waker.borrow() {
            // Moves the runner to the back of the queue of ready tasks, behind everything that this turn woke.
            w.wake_by_ref();
        }
    }

    fn run(self: &Rc<Self>) {
        if !self.any.get() {
            return;
        }
        clock::expire();
        crate::spin::worked();
        self.turns.set(self.turns.get() + 1);
        for _ in 0..ROUNDS_MAX {
            if !self.any.replace(false) {
                return;
            }
            // Hooks that run must not wake the runner: the loop checks `any` itself.
            let n = self.hooks.borrow().len();
            for i in 0..n {
                let Some(h) = self.hooks.borrow().get(i).cloned() else { break };
                if !h.scheduled.replace(false) {
                    continue;
                }
                let run = h.run.borrow_mut().take();
                if let Some(mut f) = run {
                    f();
                    // A handle that was dropped meanwhile leaves nothing to put back.
                    if Rc::strong_count(&h) > 1 {
                        *h.run.borrow_mut() = Some(f);
                    }
                }
            }
        }
        if self.any.get()
            && let Some(w) = &*self.waker.borrow()
        {
            w.wake_by_ref();
        }
    }
}

impl TurnHook {
    /// Makes the hook run at the end of this turn.
    pub fn schedule(&self) {
        if !self.hook.scheduled.replace(true)
            && let Some(inner) = self.inner.upgrade()
        {
            inner.arm();
        }
    }
}

impl Drop for TurnHook {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade()
            && let Ok(mut hooks) = inner.hooks.try_borrow_mut()
        {
            hooks.retain(|h| !Rc::ptr_eq(h, &self.hook));
        }
        // Breaks the cycle of a closure that owns the owner of this handle.
        let run = self.hook.run.try_borrow_mut().ok().and_then(|mut r| r.take());
        drop(run);
    }
}

impl std::fmt::Debug for TurnHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TurnHook")
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Turn")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::LocalSet;

    fn on_local(f: impl Future<Output = ()>) {
        let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&rt, f);
        Turn::forget();
    }

    #[test]
    fn runs_once_after_all_ready_tasks() {
        on_local(async {
            let turn = Turn::current();
            let log = Rc::new(RefCell::new(Vec::new()));
            let l = log.clone();
            let hook = Rc::new(turn.on_end(move || l.borrow_mut().push("end")));
            for _ in 0..3 {
                let (l, h) = (log.clone(), hook.clone());
                tokio::task::spawn_local(async move {
                    l.borrow_mut().push("task");
                    h.schedule();
                });
            }
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            assert_eq!(*log.borrow(), ["task", "task", "task", "end"]);
            hook.schedule();
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            assert_eq!(log.borrow().len(), 5);
        });
    }

    #[test]
    fn a_hook_may_schedule_an_earlier_one_in_the_same_end() {
        on_local(async {
            let turn = Turn::current();
            let log = Rc::new(RefCell::new(Vec::new()));
            let l = log.clone();
            let first = Rc::new(turn.on_end(move || l.borrow_mut().push(1)));
            let (l, f) = (log.clone(), first.clone());
            let second = turn.on_end(move || {
                l.borrow_mut().push(2);
                if l.borrow().len() < 3 {
                    f.schedule();
                }
            });
            let l = log.clone();
            let ahead = turn.before_end(move || l.borrow_mut().push(0));
            first.schedule();
            second.schedule();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert_eq!(*log.borrow(), [1, 2, 1]);
            first.schedule();
            ahead.schedule();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert_eq!(log.borrow_mut().split_off(3), [0, 1]);
            drop(ahead);
            assert_eq!(turn.count(), 2);
            drop(second);
            first.schedule();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert_eq!(*log.borrow(), [1, 2, 1, 1]);
        });
    }

    #[test]
    fn hooks_that_schedule_each_other_do_not_hold_the_turn() {
        on_local(async {
            let turn = Turn::current();
            let runs = Rc::new(Cell::new(0));
            let other: Rc<RefCell<Option<TurnHook>>> = Rc::default();
            let (r, o) = (runs.clone(), other.clone());
            let first = Rc::new(turn.on_end(move || {
                r.set(r.get() + 1);
                o.borrow().iter().for_each(TurnHook::schedule);
            }));
            let f = first.clone();
            *other.borrow_mut() = Some(turn.on_end(move || f.schedule()));
            first.schedule();
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let (turns, runs) = (turn.count(), runs.get());
            assert!(turns > 1 && runs > ROUNDS_MAX as u64 && runs <= ROUNDS_MAX as u64 * turns, "{runs} in {turns}");
            other.borrow_mut().take();
        });
    }
}
