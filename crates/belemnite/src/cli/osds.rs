//! `belemnite osd add|remove|replace`: stores of a running `up`, with the checks that keep data.

use super::begun::{Begun, Goal};
use super::operate::{
    ASK_EVERY, Place, Risk, StoreArgs, command, connect, must, must_json, print, seen, tell, wait_up,
};
use crate::size;
use crate::up::control::Request;
use crate::up::layout::{self, Layout};
use client::Client;
use serde_json::{Value, json};

type Error = Box<dyn std::error::Error>;

/// Arguments of `belemnite osd replace`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    pub(super) place: Place,
    /// Id of the OSD
    pub(super) id: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Put dm-crypt under the store, as `osd create` does. An encrypted OSD of this host stays encrypted without it
    #[arg(long, conflicts_with = "size")]
    pub(crate) encrypt: bool,
    /// First move all data to other OSDs, which must have room for it
    #[arg(long, conflicts_with_all = ["degraded", "yes_i_really_mean_it"])]
    pub(crate) drain: bool,
    #[command(flatten)]
    pub(crate) risk: Risk,
}

pub(super) fn make(osd: Option<u32>, s: &StoreArgs) -> Result<Request, Error> {
    let size = match &s.size {
        Some(text) => Some(size::parse(text).ok_or_else(|| format!("--size {text}: not a size"))?),
        None => None,
    };
    let device = s.device.as_ref().map(|d| layout::absolute(d)).transpose()?;
    Ok(Request::Make { osd, device, size, force: s.force })
}

/// An OSD as the map shows it; `None` if the map does not have it.
pub(crate) async fn osd(c: &Client, id: u32) -> Result<Option<Value>, Error> {
    let dump = must_json(c, json!({"prefix": "osd dump"})).await?;
    Ok(dump["osds"].as_array().and_then(|a| a.iter().find(|o| o["osd"] == id)).cloned())
}

pub(crate) fn is_destroyed(o: &Value) -> bool {
    o["state"].as_array().is_some_and(|s| s.iter().any(|w| w == "destroyed"))
}

/// The reason why an OSD cannot be started, if the cluster no longer has it.
pub(super) async fn gone(l: &Layout, id: u32) -> Result<Option<String>, Error> {
    Ok(match osd(&connect(l).await?, id).await? {
        None => {
            Some(format!("osd.{id} is not in the monitor's map: it was purged; `belemnite osd add` makes a new OSD"))
        }
        Some(o) if is_destroyed(&o) => {
            Some(format!("osd.{id} was destroyed; `belemnite osd replace {id}` makes its store anew"))
        }
        Some(_) => None,
    })
}

/// Checks that the other OSDs can hold all copies of every pool.
async fn check_places(c: &Client, id: u32) -> Result<(), Error> {
    let dump = must_json(c, json!({"prefix": "osd dump"})).await?;
    let list = |k: &str| dump[k].as_array().cloned().unwrap_or_default();
    let left = list("osds").iter().filter(|o| o["osd"] != id && o["in"] == 1 && o["up"] == 1).count() as u64;
    let largest = list("pools").into_iter().max_by_key(|p| p["size"].as_u64().unwrap_or_default());
    if let Some(p) = largest.filter(|p| p["size"].as_u64().unwrap_or_default() > left) {
        return Err(format!(
            "osd.{id} cannot be emptied: pool {} has {} copies or shards, and {left} other OSDs are up and in. Add an OSD \
             first (`belemnite osd add`), lower the pool's size, or add --degraded",
            p["pool_name"].as_str().unwrap_or_default(),
            p["size"]
        )
        .into());
    }
    Ok(())
}

