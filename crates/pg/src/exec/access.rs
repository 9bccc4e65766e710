//! What an operation message wants to do, for caps and for choosing how it is served.

use smallvec::SmallVec;
use wire::msg::osd_op::WatchArgs;
use wire::msg::{MOsdOp, OpCode};

/// One class method a message calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassCall {
    /// Number of the operation in the vector.
    pub at: usize,
    /// The method may read.
    pub read: bool,
    /// The method may write.
    pub write: bool,
    /// The class or method is not known; executing answers `EOPNOTSUPP`.
    pub unknown: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpAccess {
    /// Needs `r`.
    pub read: bool,
    /// Needs `w`.
    pub write: bool,
    /// Needs `x`, or `class-read`/`class-write`, for these.
    pub classes: SmallVec<[ClassCall; 2]>,
    /// Works on the PG, not on an object.
    pub pg_op: bool,
    /// A vector mixes PG and object operations, or has none, or a call that does not decode: `EINVAL`.
    pub malformed: bool,
}

impl OpAccess {
    /// May change something: takes the object for itself and leaves a log record.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.write || self.classes.iter().any(|c| c.write)
    }

    /// May look at the object.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.read || self.classes.iter().any(|c| c.read)
    }
}

/// What `m` wants to do.
#[must_use]
pub fn op_access(m: &MOsdOp) -> OpAccess {
    let mut a = OpAccess { malformed: m.ops.is_empty(), ..OpAccess::default() };
    let mut pg_ops = 0;
    for (at, op) in m.ops.iter().enumerate() {
        let code = op.op;
        if code.is_cls() {
            let Some((class, method)) = op.cls_names() else {
                a.malformed = true;
                continue;
            };
            let flags = cls::find(class, method).map(|m| m.flags);
            a.classes.push(ClassCall {
                at,
                read: flags.is_none_or(cls::MethodFlags::reads),
                write: flags.is_some_and(cls::MethodFlags::writes),
                unknown: flags.is_none(),
            });
            continue;
        }
        if code.is_pg() {
            pg_ops += 1;
            a.read = true;
            continue;
        }
        match code {
            // A ping changes nothing, and must not wait behind writes.
            OpCode::WATCH if op.watch().op == WatchArgs::PING => a.read = true,
            _ => {
                a.read |= code.is_read();
                a.write |= code.is_write();
            }
        }
    }
    a.pg_op = pg_ops > 0;
    a.malformed |= a.pg_op && pg_ops != m.ops.len();
    a
}
