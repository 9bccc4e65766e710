//! Class `lua`: runs a client's script on the object.
//!
//! The script registers handlers; one of them is called with the input and an output buffer. A script can access only
//! the object, strings, tables and numbers: no files, modules or bytecode. `bind` has the object's functions,
//! `prelude.lua` the rest of the environment, `input` the two input formats. Invariants: a script runs at most
//! [`INSTRUCTIONS_MAX`] instructions and holds at most [`MEMORY_MAX`] bytes. Loops in C code are replaced or limited by
//! [`MATCHING_MAX`]. After a wait or an exceeded limit every step fails. Each call has its own interpreter, so that no
//! state survives it.
//!
//! Tests: `src/lua/tests.rs` (`every_script_ends`, `a_wait_is_passed_on`).

mod bind;
mod input;
#[cfg(test)]
mod tests;

use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::fail;
use base::errno::{E2BIG, EIO, ENOMEM, EOPNOTSUPP};
use bind::{Buffer, State};
use bytes::Bytes;
use input::Call;
use mlua::{HookTriggers, Lua, LuaOptions, MultiValue, StdLib, VmState};
use std::cell::RefCell;
use std::rc::Rc;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] =
    &[Method::rdwr("eval_bufferlist", eval_bufferlist), Method::rdwr("eval_json", eval_json)];

/// Longest script in bytes.
const SCRIPT_MAX: usize = 256 << 10;
/// Most instructions of a call: some 10 ms, during which the script blocks its reactor.
const INSTRUCTIONS_MAX: u64 = 1_000_000;
/// Instructions between two checks of the limits.
const COUNT_EVERY: u32 = 1000;
/// Most bytes that the interpreter may allocate.
const MEMORY_MAX: usize = 32 << 20;
/// Most bytes in all buffers of a script.
const BUFFERS_MAX: usize = 64 << 20;
/// Most steps, in the worst case, of all pattern matching in a call.
const MATCHING_MAX: u64 = 20_000_000;

fn eval_json(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    eval(c, Call::from_json(i)?)
}

fn eval_bufferlist(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    eval(c, Call::decode(i)?)
}

/// Hook that checks the script's limits.
fn count(lua: &Lua, state: &Rc<State>) -> mlua::Result<()> {
    let state = Rc::clone(state);
    lua.set_hook(HookTriggers::new().every_nth_instruction(COUNT_EVERY), move |_, _| {
        let left = state.instructions.get().saturating_sub(COUNT_EVERY.into());
        state.instructions.set(left);
        if left == 0 {
            return Err(state.end("the script runs too long"));
        }
        Ok(VmState::Continue)
    })
}

/// Runs the script and the handler; `None` if the handler does not exist.
fn run(lua: &Lua, c: &mut dyn ObjectCtx, state: &Rc<State>, call: &Call, out: &Buffer) -> mlua::Result<Option<i64>> {
    let seed = c.random();
    let c = RefCell::new(c);
    lua.scope(|scope| {
        let host = bind::host(lua, scope, &c, state)?;
        let handle: mlua::Function = lua.load(include_str!("prelude.lua")).set_name("=prelude").call(host)?;
        let math: mlua::Table = lua.globals().get("math")?;
        math.get::<mlua::Function>("randomseed")?.call::<MultiValue>(seed as i64)?;
        count(lua, state)?;
        lua.load(&call.script[..]).set_name("=script").set_mode(mlua::chunk::ChunkMode::Text).call::<()>(())?;
        if call.handler.is_empty() {
            return Ok(Some(0));
        }
        let input = state.buffer(&call.input)?;
        let name = lua.create_string(&call.handler[..])?;
        let answer = handle.call((name, input, out.clone()))?;
        // Errors that the script caught are ignored, but not a limit or a wait.
        state.check()?;
        Ok(answer)
    })
}

fn eval(c: &mut dyn ObjectCtx, call: Call) -> ClsResult<Output> {
    if call.script.len() > SCRIPT_MAX {
        return fail(E2BIG);
    }
    // Excluded libraries: io, os, package, coroutine, debug. The Rust code below does not panic, so Lua's own pcall is
    // safe.
    let libs = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let Ok(lua) = Lua::new_with(libs, LuaOptions::new().catch_rust_panics(false)) else { return fail(ENOMEM) };
    if lua.set_memory_limit(MEMORY_MAX).is_err() {
        return fail(ENOMEM);
    }
    let state = Rc::new(State::new(INSTRUCTIONS_MAX, MATCHING_MAX, BUFFERS_MAX));
    let out = Buffer::new(&state);
    let r = run(&lua, c, &state, &call, &out);
    if state.waits.get() {
        return Err(ClsError::Wait);
    }
    match r {
        Ok(Some(ret)) => {
            // The return value is a C int; a negative one is an errno.
            let (ret, out) = (ret as i32, out.take());
            if ret < 0 { Err(ClsError::Fail { errno: ret, out }) } else { Ok(Output { ret, out }) }
        }
        Ok(None) => fail(EOPNOTSUPP),
        Err(e) => {
            c.log(&format!("lua: {e}"));
            let errno = state.errno.take().filter(|e| *e < 0).unwrap_or(EIO);
            Err(ClsError::Fail { errno, out: out.take() })
        }
    }
}
