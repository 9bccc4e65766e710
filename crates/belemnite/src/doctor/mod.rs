//! `belemnite doctor`: looks at hosts for what costs an OSD speed or safety, and says how to change it.
//!
//! [`gather`] runs a shell script here or over ssh; all else is pure: the crate `doctor` makes facts and findings of its
//! output, [`matrix`] findings about the network.
//!
//! Exit status: 0 without a warning, 4 with one, 1 if nothing could be looked at.

mod gather;
mod matrix;

use crate::cli::Ended;
use ::doctor::{Facts, Finding, HostReport, Severity};
use matrix::Link;
use serde_json::{Value, json};
use std::path::Path;

type Error = Box<dyn std::error::Error>;

/// Most hosts of a run.
const HOSTS_MAX: usize = 1024;
/// Difference of a host's clock from this one's in seconds that is reported. The time of the script's answer counts in.
const CLOCK_MAX: f64 = 0.5;

/// `belemnite doctor`
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Look at these hosts over ssh, and at the network between them: ssh targets with commas between them, or a file
    /// with one at the beginning of each line
    #[arg(long, value_name = "TARGETS|FILE")]
    hosts: Option<String>,
    /// The ssh program with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes -o ConnectTimeout=10")]
    ssh: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The targets in a list or in a file's text.
fn targets(text: &str) -> Result<Vec<String>, Error> {
    let lines = text.lines().map(str::trim).filter(|l| !l.starts_with(['#', '[']));
    let words = lines.filter_map(|l| l.split_whitespace().next());
    let mut all: Vec<String> = words.flat_map(|w| w.split(',')).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|t| seen.insert(t.clone()));
    let is_target = |t: &str| matrix::is_plain(&t.replace('@', ""));
    match all.iter().find(|t| !is_target(t)) {
        Some(bad) => Err(format!("{bad}: not an ssh target").into()),
        None if all.is_empty() => Err("--hosts names no host".into()),
        None if all.len() > HOSTS_MAX => Err(format!("--hosts names more than {HOSTS_MAX} hosts").into()),
        None => Ok(all),
    }
}

fn report(host: &str, facts: Result<&Facts, &String>) -> HostReport {
    let (machine, findings, error) = match facts {
        Ok(f) => (::doctor::machine(f), ::doctor::findings(f), None),
        Err(e) => (String::new(), Vec::new(), Some(e.clone())),
    };
    HostReport { host: host.to_owned(), machine, findings, error }
}

/// Findings that compare hosts: clocks, and versions of the program. `offsets` are their clocks minus this one's, in
/// seconds.
fn compared(facts: &[Option<&Facts>], offsets: &[Option<f64>], at: usize) -> Vec<Finding> {
    let mut out = Vec::new();
    let version = |f: &Facts| f.command("version").lines().next().unwrap_or_default().to_owned();
    let known: Vec<String> = facts.iter().flatten().map(|f| version(f)).filter(|v| !v.is_empty()).collect();
    let times = |v: &String| known.iter().filter(|k| *k == v).count();
    let common = known.iter().max_by_key(|v| times(v));
    if let (Some(f), Some(common)) = (facts.get(at).copied().flatten(), common)
        && !version(f).is_empty()
        && version(f) != *common
    {
        out.push(Finding::note(
            "versions",
            format!("{}, most hosts have {common}", version(f)),
            "features wait until all OSDs have them",
            "install the same package on all hosts",
        ));
    }
    if let Some(off) = offsets.get(at).copied().flatten().filter(|o| o.abs() > CLOCK_MAX) {
        out.push(Finding::warn(
            "clock",
            format!("it is {off:+.1} s from the clock of this host"),
            "monitors and OSDs refuse tickets of other hosts",
            "run chrony on all hosts",
        ));
    }
    out
}

/// The reports of hosts, and the links between them.
struct Seen {
    reports: Vec<HostReport>,
    links: Vec<Link>,
}

impl Seen {
    fn names(&self) -> Vec<String> {
        self.reports.iter().map(|r| r.host.clone()).collect()
    }

    fn json(&self) -> Value {
        let hosts: Vec<Value> = self.reports.iter().map(HostReport::json).collect();
        json!({ "hosts": hosts, "network": matrix::json(&self.links, &self.names()) })
    }

    fn text(&self) -> String {
        let mut out: String = self.reports.iter().map(HostReport::text).collect();
        if !self.links.is_empty() {
            out += &matrix::table(&self.links, &self.names());
        }
        out
    }

    fn has_warning(&self) -> bool {
        self.reports.iter().any(|r| r.worst() == Severity::Warning)
    }
}

/// Looks at this host.
async fn this_host() -> Seen {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let gathered = gather::here(&format!("{}echo {build} | say build\n", ::doctor::script())).await;
    let facts = gathered.map(|g| Facts::parse(&g.output));
    let name = facts.as_ref().map_or("this host", |f| f.command("name")).to_owned();
    Seen { reports: vec![report(&name, facts.as_ref())], links: Vec::new() }
}