/// Moves all data off an OSD: marks it out and waits until it is safe to destroy.
///
/// # Errors
/// The OSD is marked in meanwhile, by an operator who wants to keep it.
async fn drain(c: &Client, id: u32) -> Result<(), Error> {
    check_places(c, id).await?;
    must(c, json!({"prefix": "osd out", "ids": [id.to_string()]})).await?;
    print(&format!("osd.{id} is out; waiting until its data is elsewhere (`ceph osd in {id}` takes it back)"));
    let mut said = String::new();
    loop {
        let r = command(c, json!({"prefix": "osd safe-to-destroy", "ids": [id.to_string()]})).await?;
        if r.rc == 0 {
            return Ok(());
        }
        if r.status != said {
            print(&r.status);
            said = r.status;
        }
        if osd(c, id).await?.is_none_or(|o| o["in"] == 1) {
            return Err(format!("osd.{id} was marked in again, or purged; its store stays").into());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Checks that the copies of an OSD's data on other OSDs are complete, and enough to serve.
async fn check_degraded(c: &Client, id: u32) -> Result<(), Error> {
    let r = command(c, json!({"prefix": "osd ok-to-stop", "ids": [id.to_string()]})).await?;
    if r.rc < 0 {
        return Err(format!("osd.{id}: {}", r.status).into());
    }
    let stat = must_json(c, json!({"prefix": "status"})).await?;
    let states = stat["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
    for s in &states {
        let name = s["state_name"].as_str().unwrap_or_default();
        let moving = ["recover", "backfill", "unfound", "peer", "stale", "incomplete", "inconsistent", "unknown"];
        if !name.contains("active") || moving.iter().any(|m| name.contains(m)) {
            return Err(format!(
                "{} PGs are {name}: the other copies may not be complete; wait, and try again",
                s["count"]
            )
            .into());
        }
    }
    Ok(())
}

/// Checks that the data of an OSD is not needed.
pub(crate) async fn check_safe(c: &Client, id: u32, other_way: &str) -> Result<(), Error> {
    let r = command(c, json!({"prefix": "osd safe-to-destroy", "ids": [id.to_string()]})).await?;
    if r.rc < 0 {
        return Err(format!("osd.{id} is not safe to destroy: {} {other_way}", r.status).into());
    }
    Ok(())
}

/// Checks that an OSD of the map may lose its store; with `drained` moves its data to other OSDs first.
///
/// # Errors
/// The monitors do not say that the data is complete elsewhere, as far as `risk` wants that.
pub(crate) async fn let_go(c: &Client, id: u32, o: &Value, risk: &Risk, drained: bool) -> Result<(), Error> {
    match risk {
        _ if is_destroyed(o) => Ok(()),
        Risk { yes_i_really_mean_it: true, .. } => Ok(()),
        Risk { degraded: true, .. } => check_degraded(c, id).await,
        _ if drained => drain(c, id).await,
        _ => {
            let ways = "--drain moves its data to other OSDs first; --degraded relies on the other copies meanwhile";
            check_safe(c, id, ways).await
        }
    }
}

/// Waits until the map shows an OSD down, which it is stopped already.
async fn take_down(c: &Client, l: &Layout, id: u32) -> Result<(), Error> {
    tell(l, Request::Stop { daemon: format!("osd.{id}") }).await?;
    must(c, json!({"prefix": "osd down", "ids": [id.to_string()]})).await?;
    Ok(())
}

/// The `up` that serves, once it has started all daemons: its name, and its OSDs.
async fn ready(l: &Layout) -> Result<(String, Vec<u32>), Error> {
    loop {
        let s = seen(l).await?;
        if s.ready {
            let osds = s.daemons.iter().filter_map(|d| d.name.strip_prefix("osd.")?.parse().ok());
            return Ok((s.up, osds.collect()));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Checks that `up` has an OSD.
fn check_here(osds: &[u32], id: u32) -> Result<(), Error> {
    if osds.contains(&id) { Ok(()) } else { Err(format!("no osd.{id} here").into()) }
}

/// `belemnite osd add`
pub(super) async fn add(l: &Layout, store: &StoreArgs) -> Result<(), Error> {
    let request = make(None, store)?;
    let goal = match &request {
        Request::Make { device, size, .. } => Goal::Add { device: device.clone(), size: *size },
        _ => return Err("no request to make an OSD".into()),
    };
    let (up, _) = ready(l).await?;
    let begun = Begun::begin(l, goal, &up)?;
    let c = connect(l).await?;
    let id = match begun.made(l)? {
        Some(id) => {
            print(&format!("osd.{id} was made before the interruption"));
            Some(id)
        }
        None => {
            let text = tell(l, request).await?;
            print(&text);
            text.strip_prefix("osd.").and_then(|t| t.split(' ').next()).and_then(|n| n.parse().ok())
        }
    };
    // The first boot of an OSD marks it in, so a command that marks it out must come after that.
    if let Some(id) = id {
        wait_up(&c, l, id).await?;
        print(&format!("osd.{id} is up"));
    }
    Ok(())
}

/// `belemnite osd remove`
pub(super) async fn remove(l: &Layout, id: u32, risk: &Risk) -> Result<(), Error> {
    let (up, osds) = ready(l).await?;
    let begun = Begun::begin(l, Goal::Remove { osd: id }, &up)?;
    if begun.removed(l)? {
        print(&format!("osd.{id} was removed before the interruption"));
        return Ok(());
    }
    check_here(&osds, id)?;
    let c = connect(l).await?;
    if let Some(o) = osd(&c, id).await? {
        let_go(&c, id, &o, risk, true).await?;
        take_down(&c, l, id).await?;
        must(&c, json!({"prefix": "osd purge", "id": id, "yes_i_really_mean_it": true})).await?;
    } else {
        tell(l, Request::Stop { daemon: format!("osd.{id}") }).await?;
    }
    print(&tell(l, Request::Erase { osd: id }).await?);
    Ok(())
}

/// `belemnite osd replace`
pub(super) async fn replace(l: &Layout, id: u32, store: &StoreArgs, drained: bool, risk: &Risk) -> Result<(), Error> {
    let (up, osds) = ready(l).await?;
    check_here(&osds, id)?;
    let request = make(Some(id), store)?;
    let mut begun = Begun::begin(l, Goal::Replace { osd: id }, &up)?;
    let c = connect(l).await?;
    if begun.made(l)?.is_some() {
        print(&format!("osd.{id} was made anew before the interruption"));
    } else {
        if let Some(o) = osd(&c, id).await? {
            let_go(&c, id, &o, risk, drained).await?;
            begun.marks_in &= o["in"] != 1 || drained;
            begun.store(l)?;
            take_down(&c, l, id).await?;
            must(&c, json!({"prefix": "osd destroy", "id": id, "yes_i_really_mean_it": true})).await?;
        } else {
            tell(l, Request::Stop { daemon: format!("osd.{id}") }).await?;
        }
        print(&tell(l, request).await?);
    }
    wait_up(&c, l, id).await?;
    if begun.marks_in {
        must(&c, json!({"prefix": "osd in", "ids": [id.to_string()]})).await?;
    }
    print(&format!("osd.{id} is up with an empty store; `ceph -s` shows how its data comes back"));
    Ok(())
}
