//! `ceph tell osd.N grow`: the OSD extends its store to an enlarged file or device, while it serves.

use super::control::ControlHost;
use super::reactor_host::ReactorHost;
use super::route::{Ask, ToReactor};
use base::errno::{self, EBUSY, EINVAL, EIO, ENOTCONN, Errno};
use serde_json::{Value, json};
use std::rc::Rc;
use store::ReadError;
use store::engine::Growth;

/// Answer of a reactor to a step.
pub(crate) type Outcome = Result<(), (Errno, String)>;

/// Takes one reactor's store through a step.
pub(super) async fn step(host: Rc<ReactorHost>, step: Growth) -> Outcome {
    match host.read(|store, tag| store.grow(tag, step)).await {
        Ok(()) => Ok(()),
        Err(ReadError::Io { what, errno }) => Err((errno, what)),
        Err(e) => Err((EIO, format!("{e:?}"))),
    }
}

async fn everywhere(host: &ControlHost, reactors: usize, step: Growth) -> Outcome {
    for i in 0..reactors {
        let (tx, rx) = tokio::sync::oneshot::channel();
        host.routes.reactor(i, ToReactor::Ask(Ask::Grow(step, tx)));
        rx.await.map_err(|_| (ENOTCONN, "stopping".to_owned()))??;
    }
    Ok(())
}

/// Takes all stores through all steps. Does nothing, without an error, if the device has not grown.
pub(super) async fn run(host: &ControlHost) -> Result<Value, (Errno, String)> {
    if !host.device.begin_growing() {
        return Err((EBUSY, "growing is under way".to_owned()));
    }
    let done = grow(host).await;
    host.device.end_growing();
    done
}

async fn grow(host: &ControlHost) -> Result<Value, (Errno, String)> {
    let size = || host.reactor.store_size();
    let before = size();
    let bytes = host.device.file().measure().map_err(|e| (e, format!("the device's size: {}", errno::name(e))))?;
    if bytes < before {
        return Err((EINVAL, format!("the device has {bytes} bytes, the store {before}; a store can't shrink")));
    }
    if bytes >= host.reactor.grows_from() {
        let all = host.routes.reactors.len();
        everywhere(host, all, Growth::Begin(bytes)).await?;
        everywhere(host, 1, Growth::Name).await?;
        everywhere(host, all, Growth::Switch).await?;
        everywhere(host, 1, Growth::Use).await?;
        tracing::info!(before, bytes, "the store has grown");
    }
    Ok(json!({ "before": before, "size": size(), "device": bytes }))
}
