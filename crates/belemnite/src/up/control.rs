//! The socket at which a running `up` takes commands about its daemons.
//!
//! One request per connection, in the form of Ceph's admin sockets ([`net::admin_socket`], which bounds requests and
//! connections). The socket is in a directory that only its owner can enter. Requests that destroy something are checked
//! here against the monitor's map, whatever the client has checked.

use super::layout::Layout;
use super::{Error, make};
use base::errno;
use net::admin_socket::{self, AdminSocket, Arg, Command, Handler};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A request to `up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "prefix", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Show the daemons: [`Seen`] as JSON.
    Daemons,
    /// Stop a daemon; it stays down until it is started, or until the next `up`.
    Stop {
        /// Name: `osd.0`.
        daemon: String,
    },
    /// Start a daemon that is down.
    Start {
        /// Name: `osd.0`.
        daemon: String,
    },
    /// Stop a daemon and start it again.
    Restart {
        /// Name: `osd.0`.
        daemon: String,
    },
    /// Stop all daemons and end.
    Shutdown,
    /// Forget an OSD that is stopped and not in the monitor's map, and remove its directory.
    Erase {
        /// Id of the OSD.
        osd: u32,
    },
    /// Make the store of a new OSD, or of one that was destroyed; register and start it.
    Make {
        /// Id of a destroyed OSD whose store is to be replaced; `None` for a new OSD.
        osd: Option<u32>,
        /// Block device; `None` for a file, or for the device that a replaced OSD had.
        device: Option<PathBuf>,
        /// Size of the file in bytes.
        size: Option<u64>,
        /// Overwrite a device that holds something else.
        force: bool,
    },
}

/// The daemons of an `up`, as it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Name of this run of `up`, which no other has.
    #[serde(default)]
    pub(crate) up: String,
    /// Whether all were started.
    pub(crate) ready: bool,
    /// The program file of the daemons.
    pub(crate) program: PathBuf,
    /// Whether another file has taken its place since `up` began.
    pub(crate) replaced: bool,
    /// The daemons in the order of their start.
    pub(crate) daemons: Vec<SeenDaemon>,
}

/// A daemon of an `up`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SeenDaemon {
    /// Name: `osd.0`.
    pub(crate) name: String,
    /// Process id, while it runs.
    pub(crate) pid: Option<u32>,
    /// `running`, `starting` before its first start, `stopped`, `waiting` for its restart, or `purged`.
    pub(crate) state: String,
}

/// The answer: a text, or why the request was refused.
pub(crate) type Answer = Result<String, String>;
/// Way of an answer back to the client.
pub(crate) type Reply = oneshot::Sender<Answer>;

const fn arg(name: &'static str, kind: &'static str, optional: bool) -> Arg {
    Arg { name, kind, optional, many: false }
}

const DAEMON: &[Arg] = &[arg("daemon", "CephString", false)];

const COMMANDS: &[Command] = &[
    Command { prefix: "daemons", args: &[], help: "show the daemons" },
    Command { prefix: "stop", args: DAEMON, help: "stop a daemon" },
    Command { prefix: "start", args: DAEMON, help: "start a daemon" },
    Command { prefix: "restart", args: DAEMON, help: "restart a daemon" },
    Command { prefix: "shutdown", args: &[], help: "stop all daemons and end" },
    Command {
        prefix: "erase",
        args: &[arg("osd", "CephInt", false)],
        help: "remove the directory of an OSD that was purged",
    },
    Command {
        prefix: "make",
        args: &[
            arg("osd", "CephInt", true),
            arg("device", "CephString", true),
            arg("size", "CephInt", true),
            arg("force", "CephBool", false),
        ],
        help: "make the store of a new or destroyed OSD",
    },
];

/// Checks that the paths of the sockets below the directory are short enough for the kernel.
///
/// # Errors
/// The path is too long.
pub(crate) fn check_length(l: &Layout) -> Result<(), Error> {
    /// Longest path of a Unix socket on Linux, without the zero byte.
    const SOCKET_PATH_MAX: usize = 107;
    let longest = l.run().join("client.rgw.a.asok");
    let over = longest.as_os_str().len().saturating_sub(SOCKET_PATH_MAX);
    if over > 0 {
        return Err(format!("--data {}: the path is {over} bytes too long for Unix sockets", l.dir.display()).into());
    }
    Ok(())
}

/// Serves requests, which go to `to`.
///
/// # Errors
/// The socket cannot be made, or another kind of file is in its place.
pub(crate) fn serve(l: &Layout, to: mpsc::Sender<(Request, Reply)>) -> Result<AdminSocket, Error> {
    let path = l.control();
    let wrong = |e: &dyn std::fmt::Display| -> Error { format!("{}: {e}", path.display()).into() };
    match std::fs::DirBuilder::new().mode(0o700).create(l.control_dir()) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(wrong(&e)),
        _ => {}
    }
    // Before this the directory may have been made by others.
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(l.control_dir(), std::fs::Permissions::from_mode(0o700)).map_err(|e| wrong(&e))?;
    match std::fs::symlink_metadata(&path) {
        Ok(m) if m.file_type().is_socket() => std::fs::remove_file(&path).map_err(|e| wrong(&e))?,
        Ok(_) => return Err(wrong(&"is in the place of the socket of `up` and is no socket; move it away")),
        Err(_) => {}
    }
    let layout = l.clone();
    let handler: Handler = Rc::new(move |_, args| {
        let (to, layout) = (to.clone(), layout.clone());
        Box::pin(async move { handle(args, &to, &layout).await.map_err(|e| (errno::EPERM, e)) })
    });
    admin_socket::serve(&path, &[COMMANDS], handler).map_err(|e| wrong(&e))
}

async fn handle(args: Map<String, Value>, to: &mpsc::Sender<(Request, Reply)>, l: &Layout) -> Answer {
    let r: Request = serde_json::from_value(Value::Object(args)).map_err(|e| format!("malformed request: {e}"))?;
    match &r {
        Request::Erase { osd } => check_gone(l, *osd, false).await?,
        Request::Make { osd: Some(osd), .. } => check_gone(l, *osd, true).await?,
        _ => {}
    }
    let (reply, answer) = oneshot::channel();
    let ended = |_| "`up` is ending".to_owned();
    to.send((r, reply)).await.map_err(|_| "`up` is ending".to_owned())?;
    answer.await.map_err(ended)?
}

/// Checks that the monitor's map does not have an OSD, or, if that `may` be, shows it destroyed.
async fn check_gone(l: &Layout, id: u32, may_be_destroyed: bool) -> Result<(), String> {
    let shown = async {
        let c = make::connect(l).await?;
        make::shown_osds(&c).await
    };
    let shown = shown.await.map_err(|e| format!("the monitor's map cannot be read: {e}"))?;
    match shown.iter().find(|s| s.id == u64::from(id)) {
        Some(s) if !(may_be_destroyed && s.destroyed) => {
            Err(format!("osd.{id} is in the monitor's map and not destroyed; its store stays"))
        }
        _ => Ok(()),
    }
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No `up` serves the directory.
    #[error("no `belemnite up` serves {}", .0.display())]
    NotRunning(PathBuf),
    /// The `up` that served the directory ended during a command that it carries out.
    #[error(
        "`belemnite up` of {} ended meanwhile; start it and run the same command again: it goes on where it stopped",
        .0.display()
    )]
    Ended(PathBuf),
    /// `up` refuses the request.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("the connection to `up` broke: {0}; `belemnite daemons` shows what runs")]
    Broken(std::io::Error),
}

/// Time limit of an answer. The longest work is to make a store.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Sends a request to the `up` that serves a directory, and waits for its answer.
///
/// # Errors
/// See [`AskError`].
pub(crate) fn ask(l: &Layout, r: &Request) -> Result<String, AskError> {
    let request = serde_json::to_string(r).map_err(|e| AskError::Refused(e.to_string()))?;
    talk(&l.control(), &request).map_err(|e| match e {
        AskError::NotRunning(_) => AskError::NotRunning(l.dir.clone()),
        // It was killed while it had the request.
        AskError::Broken(e) if !timed_out(&e) && !answers(l) => AskError::Ended(l.dir.clone()),
        e => e,
    })
}

/// Tells whether the answer was not there in time, on a connection that stands.
fn timed_out(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Tells whether an `up` serves the directory. A process that is killed may close a connection before its socket, so that
/// for a moment a connection is taken that nobody answers.
fn answers(l: &Layout) -> bool {
    let daemons = serde_json::to_string(&Request::Daemons).unwrap_or_default();
    !talk(&l.control(), &daemons).is_err_and(|e| shows_the_end(&e))
}

/// Tells whether a failed request shows that `up` has ended. One that hangs still holds its connections, so that the request
/// ends by its time limit.
fn shows_the_end(e: &AskError) -> bool {
    match e {
        AskError::NotRunning(_) => true,
        AskError::Broken(e) => !timed_out(e),
        _ => false,
    }
}

/// Sends a request to the socket of `up` or of a daemon, and waits for the answer.
///
/// # Errors
/// See [`AskError`]; `NotRunning` has the path of the socket.
pub(crate) fn talk(path: &Path, request: &str) -> Result<String, AskError> {
    let mut s = match UnixStream::connect(path) {
        Ok(s) => s,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory) => {
            return Err(AskError::NotRunning(path.to_owned()));
        }
        Err(e) => return Err(AskError::Refused(format!("{}: {e}", path.display()))),
    };
    let talk = || {
        s.set_read_timeout(Some(ANSWER_MAX))?;
        s.write_all(request.as_bytes())?;
        s.write_all(b"\0")?;
        let mut out = Vec::new();
        s.take(ANSWER_BYTES_MAX).read_to_end(&mut out)?;
        match out.get(4..) {
            Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    };
    let text: String = talk().map_err(AskError::Broken)?;
    match text.strip_prefix("ERROR: ") {
        // The first line is the errno.
        Some(e) => Err(AskError::Refused(e.split_once('\n').map_or(e, |(_, text)| text).trim().to_owned())),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_names_of_the_commands() {
        let all = [
            Request::Daemons,
            Request::Stop { daemon: "osd.0".into() },
            Request::Start { daemon: "osd.0".into() },
            Request::Restart { daemon: "osd.0".into() },
            Request::Shutdown,
            Request::Erase { osd: 1 },
            Request::Make { osd: None, device: None, size: Some(1), force: false },
        ];
        for (r, c) in all.iter().zip(COMMANDS) {
            let v = serde_json::to_value(r).unwrap();
            assert_eq!(v["prefix"], c.prefix);
            for a in c.args {
                assert!(v.get(a.name).is_some(), "{}: {}", c.prefix, a.name);
            }
            assert_eq!(serde_json::from_value::<Request>(v).unwrap(), *r);
        }
        for bad in [r#"{"prefix":"erase"}"#, r#"{"prefix":"erase","osd":-1}"#, r#"{"prefix":"stop","daemon":3}"#] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
    }

    /// The listener stays open for a while after the connection with the request: the kernel closes one file after another.
    #[test]
    fn an_up_that_dies_is_said_ended_before_its_socket_is_closed() {
        let dir = std::env::temp_dir().join(format!("belemnite-control-dies-{}", std::process::id()));
        let l = Layout { dir: dir.clone() };
        std::fs::create_dir_all(l.control_dir()).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(l.control()).unwrap();
        let dies = std::thread::spawn(move || {
            drop(listener.accept().unwrap());
            drop(listener.accept().unwrap());
        });
        let e = ask(&l, &Request::Shutdown);
        assert!(matches!(e, Err(AskError::Ended(_))), "{e:?}");
        dies.join().unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_up_that_hangs_is_not_said_ended() {
        let broken = |kind: ErrorKind| AskError::Broken(kind.into());
        assert!(!shows_the_end(&broken(ErrorKind::WouldBlock)) && !shows_the_end(&broken(ErrorKind::TimedOut)));
        assert!(shows_the_end(&broken(ErrorKind::UnexpectedEof)) && shows_the_end(&broken(ErrorKind::ConnectionReset)));
        assert!(!shows_the_end(&AskError::Refused("no such daemon".to_owned())));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_file_of_another_kind_in_the_place_of_the_socket_stays() {
        let dir = std::env::temp_dir().join(format!("belemnite-control-{}", std::process::id()));
        let l = Layout { dir: dir.clone() };
        std::fs::create_dir_all(l.control_dir()).unwrap();
        let (to, _from) = mpsc::channel(1);
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                std::fs::write(l.control(), "notes").unwrap();
                let e = serve(&l, to.clone()).unwrap_err().to_string();
                assert!(e.contains("is no socket"), "{e}");
                assert_eq!(std::fs::read_to_string(l.control()).unwrap(), "notes");
                std::fs::remove_file(l.control()).unwrap();
                std::os::unix::fs::symlink("/nowhere", l.control()).unwrap();
                assert!(serve(&l, to.clone()).is_err());
                std::fs::remove_file(l.control()).unwrap();
                // The socket of a process that was killed.
                drop(std::os::unix::net::UnixListener::bind(l.control()).unwrap());
                assert!(matches!(ask(&l, &Request::Daemons), Err(AskError::NotRunning(_))));
                let served = serve(&l, to).unwrap();
                use std::os::unix::fs::PermissionsExt as _;
                let mode = |p: PathBuf| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
                assert_eq!((mode(l.control_dir()), mode(l.control())), (0o700, 0o600));
                drop(served);
            })
            .await;
        std::fs::remove_dir_all(dir).unwrap();
    }
}
