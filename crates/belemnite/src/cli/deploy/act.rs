//! Carries steps out. Each can be repeated: it looks at what is there, or does what has no effect a second time.
//!
//! `osds` has the steps on OSDs: made, started, moved, emptied, removed, restarted.

mod osds;

use super::ssh::Host;
use super::{Error, Site, cluster, dir, scripts, tls};
use crate::cli::operate::{must, must_json};
use client::Client;
use deploy::conf::{self, TLS};
use deploy::facts::Release;
use deploy::{Action, Facts, Step};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// Time for a short script.
const SHORT: Duration = Duration::from_secs(150);
/// Time for packages to be installed.
const INSTALL_MAX: Duration = Duration::from_secs(1200);
/// Time for a daemon to take part.
const START_MAX: Duration = Duration::from_secs(60);
/// Pause between two questions.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// Caps of a metadata server.
const MDS_CAPS: [&str; 8] =
    ["mon", "allow profile mds", "osd", "allow rwx tag cephfs *=*", "mds", "allow", "mgr", "allow profile mds"];
/// Caps of a gateway.
const GATEWAY_CAPS: [&str; 6] = ["mon", "allow rw", "mgr", "allow rw", "osd", "allow rwx"];

/// Carries out the steps of a stage.
pub(super) struct Act<'a> {
    site: &'a Site,
    facts: &'a Facts,
}