/// Looks at hosts over ssh.
async fn hosts(ssh: &str, targets: &[String]) -> Seen {
    let script = format!("{}echo \"$SSH_CONNECTION\" | say ssh\n", ::doctor::script());
    let all = gather::each(ssh, targets.iter().map(|t| (t.clone(), script.clone())).collect()).await;
    let facts: Vec<Result<Facts, String>> =
        all.iter().map(|g| g.as_ref().map(|g| Facts::parse(&g.output)).map_err(Clone::clone)).collect();
    let known: Vec<Option<&Facts>> = facts.iter().map(|f| f.as_ref().ok()).collect();
    let offsets: Vec<Option<f64>> =
        (known.iter().zip(&all)).map(|(f, g)| Some(f.as_ref()?.number("/cmd/date")? - g.as_ref().ok()?.wall)).collect();
    let mut reports: Vec<HostReport> = (targets.iter().zip(&facts)).map(|(t, f)| report(t, f.as_ref())).collect();
    for (at, r) in reports.iter_mut().enumerate() {
        r.findings.extend(compared(&known, &offsets, at));
    }
    let addresses: Vec<Option<String>> =
        targets.iter().zip(&known).map(|(t, f)| f.map(|f| matrix::address(t, f))).collect();
    let others = |from: usize| -> Vec<(usize, String)> {
        let peers = matrix::peers(from, targets.len());
        peers.filter_map(|to| Some((to, addresses.get(to)?.clone()?))).collect()
    };
    let senders: Vec<usize> = (0..targets.len()).filter(|i| known.get(*i).is_some_and(Option::is_some)).collect();
    let senders: Vec<usize> = senders.into_iter().filter(|i| !others(*i).is_empty()).collect();
    let scripts = senders.iter().filter_map(|i| {
        let facts = known.get(*i).copied().flatten()?;
        Some((targets.get(*i)?.clone(), matrix::script(facts, &others(*i))))
    });
    let pings = gather::each(ssh, scripts.collect()).await;
    let mut links = Vec::new();
    for (from, g) in senders.iter().zip(&pings) {
        let Ok(g) = g else { continue };
        let found = matrix::links(*from, &others(*from), &Facts::parse(&g.output));
        if let Some(r) = reports.get_mut(*from) {
            r.findings.extend(matrix::findings(&found, targets));
        }
        links.extend(found);
    }
    Seen { reports, links }
}

/// The report about this host as JSON, for `belemnite report`.
pub(crate) async fn this_host_json() -> Value {
    this_host().await.json()
}

/// `belemnite doctor`
///
/// # Errors
/// [`Ended`] with status 4 if there is a warning; the targets cannot be read.
pub(crate) async fn run(a: DoctorArgs) -> Result<(), Error> {
    let seen = match &a.hosts {
        None => this_host().await,
        Some(h) if Path::new(h).is_file() => {
            let text = std::fs::read_to_string(h).map_err(|e| format!("{h}: {e}"))?;
            hosts(&a.ssh, &targets(&text)?).await
        }
        Some(h) => hosts(&a.ssh, &targets(h)?).await,
    };
    if seen.reports.iter().all(|r| r.error.is_some()) {
        let why: Vec<String> = seen.reports.iter().filter_map(|r| r.error.clone()).collect();
        return Err(why.join("; ").into());
    }
    let text = if a.json { serde_json::to_string_pretty(&seen.json())? } else { seen.text() };
    crate::cli::operate::print(&text);
    if seen.has_warning() { Err(Ended::warned().into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_come_from_lists_and_inventories() {
        assert_eq!(targets("a,root@b.example,a").unwrap(), ["a", "root@b.example"]);
        assert_eq!(targets("# hosts\n[osds]\na ansible_host=1\n  b # two\n\n").unwrap(), ["a", "b"]);
        for bad in ["", "-oProxyCommand=x", "a;b", "$(x)"] {
            assert!(targets(bad).is_err(), "{bad}");
        }
        assert!(targets(&(0..2000).map(|i| format!("h{i},")).collect::<String>()).is_err());
    }

    #[test]
    fn hosts_are_compared() {
        let of = |v: &str| Facts::parse(format!("/cmd/version:belemnite {v}\n").as_bytes());
        let (a, b, c, none) = (of("0.2"), of("0.2"), of("0.1"), Facts::default());
        let facts = [Some(&a), Some(&b), Some(&c), Some(&none), None];
        let offsets = [Some(-0.1), Some(7.0), None, None, None];
        let what = |at: usize| compared(&facts, &offsets, at).into_iter().map(|f| f.what).collect::<Vec<_>>();
        assert_eq!(what(0), Vec::<String>::new());
        assert_eq!(what(1), ["it is +7.0 s from the clock of this host"]);
        assert_eq!(what(2), ["belemnite 0.1, most hosts have belemnite 0.2"]);
        assert_eq!((what(3).len(), what(4).len()), (0, 0));
    }

    /// `ssh` of this test is a shell of this machine: the first host answers, the second does not.
    #[test]
    fn a_host_that_does_not_answer_is_named() {
        let ssh = std::env::temp_dir().join(format!("belemnite-doctor-ssh-{}", std::process::id()));
        let text = "case $1 in *good) exec sh -s;; esac; echo no route >&2; exit 255\n";
        std::fs::write(&ssh, text).unwrap();
        let command = format!("sh {}", ssh.display());
        let seen = reactor::runtime::run_here(|_, _| async move {
            hosts(&command, &["root@good".to_owned(), "bad".to_owned()]).await
        })
        .unwrap();
        std::fs::remove_file(&ssh).unwrap();
        assert_eq!(seen.reports[0].error, None);
        assert!(seen.reports[0].machine.starts_with("Linux "), "{}", seen.reports[0].machine);
        assert!(seen.reports[1].error.as_ref().unwrap().contains("no route"), "{:?}", seen.reports[1]);
        assert!(seen.text().contains("bad") && seen.json()["hosts"][1]["error"].is_string());
    }
}
