//! Files and block devices: making, opening, locking, and sequential access for tools and start-up.
//!
//! A file is sparse: blocks are allocated by the host's file system as they are first written. Direct I/O is used where
//! the file system has it, so that data is cached once. A file is locked with `flock`, a block device opened exclusively
//! as well, so that no second process and no mount uses it.

use super::signature::{self, Signature};
use base::buf::{AlignedBuf, PAGE};
use base::errno::{EIO, Errno};
use bytes::Bytes;
use std::ffi::CString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for another process to release the device lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two attempts to lock.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// Bytes of zeros written at once. While a file system writes into a hole it keeps other writes waiting.
const FILL_BYTES: u64 = 512 << 10;
/// Most threads that read at once where many ranges are wanted.
const READERS: usize = 16;

/// Reason why a device was refused.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another process has the device open.
    #[error("in use by another process; daemons of an `up` that was killed end within some seconds")]
    InUse,
    /// The device holds data of another kind.
    #[error("holds {0}; use --force to overwrite it")]
    Foreign(Signature),
    /// Neither a regular file nor a block device.
    #[error("neither a file nor a block device")]
    Kind,
    /// The file does not exist and no size was given to create it.
    #[error("the file does not exist; to make it, give its size")]
    NoSize,
    /// The file exists and is not empty.
    #[error("exists already and is not empty")]
    Exists,
}

/// An open file or block device.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    bytes: AtomicU64,
    direct: bool,
    class: &'static str,
    syncs_all: bool,
}

fn errno(e: &io::Error) -> Errno {
    e.raw_os_error().map_or(EIO, |n| -n)
}

/// The errno of a failed read. The kernel reports unreadable sectors not only as `EIO` but also as medium error
/// (`ENODATA`), failed protection information (`EILSEQ`) and target error (`EREMOTEIO`); all become `EIO`.
pub(super) fn unreadable(e: Errno) -> Errno {
    if [libc::ENODATA, libc::EILSEQ, libc::EREMOTEIO].contains(&-e) {
        tracing::warn!(errno = -e, "the device can't read a sector (medium error)");
        return EIO;
    }
    e
}

impl DiskFile {
    /// Size in bytes, whole pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Updates and returns the size. Seeking is harmless here, since no other call uses the file position. Error: that
    /// of the system.
    pub fn measure(&self) -> Result<u64, Errno> {
        use std::io::{Seek as _, SeekFrom};
        let bytes = (&self.file).seek(SeekFrom::End(0)).map_err(|e| errno(&e))? / PAGE as u64 * PAGE as u64;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// True if the page cache is bypassed.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// `hdd` for rotating disks, else `ssd`.
    #[must_use]
    pub fn device_class(&self) -> &'static str {
        self.class
    }

    /// True if a write with `RWF_DSYNC` also makes durable everything that the device had completed before.
    /// This holds if the device has no such writes itself (`fua`) and the kernel flushes its cache instead.
    /// Known for block devices, and for files on ext4 and XFS, whose direct writes behave as those of their
    /// device.
    pub(super) fn syncs_all(&self) -> bool {
        self.syncs_all
    }

