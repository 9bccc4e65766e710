//! A running cluster: its daemons, what happens to them, and what an operator asks of them.
//!
//! One loop owns the description and the daemons. Work that waits for the monitor runs in tasks, which report back to the
//! loop. Invariants:
//!  1. At most one change of the description is under way.
//!  2. An OSD that the monitor's map does not have any more is not started, and not registered again.
//!  3. The description is durable before the loop acts on it.
//!
//! `keys` has the keys of the daemons: those that the monitor has go to their keyrings.
//!
//! Tests: `tests/does_up_keep_a_cluster_through_a_week.rs` (2,
//! `osds_are_stopped_removed_added_replaced_and_purged_under_up`), `interop/tests/osd_add.sh` (3).

mod keys;

use super::control::{Reply, Request, Seen, SeenDaemon};
use super::dir::{self, Change as Note};
use super::foreign::Foreign;
use super::layout::Layout;
use super::make::{self, Permit};
use super::options;
use super::plan::{self, Plan, S3Plan};
use super::supervisor::{self, Change, Daemon, From, Program, Spec};
use super::{Error, bring_up, daemon_spec, files, gateway, manager, report_when_up, say};
use std::collections::BTreeSet;
use std::future::Future;
use std::task::Poll;
use tokio::sync::mpsc;

/// Programs of Ceph that the cluster uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    pub(crate) etcd: Option<Foreign>,
    pub(crate) mds: Option<Foreign>,
    pub(crate) mgr: Option<Foreign>,
}

/// Report of a task to the loop.
enum Happened {
    /// OSDs were registered. The description after that, and the OSDs that the map does not have any more.
    Registered(Box<Result<(Plan, Vec<u32>), String>>),
    /// All OSDs are up, or why that cannot be seen.
    Reported(Result<(), String>),
    /// The gateway answers, or why not.
    GatewayUp(Result<(), String>),
    /// The OSD with this id and uuid is not in the map any more.
    Purged(u32, String),
    /// The monitor's key of an OSD that does not start.
    Key(u32, String),
    /// The monitor's keys of Ceph's daemons are in their keyrings; the gateway with its key.
    Keys(Option<S3Plan>),
    /// The monitors refuse the keys of these daemons.
    Refused(Vec<String>),
    /// Nothing was learned.
    Looked,
    /// The question about a daemon has this answer.
    Answered(String, Box<Happened>),
}

/// How the loop goes on.
enum Next {
    Serve,
    End(Result<(), Error>),
}

/// A client that waits until a daemon is down.
struct Waiting {
    daemon: String,
    /// Start the daemon then.
    again: bool,
    reply: Option<Reply>,
}

/// The running cluster.
pub(crate) struct Cluster {
    /// Name of this run of `up`.
    run: String,
    plan: Plan,
    layout: Layout,
    programs: Programs,
    program: Program,
    daemons: Vec<Daemon>,
    happened: (mpsc::UnboundedSender<Happened>, mpsc::UnboundedReceiver<Happened>),
    waiting: Vec<Waiting>,
    /// OSDs that the monitor's map does not have any more.
    purged: BTreeSet<u32>,
    /// Daemons about which the monitor is asked.
    asked: BTreeSet<String>,
    /// Daemons whose keys the monitors refused lately.
    rekeyed: keys::Rekeyed,
    /// OSDs were registered and all daemons started.
    ready: bool,
    /// A registration is under way; the answers to give when it is done.
    registering: Option<Vec<(Reply, String)>>,
}

impl Cluster {
    pub(crate) fn new(plan: Plan, layout: Layout, programs: Programs, program: Program) -> Self {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self {
            run: format!("{}-{}", std::process::id(), since.as_nanos()),
            plan,
            layout,
            programs,
            program,
            daemons: Vec::new(),
            happened: mpsc::unbounded_channel(),
            waiting: Vec::new(),
            purged: BTreeSet::new(),
            asked: BTreeSet::new(),
            rekeyed: keys::Rekeyed::default(),
            ready: false,
            registering: None,
        }
    }

    fn add(&mut self, spec: Spec) -> &mut Daemon {
        self.daemons.push(Daemon::new(spec, self.layout.clone(), self.program.clone()));
        let last = self.daemons.len() - 1;
        &mut self.daemons[last]
    }

