//! Steps on OSDs: made, started, moved, emptied, removed, restarted.

use super::{ASK_EVERY, Act, Error, SHORT};
use crate::cli::deploy::scripts;
use crate::cli::operate::{command, must, must_json, print, unclean};
use client::Client;
use deploy::inventory::PLACES;
use deploy::{Action, Target};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for the OSDs of a host to be made and up.
const CREATE_MAX: Duration = Duration::from_secs(1200);
/// Time for started OSDs to be up.
const UP_MAX: Duration = Duration::from_secs(180);
/// Time in which PGs that peer let an OSD be stopped.
const STOP_MAX: Duration = Duration::from_secs(120);

fn words(ids: &[u32]) -> Vec<String> {
    ids.iter().map(u32::to_string).collect()
}

/// Epoch since which the map shows each OSD up; those that are down have none.
fn up_from(dump: &Value) -> BTreeMap<u32, u64> {
    let all = dump["osds"].as_array().into_iter().flatten().filter(|o| o["up"] == 1);
    all.filter_map(|o| Some((u32::try_from(o["osd"].as_u64()?).ok()?, o["up_from"].as_u64()?))).collect()
}

/// A question about OSDs that the monitors answer with yes, or with the reason for no.
async fn ask(c: &Client, prefix: &str, ids: &[u32]) -> Result<Result<(), String>, Error> {
    let r = command(c, json!({"prefix": prefix, "ids": words(ids)})).await?;
    Ok(if r.rc == 0 { Ok(()) } else { Err(r.status) })
}

/// The first of some OSDs whose store cannot be read, with the reason, in a list of stores.
fn unreadable(list: &Value, ids: &[u32]) -> Option<String> {
    let mut bad = list["devices"].as_array()?.iter().filter_map(|d| Some((d["osd"].as_u64()?, d["error"].as_str()?)));
    let (id, why) = bad.find(|(id, _)| ids.iter().any(|i| u64::from(*i) == *id))?;
    Some(format!("the store of osd.{id}: {why}"))
}

