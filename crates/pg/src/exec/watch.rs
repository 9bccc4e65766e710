//! Watch, notify and acknowledgement as operations. Their effects take place when the vector is durable.

use super::{OpCtx, Step};
use crate::limits::{NOTIFY_BYTES_MAX, NOTIFY_TIMEOUT, WATCH_OPS_MAX, WATCH_TIMEOUT, WATCH_TIMEOUT_MAX};
use crate::object::WatchInfo;
use crate::object::info::WatchKey;
use base::errno::{EBUSY, EINVAL, EMSGSIZE, ENOENT, ENOTCONN, ETIMEDOUT};
use bytes::Bytes;
use std::time::Duration;
use wire::codec::Result as Decoded;
use wire::msg::OsdOp;
use wire::msg::osd_op::WatchArgs;
use wire::types::{ListWatchersReply, WatchItem};
use wire::{Encode, Features, Reader};

/// Connects a watch to the session of the operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WatchConnect {
    pub key: WatchKey,
    pub timeout: Duration,
    /// The client sends pings; without them an open session keeps the watch alive.
    pub pings: bool,
}

/// Ends a watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WatchDisconnect {
    pub key: WatchKey,
    /// Tell the watcher, since it did not ask for the end.
    pub tell: bool,
}

/// Starts a notify.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotifyStart {
    pub id: u64,
    pub cookie: u64,
    pub timeout: Duration,
    pub payload: Bytes,
}

/// An acknowledgement of a notify.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotifyAck {
    pub id: u64,
    /// Cookie of the watch; `None` acknowledges for all watches of the client.
    pub cookie: Option<u64>,
    pub reply: Bytes,
}

/// Watch operations of a vector, carried out when it is durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WatchEffects {
    pub connects: Vec<WatchConnect>,
    pub disconnects: Vec<WatchDisconnect>,
    pub notifies: Vec<NotifyStart>,
    pub acks: Vec<NotifyAck>,
    pub pings: Vec<WatchKey>,
}

impl WatchEffects {
    /// True if the vector has no watch operations.
    pub(crate) fn is_empty(&self) -> bool {
        self.connects.is_empty()
            && self.disconnects.is_empty()
            && self.notifies.is_empty()
            && self.acks.is_empty()
            && self.pings.is_empty()
    }
}

impl WatchEffects {
    /// Bytes of the payloads and acknowledgements in the vector.
    fn notify_bytes(&self) -> usize {
        let starts = self.notifies.iter().map(|n| n.payload.len());
        starts.chain(self.acks.iter().map(|a| a.reply.len())).sum()
    }

    /// Number of watch operations in the vector.
    pub(crate) fn len(&self) -> usize {
        self.connects.len() + self.disconnects.len() + self.notifies.len() + self.acks.len() + self.pings.len()
    }
}

/// The timeout that a client asks for, with default and maximum.
fn timeout(seconds: u32, default: Duration) -> Duration {
    if seconds == 0 { default } else { Duration::from_secs(seconds.into()).min(WATCH_TIMEOUT_MAX) }
}