    /// Starts the members of etcd, which a new state of several monitors needs.
    ///
    /// # Errors
    /// A program cannot be started.
    pub(crate) fn start_etcd(&mut self) -> Result<(), Error> {
        let Some(program) = self.programs.etcd.clone() else { return Ok(()) };
        for spec in super::etcd_specs(&self.plan, &self.layout, &program) {
            self.add(spec).start()?;
        }
        Ok(())
    }

    /// Runs the daemons until `stop` completes, a client asks for the end, or the cluster cannot be brought up.
    ///
    /// # Errors
    /// The monitor or the registration of OSDs fails at the start. All daemons are stopped then, too.
    pub(crate) async fn run(
        &mut self,
        requests: &mut mpsc::Receiver<(Request, Reply)>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        for i in 0..self.plan.mons {
            let spec = daemon_spec("mon", &plan::mon_name(i), &self.layout);
            let name = spec.name.clone();
            let started = self.add(spec).start();
            told(&name, started, &self.program);
        }
        for id in self.plan.osds.iter().map(|o| o.id).collect::<Vec<_>>() {
            self.add(daemon_spec("osd", &id.to_string(), &self.layout));
        }
        if let Some(program) = self.programs.mgr.clone() {
            self.add(manager::spec(&self.plan, &self.layout, &program));
        }
        if let Some((f, program)) = self.plan.fs.clone().zip(self.programs.mds.clone()) {
            for spec in files::specs(&self.plan, &f, &self.layout, &program) {
                self.add(spec);
            }
        }
        self.register(Vec::new());
        tokio::pin!(stop);
        loop {
            let next = tokio::select! {
                () = &mut stop => break Ok(()),
                (i, change) = any_change(&mut self.daemons) => self.changed(i, change),
                Some(h) = self.happened.1.recv() => self.happened(h).await,
                Some((r, reply)) = requests.recv() => match r {
                    Request::Shutdown => {
                        // A client that is gone needs no answer.
                        let _ = reply.send(Ok("stopping".into()));
                        break Ok(());
                    }
                    r => { self.asked_for(r, reply).await; Next::Serve }
                },
            };
            if let Next::End(r) = next {
                break r;
            }
        }
    }

    /// Stops all daemons.
    pub(crate) async fn stop_all(&mut self) {
        say("stopping");
        // An MDS takes seconds to stop, so all are asked first.
        for d in self.daemons.iter_mut().rev().filter(|d| !d.name().starts_with("etcd.")) {
            d.ask_foreign_to_stop().await;
        }
        // OSDs first: they report their shutdown to the monitor.
        for d in self.daemons.iter_mut().rev() {
            if !d.stop().await {
                say(format_args!("{} did not stop in time and was killed", d.name()));
            }
        }
        say("stopped");
    }

    /// Begins a registration of OSDs; `replies` are given when it is done.
    fn register(&mut self, replies: Vec<(Reply, String)>) {
        self.registering = Some(replies);
        let (mut plan, layout, programs) = (self.plan.clone(), self.layout.clone(), self.programs.clone());
        self.task(async move {
            let done = bring_up::bring_up(&mut plan, &layout, &programs).await;
            Happened::Registered(Box::new(done.map(|gone| (plan, gone)).map_err(|e| e.to_string())))
        });
    }

    fn task(&self, f: impl Future<Output = Happened> + 'static) {
        let tell = self.happened.0.clone();
        tokio::task::spawn_local(async move {
            let h = f.await;
            // The loop may have ended.
            let _ = tell.send(h);
        });
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.daemons.iter().position(|d| d.name() == name)
    }

    fn start(&mut self, i: usize) {
        let name = self.daemons[i].name().to_owned();
        let started = self.daemons[i].start();
        told(&name, started, &self.program);
        if self.ready {
            self.look_after(&name);
        }
    }

