//! Class `hello`: an example class, used by Ceph's tests.
//!
//! Stored: the greeting as the object's data, xattrs `said_by` and `amplified_by` (sender), `foo`.

use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::fail;
use base::errno::{EEXIST, EINVAL};
use bytes::Bytes;

/// Longest accepted name in bytes.
const NAME_MAX: usize = 100;
/// Bytes of a recorded greeting that are read back.
const GREETING_MAX: u64 = 1100;
/// Output longer than `osd_max_write_op_reply_len`, which the OSD refuses.
const TOO_LONG: &str = "you should not see this because it is toooooo long. ";

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::wr("bad_reader", |c, _| c.read(0, 100).map(Output::from)),
    Method::rd("bad_writer", |c, i| c.write_full(i).map(Output::from)),
    Method::wr("record_hello", record_hello).promote(),
    Method::rd("replay", |c, _| c.read(0, GREETING_MAX).map(Output::from)),
    Method::rd("say_hello", |_, i| greeting(i).map(Output::from)),
    Method::rdwr("turn_it_to_11", turn_it_to_11).promote(),
    Method::wr("write_return_data", |c, i| set_foo(c, i, "you might see this")),
    Method::wr("write_too_much_return_data", |c, _| {
        c.setxattr(b"foo", b"bar")?;
        Ok(Output { ret: 42, out: TOO_LONG.repeat(10).into() })
    }),
    Method::wr("writes_dont_return_data", |c, i| set_foo(c, i, "you might see this")),
];

fn greeting(name: &Bytes) -> ClsResult<Bytes> {
    if name.len() > NAME_MAX {
        return fail(EINVAL);
    }
    let name: &[u8] = if name.is_empty() { b"world" } else { name };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

/// The sender in Ceph's format of an `entity_inst_t`.
fn sender(c: &mut dyn ObjectCtx) -> Vec<u8> {
    let (name, addr) = c.origin();
    format!("{name} {addr}").into_bytes()
}

fn record_hello(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let text = greeting(i)?;
    if c.exists()? {
        return fail(EEXIST);
    }
    c.write_full(&text)?;
    let who = sender(c);
    c.setxattr(b"said_by", &who)?;
    Ok(Output::default())
}

fn turn_it_to_11(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    if !i.is_empty() {
        return fail(EINVAL);
    }
    let text = c.read(0, GREETING_MAX)?.to_ascii_uppercase();
    c.write_full(&text)?;
    let who = sender(c);
    c.setxattr(b"amplified_by", &who)?;
    Ok(Output::default())
}

fn set_foo(c: &mut dyn ObjectCtx, i: &Bytes, answer: &'static str) -> ClsResult<Output> {
    c.setxattr(b"foo", b"bar")?;
    if !i.is_empty() {
        return Err(ClsError::Fail { errno: EINVAL, out: Bytes::from_static(b"too much input data!") });
    }
    Ok(Output { ret: 42, out: answer.into() })
}
