//! Reports of this copy for a scrub: lists of objects, their metadata, and in a deep scrub checksums of data and omap
//! as stored on the device.
//!
//! Invariants:
//!  1. An unreadable block is an error of its object, never of the PG.
//!  2. No more than [`SCRUB_READ`] bytes of an object are in memory at a time.
//!
//! Tests: `tests/scrub.rs`.

use crate::exec::{Step, Stop};
use crate::limits::{SCRUB_OMAP_ENTRIES, SCRUB_RANGE, SCRUB_READ, SCRUB_SLOT_MAX};
use crate::pg::journal::action::{Action, ScrubAction};
use crate::pg::keys::set_missing;
use crate::pg::ops::plan::{Plan, Stage, Verdict};
use crate::pg::ops::work::{LifeWork, ScrubWork, Work};
use crate::pg::{Pg, Turn};
use crate::scrub::map::{Family, READ_ERROR, STAT_ERROR, ScrubAttr, ScrubObject};
use crate::scrub::message::{Answer, Ask, ScrubMsg};
use crate::scrub::parity::Fold;
use crate::shards::PeerId;
use base::crc::{SEED, crc32c};
use base::unreached;
use base::{Eversion, HObject};
use bytes::Bytes;
use store::{ObjectStore, Oid, ReadError};

/// Objects to be read for a scrub.
#[derive(Debug)]
pub(in crate::pg) struct ScanJob {
    to: PeerId,
    n: u64,
    heads: Vec<HObject>,
    deep: bool,
    /// Objects of the current family, once listed.
    objects: Option<Vec<Oid>>,
    read: Vec<ScrubObject>,
    now: Option<Reading>,
    done: Vec<Family>,
}

/// Progress of reading an object.
#[derive(Debug)]
struct Reading {
    object: ScrubObject,
    off: u64,
    crc: u32,
    /// Running digest; only for a shard.
    fold: Option<Fold>,
    /// `Some` once all data is read: the last omap key read.
    omap: Option<Option<Bytes>>,
    omap_crc: u32,
}

impl ScanJob {
    pub(in crate::pg) fn new(to: PeerId, n: u64, heads: Vec<HObject>, deep: bool) -> Self {
        Self { to, n, heads, deep, objects: None, read: Vec::new(), now: None, done: Vec::new() }
    }
}

/// Turns an I/O error into `None`; `Wait` stays an error.
fn or_bad<T>(r: Result<T, ReadError>) -> Step<Option<T>> {
    match r {
        Ok(v) => Ok(Some(v)),
        Err(ReadError::Wait) => Err(Stop::Wait),
        Err(ReadError::Io { .. } | ReadError::NoObject) => Ok(None),
    }
}

impl Pg {
    #[allow(clippy::too_many_arguments, reason = "a message, from whom, and what it acts on")]
    pub(in crate::pg) fn take_scrub(
        &mut self,
        from: PeerId,
        from_primary: bool,
        leads: bool,
        m: ScrubMsg,
        turn: &mut Turn<'_>,
    ) {
        match m {
            ScrubMsg::Ask { n, seq, ask } if from_primary && !leads && self.peers.is_member() => {
                let s = &mut self.scrub.interval.serving;
                s.until = turn.now.mono + SCRUB_SLOT_MAX;
                if n < s.n {
                    return;
                }
                if n == s.n {
                    if let Some(a) = s.answer.clone() {
                        self.send_encoded(from, *a);
                    }
                    return;
                }
                s.n = n;
                s.answer = None;
                s.waits = None;
                if matches!(ask, Ask::Reserve) {
                    if s.slot.is_none() {
                        s.slot = self.scrub.settings.slots.take();
                    }
                    let yes = s.slot.is_some();
                    return self.scrub_answer(from, n, Answer::Reserved(yes));
                }
                s.waits = Some(Box::new((seq, ask)));
                self.pump_serving(turn);
            }
            ScrubMsg::Answer { n, answer } if leads => {
                if let Some(run) = self.scrub.interval.run.as_mut().filter(|r| r.n == n)
                    && run.open.remove(&from).is_some()
                {
                    run.answers.insert(from, answer);
                }
            }
            ScrubMsg::Release { n } if from_primary && self.scrub.interval.serving.n <= n => {
                self.scrub.interval.serving.slot = None;
                self.scrub.interval.serving.waits = None;
            }
            ScrubMsg::Done { history, counts, delta } if from_primary && self.peers.is_member() => {
                self.journal.follow_scrub(&history, counts, &delta);
                self.start_work(Work::Life(LifeWork::SaveInfo), None, turn);
            }
            _ => tracing::debug!(pg = %self.env.spg(), %from, "scrub message ignored: wrong role or number"),
        }
    }

