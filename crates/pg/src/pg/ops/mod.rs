//! The life of an operation, and of the PG's internal writes.
//!
//! - `space`: operations that wait for space
//! - `ended`: operations of ended sessions
//! - `plan`: order per object, and waiting for the store
//! - `work`: the work of plans, by part
//! - `long`: class calls that run in parts
//! - `copy`: content of other objects, for `copy_from`
//! - `plain`: reads of one extent
//! - `vector`: from duplicate check to transaction; what a full pool or a quota does to a write
//! - `expire`: removal of watches
//! - `trim`: removal of clones of removed snapshots

pub(in crate::pg) mod copy;
pub(in crate::pg) mod ended;
pub(in crate::pg) mod expire;
pub(in crate::pg) mod long;
pub(in crate::pg) mod plain;
pub(in crate::pg) mod plan;
pub(in crate::pg) mod space;
pub(in crate::pg) mod trim;
pub(in crate::pg) mod vector;
pub(in crate::pg) mod work;

use crate::event::OpRequest;
use crate::limits::OBJECT_CONTEXTS_MAX;
use crate::object::{ContextCache, ObjectContext};
use crate::pg::backend::ec::read::ShardReads;
use crate::pg::idle::{list, queue, tree};
use crate::pg::recovery::push::PushJob;
use crate::pg::seldom::Seldom;
use base::{HObject, Mono};
use hashbrown::HashMap;
use plan::{ObjectLock, Plan};
use rustc_hash::FxBuildHasher;
use space::Spaceless;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use work::{RecoveryWork, Work};

/// Capacity below which the lock table of an idle machine is kept.
const LOCKS_KEPT: usize = 4;

/// Plans of a machine: those that wait, the locks they hold, and the objects they have read.
#[derive(Debug)]
#[repr(C)]
pub(in crate::pg) struct Plans {
    /// Number of the newest plan.
    last_id: u64,
    /// Plans that wait, by number.
    all: BTreeMap<u64, Box<Plan>>,
    /// The running client operation, kept with its reply if that waits for other members: see
    /// [`Pg::requeue`](crate::pg::Pg::requeue).
    again: Option<Box<OpRequest>>,
    /// The running step was started by this PG itself (trim, delete, …), not by a client or a peer.
    internal_step: bool,
    /// The request of the running operation is kept with its reply.
    keeps_request: bool,
    /// The cluster log has a line that the PG lacks space.
    room_missed: bool,
    locks: HashMap<HObject, ObjectLock, FxBuildHasher>,
    cache: ContextCache,
    /// Plans that are ready to run.
    runnable: VecDeque<u64>,
    /// Parked plans that were dropped; the store must release their tags.
    abandoned: Vec<u64>,
    /// Writes that wait for space.
    spaceless: Seldom<Spaceless>,
    /// Time of the next attempt of a split that waits for a removal, or of plans without room.
    retry_at: Option<Mono>,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            last_id: 0,
            all: BTreeMap::new(),
            again: None,
            internal_step: false,
            keeps_request: false,
            room_missed: false,
            locks: HashMap::default(),
            cache: ContextCache::new(OBJECT_CONTEXTS_MAX),
            runnable: VecDeque::new(),
            abandoned: Vec::new(),
            spaceless: Seldom::default(),
            retry_at: None,
        }
    }
}

