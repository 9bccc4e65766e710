//! One measurement: a load on a pool, with process, machine and cluster statistics.

use super::deploy::Cluster;
use super::observe::{self, Adder, Sample, Watch};
use super::remote::At;
use super::services::{self, Served};
use super::system::System;
use super::tool::{self, Target};
use super::{ExecError, Tools, disturb, limits::Group};
use crate::host::command::Output;
use crate::host::control;
use crate::plan::{Cell, Plan, keys};
use crate::result::{CellResult, Measured, OsdOps, Process};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit for the PGs of a new pool to become clean.
const POOL_LIMIT: Duration = Duration::from_secs(300);
/// Pause after a pool was removed, before the next measurement.
const SETTLE: Duration = Duration::from_millis(500);

/// A pool of a cluster, with the data written to it.
pub(super) struct Pool {
    /// Name of the pool for objects.
    objects: String,
    /// Name of the pool for image headers, and of the image data pool if there is one.
    images: (String, Option<String>),
    names: Vec<String>,
    filled: BTreeSet<String>,
    image_count: BTreeMap<String, u64>,
    /// S3 and files, once a load has needed them.
    served: Served,
}

fn command(c: &Cluster, v: &Value) -> Result<(), ExecError> {
    Ok(c.control.run(v, &[]).map(|_| ())?)
}

/// Makes a pool of copies.
pub(super) fn copied_pool(c: &Cluster, copies: u64, name: &str, pg_num: u64) -> Result<(), ExecError> {
    // Ceph answers a name that begins with a dot with success, and makes no pool, unless it is confirmed.
    let create = json!({"prefix": "osd pool create", "pool": name, "pg_num": pg_num, "pgp_num": pg_num,
        "yes_i_really_mean_it": true});
    c.made.pool(&c.control, name, &create)?;
    let size = json!({"prefix": "osd pool set", "pool": name, "var": "size", "val": copies.to_string(), "yes_i_really_mean_it": true});
    command(c, &size)
}

/// Makes a pool with the redundancy of a cell: copies, or coded with overwrites.
pub(super) fn data_pool(c: &Cluster, cell: &Cell, name: &str, pg_num: u64) -> Result<(), ExecError> {
    let Some((k, m)) = tool::shards(cell) else {
        return copied_pool(c, cell.pool.text("redundancy").parse().unwrap_or(3), name, pg_num);
    };
    let profile = c.made.name(&format!("{k}-{m}"));
    let domain = if cell.cluster.int("nodes") >= u64::from(k + m) { "host" } else { "osd" };
    let words = [format!("k={k}"), format!("m={m}"), format!("crush-failure-domain={domain}")];
    let set = json!({"prefix": "osd erasure-code-profile set", "name": profile, "profile": words});
    c.made.profile(&c.control, &profile, &set)?;
    let create = json!({"prefix": "osd pool create", "pool": name, "pg_num": pg_num, "pgp_num": pg_num,
        "pool_type": "erasure", "erasure_code_profile": profile});
    c.made.pool(&c.control, name, &create)?;
    command(c, &json!({"prefix": "osd pool set", "pool": name, "var": "allow_ec_overwrites", "val": "true"}))
}

/// Names the application of a pool.
pub(super) fn application(c: &Cluster, name: &str, application: &str) -> Result<(), ExecError> {
    command(c, &json!({"prefix": "osd pool application enable", "pool": name, "app": application}))
}

/// Waits until at least `pg_num` PGs exist and all are clean. The floor has no PGs.
pub(super) fn wait_clean(t: &Tools<'_>, c: &Cluster, pg_num: u64) -> Result<(), ExecError> {
    if c.system == System::Floor {
        return Ok(());
    }
    Ok(c.control.wait("the pool's PGs to be clean", POOL_LIMIT, t.cancel, |s| s.is_clean(pg_num))?)
}