    /// Answers a question once the writes before it are applied.
    pub(super) fn pump_serving(&mut self, turn: &mut Turn<'_>) {
        let Some(waits) = &self.scrub.interval.serving.waits else { return unreached("a question waits") };
        if !self.has_applied(waits.0) {
            return;
        }
        let Some((_, ask)) = self.scrub.interval.serving.waits.take().map(|w| *w) else {
            return unreached("a question waits");
        };
        let to = self.primary();
        let n = self.scrub.interval.serving.n;
        let work = match ask {
            Ask::Reserve => return,
            Ask::List { begin, end } => Work::Scrub(ScrubWork::List { to, n, range: Box::new((begin, end)) }),
            Ask::Scan { heads, deep } => Work::Scrub(ScrubWork::Scan(Box::new(ScanJob::new(to, n, heads, deep)))),
            Ask::Lack(what) => Work::Scrub(ScrubWork::Lack { to, n, what }),
        };
        self.start_work(work, None, turn);
    }

    /// Runs work of scrub.
    pub(in crate::pg) fn run_scrub(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Scrub(ScrubWork::Hold) => self.run_scrub_hold(id),
            Work::Scrub(ScrubWork::List { to, n, range }) => {
                let (begin, end) = &**range;
                self.run_scrub_list(id, *to, *n, begin, end, turn.store)
            }
            Work::Scrub(ScrubWork::Scan(_)) => self.run_scrub_scan(plan, turn.store),
            Work::Scrub(ScrubWork::Lack { to, n, what }) => self.run_scrub_lack(id, *to, *n, what, turn),
            _ => unreached("each part runs its own work"),
        }
    }

    pub(in crate::pg) fn run_scrub_list(
        &mut self,
        id: u64,
        to: PeerId,
        n: u64,
        begin: &HObject,
        end: &HObject,
        store: &mut dyn ObjectStore,
    ) -> Verdict {
        let max = if to == self.me() { SCRUB_RANGE } else { 2 * SCRUB_RANGE };
        let answer = match self.families(id, begin, end, max, store) {
            Ok((found, upto)) => Answer::Listed { upto, heads: found.into_iter().map(|(h, _)| h).collect() },
            Err(Stop::Wait) => return Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                tracing::error!(pg = %self.env.spg(), errno, "can't list objects; the scrub fails");
                Answer::Failed
            }
        };
        self.scrub_answer(to, n, answer);
        Verdict::Done
    }

    pub(in crate::pg) fn run_scrub_scan(&mut self, plan: &mut Plan, store: &mut dyn ObjectStore) -> Verdict {
        let id = plan.id;
        let Work::Scrub(ScrubWork::Scan(job)) = &mut plan.work else { return unreached("the plan scans") };
        let answer = match self.scan(id, job, store) {
            Ok(()) => Answer::Scanned(std::mem::take(&mut job.done)),
            Err(Stop::Wait) => return Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                tracing::error!(pg = %self.env.spg(), errno, "can't list objects; the scrub fails");
                Answer::Failed
            }
        };
        self.scrub_answer(job.to, job.n, answer);
        Verdict::Done
    }

    fn scan(&self, id: u64, job: &mut ScanJob, store: &mut dyn ObjectStore) -> Step<()> {
        while let Some(head) = job.heads.get(job.done.len()).cloned() {
            let objects = match &job.objects {
                Some(o) => o,
                None => {
                    let found = self.family(id, &head, store)?;
                    job.objects.insert(found)
                }
            };
            let Some(oid) = objects.get(job.read.len()).cloned() else {
                job.done.push(Family { head, objects: std::mem::take(&mut job.read) });
                job.objects = None;
                store.release(self.tag(id));
                continue;
            };
            let mut reading = match job.now.take() {
                Some(r) => r,
                None => self.scan_shallow(id, &oid, store)?,
            };
            if job.deep
                && reading.object.errors == 0
                && let Err(s) = self.scan_deep(id, &oid, &mut reading, store)
            {
                job.now = Some(reading);
                return Err(s);
            }
            job.read.push(reading.object);
        }
        Ok(())
    }

    /// Reads size and attributes.
    fn scan_shallow(&self, id: u64, oid: &Oid, store: &mut dyn ObjectStore) -> Step<Reading> {
        let tag = self.tag(id);
        let mut o = ScrubObject { snap: oid.hobj.snap, ..ScrubObject::default() };
        match or_bad(store.stat(tag, self.env.cid(), oid))? {
            Some(s) => o.size = s.size,
            None => o.errors |= STAT_ERROR,
        }
        match or_bad(store.attrs(tag, self.env.cid(), oid))? {
            Some(a) => {
                o.attrs = a.into_iter().map(|(n, v)| ScrubAttr::new(n, v)).collect();
                o.attrs.sort_by(|a, b| a.name.cmp(&b.name));
            }
            None => o.errors |= READ_ERROR,
        }
        let fold = self.is_coded().then(Fold::default);
        Ok(Reading { object: o, off: 0, crc: SEED, fold, omap: None, omap_crc: SEED })
    }

    /// Reads data and omap.
    fn scan_deep(&self, id: u64, oid: &Oid, r: &mut Reading, store: &mut dyn ObjectStore) -> Step<()> {
        let tag = self.tag(id);
        while r.off < r.object.size {
            let len = SCRUB_READ.min(r.object.size - r.off);
            let Some(data) =
                or_bad(store.read_device(tag, self.env.cid(), oid, r.off, len))?.filter(|d| d.len() as u64 == len)
            else {
                r.object.errors |= READ_ERROR;
                return Ok(());
            };
            r.crc = crc32c(r.crc, &data);
            if let Some(f) = &mut r.fold {
                f.add(&data);
            }
            r.off += len;
            // Pinned data can be released.
            store.release(tag);
        }
        if r.omap.is_none() {
            let Some(header) = or_bad(store.omap_header(tag, self.env.cid(), oid))? else {
                r.object.errors |= READ_ERROR;
                return Ok(());
            };
            if !header.is_empty() {
                r.omap_crc = crc32c(r.omap_crc, &header);
            }
            r.omap = Some(None);
        }
        while let Some(from) = r.omap.clone() {
            let (key, after) = from.as_ref().map_or((&b""[..], false), |k| (&k[..], true));
            let max = SCRUB_READ as usize;
            let Some(page) = or_bad(store.omap_range(tag, self.env.cid(), oid, key, after, SCRUB_OMAP_ENTRIES, max))?
            else {
                r.object.errors |= READ_ERROR;
                return Ok(());
            };
            for (k, v) in &page.entries {
                for part in [k, v] {
                    r.omap_crc = crc32c(r.omap_crc, &(part.len() as u32).to_le_bytes());
                    r.omap_crc = crc32c(r.omap_crc, part);
                }
                r.object.omap_bytes += v.len() as u64;
                r.object.omap_keys += 1;
            }
            let last = page.entries.last().map(|(k, _)| k.clone());
            store.release(tag);
            if !page.more || last.is_none() {
                break;
            }
            r.omap = Some(last);
        }
        if let (Some(fold), Some(coder)) = (r.fold.take(), self.ec.coder()) {
            let size = r.object.info().and_then(Result::ok).map_or(0, |oi| oi.size);
            r.object.parity = Some(fold.finish(coder.layout.shard_len(size, 0)));
        }
        r.object.data_digest = Some(r.crc);
        r.object.omap_digest = Some(r.omap_crc);
        Ok(())
    }

    /// Stores that bad copies here are missing. After a crash a partly replaced object then does not look complete.
    pub(in crate::pg) fn run_scrub_lack(
        &mut self,
        id: u64,
        to: PeerId,
        n: u64,
        what: &[(HObject, Eversion)],
        turn: &mut Turn<'_>,
    ) -> Verdict {
        let op = set_missing(self.env.cid(), self.meta_missing(), what.iter().map(|(h, v)| (h, v)));
        match self.commit_alone(self.tag(id), vec![op], turn.store) {
            Ok(()) => {
                for (h, _) in what {
                    self.plans.forget_context(h);
                }
                self.recovery.lacks(what.iter().cloned());
                self.on_durable(Action::Scrub(ScrubAction::Lacks { to, n }));
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }
}
