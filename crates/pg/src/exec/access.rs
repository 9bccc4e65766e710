//! Classification of an operation message: the caps it needs, and how the PG must serve it.

use smallvec::SmallVec;
use wire::msg::osd_op::WatchArgs;
use wire::msg::{MOsdOp, OpCode};

/// A class method that a message calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassCall {
    /// Index of the operation in the vector.
    pub at: usize,
    /// The method may read.
    pub read: bool,
    /// The method may write.
    pub write: bool,
    /// The class or method does not exist; its execution answers `EOPNOTSUPP`.
    pub unknown: bool,
}

/// The access that a message needs; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpAccess {
    /// Needs the cap `r`.
    pub read: bool,
    /// Needs the cap `w`.
    pub write: bool,
    /// Class methods, which need `x`, or `class-read` and `class-write`.
    pub classes: SmallVec<[ClassCall; 2]>,
    /// The operations work on the PG, not on an object.
    pub pg_op: bool,
    /// The vector is empty, mixes PG and object operations, or has a call that does not decode: `EINVAL`.
    pub malformed: bool,
}

impl OpAccess {
    /// True if the message may change the object: it then takes the object exclusively and leaves a log record.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.write || self.classes.iter().any(|c| c.write)
    }

    /// True if the message may read the object.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.read || self.classes.iter().any(|c| c.read)
    }
}

/// The access that `m` needs.
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
