//! Capabilities and limits of scripts.

use super::input::Call;
use crate::testing::{MemCtx, MemObject};
use crate::{ClsError, ObjectCtx, Output};
use base::errno::{E2BIG, EEXIST, EINVAL, EIO, ENOENT, EOPNOTSUPP, Errno};
use bytes::Bytes;
use wire::{Features, Writer};

fn call(script: &str, handler: &str, input: &[u8]) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    w.versioned(1, 1, |w| {
        w.put(&Bytes::copy_from_slice(script.as_bytes()));
        w.put(&Bytes::copy_from_slice(handler.as_bytes()));
        w.put(&Bytes::copy_from_slice(input));
    });
    w.into_bytes()
}

fn run_on(c: &mut MemCtx, script: &str, input: &[u8]) -> Result<Output, Errno> {
    let script = format!("function h(input, output) {script} end objclass.register(h)");
    c.exec_full("lua", "eval_bufferlist", call(&script, "h", input)).map_err(|e| match e {
        ClsError::Fail { errno, .. } => errno,
        ClsError::Wait => panic!("memory never waits"),
    })
}

fn run(script: &str) -> Result<Output, Errno> {
    let mut c = MemCtx::new();
    c.object = Some(MemObject { data: b"data".to_vec(), ..MemObject::default() });
    c.quiet = true;
    run_on(&mut c, script, b"in")
}

#[test]
fn handlers_read_and_write_the_object() {
    let mut c = MemCtx::new();
    run_on(
        &mut c,
        "objclass.write_full(input); objclass.setxattr('x', input); objclass.map_set_vals{a='1', b='2'}",
        b"text",
    )
    .unwrap();
    let o = run_on(
        &mut c,
        "output:append(objclass.read(0, 0):str() .. objclass.getxattr('x'):str())
         local n = 0; for k, v in pairs(objclass.map_get_vals('', '', 10)) do n = n + tonumber(v:str()) end
         return n",
        b"",
    )
    .unwrap();
    assert_eq!((o.ret, &o.out[..]), (3, &b"texttext"[..]));
}

#[test]
fn an_errno_reaches_pcall_and_the_client() {
    assert_eq!(run("objclass.create(true)"), Err(EEXIST));
    assert_eq!(run("objclass.map_get_val('none')"), Err(ENOENT));
    let caught = "local ok, errno = pcall(objclass.create, true)
         assert(not ok and errno == -objclass.EEXIST)
         assert(select('#', pcall(error, 'x')) == 2)
         error('something else')";
    assert_eq!(run(caught), Err(EIO), "a caught errno is forgotten");
}

/// A failed call changes nothing, even after successful writes.
#[test]
fn a_script_that_fails_changes_nothing() {
    let mut c = MemCtx::new();
    c.quiet = true;
    assert_eq!(run_on(&mut c, "objclass.write_full(input); return -5", b"x"), Err(-5));
    assert_eq!(c.object, None);
}

#[test]
fn only_registered_functions_are_called() {
    let mut c = MemCtx::new();
    c.quiet = true;
    let r = |c: &mut MemCtx, s: &str, h: &str| c.exec("lua", "eval_bufferlist", call(s, h, b""));
    assert_eq!(r(&mut c, "function f() end", "f"), Err(EIO));
    assert_eq!(r(&mut c, "", "f"), Err(EOPNOTSUPP));
    assert_eq!(r(&mut c, "", "print"), Err(EIO));
    assert_eq!(r(&mut c, &" ".repeat(super::SCRIPT_MAX + 1), ""), Err(E2BIG));
}

