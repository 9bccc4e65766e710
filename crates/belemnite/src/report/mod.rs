//! `belemnite report`: a bundle for those who are to help, without a secret in it.
//!
//! [`Bundle`] takes texts only by way of [`secrets::Secrets`], so nothing reaches the archive that was not cleaned. What
//! cannot be had is named in `missing.txt`; the bundle of a cluster that does not answer has logs, configuration and
//! the host.
//!
//! `tar` writes the archive.

mod secrets;
mod tar;

use crate::cli::Target;
use crate::cli::operate::{Place, command};
use crate::doctor;
use crate::up::control::{AskError, talk};
use client::Client;
use secrets::Secrets;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

type Error = Box<dyn std::error::Error>;

/// Bytes of the end of each log.
const LOG_END: u64 = 512 << 10;
/// Longest text of one file of the bundle, in bytes.
const TEXT_MAX: usize = 16 << 20;
/// Most logs and most daemons.
const DAEMONS_MAX: usize = 256;
/// Lines of the journal of a host whose daemons are units.
const JOURNAL_LINES: &str = "5000";

/// Commands of the monitor whose answers are in the bundle.
const COMMANDS: &[&str] = &[
    "versions",
    "status",
    "health",
    "osd dump",
    "osd tree",
    "osd df",
    "osd perf",
    "osd blocked-by",
    "osd crush dump",
    "osd pool ls",
    "osd pool autoscale-status",
    "df",
    "pg stat",
    "pg dump_stuck",
    "mon dump",
    "mon metadata",
    "osd metadata",
    "quorum_status",
    "mgr dump",
    "mgr services",
    "fs dump",
    "time-sync-status",
    "config dump",
    "config-key ls",
    "crash ls",
    "device ls",
    "balancer status",
    "progress json",
    "features",
    "osd utilization",
];
/// Commands of daemons, by admin socket.
const OF_DAEMONS: &[&str] =
    &["version", "status", "perf dump", "config diff", "dump_ops_in_flight", "dump_historic_ops", "dump_blocked_ops"];

/// `belemnite report`
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    place: Place,
    /// File to write, which must not exist [default: belemnite-report-TIME.tar.gz]
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The archive while it is made.
struct Bundle {
    secrets: Secrets,
    /// Directory of all files in the archive.
    dir: String,
    seconds: u64,
    tar: Vec<u8>,
    names: BTreeSet<String>,
    missing: Vec<String>,
}

impl Bundle {
    fn put(&mut self, name: &str, mut clean: String) {
        if clean.len() > TEXT_MAX {
            let at = (0..=TEXT_MAX).rev().find(|i| clean.is_char_boundary(*i)).unwrap_or(0);
            clean.truncate(at);
            self.missing.push(format!("{name}: only the first {TEXT_MAX} bytes"));
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-/".contains(c) { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        tar::append(&mut self.tar, &format!("{}/{name}", self.dir), self.seconds, clean.as_bytes());
        self.names.insert(name);
    }

    fn text(&mut self, name: &str, text: &str) {
        let clean = self.secrets.clean(text);
        self.put(name, clean);
    }

    fn conf(&mut self, name: &str, text: &str) {
        let clean = self.secrets.clean_conf(text);
        self.put(name, clean);
    }

    fn json(&mut self, name: &str, v: &Value) {
        let clean = self.secrets.clean_json(v);
        self.put(name, clean);
    }

    fn missing(&mut self, what: &str, why: impl std::fmt::Display) {
        let why = self.secrets.clean(&why.to_string());
        self.missing.push(format!("{what}: {why}"));
    }

    /// The archive, compressed.
    fn finish(mut self) -> std::io::Result<Vec<u8>> {
        let missing = self.missing.join("\n") + "\n";
        self.put("missing.txt", missing);
        tar::finish(&mut self.tar);
        let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        z.write_all(&self.tar)?;
        z.finish()
    }
}

/// The end of a file.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut f = std::fs::File::open(path)?;
    let bytes = f.metadata()?.len();
    f.seek(SeekFrom::Start(bytes.saturating_sub(LOG_END)))?;
    let mut out = Vec::new();
    f.take(LOG_END).read_to_end(&mut out)?;
    let text = String::from_utf8_lossy(&out);
    // The first line of an end is cut somewhere, perhaps within a secret.
    let whole = if bytes > LOG_END { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text };
    Ok(whole.to_owned())
}

