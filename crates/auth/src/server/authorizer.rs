//! Authorizers: tickets that a client presents to a service, with the answer to the service's challenge.

use super::{AuthHost, Granted, MODE_AUTHORIZER, connection_secret, unknown_secret};
use crate::crypto::Usage;
use crate::ticket::{ServiceTicket, TicketBlob};
use crate::{AuthError, ConMode, Random};
use base::{EntityKind, Utime};
use wire::{Reader, Writer};

/// An authorizer whose ticket was decrypted.
pub(super) struct Authorizer {
    ticket: ServiceTicket,
    nonce: u64,
    /// Answer to the challenge, plus one.
    answer: Option<u64>,
}

impl Authorizer {
    /// The ticket.
    pub(super) fn ticket(&self) -> &ServiceTicket {
        &self.ticket
    }

    /// Decodes u8 1, u64 global id, u32 service, ticket, blob enc{u8 2, u64 nonce, bool has answer, u64 answer}; the
    /// input after it is returned, too.
    pub(super) fn open<'r>(
        r: &mut Reader<'r>,
        host: &dyn AuthHost,
        now: Utime,
        want: EntityKind,
    ) -> Result<(Self, Reader<'r>), AuthError> {
        let (global_id, service, blob) = (r.u64()?, r.u32()?, r.get::<TicketBlob>()?);
        if service != u32::from(want.0) {
            return Err(AuthError::WrongService { want: want.0.into(), got: service });
        }
        let (_, secret) =
            host.service_key(want, Some(blob.secret_id)).ok_or_else(|| unknown_secret(host, want, blob.secret_id))?;
        let foreign = |_| AuthError::ForeignTicket { service: want, id: blob.secret_id };
        let ticket = ServiceTicket::open(&blob, &secret).map_err(foreign)?;
        ticket.check_time(now)?;
        if ticket.ticket.global_id != global_id {
            return Err(AuthError::GlobalIdMismatch { want: ticket.ticket.global_id, got: global_id });
        }
        let plain = ticket.session_key.open(Usage::Authorize, &r.blob()?, "authorizer")?;
        let mut p = Reader::new(&plain);
        let v = p.u8()?;
        let nonce = p.u64()?;
        let answer = if v >= 2 && p.bool()? { Some(p.u64()?) } else { None };
        Ok((Self { ticket, nonce, answer }, r.clone()))
    }
}

/// Checks the answer to our challenge in an authorizer, and makes the reply.
pub(super) fn check_answer(
    host: &dyn AuthHost,
    random: &dyn Random,
    now: Utime,
    mode: ConMode,
    payload: &[u8],
    challenge: u64,
) -> Result<Granted, AuthError> {
    let mut r = Reader::new(payload);
    let m = r.u8()?;
    if m != MODE_AUTHORIZER {
        return Err(AuthError::UnknownMode(m));
    }
    let (a, _) = Authorizer::open(&mut r, host, now, host.service())?;
    if a.answer != Some(challenge.wrapping_add(1)) {
        return Err(AuthError::BadChallenge);
    }
    let connection_secret = connection_secret(mode, random);
    let mut w = Writer::default();
    w.blob(&a.ticket.session_key.seal(Usage::AuthorizeReply, random, |w| {
        let secure = !connection_secret.is_empty();
        w.u8(if secure { 2 } else { 1 });
        w.u64(a.nonce.wrapping_add(1));
        if secure {
            w.blob(&connection_secret);
        }
    }));
    Ok(Granted {
        reply: w.into_bytes(),
        name: a.ticket.ticket.name,
        global_id: a.ticket.ticket.global_id,
        caps: a.ticket.ticket.caps,
        session_key: Some(a.ticket.session_key),
        connection_secret,
        expires: a.ticket.ticket.expires,
        proved: a.ticket.proved,
    })
}
