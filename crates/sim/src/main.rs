//! `sim`: runs seeds, records the clean ones, and describes a failing one.
//!
//! `regressions` has the list of seeds that found a bug once. `allocator` is the memory allocator of `belemnite`, by path.

#[allow(dead_code, reason = "runs end before memory must be given back")]
#[path = "../../belemnite/src/allocator.rs"]
mod allocator;
mod regressions;

use clap::Parser;
use sim::node::reactors::REACTORS_MAX;
use sim::options::{Fault, Options, Size, all_faults};
use sim::run::{Report, run};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A seed to run, with its options and, if it is listed, what it once found.
#[derive(Clone)]
struct Draw {
    seed: u64,
    args: Arc<Args>,
    found: Option<String>,
}

/// Stack of a thread that runs seeds, as large as a main thread's.
const STACK: usize = 8 << 20;

/// The allocator of the production program, because runs spend much time in it.
#[global_allocator]
static ALLOCATOR: allocator::MiMalloc = allocator::MiMalloc;

/// Whole clusters in one thread, each run from a seed.
#[derive(Parser)]
struct Args {
    /// Seeds to run: `7` or `0..100`.
    #[arg(long, default_value = "0..20")]
    seeds: String,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    way: WayArgs,
    /// Activate a planted bug (builds with the feature `planted`).
    #[arg(long)]
    planted: Option<String>,
    /// Instead of seeds: measure the cost of the death and return of one OSD in a cluster of OSDs and PGs, as
    /// `40,1333`.
    #[arg(long)]
    study: Option<String>,
    /// Instead of seeds: run those of this list, each with its own options.
    #[arg(long, conflicts_with_all = ["seeds", "resume", "trace"])]
    regressions: Option<PathBuf>,
}

/// The shape of each run, as far as the seed does not decide.
#[derive(clap::Args)]
struct RunArgs {
    /// OSDs, one per host.
    #[arg(long, default_value_t = 5)]
    osds: usize,
    /// Client operations of a run.
    #[arg(long, default_value_t = 2000)]
    ops: usize,
    /// Faults of a run, at least.
    #[arg(long, default_value_t = 12)]
    faults: usize,
    /// Copies of an object; 0: drawn from the seed.
    #[arg(long, default_value_t = 0)]
    copies: usize,
    /// An erasure-coded pool: data and coding shards as `4,2`, `any` for a shape drawn from the seed, or `none` for a
    /// pool of copies. Otherwise a quarter of the seeds have such a pool; `--plain` and `--copies` imply `none`.
    #[arg(long, value_parser = shape)]
    ec: Option<Shape>,
    /// Without class calls, listings and copies between objects: older seeds keep their histories.
    #[arg(long)]
    plain: bool,
    /// Only these kinds of faults, by name, separated by commas.
    #[arg(long)]
    only: Option<String>,
    /// Faults last longer than failure detection, and clients share few objects.
    #[arg(long)]
    long_cuts: bool,
    /// Few objects, and clients with few but frequent operations.
    #[arg(long)]
    watchful: bool,
    /// Clients ask for each map that they need, as librados does, and get no others from the monitor.
    #[arg(long)]
    once: bool,
    /// Whether the OSDs remove PGs in the smallest steps, instead of the seed's choice. Entries of a list that do not say
    /// so do not: they keep their histories.
    #[arg(long)]
    pieces: Option<bool>,
    /// Number of objects, instead of the seed's.
    #[arg(long)]
    objects: Option<usize>,
    /// Number of reactors of an OSD, instead of the seed's.
    #[arg(long)]
    reactors: Option<u16>,
    /// Number of monitors over a shared state, instead of the seed's.
    #[arg(long)]
    mons: Option<usize>,
    /// Number of MDS daemons of a file system, instead of the seed's. `--plain` and erasure-coded pools have none.
    #[arg(long)]
    mds: Option<usize>,
    /// Whether PGs move between reactors (`osd_move_pgs`), instead of the seed's choice.
    #[arg(long)]
    moves: Option<bool>,
    /// Whether the OSDs compress all data, each in its own way, instead of the seed's choice. `--plain` and `--ec` do not.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    compress: Option<bool>,
}