/// Makes the pool of a cell. `number` makes its name unique within the cluster.
pub(super) fn make_pool(t: &Tools<'_>, c: &Cluster, cell: &Cell, number: usize) -> Result<Pool, ExecError> {
    let (pg_num, name) = (cell.pool.int("pg_num"), c.made.name(&number.to_string()));
    let mut names = vec![name.clone()];
    let mut images = (name.clone(), None);
    let mut objects = name.clone();
    if tool::shards(cell).is_some() {
        let data = format!("{name}data");
        data_pool(c, cell, &data, pg_num)?;
        copied_pool(c, c.osds.min(3), &name, 16)?;
        names.push(data.clone());
        objects.clone_from(&data);
        images.1 = Some(data);
    } else {
        data_pool(c, cell, &name, pg_num)?;
    }
    for n in &names {
        application(c, n, "rbd")?;
    }
    wait_clean(t, c, pg_num)?;
    let served = Served::default();
    Ok(Pool { objects, images, names, filled: BTreeSet::new(), image_count: BTreeMap::new(), served })
}

/// Removes a pool and the services on it.
pub(super) fn remove_pool(t: &Tools<'_>, c: &mut Cluster, mut p: Pool) -> Result<(), ExecError> {
    p.names.extend(p.served.stop(c)?);
    c.made.remove(&c.control, &p.names)?;
    if !c.made.is_theirs() {
        let gone = |s: &control::Status| s.0["pgmap"]["num_pgs"].as_u64().unwrap_or(0) < 64;
        c.control.wait("the pool to be removed", POOL_LIMIT, t.cancel, gone)?;
    }
    std::thread::sleep(SETTLE);
    Ok(())
}

/// Counters of all daemons with an admin socket.
fn counters(c: &Cluster) -> Map<String, Value> {
    let of = |name: &str| control::ask_daemon(&c.socket(name)?, "perf dump").ok();
    c.processes().into_iter().filter_map(|(n, _)| of(&n).map(|v| (n, v))).collect()
}

/// Operations of each OSD between two readings of its counters.
fn osd_ops(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<OsdOps> {
    let mut out = Vec::new();
    for (name, b) in after {
        let Some(osd) = name.strip_prefix("osd.").and_then(|n| n.parse().ok()) else { continue };
        let a = before.get(name).unwrap_or(&Value::Null);
        let diff = |path: [&str; 2]| {
            let at = |v: &Value| v["osd"][path[0]].get(path[1]).and_then(Value::as_f64);
            at(b).map(|x| x - at(a).unwrap_or(0.0))
        };
        let plain = |k: &str| b["osd"][k].as_f64().unwrap_or(0.0) - a["osd"][k].as_f64().unwrap_or(0.0);
        let (count, sum) = (diff(["op_latency", "avgcount"]), diff(["op_latency", "sum"]));
        let mean_us = count.zip(sum).filter(|(n, _)| *n > 0.0).map_or(0.0, |(n, s)| s / n * 1e6);
        out.push(OsdOps { osd, ops: plain("op"), mean_us });
    }
    out
}

/// Context of one measurement.
pub(super) struct Around<'a> {
    pub(super) t: &'a Tools<'a>,
    pub(super) plan: &'a Plan,
    /// Folder of the cell.
    pub(super) dir: &'a Path,
    /// `MAJOR:MINOR` of the disk that holds the stores.
    pub(super) disk: String,
}

fn write(dir: &Path, name: &str, text: &str) -> Result<(), ExecError> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(|source| ExecError::Io { path, source })
}

