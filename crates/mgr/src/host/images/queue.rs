//! The queue of background tasks: loading, choice and execution.
//!
//! Invariants: of a namespace one task runs at a time. A pool whose tasks cannot be read, or whose tasks do not get on,
//! delays no other pool.
//!
//! Tests: `a_task_delays_those_of_its_namespace_only` here; `interop/tests/rbd.sh`, `interop/long/rbd_tasks.sh`.

use super::image::{Place, Step};
use super::task::{self, Running, Task};
use super::{LOAD_MAX, RETRY, Service, seconds};
use base::PoolId;
use base::errno::ETIMEDOUT;
use reactor::clock;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Finished tasks that are remembered for `progress`.
const COMPLETED_MAX: usize = 50;
/// Longest pause before a retry.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Most tasks that run at a time.
const RUNNING_MAX: usize = 32;
/// Most tasks of a pool that run at a time, each in another namespace.
const RUNNING_IN_POOL_MAX: usize = 4;
/// Sequence numbers of stored tasks from here on do not count for those of new ones.
const SEQUENCE_MAX: u64 = 1 << 62;

/// A task that has ended, with the times of both ends.
pub(super) struct Ended {
    pub(super) task: Task,
    pub(super) started: f64,
    pub(super) ended: f64,
    pub(super) failure: Option<String>,
}

/// A task that waits for its turn or its next attempt.
pub(super) struct Waiting {
    pub(super) task: Task,
    /// Retry state, set after a failed attempt.
    pub(super) again: Option<Again>,
}

/// A task that has begun.
struct Begun {
    what: Waiting,
    started: f64,
    running: Rc<Running>,
}

/// Time and reason of a task's next attempt.
#[derive(Clone)]
pub(super) struct Again {
    pub(super) tries: u32,
    after: tokio::time::Instant,
    /// Time of the next attempt by the wall clock.
    pub(super) at: base::Utime,
    pub(super) why: String,
}

