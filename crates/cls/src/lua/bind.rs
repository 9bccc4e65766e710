//! Functions available to a script: on the object (`objclass`) and on buffers (`bufferlist`).
//!
//! A failing object function stores its errno and raises an error. `pcall` returns the errno to the script; otherwise
//! it becomes the result of the call. A wait or an exceeded limit ends the script.

use super::{BUFFERS_MAX, MATCHING_MAX};
use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use crate::util::omap_first;
use base::errno::{EINVAL, Errno};
use bytes::Bytes;
use mlua::{Error, Lua, MetaMethod, MultiValue, Scope, Table, UserData, UserDataMethods, UserDataRef, Value, Variadic};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Most entries of one listing (`osd_max_omap_entries_per_request`).
const LIST_MAX: usize = 1024;
/// Instructions that count for each entry or value that a script reads of the object.
const ENTRY_COST: usize = 10;
/// Most values returned by one `table.unpack`.
const UNPACK_MAX: usize = 4096;
/// Longest log line in bytes.
const LOG_MAX: usize = 1024;

/// Errnos by name, for scripts.
const ERRNOS: &[(&str, i64)] = &[
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("ENOEXEC", 8),
    ("EBADF", 9),
    ("ECHILD", 10),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("ENOTDIR", 20),
    ("EISDIR", 21),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("ESPIPE", 29),
    ("EROFS", 30),
    ("EMLINK", 31),
    ("EPIPE", 32),
    ("EDOM", 33),
    ("ERANGE", 34),
];

/// Remaining limits of a running script, and its failure.
pub(super) struct State {
    /// Instructions that remain.
    pub(super) instructions: Cell<u64>,
    /// Whether the script needs data that is not in memory.
    pub(super) waits: Cell<bool>,
    /// Errno of the last uncaught failure.
    pub(super) errno: Cell<Option<Errno>>,
    matching: Cell<u64>,
    buffers: Cell<usize>,
    ended: Cell<Option<&'static str>>,
}

impl State {
    pub(super) fn new(instructions: u64, matching: u64, buffers: usize) -> Self {
        Self {
            instructions: Cell::new(instructions),
            waits: Cell::new(false),
            errno: Cell::new(None),
            matching: Cell::new(matching),
            buffers: Cell::new(buffers),
            ended: Cell::new(None),
        }
    }

    /// Ends the script: every further step fails.
    pub(super) fn end(&self, why: &'static str) -> Error {
        self.ended.set(Some(why));
        self.instructions.set(0);
        Error::runtime(why)
    }

    /// Fails if the script has been ended.
    pub(super) fn check(&self) -> mlua::Result<()> {
        self.ended.get().map_or(Ok(()), |why| Err(Error::runtime(why)))
    }

    /// Counts `n` instructions for the work of a function.
    fn spend(&self, n: usize) -> mlua::Result<()> {
        self.check()?;
        match self.instructions.get().checked_sub(n as u64) {
            Some(left) => {
                self.instructions.set(left);
                Ok(())
            }
            None => Err(self.end("the script runs too long")),
        }
    }

    fn take_room(&self, n: usize) -> mlua::Result<()> {
        self.check()?;
        let Some(left) = self.buffers.get().checked_sub(n) else {
            return Err(self.end("the script's buffers are too large"));
        };
        self.buffers.set(left);
        Ok(())
    }

    pub(super) fn buffer(self: &Rc<Self>, bytes: &[u8]) -> mlua::Result<Buffer> {
        self.take_room(bytes.len())?;
        let b = Buffer::new(self);
        b.bytes.borrow_mut().extend_from_slice(bytes);
        Ok(b)
    }

    /// Charges the worst-case cost of matching `pattern` in a text of `len` bytes: a factor of `len` for the start and
    /// for each repetition.
    fn afford(&self, len: usize, pattern: &[u8], plain: bool) -> mlua::Result<()> {
        self.check()?;
        let repetitions = if plain { 0 } else { pattern.iter().filter(|c| b"*+-?bf".contains(c)).count() };
        let cost = (0..repetitions)
            .fold(len as u64 + 1, |c, _| c.saturating_mul(len as u64 + 1))
            .saturating_mul(pattern.len() as u64 + 1)
            .min(MATCHING_MAX + 1);
        let Some(left) = self.matching.get().checked_sub(cost) else {
            return Err(Error::runtime("matching this pattern may take too long"));
        };
        self.matching.set(left);
        Ok(())
    }

