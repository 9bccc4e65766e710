//! The membership of a monitor over etcd, on a thread of its own: a turn of the monitor, however long, delays no
//! renewal of its lease.
//!
//! Invariants:
//!  1. The lease is renewed only while the monitor's thread answers: after [`SILENT_MAX`] without a sign of it the
//!     lease is given back, and this process never leads again.
//!  2. The monitor acts as leader only before [`Standing::leads_until`], which it reads before each group of effects.
//!
//! Tests: below (1, `a_thread_that_never_answers_loses_the_lease`; 2,
//! `a_turn_longer_than_the_lease_does_not_lose_it`), `interop/long/several_monitors.sh` (2).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Mono;
use bytes::Bytes;
use reactor::clock;
use state::{Event, LeaseId, Op, StateError};
use tokio::sync::{Notify, oneshot, watch};

use super::several::AGAIN;
use super::{MonError, Store};
use crate::core::quorum::follow::UNREADABLE_MAX;
use crate::core::quorum::member::{Member, Output, Presence};

/// Interval of membership checks.
const TICK: Duration = Duration::from_millis(100);
/// Interval at which the monitor's thread shows that it runs.
const SIGN: Duration = Duration::from_millis(250);
/// Time without a sign of the monitor's thread after which its lease is given back. No turn takes so long: another
/// monitor serves better than one that does not come back.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(15);
/// Time for which a monitor whose thread does not answer tries to give its lease back.
const SILENT_LEAVING: Duration = Duration::from_secs(2);

/// The state of the membership, shared between its thread and the monitor's.
pub(super) struct Standing {
    /// Time until which this monitor may act as leader, in nanoseconds; 0 if it does not lead.
    leads_until: AtomicU64,
    /// Time of the last sign of the monitor's thread, in nanoseconds.
    sign: AtomicU64,
    /// The running monitors; replaced when they change.
    peers: Mutex<Arc<BTreeMap<String, Presence>>>,
    leader: Mutex<Option<Presence>>,
    elected: Mutex<Option<(Bytes, u64)>>,
    stop: Mutex<Option<String>>,
    /// Set when the process is about to end: the time for which it tries to give its lease back.
    leaving: Mutex<Option<Duration>>,
    /// Revision of the last change that the store is known to have.
    written: AtomicU64,
    /// The monmap lets this monitor lead.
    may_lead: AtomicBool,
    /// Notified when the watch reports a change of the leader's record.
    leader_changed: Notify,
    changed: watch::Sender<()>,
    silent_max: Duration,
}

/// No holder of these locks can leave its value half changed.
fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Standing {
    /// Of a monitor whose lease is given back once its thread has shown no sign for `silent_max`.
    pub(super) fn new(silent_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            leads_until: AtomicU64::new(0),
            sign: AtomicU64::new(clock::read().mono.0),
            peers: Mutex::default(),
            leader: Mutex::default(),
            elected: Mutex::default(),
            stop: Mutex::default(),
            leaving: Mutex::default(),
            written: AtomicU64::new(0),
            may_lead: AtomicBool::new(true),
            leader_changed: Notify::new(),
            changed: watch::Sender::new(()),
            silent_max,
        })
    }

    /// A receiver that is notified of each change, also of one that happened while no task waited.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Notifies the receivers of a change.
    pub(super) fn tell(&self) {
        self.changed.send_replace(());
    }

    /// True if this monitor may act as leader at the current time.
    pub(super) fn may_act(&self) -> bool {
        clock::read().mono.0 < self.leads_until.load(Ordering::Acquire)
    }

    /// The reason why this monitor has to stop, if any.
    pub(super) fn stopped(&self) -> Option<String> {
        lock(&self.stop).clone()
    }

    /// Asks the monitor to stop; the first reason counts.
    pub(super) fn stop(&self, why: impl Into<String>) {
        lock(&self.stop).get_or_insert(why.into());
        self.tell();
    }

    /// The running monitors; another `Arc` after each change.
    pub(super) fn peers(&self) -> Arc<BTreeMap<String, Presence>> {
        Arc::clone(&lock(&self.peers))
    }

    /// The monitor that leads.
    pub(super) fn leader(&self) -> Option<Presence> {
        lock(&self.leader).clone()
    }

    /// Takes from the monmap whether this monitor may lead.
    pub(super) fn allow(&self, may: bool) {
        self.may_lead.store(may, Ordering::Release);
    }

    /// Reports that the watch saw a change of the leader's record.
    pub(super) fn leader_changed(&self) {
        self.leader_changed.notify_one();
    }

    /// Takes the fence of a won election.
    pub(super) fn take_elected(&self) -> Option<(Bytes, u64)> {
        lock(&self.elected).take()
    }

    /// Revision of the last change that the store is known to have.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Ends the membership, which tries for some time to give its lease back.
    pub(super) fn leave(&self, patience: Duration) {
        *lock(&self.leaving) = Some(patience);
    }

    /// Shows for as long as it is polled that this thread runs; never returns.
    pub(super) async fn keep_signing(&self) {
        let mut tick = tokio::time::interval(SIGN);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.sign.store(clock::read().mono.0, Ordering::Release);
        }
    }

    fn is_silent(&self, now: Mono) -> bool {
        now.since(Mono(self.sign.load(Ordering::Acquire))) > self.silent_max
    }
}

