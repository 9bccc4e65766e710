//! Tickets of this OSD and the rotating secrets of its peers' tickets: both are renewed in time, and given to all
//! reactors.

use super::ControlHost;
use crate::host::keyring;
use crate::host::route::ToReactor;
use auth::server::ServiceHost;
use net::{ConnId, OsRandom};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;
use wire::msg::{MAuth, MAuthReply};
use wire::{Message, WireMessage as _};

/// Interval at which tickets and secrets are checked.
const TICKET_CHECK: Duration = Duration::from_secs(10);
/// Interval at which secrets are checked while there are none yet.
const TICKET_CHECK_FIRST: Duration = Duration::from_millis(100);
/// Number of the cephx protocol in `MAuth`.
const CEPHX: u32 = 2;

/// Tickets and secrets; see the module.
pub(super) struct Tickets {
    auth: Rc<RefCell<auth::Client>>,
    /// File of the key.
    keyring: Option<PathBuf>,
    service: Rc<ServiceHost>,
    renewing: Cell<bool>,
    /// The monitor session on which the rotating secrets were asked for.
    secrets_from: Cell<Option<ConnId>>,
}

impl Tickets {
    /// Tickets of `auth`, secrets of `service`.
    pub(super) fn new(auth: Rc<RefCell<auth::Client>>, keyring: Option<PathBuf>, service: Rc<ServiceHost>) -> Self {
        Self { auth, keyring, service, renewing: Cell::new(false), secrets_from: Cell::new(None) }
    }

    /// True if peers cannot be authenticated without new secrets.
    pub(super) fn lacks_secrets(&self) -> bool {
        self.service.need_fetch(clock::now().wall)
    }

    /// A request on the monitor's session gets no answer any more.
    pub(super) fn session_ended(&self) {
        self.renewing.set(false);
    }

    /// The monitor refused the OSD. It may refuse old tickets because it has lost their secrets.
    pub(super) fn refused(&self) {
        self.auth.borrow_mut().forget();
        keyring::read_again(self.keyring.clone(), &self.auth);
    }
}

impl ControlHost {
    /// Handles an answer of the monitor about tickets.
    pub(super) fn host_message(&self, m: &Message) {
        if m.header.kind != MAuthReply::KIND {
            tracing::debug!(kind = m.header.kind, "message of the monitor is not used");
            return;
        }
        self.tickets.renewing.set(false);
        let r = match MAuthReply::from_message(m) {
            Ok(r) => r,
            Err(error) => return tracing::warn!(%error, "authentication reply not understood"),
        };
        let keys = self.tickets.auth.borrow_mut().handle_reply(clock::now().wall, &r.auth_payload);
        match keys {
            Ok(Some(keys)) => {
                self.tickets.service.set_keys(keys.clone());
                self.routes.all(|| ToReactor::Keys(keys.clone()));
                self.with(|c, now| c.set_ready(now));
            }
            Ok(None) => self.spread_tickets(),
            Err(error) => tracing::warn!(%error, "tickets or secrets not renewed"),
        }
    }

    /// Gives the other reactors the tickets for connecting to other OSDs.
    pub(super) fn spread_tickets(&self) {
        let auth = self.tickets.auth.borrow().clone();
        self.routes.all(|| ToReactor::Tickets(Box::new(auth.clone())));
    }

    fn look_after_tickets(&self) {
        if self.tickets.renewing.get() || !self.core.borrow_mut().mon().is_open() {
            return;
        }
        let now = clock::now().wall;
        if self.tickets.auth.borrow().must_sign_in_again(now) {
            // The session's own ticket expires soon; a new session brings a new ticket.
            self.sessions.close_mon(&self.net);
            self.with(|c, now| c.handle_mon_closed(now));
            return;
        }
        // A monitor whose state is a backup has other secrets than before under the same numbers.
        let first = self.tickets.service.checks_tickets() && self.tickets.secrets_from.get() != self.sessions.mon();
        let payload = if first || self.tickets.service.need_fetch(now) {
            self.tickets.secrets_from.set(self.sessions.mon());
            Some(Ok(self.tickets.auth.borrow().rotating_request()))
        } else {
            let due = self.tickets.auth.borrow().due(now);
            (due != 0).then(|| self.tickets.auth.borrow().renewal_request(due, &OsRandom))
        };
        match payload {
            Some(Ok(auth_payload)) => {
                let m = MAuth { protocol: CEPHX, auth_payload, ..MAuth::default() };
                let sent = self.with(|c, _| c.mon().send_now(&m));
                self.tickets.renewing.set(sent);
            }
            Some(Err(error)) => tracing::warn!(%error, "tickets cannot be renewed"),
            None => {}
        }
    }
}

/// Keeps tickets and secrets fresh.
pub(super) async fn tickets(c: Weak<ControlHost>) {
    loop {
        let wait = {
            let Some(c) = c.upgrade() else { return };
            c.look_after_tickets();
            if c.tickets.lacks_secrets() { TICKET_CHECK_FIRST } else { TICKET_CHECK }
        };
        tokio::time::sleep(wait).await;
    }
}