    /// Converts a result of the object into one for the script.
    fn done<T>(&self, r: ClsResult<T>) -> mlua::Result<T> {
        r.map_err(|e| match e {
            ClsError::Wait => {
                self.waits.set(true);
                self.end("data has to be read first")
            }
            ClsError::Fail { errno, .. } => {
                self.errno.set(Some(errno));
                Error::runtime(format!("errno {errno}"))
            }
        })
    }
}

/// Bytes, shared between values of the script.
#[derive(Clone)]
pub(super) struct Buffer {
    bytes: Rc<RefCell<Vec<u8>>>,
    state: Rc<State>,
}

impl Buffer {
    pub(super) fn new(state: &Rc<State>) -> Self {
        Self { bytes: Rc::default(), state: Rc::clone(state) }
    }

    /// Takes the bytes and leaves the buffer empty.
    pub(super) fn take(&self) -> Bytes {
        self.bytes.take().into()
    }
}

/// The two buffers of a binary operator.
type Pair = (UserDataRef<Buffer>, UserDataRef<Buffer>);

impl UserData for Buffer {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("str", |lua, b, ()| lua.create_string(&b.bytes.borrow()[..]));
        methods.add_method("append", |_, b, v: Value| {
            let Value::String(text) = v else {
                return Err(Error::runtime("bad argument #1 to 'append' (string expected)"));
            };
            let text = text.as_bytes();
            b.state.take_room(text.len())?;
            b.bytes.borrow_mut().extend_from_slice(&text);
            Ok(())
        });
        methods.add_meta_method(MetaMethod::Len, |_, b, ()| Ok(b.bytes.borrow().len()));
        methods.add_meta_function(MetaMethod::Eq, |_, (a, b): Pair| Ok(*a.bytes.borrow() == *b.bytes.borrow()));
        methods.add_meta_function(MetaMethod::Lt, |_, (a, b): Pair| Ok(*a.bytes.borrow() < *b.bytes.borrow()));
        methods.add_meta_function(MetaMethod::Le, |_, (a, b): Pair| Ok(*a.bytes.borrow() <= *b.bytes.borrow()));
        methods.add_meta_function(MetaMethod::Concat, |_, (a, b): Pair| {
            a.state.buffer(&[&a.bytes.borrow()[..], &b.bytes.borrow()[..]].concat())
        });
    }
}

/// The object in a cell: a script calls one function at a time.
type Object<'c, 'o> = RefCell<&'c mut (dyn ObjectCtx + 'o)>;

fn number(n: i64) -> ClsResult<u64> {
    u64::try_from(n).map_err(|_| EINVAL.into())
}

/// Formats arguments as a log line, as `print` does.
fn line(args: &[Value]) -> String {
    let words: Vec<String> = args
        .iter()
        .map(|v| match v {
            Value::String(s) => s.to_string_lossy(),
            Value::Integer(n) => n.to_string(),
            Value::Number(n) => n.to_string(),
            Value::Boolean(b) => b.to_string(),
            other => other.type_name().to_owned(),
        })
        .collect();
    words.join(" ")
}

/// Converts a table to omap entries: keys are strings or numbers, values are strings.
fn entries(lua: &Lua, t: &Table) -> mlua::Result<Option<Vec<(Bytes, Bytes)>>> {
    let mut out = BTreeMap::new();
    for pair in t.pairs::<Value, Value>() {
        let (k, v) = pair?;
        let (Value::String(_) | Value::Integer(_) | Value::Number(_), Value::String(v)) = (&k, v) else {
            return Ok(None);
        };
        let Some(k) = lua.coerce_string(k)? else { return Ok(None) };
        out.insert(Bytes::copy_from_slice(&k.as_bytes()), Bytes::copy_from_slice(&v.as_bytes()));
    }
    Ok(Some(out.into_iter().collect()))
}

