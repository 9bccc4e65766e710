//! Recognises existing contents of a device by common magic numbers.

use bytes::Bytes;
use std::fmt;

/// Recognised contents of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(&'static str);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Offset, magic, description of the contents.
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
    (3, b"NTFS    ", "an NTFS file system"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], "a bcache device"),
    (0x20000, &[0x0c, 0xb1, 0xba, 0x00], "a member of a ZFS pool"),
    (0x21000, &[0x0c, 0xb1, 0xba, 0x00], "a member of a ZFS pool"),
    // The superblock has two slots at the start; a new store uses the second.
    (0, b"belemnite store", "a Belemnite store"),
    (0x4000, b"belemnite store", "a Belemnite store"),
];

/// Bytes from the start that hold all magics.
const HEAD: u64 = 0x22000;

/// Recognised contents at the start of the device, if any. `read` reads whole pages.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_and_nothing_on_zeros() {
        let look = |img: Vec<u8>| {
            let b = Bytes::from(img);
            find(&|off, len| Some(b.slice(off as usize..(off + len) as usize)), HEAD)
        };
        assert_eq!(look(vec![0; HEAD as usize]), None);
        for (off, magic, what) in MAGICS {
            let mut img = vec![0; HEAD as usize];
            img[*off as usize..*off as usize + magic.len()].copy_from_slice(magic);
            assert_eq!(look(img), Some(Signature(what)));
        }
    }
}
