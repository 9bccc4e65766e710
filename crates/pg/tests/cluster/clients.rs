//! The clients: operations one after the other, resent as maps say, and checks of the answers.

use super::*;

impl Cluster {
    pub(super) fn client(&mut self, n: usize) {
        if let Some((object, tid, writes, _)) = self.clients[n].busy {
            // Resends after a while, as clients do when the map changes.
            if self.now - self.clients[n].sent > 2_000 {
                self.send(n, object, tid, writes);
            }
            return;
        }
        if !self.load {
            return;
        }
        let writers = self.objects.len();
        // The first clients write, each its own object; all others read.
        let write = n < writers && self.rng.chance(2, 3);
        let object = if n < writers { n } else { self.rng.below(writers as u64) as usize };
        self.clients[n].tid += 1;
        let tid = self.clients[n].tid;
        let (writes, floor) = if write {
            self.objects[object].attempted += 1;
            (self.objects[object].attempted, 0)
        } else {
            (0, self.objects[object].acked.max(self.objects[object].seen))
        };
        self.clients[n].busy = Some((object, tid, writes, floor));
        self.clients[n].anywhere = self.rng.chance(1, 2);
        self.clients[n].creates = writes == 0 && self.objects[object].acked > 0 && self.rng.chance(1, 4);
        self.send(n, object, tid, writes);
    }

