//! Live migration of an image: key `migration`, the feature bit, and for format 1 the magic text at the start of the
//! header.

use super::types::Migration;
use super::{drop_key, feature, get, need, put};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input, omap_opt};
use base::errno::{EEXIST, EINVAL, ENXIO};
use bytes::Bytes;

const KEY: &[u8] = b"migration";
const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;

/// Magic text of a format 1 header, with its NUL.
const V1_TEXT: &[u8] = b"<<< Rados Block Device Image >>>\n\0";
/// Magic text of a format 1 header during a migration.
const V1_MIGRATING: &[u8] = b"<<< Migrating RBD Image      >>>\n\0";

/// Whether a format 1 image is being migrated.
fn v1_state(c: &mut dyn ObjectCtx) -> ClsResult<bool> {
    let text = c.read(0, V1_TEXT.len() as u64)?;
    match &text[..] {
        V1_TEXT => Ok(false),
        V1_MIGRATING => Ok(true),
        _ => fail(ENXIO),
    }
}

fn write_v1(c: &mut dyn ObjectCtx, text: &[u8]) -> ClsResult<()> {
    c.write(0, text.strip_suffix(b"\0").unwrap_or(text))
}

pub(super) fn set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let spec: Migration = input(i, |r| r.get())?;
    if omap_opt(c, KEY)?.is_some() {
        return fail(EEXIST);
    }
    match get::<u64>(c, b"features")? {
        None => {
            if v1_state(c)? {
                return fail(EEXIST);
            }
            if spec.header != SOURCE {
                return fail(EINVAL);
            }
            write_v1(c, V1_MIGRATING)?;
        }
        Some(f) if f & feature::MIGRATING != 0 => {
            if spec.header != DESTINATION {
                return fail(EEXIST);
            }
        }
        Some(f) => put(c, b"features", &(f | feature::MIGRATING))?,
    }
    put(c, KEY, &spec).map(Output::from)
}

fn load(c: &mut dyn ObjectCtx) -> ClsResult<Migration> {
    let migrating = match get::<u64>(c, b"features")? {
        None => v1_state(c)?,
        Some(f) => f & feature::MIGRATING != 0,
    };
    if migrating { need(c, KEY) } else { fail(EINVAL) }
}

pub(super) fn set_state(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (state, description) = input(i, |r| Ok((r.u8()?, r.blob()?)))?;
    let mut spec = load(c)?;
    spec.state = state;
    spec.description = description;
    put(c, KEY, &spec).map(Output::from)
}

pub(super) fn get_spec(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    super::answer(&load(c)?)
}

pub(super) fn remove(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    drop_key(c, KEY)?;
    match get::<u64>(c, b"features")? {
        None => {
            if !v1_state(c)? {
                return fail(EINVAL);
            }
            write_v1(c, V1_TEXT)?;
        }
        Some(f) if f & feature::MIGRATING != 0 => put(c, b"features", &(f & !feature::MIGRATING))?,
        Some(_) => {}
    }
    Ok(Output::default())
}
