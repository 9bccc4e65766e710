//! The admin socket: a Unix socket that answers `ceph daemon PATH COMMAND` and its like.
//!
//! Protocol (Ceph's): one request per connection, a JSON object (or just the command's words) ended by a zero byte, a
//! newline or end of file; the answer is a big-endian u32 length and that many bytes. A failure is answered with text
//! that begins with `ERROR: `. `help`, `version`, `get_command_descriptions` and the legacy command `0` are built in.

use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use base::errno::{self, Errno};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// Longest request.
pub const MAX_REQUEST: usize = 64 << 10;
/// Connections served at once; more wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 16;
/// Time after which a connection that has not sent its request is closed.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Ceph release that we report; tools compare it.
pub const VERSION: &str = "16.2.15";

/// One argument of a command.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name in the request.
    pub name: &'static str,
    /// Ceph's type name, `CephString`, `CephInt`, ….
    pub kind: &'static str,
    /// May be left out.
    pub optional: bool,
    /// Takes all remaining words.
    pub many: bool,
}

/// A command that the daemon's handler serves.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its words.
    pub prefix: &'static str,
    /// Its arguments in order.
    pub args: &'static [Arg],
    /// One line of help.
    pub help: &'static str,
}

/// Answer of a handler: output, or an errno with text.
pub type Answer = Result<String, (Errno, String)>;
/// Handler of the commands. It gets `prefix` and the whole request.
pub type Handler = Rc<dyn Fn(String, Map<String, Value>) -> Pin<Box<dyn Future<Output = Answer>>>>;

/// A served socket; dropping it stops the server and removes the file.
#[derive(Debug)]
pub struct AdminSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves `commands` at `path` on this reactor. A file left there by a dead process is replaced; a live one is refused.
pub fn serve(path: &Path, commands: &[&'static [Command]], handler: Handler) -> io::Result<AdminSocket> {
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{} is in use", path.display())));
        }
        std::fs::remove_file(path)?;
    }
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let commands: Rc<[Command]> = commands.iter().copied().flatten().copied().collect();
    let task = tokio::task::spawn_local(accept_loop(listener, commands, handler));
    Ok(AdminSocket { path: path.to_owned(), task })
}

