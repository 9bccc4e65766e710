//! `belemnite rehearse COMMAND`: what a change would do, before it is made.
//!
//! The monitor runs the command on a proposal that it throws away and answers with the change of the map
//! (`mon::command::rehearse`); `mgr::rehearse` places all PGs on the maps before and after it, here. `add N hosts like
//! HOST` is no command of the monitor, so its change is made here.
//!
//! `apply` makes a change in steps.
//!
//! | module | contents |
//! | --- | --- |
//! | `apply` | `belemnite rehearse --apply`: a change in steps, and its `status`, `undo` and `commit` |
//! | `gather` | the facts for a rehearsal from the cluster: PGs with their sizes and copies, stores, rates |
//! | `words` | from the words of a command line to a command of the monitor, by the monitor's own signatures |
//!
//! Exit status: 0 safe; 4 risky; 5 refused; 1 the command is none, or the cluster did not answer.

mod apply;
mod gather;
mod words;

use super::operate::print;
use super::{Ended, Target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use client::Client;
use cluster::{Incremental, OsdMap};
use mgr::rehearse::{Facts, Grown, Rate, Report, Verdict, hosts_like, settle};
use serde_json::{Value, json};
use std::sync::Arc;

type Error = Box<dyn std::error::Error>;

/// `belemnite rehearse`
#[derive(Debug, clap::Args)]
pub(crate) struct RehearseArgs {
    /// Rate of recovery in bytes a second, such as 200M, for the time [default: as measured, else 50M for each OSD]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    rate: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Make the change in steps, if the rehearsal is good: PGs stay where they are and are let go some at a time
    #[arg(long)]
    apply: bool,
    /// With --apply: also if the rehearsal finds risks
    #[arg(long, requires = "apply")]
    yes: bool,
    /// With --apply: PGs that are let go at a time [default: `target_max_misplaced_ratio` of all data]
    #[arg(long, value_name = "N", requires = "apply", value_parser = pgs)]
    step: Option<usize>,
    /// With undo: also where others have changed the same since
    #[arg(long, conflicts_with = "apply")]
    force: bool,
    /// Command as `ceph` takes it, such as `osd out 12`; or `add 10 hosts like HOST`; or for what was applied: `status`,
    /// `undo`, `commit`
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "apply",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

fn rate(text: &str) -> Result<u64, String> {
    base::size::parse(text).filter(|n| *n > 0).ok_or_else(|| format!("{text}: not a size; 200M is one"))
}

fn pgs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text}: not a number of PGs"))
}

/// A change to rehearse.
#[derive(Debug, PartialEq)]
enum Change {
    /// A command of the monitor.
    Command(Value),
    /// So many hosts like one join.
    Hosts(usize, String),
}

/// The change that words ask for. Error: the words are no command.
fn change(words: &[String]) -> Result<Change, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|w| !w.is_empty()).collect();
    match words.as_slice() {
        ["add", n, "host" | "hosts", "like", host] => {
            let n = n.parse().map_err(|_| format!("{n}: not a number of hosts"))?;
            Ok(Change::Hosts(n, (*host).to_owned()))
        }
        ["add", ..] => Err("hosts are added by `add N hosts like HOST`".into()),
        words => Ok(Change::Command(words::command(words.strip_prefix(&["ceph"]).unwrap_or(words))?)),
    }
}

/// `belemnite rehearse`
pub(crate) async fn rehearse(t: &Target, mut a: RehearseArgs) -> Result<(), Error> {
    // Options are taken after the command, too.
    while a.command.last().is_some_and(|w| w == "--json") {
        a.command.pop();
        a.json = true;
    }
    let words: Vec<&str> = a.command.iter().map(String::as_str).collect();
    match words.as_slice() {
        _ if a.apply => apply::apply(&t.connect().await?, &a).await,
        ["status"] => apply::status(&t.connect().await?, &a).await,
        ["undo"] => apply::undo(&t.connect().await?, &a, a.force).await,
        ["undo", "--force"] => apply::undo(&t.connect().await?, &a, true).await,
        ["commit"] => apply::commit(&t.connect().await?, &a).await,
        _ => {
            let change = change(&a.command)?;
            match prepare(&t.connect().await?, &a, &change).await? {
                Ok(p) => show(&a, &p.status, &p.report()?),
                Err(reason) => refused(&a, &reason),
            }
        }
    }
}

/// A change with all that is known of the cluster before it.
struct Prepared {
    /// The monitor's answer.
    asked: Value,
    /// The status line of the command.
    status: String,
    before: Arc<OsdMap>,
    facts: Facts,
    change: Incremental,
}

impl Prepared {
    fn report(&self) -> Result<Report, Error> {
        let settled = settle(&self.before, &self.change, &self.facts)?;
        Ok(mgr::rehearse::rehearse(&self.before, &settled, &self.facts))
    }
}

