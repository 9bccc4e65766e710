//! Records whether a method reads or writes its object, to enforce its flags.
//!
//! As in Ceph, queries of existence, size and time do not count as reads.

use crate::ctx::{ClsResult, ObjectCtx, Watcher};
use crate::parts::{Parts, Room};
use base::{EntityAddr, EntityName, Utime};
use bytes::Bytes;

/// A context that forwards every call and records its kind.
pub(crate) struct Guard<'a> {
    inner: &'a mut dyn ObjectCtx,
    /// Whether the object was read.
    pub(crate) read: bool,
    /// Whether the object was written.
    pub(crate) wrote: bool,
}

impl<'a> Guard<'a> {
    pub(crate) fn new(inner: &'a mut dyn ObjectCtx) -> Self {
        Self { inner, read: false, wrote: false }
    }
}

macro_rules! pass {
    ($($kind:ident $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        pass!(@ $kind $name($($arg: $ty),*) -> $ret);
    )*};
    (@ reads $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        fn $name(&mut self, $($arg: $ty),*) -> $ret {
            self.read = true;
            self.inner.$name($($arg),*)
        }
    };
    (@ writes $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        fn $name(&mut self, $($arg: $ty),*) -> $ret {
            self.wrote = true;
            self.inner.$name($($arg),*)
        }
    };
    (@ asks $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        fn $name(&mut self, $($arg: $ty),*) -> $ret {
            self.inner.$name($($arg),*)
        }
    };
    (@ knows $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        fn $name(&self, $($arg: $ty),*) -> $ret {
            self.inner.$name($($arg),*)
        }
    };
}

impl ObjectCtx for Guard<'_> {
    pass! {
        asks exists() -> ClsResult<bool>;
        asks stat() -> ClsResult<(u64, Utime)>;
        reads read(off: u64, len: u64) -> ClsResult<Bytes>;
        writes create(exclusive: bool) -> ClsResult<()>;
        writes remove() -> ClsResult<()>;
        writes write(off: u64, data: &[u8]) -> ClsResult<()>;
        writes write_full(data: &[u8]) -> ClsResult<()>;
        writes truncate(size: u64) -> ClsResult<()>;
        writes zero(off: u64, len: u64) -> ClsResult<()>;
        reads getxattr(name: &[u8]) -> ClsResult<Bytes>;
        reads getxattrs() -> ClsResult<Vec<(Bytes, Bytes)>>;
        writes setxattr(name: &[u8], value: &[u8]) -> ClsResult<()>;
        writes rmxattr(name: &[u8]) -> ClsResult<()>;
        reads omap_header() -> ClsResult<Bytes>;
        writes omap_set_header(header: &[u8]) -> ClsResult<()>;
        reads omap_get(key: &[u8]) -> ClsResult<Bytes>;
        reads omap_list(start_after: &[u8], prefix: &[u8], max: usize) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)>;
        reads omap_part(start_after: &[u8], prefix: &[u8], room: Room) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)>;
        asks parts() -> &mut Parts;
        writes omap_set(entries: &[(Bytes, Bytes)]) -> ClsResult<()>;
        writes omap_rm(key: &[u8]) -> ClsResult<()>;
        writes omap_rm_range(first: &[u8], last: &[u8]) -> ClsResult<()>;
        writes omap_clear() -> ClsResult<()>;
        knows now() -> Utime;
        knows origin() -> (EntityName, EntityAddr);
        knows current_version() -> u64;
        knows subop_index() -> u32;
        reads snapset_seq() -> ClsResult<u64>;
        knows snap_context() -> (u64, Vec<u64>);
        reads watchers() -> ClsResult<Vec<Watcher>>;
        knows client_features() -> u64;
        asks random() -> u64;
        knows log(text: &str) -> ();
    }
}
