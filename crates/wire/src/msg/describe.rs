//! Descriptions of client operations in the format of Ceph's logs and `dump_ops_in_flight`, which scripts search.

use super::op_code::{msg_flags, op_flags};
use super::{MOsdOp, OpCode, OsdOp};
use base::{EntityName, HObject};
use bytes::Bytes;
use std::fmt;

const MSG_FLAGS: [(u32, &str); 27] = [
    (msg_flags::ACK, "ack"),
    (2, "onnvram"),
    (msg_flags::ONDISK, "ondisk"),
    (msg_flags::RETRY, "retry"),
    (msg_flags::READ, "read"),
    (msg_flags::WRITE, "write"),
    (msg_flags::ORDERSNAP, "ordersnap"),
    (msg_flags::PEERSTAT_OLD, "peerstat_old"),
    (msg_flags::BALANCE_READS, "balance_reads"),
    (msg_flags::PARALLELEXEC, "parallelexec"),
    (msg_flags::PGOP, "pgop"),
    (msg_flags::EXEC, "exec"),
    (msg_flags::EXEC_PUBLIC, "exec_public"),
    (msg_flags::LOCALIZE_READS, "localize_reads"),
    (msg_flags::RWORDERED, "rwordered"),
    (msg_flags::IGNORE_CACHE, "ignore_cache"),
    (msg_flags::SKIPRWLOCKS, "skiprwlocks"),
    (msg_flags::IGNORE_OVERLAY, "ignore_overlay"),
    (msg_flags::FLUSH, "flush"),
    (msg_flags::MAP_SNAP_CLONE, "map_snap_clone"),
    (msg_flags::ENFORCE_SNAPC, "enforce_snapc"),
    (msg_flags::REDIRECTED, "redirected"),
    (msg_flags::KNOWN_REDIR, "known_if_redirected"),
    (msg_flags::FULL_TRY, "full_try"),
    (msg_flags::FULL_FORCE, "full_force"),
    (msg_flags::IGNORE_REDIRECT, "ignore_redirect"),
    (msg_flags::RETURNVEC, "returnvec"),
];

const OP_FLAGS: [(u32, &str); 8] = [
    (op_flags::EXCL, "excl"),
    (op_flags::FAILOK, "failok"),
    (op_flags::FADVISE_RANDOM, "fadvise_random"),
    (op_flags::FADVISE_SEQUENTIAL, "fadvise_sequential"),
    (op_flags::FADVISE_WILLNEED, "fadvise_willneed"),
    (op_flags::FADVISE_DONTNEED, "fadvise_dontneed"),
    (op_flags::FADVISE_NOCACHE, "fadvise_nocache"),
    (op_flags::BYPASS_CLEAN_CACHE, "bypass_clean_cache"),
];

/// Writes the names of the flags that are set, joined by `+`.
fn names(f: &mut fmt::Formatter<'_>, flags: u32, table: &[(u32, &str)]) -> fmt::Result {
    let mut first = true;
    for (_, n) in table.iter().filter(|(b, _)| flags & b != 0) {
        if !first {
            f.write_str("+")?;
        }
        first = false;
        f.write_str(n)?;
    }
    if first { f.write_str("-") } else { Ok(()) }
}

fn text(b: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(b)
}

