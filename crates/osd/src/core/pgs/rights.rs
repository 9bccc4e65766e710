//! Rights and identity of a session's operations.

use super::Pgs;
use crate::core::admission::Right;
use crate::core::session::SessionInfo;
use base::ReqId;
use base::errno::EPERM;
use cluster::caps::{ClassCall, OsdRequest};
use wire::msg::MOsdOp;

impl Pgs {
    pub(super) fn deny(&mut self, s: &SessionInfo, m: &MOsdOp) {
        self.stats.count_denied();
        tracing::info!(client = %s.entity, name = %s.principal.name, pool = m.pgid.pg.pool.0, "operation refused: caps");
        self.refuse(s, m, EPERM);
    }

    pub(super) fn may(&self, s: &SessionInfo, m: &MOsdOp, access: &pg::OpAccess) -> bool {
        let Some(map) = self.current.map() else { return false };
        // The PG answers operations on a removed pool. It also decides what is read and written; the pool in
        // the locator is a mere claim.
        let id = m.pgid.pg.pool;
        let Some(pool) = map.pool(id) else { return true };
        // A name that is no valid text names no class; execution answers that.
        let names = access.classes.iter().filter_map(|c| {
            let (class, method) = m.ops.get(c.at)?.cls_names()?;
            Some((String::from_utf8_lossy(class), String::from_utf8_lossy(method), c))
        });
        let names: Vec<_> = names.collect();
        let classes: Vec<_> = names
            .iter()
            .map(|(class, method, c)| ClassCall { class, method, read: c.read, write: c.write, allowed: true })
            .collect();
        let request = OsdRequest {
            pool: map.pool_name(id).unwrap_or(""),
            nspace: &m.locator.nspace,
            applications: &pool.application_metadata,
            object: if m.locator.key.is_empty() { &m.oid } else { &m.locator.key },
            read: access.read,
            write: access.write,
            classes: &classes,
        };
        s.caps.is_capable(&request, &s.principal.socket_addr()) && self.may_copy(s, m)
    }

    /// This OSD reads the source of a copy with its own key, so the client must be allowed to read the source
    /// too. (Ceph only checks the rights on the written object.)
    fn may_copy(&self, s: &SessionInfo, m: &MOsdOp) -> bool {
        let Some(map) = self.current.map() else { return false };
        // The PG answers operations without a valid source or with a missing source pool.
        m.ops.iter().filter_map(pg::copy_source).all(|(oid, locator)| {
            map.pool(locator.pool).is_none_or(|pool| {
                let request = OsdRequest {
                    pool: map.pool_name(locator.pool).unwrap_or(""),
                    nspace: &locator.nspace,
                    applications: &pool.application_metadata,
                    object: if locator.key.is_empty() { &oid } else { &locator.key },
                    read: true,
                    write: false,
                    classes: &[],
                };
                s.caps.is_capable(&request, &s.principal.socket_addr())
            })
        })
    }
}

/// Identity of an operation, as far as its sender may choose it. A client must not use the reqid of another
/// client. Otherwise the other client's later operation would be answered without being executed, or its watch
/// be taken over. OSDs send operations for clients.
pub(super) fn own_reqid(s: &SessionInfo, said: ReqId) -> ReqId {
    if said == ReqId::default() || said.name == s.entity || Right::Osd.is_held_by(&s.principal) {
        return said;
    }
    ReqId::default()
}
