//! `deploy apply` and `deploy upgrade`: stage after stage, each from new facts.

use super::act::Act;
use super::dir::Known;
use super::{Error, Site, cluster, show};
use crate::cli::operate::{must_json, print};
use deploy::{Action, Facts, Inventory, Next, Stage, Step, notes, plan, upgrade as upgrading};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Pause between two looks at the cluster's health.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time in which a cluster without problems becomes healthy after the last step.
const HEALTHY_MAX: Duration = Duration::from_secs(180);
/// Times that the same stage may come again before the run ends: a step then has no effect.
const REPEATS_MAX: usize = 2;

/// Runs futures, at most `limit` at a time; returns their outputs in order.
pub(super) async fn together<F: Future>(limit: usize, all: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting = all.into_iter().enumerate();
    let mut active: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut done: BTreeMap<usize, F::Output> = BTreeMap::new();
    std::future::poll_fn(|cx| {
        loop {
            let room = limit.max(1).saturating_sub(active.len());
            active.extend(waiting.by_ref().take(room).map(|(i, f)| (i, Box::pin(f))));
            let before = active.len();
            active.retain_mut(|(i, f)| match f.as_mut().poll(cx) {
                Poll::Ready(out) => {
                    done.insert(*i, out);
                    false
                }
                Poll::Pending => true,
            });
            if active.is_empty() && before < limit.max(1) {
                return Poll::Ready(());
            }
            if active.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await;
    done.into_values().collect()
}

/// Notes the hosts that steps work on, before the first one does.
fn remember(site: &Site, f: &Facts) -> Result<(), Error> {
    let mut known = site.dir.known()?;
    let before = known.clone();
    for (n, h) in site.inventory.hosts.iter().filter(|(n, _)| f.host(n).is_some()) {
        known.insert(n.clone(), Known { address: h.address, user: h.user.clone() });
    }
    if known == before { Ok(()) } else { site.dir.write_known(&known) }
}

/// Carries out a stage. All steps run to their end, also beside one that fails.
async fn stage(site: &Site, f: &Facts, s: &Stage) -> Result<(), Error> {
    let begun = Instant::now();
    print(&format!("{}:", s.title));
    let act = Act::new(site, f);
    let one = async |step: &Step| {
        let begun = Instant::now();
        let r = act.step(step).await;
        let (line, took) = (step.line(f), begun.elapsed().as_secs_f64());
        match &r {
            Ok(()) => print(&format!("  {line} ({took:.1} s)")),
            Err(e) => print(&format!("  {line}: FAILED: {e}")),
        }
        r.map_err(|e| format!("{}: {e}", if step.host.is_empty() { "cluster" } else { &step.host }))
    };
    let results = together(site.ssh.parallel(), s.steps.iter().map(one)).await;
    let failed: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if s.steps.len() > 1 {
        print(&format!("  {} steps in {:.1} s", s.steps.len(), begun.elapsed().as_secs_f64()));
    }
    match failed.as_slice() {
        [] => Ok(()),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            Err(format!("{}: {first}{more}. What was done stays; run the command again to go on", s.title).into())
        }
    }
}

/// Stages until there are none. `go_on` is asked before each.
async fn stages(
    site: &Site,
    mut f: Facts,
    next: fn(&Inventory, &Facts) -> Next,
    go_on: impl Fn(&Stage) -> bool,
) -> Result<bool, Error> {
    let (mut last, mut repeats) = (None, 0);
    loop {
        let s = match next(&site.inventory, &f) {
            Next::Done => return Ok(true),
            Next::Blocked(p) => return Err(show::stopped(&p).into()),
            Next::Stage(s) => s,
        };
        if !go_on(&s) {
            return Ok(false);
        }
        repeats = if last.as_ref() == Some(&s) { repeats + 1 } else { 0 };
        if repeats >= REPEATS_MAX {
            return Err(
                format!("{}: the step was done, and is still to be done: {}", s.title, s.steps[0].line(&f)).into()
            );
        }
        remember(site, &f)?;
        stage(site, &f, &s).await?;
        last = Some(s);
        f = site.facts().await?;
    }
}

/// Plans to the end, and refuses what would end in a problem.
fn check(site: &Site, f: &Facts, next: fn(&Inventory, &Facts) -> Next) -> Result<(), Error> {
    for n in notes(&site.inventory, f) {
        print(&format!("note: {n}"));
    }
    let p = plan(&site.inventory, f, next);
    // What the monitors know is seen once they run.
    if p.problems.is_empty() || matches!(f.cluster, deploy::ClusterState::Silent(_)) && !p.stages.is_empty() {
        print(&show::summary(&p));
        return Ok(());
    }
    Err(format!("{}. Nothing was changed", show::stopped(&p.problems)).into())
}

/// Checks of the cluster's health by name, with their texts.
fn checks(h: &Value) -> BTreeMap<String, String> {
    let all = h["checks"].as_object().into_iter().flatten();
    all.map(|(n, c)| (n.clone(), c["summary"]["message"].as_str().unwrap_or_default().to_owned())).collect()
}

async fn health(site: &Site) -> Result<Value, Error> {
    must_json(&cluster::connect(site).await?, json!({"prefix": "health"})).await
}

/// Names of the checks before the first step: those stay the operator's, as flags of the OSD map do.
async fn checks_before(site: &Site, f: &Facts) -> Vec<String> {
    let mut names = vec!["OSDMAP_FLAGS".to_owned()];
    if f.cluster().is_some()
        && let Ok(h) = health(site).await
    {
        names.extend(checks(&h).into_keys());
    }
    names
}

/// Waits until the cluster has no other checks than `before`; prints what it waits for.
async fn wait_healthy(site: &Site, before: &[String]) -> Result<(), Error> {
    let (begun, mut said) = (Instant::now(), String::new());
    loop {
        let h = health(site).await?;
        let (old, new): (Vec<_>, Vec<_>) = checks(&h).into_iter().partition(|(n, _)| before.contains(n));
        let line =
            |c: Vec<(String, String)>| c.into_iter().map(|(n, t)| format!("{n}: {t}")).collect::<Vec<_>>().join("; ");
        let status = h["status"].as_str().unwrap_or_default().to_owned();
        if new.is_empty() && !status.is_empty() {
            let old = line(old);
            print(&if old.is_empty() { status } else { format!("{status}, as before: {old}") });
            return Ok(());
        }
        let bad = line(new);
        if begun.elapsed() > HEALTHY_MAX {
            let s = HEALTHY_MAX.as_secs();
            return Err(format!("all steps are done, and the cluster is {status} after {s} s: {bad}").into());
        }
        if bad != said {
            print(&format!("waiting: {bad}"));
            said = bad;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// `belemnite deploy apply`
pub(super) async fn apply(site: &Site) -> Result<(), Error> {
    let f = site.facts().await?;
    check(site, &f, deploy::next)?;
    let before = checks_before(site, &f).await;
    stages(site, f, deploy::next, |_| true).await?;
    wait_healthy(site, &before).await
}

/// Unsets `noout`, if an upgrade has set it.
async fn release_out(site: &Site, f: &Facts) -> Result<(), Error> {
    if site.dir.has_noout() {
        let step = Step { host: String::new(), action: Action::ReleaseOut };
        Act::new(site, f).step(&step).await?;
        print("noout is unset");
    }
    Ok(())
}

/// `belemnite deploy upgrade`
pub(super) async fn upgrade(site: &Site) -> Result<(), Error> {
    site.dir.set_paused(false)?;
    let f = site.facts().await?;
    check(site, &f, upgrading::next)?;
    let before = checks_before(site, &f).await;
    let is_last = |s: &Stage| s.steps.iter().any(|s| s.action == Action::ReleaseOut);
    let r = stages(site, f.clone(), upgrading::next, |s| !site.dir.is_paused() || is_last(s)).await;
    match r {
        Ok(true) => {
            print("all daemons run the installed program");
            wait_healthy(site, &before).await
        }
        Ok(false) => {
            release_out(site, &f).await?;
            print("paused; `belemnite deploy upgrade` goes on");
            Ok(())
        }
        Err(e) => {
            // OSDs that fail meanwhile are to be replaced by others.
            if let Err(also) = release_out(site, &f).await {
                return Err(format!("{e}; noout stays set: {also}").into());
            }
            Err(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn futures_run_in_bounded_number() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let one = async |n: u32| {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            for _ in 0..3 + n % 3 {
                tokio::task::yield_now().await;
            }
            now.set(now.get() - 1);
            n
        };
        let r = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let out = r.block_on(together(4, (0..20).map(one)));
        assert_eq!(out, (0..20).collect::<Vec<_>>());
        assert_eq!(most.get(), 4);
        let none: Vec<std::future::Ready<u8>> = Vec::new();
        assert!(r.block_on(together(4, none)).is_empty());
    }
}