    pub(super) fn send(&mut self, n: usize, object: usize, tid: u64, writes: u64) {
        self.clients[n].sent = self.now;
        let map = self.map();
        let mapping = map.mapping();
        let mut primary = mapping.acting_primary.0;
        if primary < 0 {
            return;
        }
        let epoch = map.epoch;
        let pgid = self.spg(primary);
        // Reads may go to any member until one answers `EAGAIN`.
        let creates = self.clients[n].creates;
        let anywhere = writes == 0 && !creates && self.clients[n].anywhere && map.code.is_none();
        if anywhere {
            primary = mapping.acting[self.rng.below(mapping.acting.len() as u64) as usize].0;
        }
        let name = object_name(object);
        let ops = if writes > 0 {
            let data = Bytes::copy_from_slice(&writes.to_le_bytes());
            vec![
                OsdOp::with_extent(OpCode::APPEND, 0, 8, data.clone()),
                OsdOp::with_xattr(OpCode::SETXATTR, b"n", &data, 0, 0),
            ]
        } else if creates {
            vec![OsdOp { flags: op_flags::EXCL, ..OsdOp::new(OpCode::CREATE) }]
        } else {
            vec![OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new())]
        };
        let op = OpRequest {
            owner: 0,
            session: SessionId(n as u64),
            client: EntityName::new(EntityKind::CLIENT, n as i64 + 1),
            addr: EntityAddr { nonce: n as u32, ..EntityAddr::default() },
            features: 0,
            received: self.clock(),
            ledger: base::ledger::Ledger::begin(self.clock().mono, self.clock().wall, base::Utime::ZERO),
            msg: Box::new(MOsdOp {
                tid,
                pgid,
                hash: hash(&name),
                osdmap_epoch: Epoch(epoch),
                flags: if writes > 0 || creates {
                    msg_flags::WRITE | msg_flags::ONDISK
                } else if anywhere {
                    msg_flags::READ | msg_flags::BALANCE_READS
                } else {
                    msg_flags::READ
                },
                locator: ObjectLocator::new(PoolId(POOL)),
                oid: Bytes::from(name),
                ops: OpVec::from_vec(ops),
                snapid: SnapId::HEAD,
                snapc: self.snap_context(),
                ..MOsdOp::default()
            }),
        };
        let d = 1 + self.rng.below(self.net.delay);
        self.at(d, What::ToOsd { osd: primary, client: n, op: Box::new(op) });
    }

    /// The snapshot context of writes: all existing snapshots.
    fn snap_context(&self) -> SnapContext {
        let mut snaps: Vec<SnapId> = self.snaps.iter().map(|s| SnapId(*s)).collect();
        snaps.reverse();
        SnapContext { seq: snaps.first().copied().unwrap_or(SnapId(0)), snaps }
    }

    /// Sends a client's operation to an OSD; returns its number in [`Cluster::answers`].
    pub fn ask(&mut self, osd: i32, who: u64, object: usize, flags: u32, ops: Vec<OsdOp>) -> u64 {
        self.seq += 1;
        let name = object_name(object) + &"x".repeat(self.asked.pads);
        let (tid, epoch) = (ASKED + self.seq, self.map().epoch);
        let write = ops.iter().any(|o| o.op.is_write());
        let pgid = self.spg(osd);
        let op = Box::new(OpRequest {
            owner: 0,
            session: SessionId(ASKED + who),
            client: EntityName::new(EntityKind::CLIENT, (ASKED + who) as i64),
            addr: EntityAddr { nonce: who as u32, ..EntityAddr::default() },
            features: wire::Features::PACIFIC.0,
            received: self.clock(),
            ledger: base::ledger::Ledger::begin(self.clock().mono, self.clock().wall, base::Utime::ZERO),
            msg: Box::new(MOsdOp {
                tid,
                pgid,
                hash: hash(&name),
                osdmap_epoch: Epoch(epoch),
                flags: flags | if write { msg_flags::WRITE | msg_flags::ONDISK } else { msg_flags::READ },
                locator: ObjectLocator::new(PoolId(POOL)),
                oid: Bytes::from(name),
                ops: OpVec::from_vec(ops),
                snapid: self.asked.at_snap,
                snapc: if self.asked.in_snaps { self.snap_context() } else { SnapContext::default() },
                ..MOsdOp::default()
            }),
        });
        self.at(0, What::ToOsd { osd, client: 0, op });
        tid
    }

    pub(super) fn answered(&mut self, n: usize, r: &MOsdOpReply) {
        let Some((object, tid, writes, floor)) = self.clients[n].busy else { return };
        if tid != r.tid {
            return;
        }
        if r.result == base::errno::EAGAIN {
            assert!(writes == 0, "only reads may be sent elsewhere");
            // A resend may get a second `EAGAIN`.
            if std::mem::replace(&mut self.clients[n].anywhere, false) {
                self.send(n, object, tid, writes);
            }
            return;
        }
        self.clients[n].busy = None;
        self.clients[n].done += 1;
        if r.result == base::errno::EIO && writes == 0 && self.osds.iter().all(|o| !o.disk.spoiled.is_empty()) {
            self.clients[n].errors += 1;
            return;
        }
        if self.clients[n].creates {
            if r.result != base::errno::EEXIST {
                self.violations.push(format!("{}: object {object} was made again: {}", self.now, r.result));
            }
            return;
        }
        if self.clients[n].anywhere && writes == 0 {
            self.read_anywhere += 1;
        }
        let o = &mut self.objects[object];
        if writes > 0 {
            if r.result < 0 {
                self.violations.push(format!("{}: write {writes} of object {object}: {}", self.now, r.result));
            }
            o.acked = o.acked.max(writes);
            return;
        }
        let data = r.ops.first().map(|op| op.outdata.clone()).unwrap_or_default();
        let found: Vec<u64> = data.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let k = found.len() as u64;
        let right = found.iter().enumerate().all(|(i, v)| *v == i as u64 + 1);
        if !right {
            let at = found.iter().enumerate().position(|(i, v)| *v != i as u64 + 1).unwrap_or(0);
            let around = &found[at.saturating_sub(2)..(at + 3).min(found.len())];
            self.violations.push(format!("{}: object {object} reads {around:?} at {at}", self.now));
        }
        if k < floor || k > o.attempted {
            let say = format!("object {object} reads {k}, but {floor} was there before and {} tried", o.attempted);
            self.violations.push(format!("{}: {say}", self.now));
        }
        o.seen = o.seen.max(k);
    }
}
