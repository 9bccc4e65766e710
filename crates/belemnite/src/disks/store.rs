//! Labels of stores, read without the lock that a running OSD holds.

use crate::admin::StoreLabels;
use ::store::engine::device::Device;
use base::errno::{EIO, EROFS, Errno};
use bytes::Bytes;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Error;

/// A file or device that is only read, by ordinary system calls.
struct ReadOnly {
    file: File,
    bytes: u64,
}

impl Device for ReadOnly {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        let read = |(off, len): &(u64, u64)| {
            // Ranges are parts of the device: the engine asks for no others.
            if off.checked_add(*len).is_none_or(|end| end > self.bytes) {
                return Err(EIO);
            }
            let mut buf = vec![0; usize::try_from(*len).map_err(|_| EIO)?];
            self.file.read_exact_at(&mut buf, *off).map_err(|e| e.raw_os_error().map_or(EIO, |n| -n))?;
            Ok(buf.into())
        };
        ranges.iter().map(read).collect()
    }

    fn write(&mut self, _: u64, _: &[Bytes]) -> Result<(), Errno> {
        Err(EROFS)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// Labels of the store on an open file or device.
///
/// # Errors
/// It holds no store, or one of no OSD, or it cannot be read.
pub(super) fn labels(file: &File) -> Result<StoreLabels, Error> {
    let mut file = file.try_clone()?;
    let bytes = file.seek(SeekFrom::End(0))?;
    let sb = ::store::engine::probe(&mut ReadOnly { file, bytes })?;
    crate::admin::labels_of(&sb.labels)
}

/// Recognised contents of a file or device.
pub(super) struct Contents {
    /// Their name, with its article.
    pub(super) text: String,
    /// True for a store of Belemnite.
    pub(super) is_store: bool,
}

/// Contents of a file or device, if they can be recognised.
///
/// # Errors
/// It cannot be opened.
pub(super) fn contents(path: &Path) -> Result<Option<Contents>, Error> {
    let mut file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(|e| format!("{}: {e}", path.display()))?;
    if labels(&file).is_ok() {
        return Ok(Some(Contents { text: "a Belemnite store".into(), is_store: true }));
    }
    let mut dev = ReadOnly { file, bytes };
    let found = {
        let dev = std::cell::RefCell::new(&mut dev);
        reactor::disk::find_signature(&|off, len| dev.borrow_mut().read_many(&[(off, len)]).pop()?.ok(), bytes)
    };
    Ok(found.map(|s| {
        let text = s.to_string();
        Contents { is_store: text == "a Belemnite store", text }
    }))
}

/// Size of the store on a file or device, in bytes; `None` if there is none.
pub(super) fn size(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let bytes = file.seek(SeekFrom::End(0)).ok()?;
    Some(::store::engine::probe(&mut ReadOnly { file, bytes }).ok()?.size())
}

/// Bytes of a file that are zero where nothing was written.
const HEAD: u64 = 64 << 10;

/// True if a file has nothing but zeros at its start.
///
/// # Errors
/// It cannot be read.
pub(super) fn begins_with_zeros(path: &Path) -> Result<bool, Error> {
    let shown = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut head = Vec::new();
    File::open(path).map_err(shown)?.take(HEAD).read_to_end(&mut head).map_err(shown)?;
    Ok(head.iter().all(|b| *b == 0))
}
