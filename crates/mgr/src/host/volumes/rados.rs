//! A file system of the cluster: MDS daemons, and objects in data pools.

use super::fs::{Backend, Local, Object};
use crate::monitor::Monitor;
use base::errno::{EIO, ETIMEDOUT, Errno};
use base::{PoolId, SnapId};
use bytes::Bytes;
use client::core::mds::request::{Answer, Request};
use client::host::mds::Files;
use client::host::{Client, ClientError, ObjectRef};
use std::rc::Rc;
use wire::msg::osd_op::Extent;
use wire::msg::{MOsdOpReply, OpCode, OsdOp};
use wire::types::{ObjectLocator, SnapContext};

pub(super) struct Rados {
    files: Rc<Files>,
    client: Client,
    monitor: Rc<dyn Monitor>,
}

impl Rados {
    pub(super) fn new(client: &Client, monitor: Rc<dyn Monitor>, fscid: i32) -> Self {
        let view = Rc::clone(&monitor);
        let files = Files::new(client, Box::new(move || view.ranks(fscid)));
        Self { files, client: client.clone(), monitor }
    }
}

fn object(o: Object) -> ObjectRef {
    let mut locator = ObjectLocator::new(o.pool);
    locator.nspace = o.nspace.into();
    ObjectRef { locator, oid: o.oid }
}

fn answered(r: Result<MOsdOpReply, ClientError>) -> Result<MOsdOpReply, Errno> {
    match r {
        Ok(r) if r.result < 0 => Err(r.result),
        Ok(r) => Ok(r),
        Err(ClientError::Errno(e)) => Err(e),
        Err(ClientError::Closed) => Err(ETIMEDOUT),
        Err(_) => Err(EIO),
    }
}

impl Backend for Rados {
    fn call(&self, r: Request) -> Local<'_, Result<Box<Answer>, Errno>> {
        Box::pin(self.files.call(r))
    }

    fn sync(&self) -> Local<'_, ()> {
        Box::pin(self.files.sync())
    }

    fn read(&self, o: Object, snap: SnapId, e: Extent) -> Local<'_, Result<Bytes, Errno>> {
        Box::pin(async move {
            let mut op = OsdOp::new(OpCode::READ);
            op.set_extent(e);
            let r = answered(self.client.op_at(&object(o), vec![op], snap).await)?;
            Ok(r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default())
        })
    }

    fn write(&self, o: Object, snapc: SnapContext, at: u64, data: Bytes) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            let op = OsdOp::with_extent(OpCode::WRITE, at, data.len() as u64, data);
            answered(self.client.op_in(&object(o), vec![op], snapc).await).map(|_| ())
        })
    }

    fn pool_name(&self, pool: PoolId) -> Option<String> {
        self.monitor.osdmap().pool_name(pool).map(str::to_owned)
    }

    fn osd_epoch(&self) -> u32 {
        self.monitor.osdmap().epoch.0
    }
}