impl OpCtx<'_> {
    /// Refuses the vector if it has too many watch operations: each may concern all watches and notifies of the object.
    fn one_watch_more(&self) -> Step<()> {
        if self.effects.len() < WATCH_OPS_MAX { Ok(()) } else { Err(EINVAL.into()) }
    }

    pub(super) fn op_watch(&mut self, op: &OsdOp) -> Step<i32> {
        self.one_watch_more()?;
        let a = op.watch();
        if !self.exists {
            return Err(ENOENT.into());
        }
        let key = (a.cookie, self.env.reqid.name);
        let timeout = timeout(a.timeout, WATCH_TIMEOUT);
        match a.op {
            WatchArgs::WATCH | WatchArgs::LEGACY_WATCH => {
                if !self.oi.watchers.contains_key(&key) {
                    let info = WatchInfo { timeout_seconds: timeout.as_secs() as u32, addr: self.env.addr };
                    self.oi.watchers.insert(key, info);
                    self.change.any = true;
                }
                self.effects.connects.push(WatchConnect { key, timeout, pings: a.op == WatchArgs::WATCH });
            }
            WatchArgs::RECONNECT => {
                let Some(w) = self.oi.watchers.get(&key) else { return Err(ENOTCONN.into()) };
                let timeout = Duration::from_secs(w.timeout_seconds.into());
                self.effects.connects.push(WatchConnect { key, timeout, pings: true });
            }
            WatchArgs::PING => {
                if !self.oi.watchers.contains_key(&key) {
                    return Err(ENOTCONN.into());
                }
                if !self.env.watches.is_connected(self.head, &key) {
                    return Err(ETIMEDOUT.into());
                }
                self.effects.pings.push(key);
            }
            WatchArgs::UNWATCH => {
                if self.oi.watchers.remove(&key).is_some() {
                    self.change.any = true;
                    self.effects.disconnects.push(WatchDisconnect { key, tell: false });
                }
            }
            _ => return Err(EINVAL.into()),
        }
        Ok(0)
    }

    pub(super) fn op_notify(&mut self, op: &mut OsdOp) -> Step<i32> {
        self.one_watch_more()?;
        let mut r = Reader::shared(&op.indata);
        let decoded = (|| -> Decoded<_> {
            r.u32()?;
            Ok((r.u32()?, r.blob()?))
        })();
        // A notify without input has no payload.
        let (seconds, payload) = match decoded {
            Err(_) if !op.indata.is_empty() => return Err(EINVAL.into()),
            d => d.unwrap_or_default(),
        };
        if payload.len() > NOTIFY_BYTES_MAX {
            return Err(EMSGSIZE.into());
        }
        let (mine, bytes) = (self.effects.notifies.len(), self.effects.notify_bytes() + payload.len());
        if !self.env.watches.has_room(mine + 1, bytes) {
            return Err(EBUSY.into());
        }
        let id = self.env.watches.take_notify_id(self.env.epoch);
        self.effects.notifies.push(NotifyStart {
            id,
            cookie: op.notify_cookie(),
            timeout: timeout(seconds, NOTIFY_TIMEOUT),
            payload,
        });
        op.outdata = id.to_bytes(Features::PACIFIC);
        Ok(0)
    }

    pub(super) fn op_notify_ack(&mut self, op: &OsdOp) -> Step<i32> {
        self.one_watch_more()?;
        let mut r = Reader::shared(&op.indata);
        let decoded = (|| -> Decoded<_> {
            let (id, cookie) = (r.u64()?, r.u64()?);
            let reply = if r.is_empty() { Bytes::new() } else { r.blob()? };
            Ok(NotifyAck { id, cookie: Some(cookie), reply })
        })();
        let ack = match decoded {
            Ok(a) => a,
            // Old clients send the notify's id in place of the cookie.
            Err(_) if op.indata.is_empty() => NotifyAck { id: op.notify_cookie(), cookie: None, reply: Bytes::new() },
            Err(_) => return Err(EINVAL.into()),
        };
        if !ack.reply.is_empty() && !self.env.watches.has_room(0, self.effects.notify_bytes() + ack.reply.len()) {
            return Err(EMSGSIZE.into());
        }
        self.effects.acks.push(ack);
        Ok(0)
    }

    pub(super) fn op_list_watchers(&mut self, op: &mut OsdOp) -> Step<i32> {
        self.delta.num_rd += 1;
        let entries = self
            .oi
            .watchers
            .iter()
            .map(|((cookie, name), w)| WatchItem {
                name: *name,
                cookie: *cookie,
                timeout_seconds: w.timeout_seconds,
                addr: w.addr,
            })
            .collect();
        op.outdata = ListWatchersReply { entries }.to_bytes(Features(self.env.features));
        Ok(0)
    }
}
