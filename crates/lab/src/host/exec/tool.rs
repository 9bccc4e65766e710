//! Command lines of the load tools.

use super::services::Gateway;
use super::{ExecError, Tools};
use crate::host::build;
use crate::host::command::{self, Output};
use crate::plan::{Cell, keys};
use crate::result::{self, Measured};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time a tool may take beyond its load: for connecting, prefilling and exiting.
const GRACE: Duration = Duration::from_secs(600);
/// Slowest expected build of a client in seconds, for the time limit: that of a kernel beside others.
const BUILD_SLOWEST: f64 = 3600.0;
/// Slowest expected prefill rate in bytes per second, for the time limit.
const FILL_SLOWEST: u64 = 4 << 20;

/// Cluster, pools and folder for one execution of a tool.
pub(super) struct Target<'a> {
    pub(super) conf: &'a Path,
    /// Pool of objects and of image headers.
    pub(super) pool: &'a str,
    /// Pool of image data, if separate.
    pub(super) data_pool: Option<&'a str>,
    /// Processes whose CPU `belemnite bench` measures.
    pub(super) pids: &'a [u32],
    /// Folder for the tool's own logs.
    pub(super) dir: Option<&'a Path>,
    pub(super) seed: u64,
    /// The cluster's S3 gateway, if one runs.
    pub(super) gateway: Option<&'a Gateway>,
    /// Mount points of the cluster's file system: none, one, or one for each client.
    pub(super) mounts: &'a [PathBuf],
}

impl Target<'_> {
    /// Directory of a load on files.
    fn directory(&self, c: &Cell) -> String {
        self.mounts.first().map_or_else(|| c.load.text("directory").to_owned(), |d| d.display().to_string())
    }
}

/// Whether a load on whole objects or files leaves them as they are.
pub(super) fn is_read_only(c: &Cell) -> bool {
    matches!(c.load.text("job"), "get" | "head" | "list" | "stat" | "readdir")
}

/// Whether the load's files are made before it is mounted: it does not make them itself.
pub(super) fn is_filled_apart(c: &Cell) -> bool {
    is_read_only(c) || c.load.text("tool") == "fio" && c.load.is("prefill")
}

/// Whether `belemnite load` makes the load.
pub(super) fn is_steps(c: &Cell) -> bool {
    matches!(c.load.text("tool"), "s3" | "objects" | "files")
}

/// Program of a tool.
fn program(t: &Tools<'_>, name: &str) -> Result<String, ExecError> {
    if matches!(name, "bench" | "load" | "build") {
        return Ok(t.binary.display().to_string());
    }
    let root = Path::new("/");
    let p = command::find(root, name);
    let p = p.ok_or_else(|| ExecError::Missing { program: name.to_owned(), root: root.to_owned() })?;
    Ok(p.display().to_string())
}

fn image(i: u64) -> String {
    format!("lab{i}")
}

fn uses_images(c: &Cell) -> bool {
    c.load.text("tool") == "rbd" || matches!(c.load.text("tool"), "bench" | "fio") && c.load.text("target") == "image"
}

/// Number of images of a load: one for each fio client.
fn images(c: &Cell) -> u64 {
    match (uses_images(c), c.load.text("tool")) {
        (false, _) => 0,
        (true, "fio") => c.load.int("clients"),
        _ => 1,
    }
}

/// Name of the data set that a load expects. Loads with equal names share one prefill.
pub(super) fn set_name(c: &Cell) -> String {
    let l = &c.load;
    match l.text("tool") {
        _ if uses_images(c) => format!("images-{}", l.text("image_size")),
        "rados" => format!("rados-{}-{}", l.text("block"), l.text("write_omap")),
        "fio" if c.uses_files() => format!("fio-files-{}-{}", l.text("clients"), l.text("image_size")),
        "fio" if l.text("target") == "device" => format!("device-{}", l.text("image_size")),
        "fio" => "fio-objects".into(),
        "build" => "builds".into(),
        "winery" => "images-winery".into(),
        // Each client has its own files, and all have the same objects.
        "files" => format!("lab-files-{}-{}-{}", l.text("clients"), l.text("objects"), l.text("object_size")),
        tool @ ("s3" | "objects") => {
            format!("lab-{tool}-{}-{}-{}", l.text("objects"), l.text("object_size"), l.text("sizes"))
        }
        _ if l.text("job").starts_with("omap") => {
            format!("lab-omap-{}-{}-{}", l.text("objects"), l.text("keys"), l.text("block"))
        }
        _ => format!("lab-{}-{}", l.text("objects"), l.text("object_size")),
    }
}