/// Files in a directory whose names end so, in order.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> = all.filter(|p| p.to_string_lossy().ends_with(ending)).collect();
    all.sort_unstable();
    all.truncate(DAEMONS_MAX);
    all
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Directories of a cluster on this host.
struct Places {
    conf: Option<PathBuf>,
    keyrings: Vec<PathBuf>,
    logs: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
    /// True if the daemons are units of systemd.
    units: bool,
}

impl Places {
    fn of(t: &Target, place: &Place) -> Result<Self, Error> {
        let conf = t.conf_file().ok().filter(|p| p.exists());
        let up = place.up(t)?.filter(|l| l.dir.is_dir());
        let mut keyrings = Vec::new();
        let mut logs = Vec::new();
        let mut sockets = Vec::new();
        let mut add = |dir: &Path| keyrings.extend(files(dir, "keyring"));
        match &up {
            Some(l) => {
                add(&l.dir);
                files(&l.dir, "").iter().filter(|p| p.is_dir()).for_each(|d| add(d));
                logs.extend(files(&l.log(), ".log"));
                sockets.extend(files(&l.run(), ".asok"));
            }
            None => {
                for dir in ["/etc/ceph", "/var/lib/ceph/bootstrap-osd"] {
                    add(Path::new(dir));
                }
                for dir in ["/var/lib/ceph/osd", "/var/lib/ceph/mon"] {
                    files(Path::new(dir), "").iter().for_each(|d| add(d));
                }
                logs.extend(files(Path::new("/var/log/ceph"), ".log"));
                for dir in ["/run/ceph", "/run/belemnite"] {
                    sockets.extend(files(Path::new(dir), ".asok"));
                }
            }
        }
        let conf = conf.or_else(|| up.as_ref().map(|l| l.conf()).filter(|p| p.exists()));
        Ok(Self { conf, keyrings, logs, sockets, units: up.is_none() })
    }
}

/// Reads all secrets that can be had, before anything else is read.
async fn know_secrets(b: &mut Bundle, places: &Places, c: Option<&Client>) {
    for k in &places.keyrings {
        match std::fs::read_to_string(k) {
            Ok(text) => b.secrets.add_keyring(&text),
            Err(e) => b.missing(&k.display().to_string(), e),
        }
    }
    let Some(c) = c else { return };
    for (prefix, all) in [("config-key dump", true), ("auth ls", false)] {
        match ask(c, prefix).await {
            Ok(v) if all => b.secrets.add_all(&v),
            Ok(v) => {
                let entities = v["auth_dump"].as_array().cloned().unwrap_or_default();
                for e in &entities {
                    ["key", "pending_key"].iter().filter_map(|k| e[*k].as_str()).for_each(|k| b.secrets.add(k));
                }
                let rights = entities.iter().map(|e| json!({ "entity": e["entity"], "caps": e["caps"] }));
                let rights: Value = rights.collect();
                b.json("cluster/rights.json", &rights);
            }
            Err(why) => b.missing(prefix, why),
        }
    }
}

async fn ask(c: &Client, prefix: &str) -> Result<Value, Error> {
    let r = command(c, json!({ "prefix": prefix, "format": "json" })).await?;
    if r.rc < 0 {
        return Err(r.status.into());
    }
    // Some commands answer with text whatever was asked for.
    Ok(serde_json::from_slice(&r.out).unwrap_or_else(|_| String::from_utf8_lossy(&r.out).into_owned().into()))
}

async fn cluster(b: &mut Bundle, c: &Client) {
    for prefix in COMMANDS {
        let file = format!("cluster/{}.json", prefix.replace(' ', "_"));
        match ask(c, prefix).await {
            Ok(v) => b.json(&file, &v),
            Err(why) => b.missing(prefix, why),
        }
    }
    let detail = json!({ "prefix": "health", "detail": "detail" });
    match command(c, detail).await {
        Ok(r) => b.text("cluster/health.txt", &String::from_utf8_lossy(&r.out)),
        Err(why) => b.missing("health detail", why),
    }
    for channel in ["cluster", "audit"] {
        let log = json!({ "prefix": "log last", "num": 1000, "level": "debug", "channel": channel });
        match command(c, log).await {
            Ok(r) => b.text(&format!("cluster/log-{channel}.txt"), &String::from_utf8_lossy(&r.out)),
            Err(why) => b.missing("log last", why),
        }
    }
}