/// Asks for a change and for what it meets. The inner error is the reason for which the monitors refuse it.
async fn prepare(c: &Client, a: &RehearseArgs, change: &Change) -> Result<Result<Prepared, String>, Error> {
    let cmds: Vec<String> = match change {
        Change::Command(v) => vec![v.to_string()],
        Change::Hosts(..) => Vec::new(),
    };
    let asked = gather::must_json(c, json!({"prefix": "rehearse", "cmds": cmds})).await?;
    let result = &asked["results"][0];
    let status = result["status"].as_str().unwrap_or_default().to_owned();
    if let Some(rc) = result["rc"].as_i64().filter(|rc| *rc < 0) {
        let name = i32::try_from(rc).map(base::errno::name).unwrap_or_default();
        return Ok(Err(format!("the monitors refuse it: {status} ({name})")));
    }
    let before = Arc::new(map_at(c, &asked["epoch"]).await?);
    let mut facts = gather::facts(c, &before, &asked).await?;
    if let Some(bytes) = a.rate {
        facts.rate = Rate::Given(bytes);
    }
    let change = match change {
        Change::Command(_) => decode(&before, asked["incremental"].as_str().unwrap_or_default())?,
        Change::Hosts(n, host) => grow(&before, &mut facts, &hosts_like(&before, host, *n)?),
    };
    Ok(Ok(Prepared { asked, status, before, facts, change }))
}

/// Ends because a change is refused.
fn refused(a: &RehearseArgs, reason: &str) -> Result<(), Error> {
    let shown = json!({"verdict": "refused", "reasons": [reason]});
    print(&if a.json { serde_json::to_string_pretty(&shown)? } else { format!("refused: {reason}") });
    Err(Ended::in_error().into())
}

fn show_report(a: &RehearseArgs, status: &str, report: &Report) -> Result<(), Error> {
    if a.json {
        let mut shown = report.to_json();
        shown["command"] = a.command.join(" ").into();
        shown["status"] = status.into();
        print(&serde_json::to_string_pretty(&shown)?);
    } else {
        if !status.is_empty() {
            print(&format!("answer          {status}"));
        }
        print(&report.to_string());
    }
    Ok(())
}

fn show(a: &RehearseArgs, status: &str, report: &Report) -> Result<(), Error> {
    show_report(a, status, report)?;
    match report.verdict() {
        Verdict::Safe => Ok(()),
        Verdict::Risky => Err(Ended::warned().into()),
        Verdict::Refused => Err(Ended::in_error().into()),
    }
}

/// The map of an epoch; without one the newest.
async fn map_at(c: &Client, epoch: &Value) -> Result<OsdMap, Error> {
    let mut cmd = json!({"prefix": "osd getmap"});
    if !epoch.is_null() {
        cmd["epoch"] = epoch.clone();
    }
    let r = c.mon_command(&cmd.to_string(), Bytes::new()).await?;
    if r.rc < 0 {
        return Err(format!("{} ({})", r.status, base::errno::name(r.rc)).into());
    }
    Ok(OsdMap::decode_blob(&r.out)?)
}

/// The change in the monitor's answer; one without changes for a command that makes none.
fn decode(before: &OsdMap, text: &str) -> Result<Incremental, Error> {
    if text.is_empty() {
        return Ok(Incremental::new(before.fsid, before.epoch.next(), before.modified));
    }
    Ok(Incremental::decode_blob(&BASE64.decode(text)?.into())?)
}

/// Gives new OSDs empty stores of the sizes of those they are like.
fn grow(before: &OsdMap, facts: &mut Facts, g: &Grown) -> Incremental {
    for (new, like) in &g.osds {
        if let Some(f) = facts.osds.get(like).copied().filter(|_| !before.exists(*new)) {
            facts.osds.insert(*new, mgr::rehearse::OsdFacts { used: 0, ..f });
        }
    }
    g.change.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Change, String> {
        change(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn hosts_and_commands_are_told_apart() {
        assert_eq!(of("add 10 hosts like h1"), Ok(Change::Hosts(10, "h1".into())));
        assert_eq!(of("add 1 host like h1"), Ok(Change::Hosts(1, "h1".into())));
        assert!(of("add ten hosts like h1").is_err() && of("add h1").is_err());
        let out = Change::Command(json!({"prefix": "osd out", "ids": ["12", "13"]}));
        assert_eq!(of("osd out 12 13"), Ok(out));
        assert_eq!(of("ceph osd out 12 13"), of("osd out 12 13"));
    }

    #[test]
    fn rates_are_sizes() {
        assert_eq!(rate("200M"), Ok(200 << 20));
        assert!(rate("0").is_err() && rate("fast").is_err());
    }
}