    fn changed(&mut self, i: usize, c: Change) -> Next {
        let name = self.daemons[i].name().to_owned();
        match c {
            Change::Ended { status, reason, restart_in } => {
                let how = supervisor::how(status, reason.as_deref());
                let log = self.daemons[i].log();
                if !self.ready && self.plan.mons == 1 && name.starts_with("mon.") {
                    let text = format!("the monitor did not start ({how}); its log is {}", log.display());
                    return Next::End(Err(text.into()));
                }
                if restart_in.is_zero() {
                    say(format_args!("{name} ended ({how}); starting it again"));
                } else {
                    let log = log.display();
                    say(format_args!("{name} ended ({how}); starting it again in {restart_in:?}; its log is {log}"));
                }
                self.look_after(&name);
            }
            Change::Due => self.start(i),
            Change::Stopped { in_time } => self.stopped(i, &name, in_time),
        }
        Next::Serve
    }

    fn stopped(&mut self, i: usize, name: &str, in_time: bool) {
        let how = if in_time { "stopped" } else { "did not stop in time and was killed" };
        let (mine, others) = self.waiting.drain(..).partition(|w| w.daemon == name);
        self.waiting = others;
        let mine: Vec<Waiting> = mine;
        let again = mine.iter().any(|w| w.again);
        say(format_args!("{name} {how}"));
        if again {
            self.start(i);
        }
        for w in mine {
            let text = if again { format!("{name} was restarted") } else { format!("{name} {how}") };
            if let Some(r) = w.reply {
                // A client that is gone needs no answer.
                let _ = r.send(Ok(text));
            }
        }
    }

    async fn happened(&mut self, h: Happened) -> Next {
        let (h, about) = match h {
            Happened::Answered(name, h) => {
                self.asked.remove(&name);
                (*h, Some(name))
            }
            h => (h, None),
        };
        match h {
            Happened::Registered(r) => return self.registered(*r),
            Happened::Reported(Err(e)) => say(format_args!("cannot get the status of the cluster: {e}")),
            Happened::Reported(Ok(())) => self.start_gateway(),
            Happened::GatewayUp(Err(e)) => say(format_args!("the gateway is not ready: {e}")),
            Happened::GatewayUp(Ok(())) => {}
            // An answer holds no other one.
            Happened::Answered(..) | Happened::Looked => {}
            // It may have been made anew meanwhile.
            Happened::Purged(id, uuid) if self.plan.osds.iter().any(|o| o.id == id && o.uuid == uuid) => self.purge(id),
            Happened::Purged(..) => {}
            Happened::Key(id, key) => self.take_up_key(id, key),
            Happened::Keys(s3) => {
                self.take_up_gateway(s3);
                self.start_with_key(about).await;
            }
            Happened::Refused(names) => self.hand_keys_over(names),
        }
        Next::Serve
    }

    fn purge(&mut self, id: u32) {
        let name = format!("osd.{id}");
        let Some(i) = self.index(&name) else { return };
        self.purged.insert(id);
        self.daemons[i].give_up();
        say(format_args!(
            "{name} is not in the monitor's map (`ceph osd purge` or `destroy`, or the monitor's state is an old backup); it \
             is not started. `belemnite osd remove {id}` removes its files, `belemnite osd replace {id}` makes it anew"
        ));
    }

    fn registered(&mut self, r: Result<(Plan, Vec<u32>), String>) -> Next {
        let replies = self.registering.take().unwrap_or_default();
        let (plan, gone) = match r {
            Ok(r) => r,
            Err(e) if !self.ready => return Next::End(Err(e.into())),
            Err(e) => {
                for (reply, _) in replies {
                    let _ = reply.send(Err(e.clone()));
                }
                return Next::Serve;
            }
        };
        let fresh = |have: &Plan, id: u32| have.osds.iter().any(|o| o.id == id && !o.registered);
        let made: Vec<u32> = plan.osds.iter().map(|o| o.id).filter(|id| fresh(&self.plan, *id)).collect();
        self.plan = plan;
        self.purged.clear();
        for id in gone {
            self.purge(id);
        }
        for i in 0..self.daemons.len() {
            let name = self.daemons[i].name();
            let id = name.strip_prefix("osd.").and_then(|n| n.parse::<u32>().ok());
            let first = !self.ready && !name.starts_with("mon.") && !name.starts_with("etcd.");
            let wanted = first || id.is_some_and(|id| made.contains(&id));
            if wanted && self.daemons[i].is_stopped() && id.is_none_or(|id| !self.purged.contains(&id)) {
                self.start(i);
            }
        }
        for (reply, text) in replies {
            let _ = reply.send(Ok(text));
        }
        if !std::mem::replace(&mut self.ready, true) {
            self.watch_keys();
            let (mut plan, layout, purged) = (self.plan.clone(), self.layout.clone(), self.purged.clone());
            plan.osds.retain(|o| !purged.contains(&o.id));
            self.task(
                async move { Happened::Reported(report_when_up(&plan, &layout).await.map_err(|e| e.to_string())) },
            );
        }
        Next::Serve
    }