impl fmt::Display for OsdOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        let e = self.extent();
        match self.op {
            OpCode::TRUNCATE => write!(f, " {}", e.offset)?,
            OpCode::SETTRUNC | OpCode::TRIMTRUNC => write!(f, " {}@{}", e.truncate_seq, e.truncate_size as i64)?,
            OpCode::DELETE => {}
            c if c.has_extent() => {
                write!(f, " {}~{}", e.offset, e.length)?;
                if e.truncate_seq != 0 {
                    write!(f, " [{}@{}]", e.truncate_seq, e.truncate_size as i64)?;
                }
            }
            OpCode::ROLLBACK => write!(f, " {}", self.snap())?,
            OpCode::WATCH => {
                let w = self.watch();
                let op = match w.op {
                    super::osd_op::WatchArgs::UNWATCH => "unwatch",
                    super::osd_op::WatchArgs::LEGACY_WATCH => "legacy watch",
                    super::osd_op::WatchArgs::WATCH => "watch",
                    super::osd_op::WatchArgs::RECONNECT => "reconnect",
                    super::osd_op::WatchArgs::PING => "ping",
                    _ => "???",
                };
                write!(f, " {op} cookie {}", w.cookie)?;
                if w.gen_ != 0 {
                    write!(f, " gen {}", w.gen_)?;
                }
            }
            OpCode::NOTIFY | OpCode::NOTIFY_ACK => write!(f, " cookie {}", self.notify_cookie())?,
            OpCode::ASSERT_VER => write!(f, " v{}", self.assert_ver())?,
            OpCode::COPY_GET => write!(f, " max {}", self.copy_get().max)?,
            OpCode::COPY_FROM => write!(f, " ver {}", self.copy_from().src_version)?,
            OpCode::SETALLOCHINT => {
                let a = self.alloc_hint();
                write!(f, " object_size {} write_size {}", a.expected_object_size, a.expected_write_size)?;
            }
            c if c.is_attr() => {
                let a = self.xattr();
                if a.name_len > 0
                    && let Some(name) = self.indata.get(..a.name_len as usize)
                {
                    write!(f, " {}", text(name))?;
                }
                if a.value_len > 0 {
                    write!(f, " ({})", a.value_len)?;
                }
                if c == OpCode::CMPXATTR {
                    write!(f, " op {} mode {}", a.cmp_op, a.cmp_mode)?;
                }
            }
            OpCode::CALL => {
                if let Some((class, method, _)) = self.cls_payload() {
                    write!(f, " {}.{}", text(class), text(method))?;
                }
            }
            c if c.is_pg() => {
                if matches!(c, OpCode::PGLS | OpCode::PGNLS | OpCode::PGLS_FILTER | OpCode::PGNLS_FILTER) {
                    write!(f, " start_epoch {}", self.pgls().start_epoch)?;
                }
            }
            _ => {}
        }
        if self.flags != 0 {
            f.write_str(" [")?;
            names(f, self.flags, &OP_FLAGS)?;
            f.write_str("]")?;
        }
        if !self.indata.is_empty() {
            write!(f, " in={}b", self.indata.len())?;
        }
        if self.out_len() > 0 {
            write!(f, " out={}b", self.out_len())?;
        }
        Ok(())
    }
}

/// Description of a client's operation message: `osd_op(client.4123.0:7 1.3 1:dd23e1a9:::o2:head [stat] snapc 0=[] read
/// e11)`.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a>(pub &'a MOsdOp, pub EntityName);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.0;
        let object = HObject {
            oid: m.oid.clone(),
            key: if m.locator.key == m.oid { Bytes::new() } else { m.locator.key.clone() },
            nspace: m.locator.nspace.clone(),
            snap: m.snapid,
            hash: m.hash,
            max: false,
            pool: m.pgid.pg.pool,
        };
        write!(f, "osd_op({}.{}:{} {} {object} [", self.1, m.client_inc, m.tid, m.pgid)?;
        for (i, op) in m.ops.iter().enumerate() {
            write!(f, "{}{op}", if i > 0 { "," } else { "" })?;
        }
        write!(f, "] snapc {:x}=[", m.snapc.seq.0)?;
        for (i, s) in m.snapc.snaps.iter().enumerate() {
            write!(f, "{}{:x}", if i > 0 { "," } else { "" }, s.0)?;
        }
        f.write_str("]")?;
        if m.retry_attempt > 0 {
            write!(f, " RETRY={}", m.retry_attempt)?;
        }
        f.write_str(" ")?;
        names(f, m.flags, &MSG_FLAGS)?;
        write!(f, " e{})", m.osdmap_epoch.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of descriptions that an OSD of Ceph 16.2 wrote in `dump_ops_in_flight`.
    #[test]
    fn operations_read_as_ceph_writes_them() {
        let flags = |mut o: OsdOp, f| {
            o.flags = f;
            o
        };
        let ops = vec![
            OsdOp::with_extent(OpCode::WRITEFULL, 0, 3, Bytes::from_static(b"abc")),
            flags(OsdOp::with_extent(OpCode::READ, 0, 3, Bytes::new()), op_flags::FAILOK),
            OsdOp::new(OpCode::GETXATTRS),
            OsdOp::with_xattr(OpCode::SETXATTR, b"a", b"one", 0, 0),
            OsdOp::call("version", "read", b""),
        ];
        let m = MOsdOp {
            tid: 7,
            pgid: base::SpgId { pg: base::PgId::parse("1.3").unwrap(), ..Default::default() },
            hash: 0x9587_c4bb,
            osdmap_epoch: base::Epoch(11),
            flags: msg_flags::ONDISK | msg_flags::WRITE | msg_flags::KNOWN_REDIR,
            oid: Bytes::from_static(b"o2"),
            snapid: base::SnapId::HEAD,
            ops: ops.into_iter().collect(),
            ..MOsdOp::default()
        };
        let client = EntityName::new(base::EntityKind::CLIENT, 4123);
        assert_eq!(
            Described(&m, client).to_string(),
            "osd_op(client.4123.0:7 1.3 1:dd23e1a9:::o2:head [writefull 0~3 in=3b,read 0~3 [failok],getxattrs,\
             setxattr a (3) in=4b,call version.read in=11b] snapc 0=[] ondisk+write+known_if_redirected e11)"
        );
    }
}
