//! Commands to daemons (`ceph tell`), each on a connection of its own.

use super::{ClientError, CommandReply};
use base::Uuid;
use bytes::Bytes;
use net::{ConnEvent, ConnId, EndpointConfig, Handler, Net, Target};
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::oneshot;
use wire::WireMessage as _;
use wire::msg::{MCommand, MCommandReply};

struct Asked {
    net: Net,
    ask: MCommand,
    answer: RefCell<Option<oneshot::Sender<Result<CommandReply, ClientError>>>>,
}

impl Handler for Asked {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let done = match event {
            ConnEvent::Open(peer) => {
                // If the connection is gone, an event says so.
                let _ = self.net.send(conn, self.ask.to_message(peer.features));
                return;
            }
            ConnEvent::Message(m) if m.header.kind == MCommandReply::KIND => MCommandReply::from_message(&m)
                .map(|r| CommandReply { rc: r.r, status: r.rs.0, out: m.data.clone() })
                .map_err(ClientError::Decode),
            // An OSD first sends its map, which only operations need.
            ConnEvent::Message(_) => return,
            ConnEvent::Closed(reason) => {
                tracing::debug!(%reason, "connection for a command ended");
                Err(ClientError::Closed)
            }
        };
        let answer = self.answer.borrow_mut().take();
        if let Some(a) = answer {
            // The receiver is gone if the caller gave the command up.
            let _ = a.send(done);
        }
    }
}

/// Closes the endpoint of a command, even if the caller gave it up.
struct Closes(net::Endpoint);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

pub(super) async fn tell(
    net: &Net,
    config: EndpointConfig,
    fsid: Uuid,
    target: Target,
    (json, input): (&str, Bytes),
) -> Result<CommandReply, ClientError> {
    let (tx, rx) = oneshot::channel();
    let ask = MCommand { fsid, cmd: vec![json.into()], data: input };
    let asked = Rc::new(Asked { net: net.clone(), ask, answer: RefCell::new(Some(tx)) });
    let endpoint = Closes(net.endpoint(config, asked));
    // The end of this connection is an event as well.
    let _conn = endpoint.0.connect(target);
    rx.await.unwrap_or(Err(ClientError::Closed))
}