    /// Starts the gateway if the cluster has one. It makes its pools when it starts, which needs OSDs.
    fn start_gateway(&mut self) {
        let Some(s) = self.plan.s3.clone() else { return };
        let started = gateway::prepare(&self.plan, &s, &self.layout).and_then(|args| {
            self.add(Spec { name: gateway::DAEMON.into(), args, program: None }).start()?;
            Ok(())
        });
        if let Err(e) = started {
            return say(format_args!("the gateway cannot be started: {e}"));
        }
        let (plan, layout) = (self.plan.clone(), self.layout.clone());
        self.task(
            async move { Happened::GatewayUp(gateway::report(&plan, &s, &layout).await.map_err(|e| e.to_string())) },
        );
    }

    async fn asked_for(&mut self, r: Request, reply: Reply) {
        let answer = match r {
            Request::Daemons => self.seen(),
            Request::Shutdown => Ok("stopping".into()),
            Request::Stop { daemon } => return self.stop_one(&daemon, false, reply).await,
            Request::Restart { daemon } => return self.stop_one(&daemon, true, reply).await,
            Request::Start { daemon } => self.start_one(&daemon),
            Request::Erase { osd } => self.erase(osd),
            Request::Make { osd, device, size, force } => match self.make(osd, device, size, force) {
                Ok(text) => return self.register(vec![(reply, text)]),
                Err(e) => Err(e.to_string()),
            },
        };
        // A client that is gone needs no answer.
        let _ = reply.send(answer);
    }

    fn seen(&self) -> Result<String, String> {
        let one = |d: &Daemon| {
            let id = d.name().strip_prefix("osd.").and_then(|n| n.parse().ok());
            let purged = d.pid().is_none() && id.is_some_and(|id| self.purged.contains(&id));
            let state = if purged { "purged" } else { d.state(self.registering.is_some()) };
            SeenDaemon { name: d.name().to_owned(), pid: d.pid(), state: state.into() }
        };
        let seen = Seen {
            up: self.run.clone(),
            ready: self.ready,
            program: self.program.path().to_owned(),
            replaced: self.program.is_replaced(),
            daemons: self.daemons.iter().map(one).collect(),
        };
        serde_json::to_string_pretty(&seen).map_err(|e| e.to_string())
    }

    fn find(&self, name: &str) -> Result<usize, String> {
        if !self.ready {
            return Err("the cluster is still starting".into());
        }
        let all = || self.daemons.iter().map(Daemon::name).collect::<Vec<_>>().join(", ");
        self.index(name).ok_or_else(|| format!("no daemon {name} here; there are {}", all()))
    }

    async fn stop_one(&mut self, name: &str, again: bool, reply: Reply) {
        let i = match self.find(name) {
            Ok(i) => i,
            Err(e) => return drop(reply.send(Err(e))),
        };
        if self.daemons[i].begin_stop().await {
            return self.waiting.push(Waiting { daemon: name.to_owned(), again, reply: Some(reply) });
        }
        let answer = if again { self.start_one(name) } else { Ok(format!("{name} is down")) };
        let _ = reply.send(answer);
    }

    fn start_one(&mut self, name: &str) -> Result<String, String> {
        let i = self.find(name)?;
        if let Some(pid) = self.daemons[i].pid() {
            return Ok(format!("{name} runs already (process {pid})"));
        }
        let id = name.strip_prefix("osd.").and_then(|n| n.parse::<u32>().ok());
        if let Some(id) = id.filter(|id| self.purged.contains(id)) {
            return Err(format!("{name} is not in the monitor's map; `belemnite osd replace {id}` makes it anew"));
        }
        let started = self.daemons[i].start();
        let text = match &started {
            Ok(_) => Ok(format!("{name} was started")),
            Err(e) => Err(format!("{name} cannot be started: {e}; trying again")),
        };
        told(name, started, &self.program);
        self.look_after(name);
        text
    }

