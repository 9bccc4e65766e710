//! Class `otp`: time-based one-time passwords (RFC 6238), used for radosgw's multi-factor authentication.
//!
//! Keys: `header` → set of ids, `otp/<id>` → secret, recent checks, last step used. A failing vector changes nothing,
//! so a check cannot both count and report a failure. `otp_check` therefore stores the result under the caller's token,
//! and `otp_get_result` returns it.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{LIST_BYTES, enc, fail, input, join, omap_opt, omap_put, stored, stored_as};
use base::Utime;
use base::errno::{E2BIG, EINVAL, ENOENT};
use bytes::Bytes;
use ring::hmac;
use std::collections::BTreeSet;
use wire::codec::Result as Decoded;
use wire::{Decode, Encode, Reader, Writer};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rd("get_current_time", get_current_time),
    Method::rdwr("otp_check", check),
    Method::rd("otp_get", get),
    Method::rd("otp_get_result", get_result),
    Method::rdwr("otp_remove", remove),
    Method::rdwr("otp_set", set),
];

const HEADER: &[u8] = b"header";
const PREFIX: &[u8] = b"otp/";
/// Most checks within one time step.
const ATTEMPTS_MAX: usize = 5;
/// Most steps before and after now that are tried, whatever the entry's window.
const WINDOW_MAX: u32 = 1000;

const SEED_BASE32: u8 = 2;

const UNKNOWN: u8 = 0;
const SUCCESS: u8 = 1;
const FAILURE: u8 = 2;

/// `otp_info_t`.
#[derive(Clone, Debug)]
struct Info {
    kind: u8,
    id: Bytes,
    seed: Bytes,
    seed_kind: u8,
    secret: Bytes,
    time_offset: i32,
    step: u32,
    window: u32,
}

impl Encode for Info {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u8(self.kind);
            w.blob(&self.id);
            w.blob(&self.seed);
            w.u8(self.seed_kind);
            w.blob(&self.secret);
            w.i32(self.time_offset);
            w.u32(self.step);
            w.u32(self.window);
        });
    }
}
impl Decode for Info {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("otp_info_t", 1, |r, _| {
            Ok(Self {
                kind: r.u8()?,
                id: r.blob()?,
                seed: r.blob()?,
                seed_kind: r.u8()?,
                secret: r.blob()?,
                time_offset: r.i32()?,
                step: r.u32()?,
                window: r.u32()?,
            })
        })
    }
}

/// `otp_check_t`.
#[derive(Clone, Debug)]
struct Check {
    token: Bytes,
    time: Utime,
    result: u8,
}

impl Encode for Check {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.token);
            w.put(&self.time);
            w.u8(self.result);
        });
    }
}
impl Decode for Check {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("otp_check_t", 1, |r, _| Ok(Self { token: r.blob()?, time: r.get()?, result: r.u8()? }))
    }
}

/// `otp_instance`.
#[derive(Clone, Debug)]
struct Instance {
    info: Info,
    checks: Vec<Check>,
    last_success: u64,
}

impl Encode for Instance {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.info);
            w.put(&self.checks);
            w.u64(self.last_success);
        });
    }
}
impl Decode for Instance {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("otp_instance", 1, |r, _| Ok(Self { info: r.get()?, checks: r.get()?, last_success: r.u64()? }))
    }
}

impl Instance {
    /// Forgets checks of earlier time steps.
    fn trim(&mut self, now: Utime) {
        let start = now.sec.saturating_sub(self.info.step);
        let old = self.checks.iter().take_while(|k| (k.time.sec, k.time.nsec) < (start, now.nsec)).count();
        self.checks.drain(..old);
    }

    /// True if `password` is that of a time step near now and later than the last one used.
    fn verify(&mut self, now: Utime, password: &[u8]) -> bool {
        let i = &self.info;
        if i.step == 0 || !(6..=8).contains(&password.len()) {
            return false;
        }
        let since = u64::from(now.sec).wrapping_sub(i64::from(i.time_offset).cast_unsigned());
        let step = since / u64::from(i.step);
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &i.secret);
        let fits = |step: u64| totp(&key, step, password.len() as u32).as_bytes() == password;
        let distance = (0..=u64::from(i.window.min(WINDOW_MAX)))
            .find(|d| fits(step.wrapping_add(*d)) || (*d > 0 && fits(step.wrapping_sub(*d))));
        match distance.map(|d| step.wrapping_add(d)) {
            Some(index) if index > self.last_success => {
                self.last_success = index;
                true
            }
            _ => false,
        }
    }
}

/// The password of a time step.
fn totp(key: &hmac::Key, step: u64, digits: u32) -> String {
    let mac = hmac::sign(key, &step.to_be_bytes());
    let mac = mac.as_ref();
    let at = usize::from(mac.last().copied().unwrap_or(0) & 15);
    let four = mac.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
    let code = (four & 0x7fff_ffff) % 10u32.pow(digits);
    format!("{code:0width$}", width = digits as usize)
}

fn decode_seed(i: &Info) -> Option<Vec<u8>> {
    if i.seed_kind == SEED_BASE32 { base32(&i.seed) } else { hex(&i.seed) }
}

fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: &u8| char::from(*b).to_digit(16).map(|d| d as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks(2).map(|p| Some(digit(p.first()?)? << 4 | digit(p.get(1)?)?)).collect()
}

