//! Running a store on a blocking device, for opening, tools and tests.

use super::Store;
use crate::api::{Event, ObjectStore, ReadError, Tag};
use crate::layout::BLOCK;
use crate::txn::Transaction;
pub use base::device::Device;
use base::device::{IoCompletion, IoKind};
use base::errno::EIO;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// Most attempts of a waiting transaction; each attempt brings at least one page.
const TRIES: usize = 1 << 20;

/// Runs a transaction to its end and drops other events of the store. A transaction that can't be prepared leaves no
/// plan behind. Error: preparing failed, or the device refused the transaction ([`ReadError::Io`]); never
/// [`ReadError::Wait`].
pub fn submit(store: &mut Store, dev: &mut dyn Device, tag: Tag, txn: Transaction) -> Result<(), ReadError> {
    let mut tries = 0..TRIES;
    while let Err(e) = store.prepare(tag, &txn) {
        let e = match e {
            ReadError::Wait if tries.next().is_some() => {
                drive(store, dev);
                continue;
            }
            ReadError::Wait => ReadError::Io { what: format!("transaction {} waits for ever", tag.0), errno: EIO },
            e => e,
        };
        store.release(tag);
        return Err(e);
    }
    store.submit(tag, txn);
    drive(store, dev);
    let mut end = None;
    while let Some(e) = store.poll_event() {
        if let Event::Durable(t, r) = e
            && t == tag
        {
            end = Some(r);
        }
    }
    let failed = |errno| ReadError::Io { what: format!("the device refused transaction {}", tag.0), errno };
    end.unwrap_or(Err(EIO)).map_err(failed)
}

/// Executes the store's requests until it is idle. For opening, tools and tests.
pub fn drive(store: &mut Store, dev: &mut dyn Device) {
    loop {
        store.end_turn();
        let mut any = false;
        while let Some(r) = store.poll_io() {
            any = true;
            let result = match r.kind {
                IoKind::Read { off, len } => dev.read_many(&[(off, u64::from(len))]).pop().unwrap_or(Err(EIO)),
                IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => {
                    dev.write(off, &bufs).map(|()| Bytes::new())
                }
                IoKind::Flush => dev.flush().map(|()| Bytes::new()),
                IoKind::Discard { off, len } => dev.discard(off, len).map(|()| Bytes::new()),
            };
            store.handle_io(IoCompletion { id: r.id, result });
        }
        if !any && !store.wants_turn() {
            return;
        }
    }
}

/// A device whose writes stay in memory, so that a store can be opened without a change of the device.
#[derive(Debug)]
pub struct Overlay<D> {
    dev: D,
    blocks: BTreeMap<u64, Bytes>,
}

impl<D: Device> Overlay<D> {
    /// A view of `dev`.
    pub fn new(dev: D) -> Self {
        Self { dev, blocks: BTreeMap::new() }
    }
}

impl<D: Device> Device for Overlay<D> {
    fn bytes(&self) -> u64 {
        self.dev.bytes()
    }

    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, base::errno::Errno>> {
        let below = self.dev.read_many(ranges);
        let over = |(read, (off, len)): (Result<Bytes, _>, &(u64, u64))| {
            let (first, end) = (off / BLOCK, (off + len) / BLOCK);
            let written = self.blocks.range(first..end);
            if written.clone().next().is_none() {
                return read;
            }
            // A range that was written completely needs nothing of the device.
            let mut all = match read {
                Ok(b) => BytesMut::from(&b[..]),
                Err(_) if written.clone().count() as u64 == end - first => BytesMut::zeroed(*len as usize),
                Err(e) => return Err(e),
            };
            for (b, data) in written {
                let at = ((b - first) * BLOCK) as usize;
                if let Some(to) = all.get_mut(at..at + data.len()) {
                    to.copy_from_slice(data);
                }
            }
            let mut aligned = base::buf::AlignedBuf::zeroed(all.len());
            aligned.copy_from_slice(&all);
            Ok(aligned.freeze())
        };
        below.into_iter().zip(ranges).map(over).collect()
    }

    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), base::errno::Errno> {
        let mut block = off / BLOCK;
        for d in data {
            for b in d.chunks(BLOCK as usize) {
                self.blocks.insert(block, Bytes::copy_from_slice(b));
                block += 1;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), base::errno::Errno> {
        Ok(())
    }
}