impl Act<'_> {
    pub(super) async fn osd_step(&self, host: &str, a: &Action) -> Result<(), Error> {
        match a {
            Action::CreateOsds(t) => self.create(host, t).await,
            Action::StartOsds(ids) => self.start_osds(host, ids).await,
            Action::Place(to) => self.place(host, to).await,
            Action::Drain(ids) => self.drain(ids).await,
            Action::Retire(all) => {
                for (id, path) in all {
                    self.retire(host, *id, path.as_deref()).await?;
                }
                Ok(())
            }
            Action::DropHost => self.must(json!({"prefix": "osd crush rm", "name": host})).await,
            Action::HoldOut => {
                // The note comes first: a run that is killed between the two leaves nothing set that no note tells of.
                self.site.dir.set_noout(true)?;
                self.must(json!({"prefix": "osd set", "key": "noout"})).await
            }
            Action::ReleaseOut => {
                self.must(json!({"prefix": "osd unset", "key": "noout"})).await?;
                self.site.dir.set_noout(false)
            }
            Action::RestartOsds(ids) => self.restart(host, ids).await,
            other => Err(format!("no such step on OSDs: {other:?}").into()),
        }
    }

    async fn create(&self, host: &str, targets: &[Target]) -> Result<(), Error> {
        let mut groups: BTreeMap<(Option<u64>, Option<&String>), Vec<&str>> = BTreeMap::new();
        for t in targets {
            groups.entry((t.bytes, t.class.as_ref())).or_default().push(&t.path);
        }
        let mut s = String::new();
        for ((bytes, class), paths) in groups {
            let mut options = bytes.map_or(String::new(), |b| format!(" --size {b}"));
            if let Some(c) = class {
                options += &format!(" --class {c}");
            }
            for dir in bytes.iter().flat_map(|_| paths.iter().filter_map(|p| Some(p.rsplit_once('/')?.0))) {
                s += &format!("install -d -o ceph -g ceph -m 750 {dir}\n");
            }
            s += &format!("belemnite osd create{options} {} 9>&-\n", paths.join(" "));
        }
        self.site.ssh.script(&self.host(host)?, &scripts::script(&s), &[], CREATE_MAX).await.map(|_| ())
    }

    /// Waits until the map shows OSDs up since another epoch than before.
    async fn wait_up(&self, ids: &[u32], before: &BTreeMap<u32, u64>) -> Result<(), Error> {
        let begun = Instant::now();
        let mut down = ids.to_vec();
        while begun.elapsed() < UP_MAX {
            let c = self.client().await?;
            let up = up_from(&must_json(&c, json!({"prefix": "osd dump"})).await?);
            down.retain(|id| up.get(id).is_none_or(|e| before.get(id) == Some(e)));
            if down.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Err(format!("not up after {} s: osd.{}; their journals say why", UP_MAX.as_secs(), words(&down).join(", osd."))
            .into())
    }

    async fn start_osds(&self, host: &str, ids: &[u32]) -> Result<(), Error> {
        let dump = must_json(&self.client().await?, json!({"prefix": "osd dump"})).await?;
        let before = up_from(&dump);
        let units: Vec<String> = ids.iter().map(|i| format!("belemnite-osd@{i}")).collect();
        self.run(host, &scripts::start(&units.join(" "))).await?;
        let idle: Vec<u32> = ids.iter().copied().filter(|id| !before.contains_key(id)).collect();
        self.wait_up(&idle, &before).await
    }

    async fn place(&self, host: &str, to: &[(String, String)]) -> Result<(), Error> {
        let mut args = vec!["root=default".to_owned()];
        // From the largest bucket to the smallest.
        for t in PLACES.iter().rev() {
            args.extend(to.iter().filter(|(k, _)| k == t).map(|(k, v)| format!("{k}={v}")));
        }
        self.must(json!({"prefix": "osd crush move", "name": host, "args": args})).await
    }

    /// Marks OSDs out and waits until all their data is elsewhere.
    async fn drain(&self, ids: &[u32]) -> Result<(), Error> {
        let c = self.client().await?;
        must(&c, json!({"prefix": "osd out", "ids": words(ids)})).await?;
        let mut said = String::new();
        loop {
            let c = self.client().await?;
            match ask(&c, "osd safe-to-destroy", ids).await? {
                Ok(()) => return Ok(()),
                Err(why) if why != said => {
                    print(&format!("    {why}"));
                    said = why;
                }
                Err(_) => {}
            }
            let dump = must_json(&c, json!({"prefix": "osd dump"})).await?;
            let is_in =
                |o: &Value| o["in"] == 1 && o["osd"].as_u64().is_some_and(|n| ids.iter().any(|i| u64::from(*i) == n));
            if dump["osds"].as_array().is_some_and(|a| a.iter().any(is_in)) {
                return Err("an OSD was marked in again meanwhile; its host stays".into());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Stops an OSD, removes it from the maps, and erases its store.
    async fn retire(&self, host: &str, id: u32, path: Option<&str>) -> Result<(), Error> {
        let answers = self.facts.host(host).is_some();
        if self.facts.cluster().is_some_and(|c| c.osds.contains_key(&id)) {
            let c = self.client().await?;
            if let Err(why) = ask(&c, "osd safe-to-destroy", &[id]).await? {
                return Err(format!("osd.{id} is not safe to destroy: {why}").into());
            }
            if answers {
                self.run(host, &scripts::stop(&format!("belemnite-osd@{id}"), "")).await?;
            }
            let c = self.client().await?;
            must(&c, json!({"prefix": "osd down", "ids": [id.to_string()]})).await?;
            must(&c, json!({"prefix": "osd purge", "id": id, "yes_i_really_mean_it": true})).await?;
        }
        if answers {
            self.run(host, &scripts::script(&scripts::erase(id, path, false))).await?;
        }
        Ok(())
    }

    /// Waits until the monitors agree that OSDs stop together; false if they do not in time.
    async fn may_stop(&self, ids: &[u32], limit: Duration) -> Result<Result<(), String>, Error> {
        let begun = Instant::now();
        loop {
            let r = ask(&self.client().await?, "osd ok-to-stop", ids).await?;
            if r.is_ok() || begun.elapsed() >= limit {
                return Ok(r);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Checks that the installed program reads the stores of OSDs, before their daemons become ones of it.
    async fn check_stores(&self, host: &str, ids: &[u32]) -> Result<(), Error> {
        let text = self.site.ssh.script(&self.host(host)?, scripts::LIST_STORES, &[], SHORT).await?;
        let list: Value =
            serde_json::from_str(&text).map_err(|e| format!("`belemnite osd list` printed no JSON: {e}"))?;
        match unreadable(&list, ids) {
            None => Ok(()),
            Some(why) => {
                Err(format!("the installed program does not read {why}; no OSD of the host was restarted").into())
            }
        }
    }

    /// Restarts the OSDs of a host: together if the monitors agree, else one after the other.
    async fn restart(&self, host: &str, ids: &[u32]) -> Result<(), Error> {
        self.check_stores(host, ids).await?;
        if self.may_stop(ids, Duration::ZERO).await?.is_ok() {
            return self.restart_together(host, ids).await;
        }
        for id in ids {
            if let Err(why) = self.may_stop(&[*id], STOP_MAX).await? {
                return Err(format!("osd.{id} cannot be restarted: {why}").into());
            }
            self.restart_together(host, &[*id]).await?;
        }
        Ok(())
    }

    async fn restart_together(&self, host: &str, ids: &[u32]) -> Result<(), Error> {
        let before = up_from(&must_json(&self.client().await?, json!({"prefix": "osd dump"})).await?);
        let units: Vec<String> = ids.iter().map(|i| format!("belemnite-osd@{i}")).collect();
        let text = scripts::script(&format!("systemctl restart {}", units.join(" ")));
        self.site.ssh.script(&self.host(host)?, &text, &[], SHORT).await?;
        self.wait_up(ids, &before).await?;
        self.wait_clean().await
    }

    /// Waits until all PGs are active and clean, in two looks, of which the second is after reports of the OSDs.
    async fn wait_clean(&self) -> Result<(), Error> {
        let (mut clean, mut said) = (0, String::new());
        while clean < 2 {
            match unclean(&self.client().await?).await? {
                None => clean += 1,
                Some(why) => {
                    clean = 0;
                    if why != said {
                        print(&format!("    waiting: {why}"));
                        said = why;
                    }
                }
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_of_a_newer_release_are_named() {
        let list = json!({"devices": [
            {"path": "/dev/sda", "osd": 1, "state": "up, in"},
            {"path": "/dev/sdb", "osd": 2, "error": "made by a newer version of Belemnite"},
            {"path": "/dev/sdc", "error": "cannot be read"}]});
        assert_eq!(unreadable(&list, &[1]), None);
        let why = unreadable(&list, &[1, 2]).unwrap();
        assert_eq!(why, "the store of osd.2: made by a newer version of Belemnite");
    }
}
