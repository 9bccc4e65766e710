//! Signing in at a monitor by messages, as clients of msgr1 do: the first `MAuth` of a connection names the entity and the
//! methods that it knows; later ones are those of [`crate::server::Handshake`] with the chosen method.
//!
//! Source of the first payload: Ceph's `mon/MonClient.cc` (`MonConnection::start`) and Linux's `net/ceph/auth.c`
//! (`ceph_auth_build_hello`).

use crate::server::{AuthHost, Handshake, MODE_MON, Step};
use crate::{AuthError, Method, Random};
use base::{AuthName, Utime};
use wire::{Features, Reader, Writer};

/// Most methods in the first message.
const METHODS_MAX: usize = 32;

/// Starts `handshake` with the payload of the first `MAuth`: u8 version, the methods as a list of u32, name, u64 global
/// id. Returns the chosen method, the global id for the answer, and the first step. Error: no common method, a malformed payload, or one of
/// [`Handshake::request`].
pub fn hello(
    handshake: &mut Handshake,
    host: &dyn AuthHost,
    random: &dyn Random,
    now: Utime,
    payload: &[u8],
) -> Result<(Method, u64, Step), AuthError> {
    let mut r = Reader::new(payload);
    r.u8()?;
    let n = r.count(4, "methods")?;
    if n > METHODS_MAX {
        return Err(wire::DecodeError::BadValue { what: "number of methods", value: n as u64 }.into());
    }
    let mut offered = Vec::with_capacity(n);
    for _ in 0..n {
        offered.push(Method(r.u32()?));
    }
    let (name, global_id) = (r.get::<AuthName>()?, r.u64()?);
    let method = host.methods().into_iter().find(|m| offered.contains(m));
    let method = method.ok_or_else(|| AuthError::MethodNotAllowed(offered.first().map_or(0, |m| m.0)))?;
    let mut w = Writer::new(Features::PACIFIC);
    w.u8(MODE_MON);
    w.put(&name);
    w.u64(global_id);
    let step = handshake.request(host, random, now, method, w.as_slice())?;
    Ok((method, handshake.reserve_id(host)?, step))
}
