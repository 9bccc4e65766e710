//! `belemnite rehearse --apply`: a change in steps, and its `status`, `undo` and `commit`.
//!
//! The monitors keep the record (`mon::command::rehearse::steps`); `mgr::rehearse::steps` decides. So this program can be
//! killed at any time, and `--apply` again, on any host, goes on. While it is not running, PGs stay held.

use super::gather::{in_copies, must_json, seen};
use super::{Change, Ended, Error, Prepared, RehearseArgs, change, prepare, refused, show_report};
use crate::cli::operate::print;
use base::{errno, size};
use bytes::Bytes;
use client::{Client, CommandReply};
use mgr::rehearse::Verdict;
use mgr::rehearse::steps::{Danger, Next, Plan, Record, Step, next, plan};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Attempts to make a change while others change the map.
const ATTEMPTS: usize = 5;
/// Pause between two looks at the cluster: at least, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
/// Pause between two questions about the claim of another program. One that lives keeps its claim meanwhile.
const CLAIM_EVERY: Duration = Duration::from_millis(2500);

/// The name of this program for others.
fn this_program() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // Containers may have equal names and numbers.
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}:{}:{:08x}", host.trim(), std::process::id(), began.subsec_nanos())
}

async fn ask(c: &Client, cmd: Value, input: Vec<u8>) -> Result<CommandReply, Error> {
    Ok(c.mon_command(&cmd.to_string(), Bytes::from(input)).await?)
}

fn told(r: &CommandReply) -> String {
    format!("{} ({})", r.status, errno::name(r.rc))
}

/// Runs a command that must succeed.
async fn must(c: &Client, cmd: Value) -> Result<String, Error> {
    let r = ask(c, cmd, Vec::new()).await?;
    if r.rc < 0 { Err(told(&r).into()) } else { Ok(r.status) }
}

async fn asked_status(c: &Client) -> Result<Value, Error> {
    must_json(c, json!({"prefix": "rehearse status"})).await
}

/// The record in an answer to `rehearse status`.
fn record_in(status: &Value) -> Result<Option<Record>, Error> {
    let is_there = status["applied"].as_bool().unwrap_or(false);
    Ok(if is_there { Some(serde_json::from_value(status["record"].clone())?) } else { None })
}

/// Takes the claim. One that is not kept ends by itself; another program that keeps it is named.
async fn claim(c: &Client, by: &str) -> Result<(), Error> {
    let mut last = None;
    loop {
        let r = ask(c, json!({"prefix": "rehearse claim", "by": by}), Vec::new()).await?;
        if r.rc >= 0 {
            return Ok(());
        }
        if r.rc != errno::EBUSY {
            return Err(told(&r).into());
        }
        let status = asked_status(c).await?;
        let age = status["claim_age_ms"].as_u64();
        let is_kept = |last: u64| age.is_some_and(|age| age < last + CLAIM_EVERY.as_millis() as u64 / 2);
        if last.is_some_and(is_kept) {
            let other = status["claimed_by"].as_str().unwrap_or_default();
            let what = status["command"].as_str().map_or("a change".into(), |w| format!("'{w}'"));
            return Err(format!("{other} carries out {what} at this time").into());
        }
        if last.is_none() {
            eprint_line(&format!("{}; waiting whether it goes on", r.status));
        }
        last = age;
        tokio::time::sleep(CLAIM_EVERY).await;
    }
}

/// A line on standard error. The command goes on if nobody reads it.
fn eprint_line(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "belemnite: {text}");
}

/// `belemnite rehearse --apply`
pub(super) async fn apply(c: &Client, a: &RehearseArgs) -> Result<(), Error> {
    let by = this_program();
    let wanted = if a.command.is_empty() { None } else { Some(change(&a.command)?) };
    match (record_in(&asked_status(c).await?)?, wanted) {
        (Some(r), wanted) => {
            let words: Vec<String> = r.command.split(' ').map(str::to_owned).collect();
            if wanted.is_some_and(|w| change(&words).as_ref() != Ok(&w)) {
                let text = "commit it (`belemnite rehearse commit`) or undo it first";
                return refused(a, &format!("'{}', applied by {}, is not committed: {text}", r.command, r.by));
            }
            claim(c, &by).await?;
            say(a, &format!("goes on with '{}', applied by {}", r.command, r.by));
        }
        (None, None) => return Err("no change is applied; name the command".into()),
        (None, Some(Change::Hosts(..))) => {
            return refused(a, "hosts join when their OSDs start; the balancer then moves PGs to them in steps");
        }
        (None, Some(Change::Command(cmd))) => begin(c, a, &by, &cmd).await?,
    }
    let done = drive(c, a, &by).await;
    // Without it the claim ends by itself.
    let _ = ask(c, json!({"prefix": "rehearse claim", "by": by, "end": true}), Vec::new()).await;
    done
}