/// A script can neither access the machine nor load bytecode.
#[test]
fn the_sandbox_is_closed() {
    for name in
        ["io", "os", "package", "require", "debug", "coroutine", "dofile", "loadfile", "xpcall", "collectgarbage"]
    {
        assert_eq!(run(&format!("return {name} == nil and 1 or 0")).unwrap().ret, 1, "{name}");
    }
    let bytecode = "local f, why = load('\\27Lua\\84\\0\\25'); return f == nil and 1 or 0";
    assert_eq!(run(bytecode).unwrap().ret, 1);
    assert_eq!(run("return load(function() return 'x' end)"), Err(EIO));
    assert_eq!(run("return string.dump == nil and 1 or 0").unwrap().ret, 1);
    assert_eq!(run("return getmetatable(input) == false and 1 or 0").unwrap().ret, 1);
}

/// In a plain interpreter each of these would run very long or exhaust the memory.
#[test]
fn every_script_ends() {
    for s in [
        "while true do end",
        "local function f() return f() end f()",
        "local function f() f() end f()",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) end while true do f() end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
        "local s = 'x' while true do s = s .. s end",
        "return #string.rep('x', 1 << 40)",
        "local t = {} for i = 1, 1 << 40 do t[i] = i end",
        "while true do input:append(string.rep('x', 1 << 20)) end",
        "return #string.find(string.rep('a', 100000), '.-.-.-.-.-b')",
        "for i = 1, 1 << 40 do string.find(string.rep('a', 1000), '.-b') end",
        "return string.find(string.rep('a', 1 << 20), string.rep('a', 1 << 19) .. 'b', 1, true)",
        "table.move({}, 1, 1 << 60, 1, {})",
        "table.insert(setmetatable({}, {__len = function() return 1 << 60 end, __index = type}), 1, 1)",
        "table.remove(setmetatable({}, {__len = function() return 1 << 60 end, __index = type}), 1)",
        "table.sort(setmetatable({}, {__len = function() return 1 << 60 end, __index = type, __newindex = type}))",
        "return table.concat(setmetatable({}, {__index = type}), '', 1, 1 << 60)",
        "return table.unpack({}, 1, 1 << 60)",
        "load(string.rep('(', 100000))",
        "return load('return ' .. string.rep('a..', 100000) .. 'a')()",
        "while true do objclass.map_set_val('k', input) end",
        "local a = {} a[1] = a while true do a = setmetatable({}, {__gc = function() while true do end end}) end",
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
    ] {
        let r = run(s);
        assert!(matches!(r, Err(EIO)) || r.as_ref().is_ok_and(|o| o.ret == 0), "{s}: {r:?}");
    }
}

