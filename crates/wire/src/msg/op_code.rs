//! Codes of object operations, and the properties encoded in them.

use std::fmt;

/// Code of an operation: mode, type and number (`CEPH_OSD_OP_*`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpCode(pub u16);

/// Mode bit: reads.
const MODE_RD: u16 = 0x1000;
/// Mode bit: writes.
const MODE_WR: u16 = 0x2000;
/// Mode bit: cache tier control. With the write bit such an operation is also a write.
const MODE_CACHE: u16 = 0x8000;
const TYPE_MASK: u16 = 0x0f00;

macro_rules! codes {
    ($($(#[$m:meta])* $name:ident = $v:literal, $text:literal;)*) => {
        impl OpCode {
            $($(#[$m])* pub const $name: Self = Self($v);)*

            /// Ceph's name of the operation, as in its logs, or "???".
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* _ => "???" }
            }

            /// True if the protocol defines the operation.
            #[must_use]
            pub fn is_known(self) -> bool {
                matches!(self, $(Self::$name)|*)
            }
        }
    };
}

codes! {
    /// Reads a range.
    READ = 0x1201, "read";
    /// Size and mtime.
    STAT = 0x1202, "stat";
    /// Extents in a range.
    MAPEXT = 0x1203, "mapext";
    /// Reads a range without its holes.
    SPARSE_READ = 0x1205, "sparse-read";
    /// Sends a notify to all watchers.
    NOTIFY = 0x1206, "notify";
    /// Answers a notify.
    NOTIFY_ACK = 0x1207, "notify-ack";
    /// Fails unless the object has a certain user version.
    ASSERT_VER = 0x1208, "assert-version";
    /// Lists the watchers of the object.
    LIST_WATCHERS = 0x1209, "list-watchers";
    /// Lists the clones of the object.
    LIST_SNAPS = 0x120a, "list-snaps";
    /// Reads a range (erasure-code internal).
    SYNC_READ = 0x120b, "sync_read";
    /// Reads a legacy text map.
    TMAPGET = 0x120c, "tmapget";
    /// Lists omap keys.
    OMAPGETKEYS = 0x1211, "omap-get-keys";
    /// Lists omap keys and values.
    OMAPGETVALS = 0x1212, "omap-get-vals";
    /// Reads the omap header.
    OMAPGETHEADER = 0x1213, "omap-get-header";
    /// Reads values of given omap keys.
    OMAPGETVALSBYKEYS = 0x1214, "omap-get-vals-by-keys";
    /// Compares omap values.
    OMAP_CMP = 0x1219, "omap-cmp";
    /// Cache tier: reports whether the object is dirty.
    ISDIRTY = 0x121d, "isdirty";
    /// Reads an object with its metadata in chunks, for copy-from.
    COPY_GET = 0x121e, "copy-get";
    /// Checksums ranges.
    CHECKSUM = 0x121f, "checksum";
    /// Compares a range with given bytes.
    CMPEXT = 0x1220, "cmpext";
    /// Writes a range.
    WRITE = 0x2201, "write";
    /// Replaces the object's data.
    WRITEFULL = 0x2202, "writefull";
    /// Sets the size.
    TRUNCATE = 0x2203, "truncate";
    /// Zeroes a range.
    ZERO = 0x2204, "zero";
    /// Deletes the object.
    DELETE = 0x2205, "delete";
    /// Writes at the end.
    APPEND = 0x2206, "append";
    /// Sets truncate sequence and truncate size.
    SETTRUNC = 0x2208, "settrunc";
    /// Truncates according to the truncate sequence.
    TRIMTRUNC = 0x2209, "trimtrunc";
    /// Writes a legacy text map.
    TMAPPUT = 0x220b, "tmapput";
    /// Creates the object.
    CREATE = 0x220d, "create";
    /// Restores the state at a snapshot.
    ROLLBACK = 0x220e, "rollback";
    /// Starts, pings or ends a watch.
    WATCH = 0x220f, "watch";
    /// Sets omap values.
    OMAPSETVALS = 0x2215, "omap-set-vals";
    /// Sets the omap header.
    OMAPSETHEADER = 0x2216, "omap-set-header";
    /// Removes the header and all keys of the omap.
    OMAPCLEAR = 0x2217, "omap-clear";
    /// Removes omap keys.
    OMAPRMKEYS = 0x2218, "omap-rm-keys";
    /// Replaces the object with a copy of another object.
    COPY_FROM = 0x221a, "copy-from";
    /// Cache tier: marks the object clean.
    UNDIRTY = 0x221c, "undirty";
    /// Manifest object: redirects the object to another one.
    SET_REDIRECT = 0x2227, "set-redirect";
    /// Manifest object: maps a range of the object to another object.
    SET_CHUNK = 0x2228, "set-chunk";
    /// Manifest object: copies the referenced data into the object.
    TIER_PROMOTE = 0x2229, "tier-promote";
    /// Manifest object: removes the references to other objects.
    UNSET_MANIFEST = 0x222a, "unset-manifest";
    /// Manifest object: writes the object's changed data to the referenced objects.
    TIER_FLUSH = 0x222b, "tier-flush";
    /// Removes a range of omap keys.
    OMAPRMKEYRANGE = 0x222c, "omap-rm-key-range";
    /// Replaces the object with a copy of another object, with a truncate sequence.
    COPY_FROM2 = 0x222d, "copy-from2";
    /// Manifest object: drops the object's data that the referenced objects have.
    TIER_EVICT = 0x222e, "tier-evict";
    /// Hints at the expected size of the object.
    SETALLOCHINT = 0x2223, "set-alloc-hint";
    /// Cache tier: keeps the object in the cache pool.
    CACHE_PIN = 0x2224, "cache-pin";
    /// Cache tier: lets the object leave the cache pool again.
    CACHE_UNPIN = 0x2225, "cache-unpin";
    /// Writes one pattern over a range.
    WRITESAME = 0x2226, "writesame";
    /// Updates a legacy text map.
    TMAPUP = 0x320a, "tmapup";
    /// Turns a legacy text map into omap.
    TMAP2OMAP = 0x3222, "tmap2omap";
    /// Cache tier: writes the object back to the base pool, and waits for locks.
    CACHE_FLUSH = 0xb21f, "cache-flush";
    /// Cache tier: removes a clean object from the cache pool.
    CACHE_EVICT = 0xb220, "cache-evict";
    /// Cache tier: writes the object back to the base pool, unless that would have to wait for locks.
    CACHE_TRY_FLUSH = 0xb221, "cache-try-flush";
    /// Reads an xattr.
    GETXATTR = 0x1301, "getxattr";
    /// Reads all xattrs.
    GETXATTRS = 0x1302, "getxattrs";
    /// Compares an xattr.
    CMPXATTR = 0x1303, "cmpxattr";
    /// Sets an xattr.
    SETXATTR = 0x2301, "setxattr";
    /// Replaces all xattrs.
    SETXATTRS = 0x2302, "setxattrs";
    /// Obsolete.
    RESETXATTRS = 0x2303, "resetxattrs";
    /// Removes an xattr.
    RMXATTR = 0x2304, "rmxattr";
    /// Calls a class method.
    CALL = 0x1401, "call";
    /// Lists objects of a PG, without namespaces.
    PGLS = 0x1501, "pgls";
    /// Lists objects of a PG, without namespaces, filtered by a class.
    PGLS_FILTER = 0x1502, "pgls-filter";
    /// Lists hit sets.
    PG_HITSET_LS = 0x1503, "pg-hitset-ls";
    /// Reads a hit set.
    PG_HITSET_GET = 0x1504, "pg-hitset-get";
    /// Lists objects of a PG.
    PGNLS = 0x1505, "pgnls";
    /// Lists objects of a PG, filtered by a class.
    PGNLS_FILTER = 0x1506, "pgnls-filter";
    /// Lists inconsistencies found by scrub.
    SCRUBLS = 0x1507, "scrubls";
}

impl OpCode {
    /// True for reads. Only the class knows whether a method writes, so `CALL` counts as a read here.
    #[must_use]
    pub fn is_read(self) -> bool {
        self.0 & MODE_RD != 0 && !self.is_cls()
    }

    /// True for writes; `CALL` is not one, see [`OpCode::is_read`].
    #[must_use]
    pub fn is_write(self) -> bool {
        self.0 & MODE_WR != 0 && !self.is_cls()
    }

    /// True for cache tier control.
    #[must_use]
    pub fn is_cache(self) -> bool {
        self.0 & MODE_CACHE != 0
    }

    /// The mode bits.
    #[must_use]
    pub fn mode(self) -> u16 {
        self.0 & 0xf000
    }

    /// True for operations on data or omap.
    #[must_use]
    pub fn is_data(self) -> bool {
        self.0 & TYPE_MASK == 0x200
    }

    /// True for operations on xattrs.
    #[must_use]
    pub fn is_attr(self) -> bool {
        self.0 & TYPE_MASK == 0x300
    }

    /// True for class calls.
    #[must_use]
    pub fn is_cls(self) -> bool {
        self.0 & TYPE_MASK == 0x400
    }

    /// True for operations on a PG instead of an object.
    #[must_use]
    pub fn is_pg(self) -> bool {
        self.0 & TYPE_MASK == 0x500
    }

    /// True if the argument union holds an extent.
    #[must_use]
    pub fn has_extent(self) -> bool {
        matches!(
            self,
            Self::READ
                | Self::MAPEXT
                | Self::SPARSE_READ
                | Self::SYNC_READ
                | Self::CMPEXT
                | Self::WRITE
                | Self::WRITEFULL
                | Self::TRUNCATE
                | Self::ZERO
                | Self::DELETE
                | Self::APPEND
                | Self::SETTRUNC
                | Self::TRIMTRUNC
        )
    }
}

impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_known() { f.write_str(self.name()) } else { write!(f, "op 0x{:04x}", self.0) }
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Flags of one operation (`CEPH_OSD_OP_FLAG_*`).
pub mod op_flags {
    /// CREATE and setting an xattr fail if the object or xattr exists.
    pub const EXCL: u32 = 1;
    /// Failure of this operation does not fail the others.
    pub const FAILOK: u32 = 2;
    /// Access will be random.
    pub const FADVISE_RANDOM: u32 = 4;
    /// Access will be sequential.
    pub const FADVISE_SEQUENTIAL: u32 = 8;
    /// The data will be accessed again.
    pub const FADVISE_WILLNEED: u32 = 0x10;
    /// The data will not be accessed again.
    pub const FADVISE_DONTNEED: u32 = 0x20;
    /// The data should not be cached.
    pub const FADVISE_NOCACHE: u32 = 0x40;
    /// COPY_FROM with a reference to the source.
    pub const WITH_REFERENCE: u32 = 0x80;
    /// Bypass the cache of the store; for deep scrubs.
    pub const BYPASS_CLEAN_CACHE: u32 = 0x100;
}

/// Flags of a whole operation message (`CEPH_OSD_FLAG_*`).
pub mod msg_flags {
    /// Reply: the operation was acknowledged.
    pub const ACK: u32 = 1;
    /// Reply: the operation is durable. Request: such a reply is requested.
    pub const ONDISK: u32 = 4;
    /// The operation is a resend.
    pub const RETRY: u32 = 8;
    /// The message has reads.
    pub const READ: u32 = 0x10;
    /// The message has writes.
    pub const WRITE: u32 = 0x20;
    /// Writes with an old snapshot context are refused with EOLDSNAPC.
    pub const ORDERSNAP: u32 = 0x40;
    /// The message has the statistics of a peer (obsolete).
    pub const PEERSTAT_OLD: u32 = 0x80;
    /// Any replica may serve the read.
    pub const BALANCE_READS: u32 = 0x100;
    /// Parallel execution (obsolete).
    pub const PARALLELEXEC: u32 = 0x200;
    /// The target is a PG.
    pub const PGOP: u32 = 0x400;
    /// The message has class calls.
    pub const EXEC: u32 = 0x800;
    /// The class method is public (obsolete).
    pub const EXEC_PUBLIC: u32 = 0x1000;
    /// The nearest replica may serve the read.
    pub const LOCALIZE_READS: u32 = 0x2000;
    /// Reads are ordered with writes.
    pub const RWORDERED: u32 = 0x4000;
    /// Ignore cache tiers.
    pub const IGNORE_CACHE: u32 = 0x8000;
    /// Skip waiting for read-write locks.
    pub const SKIPRWLOCKS: u32 = 0x1_0000;
    /// Ignore the cache overlay.
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    /// The operation is part of a flush.
    pub const FLUSH: u32 = 0x4_0000;
    /// Snapshot ids are ids of clones.
    pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
    /// The client's snapshot context overrides the pool's.
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    /// The operation was redirected.
    pub const REDIRECTED: u32 = 0x20_0000;
    /// The client understands redirect replies.
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    /// Try even if the cluster is full: answer ENOSPC or EDQUOT instead of waiting.
    pub const FULL_TRY: u32 = 0x80_0000;
    /// Write even if the cluster is full.
    pub const FULL_FORCE: u32 = 0x100_0000;
    /// Ignore redirects.
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    /// The reply shall have results and output of writes, too.
    pub const RETURNVEC: u32 = 0x400_0000;
}
