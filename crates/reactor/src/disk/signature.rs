//! Recognises what a device holds already, by the magic numbers of common contents.

use bytes::Bytes;
use std::fmt;

/// Something recognisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(&'static str);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Offset, magic, what it means.
const MAGICS: &[(u64, &[u8], &str)] = &[
    (510, &[0x55, 0xaa], "a partition table"),
    (512, b"EFI PART", "a GUID partition table"),
    (4096, b"EFI PART", "a GUID partition table"),
    (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0, &[b'L', b'U', b'K', b'S', 0xba, 0xbe], "a LUKS container"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID array"),
    (0, b"bluestore block device", "a Ceph OSD"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0, b"BLMNSTOR", "a Belemnite store"),
];

/// Bytes from the start that hold all magics.
const HEAD: u64 = 0x11000;

/// What is there, if anything known. `read` reads whole pages.
pub fn find(read: &dyn Fn(u64, u64) -> Option<Bytes>, bytes: u64) -> Option<Signature> {
    let head = read(0, HEAD.min(bytes))?;
    for (off, magic, what) in MAGICS {
        let at = *off as usize;
        if head.get(at..at + magic.len()) == Some(*magic) {
            return Some(Signature(what));
        }
    }
    None
}