impl<'a> Act<'a> {
    pub(super) fn new(site: &'a Site, facts: &'a Facts) -> Self {
        Self { site, facts }
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// The step fails, or is refused; the text says why.
    pub(super) async fn step(&self, s: &Step) -> Result<(), Error> {
        let host = s.host.as_str();
        match &s.action {
            Action::Install(packages) => self.install(host, packages).await,
            Action::Configure => self.configure(host).await,
            Action::ClearEtcd => self.run(host, &scripts::clear_etcd(host)).await,
            Action::StartEtcd { existing, members } => self.start_etcd(host, *existing, members).await,
            Action::AddMember(a) => {
                let name = self.site.inventory.host_at(*a).ok_or("the member is of no host")?;
                let url = format!("https://{}", conf::at(*a, conf::ETCD_PEER_PORT));
                self.on_etcd(|through| scripts::add_member(through, name, &url)).await
            }
            Action::RemoveMember(id) => self.on_etcd(|through| scripts::remove_member(through, id)).await,
            Action::MakeState => self.make_state(host).await,
            Action::StateToEtcd | Action::StateToFile => self.move_state(host, s.action == Action::StateToEtcd).await,
            Action::StartMonitor => self.start_monitor(host, "start").await,
            Action::RestartMonitor => {
                self.check_state(host).await?;
                self.start_monitor(host, "restart").await
            }
            // Without a port, it gets Ceph's for both protocols.
            Action::AddMonitor(a) => self.must(json!({"prefix": "mon add", "name": host, "addr": a.to_string()})).await,
            Action::RemoveMonitor => self.remove_monitor(host).await,
            Action::SetOption(who, k, v) => {
                self.must(json!({"prefix": "config set", "who": who, "name": k, "value": v})).await
            }
            Action::BootstrapKey => self.bootstrap_key(host).await,
            Action::MakeFilesystem(n) => self.must(json!({"prefix": "fs volume create", "name": n})).await,
            Action::StartMds => {
                let (unit, dir) = (format!("ceph-mds@{host}"), format!("/var/lib/ceph/mds/ceph-{host}"));
                self.start_foreign(host, &format!("mds.{host}"), &MDS_CAPS, &unit, &dir).await
            }
            Action::StartGateway => {
                let unit = format!("ceph-radosgw@rgw.{host}");
                let dir = format!("/var/lib/ceph/radosgw/ceph-rgw.{host}");
                self.start_foreign(host, &format!("client.rgw.{host}"), &GATEWAY_CAPS, &unit, &dir).await
            }
            Action::StopMds => {
                let (unit, dir) = (format!("ceph-mds@{host}"), format!("/var/lib/ceph/mds/ceph-{host}"));
                self.run(host, &scripts::stop(&unit, &dir)).await?;
                self.must(json!({"prefix": "auth rm", "entity": format!("mds.{host}")})).await
            }
            Action::StopGateway => {
                let dir = format!("/var/lib/ceph/radosgw/ceph-rgw.{host}");
                self.run(host, &scripts::stop(&format!("ceph-radosgw@rgw.{host}"), &dir)).await?;
                self.must(json!({"prefix": "auth rm", "entity": format!("client.rgw.{host}")})).await
            }
            Action::Leave => self.leave(host).await,
            _ => self.osd_step(host, &s.action).await,
        }
    }

    async fn client(&self) -> Result<Client, Error> {
        cluster::connect(self.site).await
    }

    /// A monitor command that must succeed.
    async fn must(&self, cmd: Value) -> Result<(), Error> {
        must(&self.client().await?, cmd).await.map(|_| ())
    }

    fn host(&self, name: &str) -> Result<Host, Error> {
        self.site.reach(name)
    }

    async fn run(&self, host: &str, script: &str) -> Result<(), Error> {
        self.site.ssh.script(&self.host(host)?, script, &[], SHORT).await.map(|_| ())
    }

    async fn install(&self, name: &str, packages: &[String]) -> Result<(), Error> {
        let h = self.host(name)?;
        let is_package = matches!(self.facts.release, Release::Package(_));
        let has = self.facts.host(name).is_some_and(|h| h.has(&self.facts.release));
        let script = if has {
            scripts::install_others(packages)
        } else {
            let to = if is_package { scripts::PACKAGE } else { scripts::PROGRAM };
            self.site.ssh.copy(&h, &self.site.package, to, INSTALL_MAX).await?;
            scripts::install(is_package, packages)
        };
        self.site.ssh.script(&h, &scripts::script(&script), &[], INSTALL_MAX).await.map(|_| ())
    }

    async fn configure(&self, name: &str) -> Result<(), Error> {
        let (i, f) = (&self.site.inventory, self.facts);
        let facts = f.host(name).ok_or("the host was not asked")?;
        let mut s = String::new();
        if i.monitors.iter().any(|m| m == name) {
            let ring = self.site.dir.read(dir::ADMIN)?.ok_or("the key of the administrator is missing")?;
            s += &scripts::put("600", "root:root", "/etc/ceph/ceph.client.admin.keyring", &ring);
            if i.has_etcd() {
                let c = tls::member(&self.site.dir, name, self.host(name)?.address)?;
                s += &format!("install -d -o root -g ceph -m 750 {TLS}\n");
                for (file, text) in [("etcd.key", c.key), ("ca.crt", c.authority), ("etcd.crt", c.own)] {
                    s += &scripts::put("640", "root:ceph", &format!("{TLS}/{file}"), &text);
                }
            }
        }
        // Last, since its digest says that all of it was written. Where the state is to move, the move writes it.
        if !deploy::keeps_conf(i, f, name, facts) {
            s += &scripts::put_public("/etc/ceph/ceph.conf", &conf::ceph_conf(i, f, name, facts));
        }
        self.run(name, &scripts::script(&s)).await
    }

    async fn start_etcd(&self, name: &str, existing: bool, members: &[(String, IpAddr)]) -> Result<(), Error> {
        // A member with data keeps the environment that it was made with.
        let env =
            (!members.is_empty()).then(|| Ok::<_, Error>(conf::etcd_env(self.host(name)?.address, members, existing)));
        self.run(name, &scripts::start_etcd(name, env.transpose()?.as_deref())).await
    }

    /// Runs a script that talks to etcd on the first host with a member that answers.
    async fn on_etcd(&self, text: impl Fn(IpAddr) -> String) -> Result<(), Error> {
        let healthy =
            |a: IpAddr| self.facts.cluster().is_some_and(|c| c.etcd.iter().any(|m| m.address == a && m.healthy));
        for name in self.facts.hosts.keys().filter(|n| self.facts.host(n).is_some()) {
            let a = self.host(name)?.address;
            if healthy(a) {
                return self.run(name, &text(a)).await;
            }
        }
        Err("no host with a member of etcd answers".into())
    }

    async fn make_state(&self, name: &str) -> Result<(), Error> {
        let etcd = self.site.inventory.has_etcd().then_some(self.host(name)?.address);
        self.run(name, &scripts::make_state(name, etcd)).await?;
        self.site.dir.set_made()?;
        self.start_monitor(name, "start").await
    }

    /// Starts or restarts a monitor, and waits until it takes part, if it is in the monmap.
    async fn start_monitor(&self, name: &str, verb: &str) -> Result<(), Error> {
        let unit = format!("belemnite-mon@{name}");
        let text = match verb {
            "start" => scripts::start(&unit),
            _ => scripts::script(&format!("systemctl restart {unit}")),
        };
        self.run(name, &text).await?;
        self.wait_part(name).await
    }

    /// Moves the state of the only monitor to etcd or to a file, with the configuration that says so.
    async fn move_state(&self, name: &str, to_etcd: bool) -> Result<(), Error> {
        let facts = self.facts.host(name).ok_or("the host was not asked")?;
        let text = conf::ceph_conf(&self.site.inventory, self.facts, name, facts);
        let script = match to_etcd {
            true => scripts::state_to_etcd(name, self.host(name)?.address, &text),
            false => scripts::state_to_file(name, &text),
        };
        self.run(name, &script).await?;
        self.wait_part(name).await
    }

    /// Waits until a monitor takes part, if it is in the monmap.
    async fn wait_part(&self, name: &str) -> Result<(), Error> {
        let unit = format!("belemnite-mon@{name}");
        let begun = std::time::Instant::now();
        let mut why = String::from("it does not take part");
        while begun.elapsed() < START_MAX {
            match self.takes_part(name).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) => why = e.to_string(),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Err(format!("its monitor: {why}; `journalctl -u {unit}` there says more").into())
    }

    /// Checks that the installed program reads the monitors' state, before a monitor becomes one of it.
    async fn check_state(&self, name: &str) -> Result<(), Error> {
        let unit = self.facts.host(name).and_then(|h| h.units.get(&format!("belemnite-mon@{name}")));
        if !self.site.inventory.has_etcd() || !unit.is_some_and(|u| u.old_program) {
            return Ok(());
        }
        let r = self.run(name, &scripts::check_state(name)).await;
        r.map_err(|e| {
            format!("the installed program does not read the monitors' state, nothing was restarted: {e}").into()
        })
    }

    async fn takes_part(&self, name: &str) -> Result<bool, Error> {
        let q = must_json(&self.client().await?, json!({"prefix": "quorum_status"})).await?;
        let has = |v: &Value| v.as_array().is_some_and(|a| a.iter().any(|n| n == name));
        // One that is not in the monmap yet is added by a later step.
        let is_in_map = q["monmap"]["mons"].as_array().is_some_and(|a| a.iter().any(|m| m["name"] == name));
        Ok(has(&q["quorum_names"]) || !is_in_map)
    }

    async fn remove_monitor(&self, name: &str) -> Result<(), Error> {
        if self.facts.cluster().is_some_and(|c| c.monitors.contains_key(name)) {
            self.must(json!({"prefix": "mon rm", "name": name})).await?;
        }
        if self.facts.host(name).is_none() {
            return Ok(());
        }
        let state = format!("/var/lib/ceph/mon/ceph-{name}");
        self.run(name, &scripts::stop(&format!("belemnite-mon@{name}"), &state)).await
    }

    async fn bootstrap_key(&self, name: &str) -> Result<(), Error> {
        let get = json!({"prefix": "auth get", "entity": "client.bootstrap-osd"});
        let ring = String::from_utf8(must(&self.client().await?, get).await?)?;
        let put = scripts::put("600", "ceph:ceph", "/var/lib/ceph/bootstrap-osd/ceph.keyring", &ring);
        self.run(name, &scripts::script(&put)).await
    }

    /// Starts a daemon of Ceph's with a key of its own.
    async fn start_foreign(&self, host: &str, entity: &str, caps: &[&str], unit: &str, dir: &str) -> Result<(), Error> {
        let cmd = json!({"prefix": "auth get-or-create", "entity": entity, "caps": caps});
        let ring = String::from_utf8(must(&self.client().await?, cmd).await?)?;
        self.run(host, &scripts::start_foreign(unit, dir, &ring)).await
    }

    async fn leave(&self, name: &str) -> Result<(), Error> {
        if self.facts.host(name).is_some() {
            self.run(name, &scripts::script(scripts::LEAVE)).await?;
        }
        let mut known = self.site.dir.known()?;
        known.remove(name);
        self.site.dir.write_known(&known)
    }
}