/// Starts the thread of the membership. The receiver completes when the lease is given back.
pub(super) fn begin(
    store: impl FnOnce() -> Result<Store, MonError> + Send + 'static,
    mut member: Member,
    standing: &Arc<Standing>,
) -> Result<oneshot::Receiver<()>, MonError> {
    let failed = |error| MonError::Io { path: "the thread of the membership".into(), error };
    let (tell, told) = oneshot::channel();
    let standing = Arc::clone(standing);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
    let run = move || {
        match store() {
            Ok(mut store) => runtime.block_on(belong(&mut store, &mut member, &standing)),
            Err(e) => standing.stop(e.to_string()),
        }
        standing.leads_until.store(0, Ordering::Release);
        // The monitor may have ended.
        let _ = tell.send(());
    };
    std::thread::Builder::new().name("membership".into()).spawn(run).map_err(failed)?;
    Ok(told)
}

/// Runs the membership; returns once the lease is given back.
async fn belong(store: &mut Store, member: &mut Member, standing: &Standing) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let ready = Arc::clone(&store.ready);
        tokio::select! {
            _ = tick.tick() => {}
            () = ready.notified() => {}
            () = standing.leader_changed.notified() => member.leader_changed(),
        }
        let now = clock::read().mono;
        while let Some(e) = store.store.poll() {
            if let Event::Reply(r) = e {
                member.reply(r, now);
            }
        }
        let leaving = *lock(&standing.leaving);
        if let Some(patience) = leaving {
            return leave(store, member, patience).await;
        }
        if standing.is_silent(now) {
            standing.leads_until.store(0, Ordering::Release);
            let why = format!("its thread has not answered for {} s", standing.silent_max.as_secs());
            tracing::error!("mon: giving up the lease of this monitor: {why}");
            standing.stop(why);
            return leave(store, member, SILENT_LEAVING).await;
        }
        member.set_may_lead(standing.may_lead.load(Ordering::Acquire));
        member.tick(now);
        let changed = take_outputs(store, member, standing);
        standing.leads_until.store(member.leads_until().map_or(0, |t| t.0), Ordering::Release);
        if now.since(member.heard()) > UNREADABLE_MAX {
            let why = member.trouble().unwrap_or("the state store does not answer");
            standing.stop(format!("for {} s, {why}", UNREADABLE_MAX.as_secs()));
        }
        if changed {
            standing.tell();
        }
    }
}

/// Carries out what the membership asks for; true if the monitor has to look at the standing.
fn take_outputs(store: &mut Store, member: &mut Member, standing: &Standing) -> bool {
    let mut changed = false;
    for o in member.take_outputs() {
        match o {
            Output::Submit(r) => store.store.submit(r),
            Output::Leader(l) => *lock(&standing.leader) = l,
            Output::Written(revision) => {
                standing.written.fetch_max(revision, Ordering::AcqRel);
                continue;
            }
            Output::Elected { fence } => *lock(&standing.elected) = Some(fence),
            Output::Deposed(why) => standing.stop(format!("this monitor no longer leads: {why}")),
            Output::Peers(p) => {
                let mut peers = lock(&standing.peers);
                if **peers == p {
                    continue;
                }
                *peers = Arc::new(p);
            }
            Output::Compact(revision) => {
                store.store.compact(revision);
                continue;
            }
        }
        changed = true;
    }
    changed
}

/// Gives the lease back. A store that cannot be asked lets it run out.
async fn leave(store: &mut Store, member: &Member, patience: Duration) {
    if let Some(l) = member.to_give_back() {
        let _ = tokio::time::timeout(patience, give_back(store, l)).await;
    }
}

/// Ends a lease; completes when the store has confirmed it.
async fn give_back(store: &mut Store, lease: LeaseId) {
    loop {
        match store.ask(Op::Revoke(lease)).await {
            Ok(_) | Err(StateError::NoLease) => return,
            Err(e) => tracing::debug!("mon: the lease is not given back yet: {e}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::quorum::member::LEASE;
    use base::EntityAddr;
    use testkit::TempDir;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    /// A membership over a store in a new directory, once it leads.
    fn leading(name: &str, silent_max: Duration) -> (Arc<Standing>, oneshot::Receiver<()>, TempDir) {
        let dir = TempDir::new(&format!("membership-{name}"));
        let path = dir.join("state");
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], 3300).into(), 0);
        let me = Presence { name: "a".into(), addr, instance: 1, metadata: BTreeMap::new() };
        let standing = Standing::new(silent_max);
        let member = Member::new(me, true, clock::read().mono);
        let mut changes = standing.changes();
        let told = begin(move || Store::open(&path), member, &standing).unwrap();
        runtime().block_on(async {
            while standing.take_elected().is_none() {
                changes.changed().await.unwrap();
            }
        });
        (standing, told, dir)
    }

    #[test]
    fn a_turn_longer_than_the_lease_does_not_lose_it() {
        let (standing, told, _dir) = leading("long-turn", 3 * LEASE);
        // The turn: this thread does nothing else.
        std::thread::sleep(LEASE + Duration::from_millis(200));
        assert!(standing.may_act());
        assert_eq!(standing.stopped(), None);
        standing.leave(Duration::from_secs(5));
        runtime().block_on(told).unwrap();
        assert!(!standing.may_act());
    }

    #[test]
    fn a_thread_that_never_answers_loses_the_lease() {
        let (standing, told, _dir) = leading("hung", Duration::from_millis(300));
        runtime().block_on(told).unwrap();
        assert!(!standing.may_act());
        assert!(standing.stopped().unwrap().contains("has not answered"));
    }

    #[test]
    fn a_thread_that_shows_signs_keeps_the_lease() {
        let (standing, told, _dir) = leading("signs", 2 * SIGN);
        runtime().block_on(async {
            let signs = tokio::time::timeout(8 * SIGN, standing.keep_signing());
            assert!(signs.await.is_err());
        });
        assert!(standing.may_act());
        standing.leave(Duration::from_secs(5));
        runtime().block_on(told).unwrap();
    }
}