async fn accept_loop(listener: UnixListener, commands: Rc<[Command]>, handler: Handler) {
    let slots = Rc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Rc::clone(&slots).acquire_owned_local().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (handler, commands) = (Rc::clone(&handler), Rc::clone(&commands));
                tokio::task::spawn_local(async move {
                    let _slot = slot;
                    // The peer is a local tool; a broken pipe does not concern the daemon.
                    let _ = serve_one(stream, &commands, handler).await;
                });
            }
            Err(e) => {
                tracing::warn!("admin socket: accept: {e}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// A permit that returns its slot when dropped. The owned permit of `Semaphore` would need an `Arc`.
struct Slot(Rc<tokio::sync::Semaphore>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

trait AcquireLocal {
    async fn acquire_owned_local(self) -> Result<Slot, tokio::sync::AcquireError>;
}

impl AcquireLocal for Rc<tokio::sync::Semaphore> {
    async fn acquire_owned_local(self) -> Result<Slot, tokio::sync::AcquireError> {
        self.acquire().await?.forget();
        Ok(Slot(self))
    }
}

async fn serve_one(mut s: UnixStream, commands: &[Command], handler: Handler) -> io::Result<()> {
    let request = match tokio::time::timeout(REQUEST_TIMEOUT, read_request(&mut s)).await {
        Ok(r) => r?,
        Err(_) => return Ok(()),
    };
    let answer = match parse(&request) {
        Ok((prefix, args)) => match builtin(&prefix, commands) {
            Some(text) => Ok(text),
            None => match resolve(&prefix, args, commands) {
                Some((prefix, args)) => handler(prefix, args).await,
                None => Err((errno::EINVAL, format!("unknown command '{prefix}'"))),
            },
        },
        Err(e) => Err((errno::EINVAL, e)),
    };
    let text = answer.unwrap_or_else(|(e, t)| format!("ERROR: {}\n{t}\n", strerror(e)));
    let len = u32::try_from(text.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    s.write_all(&len.to_be_bytes()).await?;
    s.write_all(text.as_bytes()).await?;
    s.shutdown().await
}

/// Finds the command that a request names. Words without JSON include their arguments: `config get var`.
fn resolve(prefix: &str, mut args: Map<String, Value>, commands: &[Command]) -> Option<(String, Map<String, Value>)> {
    if commands.iter().any(|c| c.prefix == prefix) {
        return Some((prefix.to_owned(), args));
    }
    if !args.is_empty() {
        return None;
    }
    let rest = |c: &Command| prefix.strip_prefix(c.prefix).filter(|r| r.starts_with(' ')).map(str::trim);
    let c = commands.iter().filter(|c| rest(c).is_some()).max_by_key(|c| c.prefix.len())?;
    let mut words = rest(c)?.split_whitespace();
    for a in c.args {
        let value: Value = if a.many {
            words.by_ref().collect::<Vec<_>>().into()
        } else {
            words.next().map_or(Value::Null, Value::from)
        };
        args.insert(a.name.to_owned(), value);
    }
    words.next().is_none().then(|| (c.prefix.to_owned(), args))
}

/// An errno with its number, as C libraries print it: `(22) Invalid argument`.
#[must_use]
pub fn strerror(e: Errno) -> String {
    let text = io::Error::from_raw_os_error(e.abs()).to_string();
    format!("({}) {}", e.abs(), text.split(" (os error").next().unwrap_or_default())
}

async fn read_request(s: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut buf = Vec::new();
    let mut chunk = [0u8; 1024];
    loop {
        let n = s.read(&mut chunk).await?;
        let got = chunk.get(..n).unwrap_or_default();
        if let Some(end) = got.iter().position(|b| matches!(b, 0 | b'\n')) {
            buf.extend_from_slice(got.get(..end).unwrap_or_default());
            return Ok(buf);
        }
        buf.extend_from_slice(got);
        if n == 0 {
            return Ok(buf);
        }
        if buf.len() > MAX_REQUEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "request too long"));
        }
    }
}

fn parse(request: &[u8]) -> Result<(String, Map<String, Value>), String> {
    let text = std::str::from_utf8(request).map_err(|_| "request is not UTF-8".to_owned())?.trim();
    if text.starts_with('{') {
        let Ok(Value::Object(map)) = serde_json::from_str(text) else { return Err("malformed JSON".into()) };
        let prefix = map.get("prefix").and_then(Value::as_str).ok_or("no prefix")?.to_owned();
        Ok((prefix, map))
    } else {
        Ok((text.to_owned(), Map::new()))
    }
}

fn builtin(prefix: &str, commands: &[Command]) -> Option<String> {
    let own = [
        Command { prefix: "get_command_descriptions", args: &[], help: "list available commands" },
        Command { prefix: "help", args: &[], help: "list available commands" },
        Command { prefix: "version", args: &[], help: "get ceph version" },
    ];
    let all = commands.iter().chain(&own);
    Some(match prefix {
        "0" => "2".to_owned(),
        "version" => to_pretty(&json!({ "version": VERSION, "release": "pacific", "release_type": "stable" })),
        "help" => {
            let mut v: Vec<_> = all.map(|c| (c.prefix.to_owned(), Value::from(c.help))).collect();
            v.sort_by(|a, b| a.0.cmp(&b.0));
            to_pretty(&Value::Object(v.into_iter().collect()))
        }
        "get_command_descriptions" => {
            let mut m = Map::new();
            for (i, c) in all.enumerate() {
                m.insert(format!("cmd{i:03}"), describe(c));
            }
            Value::Object(m).to_string()
        }
        _ => return None,
    })
}

fn describe(c: &Command) -> Value {
    let mut sig: Vec<Value> = c.prefix.split(' ').map(Value::from).collect();
    for a in c.args {
        let mut o = json!({ "name": a.name, "type": a.kind });
        if a.optional {
            o["req"] = "false".into();
        }
        if a.many {
            o["n"] = "N".into();
        }
        sig.push(o);
    }
    json!({ "sig": sig, "help": c.help, "module": "", "perm": "", "flags": 0 })
}

/// Formats a JSON answer, indented as Ceph's daemons do.
#[must_use]
pub fn to_pretty(v: &Value) -> String {
    let mut out = Vec::new();
    let mut ser =
        serde_json::Serializer::with_formatter(&mut out, serde_json::ser::PrettyFormatter::with_indent(b"    "));
    // Serialising a Value into memory cannot fail.
    let _ = serde::Serialize::serialize(v, &mut ser);
    out.push(b'\n');
    String::from_utf8_lossy(&out).into_owned()
}

/// Formats a JSON answer on one line, with the spaces that Python's encoder writes.
#[must_use]
pub fn to_line(v: &Value) -> String {
    struct Spaced;
    impl serde_json::ser::Formatter for Spaced {
        fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { w.write_all(b", ") }
        }
        fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, w: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { w.write_all(b", ") }
        }
        fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W) -> std::io::Result<()> {
            w.write_all(b": ")
        }
    }
    let mut out = Vec::new();
    // Serialising a Value into memory cannot fail.
    let _ = serde::Serialize::serialize(v, &mut serde_json::Serializer::with_formatter(&mut out, Spaced));
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: &[Command] = &[Command {
        prefix: "config get",
        args: &[Arg { name: "var", kind: "CephString", optional: false, many: false }],
        help: "show one option",
    }];

    fn ask(path: &Path, request: &[u8]) -> String {
        use std::io::{Read, Write};
        let mut s = std::os::unix::net::UnixStream::connect(path).unwrap();
        s.write_all(request).unwrap();
        let mut len = [0; 4];
        s.read_exact(&mut len).unwrap();
        let mut out = vec![0; u32::from_be_bytes(len) as usize];
        s.read_exact(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers_as_ceph_tools_expect() {
        let dir = std::env::temp_dir().join(format!("belemnite-asok-{}", std::process::id()));
        let path = dir.join("x.asok");
        let (send, recv) = std::sync::mpsc::channel();
        let p = path.clone();
        let client = std::thread::spawn(move || {
            recv.recv().unwrap();
            let plain = ask(&p, b"version\n");
            let json = ask(&p, b"{\"prefix\": \"config get\", \"var\": \"x\"}\0");
            let bad = ask(&p, b"{\"prefix\": \"nonsense\"}\0");
            let broken = ask(&p, b"{\"prefix\": \0");
            (plain, json, bad, broken, ask(&p, b"get_command_descriptions\0"))
        });
        let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let got = local.block_on(&rt, async {
            let handler: Handler = Rc::new(|prefix, args| {
                Box::pin(async move { Ok(format!("{prefix} of {}", args["var"].as_str().unwrap_or_default())) })
            });
            let _server = serve(&path, &[COMMANDS], Rc::clone(&handler)).unwrap();
            assert!(serve(&path, &[COMMANDS], handler).is_err(), "a live socket is not taken over");
            send.send(()).unwrap();
            tokio::task::spawn_blocking(move || client.join().unwrap()).await.unwrap()
        });
        assert!(got.0.contains("16.2"));
        assert_eq!(got.1, "config get of x");
        assert!(got.2.starts_with("ERROR: (22) Invalid argument"));
        assert!(got.3.starts_with("ERROR: (22) Invalid argument"));
        let sig: Value = serde_json::from_str(&got.4).unwrap();
        assert_eq!(sig["cmd000"]["sig"][2]["name"], "var");
        assert!(!path.exists(), "the file goes with the server");
        let _ = std::fs::remove_dir(dir);
    }
}