impl Around<'_> {
    /// Prefills, warms up, measures, and repairs the cluster after disturbances.
    pub(super) fn measure(&self, c: &mut Cluster, pool: &mut Pool, cell: &Cell) -> Result<CellResult, ExecError> {
        pool.served.prepare(self.t, c, cell)?;
        if !cell.uses_files() || !cell.load.text("directory").is_empty() {
            return self.with(c, pool, cell, &[]);
        }
        if tool::is_filled_apart(cell) && pool.filled.insert(tool::set_name(cell)) {
            // The files are made through a separate mount, so that the measured mount has none of them in its cache.
            let dirs = [pool.served.mount(self.t, c, 0)?];
            let conf = c.conf.clone();
            let filled = tool::prefill(self.t, cell, &self.target(&conf, pool, &dirs));
            Served::unmount(c);
            filled?;
        }
        // Clients that build are programs of several machines.
        let mounts = if cell.load.text("tool") == "build" { cell.load.int("clients") } else { 1 };
        let dirs: Result<Vec<PathBuf>, ExecError> = (0..mounts).map(|i| pool.served.mount(self.t, c, i)).collect();
        let r = dirs.and_then(|dirs| self.with(c, pool, cell, &dirs));
        Served::unmount(c);
        r
    }

    /// The target of a load that is not measured.
    fn target<'t>(&'t self, conf: &'t Path, pool: &'t Pool, mounts: &'t [PathBuf]) -> Target<'t> {
        Target {
            conf,
            pool: &pool.objects,
            data_pool: None,
            pids: &[],
            dir: None,
            seed: self.plan.head.int("seed"),
            gateway: pool.served.gateway.as_ref(),
            mounts,
        }
    }

    fn with(&self, c: &mut Cluster, pool: &mut Pool, cell: &Cell, mounts: &[PathBuf]) -> Result<CellResult, ExecError> {
        let t = self.t;
        let osds = c.processes();
        // The generator sees only the processes of this machine. If there are others, the CPU time of all is taken from
        // the samples.
        let here = osds.iter().all(|(_, p)| p.host.is_none());
        let pids: Vec<u32> = osds.iter().filter(|_| here).map(|(_, p)| p.pid).collect();
        let conf = c.conf.clone();
        let is_image = tool::set_name(cell).starts_with("images");
        let (objects, images, gateway) = (pool.objects.clone(), pool.images.clone(), pool.served.gateway.clone());
        let on = Target {
            conf: &conf,
            pool: if is_image { &images.0 } else { &objects },
            data_pool: images.1.as_deref(),
            pids: &pids,
            dir: Some(self.dir),
            seed: self.plan.head.int("seed"),
            gateway: gateway.as_ref(),
            mounts,
        };
        prepare(t, cell, &on, pool)?;
        wait_clean(t, c, 1)?;

        let every = Duration::from_secs_f64(self.plan.observe.number("every").clamp(0.1, 60.0));
        let before = if self.plan.observe.is("counters") { counters(c) } else { Map::new() };
        let slices: Vec<(u64, u64)> = c.groups.iter().map(Group::throttled).collect();
        let group = match cell.load.number("client_cores") {
            n if n > 0.0 => Some(Group::new(&format!("belemnite-lab-{}-client", t.port), n, None)?),
            _ => None,
        };
        let profile = if self.plan.observe.is("profile") { Some(self.profile(&osds)?) } else { None };
        let ranks = services::ranks_of(c);
        let sockets = ranks.iter().filter_map(|(name, rank)| Some((*rank, c.socket(name)?))).collect();
        let watch = Watch::start(osds.clone(), sockets, c.control.clone(), self.disk.clone(), every);
        let adder = watch.adder();
        let own = observe::children_cpu();
        let (ran, disturbed) = self.run_disturbed(c, cell, &on, &adder, group.as_ref());
        let own = observe::children_cpu() - own;
        let samples = watch.stop();
        if let Some(mut p) = profile {
            crate::host::command::stop(&mut p, Duration::from_secs(10));
        }
        let after = if self.plan.observe.is("counters") { counters(c) } else { Map::new() };
        if samples.iter().any(observe::is_full) {
            let text = "the cluster is full: a larger osd_size, or more room on the disk that holds the OSDs' files";
            return Err(ExecError::Plan(text.into()));
        }
        let (out, m) = ran?;
        self.write_raw(&out, &samples, &before, &after)?;

        let mut throttled: Vec<f64> = c.groups.iter().zip(&slices).map(|(g, b)| share(g, *b)).collect();
        throttled.resize(c.osds as usize, 0.0);
        let client = group.as_ref().map_or(0.0, |g| share(g, (0, 0)));
        let mut r = result(cell, &c.label, &m, &samples, own, &osds);
        r.ranks = observe::rank_rates(&samples);
        add_ranks(&mut r, &m);
        r.osds = if m.osds.is_empty() { osd_ops(&before, &after) } else { m.osds };
        r.disturbed = disturbed;
        limits(&mut r, cell, &throttled, client);
        let disturbances: Vec<_> = cell.disturbances(&self.plan.disturb).cloned().collect();
        if !disturbances.is_empty() {
            disturb::heal(t, c, &disturbances, &adder)?;
        }
        match c.ended() {
            Some(e) => Err(ExecError::Plan(e)),
            None => Ok(r),
        }
    }

    /// Runs the load, and disturbances beside it. The generator counts as a client process, in `group` if there is
    /// one.
    fn run_disturbed(
        &self,
        c: &mut Cluster,
        cell: &Cell,
        on: &Target<'_>,
        adder: &Adder,
        group: Option<&Group>,
    ) -> (Result<(Output, Measured), ExecError>, Vec<String>) {
        let t = self.t;
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            let begun = tool::begun(cell, on);
            // The data of images is what scrubs and splits are for.
            let pool = on.data_pool.unwrap_or(on.pool);
            let over = &over;
            let disturb = s.spawn(move || {
                disturb::run(t, c, cell, &self.plan.disturb, &disturb::Course { pool, adder, over, begun })
            });
            let ran = tool::measure(t, cell, on, |pid| {
                adder.add("client", At { pid, host: None });
                // A client that cannot be moved into the group is judged by its cores in use.
                if let Some(g) = group {
                    let _ = g.add(pid);
                }
            });
            over.store(true, Ordering::Relaxed);
            (ran, disturb.join().unwrap_or_default())
        })
    }

    /// Writes the output of the tool, the samples, and the counters before and after.
    fn write_raw(
        &self,
        out: &Output,
        samples: &[Sample],
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Result<(), ExecError> {
        write(self.dir, "tool.out", &out.out)?;
        write(self.dir, "tool.err", &out.err)?;
        write(self.dir, "samples.csv", &observe::csv(samples))?;
        write(self.dir, "states.csv", &observe::states_csv(samples))?;
        write(self.dir, "counters.json", &json!({"before": before, "after": after}).to_string())
    }

    fn profile(&self, osds: &[(String, At)]) -> Result<std::process::Child, ExecError> {
        let osds = osds.iter().filter(|(n, p)| n.starts_with("osd") && p.host.is_none());
        let pids: Vec<String> = osds.map(|(_, p)| p.pid.to_string()).collect();
        let out = self.dir.join("perf.data").display().to_string();
        let args = ["record", "-q", "-g", "-F", "199", "-o", &out, "-p", &pids.join(",")].map(String::from);
        Ok(crate::host::command::start("perf", &args, |_| ())?)
    }
}

