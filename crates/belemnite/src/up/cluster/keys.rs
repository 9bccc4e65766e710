//! Keys of the daemons: what the monitor has goes to their keyrings.
//!
//! `up` asks the monitor when a daemon ends or is started, and when health says that a daemon's key is refused. An OSD
//! reads its keyring when it is refused. Ceph's daemons read theirs only when they start, so they are restarted.

use super::super::dir;
use super::super::plan::S3Plan;
use super::super::{Error, bring_up, gateway, make, say};
use super::{Cluster, Happened, Waiting};
use client::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for a question to the monitor.
const QUESTION_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at the monitor's list of refused daemons.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time after which a daemon that is still refused gets its key again.
const AGAIN: Duration = Duration::from_secs(60);
/// Health check that names refused daemons.
const REFUSED: &str = "DAEMON_KEY_REFUSED";

/// A key that is being handed over.
#[derive(Clone, Copy, Debug)]
struct Handover {
    began: Instant,
    /// The daemon is restarted once its keyring has the key.
    restart: bool,
}

/// Daemons that were refused, by name.
#[derive(Debug, Default)]
pub(super) struct Rekeyed(BTreeMap<String, Handover>);

impl Rekeyed {
    /// Notes a refused daemon; false if its key was handed over a short time ago.
    fn begin(&mut self, name: &str, now: Instant) -> bool {
        self.0.retain(|_, h| now.duration_since(h.began) < AGAIN);
        if self.0.contains_key(name) {
            return false;
        }
        self.0.insert(name.to_owned(), Handover { began: now, restart: !name.starts_with("osd.") });
        true
    }

    /// True, once, for a daemon that is to be restarted.
    fn take_restart(&mut self, name: &str) -> bool {
        self.0.get_mut(name).is_some_and(|h| std::mem::take(&mut h.restart))
    }
}

/// The daemons that a health report names as refused, by the names that `up` gives them.
fn refused(health: &Value) -> Vec<String> {
    let detail = health["checks"][REFUSED]["detail"].as_array();
    let name = |d: &Value| {
        let who = d["message"].as_str()?.split(' ').next()?;
        Some(who.strip_prefix("client.").unwrap_or(who).to_owned())
    };
    detail.map(|all| all.iter().filter_map(name).collect()).unwrap_or_default()
}

async fn ask_refused(c: &Client) -> Result<Vec<String>, Error> {
    let cmd = json!({ "prefix": "health", "detail": "detail", "format": "json" });
    let out = super::super::foreign::ask(c, cmd).await?;
    Ok(refused(&serde_json::from_slice(&out)?))
}

impl Cluster {
    /// Begins to look for daemons whose keys the monitors refuse.
    pub(super) fn watch_keys(&self) {
        if self.plan.auth != "cephx" {
            return;
        }
        let (layout, tell) = (self.layout.clone(), self.happened.0.clone());
        tokio::task::spawn_local(async move {
            let mut client: Option<Client> = None;
            while !tell.is_closed() {
                tokio::time::sleep(LOOK_EVERY).await;
                let look = async {
                    let c = match client.take() {
                        Some(c) => c,
                        None => make::connect(&layout).await?,
                    };
                    let names = ask_refused(&c).await?;
                    client = Some(c);
                    Ok::<_, Error>(names)
                };
                // A monitor that does not answer is asked again by another client.
                let Ok(Ok(names)) = tokio::time::timeout(QUESTION_MAX, look).await else { continue };
                if !names.is_empty() {
                    // The loop may have ended.
                    let _ = tell.send(Happened::Refused(names));
                }
            }
        });
    }

    /// Fetches the keys of daemons that the monitors refuse.
    pub(super) fn hand_keys_over(&mut self, names: Vec<String>) {
        for name in names {
            if self.index(&name).is_some() && self.rekeyed.begin(&name, Instant::now()) {
                self.look_after(&name);
            }
        }
    }

    /// Restarts a refused daemon whose keyring has the monitor's key now.
    pub(super) async fn start_with_key(&mut self, name: Option<String>) {
        let Some(name) = name.filter(|n| self.rekeyed.take_restart(n)) else { return };
        let Some(i) = self.index(&name) else { return };
        if self.daemons[i].begin_stop().await {
            say(format_args!("{name}: the monitors refuse its key; restarting it with the one that they have"));
            self.waiting.push(Waiting { daemon: name, again: true, reply: None });
        }
    }

