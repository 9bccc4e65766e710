//! What opening and formatting need of a device: sequential I/O, many reads at once.

use super::Store;
use base::device::{IoCompletion, IoKind};
use base::errno::Errno;
use bytes::Bytes;

/// A device used by one thread while nothing else runs. Offsets and lengths are multiples of a block.
pub trait Device {
    /// Size in bytes.
    fn bytes(&self) -> u64;
    /// Reads ranges `(offset, length)`; results in order.
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>>;
    /// Writes page-aligned bytes.
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), Errno>;
    /// Makes all writes durable.
    fn flush(&mut self) -> Result<(), Errno>;
}

/// Executes what a store asks for until it is idle. For opening, tools and tests.
pub fn drive(store: &mut Store, dev: &mut dyn Device) {
    loop {
        store.end_turn();
        let mut any = false;
        while let Some(r) = store.poll_io() {
            any = true;
            let result = match r.kind {
                IoKind::Read { off, len } => {
                    dev.read_many(&[(off, u64::from(len))]).pop().unwrap_or(Err(base::errno::EIO))
                }
                IoKind::Write { off, bufs } => dev.write(off, &bufs).map(|()| Bytes::new()),
                IoKind::Flush => dev.flush().map(|()| Bytes::new()),
                IoKind::Discard { .. } => Ok(Bytes::new()),
            };
            store.handle_io(IoCompletion { id: r.id, result });
        }
        if !any {
            return;
        }
    }
}
