//! Input of object class methods. Input: u16 method (an index over all classes), then the client's input. Called on an
//! absent object, on an object, and on the object made by the first call.

use super::Family;
use crate::vectors;
use bytes::Bytes;
use cls::registry::{CLASSES, Method};
use cls::testing::{MemCtx, MemObject};
use wire::msg::{MOsdOp, OpCode};
use wire::{Reader, WireMessage};

pub(super) const FAMILY: Family = Family { name: "class_inputs", run, seeds, alloc_fixed: ALLOC_FIXED, cost: 1 };

/// A few bytes of input may make a large object: the object map of the largest image has 64 MiB, and the test context
/// copies the object.
const ALLOC_FIXED: usize = 512 << 20;

fn methods() -> impl Iterator<Item = (&'static str, &'static Method)> {
    CLASSES.iter().flat_map(|(c, ms)| ms.iter().map(move |m| (*c, m)))
}

fn run(input: &[u8]) {
    let mut r = Reader::new(input);
    let Ok(n) = r.u16() else { return };
    let Some((class, method)) = methods().nth(usize::from(n) % methods().count().max(1)) else { return };
    let payload = r.rest();
    let mut ctx = MemCtx::new();
    let _ = ctx.exec_full(class, method.name, payload.clone());
    let _ = ctx.exec_full(class, method.name, payload.clone());
    let mut ctx = MemCtx::new();
    ctx.object = Some(MemObject::default());
    let _ = ctx.exec_full(class, method.name, payload);
}

fn number(class: &[u8], method: &[u8]) -> Option<u16> {
    methods().position(|(c, m)| c.as_bytes() == class && m.name.as_bytes() == method).map(|n| n as u16)
}

fn seeds() -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    // Each method with empty input, and with a structure of a few fields.
    for (i, _) in methods().enumerate() {
        let n = (i as u16).to_le_bytes();
        out.push(n.to_vec());
        out.push([&n[..], &[1, 1, 12, 0, 0, 0, 4, 0, 0, 0, b'n', b'a', b'm', b'e', 1, 0, 0, 0, 0, 0, 0, 0]].concat());
        out.push([&n[..], &[4, 0, 0, 0, b'n', b'a', b'm', b'e', 2, 0, 0, 0, b'i', b'd', 0, 0, 0, 0]].concat());
    }
    // Calls of real clients.
    for m in vectors::all_messages().iter().filter(|m| m.header.kind == MOsdOp::KIND) {
        let Ok(op) = MOsdOp::from_message(m) else { continue };
        for o in op.ops.iter().filter(|o| o.op == OpCode::CALL) {
            if let Some((c, m, input)) = o.cls_payload()
                && let Some(n) = number(c, m)
            {
                let seed: Bytes = [&n.to_le_bytes()[..], &input].concat().into();
                out.push(seed.to_vec());
            }
        }
    }
    out.sort();
    out.dedup();
    out
}