impl Plans {
    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.all);
        base::prefetch(&self.locks);
        base::prefetch(&self.cache);
        base::prefetch(&self.runnable);
    }

    /// Number of a new plan.
    pub(in crate::pg) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// True if no plan waits.
    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The plans that wait, oldest first.
    pub(in crate::pg) fn iter(&self) -> impl Iterator<Item = &Plan> {
        self.all.values().map(|p| &**p)
    }

    /// A plan that waits.
    pub(in crate::pg) fn get(&self, id: u64) -> Option<&Plan> {
        self.all.get(&id).map(|p| &**p)
    }

    /// The reader of shards of a plan that waits; only `backend::ec` can use its fields.
    pub(in crate::pg) fn reads_of(&mut self, id: u64) -> Option<&mut ShardReads> {
        self.all.get_mut(&id)?.reads.as_deref_mut()
    }

    /// The push that a waiting plan makes; only `recovery` uses it.
    pub(in crate::pg) fn push_of(&mut self, id: u64) -> Option<&mut PushJob> {
        match &mut self.all.get_mut(&id)?.work {
            Work::Recovery(RecoveryWork::Push(job)) => Some(job),
            _ => None,
        }
    }

    /// Takes a plan that waits.
    pub(in crate::pg) fn take(&mut self, id: u64) -> Option<Box<Plan>> {
        self.all.remove(&id)
    }

    /// Drops all plans that wait, with what they have asked of the store.
    pub(in crate::pg) fn abandon_all(&mut self) {
        let all = std::mem::take(&mut self.all);
        self.abandoned.extend(all.into_keys());
    }

    /// Notes that a dropped plan's requests to the store are void.
    pub(in crate::pg) fn abandon(&mut self, id: u64) {
        self.abandoned.push(id);
    }

    /// Takes the numbers of dropped plans.
    pub(in crate::pg) fn take_abandoned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.abandoned)
    }

    /// Lets a plan that waits run.
    pub(in crate::pg) fn ready(&mut self, id: u64) {
        self.runnable.push_back(id);
    }

    /// Lets plans that wait run.
    pub(in crate::pg) fn ready_all(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.runnable.extend(ids);
    }

    /// True if a plan is ready to run.
    pub(in crate::pg) fn has_ready(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// True if a plan holds the object.
    pub(in crate::pg) fn is_locked(&self, head: &HObject) -> bool {
        self.locks.contains_key(head)
    }

    /// True if a plan waits for the object's lock.
    pub(in crate::pg) fn is_waited_for(&self, head: &HObject) -> bool {
        self.locks.get(head).is_some_and(ObjectLock::is_waited_for)
    }

    /// States of objects that were read.
    pub(in crate::pg) fn cache(&self) -> &ContextCache {
        &self.cache
    }

    /// Keeps the state of an object that was read or written.
    #[inline]
    pub(in crate::pg) fn keep_context(&mut self, head: &HObject, state: Rc<ObjectContext>) {
        self.cache.put(head, state);
    }

    /// Forgets the state of an object.
    #[inline]
    pub(in crate::pg) fn forget_context(&mut self, head: &HObject) {
        self.cache.remove(head);
    }

    /// Forgets the states of all objects.
    pub(in crate::pg) fn forget_contexts(&mut self) {
        self.cache.clear();
    }

    /// Sets the most objects whose states are kept.
    pub(in crate::pg) fn bound_contexts(&mut self, most: usize) {
        self.cache.bound(most);
    }

    /// Takes the request of the running operation, if it is kept with its reply.
    pub(in crate::pg) fn take_request(&mut self) -> Option<Box<OpRequest>> {
        self.again.take()
    }

    /// Begins a step without a plan, for a client or a peer.
    pub(in crate::pg) fn begin_step_for_others(&mut self) {
        self.internal_step = false;
    }

    /// True if the running step was started by this PG itself.
    pub(in crate::pg) fn is_internal_step(&self) -> bool {
        self.internal_step
    }

    /// Time at which plans without room are tried again.
    pub(in crate::pg) fn deadline(&self) -> Option<Mono> {
        self.retry_at
    }

    /// Sets the time at which plans without room are tried again.
    pub(in crate::pg) fn retry_at(&mut self, at: Mono) {
        self.retry_at = Some(at);
    }

    /// Releases unused memory; `long`: the machine has been idle for long.
    pub(in crate::pg) fn release_memory(&mut self, long: bool) {
        if long && self.locks.is_empty() {
            self.cache.clear();
        }
        if self.locks.is_empty() && self.locks.capacity() > LOCKS_KEPT {
            self.locks = HashMap::default();
        }
        tree(&mut self.all);
        queue(&mut self.runnable);
        list(&mut self.abandoned);
        self.spaceless.release_memory();
    }
}