fn say(a: &RehearseArgs, text: &str) {
    if !a.json {
        print(text);
    }
}

fn step_of(a: &RehearseArgs, asked: &Value) -> Step {
    let ratio = asked["target_max_misplaced_ratio"].as_f64().unwrap_or(0.05);
    a.step.map_or(Step::Ratio(ratio), Step::Pgs)
}

/// Rehearses the command and makes the change with held PGs.
async fn begin(c: &Client, a: &RehearseArgs, by: &str, cmd: &Value) -> Result<(), Error> {
    for _ in 0..ATTEMPTS {
        let p = match prepare(c, a, &Change::Command(cmd.clone())).await? {
            Ok(p) => p,
            Err(reason) => return refused(a, &reason),
        };
        let made = match plan(&p.before, &p.change, &p.facts) {
            Ok(made) => made,
            Err(why) => {
                let text = format!("there is no exact way back: {why}. Rehearsed and found good, it is made by");
                return refused(a, &format!("{text} `ceph {}`", a.command.join(" ")));
            }
        };
        may_begin(a, &p, &made)?;
        let unclean = seen(c).await?.unclean();
        let command = a.command.join(" ");
        let record = Record { command, pgs: made.pgs.clone(), unclean, ..Record::default() };
        claim(c, by).await?;
        let apply = json!({"prefix": "rehearse apply", "cmd": cmd.to_string(), "epoch": p.before.epoch.0, "by": by});
        let r = ask(c, apply, serde_json::to_vec(&record)?).await?;
        if r.rc == errno::EAGAIN {
            continue;
        }
        if r.rc < 0 {
            return refused(a, &told(&r));
        }
        say(a, &format!("applied         {}", r.status));
        return Ok(());
    }
    Err(format!("the OSD map changed during each of {ATTEMPTS} attempts; try again").into())
}

/// Shows the rehearsal. Error: it is refused, or a risk is to be accepted.
fn may_begin(a: &RehearseArgs, p: &Prepared, made: &Plan) -> Result<(), Error> {
    let verdict = made.whole.verdict();
    let is_much = match step_of(a, &p.asked) {
        Step::Pgs(n) => made.at_once > n as u64,
        Step::Ratio(r) => made.at_once_bytes as f64 > r * in_copies(&p.before, &p.facts.pgs),
    };
    let needs_yes = verdict == Verdict::Risky || is_much;
    if !a.json || verdict == Verdict::Refused || needs_yes && !a.yes {
        show_report(a, &p.status, &made.whole)?;
        say(a, &format!("in steps        {} PGs are held and let go in steps", made.held()));
        if made.at_once > 0 {
            let (bytes, text) = (size::show(made.at_once_bytes), "cannot be held and move at once");
            say(a, &format!("at once         {bytes} in {} PGs {text}", made.at_once));
        }
    }
    if verdict == Verdict::Refused {
        return Err(Ended::in_error().into());
    }
    if needs_yes && !a.yes {
        eprint_line("nothing was changed; add --yes to apply it all the same");
        return Err(Ended::warned().into());
    }
    Ok(())
}

/// Progress since the start of this program.
struct Progress {
    began: Instant,
    /// Bytes of held PGs at the start.
    first: Option<u64>,
    said: (usize, usize),
}

impl Progress {
    /// The time that is left, once PGs were let go and are clean.
    fn left(&self, bytes: u64) -> String {
        let done = self.first.unwrap_or(bytes).saturating_sub(bytes);
        if done == 0 || bytes == 0 {
            return String::new();
        }
        let seconds = self.began.elapsed().as_secs_f64() * bytes as f64 / done as f64;
        format!("; about {} left", mgr::rehearse::duration(seconds))
    }
}