    /// Opens another file description of the same file, for one engine. The kernel reports a write-back error
    /// once per description, at its next flush, and every engine has to learn of it. The lock stays with
    /// `self`.
    pub(super) fn another(&self) -> io::Result<Self> {
        let flags = if self.direct { libc::O_DIRECT } else { 0 };
        let path = format!("/proc/self/fd/{}", self.raw_fd());
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        let bytes = AtomicU64::new(self.bytes());
        Ok(Self { file, bytes, direct: self.direct, class: self.class, syncs_all: self.syncs_all })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Reads `len` bytes at `off`, both multiples of a page. Error: `EIO` for an unreadable sector, or that of the
    /// system.
    pub fn read(&self, off: u64, len: u64) -> Result<Bytes, Errno> {
        let mut buf = AlignedBuf::dirty(len as usize);
        self.file.read_exact_at(&mut buf, off).map_err(|e| unreadable(errno(&e)))?;
        Ok(buf.freeze())
    }

    /// Reads ranges `(offset, length)` in parallel; results in the order of the ranges, each with the errors of
    /// [`Self::read`]. For opening and tools.
    pub fn read_many(&self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        let one = |r: &(u64, u64)| self.read(r.0, r.1);
        if ranges.len() < 2 * READERS {
            return ranges.iter().map(one).collect();
        }
        std::thread::scope(|s| {
            let parts: Vec<_> = ranges
                .chunks(ranges.len().div_ceil(READERS))
                .map(|part| s.spawn(move || part.iter().map(one).collect::<Vec<_>>()))
                .collect();
            parts.into_iter().flat_map(|p| p.join().unwrap_or_default()).collect()
        })
    }

    /// Writes page-aligned buffers one after another from `off` on. Error: that of the system; earlier buffers may be
    /// written.
    pub fn write(&self, mut off: u64, bufs: &[Bytes]) -> Result<(), Errno> {
        for b in bufs {
            self.file.write_all_at(b, off).map_err(|e| errno(&e))?;
            off += b.len() as u64;
        }
        Ok(())
    }

    /// Makes all writes durable. Error: that of the system.
    pub fn sync(&self) -> Result<(), Errno> {
        self.file.sync_data().map_err(|e| errno(&e))
    }

    /// Writes zeros where the file has no blocks in `[off, off + len)`, so that later writes there change only data.
    /// Does nothing on a block device. Returns the number of bytes written. Error: that of a write or of reading the
    /// file's metadata.
    pub fn fill_holes(&self, off: u64, len: u64) -> Result<u64, Errno> {
        if !self.file.metadata().map_err(|e| errno(&e))?.is_file() {
            return Ok(0);
        }
        let seek = |from: u64, what: i32| {
            // SAFETY: plain system call on a descriptor we own; no memory is passed.
            let at = unsafe { libc::lseek(self.raw_fd(), from as libc::off_t, what) };
            u64::try_from(at).ok()
        };
        let (end, mut at, mut filled, mut zeros) = (off + len, off, 0, None);
        // An error means that there is no further hole or data.
        while let Some(hole) = seek(at, libc::SEEK_HOLE).filter(|h| *h < end) {
            let from = hole / PAGE as u64 * PAGE as u64;
            let to = seek(hole, libc::SEEK_DATA).unwrap_or(end).min(end);
            // In the usual case there is no hole.
            let zeros = zeros.get_or_insert_with(|| AlignedBuf::zeroed(FILL_BYTES as usize).freeze());
            at = from;
            while at < to {
                let n = (to - at).min(FILL_BYTES).next_multiple_of(PAGE as u64);
                self.write(at, &[zeros.slice(..n as usize)])?;
                (at, filled) = (at + n, filled + n);
            }
        }
        Ok(filled)
    }

    /// Bytes for which the file has no blocks, and bytes free on its file system; `None` for a block device.
    #[must_use]
    pub fn room(&self) -> Option<(u64, u64)> {
        let m = self.file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let mut s = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: a descriptor we own and room for one `statvfs`, which the call fills if it returns 0.
        let s = unsafe {
            if libc::fstatvfs(self.raw_fd(), s.as_mut_ptr()) != 0 {
                return None;
            }
            s.assume_init()
        };
        // `st_blocks` counts units of 512 bytes, whatever the block size of the file system.
        let holes = m.len().saturating_sub(m.blocks().saturating_mul(512));
        Some((holes, s.f_bavail.saturating_mul(s.f_frsize)))
    }

    /// True for a block device.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.file.metadata().is_ok_and(|m| m.file_type().is_block_device())
    }

