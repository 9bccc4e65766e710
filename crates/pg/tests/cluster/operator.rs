//! Acts of an operator and of the environment: damage, snapshots, moves, and the end of all trouble.

use super::*;

impl Cluster {
    /// Makes an OSD's copy of an object unreadable.
    pub fn damage(&mut self, osd: i32, object: usize) {
        let name = object_name(object);
        let hobj = HObject { pool: PoolId(POOL), hash: hash(&name), oid: name.into(), ..HObject::min() };
        self.osds[osd as usize].disk.spoiled.insert(Oid::new(hobj.head()));
    }

    /// Starts a move of an OSD's PG to another reactor, which does not answer.
    pub fn begin_move(&mut self, osd: i32) {
        self.feed(osd, Event::Move(Box::new(Move::Begin)));
    }

    pub fn take_snapshot(&mut self) {
        self.change(|m| m.snap_seq += 1);
        let s = self.map().snap_seq;
        self.snaps.push(s);
    }

    pub fn remove_snapshot(&mut self) {
        if !self.snaps.is_empty() {
            let s = self.snaps.remove(0);
            self.change(|m| m.removed_snaps.push(s));
        }
    }

    // --- the end ---

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.free_places();
        self.net.blocked.clear();
        for n in 0..self.osds.len() as i32 {
            self.osds[n as usize].cut = false;
            self.restart(n);
        }
        for a in 0..self.osds.len() as i32 {
            for b in 0..a {
                self.reset_session(a, b);
            }
        }
    }

    /// Drops the claims of other PGs.
    pub fn free_places(&mut self) {
        self.contended = false;
        for n in 0..self.osds.len() as i32 {
            self.osds[n as usize].others.clear();
            self.wake(n);
        }
    }
}
