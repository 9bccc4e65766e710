//! Looks after the members of an etcd cluster: their versions, space and alarms, and defragmentation.
//!
//! A member's file never shrinks by itself: compaction leaves free pages in it, and the member refuses changes once the
//! file reaches its quota, free pages or not. So the thread defragments a member whose file is largely free. Members
//! take turns with `DEFRAGMENT_APART` between them, etcd's leader last, and only while all of them answer, because a
//! member answers nothing meanwhile.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, Shared};
use super::http::{Conn, Endpoint};
use super::json::num;
use super::{EtcdOptions, TIMEOUT, refused, shared};
use crate::api::StateError;

/// Interval of looks at the members.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Shortest time between two defragmentations.
const DEFRAGMENT_APART: Duration = Duration::from_secs(600);
/// Files smaller than this are not defragmented, unless they are large for their quota.
const DEFRAGMENT_FROM: u64 = 1 << 30;
/// Time limit of a defragmentation.
const DEFRAGMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// etcd's quota if none is set.
pub const DEFAULT_QUOTA: u64 = 2 << 30;
/// Most bytes of text about a member that are kept.
const TEXT: usize = 256;

/// A version of etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

/// The oldest version of etcd that monitors work with: earlier ones have another path for the JSON gateway.
pub const OLDEST: Version = Version(3, 4, 0);

impl Version {
    /// Parses `3.4.23`; what follows another character is ignored.
    #[must_use]
    pub fn parse(s: &str) -> Option<Self> {
        let mut n = s.splitn(3, '.').map(|p| {
            let digits = p.find(|c: char| !c.is_ascii_digit()).unwrap_or(p.len());
            p.get(..digits)?.parse().ok()
        });
        Some(Self(n.next()??, n.next()??, n.next()??))
    }

    /// True if an etcd leader of this version that hangs never renews a lease which the other members have ended
    /// (etcd-io/etcd#16822).
    #[must_use]
    pub fn renews_with_a_majority(self) -> bool {
        self >= Self(3, 5, 11) || self < Self(3, 5, 0) && self >= Self(3, 4, 29)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A member's version, space and alarms, by its own answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Address of the member: `HOST:PORT`.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Bytes of its file.
    pub size: u64,
    /// Bytes of the file that are in use.
    pub used: u64,
    /// Bytes at which it refuses changes.
    pub quota: u64,
    /// Alarms and errors, as etcd words them.
    pub alarms: Vec<String>,
    /// True if it is the leader of etcd.
    pub leads: bool,
}

impl Member {
    fn parse(name: String, v: &Value, quota: Option<u64>) -> Option<Self> {
        let version = Version::parse(v["version"].as_str()?)?;
        let errors = v["errors"].as_array().map_or(&[][..], Vec::as_slice);
        let text = |e: &Value| e.as_str().map(|s| s.trim().chars().take(TEXT).collect());
        let id = num(&v["header"]["member_id"]);
        Some(Self {
            name,
            version,
            size: num(&v["dbSize"]),
            used: num(&v["dbSizeInUse"]),
            quota: quota.filter(|q| *q > 0).unwrap_or(DEFAULT_QUOTA),
            alarms: errors.iter().take(8).filter_map(text).collect(),
            leads: id != 0 && num(&v["leader"]) == id,
        })
    }

    /// True if much of its file is free, and the file is large; for etcd's leader, near the quota: while it does not
    /// answer, nothing can change.
    fn is_hollow(&self) -> bool {
        let large = self.size > DEFRAGMENT_FROM || self.size > self.quota / 2;
        let urgent = self.size / 3 > self.quota / 4;
        self.used > 0 && self.size / 2 > self.used && if self.leads { urgent } else { large }
    }
}

/// The newest look at the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The members that answered.
    pub members: Vec<Member>,
    /// Members that did not answer, with the reason.
    pub silent: Vec<(String, String)>,
}

/// The thread that looks after the members; it ends when this is dropped.
pub struct EtcdCare {
    newest: Arc<Mutex<Arc<Condition>>>,
    _end: Sender<()>,
}

impl EtcdCare {
    /// Starts the thread. Error: unusable options, or no thread.
    pub fn start(o: &EtcdOptions) -> Result<Self, StateError> {
        let shared = shared(o)?;
        let newest = Arc::new(Mutex::new(Arc::new(Condition::default())));
        let (end, ended) = channel();
        let to = Arc::clone(&newest);
        let run = move || look_after(&shared, &to, &ended);
        let spawned = std::thread::Builder::new().name("etcd-care".into()).spawn(run);
        spawned.map_err(|e| StateError::Unavailable(e.to_string()))?;
        Ok(Self { newest, _end: end })
    }

