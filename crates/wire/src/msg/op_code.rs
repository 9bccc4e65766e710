//! Codes of object operations and what the code says about them.

use std::fmt;

/// Code of one operation: mode, type and number in one (`CEPH_OSD_OP_*`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpCode(pub u16);

/// Mode bit: reads.
const MODE_RD: u16 = 0x1000;
/// Mode bit: writes.
const MODE_WR: u16 = 0x2000;
/// Mode bit: cache tier control; such an operation is a write too where the write bit is set.
const MODE_CACHE: u16 = 0x8000;
const TYPE_MASK: u16 = 0x0f00;

macro_rules! codes {
    ($($(#[$m:meta])* $name:ident = $v:literal, $text:literal;)*) => {
        impl OpCode {
            $($(#[$m])* pub const $name: Self = Self($v);)*

            /// Ceph's name of the operation as its logs print it, or "???".
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* _ => "???" }
            }

            /// True for an operation of the protocol.
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
    /// Lists watchers.
    LIST_WATCHERS = 0x1209, "list-watchers";
    /// Lists clones.
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
    /// Cache tier: dirty?
    ISDIRTY = 0x121d, "isdirty";
    /// Reads a whole object in chunks, for copy-from.
    COPY_GET = 0x121e, "copy-get";
    /// Checksums ranges.
    CHECKSUM = 0x121f, "checksum";
    /// Compares a range with given bytes.
    CMPEXT = 0x1220, "cmpext";
    /// Writes a range.
    WRITE = 0x2201, "write";
    /// Replaces the data.
    WRITEFULL = 0x2202, "writefull";
    /// Sets the size.
    TRUNCATE = 0x2203, "truncate";
    /// Zeroes a range.
    ZERO = 0x2204, "zero";
    /// Deletes the object.
    DELETE = 0x2205, "delete";
    /// Writes at the end.
    APPEND = 0x2206, "append";
    /// Sets truncate sequence and size.
    SETTRUNC = 0x2208, "settrunc";
    /// Truncates by sequence.
    TRIMTRUNC = 0x2209, "trimtrunc";
    /// Writes a legacy text map.
    TMAPPUT = 0x220b, "tmapput";
    /// Creates the object.
    CREATE = 0x220d, "create";
    /// Restores a snapshot's state.
    ROLLBACK = 0x220e, "rollback";
    /// Starts, keeps or ends a watch.
    WATCH = 0x220f, "watch";
    /// Sets omap values.
    OMAPSETVALS = 0x2215, "omap-set-vals";
    /// Sets the omap header.
    OMAPSETHEADER = 0x2216, "omap-set-header";
    /// Removes all of omap.
    OMAPCLEAR = 0x2217, "omap-clear";
    /// Removes omap keys.
    OMAPRMKEYS = 0x2218, "omap-rm-keys";
    /// Copies another object here.
    COPY_FROM = 0x221a, "copy-from";
    /// Cache tier.
    UNDIRTY = 0x221c, "undirty";
    /// Manifest object.
    SET_REDIRECT = 0x2227, "set-redirect";
    /// Manifest object.
    SET_CHUNK = 0x2228, "set-chunk";
    /// Manifest object.
    TIER_PROMOTE = 0x2229, "tier-promote";
    /// Manifest object.
    UNSET_MANIFEST = 0x222a, "unset-manifest";
    /// Manifest object.
    TIER_FLUSH = 0x222b, "tier-flush";
    /// Removes a range of omap keys.
    OMAPRMKEYRANGE = 0x222c, "omap-rm-key-range";
    /// Copies another object here, with truncate sequence.
    COPY_FROM2 = 0x222d, "copy-from2";
    /// Manifest object.
    TIER_EVICT = 0x222e, "tier-evict";
    /// Hints at the future size.
    SETALLOCHINT = 0x2223, "set-alloc-hint";
    /// Cache tier.
    CACHE_PIN = 0x2224, "cache-pin";
    /// Cache tier.
    CACHE_UNPIN = 0x2225, "cache-unpin";
    /// Writes one pattern over a range.
    WRITESAME = 0x2226, "writesame";
    /// Updates a legacy text map.
    TMAPUP = 0x320a, "tmapup";
    /// Turns a legacy text map into omap.
    TMAP2OMAP = 0x3222, "tmap2omap";
    /// Cache tier.
    CACHE_FLUSH = 0xb21f, "cache-flush";
    /// Cache tier.
    CACHE_EVICT = 0xb220, "cache-evict";
    /// Cache tier.
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
    /// Old.
    RESETXATTRS = 0x2303, "resetxattrs";
    /// Removes an xattr.
    RMXATTR = 0x2304, "rmxattr";
    /// Calls a class method.
    CALL = 0x1401, "call";
    /// Lists objects of a PG, without namespaces.
    PGLS = 0x1501, "pgls";
    /// Same, filtered by a class.
    PGLS_FILTER = 0x1502, "pgls-filter";
    /// Lists hit sets.
    PG_HITSET_LS = 0x1503, "pg-hitset-ls";
    /// Reads a hit set.
    PG_HITSET_GET = 0x1504, "pg-hitset-get";
    /// Lists objects of a PG.
    PGNLS = 0x1505, "pgnls";
    /// Same, filtered by a class.
    PGNLS_FILTER = 0x1506, "pgnls-filter";
    /// Lists inconsistencies found by scrub.
    SCRUBLS = 0x1507, "scrubls";
}

impl OpCode {
    /// Reads. What a class method does is known to the class alone, so `CALL` counts here as a read only.
    #[must_use]
    pub fn is_read(self) -> bool {
        self.0 & MODE_RD != 0 && !self.is_cls()
    }

    /// Writes. See [`OpCode::is_read`] about `CALL`.
    #[must_use]
    pub fn is_write(self) -> bool {
        self.0 & MODE_WR != 0 && !self.is_cls()
    }

    /// Cache tier control.
    #[must_use]
    pub fn is_cache(self) -> bool {
        self.0 & MODE_CACHE != 0
    }

    /// The mode bits.
    #[must_use]
    pub fn mode(self) -> u16 {
        self.0 & 0xf000
    }

    /// Works on data (and omap).
    #[must_use]
    pub fn is_data(self) -> bool {
        self.0 & TYPE_MASK == 0x200
    }

    /// Works on xattrs.
    #[must_use]
    pub fn is_attr(self) -> bool {
        self.0 & TYPE_MASK == 0x300
    }

    /// Calls a class method.
    #[must_use]
    pub fn is_cls(self) -> bool {
        self.0 & TYPE_MASK == 0x400
    }

    /// Works on a PG instead of an object.
    #[must_use]
    pub fn is_pg(self) -> bool {
        self.0 & TYPE_MASK == 0x500
    }

    /// The union holds an extent.
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
    /// CREATE fails if the object exists; XATTR set fails likewise.
    pub const EXCL: u32 = 1;
    /// Failure of this operation does not fail the others.
    pub const FAILOK: u32 = 2;
    /// Access will be random.
    pub const FADVISE_RANDOM: u32 = 4;
    /// Access will be sequential.
    pub const FADVISE_SEQUENTIAL: u32 = 8;
    /// Will be used again.
    pub const FADVISE_WILLNEED: u32 = 0x10;
    /// Will not be used again.
    pub const FADVISE_DONTNEED: u32 = 0x20;
    /// Do not cache.
    pub const FADVISE_NOCACHE: u32 = 0x40;
    /// COPY_FROM with reference.
    pub const WITH_REFERENCE: u32 = 0x80;
    /// Skip the clean cache.
    pub const BYPASS_CLEAN_CACHE: u32 = 0x100;
}

/// Flags of a whole operation message (`CEPH_OSD_FLAG_*`).
pub mod msg_flags {
    /// Reply: acknowledged.
    pub const ACK: u32 = 1;
    /// Reply: on disk. Request: such a reply is wanted.
    pub const ONDISK: u32 = 4;
    /// A resend.
    pub const RETRY: u32 = 8;
    /// Has reads.
    pub const READ: u32 = 0x10;
    /// Has writes.
    pub const WRITE: u32 = 0x20;
    /// Old snapshot contexts are refused with EOLDSNAPC.
    pub const ORDERSNAP: u32 = 0x40;
    /// From a peer's internal client (old).
    pub const PEERSTAT_OLD: u32 = 0x80;
    /// Any replica may serve the read.
    pub const BALANCE_READS: u32 = 0x100;
    /// Parallel execution (old).
    pub const PARALLELEXEC: u32 = 0x200;
    /// PG operation.
    pub const PGOP: u32 = 0x400;
    /// Calls a class method.
    pub const EXEC: u32 = 0x800;
    /// Class method is public (old).
    pub const EXEC_PUBLIC: u32 = 0x1000;
    /// Nearest replica may serve the read.
    pub const LOCALIZE_READS: u32 = 0x2000;
    /// Order relative to reads and writes.
    pub const RWORDERED: u32 = 0x4000;
    /// Ignore cache tiers.
    pub const IGNORE_CACHE: u32 = 0x8000;
    /// Skip the redirect of snapshots.
    pub const SKIPRWLOCKS: u32 = 0x1_0000;
    /// Ignore the cache overlay.
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    /// For a whole-object flush.
    pub const FLUSH: u32 = 0x4_0000;
    /// Copy reads only from the map's snapshots.
    pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
    /// The client's snapshot context wins over the pool's.
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    /// Already redirected.
    pub const REDIRECTED: u32 = 0x20_0000;
    /// The client knows the meaning of a redirect answer.
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    /// Try even if the cluster is full: answer ENOSPC or EDQUOT instead of waiting.
    pub const FULL_TRY: u32 = 0x80_0000;
    /// Write even if the cluster is full.
    pub const FULL_FORCE: u32 = 0x100_0000;
    /// Ignore redirects.
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    /// Results and output of writes are wanted.
    pub const RETURNVEC: u32 = 0x400_0000;
}
