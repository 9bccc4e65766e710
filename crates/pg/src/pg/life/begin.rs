//! Creation and loading of a PG.

use crate::effect::Effect;
use crate::event::CreateInfo;
use crate::exec::{Step, Stop};
use crate::info::PgInfo;
use crate::interval::from_monitor;
use crate::limits::READ_LEASE;
use crate::log::LogEntry;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::LifeAction;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::LifeWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, PgConfig, State, Turn};
use base::errno::EIO;
use base::unreached;
use base::{Eversion, HObject, Now};
use store::{Cid, ObjectStore, Op, Transaction};
use wire::Decode as _;

impl Pg {
    /// Handles the durability of a transaction at the begin or end of a PG.
    pub(in crate::pg) fn act_life(&mut self, a: LifeAction, turn: &mut Turn<'_>) {
        match a {
            LifeAction::Created => self.collection_made(turn),
            LifeAction::DeletedSome => self.life.pause_deletion(true),
            LifeAction::DeletedAll => {
                self.life.enter(State::Deleted);
                turn.out.push(Effect::Deleted);
            }
        }
    }

    /// Runs work at the begin and end of a PG.
    pub(in crate::pg) fn run_life(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Life(LifeWork::Load) => self.run_load(id, turn),
            Work::Life(LifeWork::Create(how)) => self.run_create(id, how, turn),
            Work::Life(LifeWork::Delete) => self.run_delete(id, turn),
            Work::Life(LifeWork::SaveInfo) => self.run_save_info(id, turn),
            _ => unreached("each part runs its own work"),
        }
    }

    /// Creates a PG that this OSD does not have. The host hands in the newest map next.
    pub fn create(
        cfg: PgConfig,
        how: CreateInfo,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Self {
        let turn = &mut Turn { now, store, out };
        let mut pg = Self::blank(cfg, State::Creating);
        pg.begin(&how);
        pg.journal.begin(&how.extra.history, from_monitor(&how.extra.past_intervals), how.stamp.stamp);
        pg.start_work(Work::Life(LifeWork::Create(Box::new(how))), None, turn);
        pg
    }

    /// Creates a copy of a PG on the message of another OSD, whose info is `theirs`. The host hands in the newest map
    /// next.
    pub fn adopt(
        cfg: PgConfig,
        how: CreateInfo,
        theirs: &PgInfo,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Self {
        let turn = &mut Turn { now, store, out };
        tracing::debug!(pg = %cfg.spg, bits = how.bits, "creating a copy, as another OSD requests");
        let mut pg = Self::blank(cfg, State::Creating);
        pg.begin(&how);
        pg.journal.begin(&theirs.history, theirs.past.clone(), theirs.created_stamp);
        pg.start_work(Work::Life(LifeWork::Create(Box::new(how))), None, turn);
        pg
    }

    fn begin(&mut self, how: &CreateInfo) {
        self.resize.set_bits(how.bits);
        self.env.set_cid(how.cid.unwrap_or(self.env.cid()));
        // Older maps do not concern this copy: after a restart they must not merge it into another PG.
        self.journal.set_epoch(how.epoch);
    }

    /// Loads a PG from its collection, which has `bits` hash bits. The host hands in the maps after the stored one
    /// next.
    pub fn load(cfg: PgConfig, bits: u32, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Self {
        Self::load_from(cfg, Cid::Pg(cfg.spg), bits, now, store, out)
    }

    /// As [`Pg::load`], from a collection of another name.
    pub fn load_from(
        cfg: PgConfig,
        cid: Cid,
        bits: u32,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Self {
        let turn = &mut Turn { now, store, out };
        let mut pg = Self::blank(cfg, State::Loading);
        pg.env.set_cid(cid);
        pg.resize.set_bits(bits);
        pg.start_work(Work::Life(LifeWork::Load), None, turn);
        pg
    }

    pub(in crate::pg) fn run_create(&mut self, id: u64, how: &CreateInfo, turn: &mut Turn<'_>) -> Verdict {
        let mut txn = Transaction::new();
        txn.push(Op::MakeCollection { cid: self.env.cid(), bits: how.bits });
        txn.push(Op::Touch { cid: self.env.cid(), oid: self.meta() });
        txn.push(Op::PgInfo { cid: self.env.cid(), info: self.journal.info().to_blob() });
        self.submit_own(id, txn, Action::Life(LifeAction::Created), turn)
    }

    /// Submits a transaction without log records.
    pub(in crate::pg) fn submit_own(
        &mut self,
        id: u64,
        txn: Transaction,
        then: Action,
        turn: &mut Turn<'_>,
    ) -> Verdict {
        let tag = self.tag(id);
        match self.commit_entries(tag, txn.ops, &mut [], turn.store) {
            Ok(()) => {
                self.on_durable(then);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    pub(in crate::pg) fn collection_made(&mut self, turn: &mut Turn<'_>) {
        self.life.enter(State::Stray);
        self.take_early_maps(turn);
    }

    pub(in crate::pg) fn take_early_maps(&mut self, turn: &mut Turn<'_>) {
        // A map may split the PG; the maps after it are then kept again.
        for map in self.maps.take_postponed() {
            self.handle_map(map, turn);
        }
        if self.is_early() {
            return;
        }
        for (from, msg) in self.mail.take_peers() {
            self.handle_peer(from, &msg, turn);
        }
    }

    pub(in crate::pg) fn run_load(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        match self.load_all(id, turn) {
            Ok(()) => {
                self.life.enter(State::Stray);
                self.take_early_maps(turn);
                Verdict::Done
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    fn load_all(&mut self, id: u64, turn: &mut Turn<'_>) -> Step<()> {
        let tag = self.tag(id);
        let blob = turn.store.pg_info(tag, self.env.cid())?.ok_or_else(|| {
            tracing::error!(pg = %self.env.spg(), "collection without PG info; the copy fails");
            EIO
        })?;
        let spg = self.env.spg();
        let damaged = |what: &str, e: wire::DecodeError| {
            tracing::error!(pg = %spg, what, error = %e, "stored state of the PG does not decode; the copy fails");
            Stop::Errno(EIO)
        };
        self.ec.clear();
        let mut info = PgInfo::from_blob(&blob).map_err(|e| damaged("info", e))?;
        let records = turn.store.log_entries(tag, self.env.cid(), Eversion::default())?;
        let mut log = crate::log::PgLog::default();
        log.tail = info.log_tail;
        for (_, record) in records {
            let e = LogEntry::from_record(&record).map_err(|e| damaged("log record", e))?;
            info.replay(&e, self.is_mine(&e.soid));
            self.note_aside(&e);
            log.push(e.dup());
        }
        let mut missing = std::collections::BTreeMap::new();
        let mut from = bytes::Bytes::new();
        loop {
            let page = match turn.store.omap_range(
                tag,
                self.env.cid(),
                &self.meta_missing(),
                &from,
                !from.is_empty(),
                1024,
                1 << 20,
            ) {
                Ok(p) => p,
                Err(store::ReadError::NoObject) => break,
                Err(e) => return Err(e.into()),
            };
            for (k, v) in &page.entries {
                let head = HObject::from_bytes(k).map_err(|e| damaged("missing object", e))?;
                missing.insert(head, Eversion::from_bytes(v).map_err(|e| damaged("missing object", e))?);
            }
            match page.entries.last() {
                Some((k, _)) if page.more => from = k.clone(),
                _ => break,
            }
        }
        self.recovery.set_missing(missing);
        self.report.set_seq(info.reported_seq);
        // Leases granted before the restart are unknown, and may still last.
        for o in info.interval.mapping.acting(self.is_coded()).osds() {
            if o != self.env.whoami() {
                self.peers.may_serve(o, turn.now.mono + READ_LEASE);
            }
        }
        self.journal.restore(info, log);
        Ok(())
    }
}