/// The replaced functions behave as Lua's own.
#[test]
fn tables_work() {
    let s = "
        local t = {3, 1, 2}
        table.sort(t); assert(table.concat(t, ',') == '1,2,3')
        table.sort(t, function(a, b) return a > b end); assert(table.concat(t) == '321')
        table.insert(t, 4); table.insert(t, 1, 0); assert(table.concat(t) == '03214')
        assert(table.remove(t) == 4 and table.remove(t, 1) == 0 and #t == 3)
        assert(table.remove({}) == nil)
        assert(table.concat(table.move({1, 2, 3}, 2, 3, 1)) == '233')
        assert(table.concat(table.move({1, 2, 3}, 1, 3, 2)) == '1123')
        local a, b, c = table.unpack({1, nil, 3}, 1, 3); assert(a == 1 and b == nil and c == 3)
        assert(('key=value'):match('(%w+)=(%w+)') == 'key')
        assert(('a b'):gsub('%w', '<%0>') == '<a> <b>')
        assert(load('return 1 + 1')() == 2 and load('x = 1', 'c', 't', {}))
        return 0";
    assert_eq!(run(s).unwrap().ret, 0);
}

#[test]
fn scripts_get_random_numbers_from_the_context() {
    let s = "output:append(tostring(math.random(1 << 40)))";
    assert_eq!(run(s), run(s), "the same context, the same numbers");
}

/// A wait ends the script at once, even within `pcall`, and is not an error of the script.
#[test]
fn a_wait_is_passed_on() {
    let call = Call::decode(&call(
        "function h() pcall(objclass.read, 0, 0); objclass.write_full(bufferlist.new()) end objclass.register(h)",
        "h",
        b"",
    ))
    .unwrap();
    let mut c = Waits { inner: MemCtx::new(), wrote: false };
    assert_eq!(super::eval(&mut c, call), Err(ClsError::Wait));
    assert!(!c.wrote);
}

#[test]
fn input_as_json() {
    let j = |t: &str| Call::from_json(&Bytes::copy_from_slice(t.as_bytes()));
    let c = j("{\"script\": \"a\\n\\u00e9\\ud83d\\ude00\", \"x\": [1, {\"y\": null}], \"handler\": \"h\", \"input\": \"i\",\n}").unwrap();
    assert_eq!((&c.script[..], &c.handler[..], &c.input[..]), ("a\né😀".as_bytes(), &b"h"[..], &b"i"[..]));
    for bad in [
        "",
        "{",
        "[]",
        "{}",
        "{\"script\": 1, \"handler\": \"\"}",
        "{\"script\": \"\"}",
        "{\"script\": \"\\ud800\", \"handler\": \"\"}",
    ] {
        assert_eq!(j(bad).unwrap_err(), EINVAL.into(), "{bad}");
    }
    let deep = format!("{{\"x\": {}", "[".repeat(1_000_000));
    assert_eq!(j(&deep).unwrap_err(), EINVAL.into());
}

/// A page of large values ends early; the script goes on after its last key.
#[test]
fn a_script_gets_large_values_in_short_pages() {
    const SIZE: usize = 4 << 20;
    let mut c = MemCtx::new();
    c.quiet = true;
    let omap = (0..10).map(|i| (format!("k{i}").into(), vec![7; SIZE].into())).collect();
    c.object = Some(MemObject { omap, ..MemObject::default() });
    let page = "local n, last = 0, ''
        for k, v in pairs(objclass.map_get_vals(input:str(), '', 100)) do
            n = n + 1
            assert(#v:str() == 4 << 20)
            if k > last then last = k end
        end
        output:append(last)
        return n";
    let (mut after, mut pages) = (Bytes::new(), Vec::new());
    while pages.iter().sum::<usize>() < 10 {
        let o = run_on(&mut c, page, &after).unwrap();
        assert!(o.ret > 0, "{pages:?}");
        pages.push(o.ret as usize);
        after = o.out;
    }
    assert!(pages.len() > 1 && pages.iter().all(|n| n * SIZE < crate::util::LIST_BYTES + 3 * SIZE), "{pages:?}");
    assert_eq!((pages.iter().sum::<usize>(), &after[..]), (10, &b"k9"[..]));
}

/// The time that a script takes on its reactor includes the entries that it reads, also those without a value.
#[test]
fn a_script_may_list_a_bounded_number_of_entries() {
    let mut c = MemCtx::new();
    (c.quiet, c.page) = (true, usize::MAX);
    let omap = (0..2000).map(|i| (format!("k{i:04}").into(), Bytes::new())).collect();
    c.object = Some(MemObject { omap, ..MemObject::default() });
    for list in ["map_get_keys('', 1000)", "map_get_vals('', '', 1000)"] {
        c.rows_read = 0;
        let once = run_on(&mut c, &format!("objclass.{list}"), b"");
        assert!(once.is_ok() && c.rows_read == 1000, "{once:?}");
        c.rows_read = 0;
        assert_eq!(run_on(&mut c, &format!("while true do objclass.{list} end"), b""), Err(EIO));
        assert!(c.rows_read <= 101_000, "{}", c.rows_read);
    }
}

/// An object whose data is never in memory.
struct Waits {
    inner: MemCtx,
    wrote: bool,
}

impl ObjectCtx for Waits {
    fn read(&mut self, _: u64, _: u64) -> crate::ClsResult<Bytes> {
        Err(ClsError::Wait)
    }
    fn write_full(&mut self, _: &[u8]) -> crate::ClsResult<()> {
        self.wrote = true;
        Ok(())
    }
    fn random(&mut self) -> u64 {
        self.inner.random()
    }
    fn log(&self, _: &str) {}
    fn exists(&mut self) -> crate::ClsResult<bool> {
        self.inner.exists()
    }
    fn stat(&mut self) -> crate::ClsResult<(u64, base::Utime)> {
        self.inner.stat()
    }
    fn create(&mut self, e: bool) -> crate::ClsResult<()> {
        self.inner.create(e)
    }
    fn remove(&mut self) -> crate::ClsResult<()> {
        self.inner.remove()
    }
    fn write(&mut self, o: u64, d: &[u8]) -> crate::ClsResult<()> {
        self.inner.write(o, d)
    }
    fn truncate(&mut self, s: u64) -> crate::ClsResult<()> {
        self.inner.truncate(s)
    }
    fn zero(&mut self, o: u64, l: u64) -> crate::ClsResult<()> {
        self.inner.zero(o, l)
    }
    fn getxattr(&mut self, n: &[u8]) -> crate::ClsResult<Bytes> {
        self.inner.getxattr(n)
    }
    fn getxattrs(&mut self) -> crate::ClsResult<Vec<(Bytes, Bytes)>> {
        self.inner.getxattrs()
    }
    fn setxattr(&mut self, n: &[u8], v: &[u8]) -> crate::ClsResult<()> {
        self.inner.setxattr(n, v)
    }
    fn rmxattr(&mut self, n: &[u8]) -> crate::ClsResult<()> {
        self.inner.rmxattr(n)
    }
    fn omap_header(&mut self) -> crate::ClsResult<Bytes> {
        self.inner.omap_header()
    }
    fn omap_set_header(&mut self, h: &[u8]) -> crate::ClsResult<()> {
        self.inner.omap_set_header(h)
    }
    fn omap_get(&mut self, k: &[u8]) -> crate::ClsResult<Bytes> {
        self.inner.omap_get(k)
    }
    fn omap_list(&mut self, a: &[u8], p: &[u8], m: usize) -> crate::ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
        self.inner.omap_list(a, p, m)
    }
    fn omap_part(&mut self, a: &[u8], p: &[u8], r: crate::Room) -> crate::ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
        self.inner.omap_part(a, p, r)
    }
    fn parts(&mut self) -> &mut crate::Parts {
        self.inner.parts()
    }
    fn omap_set(&mut self, e: &[(Bytes, Bytes)]) -> crate::ClsResult<()> {
        self.inner.omap_set(e)
    }
    fn omap_rm(&mut self, k: &[u8]) -> crate::ClsResult<()> {
        self.inner.omap_rm(k)
    }
    fn omap_rm_range(&mut self, f: &[u8], l: &[u8]) -> crate::ClsResult<()> {
        self.inner.omap_rm_range(f, l)
    }
    fn omap_clear(&mut self) -> crate::ClsResult<()> {
        self.inner.omap_clear()
    }
    fn now(&self) -> base::Utime {
        self.inner.now()
    }
    fn origin(&self) -> (base::EntityName, base::EntityAddr) {
        self.inner.origin()
    }
    fn current_version(&self) -> u64 {
        self.inner.current_version()
    }
    fn subop_index(&self) -> u32 {
        self.inner.subop_index()
    }
    fn snapset_seq(&mut self) -> crate::ClsResult<u64> {
        self.inner.snapset_seq()
    }
    fn snap_context(&self) -> (u64, Vec<u64>) {
        self.inner.snap_context()
    }
    fn watchers(&mut self) -> crate::ClsResult<Vec<crate::Watcher>> {
        self.inner.watchers()
    }
    fn client_features(&self) -> u64 {
        self.inner.client_features()
    }
}