/// Lets PGs go step by step until all are clean.
async fn drive(c: &Client, a: &RehearseArgs, by: &str) -> Result<(), Error> {
    let step = step_of(a, &must_json(c, json!({"prefix": "rehearse", "cmds": []})).await?);
    let mut danger: Option<Danger> = None;
    let mut progress = Progress { began: Instant::now(), first: None, said: (0, 0) };
    loop {
        let looked = Instant::now();
        must(c, json!({"prefix": "rehearse claim", "by": by})).await?;
        let Some(record) = record_in(&asked_status(c).await?)? else {
            return Err("the change was undone or committed meanwhile".into());
        };
        let seen = seen(c).await?;
        let reasons = danger.get_or_insert_with(|| Danger::begin(&seen)).look(&seen);
        let held = record.held(&seen.map).count();
        if !reasons.is_empty() {
            return stopped(a, held, &reasons);
        }
        let (what, bytes) = next(&record, &seen, step)?;
        progress.first.get_or_insert(bytes);
        match what {
            Next::Wait(unclean) => {
                if progress.said != (held, unclean) {
                    say(a, &format!("waiting         {unclean} PGs are not clean, {held} are held"));
                    progress.said = (held, unclean);
                }
            }
            Next::Release(pgs) => {
                let left = progress.left(bytes);
                let names: Vec<String> = pgs.iter().map(ToString::to_string).collect();
                must(c, json!({"prefix": "rehearse release", "by": by, "pgs": names})).await?;
                let (n, held) = (names.len(), held.saturating_sub(names.len()));
                say(
                    a,
                    &format!(
                        "step            {n} PGs are let go, {held} are held; {} to copy{left}",
                        size::show(bytes)
                    ),
                );
            }
            Next::Finish => _ = must(c, json!({"prefix": "rehearse release", "by": by})).await?,
            Next::Done => return applied(a, &record),
        }
        tokio::time::sleep((looked.elapsed() * 10).clamp(PAUSE.0, PAUSE.1)).await;
    }
}

fn applied(a: &RehearseArgs, record: &Record) -> Result<(), Error> {
    if a.json {
        print(&json!({"state": "applied", "command": record.command}).to_string());
    }
    say(a, &format!("done            '{}' is applied and all its PGs are clean", record.command));
    say(a, "`belemnite rehearse commit` keeps it, `belemnite rehearse undo` takes it back");
    Ok(())
}

/// Ends because something is endangered.
fn stopped(a: &RehearseArgs, held: usize, reasons: &[String]) -> Result<(), Error> {
    if a.json {
        print(&json!({"state": "stopped", "reasons": reasons, "held": held}).to_string());
    }
    say(a, &format!("stopped: {}", reasons.join("; ")));
    say(a, &format!("{held} PGs stay held. `belemnite rehearse --apply` goes on, `belemnite rehearse undo` goes back"));
    Err(Ended::in_error().into())
}

/// `belemnite rehearse status`
pub(super) async fn status(c: &Client, a: &RehearseArgs) -> Result<(), Error> {
    let s = asked_status(c).await?;
    if a.json {
        print(&serde_json::to_string_pretty(&s)?);
        return Ok(());
    }
    let Some(r) = record_in(&s)? else {
        print("no change is applied that can be undone");
        return Ok(());
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    print(&format!("command         {}", r.command));
    let ago = mgr::rehearse::duration(now.saturating_sub(r.since) as f64);
    print(&format!("applied         {ago} ago by {}, on epoch {}", r.by, r.epoch));
    print(&format!("held            {} PGs; {} were let go", s["held"], s["let_go"]));
    let state = match (s["is_finished"].as_bool(), s["claimed_by"].as_str()) {
        (Some(true), _) => "at its end, not committed".to_owned(),
        (_, Some(by)) => format!("carried out by {by}"),
        (_, None) => "nobody carries it out; `belemnite rehearse --apply` goes on".to_owned(),
    };
    print(&format!("state           {state}"));
    for text in s["changed_by_others"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print(&format!("changed since   {text}"));
    }
    Ok(())
}

/// `belemnite rehearse undo`
pub(super) async fn undo(c: &Client, a: &RehearseArgs, force: bool) -> Result<(), Error> {
    let cmd = json!({"prefix": "rehearse undo", "force": force});
    let p = match prepare(c, a, &Change::Command(cmd.clone())).await? {
        Ok(p) => p,
        Err(reason) => return refused(a, &reason),
    };
    let report = p.report()?;
    if report.verdict() == Verdict::Refused {
        show_report(a, &p.status, &report)?;
        if !force {
            eprint_line("nothing was changed; --force undoes it all the same");
            return Err(Ended::in_error().into());
        }
    }
    let r = ask(c, cmd, Vec::new()).await?;
    if r.rc < 0 {
        return refused(a, &told(&r));
    }
    let back = json!({"state": "undone", "pgs_moved": report.pgs_moved, "bytes": report.bytes});
    let moves = format!("{} in {} PGs move back", size::show(report.bytes), report.pgs_moved);
    print(&if a.json { back.to_string() } else { format!("{}; {moves}", r.status) });
    Ok(())
}

/// `belemnite rehearse commit`
pub(super) async fn commit(c: &Client, a: &RehearseArgs) -> Result<(), Error> {
    let r = ask(c, json!({"prefix": "rehearse commit"}), Vec::new()).await?;
    if r.rc < 0 {
        return refused(a, &told(&r));
    }
    print(&if a.json { json!({"state": "committed"}).to_string() } else { r.status });
    Ok(())
}