    /// Asks the monitor about a daemon that ended or is started: it may have another key, and an OSD may have been
    /// purged.
    pub(super) fn look_after(&mut self, name: &str) {
        if name.starts_with("mon.") || name.starts_with("etcd.") || !self.asked.insert(name.to_owned()) {
            return;
        }
        let id = name.strip_prefix("osd.").and_then(|n| n.parse::<u32>().ok());
        let osd = id.and_then(|id| self.plan.osds.iter().find(|o| o.id == id && o.registered).cloned());
        let (mut plan, layout, programs) = (self.plan.clone(), self.layout.clone(), self.programs.clone());
        let name = name.to_owned();
        self.task(async move {
            let look = async {
                if id.is_some() && osd.is_none() {
                    return Ok::<_, Error>(Happened::Looked);
                }
                let c = make::connect(&layout).await?;
                let Some(o) = osd else {
                    bring_up::take_up_keys(&c, &mut plan, &layout, &programs).await?;
                    return Ok(Happened::Keys(plan.s3));
                };
                let shown = make::shown_osds(&c).await?;
                if !shown.iter().any(|s| s.id == u64::from(o.id) && s.uuid == o.uuid && !s.destroyed) {
                    return Ok(Happened::Purged(o.id, o.uuid));
                }
                let key = if plan.auth == "cephx" { make::key_of(&c, &format!("osd.{}", o.id)).await? } else { None };
                Ok(key.map_or(Happened::Looked, |k| Happened::Key(o.id, k)))
            };
            // A monitor that does not answer now is asked again after the next exit.
            let found = tokio::time::timeout(QUESTION_MAX, look).await.ok().and_then(Result::ok);
            Happened::Answered(name, Box::new(found.unwrap_or(Happened::Looked)))
        });
    }

    pub(super) fn take_up_key(&mut self, id: u32, key: String) {
        // A registration takes keys up itself, in its copy of the description.
        if self.registering.is_some() {
            return;
        }
        let Some(o) = self.plan.osds.iter_mut().find(|o| o.id == id) else { return };
        let done = make::take_up_key(o, key, &self.layout)
            .and_then(|changed| if changed { dir::store(&self.plan, &self.layout) } else { Ok(()) });
        if let Err(e) = done {
            say(format_args!("osd.{id}: its new key cannot be stored: {e}"));
        }
    }

    pub(super) fn take_up_gateway(&mut self, s3: Option<S3Plan>) {
        if self.registering.is_some() || s3 == self.plan.s3 {
            return;
        }
        let Some(s) = s3 else { return };
        self.plan.s3 = Some(s.clone());
        let done = dir::store(&self.plan, &self.layout)
            .and_then(|()| gateway::prepare(&self.plan, &s, &self.layout).map(drop));
        match done {
            Ok(()) => say(format_args!("{}: took up its new key", gateway::DAEMON)),
            Err(e) => say(format_args!("{}: its new key cannot be stored: {e}", gateway::DAEMON)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_daemon_gets_its_key_once_a_minute() {
        let (mut r, now) = (Rekeyed::default(), Instant::now());
        assert!(r.begin("mds.a", now) && r.begin("osd.1", now));
        assert!(r.take_restart("mds.a"));
        assert!(!r.take_restart("mds.a"), "once");
        assert!(!r.take_restart("osd.1"), "an OSD reads its keyring by itself");
        assert!(!r.begin("mds.a", now + AGAIN / 2));
        assert!(r.begin("mds.a", now + AGAIN));
        assert!(r.take_restart("mds.a"));
    }

    #[test]
    fn health_names_the_daemons() {
        let of = |names: &[&str]| {
            let detail: Vec<Value> = names.iter().map(|n| json!({ "message": format!("{n} came 3 times") })).collect();
            refused(&json!({ "checks": { REFUSED: { "detail": detail } } }))
        };
        assert_eq!(of(&["osd.1", "client.rgw.a", "mgr.x"]), ["osd.1", "rgw.a", "mgr.x"]);
        assert_eq!(refused(&json!({ "checks": {} })), [""; 0]);
    }
}
