//! Commands to a cluster's monitor over one connection of our own client, and to daemons over their admin sockets.
//!
//! Polling the cluster every second must not distort the measurement. `ceph -s` takes a third of a second of CPU; a
//! command on this connection takes some microseconds.

use bytes::Bytes;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time limit of a command.
const LIMIT: Duration = Duration::from_secs(60);
/// Largest answer in bytes that is accepted from an admin socket.
const ANSWER_MAX: u32 = 64 << 20;
/// Interval between two status queries while waiting.
const LOOK: Duration = Duration::from_millis(100);

/// Error of a command.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ControlError {
    /// The monitor refused the command.
    #[error("{command}: {status} ({rc})")]
    Refused {
        /// The command.
        command: String,
        /// Status text of the monitor.
        status: String,
        /// A negative errno.
        rc: i32,
    },
    /// No monitor could be reached, or none answered.
    #[error("monitor: {0}")]
    Unreachable(String),
    /// The answer could not be parsed.
    #[error("{command}: the answer cannot be decoded")]
    Answer {
        /// The command.
        command: String,
    },
    /// The awaited state did not come within the time limit.
    #[error("timed out after {0:?} waiting for {1}")]
    Waited(Duration, String),
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

type Answer = Result<client::host::CommandReply, client::ClientError>;

struct Request {
    json: String,
    input: Bytes,
    answer: mpsc::Sender<Answer>,
}

/// A connection to a cluster's monitor, usable from every thread.
#[derive(Clone)]
pub struct Control {
    tx: tokio::sync::mpsc::UnboundedSender<Request>,
}

impl Control {
    /// Connects and authenticates to the monitor that `options` name. Error: [`ControlError::Unreachable`].
    pub fn connect(options: client::Options) -> Result<Self, ControlError> {
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel::<Request>();
        let (ready, connected) = mpsc::channel();
        let unreachable = |e: String| ControlError::Unreachable(e);
        let run = move || {
            reactor::runtime::run_here(|_, _| async move {
                let c = match client::Client::connect(options).await {
                    Ok(c) => c,
                    Err(e) => return drop(ready.send(Err(e.to_string()))),
                };
                if ready.send(Ok(())).is_err() {
                    return;
                }
                while let Some(r) = rx.recv().await {
                    let c = c.clone();
                    tokio::task::spawn_local(async move {
                        // The caller may have given up waiting.
                        let _ = r.answer.send(c.mon_command(&r.json, r.input).await);
                    });
                }
            })
        };
        std::thread::Builder::new().name("control".into()).spawn(run).map_err(|e| unreachable(e.to_string()))?;
        connected.recv().map_err(|e| unreachable(e.to_string()))?.map_err(unreachable)?;
        Ok(Self { tx })
    }

    /// Runs a command and returns its output. Error: [`ControlError::Refused`] or [`ControlError::Unreachable`].
    pub fn run(&self, command: &Value, input: &[u8]) -> Result<Bytes, ControlError> {
        let (answer, rx) = mpsc::channel();
        let name = command["prefix"].as_str().unwrap_or_default().to_owned();
        let gone = |e: &dyn std::fmt::Display| ControlError::Unreachable(format!("{name}: {e}"));
        let r = Request { json: command.to_string(), input: Bytes::copy_from_slice(input), answer };
        self.tx.send(r).map_err(|e| gone(&e))?;
        let r = rx.recv_timeout(LIMIT).map_err(|e| gone(&e))?.map_err(|e| gone(&e))?;
        if r.rc < 0 {
            return Err(ControlError::Refused { command: name, status: r.status, rc: r.rc });
        }
        Ok(r.out)
    }

    /// Runs a command and reads its output as JSON. Error: that of [`Control::run`], or [`ControlError::Answer`] for
    /// output that is no JSON.
    pub fn json(&self, mut command: Value) -> Result<Value, ControlError> {
        if let Some(m) = command.as_object_mut() {
            m.insert("format".into(), "json".into());
        }
        let out = self.run(&command, &[])?;
        let name = command["prefix"].as_str().unwrap_or_default();
        serde_json::from_slice(&out).map_err(|_| ControlError::Answer { command: name.to_owned() })
    }

    /// The cluster's status. Errors are those of [`Control::json`].
    pub fn status(&self) -> Result<Status, ControlError> {
        self.json(json!({"prefix": "status"})).map(Status)
    }

    /// Polls the status until `is` accepts it. Error: [`ControlError::Waited`] after `limit`, or
    /// [`ControlError::Cancelled`]; a failed poll is repeated.
    pub fn wait(
        &self,
        what: &str,
        limit: Duration,
        cancel: &super::command::Cancel,
        is: impl Fn(&Status) -> bool,
    ) -> Result<(), ControlError> {
        let begin = Instant::now();
        loop {
            let status = self.status();
            if status.as_ref().is_ok_and(&is) {
                return Ok(());
            }
            if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(ControlError::Cancelled);
            }
            if begin.elapsed() > limit {
                let have = status.map_or_else(|e| e.to_string(), |s| s.0["pgmap"]["pgs_by_state"].to_string());
                return Err(ControlError::Waited(limit, format!("{what}; PGs {have}")));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Output of the command `status`.
#[derive(Clone, Debug)]
pub struct Status(pub Value);

impl Status {
    /// OSDs that are up.
    #[must_use]
    pub fn up(&self) -> u64 {
        let m = &self.0["osdmap"];
        m["num_up_osds"].as_u64().or_else(|| m["osdmap"]["num_up_osds"].as_u64()).unwrap_or(0)
    }

    /// PG states, each with the number of PGs in it.
    #[must_use]
    pub fn pgs(&self) -> Vec<(String, u64)> {
        let all = self.0["pgmap"]["pgs_by_state"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(|s| Some((s["state_name"].as_str()?.to_owned(), s["count"].as_u64()?))).collect()
    }

    /// Whether at least `at_least` PGs exist and all of them are active+clean.
    #[must_use]
    pub fn is_clean(&self, at_least: u64) -> bool {
        let pgs = self.pgs();
        let n: u64 = pgs.iter().map(|(_, n)| n).sum();
        n >= at_least && self.0["pgmap"]["num_pgs"].as_u64() == Some(n) && pgs.iter().all(|(s, _)| s == "active+clean")
    }

    /// Names of health checks.
    #[must_use]
    pub fn checks(&self) -> Vec<String> {
        self.0["health"]["checks"].as_object().map(|m| m.keys().cloned().collect()).unwrap_or_default()
    }

    /// Objects that are misplaced or degraded.
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        let n = |k: &str| self.0["pgmap"][k].as_u64().unwrap_or(0);
        n("misplaced_objects") + n("degraded_objects")
    }
}

/// Sends a command to a daemon's admin socket and returns the answer. Error: that of the socket, or `InvalidData` for
/// an answer that is too long or no JSON.
pub fn ask_daemon(socket: &Path, prefix: &str) -> std::io::Result<Value> {
    let bad = |e: serde_json::Error| std::io::Error::new(std::io::ErrorKind::InvalidData, e);
    let mut s = UnixStream::connect(socket)?;
    s.set_read_timeout(Some(Duration::from_secs(10)))?;
    s.set_write_timeout(Some(Duration::from_secs(10)))?;
    s.write_all(format!("{}\0", json!({ "prefix": prefix })).as_bytes())?;
    let mut len = [0; 4];
    s.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len);
    if len > ANSWER_MAX {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "an answer too long"));
    }
    let mut text = Vec::new();
    s.take(len.into()).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(bad)
}