    /// Gives a range back to the file system or device. Error: that of the system.
    pub fn discard(&self, off: u64, len: u64) -> Result<(), Errno> {
        if self.is_block() {
            // Punching a hole into a device writes zeros, or fails.
            const BLKDISCARD: libc::c_ulong = 0x1277;
            let range = [off, len];
            // SAFETY: the call reads two words of ours.
            let r = unsafe { libc::ioctl(self.raw_fd(), BLKDISCARD as _, range.as_ptr()) };
            return if r == 0 { Ok(()) } else { Err(errno(&io::Error::last_os_error())) };
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: plain system call on a descriptor we own; no memory is passed.
        let r = unsafe { libc::fallocate(self.raw_fd(), mode, off as libc::off_t, len as libc::off_t) };
        if r == 0 { Ok(()) } else { Err(errno(&io::Error::last_os_error())) }
    }
}

/// Prepares a file of `bytes`, an existing empty file or a block device for formatting. Without `force`, a
/// device or file with recognisable contents is refused.
pub fn prepare(path: &Path, bytes: Option<u64>, force: bool) -> Result<Arc<DiskFile>, DiskError> {
    let exists = path.exists();
    let is_block = exists && std::fs::metadata(path)?.file_type().is_block_device();
    if exists && !is_block && !path.is_file() {
        return Err(DiskError::Kind);
    }
    if !is_block {
        let size = match (bytes, exists) {
            (Some(b), _) => b / PAGE as u64 * PAGE as u64,
            (None, true) => std::fs::metadata(path)?.len(),
            (None, false) => return Err(DiskError::NoSize),
        };
        let f = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if f.metadata()?.len() != size {
            if exists && f.metadata()?.len() > 0 && !force {
                return Err(DiskError::Exists);
            }
            f.set_len(size)?;
        }
        f.sync_all()?;
    }
    let d = open(path)?;
    if !force && let Some(s) = signature::find(&|off, len| d.read(off, len).ok(), d.bytes()) {
        return Err(DiskError::Foreign(s));
    }
    Ok(d)
}

/// Opens a file or block device exclusively. Error: [`DiskError::Kind`] for another kind of file, [`DiskError::InUse`]
/// if another process holds it, or [`DiskError::Io`].
pub fn open(path: &Path) -> Result<Arc<DiskFile>, DiskError> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(DiskError::Kind);
    }
    let exclusive = if kind.is_block_device() { libc::O_EXCL } else { 0 };
    let with = |flags: i32| OpenOptions::new().read(true).write(true).custom_flags(flags | exclusive).open(path);
    let busy = |e: io::Error| {
        if e.raw_os_error() == Some(libc::EBUSY) { DiskError::InUse } else { DiskError::Io(e) }
    };
    let (file, direct) = match with(libc::O_DIRECT) {
        Ok(f) => (f, true),
        // File systems without direct I/O (some in memory) answer `EINVAL`.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (with(0).map_err(busy)?, false),
        Err(e) => return Err(busy(e)),
    };
    lock(&file)?;
    let class = if queue(path, "rotational").is_some_and(|s| s == "1") { "hdd" } else { "ssd" };
    let known = kind.is_block_device() || is_ext4_or_xfs(&file);
    let syncs_all = direct && known && queue(path, "fua").is_some_and(|s| s == "0");
    let d = DiskFile { file, bytes: AtomicU64::new(0), direct, class, syncs_all };
    d.measure().map_err(|e| io::Error::from_raw_os_error(-e))?;
    Ok(Arc::new(d))
}

/// Takes the lock. The kernel holds the lock of a killed process until it has dismantled its io_uring, which
/// may take a while after the process is gone. So a held lock is retried for [`LOCK_PATIENCE`].
fn lock(file: &File) -> Result<(), DiskError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_RETRY),
            Err(TryLockError::WouldBlock) => return Err(DiskError::InUse),
            Err(TryLockError::Error(e)) => return Err(e.into()),
        }
    }
}