/// Decodes base32; ignores spaces, padding and case.
fn base32(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::new());
    for b in text.iter().filter(|b| !matches!(b, b' ' | b'=')) {
        let v = match b.to_ascii_uppercase() {
            c @ b'A'..=b'Z' => c - b'A',
            c @ b'2'..=b'7' => c - b'2' + 26,
            _ => return None,
        };
        bits = bits << 5 | u32::from(v);
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

fn load(c: &mut dyn ObjectCtx, id: &[u8]) -> ClsResult<Option<Instance>> {
    omap_opt(c, &join(PREFIX, id))?.map(|b| stored_as(&b)).transpose()
}

fn save(c: &mut dyn ObjectCtx, i: &Instance) -> ClsResult<Output> {
    omap_put(c, join(PREFIX, &i.info.id), enc(|w| w.put(i))).map(Output::from)
}

fn load_ids(c: &mut dyn ObjectCtx) -> ClsResult<BTreeSet<Bytes>> {
    match omap_opt(c, HEADER)? {
        Some(b) if !b.is_empty() => stored(&b, |r| r.versioned("otp_header", 1, |r, _| r.get())),
        _ => Ok(BTreeSet::new()),
    }
}

fn save_ids(c: &mut dyn ObjectCtx, ids: &BTreeSet<Bytes>) -> ClsResult<Output> {
    omap_put(c, HEADER, enc(|w| w.versioned(1, 1, |w| w.put(ids)))).map(Output::from)
}

fn set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let entries: Vec<Info> = input(i, |r| r.versioned("cls_otp_set_otp_op", 1, |r, _| r.get()))?;
    let mut ids = load_ids(c)?;
    for mut info in entries {
        let Some(secret) = decode_seed(&info) else { return fail(EINVAL) };
        info.secret = secret.into();
        ids.insert(info.id.clone());
        let instance = match load(c, &info.id)? {
            Some(old) => Instance { info, ..old },
            None => Instance { info, checks: Vec::new(), last_success: 0 },
        };
        save(c, &instance)?;
    }
    save_ids(c, &ids)
}

fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let doomed: Vec<Bytes> = input(i, |r| r.versioned("cls_otp_remove_otp_op", 1, |r, _| r.get()))?;
    let mut ids = load_ids(c)?;
    let mut any = false;
    for id in &doomed {
        if ids.remove(id) {
            c.omap_rm(&join(PREFIX, id))?;
            any = true;
        }
    }
    if any { save_ids(c, &ids) } else { Ok(Output::default()) }
}

fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (all, asked) =
        input(i, |r| r.versioned("cls_otp_get_otp_op", 1, |r, _| Ok((r.bool()?, r.get::<Vec<Bytes>>()?))))?;
    let ids = load_ids(c)?;
    let asked: Vec<Bytes> = if all { ids.iter().cloned().collect() } else { asked };
    let (mut found, mut bytes) = (Vec::new(), 0);
    for id in asked.iter().filter(|id| ids.contains(*id)) {
        let Some(Instance { info, .. }) = load(c, id)? else { return fail(ENOENT) };
        // An id may be named many times.
        bytes += size_of::<Info>() + info.id.len() + info.seed.len() + info.secret.len();
        if bytes > LIST_BYTES {
            return fail(E2BIG);
        }
        found.push(info);
    }
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&found))).into())
}

/// Decodes id, password and token.
fn check_input(i: &Bytes) -> ClsResult<(Bytes, Bytes, Bytes)> {
    input(i, |r| r.versioned("cls_otp_check_otp_op", 1, |r, _| Ok((r.blob()?, r.blob()?, r.blob()?))))
}

fn check(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, password, token) = check_input(i)?;
    let Some(mut instance) = load(c, &id)? else { return fail(ENOENT) };
    let now = c.now();
    instance.trim(now);
    if instance.checks.len() >= ATTEMPTS_MAX {
        return Ok(Output::default());
    }
    let result = if instance.verify(now, &password) { SUCCESS } else { FAILURE };
    instance.checks.push(Check { token, time: now, result });
    save(c, &instance)
}

fn get_result(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, _, token) = check_input(i)?;
    let Some(mut instance) = load(c, &id)? else { return fail(ENOENT) };
    let now = c.now();
    instance.trim(now);
    let found = instance.checks.into_iter().rfind(|k| k.token == token);
    let found = found.unwrap_or(Check { token, time: now, result: UNKNOWN });
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&found))).into())
}

fn get_current_time(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let now = c.now();
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&now))).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238, appendix B, SHA-1.
    #[test]
    fn passwords_of_the_standard() {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"12345678901234567890");
        for (secs, code) in [(59u64, "94287082"), (1_111_111_109, "07081804"), (20_000_000_000, "65353130")] {
            assert_eq!(totp(&key, secs / 30, 8), code);
        }
    }

    #[test]
    fn seeds() {
        assert_eq!(hex(b"00ffA1"), Some(vec![0, 255, 0xa1]));
        assert_eq!(hex(b"0"), None);
        assert_eq!(base32(b"MZXW 6ytb OI======").as_deref(), Some(&b"foobar"[..]));
        assert_eq!(base32(b"1"), None);
    }
}
