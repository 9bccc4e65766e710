//! OSDs that lose power, and start again with what reached their disks.

use super::*;

impl Cluster {
    /// Cuts the power of an OSD. Some transactions without a durable event may have reached the disk.
    pub fn crash(&mut self, n: i32) {
        let seed = self.rng.next_u64();
        let pending = self.osds[n as usize].disk.pending() as u64;
        let keep = self.rng.below(pending + 1) as usize;
        let now = self.now;
        let o = &mut self.osds[n as usize];
        if !o.running {
            return;
        }
        if self.verbose {
            println!("{now:>8} osd.{n} crashes");
        }
        o.disk.power_cut(keep, seed);
        o.pg = None;
        o.running = false;
        o.parked.clear();
        o.leases = Rc::default();
        o.others.clear();
        o.reserver = Arc::default();
        o.down_since = Some(now);
        for p in 0..self.osds.len() as i32 {
            if p != n {
                self.reset_session(n, p);
            }
        }
    }

    pub fn restart(&mut self, n: i32) {
        let cid = Cid::Pg(self.spg(n));
        let o = &mut self.osds[n as usize];
        if o.running {
            return;
        }
        o.running = true;
        o.down_since = None;
        let has = o.disk.collections().iter().any(|(c, _)| *c == cid);
        let now = self.clock();
        if self.verbose {
            println!("{:>8} osd.{n} starts", self.now);
        }
        if has {
            let cfg = self.config(n);
            let mut out = Vec::new();
            let o = &mut self.osds[n as usize];
            let mut pg = Pg::load(cfg, 0, now, &mut o.disk, &mut out);
            pg.use_leases(o.leases.clone());
            pg.use_reserver(o.reserver.clone(), 0);
            pg.keep_log(self.keep_log.0, self.keep_log.1);
            // The info loads at once or after a wait. The host reads it, too, to know the map from which to go on.
            let tag = Tag(u64::MAX);
            let blob = loop {
                match o.disk.pg_info(tag, cid) {
                    Ok(b) => break b,
                    Err(ReadError::Wait) => {
                        while let Some(e) = o.disk.poll_event() {
                            if let store::Event::Ready(t) = e
                                && pg.owns(t)
                            {
                                pg.handle(Event::Store(e), now, &mut o.disk, &mut out);
                            }
                        }
                    }
                    Err(e) => panic!("{e:?}"),
                }
            };
            o.disk.release(tag);
            let epoch = blob.map_or(10, |b| pg::info::PgInfo::from_blob(&b).unwrap().epoch.0).max(10);
            o.pg = Some(pg);
            o.epoch = epoch - 1;
            self.carry_out(n, out);
        }
        // The monitor hears that the old process ended, then that the new one runs.
        self.mark_down(n);
        self.change(|m| {
            m.up[n as usize] = true;
            m.up_from[n as usize] = m.epoch;
        });
    }
}
