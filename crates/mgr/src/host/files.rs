//! `fs perf stats`: MDS daemons count operations of clients for as long as clients run the command.

use super::images::{Job, Service, seconds};
use crate::files::{self, Clients, Counted, Filter};
use crate::monitor::FirstRank;
use base::EntityKind;
use base::errno::{EBUSY, EINVAL, Errno};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Seconds after its last use for which a filter is queried.
const EXPIRE_SECONDS: f64 = 60.0;
/// Time limit for the first report that answers a new filter.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Time limit for an MDS's list of sessions.
const SESSIONS_LIMIT: Duration = Duration::from_secs(5);
/// Interval between checks for a report while a command waits.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between checks for expired filters and for daemons that do not answer.
const ROUND: Duration = Duration::from_secs(5);
/// Most filters at a time.
const ASKED_MAX: usize = 64;

/// Filters that are queried, and the clients known so far.
#[derive(Default)]
pub(super) struct Files {
    /// Filters, each with the time of its last use in seconds.
    asked: BTreeMap<Filter, f64>,
    /// Clients by global id of the first rank's daemon, with the time of the answer in seconds.
    clients: BTreeMap<u64, (f64, Rc<Clients>)>,
}

impl Service {
    /// Ends expired queries, and sends the others to daemons that took over a rank; never completes.
    pub(super) async fn run_files(&self) {
        loop {
            tokio::time::sleep(ROUND).await;
            let now = seconds();
            let over = {
                let mut files = self.files.borrow_mut();
                let before = files.asked.len();
                files.asked.retain(|_, last| *last + EXPIRE_SECONDS >= now);
                let ranks: Vec<u64> = self.monitor.first_ranks().iter().map(|r| r.gid).collect();
                let any = !files.asked.is_empty();
                files.clients.retain(|gid, _| any && ranks.contains(gid));
                files.asked.len() != before
            };
            let mute = self.files.borrow().asked.keys().any(|f| !self.is_answered(f));
            if over || mute {
                self.ask();
            }
        }
    }

    fn ask(&self) {
        let queries = self.files.borrow().asked.keys().flat_map(Filter::queries).collect();
        self.monitor.ask_mds(queries);
    }

    fn is_answered(&self, f: &Filter) -> bool {
        self.monitor.first_ranks().iter().all(|r| self.monitor.mds_counted(&r.daemon).is_some_and(|c| c.answers(f)))
    }

    /// Answers the command.
    pub(super) async fn files_command(&self, job: &Job) -> Result<Bytes, (Errno, String)> {
        let arg = |k: &str| job.args.get(k).map(String::as_str).unwrap_or_default();
        let filter = Filter::parse(arg("mds_rank"), arg("client_id"), arg("client_ip")).map_err(|why| (EINVAL, why))?;
        let new = {
            let asked = &mut self.files.borrow_mut().asked;
            if asked.len() >= ASKED_MAX && !asked.contains_key(&filter) {
                return Err((EBUSY, format!("more than {ASKED_MAX} different filters in a minute")));
            }
            asked.insert(filter.clone(), seconds()).is_none()
        };
        if new {
            self.ask();
            let answered = async {
                while !self.is_answered(&filter) {
                    tokio::time::sleep(LOOK).await;
                }
            };
            // After the time limit the command shows what has arrived.
            let _ = tokio::time::timeout(FIRST_ANSWER, answered).await;
        }
        let mut seen: Vec<(FirstRank, Rc<Counted>, Rc<Clients>)> = Vec::new();
        for rank in self.monitor.first_ranks() {
            let Some(counted) = self.monitor.mds_counted(&rank.daemon) else { continue };
            let clients = self.clients_of(&rank).await;
            seen.push((rank, counted, clients));
        }
        let all: Vec<files::Seen<'_>> = seen.iter().map(|(r, c, k)| (r.fs.as_str(), &**c, &**k)).collect();
        Ok(net::admin_socket::to_line(&files::report(&filter, &all)).into())
    }

    /// Metadata that the clients of a file system reported about themselves, not older than a report period.
    async fn clients_of(&self, rank: &FirstRank) -> Rc<Clients> {
        let known = self.files.borrow().clients.get(&rank.gid).cloned();
        if let Some((at, clients)) = &known
            && at + f64::from(self.monitor.report_period()) > seconds()
        {
            return Rc::clone(clients);
        }
        let asked = async {
            let client = self.connect().await.map_err(|e| base::errno::name(e).to_owned())?;
            let json = r#"{"prefix": "client ls", "format": "json"}"#;
            let answer = client.tell(EntityKind::MDS, rank.addr, json).await.map_err(|e| e.to_string())?;
            if answer.rc < 0 { Err(format!("{} {}", answer.rc, answer.status)) } else { Ok(answer.out) }
        };
        match tokio::time::timeout(SESSIONS_LIMIT, asked).await.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(out) => {
                let clients = Rc::new(files::clients(&out));
                self.files.borrow_mut().clients.insert(rank.gid, (seconds(), Rc::clone(&clients)));
                clients
            }
            Err(why) => {
                tracing::warn!("mgr: cannot list the clients of mds.{}: {why}", rank.daemon);
                known.map(|(_, clients)| clients).unwrap_or_default()
            }
        }
    }
}