impl Service {
    /// Reads tasks that were not read yet; never completes.
    pub(super) async fn load_tasks(&self) {
        loop {
            if let Err(e) = self.load().await {
                tracing::debug!("mgr: some image tasks cannot be read yet, will retry: {}", base::errno::name(e));
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Runs tasks; never completes.
    pub(super) async fn run_tasks(self: Rc<Self>) {
        let mut jobs = JoinSet::new();
        loop {
            while let Some(w) = self.take_next() {
                let me = Rc::clone(&self);
                jobs.spawn_local(async move { me.work(w).await });
            }
            tokio::select! {
                () = self.wake.notified() => {}
                Some(_) = jobs.join_next() => {}
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// The first task whose next attempt is due and whose place is free. It counts as running from then on.
    fn take_next(&self) -> Option<Begun> {
        let (mut waiting, mut current) = (self.waiting.borrow_mut(), self.current.borrow_mut());
        let now = tokio::time::Instant::now();
        let is_free = |t: &Task| {
            let in_pool = current.iter().filter(|(c, ..)| c.pool == t.pool);
            let same = current.iter().any(|(c, ..)| (&c.pool, &c.nspace) == (&t.pool, &t.nspace));
            !same && current.len() < RUNNING_MAX && in_pool.count() < RUNNING_IN_POOL_MAX
        };
        let is_due = |w: &Waiting| w.again.as_ref().is_none_or(|a| a.after <= now);
        let first = waiting.iter().find(|(_, w)| is_due(w) && is_free(&w.task)).map(|(s, _)| s.clone())?;
        let what = waiting.remove(&first)?;
        let (started, running) = (seconds(), Rc::new(Running::default()));
        current.push((what.task.clone(), started, Rc::clone(&running)));
        Some(Begun { what, started, running })
    }

    /// Loads the tasks of the RBD pools that were not read yet. Fails with the last error; others are loaded all the same.
    pub(super) async fn load(&self) -> Step<()> {
        let pools = self.rbd_pools();
        self.loaded.borrow_mut().retain(|id| pools.iter().any(|(p, _)| p == id));
        let mut ended = Ok(());
        for (pool, name) in pools {
            if let Err(e) = self.load_pool(pool, &name).await {
                ended = Err(e);
            }
        }
        ended
    }

    /// Loads the tasks of a pool, unless they were read.
    pub(super) async fn load_pool(&self, pool: PoolId, name: &str) -> Step<()> {
        if self.loaded.borrow().contains(&pool) {
            return Ok(());
        }
        let read = async {
            let root = self.place_in(pool, "").await?;
            let mut all = Vec::new();
            for nspace in root.namespaces().await? {
                let place = Place { nspace: nspace.into(), ..root.clone() };
                all.extend(task::stored(&place, name).await?);
            }
            Ok(all)
        };
        let all = tokio::time::timeout(LOAD_MAX, read).await.unwrap_or(Err(ETIMEDOUT))?;
        // Another call may have read them meanwhile, and their tasks may have ended.
        if self.loaded.borrow_mut().insert(pool) {
            for task in all {
                // Clients write there: no number ends the numbers.
                if task.sequence < SEQUENCE_MAX {
                    self.next.set(self.next.get().max(task.sequence + 1));
                }
                self.waiting.borrow_mut().entry(task.order()).or_insert(Waiting { task, again: None });
            }
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Runs one task; if it may succeed later, the task is queued again.
    async fn work(&self, begun: Begun) {
        let Begun { what: mut w, started, running } = begun;
        let over = || self.current.borrow_mut().retain(|(.., r)| !Rc::ptr_eq(r, &running));
        let used = self.current();
        let r = match self.place(&w.task.pool, &w.task.nspace).await {
            Ok(place) => task::run(&place, &mut w.task, &running).await.map(|()| place),
            Err(e) => Err(e),
        };
        if let Err(e) = r {
            self.look_at(used.as_ref(), e);
        }
        let failure = match r {
            Ok(_) => None,
            Err(e) => match task::failure(w.task.action, e) {
                Some(why) => Some(why.to_owned()),
                None => {
                    // As in Ceph's manager: retried until it succeeds or a user cancels it.
                    let tries = w.again.map_or(0, |a| a.tries) + 1;
                    let why = task::error_text(w.task.action, e);
                    over();
                    tracing::debug!("mgr: task {} ({}) will be retried: {why}", w.task.id, w.task.message);
                    let pause = RETRY_MAX.min(RETRY * tries);
                    let at = clock::now().wall.plus(pause);
                    w.again = Some(Again { tries, after: tokio::time::Instant::now() + pause, at, why });
                    self.waiting.borrow_mut().insert(w.task.order(), w);
                    return;
                }
            },
        };
        if let Some(why) = &failure {
            tracing::warn!("mgr: task {} ({}): {why}", w.task.id, w.task.message);
        }
        if let Ok(place) = self.place(&w.task.pool, &w.task.nspace).await
            && let Err(e) = w.task.forget(&place).await
        {
            tracing::warn!("mgr: task {} cannot be removed from the stored tasks: {}", w.task.id, base::errno::name(e));
        }
        over();
        self.remember(Ended { task: w.task, started, ended: seconds(), failure });
    }

    pub(super) fn remember(&self, e: Ended) {
        let mut completed = self.completed.borrow_mut();
        if completed.len() >= COMPLETED_MAX {
            completed.pop_front();
        }
        completed.push_back(e);
    }
}

#[cfg(test)]
mod tests {
    use super::super::task::Action;
    use super::*;
    use crate::host::tests::Fake;
    use base::EntityAddr;

    #[test]
    fn a_task_delays_those_of_its_namespace_only() {
        let service = Service::new(Box::new(Fake { active: true, looks: Rc::default() }), EntityAddr::default());
        let places = [("a", ""), ("a", ""), ("b", ""), ("b", "n"), ("b", "o"), ("b", "p"), ("b", "q")];
        for (i, (pool, nspace)) in places.into_iter().enumerate() {
            let task = Task {
                // Those of two pools may have the same number.
                sequence: if i == 2 { 1 } else { i as u64 },
                id: i.to_string(),
                message: String::new(),
                action: Action::Remove,
                pool: pool.to_owned(),
                nspace: nspace.to_owned(),
                image: String::new(),
                image_id: i.to_string(),
                source: None,
            };
            service.waiting.borrow_mut().insert(task.order(), Waiting { task, again: None });
        }
        let ids: Vec<String> = std::iter::from_fn(|| service.take_next()).map(|b| b.what.task.id).collect();
        assert_eq!(ids, ["0", "2", "3", "4", "5"], "one of each namespace, and no more of a pool");
        service.current.borrow_mut().remove(0);
        assert_eq!(service.take_next().unwrap().what.task.id, "1");
        assert!(service.take_next().is_none());
    }
}