/// Installs the host's functions: `objclass`, `bufferlist`, and those that the prelude uses.
pub(super) fn host<'s, 'e>(
    lua: &Lua,
    scope: &'s Scope<'s, 'e>,
    c: &'e Object<'_, '_>,
    state: &'e Rc<State>,
) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    host.set("objclass", objclass(lua, scope, c, state)?)?;
    let buffers = lua.create_table()?;
    buffers.set("new", scope.create_function(|_, ()| state.buffer(b""))?)?;
    host.set("bufferlist", buffers)?;
    host.set("fault", scope.create_function(|_, ()| Ok((state.ended.get(), state.errno.take())))?)?;
    host.set(
        "afford",
        scope.create_function(|_, (s, p, plain): (mlua::LuaString, mlua::LuaString, Option<Value>)| {
            let plain = plain.is_some_and(|v| !matches!(v, Value::Nil | Value::Boolean(false)));
            state.afford(s.as_bytes().len(), &p.as_bytes(), plain)
        })?,
    )?;
    host.set(
        "concat",
        scope.create_function(|lua, (parts, sep): (Vec<mlua::LuaString>, mlua::LuaString)| {
            let room = parts.iter().map(|p| p.as_bytes().len() + sep.as_bytes().len()).sum::<usize>();
            if room > BUFFERS_MAX {
                return Err(state.end("the script's buffers are too large"));
            }
            let parts: Vec<_> = parts.iter().map(|p| p.as_bytes()).collect();
            lua.create_string(parts.iter().map(|p| &p[..]).collect::<Vec<_>>().join(&sep.as_bytes()[..]))
        })?,
    )?;
    host.set(
        "unpack",
        scope.create_function(|_, (t, n): (Table, usize)| {
            if n > UNPACK_MAX {
                return Err(Error::runtime("too many results to unpack"));
            }
            (1..=n).map(|i| t.raw_get::<Value>(i)).collect::<mlua::Result<MultiValue>>()
        })?,
    )?;
    Ok(host)
}