/// A queue attribute of the disk below a file or device, from sysfs; `None` if the kernel has none.
fn queue(path: &Path, what: &str) -> Option<String> {
    let m = std::fs::metadata(path).ok()?;
    let dev = if m.file_type().is_block_device() { m.rdev() } else { m.dev() };
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    // A partition has the attributes of its disk one level up.
    let said = ["queue", "../queue"]
        .iter()
        .find_map(|f| std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{f}/{what}")).ok())?;
    Some(said.trim().to_owned())
}

fn is_ext4_or_xfs(file: &File) -> bool {
    let mut s = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a descriptor we own and room for one `statfs`, which the call fills if it returns 0.
    let kind = unsafe {
        if libc::fstatfs(file.as_raw_fd(), s.as_mut_ptr()) != 0 {
            return false;
        }
        s.assume_init().f_type
    };
    kind == libc::EXT4_SUPER_MAGIC || kind == libc::XFS_SUPER_MAGIC
}

/// Free bytes on the file system that holds `path`. Error: a path with a zero byte, or that of the system.
pub fn free_space(path: &Path) -> io::Result<u64> {
    space(path).map(|(free, _)| free)
}

/// Free and all bytes of the file system that holds `path`. Error: a path with a zero byte, or that of the system.
pub fn space(path: &Path) -> io::Result<(u64, u64)> {
    let c = CString::new(path.as_os_str().as_bytes())?;
    let mut s = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `c` is a terminated string and `s` room for one `statvfs`, which the call fills if it returns 0.
    let s = unsafe {
        if libc::statvfs(c.as_ptr(), s.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        s.assume_init()
    };
    Ok((s.f_bavail.saturating_mul(s.f_frsize), s.f_blocks.saturating_mul(s.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> std::path::PathBuf {
        let d = std::env::temp_dir().join(format!(
            "belemnite-disk-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&d).unwrap();
        d
    }

    #[test]
    fn made_locked_and_read_back() {
        let d = dir();
        let p = d.join("block");
        assert!(matches!(prepare(&p, None, false), Err(DiskError::NoSize)));
        let f = prepare(&p, Some(1 << 20), false).unwrap();
        assert_eq!(f.bytes(), 1 << 20);
        assert!(matches!(open(&p), Err(DiskError::InUse)));
        let mut b = AlignedBuf::zeroed(PAGE);
        b[7] = 9;
        f.write(8192, &[b.freeze()]).unwrap();
        f.sync().unwrap();
        assert_eq!(f.read(8192, 4096).unwrap()[7], 9);
        assert!(f.read(1 << 20, 4096).is_err());
        OpenOptions::new().write(true).open(&p).unwrap().set_len((3 << 20) + 9).unwrap();
        assert_eq!((f.bytes(), f.measure(), f.bytes()), (1 << 20, Ok(3 << 20), 3 << 20));
        drop(f);
        assert!(open(&p).is_ok());
        std::fs::remove_dir_all(d).unwrap();
    }

    #[test]
    fn engines_have_descriptions_of_their_own() {
        use std::io::{Seek as _, SeekFrom};
        let d = dir().join("own");
        std::fs::create_dir_all(&d).unwrap();
        let p = d.join("block");
        let f = prepare(&p, Some(1 << 20), false).unwrap();
        let own = f.another().unwrap();
        (&f.file).seek(SeekFrom::Start(4096)).unwrap();
        (&own.file).seek(SeekFrom::Start(8192)).unwrap();
        assert_eq!((&f.file).stream_position().unwrap(), 4096, "one description has one position");
        assert_eq!((own.is_direct(), own.bytes()), (f.is_direct(), f.bytes()));
        // The same file under any name; the lock stays with the first description.
        std::fs::rename(&p, d.join("moved")).unwrap();
        let again = f.another().unwrap();
        again.write(0, &[AlignedBuf::zeroed(PAGE).freeze()]).unwrap();
        drop((own, again));
        assert!(matches!(open(&d.join("moved")), Err(DiskError::InUse)));
        std::fs::remove_dir_all(d).unwrap();
    }

    #[test]
    fn sectors_that_cannot_be_read_have_one_errno() {
        for e in [libc::EIO, libc::ENODATA, libc::EILSEQ, libc::EREMOTEIO] {
            assert_eq!(unreadable(-e), EIO);
        }
        assert_eq!(unreadable(-libc::ENODEV), -libc::ENODEV);
    }

    #[test]
    fn holes_are_filled_and_data_is_left_alone() {
        let d = dir().join("h");
        std::fs::create_dir_all(&d).unwrap();
        let f = prepare(&d.join("block"), Some(32 << 20), false).unwrap();
        let mut b = AlignedBuf::zeroed(2 * PAGE);
        b.fill(3);
        let b = b.freeze();
        f.write(8 << 20, std::slice::from_ref(&b)).unwrap();
        let filled = f.fill_holes(4096, 16 << 20).unwrap();
        // A file system with larger blocks has fewer holes.
        assert!(filled > 15 << 20 && filled <= (16 << 20) - 2 * PAGE as u64, "{filled}");
        assert_eq!(f.fill_holes(4096, 16 << 20), Ok(0));
        assert_eq!(f.read(8 << 20, 2 * PAGE as u64).unwrap(), b);
        assert!(f.read(4096, 4096).unwrap().iter().all(|x| *x == 0));
        std::fs::remove_dir_all(d).unwrap();
    }

    #[test]
    fn foreign_contents_are_refused() {
        let d = dir().join("f");
        std::fs::create_dir_all(&d).unwrap();
        let p = d.join("ext4");
        let mut img = vec![0u8; 1 << 20];
        img[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        std::fs::write(&p, &img).unwrap();
        assert!(matches!(prepare(&p, None, false), Err(DiskError::Foreign(_))));
        assert!(prepare(&p, None, true).is_ok());
        for other in [d.as_path(), Path::new("/dev/null")] {
            assert!(matches!(prepare(other, Some(1 << 20), true), Err(DiskError::Kind)), "{}", other.display());
        }
        std::fs::remove_dir_all(d).unwrap();
    }
}
