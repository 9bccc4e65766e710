//! Finds methods by class and name.

use crate::ctx::{ClsResult, ObjectCtx};
use bytes::Bytes;

/// What a method may do (`CLS_METHOD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodFlags(pub u8);

impl MethodFlags {
    /// Reads.
    pub const RD: Self = Self(1);
    /// Writes.
    pub const WR: Self = Self(2);
    /// Reads and writes.
    pub const RDWR: Self = Self(3);

    /// May read.
    #[must_use]
    pub fn reads(self) -> bool {
        self.0 & 1 != 0
    }

    /// May write.
    #[must_use]
    pub fn writes(self) -> bool {
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

/// A class method.
#[derive(Clone, Copy)]
pub struct Method {
    /// Name within the class.
    pub name: &'static str,
    /// What it may do.
    pub flags: MethodFlags,
    /// The code: context and input in, output out.
    pub call: fn(&mut dyn ObjectCtx, &Bytes) -> ClsResult<Output>,
}

/// Classes with their methods, both sorted by name.
pub const CLASSES: &[(&str, &[Method])] = &[];

/// The method `class.name`; `None` answers `EOPNOTSUPP`.
#[must_use]
pub fn find(class: &str, name: &str) -> Option<&'static Method> {
    let (_, methods) = CLASSES.iter().find(|(c, _)| *c == class)?;
    methods.iter().find(|m| m.name == name)
}