struct Line {
    name: &'static str,
    /// Program of the tool, if it is not the one of this name.
    path: Option<String>,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    limit: Duration,
}

impl Line {
    fn new(name: &'static str, seconds: f64) -> Self {
        Self {
            name,
            path: None,
            args: Vec::new(),
            env: Vec::new(),
            limit: GRACE + Duration::from_secs_f64(seconds * 2.0),
        }
    }

    fn add<S: ToString>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.to_string()));
        self
    }

    fn extra(self, c: &Cell) -> Self {
        self.add(c.load.text("extra").split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn run(self, t: &Tools<'_>, conf: &Path, started: impl FnOnce(u32)) -> Result<Output, ExecError> {
        // The kernel kills the load tool when the laboratory is killed.
        let program = self.path.map_or_else(|| program(t, self.name), Ok)?;
        let mut c = Command::new("setpriv");
        c.args(["--pdeathsig", "KILL", &program])
            .args(&self.args)
            .envs(self.env)
            .env("CEPH_CONF", conf)
            .env("CEPH_ARGS", "--log_to_stderr=false");
        Ok(command::run(c, self.limit, t.cancel, started)?)
    }
}

/// `belemnite bench`.
fn bench(c: &Cell, on: &Target<'_>, job: &str, seconds: f64, warm_up: f64) -> Line {
    let l = &c.load;
    let mut line = Line::new("bench", seconds + warm_up)
        .add(["-c", &on.conf.display().to_string(), "bench", on.pool, job])
        .add(["--secs", &seconds.to_string(), "--warm-up", &warm_up.to_string(), "--format", "json", "--keep"])
        .add(["--seed", &on.seed.to_string(), "--run-name", &set_name(c)]);
    for (key, flag) in [
        ("depth", "--depth"),
        ("clients", "--clients"),
        ("threads", "--threads"),
        ("objects", "--objects"),
        ("object_size", "--object-size"),
        ("keys", "--keys"),
        ("read_percent", "--read-percent"),
        ("arrivals", "--arrivals"),
        ("block", "--block"),
    ] {
        line = line.add([flag, l.text(key)]);
    }
    for (key, flag) in [("rate", "--rate"), ("zipf", "--zipf")] {
        if l.number(key) > 0.0 && (key != "zipf" || job.starts_with("rand")) {
            line = line.add([flag, l.text(key)]);
        }
    }
    if l.is("verify") {
        line = line.add(["--verify"]);
    }
    if uses_images(c) {
        line = line.add(["--image", &image(0)]);
    }
    if !on.pids.is_empty() {
        let pids: Vec<String> = on.pids.iter().map(u32::to_string).collect();
        line = line.add(["--cpu-of", &pids.join(",")]);
    }
    line
}

/// Runs `belemnite load`. A load that changes objects uses objects of its own cell, which it makes and removes.
fn steps(c: &Cell, on: &Target<'_>, job: &str, seconds: f64, warm_up: f64) -> Line {
    let l = &c.load;
    let mut line =
        Line::new("load", seconds + warm_up).add(["-c", &on.conf.display().to_string(), "load", l.text("tool")]);
    let place = match (l.text("tool"), on.gateway, on.mounts.first()) {
        ("s3", Some(g), _) => {
            line.env = vec![("AWS_ACCESS_KEY_ID", g.access.clone()), ("AWS_SECRET_ACCESS_KEY", g.secret.clone())];
            g.endpoint.clone()
        }
        ("s3", None, _) => l.text("endpoint").to_owned(),
        ("files", _, Some(dir)) => dir.display().to_string(),
        ("files", _, None) => l.text("directory").to_owned(),
        _ => on.pool.to_owned(),
    };
    line = line
        .add([&place, job])
        .add(["--secs", &seconds.to_string(), "--warm-up", &warm_up.to_string(), "--format", "json"])
        .add(["--seed", &on.seed.to_string()]);
    let name = set_name(c);
    line = if is_read_only(c) {
        line.add(["--run-name", &name, "--keep"])
    } else {
        line.add(["--run-name", &format!("{name}-{}", c.id())])
    };
    for (key, flag) in [
        ("clients", "--clients"),
        ("depth", "--depth"),
        ("objects", "--objects"),
        ("object_size", "--object-size"),
        ("sizes", "--sizes"),
        ("writers", "--writers"),
        ("readers", "--readers"),
    ] {
        line = line.add([flag, l.text(key)]);
    }
    for (key, flag) in [("rate", "--rate"), ("write_rate", "--write-rate"), ("read_rate", "--read-rate")] {
        if l.number(key) > 0.0 {
            line = line.add([flag, l.text(key)]);
        }
    }
    if l.is("verify") {
        line = line.add(["--verify"]);
    }
    if !on.pids.is_empty() {
        let pids: Vec<String> = on.pids.iter().map(u32::to_string).collect();
        line = line.add(["--cpu-of", &pids.join(",")]);
    }
    line
}

/// `belemnite load build`.
fn builds(c: &Cell, on: &Target<'_>) -> Result<Line, ExecError> {
    let l = &c.load;
    let source = build::find_source(l.text("source")).map_err(ExecError::Plan)?;
    let command = if l.text("command").is_empty() { build::COMPILE } else { l.text("command") };
    let clients = l.int("clients");
    let mut line = Line::new("build", clients as f64 * BUILD_SLOWEST)
        .add(["-c", &on.conf.display().to_string(), "load", "build"])
        .add(["--source", &source.display().to_string(), "--command", command, "--format", "json"])
        .add(["--clients", &clients.to_string(), "--run-name", &format!("lab-build-{}", c.id())]);
    if l.is("pin") {
        line = line.add(["--pin-ranks", c.pool.text("ranks")]);
    }
    if !on.pids.is_empty() {
        let pids: Vec<String> = on.pids.iter().map(u32::to_string).collect();
        line = line.add(["--cpu-of", &pids.join(",")]);
    }
    if on.mounts.is_empty() {
        return Ok(line.add([l.text("directory")]));
    }
    Ok(line.add(on.mounts.iter().map(|d| d.display().to_string())))
}

/// Work on the archive's objects by the classes of Software Heritage's Winery.
const WINERY: &str = include_str!("../winery.py");
/// Slowest expected rate of objects that are added and packed before the measurement, for the time limit.
const ARCHIVE_SLOWEST: f64 = 50.0;
/// Ports of the laboratory's daemons before the one of PostgreSQL's socket.
const POSTGRES: u16 = 950;

/// File that Winery's load makes when it begins to measure; `None` for other tools.
pub(super) fn begun(c: &Cell, on: &Target<'_>) -> Option<PathBuf> {
    Some(on.dir?.join("begun")).filter(|_| c.load.text("tool") == "winery")
}

/// An archive of small objects by Winery.
fn winery(t: &Tools<'_>, c: &Cell, on: &Target<'_>) -> Line {
    let l = &c.load;
    let (seconds, warm_up) = (l.number("seconds"), l.number("warm_up"));
    let mut load = serde_json::Map::new();
    for k in ["objects", "sequential_readers", "packers"] {
        load.insert(k.into(), l.int(k).into());
    }
    for k in ["writers", "readers"] {
        load.insert(k.into(), (l.int(k) * l.int("clients")).into());
    }
    for k in ["write_rate", "read_rate", "seconds", "warm_up"] {
        load.insert(k.into(), l.number(k).into());
    }
    for k in ["pack_rate", "shard_size"] {
        load.insert(k.into(), l.bytes(k).into());
    }
    for k in ["mapper", "map_options"] {
        load.insert(k.into(), l.text(k).into());
    }
    let file = |name: &str| on.dir.map(|d| d.join(name).display().to_string());
    load.extend([
        ("median".to_owned(), l.bytes("object_size").into()),
        ("archive_sizes".to_owned(), (l.text("sizes") == "archive").into()),
        ("pool".to_owned(), on.pool.into()),
        ("data_pool".to_owned(), on.data_pool.into()),
        ("seed".to_owned(), on.seed.into()),
        ("port".to_owned(), t.port.saturating_add(POSTGRES).into()),
        ("cpu_of".to_owned(), on.pids.into()),
        ("csv".to_owned(), file("archive.csv").into()),
        ("begun".to_owned(), file("begun").into()),
    ]);
    let mut line = Line::new("winery", warm_up + seconds + l.number("objects") / ARCHIVE_SLOWEST).add([
        "-c",
        WINERY,
        &serde_json::Value::Object(load).to_string(),
    ]);
    line.path = Some(l.text("python").to_owned());
    line
}

/// Formats a duration for fio in milliseconds: fio reads a fraction such as `0.5` as no limit.
fn fio_time(seconds: f64) -> String {
    format!("{}ms", ((seconds * 1e3).round() as u64).max(1))
}

fn fio(c: &Cell, on: &Target<'_>, job: &str, block: &str, depth: u64, seconds: Option<f64>) -> Line {
    let l = &c.load;
    let clients = l.int("clients");
    let mut line = Line::new("fio", seconds.unwrap_or((l.bytes("image_size") * clients / FILL_SLOWEST) as f64)).add([
        "--output-format=json",
        "--group_reporting",
        "--randrepeat=0",
        "--norandommap",
        "--percentile_list=1:10:25:50:75:90:95:99:99.9:99.99",
    ]);
    line = match l.text("target") {
        "file" | "device" => line.add([format!("--ioengine={}", l.text("engine")), "--direct=1".to_owned()]),
        // The engine must come before its options.
        target => line.add([
            format!("--ioengine={}", if target == "image" { "rbd" } else { "rados" }),
            "--clientname=admin".to_owned(),
            format!("--pool={}", on.pool),
        ]),
    };
    line = line.add([
        format!("--rw={job}"),
        format!("--bs={block}"),
        format!("--iodepth={depth}"),
        format!("--randseed={}", on.seed),
    ]);
    if let Some(s) = seconds {
        line = line.add(["--time_based".to_owned(), format!("--runtime={}", fio_time(s))]);
    }
    if job.ends_with("rw") {
        line = line.add([format!("--rwmixread={}", l.text("read_percent"))]);
    }
    if seconds.is_some() && l.number("rate") > 0.0 {
        line = line.add([format!("--rate_iops={}", (l.number("rate") / clients as f64).round() as u64)]);
        if l.text("arrivals") == "poisson" {
            line = line.add(["--rate_process=poisson"]);
        }
    }
    if seconds.is_some() && l.number("zipf") > 0.0 {
        line = line.add([format!("--random_distribution=zipf:{}", l.text("zipf"))]);
    }
    if let (Some(d), Some(_)) = (on.dir, seconds) {
        let log = d.join("fio").display().to_string();
        line = line.add([
            format!("--write_bw_log={log}"),
            format!("--write_iops_log={log}"),
            format!("--write_lat_log={log}"),
            "--log_avg_msec=1000".into(),
        ]);
    }
    fio_jobs(line, c, on, clients).extra(c)
}

/// Adds fio's jobs, one for each client, with what they read and write.
fn fio_jobs(mut line: Line, c: &Cell, on: &Target<'_>, clients: u64) -> Line {
    let l = &c.load;
    if uses_images(c) {
        for i in 0..clients {
            line = line.add([format!("--name=c{i}"), format!("--rbdname={}", image(i))]);
        }
    } else if c.uses_files() {
        let dir = on.directory(c);
        line = line.add([format!("--directory={dir}"), format!("--size={}", l.bytes("image_size"))]);
        // The jobs of a data set have the same names: fio's files are called after them.
        line = line.add((0..clients).map(|i| format!("--name={}-{i}", set_name(c))));
    } else if l.text("target") == "device" {
        line = line.add([format!("--filename={}", l.text("device")), format!("--size={}", l.bytes("image_size"))]);
        line = line.add(["--name=c0"]);
    } else {
        line = line.add([
            "--conf=".to_owned() + &on.conf.display().to_string(),
            format!("--nrfiles={}", l.int("objects")),
            format!("--filesize={}", l.bytes("object_size")),
            format!("--size={}", l.int("objects") * l.bytes("object_size")),
            "--file_service_type=random".to_owned(),
        ]);
        line = line.add((0..clients).map(|i| format!("--name=c{i}")));
    }
    line
}

/// Log files of `kind` that fio wrote, the text of each job's.
fn fio_logs(on: &Target<'_>, kind: &str, clients: u64) -> Vec<String> {
    let path = |i: u64| on.dir.map(|d| d.join(format!("fio_{kind}.{i}.log")));
    (1..=clients).filter_map(path).filter_map(|p| std::fs::read_to_string(p).ok()).collect()
}

fn rados(c: &Cell, on: &Target<'_>, job: &str, seconds: f64) -> Line {
    let l = &c.load;
    let mut line = Line::new("rados", seconds)
        .add(["-p", on.pool, "bench", &(seconds.ceil() as u64).to_string(), job, "-t", l.text("depth")])
        .add(["--run-name", &set_name(c)]);
    if job == "write" {
        line = line.add(["-b", &l.bytes("block").to_string(), "--no-cleanup"]);
        if l.is("write_omap") {
            line = line.add(["--write-omap"]);
        }
    }
    line.extra(c)
}

fn rbd_bench(c: &Cell, on: &Target<'_>) -> Line {
    let l = &c.load;
    let job = l.text("job");
    let (kind, pattern) = (job.trim_start_matches("rand"), if job.starts_with("rand") { "rand" } else { "seq" });
    Line::new("rbd", (l.bytes("image_size") / FILL_SLOWEST) as f64)
        .add(["bench", "--io-type", kind, "--io-pattern", pattern, "--io-size", l.text("block")])
        .add(["--io-threads", l.text("depth"), "--io-total", l.text("image_size")])
        .add([format!("{}/{}", on.pool, image(0))])
        .extra(c)
}

/// Makes the images that do not exist yet.
pub(super) fn make_images(t: &Tools<'_>, c: &Cell, on: &Target<'_>, have: &mut u64) -> Result<(), ExecError> {
    while *have < images(c) {
        let spec = format!("{}/{}", on.pool, image(*have));
        let mut line = Line::new("rbd", 60.0).add([
            "create",
            &spec,
            "--size",
            c.load.text("image_size"),
            "--image-feature",
            "layering",
        ]);
        if let Some(p) = on.data_pool {
            line = line.add(["--data-pool", p]);
        }
        line.run(t, on.conf, |_| ())?;
        *have += 1;
    }
    Ok(())
}

/// Writes everything that the load will read or overwrite.
pub(super) fn prefill(t: &Tools<'_>, c: &Cell, on: &Target<'_>) -> Result<(), ExecError> {
    let l = &c.load;
    let once = |mut line: Line| {
        line.limit = GRACE + Duration::from_secs(crate::plan::estimate::working_set(c) / FILL_SLOWEST);
        line.run(t, on.conf, |_| ()).map(|_| ())
    };
    match l.text("tool") {
        "fio" if l.text("target") != "object" => once(fio(c, on, "write", "4M", 8, None)),
        // fio makes its objects itself in every run.
        "fio" => Ok(()),
        "rbd" => {
            let mut full = c.clone();
            for (k, v) in [("job", "write"), ("block", "4M"), ("depth", "8"), ("extra", "")] {
                full.load.0.insert(k.into(), v.into());
            }
            once(rbd_bench(&full, on))
        }
        "build" | "winery" => Ok(()),
        _ if is_steps(c) && !is_read_only(c) => Ok(()),
        _ if is_steps(c) => once(steps(c, on, l.text("job"), 0.01, 0.0)),
        "rados" if l.text("job") == "write" => Ok(()),
        // Write as many objects as the load may read in its time.
        "rados" => once(rados(c, on, "write", l.number("seconds"))),
        // `belemnite bench` fills what its job needs before it begins.
        _ if l.text("job") == "write" || l.text("job") == "fill" => Ok(()),
        _ => once(bench(c, on, l.text("job"), 0.01, 0.0)),
    }
}

/// Runs unmeasured load, for tools without a warm-up of their own.
pub(super) fn warm_up(t: &Tools<'_>, c: &Cell, on: &Target<'_>) -> Result<(), ExecError> {
    let l = &c.load;
    let seconds = l.number("warm_up");
    match l.text("tool") {
        "fio" if seconds > 0.0 => {
            let on = Target { dir: None, ..*on };
            fio(c, &on, l.text("job"), l.text("block"), l.int("depth"), Some(seconds)).run(t, on.conf, |_| ())?;
        }
        "rados" if seconds > 0.0 && l.text("job") == "write" => {
            rados(c, on, "write", seconds).run(t, on.conf, |_| ())?;
        }
        _ => {}
    }
    Ok(())
}

/// Runs the load; returns its output and the parsed figures. `filled`: the objects exist.
pub(super) fn measure(
    t: &Tools<'_>,
    c: &Cell,
    on: &Target<'_>,
    started: impl FnOnce(u32),
) -> Result<(Output, Measured), ExecError> {
    let l = &c.load;
    let (job, seconds) = (l.text("job"), l.number("seconds"));
    let line = match l.text("tool") {
        "fio" => fio(c, on, job, l.text("block"), l.int("depth"), Some(seconds)),
        "rados" => rados(c, on, job, seconds),
        "rbd" => rbd_bench(c, on),
        "build" => builds(c, on)?,
        "winery" => winery(t, c, on),
        _ if is_steps(c) => {
            let line = steps(c, on, job, seconds, l.number("warm_up"));
            let line = if is_read_only(c) && l.is("prefill") { line.add(["--no-fill"]) } else { line };
            line.extra(c)
        }
        _ => {
            let line = bench(c, on, job, seconds, l.number("warm_up"));
            // Objects prefilled with another seed cannot be verified: a verifying load fills its own.
            let line = if l.is("prefill") && !l.is("verify") { line.add(["--no-fill"]) } else { line };
            line.extra(c)
        }
    };
    let name = line.name;
    let out = line.run(t, on.conf, started)?;
    let read = match name {
        "fio" => result::from_fio(&out.out).map(|m| {
            let series =
                result::series_of_fio(&fio_logs(on, "iops", l.int("clients")), &fio_logs(on, "clat", l.int("clients")));
            result::Measured { series, ..m }
        }),
        "rados" => result::from_rados(&out.out),
        "build" => result::from_build(&out.out),
        "rbd" => result::from_rbd(&format!("{}\n{}", out.out, out.err), l.bytes("block") as f64),
        _ => result::from_bench(&out.out),
    };
    match read {
        Some(m) if m.metrics.get("ops").is_some_and(|n| *n > 0.0) => Ok((out, m)),
        _ => Err(ExecError::Plan(format!("{name} reported no operation: {}", out.err.trim()))),
    }
}

/// `k` and `m` of a cell's pool.
pub(super) fn shards(c: &Cell) -> Option<(u32, u32)> {
    keys::shards(c.pool.text("redundancy"))
}

#[cfg(test)]
mod tests {
    use super::fio_time;

    #[test]
    fn fio_times_are_whole_milliseconds() {
        assert_eq!([0.5, 2.0, 2.25, 1e-9].map(fio_time), ["500ms", "2000ms", "2250ms", "1ms"]);
    }
}
