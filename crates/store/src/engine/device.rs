//! Running a store on a blocking device, for opening, tools and tests.

use super::Store;
pub use base::device::Device;
use base::device::{IoCompletion, IoKind};
use bytes::Bytes;

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
                IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => {
                    dev.write(off, &bufs).map(|()| Bytes::new())
                }
                IoKind::Flush => dev.flush().map(|()| Bytes::new()),
                IoKind::Discard { off, len } => dev.discard(off, len).map(|()| Bytes::new()),
            };
            store.handle_io(IoCompletion { id: r.id, result });
        }
        if !any {
            return;
        }
    }
}
