//! Registry of class methods: the list of classes ([`CLASSES`]), lookup, and execution with checked flags. Each class
//! has its own method table in its file.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::guard::Guard;
use base::errno::EIO;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// Permitted actions of a method (`CLS_METHOD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodFlags(pub u8);

impl MethodFlags {
    /// The method reads.
    pub const RD: Self = Self(1);
    /// The method writes.
    pub const WR: Self = Self(2);
    /// The method reads and writes.
    pub const RDWR: Self = Self(3);
    /// The object must be promoted to the base tier first.
    pub const PROMOTE: Self = Self(8);

    /// Union of two flag sets.
    #[must_use]
    pub const fn or(self, o: Self) -> Self {
        Self(self.0 | o.0)
    }

    /// True if the method may read.
    #[must_use]
    pub const fn reads(self) -> bool {
        self.0 & 1 != 0
    }

    /// True if the method may write.
    #[must_use]
    pub const fn writes(self) -> bool {
        self.0 & 2 != 0
    }
}

/// Output of a method: its return value (zero or positive) and bytes for the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Return value, `>= 0`.
    pub ret: i32,
    /// Output bytes.
    pub out: Bytes,
}

impl From<Bytes> for Output {
    fn from(out: Bytes) -> Self {
        Self { ret: 0, out }
    }
}

impl From<()> for Output {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Implementation of a method: context and input to output.
pub type MethodFn = fn(&mut dyn ObjectCtx, &Bytes) -> ClsResult<Output>;

/// A class method.
#[derive(Clone, Copy)]
pub struct Method {
    /// Name within the class.
    pub name: &'static str,
    /// Permitted actions.
    pub flags: MethodFlags,
    /// Implementation; callers use [`Method::run`].
    pub call: MethodFn,
}

impl Method {
    /// A method that only reads.
    pub(crate) const fn rd(name: &'static str, call: MethodFn) -> Self {
        Self { name, flags: MethodFlags::RD, call }
    }

    /// A method that writes and never reads.
    pub(crate) const fn wr(name: &'static str, call: MethodFn) -> Self {
        Self { name, flags: MethodFlags::WR, call }
    }

    /// A method that reads and writes.
    pub(crate) const fn rdwr(name: &'static str, call: MethodFn) -> Self {
        Self { name, flags: MethodFlags::RDWR, call }
    }

    /// Adds [`MethodFlags::PROMOTE`].
    pub(crate) const fn promote(self) -> Self {
        Self { flags: self.flags.or(MethodFlags::PROMOTE), ..self }
    }

    /// Runs the method. A method that violates its flags fails with `EIO`, whatever it returned.
    pub fn run(&self, ctx: &mut dyn ObjectCtx, input: &Bytes) -> ClsResult<Output> {
        let mut g = Guard::new(ctx);
        let r = (self.call)(&mut g, input);
        if matches!(r, Err(crate::ClsError::Wait)) {
            return r;
        }
        if (g.read && !self.flags.reads()) || (g.wrote && !self.flags.writes()) {
            ctx.log(&format!("class method {} does what its flags {} forbid", self.name, self.flags.0));
            return Err(EIO.into());
        }
        r
    }
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Method({}, {})", self.name, self.flags.0)
    }
}

/// Classes with their methods, both sorted by name.
pub const CLASSES: &[(&str, &[Method])] = &[
    ("2pc_queue", crate::queue::two_phase::METHODS),
    ("cas", crate::cas::METHODS),
    ("cephfs", crate::cephfs::METHODS),
    ("cmpomap", crate::cmpomap::METHODS),
    ("fifo", crate::fifo::METHODS),
    ("hello", crate::hello::METHODS),
    ("journal", crate::journal::METHODS),
    ("lock", crate::lock::METHODS),
    ("log", crate::log::METHODS),
    ("lua", crate::lua::METHODS),
    ("numops", crate::numops::METHODS),
    ("otp", crate::otp::METHODS),
    ("queue", crate::queue::METHODS),
    ("rbd", crate::rbd::METHODS),
    ("refcount", crate::refcount::METHODS),
    ("rgw", crate::rgw::METHODS),
    ("rgw_gc", crate::rgw_gc::METHODS),
    ("sdk", crate::sdk::METHODS),
    ("sem_set", crate::sem_set::METHODS),
    ("timeindex", crate::timeindex::METHODS),
    ("user", crate::user::METHODS),
    ("version", crate::version::METHODS),
];

/// True if the class exists.
#[must_use]
pub fn has_class(class: &str) -> bool {
    CLASSES.binary_search_by(|(c, _)| (*c).cmp(class)).is_ok()
}

/// All methods by class and name. Every call does two lookups: for its flags and to run it.
type Table = FxHashMap<(&'static [u8], &'static [u8]), &'static Method>;

/// The method `class.name`; for `None` the OSD answers `EOPNOTSUPP`.
#[must_use]
pub fn find(class: &[u8], name: &[u8]) -> Option<&'static Method> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let all = CLASSES.iter().flat_map(|(c, methods)| methods.iter().map(move |m| (*c, m)));
        all.map(|(c, m)| ((c.as_bytes(), m.name.as_bytes()), m)).collect()
    });
    table.get(&(class, name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_without_duplicates() {
        assert!(CLASSES.is_sorted_by(|a, b| a.0 < b.0));
        for (c, m) in CLASSES {
            assert!(m.is_sorted_by(|a, b| a.name < b.name), "{c}: {m:?}");
        }
    }

    #[test]
    fn absent_methods_are_not_found() {
        assert!(find(b"hello", b"say_hello").is_some());
        assert!(find(b"hello", b"say_goodbye").is_none());
        assert!(find(b"nosuch", b"say_hello").is_none());
        for (c, methods) in CLASSES {
            assert!(methods.iter().all(|m| find(c.as_bytes(), m.name.as_bytes()).is_some_and(|f| f.name == m.name)));
        }
    }
}
