//! Checks of a cluster: that it heals, that copies are equal, and that they hold what was acknowledged.

use super::*;

impl Cluster {
    pub fn primary(&self) -> Option<&Pg> {
        let p = self.map().mapping().acting_primary.0;
        if p < 0 { None } else { self.osds[p as usize].pg.as_ref() }
    }

    /// Runs until the PG is clean and no client waits. Panics if that takes too long.
    pub fn settle(&mut self) {
        self.load = false;
        self.free_places();
        let limit = self.now + 900_000;
        loop {
            self.run(1_000);
            let m = self.map().mapping();
            let placed = m.acting == m.up;
            let clean = self.primary().is_some_and(Pg::is_clean);
            let idle = self.clients.iter().all(|c| c.busy.is_none());
            let trimming = wire::types::pg_state::SNAPTRIM | wire::types::pg_state::SNAPTRIM_WAIT;
            let clean = clean && self.primary().is_some_and(|p| p.state_bits() & trimming == 0);
            if placed && clean && idle && self.osds.iter().all(|o| o.disk.pending() == 0) {
                break;
            }
            if self.now > limit {
                let states: Vec<String> = (0..self.osds.len()).map(|n| self.describe(n)).collect();
                panic!("does not heal; {m:?}\n{}\nbusy {idle}", states.join("\n"));
            }
        }
        // Some seconds after the last write, members get the deferred writes, and then hear that all writes are stable.
        self.run(if self.map().code.is_some() { 15_000 } else { 2_000 });
    }

    /// Forces recovery, as an operator does ([`Event::Force`]).
    pub fn force(&mut self, options: u8) {
        let p = self.map().mapping().acting_primary.0;
        self.feed(p, Event::Force(options));
    }

    /// Runs `mark_unfound_lost`.
    pub fn mark_lost(&mut self, revert: bool) -> Result<String, (base::errno::Errno, String)> {
        let n = self.map().mapping().acting_primary.0;
        let now = self.clock();
        let o = &mut self.osds[n as usize];
        let mut out = Vec::new();
        let said = o.pg.as_mut().unwrap().mark_unfound_lost(revert, now, &mut o.disk, &mut out);
        self.carry_out(n, out);
        said
    }

    /// Number of writes in the primary's copy of an object; `None` if the object does not exist.
    pub fn writes_shown(&mut self, object: usize) -> Option<u64> {
        let n = self.map().mapping().acting_primary.0;
        let name = object_name(object);
        let hobj = HObject { pool: PoolId(POOL), hash: hash(&name), oid: name.into(), ..HObject::min() };
        let disk = &mut self.osds[n as usize].disk;
        loop {
            match disk.stat(Tag(u64::MAX - 1), Cid::Pg(spg()), &Oid::new(hobj.head())) {
                Ok(s) => return Some(s.size / 8),
                Err(ReadError::NoObject) => return None,
                Err(ReadError::Wait) => while disk.poll_event().is_some() {},
                Err(e) => panic!("{e:?}"),
            }
        }
    }

    /// Scrubs the PG, and waits for the scrub and the recovery that follows.
    pub fn scrub(&mut self, deep: bool, repair: bool) {
        let p = self.map().mapping().acting_primary.0;
        self.feed(p, Event::Scrub(pg::scrub::ScrubRequest { deep, repair, required: true }));
        let limit = self.now + 900_000;
        loop {
            self.run(500);
            if self.primary().is_some_and(|p| p.is_clean() && !p.is_scrubbing()) {
                return;
            }
            assert!(self.now < limit, "the scrub does not end: {}", self.describe(p as usize));
        }
    }

    /// Findings of the last scrub, by object.
    pub fn found(&self) -> Vec<(base::HObject, pg::scrub::report::BadObject)> {
        let found = self.primary().unwrap().scrub_findings().expect("was scrubbed");
        found.objects().map(|(h, b)| (h.clone(), b.clone())).collect()
    }

    pub fn describe(&self, n: usize) -> String {
        let o = &self.osds[n];
        match &o.pg {
            Some(p) => format!(
                "osd.{n} epoch {} {:?} {} missing {} last_update {} tail {} backfill {} les {} reason {:?} {}",
                o.epoch,
                p.state(),
                wire::types::pg_state::to_string(p.state_bits()),
                p.missing(),
                p.info().last_update,
                p.info().log_tail,
                p.info().last_backfill,
                p.info().last_epoch_started,
                p.inactive_reason(),
                p.dump_ops(self.clock().mono)
                    .iter()
                    .map(|o| format!("\n   {}:{} {}", o.client, o.tid, o.stage))
                    .collect::<String>()
            ),
            None => format!("osd.{n} epoch {} running {} no PG", o.epoch, o.running),
        }
    }