    /// Checks that the description may change now.
    fn may_change(&self) -> Result<(), String> {
        match &self.registering {
            _ if !self.ready => Err("the cluster is still starting".into()),
            Some(_) => Err("another OSD is being made; try again when that is done".into()),
            None => Ok(()),
        }
    }

    /// Forgets an OSD, and removes its directory. [`super::control`] has checked that the map does not have it.
    fn erase(&mut self, id: u32) -> Result<String, String> {
        self.may_change()?;
        let name = format!("osd.{id}");
        let i = self.find(&name)?;
        if !self.daemons[i].is_stopped() {
            return Err(format!("{name} is not stopped"));
        }
        let mut plan = self.plan.clone();
        let device = plan.osds.iter().find(|o| o.id == id).and_then(|o| o.device.clone());
        plan.osds.retain(|o| o.id != id);
        let done = || -> Result<(), Error> {
            // The description comes last: until then the command is to be repeated.
            make::remove_dir(&self.layout.data(&name))?;
            make::write_conf(&plan, &self.layout)?;
            dir::store(&plan, &self.layout)
        };
        done().map_err(|e| e.to_string())?;
        self.plan = plan;
        self.purged.remove(&id);
        self.daemons.remove(i);
        let kept = device.map(|d| format!("; the store on {} stays until something overwrites it", d.display()));
        let text = format!("{name} was removed{}", kept.unwrap_or_default());
        say(&text);
        Ok(text)
    }

    /// Makes the store of a new or destroyed OSD. [`super::control`] has checked that the map shows it so.
    fn make(
        &mut self,
        id: Option<u32>,
        device: Option<std::path::PathBuf>,
        size: Option<u64>,
        force: bool,
    ) -> Result<String, Error> {
        self.may_change()?;
        if let Some(id) = id {
            let i = self.find(&format!("osd.{id}"))?;
            if !self.daemons[i].is_stopped() {
                return Err(format!("osd.{id} is not stopped").into());
            }
        }
        let before = self.plan.clone();
        let (plan, made) = options::with_osd(&self.plan, id, device, size, &self.layout)?;
        let note = Note { creates: false, makes: vec![made], plan };
        let permit = Permit { force, unfinished: None, given_up: id };
        make::check(&note, &self.layout, &permit)?;
        note.begin(&self.layout)?;
        if let Err(e) = make::carry_out(&note, Some(&before), &self.layout, &permit) {
            // A store that was given up is gone, so its replacement is finished by the next attempt or start.
            if id.is_none() {
                make::remove_dir(&self.layout.data(&format!("osd.{made}")))?;
                make::write_conf(&before, &self.layout)?;
                dir::forget(&self.layout)?;
            }
            return Err(e);
        }
        self.plan = note.plan;
        if id.is_none() {
            let spec = daemon_spec("osd", &made.to_string(), &self.layout);
            self.add(spec);
        }
        Ok(format!("osd.{made} was made"))
    }
}

/// Tells of a start that differs from the usual.
fn told(name: &str, started: std::io::Result<From>, program: &Program) {
    let path = program.path().display();
    match started {
        Ok(From::Same) => {}
        Ok(From::Replaced) => say(format_args!("{name} starts with the new program file {path}")),
        Ok(From::Kept) => {
            say(format_args!("{name} starts with the program that `up` runs, because {path} is gone or cannot be run"))
        }
        Err(e) => say(format_args!("{name} cannot be started: {e}")),
    }
}

/// Waits for the first change of any daemon.
async fn any_change(daemons: &mut [Daemon]) -> (usize, Change) {
    let mut waits: Vec<_> = daemons.iter_mut().map(|d| Box::pin(d.wait())).collect();
    std::future::poll_fn(|cx| {
        for (i, w) in waits.iter_mut().enumerate() {
            if let Poll::Ready(c) = w.as_mut().poll(cx) {
                return Poll::Ready((i, c));
            }
        }
        Poll::Pending
    })
    .await
}