/// Counters and options of the daemons on this host.
async fn daemons(b: &mut Bundle, sockets: &[PathBuf]) {
    for path in sockets {
        let name = stem(path);
        for prefix in OF_DAEMONS {
            let (path, request) = (path.clone(), json!({ "prefix": prefix }).to_string());
            let answer = tokio::task::spawn_blocking(move || talk(&path, &request)).await;
            match answer {
                Ok(Ok(text)) => {
                    let v = serde_json::from_str(&text).unwrap_or(Value::String(text));
                    b.json(&format!("daemons/{name}/{}.json", prefix.replace(' ', "_")), &v);
                }
                // Kinds of daemons have different commands.
                Ok(Err(AskError::Refused(_))) => {}
                Ok(Err(e)) => {
                    b.missing(&name, e);
                    break;
                }
                Err(e) => b.missing(&name, e),
            }
        }
    }
}

fn logs(b: &mut Bundle, places: &Places) {
    for path in &places.logs {
        match end_of(path) {
            Ok(text) => b.text(&format!("logs/{}.log", stem(path)), &text),
            Err(e) => b.missing(&path.display().to_string(), e),
        }
    }
    if !places.units {
        return;
    }
    let args = ["-u", "belemnite*", "-n", JOURNAL_LINES, "--no-pager", "-o", "short-iso-precise"];
    match std::process::Command::new("journalctl").args(args).output() {
        Ok(o) => b.text("logs/journal.txt", &String::from_utf8_lossy(&o.stdout)),
        Err(e) => b.missing("journalctl", e),
    }
}

/// `belemnite report`
///
/// # Errors
/// The file exists or cannot be written. What cannot be read is no error, but named in the bundle.
pub(crate) async fn run(t: &Target, a: ReportArgs) -> Result<(), Error> {
    let now = reactor::clock::read().wall;
    let stamp: String = now.iso().chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    let dir = format!("belemnite-report-{stamp}");
    let path = a.out.clone().unwrap_or_else(|| format!("{dir}.tar.gz").into());
    // Refused before the work, if it exists.
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut file = file.map_err(|e| format!("{}: {e}", path.display()))?;
    let made = make(t, &a.place, dir, now.to_unix().as_secs()).await;
    let written = match made {
        Ok((bytes, files, missing)) => match file.write_all(&bytes).and_then(|()| file.sync_all()) {
            Ok(()) => {
                let size = base::size::show(bytes.len() as u64);
                Ok(format!("{}: {files} files, {size}, {missing} parts are missing", path.display()))
            }
            Err(e) => Err(format!("{}: {e}", path.display()).into()),
        },
        Err(e) => Err(e),
    };
    match written {
        Ok(text) => {
            crate::cli::operate::print(&format!(
                "{text}\nKeys and other secrets were removed; look at it before it leaves your hands."
            ));
            Ok(())
        }
        Err(e) => {
            // A part of a bundle is of no use.
            std::fs::remove_file(&path)?;
            Err(e)
        }
    }
}

/// The bundle with the numbers of its files and of missing parts.
async fn make(t: &Target, place: &Place, dir: String, seconds: u64) -> Result<(Vec<u8>, usize, usize), Error> {
    let places = Places::of(t, place)?;
    let mut b = Bundle {
        secrets: Secrets::default(),
        dir,
        seconds,
        tar: Vec::new(),
        names: BTreeSet::new(),
        missing: Vec::new(),
    };
    let client = match t.connect().await {
        Ok(c) => Some(c),
        Err(e) => {
            b.missing("cluster", e);
            None
        }
    };
    know_secrets(&mut b, &places, client.as_ref()).await;
    b.text("version.txt", concat!("belemnite ", env!("CARGO_PKG_VERSION"), "\n"));
    match places.conf.as_ref().map(|p| (p, std::fs::read_to_string(p))) {
        Some((_, Ok(text))) => b.conf("ceph.conf", &text),
        Some((p, Err(e))) => b.missing(&p.display().to_string(), e),
        None => b.missing("ceph.conf", "none was found"),
    }
    let host = doctor::this_host_json().await;
    b.json("host/doctor.json", &host);
    if let Some(c) = &client {
        cluster(&mut b, c).await;
    }
    daemons(&mut b, &places.sockets).await;
    logs(&mut b, &places);
    let (files, missing) = (b.names.len(), b.missing.len());
    Ok((b.finish()?, files, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_begins_with_a_whole_line() {
        let path = std::env::temp_dir().join(format!("belemnite-report-log-{}", std::process::id()));
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(end_of(&path).unwrap(), "short\n");
        let line = format!("{}\n", "x".repeat(99));
        std::fs::write(&path, line.repeat(LOG_END as usize / 50)).unwrap();
        let end = end_of(&path).unwrap();
        assert!(end.len() as u64 <= LOG_END && end.len().is_multiple_of(100), "{}", end.len());
        std::fs::remove_file(&path).unwrap();
    }
}