    /// The whole content of an OSD, as text.
    pub fn contents(&mut self, n: i32) -> BTreeMap<String, String> {
        let cid = Cid::Pg(self.spg(n));
        let disk = &mut self.osds[n as usize].disk;
        let tag = Tag(u64::MAX - 1);
        macro_rules! get {
            ($e:expr) => {
                loop {
                    match $e {
                        Err(ReadError::Wait) => {
                            let mut kept = VecDeque::new();
                            while let Some(e) = disk.poll_event() {
                                kept.push_back(e);
                            }
                        }
                        r => break r,
                    }
                }
            };
        }
        let mut all = BTreeMap::new();
        let mut from = Oid::new(base::HObject::min()).at_generation(0);
        loop {
            let Ok((page, next)) = get!(disk.list(tag, cid, &from, None, 100)) else { return all };
            for o in page {
                let data = get!(disk.read(tag, cid, &o, 0, 1 << 20)).unwrap();
                let attrs = get!(disk.attrs(tag, cid, &o)).unwrap();
                let omap = get!(disk.omap_range(tag, cid, &o, b"", false, 10_000, 1 << 24)).unwrap();
                // Missing sets differ between OSDs.
                if o.hobj.oid.is_empty() && o.hobj.snap != SnapId::HEAD {
                    assert!(omap.entries.is_empty(), "osd.{n} still lacks objects");
                    continue;
                }
                let keys: Vec<&Bytes> = omap.entries.iter().map(|(k, _)| k).collect();
                all.insert(o.hobj.to_string(), format!("{data:?} {attrs:?} {keys:?}"));
            }
            match next {
                Some(n) => from = n,
                None => break,
            }
        }
        disk.release(tag);
        all
    }

    /// Checks that all copies are equal, and that they hold all acknowledged writes.
    pub fn check(&mut self) {
        assert!(self.violations.is_empty(), "{:#?}", self.violations);
        let acting: Vec<i32> = self.map().mapping().acting.iter().map(|o| o.0).collect();
        let first = self.contents(acting[0]);
        for n in &acting[1..] {
            let other = self.contents(*n);
            for (k, v) in &first {
                assert_eq!(other.get(k), Some(v), "{k} on osd.{n} is not what the primary osd.{} has", acting[0]);
            }
            assert_eq!(first.len(), other.len(), "osd.{n} has more: {:?}", other.keys().collect::<Vec<_>>());
            let (a, b) = (self.osds[acting[0] as usize].pg.as_ref(), self.osds[*n as usize].pg.as_ref());
            let (a, b) = (a.unwrap().info(), b.unwrap().info());
            assert_eq!((a.last_update, a.last_user_version), (b.last_update, b.last_user_version));
            assert_eq!(a.stats.num_objects, b.stats.num_objects);
        }
        if self.map().mapping().acting.len() == self.map().size as usize {
            self.scrub(true, false);
            let p = self.primary().unwrap();
            assert!(p.scrub_errors() == 0, "a deep scrub after all is healed finds errors: {:#?}", self.log);
        }
        for (i, o) in self.objects.iter().enumerate() {
            let key = first
                .iter()
                .find(|(k, _)| k.contains(&format!(":{}:", object_name(i))) && k.ends_with(&SnapId::HEAD.to_string()));
            assert!(o.acked == 0 || key.is_some(), "object {i} with {} writes is gone", o.acked);
        }
        let acting: BTreeSet<i32> = acting.into_iter().collect();
        for n in 0..self.osds.len() as i32 {
            let pg = self.osds[n as usize].pg.as_ref();
            let stray = pg.is_some_and(|p| !matches!(p.state(), State::Deleting { .. } | State::Deleted));
            assert!(acting.contains(&n) || !stray, "a stray copy is left on osd.{n}: {}", self.describe(n as usize));
        }
    }

    /// Reads all objects by a new client.
    pub fn final_reads(&mut self) {
        for i in 0..self.objects.len() {
            let n = self.clients.len();
            self.clients.push(Client {
                tid: 1,
                busy: Some((i, 1, 0, self.objects[i].acked)),
                sent: 0,
                done: 0,
                anywhere: false,
                creates: false,
                errors: 0,
            });
            if self.objects[i].acked > 0 {
                self.send(n, i, 1, 0);
            } else {
                self.clients[n].busy = None;
            }
        }
        for n in 0..self.clients.len() {
            self.at(1, What::Client(n));
        }
        self.run(20_000);
        assert!(self.clients.iter().all(|c| c.busy.is_none()), "a read is not answered");
        assert!(self.violations.is_empty(), "{:#?}", self.violations);
    }
}