/// Makes the images, objects or files that a load needs, and warms up.
fn prepare(t: &Tools<'_>, cell: &Cell, on: &Target<'_>, pool: &mut Pool) -> Result<(), ExecError> {
    let name = tool::set_name(cell);
    if name.starts_with("images") {
        // Images of different sizes share their names, so only one size exists at a time.
        tool::make_images(t, cell, on, pool.image_count.entry(name.clone()).or_default())?;
    }
    let fresh = Target { pids: &[], dir: None, ..*on };
    // A load that changes whole objects or files makes them itself.
    let own = !on.mounts.is_empty() || tool::is_steps(cell) && !tool::is_read_only(cell);
    let fills = cell.load.is("prefill") && !own;
    if fills && pool.filled.insert(format!("{name}-{}", cell.load.text("clients"))) {
        tool::prefill(t, cell, &fresh)?;
    }
    tool::warm_up(t, cell, &fresh)
}

/// Fraction of a group's CPU periods since `before` in which it was throttled.
fn share(g: &Group, before: (u64, u64)) -> f64 {
    let (periods, held) = g.throttled();
    let periods = periods.saturating_sub(before.0);
    if periods == 0 { 0.0 } else { held.saturating_sub(before.1) as f64 / periods as f64 }
}

/// Adds the CPU limits of the processes and their throttled fractions.
fn limits(r: &mut CellResult, cell: &Cell, throttled: &[f64], client: f64) {
    let per = cell.cluster.int("osds_per_device").max(1) as usize;
    for p in &mut r.processes {
        if p.name == "client" {
            (p.limit, p.throttled) = (cell.load.number("client_cores"), client);
        } else if let Some(id) = p.name.strip_prefix("osd.").and_then(|n| n.parse::<usize>().ok()) {
            p.limit = cell.cluster.number("cores_per_device") / per as f64;
            p.throttled = throttled.get(id / per).copied().unwrap_or(0.0);
        }
    }
}