/// How runs are made and reported.
#[derive(clap::Args)]
struct WayArgs {
    /// Record clean seeds in this file, and skip seeds that it names.
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Number of runs at a time, each in its own thread.
    #[arg(short, long, default_value_t = 1)]
    jobs: usize,
    /// Begin no further run after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Write the trace of each run into this file.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Run every seed twice and compare.
    #[arg(long)]
    twice: bool,
    /// Continue after a failing seed.
    #[arg(long)]
    keep_going: bool,
    /// Print the logs of the machines (RUST_LOG-style filter).
    #[arg(long)]
    log: Option<String>,
    /// Print a line about every run.
    #[arg(short, long)]
    verbose: bool,
}

/// The value of `--ec`.
#[derive(Clone, Copy, Debug)]
enum Shape {
    None,
    Any,
    Coded(u8, u8),
}

fn shape(text: &str) -> Result<Shape, String> {
    match text {
        "any" => return Ok(Shape::Any),
        "none" => return Ok(Shape::None),
        _ => {}
    }
    let (k, m) = text.split_once(',').ok_or("expected K,M (data and coding shards), 'any' or 'none'")?;
    let number = |t: &str| t.parse::<u8>().map_err(|e| e.to_string());
    let (k, m) = (number(k)?, number(m)?);
    if ec::Layout::new(k.into(), m.into(), 4096).is_none() || k < 2 {
        return Err(format!("no code has {k} data and {m} coding shards"));
    }
    Ok(Shape::Coded(k, m))
}

fn seeds(text: &str) -> Option<std::ops::Range<u64>> {
    match text.split_once("..") {
        Some((a, b)) => Some(a.parse().ok()?..b.parse().ok()?),
        None => text.parse().ok().map(|n| n..n + 1),
    }
}

fn kinds(text: &str) -> Result<Vec<Fault>, String> {
    text.split(',')
        .filter(|t| !t.is_empty())
        .map(|t| {
            let known = || all_faults().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ");
            all_faults()
                .find(|f| format!("{f:?}") == t)
                .ok_or_else(|| format!("unknown kind of fault '{t}'; expected some of {}", known()))
        })
        .collect()
}

fn plant(name: Option<&str>) -> Result<(), String> {
    let Some(name) = name else { return Ok(()) };
    let bug = base::planted::ALL.iter().copied().find(|b| format!("{b:?}") == name);
    let bug = bug.ok_or_else(|| format!("unknown bug '{name}'; expected one of {:?}", base::planted::ALL))?;
    #[cfg(feature = "planted")]
    base::planted::plant(Some(bug));
    #[cfg(not(feature = "planted"))]
    return Err(format!("{bug:?} needs a build with --features planted"));
    #[cfg(feature = "planted")]
    Ok(())
}

fn replay(a: &Args, o: &Options) -> String {
    let seed = o.seed;
    let mut s = format!(
        "cargo run --release -p belemnite-sim -- --seeds {seed} --osds {} --ops {} --faults {} --copies {}",
        a.run.osds, a.run.ops, a.run.faults, a.run.copies
    );
    match a.run.ec {
        Some(Shape::Coded(k, m)) => s += &format!(" --ec {k},{m}"),
        Some(Shape::Any) => s += " --ec any",
        Some(Shape::None) => s += " --ec none",
        None => {}
    }
    if let Some(o) = &a.run.only {
        s += &format!(" --only {o}");
    }
    if a.run.plain {
        s += " --plain";
    }
    if a.run.long_cuts {
        s += " --long-cuts";
    }
    if a.run.watchful {
        s += " --watchful";
    }
    if a.run.once {
        s += " --once";
    }
    if let Some(pieces) = a.run.pieces {
        s += &format!(" --pieces {pieces}");
    }
    if let Some(n) = a.run.objects {
        s += &format!(" --objects {n}");
    }
    if let Some(n) = a.run.reactors {
        s += &format!(" --reactors {n}");
    }
    s += &format!(" --mons {} --mds {}", o.mons, o.mds);
    if let Some(moves) = a.run.moves {
        s += &format!(" --moves {moves}");
    }
    s + &format!(" --trace trace-{seed}.txt")
}

fn tell(draw: &Draw, r: &Report) {
    println!("seed {} FAILED after {:.1} virtual seconds", r.options.seed, r.took as f64 / 1e9);
    println!("  {:?}", r.options);
    for v in &r.violations {
        println!("  violation: {v}");
    }
    println!("  again, with a trace to read: {}", replay(&draw.args, &r.options));
    if let Some(found) = &draw.found {
        println!("  once found with it: {found}");
    }
}

