//! One end of a connection of either protocol.

use crate::conn::{Config, Connection, Event, Peer};
use crate::error::Error;
use crate::policy::Policy;
use crate::session::SessionView;
use crate::v1;
use auth::ConMode;
use base::{Now, Utime};
use bytes::Bytes;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use wire::Message;

/// Protocol of a listening port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// msgr2.1.
    #[default]
    V2,
    /// msgr1, for clients.
    V1,
}

/// A connection of either protocol. The methods are those of [`Connection`].
#[derive(Debug)]
#[allow(missing_docs, reason = "the variants are the protocols")]
#[allow(clippy::large_enum_variant, reason = "nearly all connections are of msgr2, which pay for no box")]
pub enum Machine {
    V2(Connection),
    V1(Box<v1::Connection>),
}

macro_rules! either {
    ($me:expr, $c:ident => $e:expr) => {
        match $me {
            Machine::V2($c) => $e,
            Machine::V1($c) => $e,
        }
    };
}

impl Machine {
    /// The server end of a socket that was accepted at a port of `protocol`.
    #[must_use]
    pub fn server(cfg: Rc<Config>, socket: SocketAddr, protocol: Protocol) -> Self {
        match protocol {
            Protocol::V2 => Self::V2(Connection::server(cfg, socket)),
            Protocol::V1 => Self::V1(Box::new(v1::Connection::server(cfg, socket))),
        }
    }

    /// The msgr2 connection, which alone may be lossless. Error: [`Error::NotAccepting`] for one of msgr1.
    pub fn v2(&mut self) -> Result<&mut Connection, Error> {
        match self {
            Self::V2(c) => Ok(c),
            Self::V1(_) => Err(Error::NotAccepting),
        }
    }

    /// Restarts the handshake on a new socket; one of msgr1 is never dialled.
    pub fn reconnect(&mut self) {
        if let Self::V2(c) = self {
            c.reconnect();
        }
    }

    /// Handles the loss of the socket; true if the session can be resumed.
    pub fn disconnected(&mut self) -> bool {
        match self {
            Self::V2(c) => c.disconnected(),
            Self::V1(c) => {
                c.disconnected();
                false
            }
        }
    }

    /// State of a msgr2 session for [`crate::session::decide`].
    #[must_use]
    pub fn view(&self) -> Option<SessionView> {
        match self {
            Self::V2(c) => Some(c.view()),
            Self::V1(_) => None,
        }
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        either!(self, c => c.peer())
    }

    /// Connection mode.
    #[must_use]
    pub fn mode(&self) -> ConMode {
        match self {
            Self::V2(c) => c.mode(),
            Self::V1(_) => ConMode::CRC,
        }
    }

    /// True if the session ends with its socket.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        match self {
            Self::V2(c) => c.is_lossy(),
            Self::V1(_) => true,
        }
    }

    /// True if the session is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        either!(self, c => c.is_open())
    }

    /// True if the socket should be closed once the output is written.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        either!(self, c => c.is_closing())
    }

    /// True if the peer connected to us.
    #[must_use]
    pub fn is_incoming(&self) -> bool {
        match self {
            Self::V2(c) => c.is_incoming(),
            Self::V1(_) => true,
        }
    }

    /// Name of the state, for logs.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        either!(self, c => c.state_name())
    }

    /// Bytes held for the peer.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        either!(self, c => c.output_bytes())
    }

    /// Policy in force for this peer.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        either!(self, c => c.policy())
    }

    /// Adds bytes read from the socket.
    pub fn feed(&mut self, b: Bytes) {
        either!(self, c => c.feed(b));
    }

    /// Takes the unparsed input; the host puts it in front of the next read.
    pub fn take_pending(&mut self) -> Bytes {
        either!(self, c => c.take_pending())
    }

    /// Length of the unparsed input.
    #[must_use]
    pub fn pending(&self) -> usize {
        either!(self, c => c.pending())
    }

    /// Buffer to read into while a large frame is incomplete.
    pub fn target(&mut self) -> Option<&mut [u8]> {
        either!(self, c => c.target())
    }

    /// Bytes of an announced frame that waits for [`Machine::grant`].
    #[must_use]
    pub fn asks(&self) -> Option<usize> {
        either!(self, c => c.asks())
    }

    /// Allows the memory of the announced frame.
    pub fn grant(&mut self) {
        either!(self, c => c.grant());
    }

    /// Bytes that have arrived of a granted, incomplete frame, and those of the whole frame.
    #[must_use]
    pub fn partial(&self) -> Option<(usize, usize)> {
        either!(self, c => c.partial())
    }

    /// Reports that `n` bytes were read into [`Machine::target`].
    pub fn received(&mut self, n: usize) {
        either!(self, c => c.received(n));
    }

    /// Queues a message. Error: the output cannot be protected any more.
    pub fn send(&mut self, m: Message) -> Result<(), Error> {
        either!(self, c => c.send(m))
    }

    /// Queues a keepalive. Error: as [`Machine::send`].
    pub fn keepalive(&mut self, now: Utime) -> Result<(), Error> {
        match self {
            Self::V2(c) => c.keepalive(now),
            Self::V1(c) => {
                c.keepalive(now);
                Ok(())
            }
        }
    }

    /// Prepares the output for a write. Error: as [`Machine::send`].
    pub fn prepare_flush(&mut self) -> Result<(), Error> {
        match self {
            Self::V2(c) => c.prepare_flush(),
            Self::V1(_) => Ok(()),
        }
    }

    /// True if there is output to write now.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        either!(self, c => c.wants_write())
    }

    /// True if received messages are unacknowledged.
    #[must_use]
    pub fn owes_ack(&self) -> bool {
        match self {
            Self::V2(c) => c.owes_ack(),
            Self::V1(_) => false,
        }
    }

    /// Fills in the next slices to write and returns their number.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        either!(self, c => c.slices(out))
    }

    /// Number of slices in the whole output.
    #[must_use]
    pub fn parts(&self) -> usize {
        either!(self, c => c.parts())
    }

    /// Reports that the socket took `n` bytes. Error: as [`Machine::send`].
    pub fn advance(&mut self, n: usize) -> Result<(), Error> {
        either!(self, c => c.advance(n))
    }

    /// Encoded bytes that are not yet written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        either!(self, c => c.unwritten())
    }

    /// Returns the next event, parsing input as needed. Error: the connection must be closed.
    pub fn poll_event(&mut self, now: Now) -> Result<Option<Event>, Error> {
        either!(self, c => c.poll_event(now))
    }
}