fn objclass<'s, 'e>(
    lua: &Lua,
    scope: &'s Scope<'s, 'e>,
    c: &'e Object<'_, '_>,
    state: &'e Rc<State>,
) -> mlua::Result<Table> {
    let t = lua.create_table()?;
    for (name, n) in ERRNOS {
        t.set(*name, *n)?;
    }
    /// Adds a function that passes its arguments to the object and returns the answer. Fails if the script has been
    /// ended.
    macro_rules! def {
        ($name:literal, $o:ident, $args:pat, $ty:ty => $body:expr) => {
            t.set(
                $name,
                scope.create_function(|_, $args: $ty| {
                    state.check()?;
                    let mut object = c.borrow_mut();
                    let $o = &mut **object;
                    state.done($body)
                })?,
            )?;
        };
    }
    type Str = mlua::LuaString;
    type Buf = UserDataRef<Buffer>;
    t.set(
        "log",
        scope.create_function(|_, args: Variadic<Value>| {
            let level = args.len() > 1 && args.first().is_some_and(|v| v.as_f64().is_some_and(|n| n >= 0.0));
            let mut text = line(&args[usize::from(level)..]);
            let whole = text.clone();
            text.truncate(text.floor_char_boundary(LOG_MAX));
            c.borrow().log(&text);
            Ok((!args.is_empty()).then_some(whole))
        })?,
    )?;
    def!("create", o, exclusive, Option<Value> => {
        o.create(exclusive.is_some_and(|v| !matches!(v, Value::Nil | Value::Boolean(false))))
    });
    def!("remove", o, (), () => o.remove());
    def!("stat", o, _, MultiValue => o.stat().map(|(size, mtime)| (size, mtime.sec)));
    def!("write", o, (off, len, b), (i64, i64, Buf) => {
        let bytes = b.bytes.borrow();
        if len as usize == bytes.len() { number(off).and_then(|off| o.write(off, &bytes)) } else { Err(EINVAL.into()) }
    });
    def!("write_full", o, b, Buf => o.write_full(&b.bytes.borrow()));
    def!("setxattr", o, (name, b), (Str, Buf) => o.setxattr(&name.as_bytes(), &b.bytes.borrow()));
    def!("map_clear", o, (), () => o.omap_clear());
    def!("map_write_header", o, b, Buf => o.omap_set_header(&b.bytes.borrow()));
    def!("map_remove_key", o, key, Str => o.omap_rm(&key.as_bytes()));
    def!("map_set_val", o, (key, b), (Str, Buf) => {
        o.omap_set(&[(Bytes::copy_from_slice(&key.as_bytes()), Bytes::copy_from_slice(&b.bytes.borrow()))])
    });
    def!("current_version", o, (), () => Ok(o.current_version()));
    def!("current_subop_num", o, (), () => Ok(o.subop_index()));
    def!("current_subop_version", o, (), () => Ok(format!("{}.{}", o.current_version(), o.subop_index())));
    t.set(
        "map_set_vals",
        scope.create_function(|lua, vals: Table| {
            state.check()?;
            let r = match entries(lua, &vals)? {
                Some(e) => c.borrow_mut().omap_set(&e),
                None => Err(EINVAL.into()),
            };
            state.done(r)
        })?,
    )?;

    /// Adds a function that returns bytes.
    macro_rules! get {
        ($name:literal, $o:ident, $args:pat, $ty:ty => $body:expr) => {
            t.set(
                $name,
                scope.create_function(|_, $args: $ty| {
                    state.spend(ENTRY_COST)?;
                    let bytes = {
                        let mut object = c.borrow_mut();
                        let $o = &mut **object;
                        state.done($body)?
                    };
                    state.buffer(&bytes)
                })?,
            )?;
        };
    }
    get!("read", o, (off, len), (i64, i64) => {
        match (number(off), number(len)) {
            (Ok(off), Ok(len)) => o.read(off, len),
            _ => Err(EINVAL.into()),
        }
    });
    get!("getxattr", o, name, Str => o.getxattr(&name.as_bytes()));
    get!("map_get_val", o, key, Str => o.omap_get(&key.as_bytes()));
    get!("map_read_header", o, (), () => o.omap_header());

    t.set(
        "getxattrs",
        scope.create_function(|lua, (): ()| {
            state.check()?;
            let all = state.done(c.borrow_mut().getxattrs())?;
            state.spend(ENTRY_COST * (1 + all.len()))?;
            table_of(lua, state, all)
        })?,
    )?;
    t.set(
        "map_get_keys",
        scope.create_function(|lua, (after, max): (Str, i64)| {
            state.check()?;
            let page = omap_first(&mut **c.borrow_mut(), &after.as_bytes(), b"", most(max));
            let (all, _) = state.done(page)?;
            state.spend(ENTRY_COST * (1 + all.len()))?;
            let t = lua.create_table()?;
            for (k, _) in all {
                t.raw_set(lua.create_string(&k)?, true)?;
            }
            Ok(t)
        })?,
    )?;
    t.set(
        "map_get_vals",
        scope.create_function(|lua, (after, prefix, max): (Str, Str, i64)| {
            state.check()?;
            let page = omap_first(&mut **c.borrow_mut(), &after.as_bytes(), &prefix.as_bytes(), most(max));
            let (all, _) = state.done(page)?;
            state.spend(ENTRY_COST * (1 + all.len()))?;
            table_of(lua, state, all)
        })?,
    )?;
    Ok(t)
}

/// Length of a page: the script's limit, at most [`LIST_MAX`].
fn most(max: i64) -> usize {
    usize::try_from(max).map_or(LIST_MAX, |m| m.min(LIST_MAX))
}

fn table_of(lua: &Lua, state: &Rc<State>, all: Vec<(Bytes, Bytes)>) -> mlua::Result<Table> {
    let t = lua.create_table()?;
    for (k, v) in all {
        t.raw_set(lua.create_string(&k)?, state.buffer(&v)?)?;
    }
    Ok(t)
}