fn tell_study(sizes: &str) -> ExitCode {
    let Some((osds, pgs)) = sizes.split_once(',').and_then(|(o, p)| Some((o.parse().ok()?, p.parse().ok()?))) else {
        eprintln!("--study: expected OSDS,PGS, got '{sizes}'");
        return ExitCode::FAILURE;
    };
    match sim::study::study(osds, pgs) {
        Ok(steps) => {
            for s in steps {
                println!("{}: {:.2} s, {} epochs", s.name, s.took as f64 / 1e9, s.epochs);
                for (kind, (n, bytes)) in s.messages {
                    println!("  {:<20} {n:>9} messages {bytes:>12} bytes", wire::msg::registry::name(kind));
                }
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a seed and measures its duration.
fn one(a: &Args, seed: u64) -> (Report, Duration) {
    let size = size(a);
    let mut o = match a.run.ec {
        None | Some(Shape::None) if a.run.plain => Options::plain(seed, size.clone()),
        None => Options::swarm(seed, size.clone()),
        Some(Shape::None) => Options::draw(seed, size.clone()),
        Some(Shape::Any) => Options::coded(seed, size.clone(), None),
        Some(Shape::Coded(k, m)) => Options::coded(seed, size.clone(), Some((k, m))),
    };
    if a.run.long_cuts {
        o.long_cuts();
    }
    if a.run.watchful {
        o.watchful();
    }
    o.rough.once = a.run.once;
    o.rough.pieces = a.run.pieces.unwrap_or(o.rough.pieces);
    // Seeds that were found before several monitors and compression were drawn have one monitor, and none.
    let one = a.run.plain || matches!(a.run.ec, Some(Shape::Any | Shape::Coded(..)));
    o.monitors(a.run.mons.or(one.then_some(1)));
    o.files(a.run.mds.or(a.run.plain.then_some(0)));
    o.work.objects = a.run.objects.unwrap_or(o.work.objects);
    o.osd.reactors = a.run.reactors.unwrap_or(o.osd.reactors).clamp(1, REACTORS_MAX);
    o.osd.reactors_change &= a.run.reactors.is_none();
    o.osd.moves = a.run.moves.unwrap_or(o.osd.moves);
    o.compression(a.run.compress.or(one.then_some(false)));
    let t = Instant::now();
    let mut r = run(&o, a.way.trace.is_some());
    if a.way.twice {
        let again = run(&o, false);
        if again.hash != r.hash {
            r.violations.push(format!("two runs differ: {:016x} and {:016x}", r.hash, again.hash));
        }
    }
    if let Some(p) = &a.way.trace {
        let text: String = r.trace.lines().flat_map(|l| [l, "\n"]).collect();
        if let Err(e) = std::fs::write(p, text) {
            eprintln!("{}: {e}", p.display());
        }
    }
    (r, t.elapsed())
}

/// The sizes that the options name. The kinds of faults were checked before.
fn size(a: &Args) -> Size {
    let only = a.run.only.as_deref().and_then(|k| kinds(k).ok()).unwrap_or_default();
    Size { osds: a.run.osds, ops: a.run.ops, faults: a.run.faults, copies: a.run.copies, only }
}

/// The seeds of a list, each with its own options.
fn listed(path: &Path) -> Result<Vec<Draw>, String> {
    let with_options = |r: regressions::Regression| {
        let seed = r.seed.to_string();
        let words = ["sim", "--seeds", &seed].into_iter().chain(r.args.split_whitespace());
        let mut a = Args::try_parse_from(words).map_err(|e| format!("seed {seed}: {e}"))?;
        a.run.pieces.get_or_insert(false);
        kinds(a.run.only.as_deref().unwrap_or_default())?;
        Ok(Draw { seed: r.seed, args: Arc::new(a), found: Some(r.found) })
    };
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list = regressions::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    list.into_iter().map(with_options).collect()
}

fn tell_briefly(r: &Report, took: Duration) {
    println!(
        "seed {}: {} in {:.2} s, {:.0} virtual s ({:.0} to heal), {} events, {} operations ({} unknown), \
         {}, {} monitors ({} leaders, {} changes), {} MDS ({} takeovers, {} entries), map {}, {} moved, hash {:016x}, {:?}",
        r.options.seed,
        if r.violations.is_empty() { "clean" } else { "FAILED" },
        took.as_secs_f64(),
        r.took as f64 / 1e9,
        r.healed as f64 / 1e9,
        r.events,
        r.operations,
        r.unknown,
        r.options.pool.code.map_or_else(|| format!("copies {}", r.options.pool.copies), |c| format!("code {c}")),
        r.options.mons,
        r.leaders,
        r.acknowledged,
        r.options.mds,
        r.takeovers,
        r.entries,
        r.epoch,
        r.moved,
        r.hash,
        r.faults
    );
}

/// The results of all runs.
#[derive(Default)]
struct Sum {
    good: u64,
    bad: u64,
    coded: u64,
    operations: usize,
    faults: usize,
    events: u64,
    undecided: usize,
    moved: u64,
}

impl Sum {
    fn add(&mut self, r: &Report) {
        let clean = r.violations.is_empty();
        self.good += u64::from(clean);
        self.bad += u64::from(!clean);
        self.coded += u64::from(r.options.pool.code.is_some());
        self.operations += r.operations;
        self.faults += r.faults.values().sum::<usize>();
        self.events += r.events;
        self.undecided += r.undecided;
        self.moved += r.moved;
    }
}

/// Runs seeds in `jobs` threads, until there are no more, the time is up, or one fails without `--keep-going`.
fn all(a: &Args, seeds: impl Iterator<Item = Draw> + Send, mut log: Option<File>) -> Sum {
    let start = Instant::now();
    let (seeds, stop) = (Mutex::new(seeds), AtomicBool::new(false));
    let next = || {
        let over = a.way.seconds.is_some_and(|s| start.elapsed() > Duration::from_secs(s));
        // The lock is poisoned only by a panic that ends the program anyway.
        if over || stop.load(Ordering::Relaxed) { None } else { seeds.lock().ok()?.next() }
    };
    let mut sum = Sum::default();
    std::thread::scope(|scope| {
        let (done, reports) = std::sync::mpsc::channel();
        for _ in 0..a.way.jobs.max(1) {
            let (done, next) = (done.clone(), &next);
            let run = move || {
                // A bug acts in the thread that planted it. Its name was checked before.
                let _ = plant(a.planted.as_deref());
                while let Some(draw) = next() {
                    let (report, took) = one(&draw.args, draw.seed);
                    if done.send((report, took, draw)).is_err() {
                        break;
                    }
                }
            };
            if let Err(e) = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run) {
                eprintln!("--jobs: {e}");
            }
        }
        drop(done);
        for (r, took, draw) in reports {
            sum.add(&r);
            if a.way.verbose {
                tell_briefly(&r, took);
            }
            if r.violations.is_empty() {
                if let Some(l) = &mut log
                    && let Err(e) = writeln!(l, "{}", r.options.seed)
                {
                    eprintln!("--resume: {e}");
                }
            } else {
                tell(&draw, &r);
                stop.fetch_or(!a.way.keep_going, Ordering::Relaxed);
            }
        }
    });
    sum
}

fn main() -> ExitCode {
    let a = Arc::new(Args::parse());
    let start = Instant::now();
    if let Some(sizes) = &a.study {
        return tell_study(sizes);
    }
    let Some(range) = seeds(&a.seeds) else {
        eprintln!("--seeds: expected N or A..B, got '{}'", a.seeds);
        return ExitCode::FAILURE;
    };
    if let Some(filter) = &a.way.log {
        let f = tracing_subscriber::EnvFilter::new(format!("{filter},at=info"));
        tracing_subscriber::fmt().with_env_filter(f).with_writer(std::io::stderr).without_time().init();
    }
    let usable = kinds(a.run.only.as_deref().unwrap_or_default()).and_then(|_| plant(a.planted.as_deref()));
    let list = usable.and_then(|()| a.regressions.as_deref().map(listed).transpose());
    let list = match list {
        Ok(list) => list,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    let clean: BTreeSet<u64> = a
        .way
        .resume
        .as_ref()
        .and_then(|p| std::fs::read_to_string(p).ok())
        .map(|t| t.lines().filter_map(|l| l.parse().ok()).collect())
        .unwrap_or_default();
    let log = a.way.resume.as_ref().and_then(|p| std::fs::OpenOptions::new().create(true).append(true).open(p).ok());
    let sum = match list {
        Some(list) => all(&a, list.into_iter(), log),
        None => {
            all(&a, range.filter(|s| !clean.contains(s)).map(|seed| Draw { seed, args: a.clone(), found: None }), log)
        }
    };
    println!(
        "{} clean, {} failed, {} skipped; {} with erasure codes, {} operations, {} faults, {} events, {} PGs moved, {} objects undecided, {:.1} s",
        sum.good,
        sum.bad,
        clean.len(),
        sum.coded,
        sum.operations,
        sum.faults,
        sum.events,
        sum.moved,
        sum.undecided,
        start.elapsed().as_secs_f64()
    );
    if sum.bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