/// Adds the finishing times, the rate of all requests to metadata servers, and the share of the busiest rank.
fn add_ranks(r: &mut CellResult, m: &Measured) {
    r.finishes.clone_from(&m.finishes);
    let sums = r.ranks.values().map(|s| s.iter().map(|(_, n)| n).sum::<f64>());
    let (all, busiest) = sums.fold((0.0, 0.0), |(all, most): (f64, f64), n| (all + n, most.max(n)));
    let looks = r.ranks.values().map(Vec::len).max().unwrap_or(0);
    if all > 0.0 {
        r.metrics.insert("mds_per_second".into(), all / looks as f64);
        r.metrics.insert("busiest_rank_percent".into(), busiest / all * 100.0);
    }
}

/// The values of all keys that a plan can vary.
fn params_of(cell: &Cell) -> BTreeMap<String, String> {
    let mut params = BTreeMap::new();
    for k in keys::KEYS.iter().filter(|k| keys::SWEPT.contains(&k.section)) {
        let key = format!("{}.{}", k.section, k.name);
        params.insert(key.clone(), cell.get(&key).to_owned());
    }
    params
}

fn result(
    cell: &Cell,
    label: &str,
    m: &Measured,
    samples: &[Sample],
    own: f64,
    daemons: &[(String, At)],
) -> CellResult {
    let (processes, machine, seen) = observe::sum_up(samples);
    let mut r = CellResult {
        id: cell.id(),
        combination: cell.combination,
        repetition: cell.repetition,
        system: label.to_owned(),
        load: cell.load_name(),
        params: params_of(cell),
        metrics: m.metrics.clone(),
        series: m.series.clone(),
        histogram: m.histogram.clone(),
        processes,
        machine,
        looks: samples.len() as u64,
        seen,
        clients: m.clients.clone(),
        first_byte: m.first_byte.clone(),
        worst: m.worst.clone(),
        ..CellResult::default()
    };
    let ops = m.metrics.get("ops").copied().unwrap_or(0.0).max(1.0);
    let seconds = m.metrics.get("seconds").copied().unwrap_or(0.0).max(1e-9);
    // `belemnite bench` reports CPU of its measured time. For other tools the CPU and operations of the whole run
    // count.
    let cpu = |kind: &str| -> f64 {
        if m.cpu.is_empty() {
            return r.processes.iter().filter(|p| p.kind() == kind).map(|p| p.cpu_seconds).sum();
        }
        let pids = daemons.iter().filter(|(n, _)| n.starts_with(kind)).map(|(_, p)| p);
        pids.filter_map(|p| m.cpu.get(&p.pid)).sum()
    };
    let (osd, mon, service) = (cpu("osd"), cpu("mon") + cpu("mgr"), cpu("rgw") + cpu("mds"));
    let of = |f: fn(&Process) -> f64| r.processes.iter().filter(|p| p.kind() == "osd").map(f).sum::<f64>();
    let (rss, written, net) = (of(|p| p.rss_mib), of(|p| p.written), of(|p| p.sent + p.received));
    r.metrics.extend([
        ("mon_us_per_op".to_owned(), mon / ops * 1e6),
        // The CPU time of a mount counts as the client's.
        ("client_us_per_op".to_owned(), (m.own_cpu.unwrap_or(own) + cpu("fuse")) / ops * 1e6),
    ]);
    if service > 0.0 {
        r.metrics.insert("service_us_per_op".into(), service / ops * 1e6);
    }
    if osd > 0.0 {
        r.metrics.extend([
            ("osd_us_per_op".to_owned(), osd / ops * 1e6),
            ("osd_cores".to_owned(), osd / seconds),
            ("iops_per_osd_core".to_owned(), ops / osd),
            ("osd_rss_mib".to_owned(), rss),
        ]);
        if net > 0.0 {
            r.metrics.insert("osd_net_per_op".into(), net / ops);
        }
    }
    let job = cell.load.text("job");
    if matches!(job, "write" | "randwrite") {
        let all: f64 = m.series.iter().map(|p| p.iops).sum::<f64>() * cell.load.bytes("block") as f64;
        let bytes = if m.cpu.is_empty() { m.metrics.get("bytes").copied().unwrap_or(0.0) } else { all };
        r.metrics.insert("written_per_byte".into(), written / bytes.max(1.0));
    }
    r
}
