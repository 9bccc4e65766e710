//! Labels of stores, read without the lock that a running OSD holds.

use crate::admin::StoreLabels;
use ::store::engine::device::Device;
use base::errno::{EIO, EROFS, Errno};
use bytes::Bytes;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

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