    /// The newest look at the members; empty before the first one.
    #[must_use]
    pub fn condition(&self) -> Arc<Condition> {
        Arc::clone(&self.newest.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Asks all members for their condition; blocks for some seconds if members do not answer. Error: unusable options.
pub fn look(o: &EtcdOptions) -> Result<Condition, StateError> {
    Ok(look_once(&shared(o)?))
}

/// Error: the first member whose version is below [`OLDEST`].
pub fn check_versions(c: &Condition) -> Result<(), StateError> {
    match c.members.iter().find(|m| m.version < OLDEST) {
        Some(m) => Err(refused(format!(
            "etcd at {} has version {}; monitors need {OLDEST} or later, better 3.4.29 or 3.5.11",
            m.name, m.version
        ))),
        None => Ok(()),
    }
}

fn alone(shared: &Shared, e: &Endpoint) -> Shared {
    Shared { endpoints: Arc::new(vec![e.clone()]), ..shared.clone() }
}

fn look_once(shared: &Shared) -> Condition {
    let mut c = Condition::default();
    for e in shared.endpoints.iter() {
        let name = format!("{}:{}", e.host, e.port);
        match Client::new(alone(shared, e), 0, TIMEOUT).call("/v3/maintenance/status", &json!({}), true) {
            Ok(v) => match Member::parse(name.clone(), &v, quota(shared, e)) {
                Some(m) => c.members.push(m),
                None => c.silent.push((name, "its status has no version".into())),
            },
            Err(e) => c.silent.push((name, e.to_string())),
        }
    }
    c
}

/// The quota of a member, from its metrics; `None` if they do not tell.
fn quota(shared: &Shared, e: &Endpoint) -> Option<u64> {
    let mut conn = Conn::connect(e, shared.tls.as_ref(), TIMEOUT).ok()?;
    conn.get("/metrics").ok()?;
    if conn.head().ok()? != 200 {
        return None;
    }
    let body = conn.body().ok()?;
    let text = String::from_utf8_lossy(&body);
    let line = text.lines().find_map(|l| l.strip_prefix("etcd_server_quota_backend_bytes "))?;
    let n: f64 = line.trim().parse().ok()?;
    (n > 0.0 && n < 1e18).then_some(n as u64)
}

fn look_after(shared: &Shared, to: &Mutex<Arc<Condition>>, ended: &Receiver<()>) {
    let mut defragmented: Option<Instant> = None;
    loop {
        let c = Arc::new(look_once(shared));
        *to.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&c);
        if defragmented.is_none_or(|t| t.elapsed() >= DEFRAGMENT_APART)
            && let Some(m) = next_to_defragment(&c)
        {
            defragmented = Some(Instant::now());
            defragment(shared, m);
        }
        match ended.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn next_to_defragment(c: &Condition) -> Option<&Member> {
    // Without one more member there would be no majority meanwhile.
    let fit = c.silent.is_empty();
    c.members.iter().filter(|m| fit && m.is_hollow()).min_by_key(|m| m.leads)
}

fn defragment(shared: &Shared, m: &Member) {
    let Some(e) = shared.endpoints.iter().find(|e| format!("{}:{}", e.host, e.port) == m.name) else { return };
    let mut client = Client::new(alone(shared, e), 0, DEFRAGMENT_TIMEOUT);
    match client.call("/v3/maintenance/defragment", &json!({}), false) {
        Ok(_) => tracing::info!("etcd at {} is defragmented; {} of {} bytes were in use", m.name, m.used, m.size),
        Err(e) => tracing::warn!("etcd at {} is not defragmented: {e}", m.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let v = |s| Version::parse(s).unwrap();
        assert_eq!(v("3.4.23"), Version(3, 4, 23));
        assert_eq!(v("3.6.0-rc.1"), Version(3, 6, 0));
        assert_eq!(Version::parse("3.4"), None);
        assert_eq!(Version::parse("v3.4.1"), None);
        let good: Vec<bool> =
            ["3.4.28", "3.4.29", "3.5.10", "3.5.11", "3.6.1"].map(|s| v(s).renews_with_a_majority()).to_vec();
        assert_eq!(good, [false, true, false, true, true]);
    }

    #[test]
    fn an_old_member_is_refused_with_the_least_version() {
        let status = |version: &str| json!({ "version": version, "header": { "member_id": "5" }, "leader": "5" });
        let old = Member::parse("h:2379".into(), &status("3.3.27"), None).unwrap();
        let c = Condition { members: vec![old], silent: Vec::new() };
        let e = check_versions(&c).unwrap_err().to_string();
        assert!(e.contains("h:2379") && e.contains("3.3.27") && e.contains("3.4.0"), "{e}");
        let new = Member::parse("h:2379".into(), &status("3.4.23"), None).unwrap();
        assert!(new.leads && new.quota == DEFAULT_QUOTA);
        assert!(check_versions(&Condition { members: vec![new], silent: Vec::new() }).is_ok());
        assert_eq!(Member::parse("h".into(), &json!({ "version": 7 }), None), None);
    }

    #[test]
    fn a_hollow_member_is_defragmented_while_all_answer_and_the_leader_last() {
        let m = |name: &str, size: u64, used: u64, leads| Member {
            name: name.into(),
            size,
            used,
            quota: 100 << 20,
            leads,
            ..Member::default()
        };
        let mut c = Condition {
            members: vec![
                m("a", 80 << 20, 10 << 20, true),
                m("b", 80 << 20, 10 << 20, false),
                m("c", 9 << 20, 1, false),
            ],
            silent: Vec::new(),
        };
        assert_eq!(next_to_defragment(&c).map(|m| m.name.as_str()), Some("b"));
        c.members[1].size = 20 << 20;
        c.members[0].size = 70 << 20;
        assert_eq!(next_to_defragment(&c), None, "the leader is not near its quota");
        c.members[0].size = 80 << 20;
        assert_eq!(next_to_defragment(&c).map(|m| m.name.as_str()), Some("a"));
        c.silent.push(("d".into(), "no route".into()));
        assert_eq!(next_to_defragment(&c), None);
    }
}
