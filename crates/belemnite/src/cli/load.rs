//! `belemnite load`: load of whole objects and of files, with the latencies of each kind of operation.

use super::bench::seconds;
use super::{Error, Target};
use crate::size;
use lab::host::build;
use lab::host::steps::{self, Outcome, Role, Steps, To};
use lab::load::sigv4::Keys;
use lab::load::steps::{Mix, Sizes};
use serde_json::json;
use std::path::PathBuf;

/// `belemnite load …`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LoadCommand {
    /// Objects of an S3 gateway; the keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    S3 {
        /// Address of the gateway: http://HOST:PORT
        endpoint: String,
        /// Job: one kind of operation; 45 % get, 25 % head, 15 % put, 10 % delete, 5 % list (mixed); or writers and
        /// readers side by side (archive)
        #[arg(value_parser = OBJECT_JOBS)]
        job: String,
        /// Bucket; it is made if it does not exist
        #[arg(long, default_value = "belemnite-load")]
        bucket: String,
        /// Region in the signatures
        #[arg(long, default_value = "us-east-1")]
        region: String,
        #[command(flatten)]
        args: LoadArgs,
    },
    /// Objects of a pool
    Objects {
        /// Name of the pool
        pool: String,
        /// Job: as for `s3`, without listings
        #[arg(value_parser = POOL_JOBS)]
        job: String,
        #[command(flatten)]
        args: LoadArgs,
    },
    /// Files in a directory of a mounted file system; each client has a directory of its own
    Files {
        /// The directory
        directory: PathBuf,
        /// Job: one kind of operation; or 50 % stat, 20 % create, 15 % unlink, 10 % rename, 5 % readdir (mixed)
        #[arg(value_parser = FILE_JOBS)]
        job: String,
        #[command(flatten)]
        args: LoadArgs,
    },
    /// Builds of a source tree, as of a kernel, on a mounted file system; each client has a directory of its own
    Build(BuildArgs),
}

/// Arguments of builds.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArgs {
    /// Directories of the file system, in which the clients take turns: one, or a mount for each client
    #[arg(required = true)]
    directories: Vec<PathBuf>,
    /// Archive with the source tree; crate:NAME is that crate's in Cargo's cache
    #[arg(long, value_name = "FILE")]
    source: String,
    /// Shell command that builds the unpacked tree; without it every C file is compiled by itself
    #[arg(long, default_value = build::COMPILE, hide_default_value = true)]
    command: String,
    /// Number of clients
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Pin the clients' directories to so many ranks in turn
    #[arg(long, value_name = "RANKS")]
    pin_ranks: Option<u64>,
    /// Name of the directory for all clients; it must not exist
    #[arg(long, default_value = "load", value_name = "NAME")]
    run_name: String,
    /// Keep the trees
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    report: ReportArgs,
}

const OBJECT_JOBS: [&str; 7] = ["put", "get", "head", "list", "delete", "mixed", "archive"];
const POOL_JOBS: [&str; 5] = ["put", "get", "head", "delete", "archive"];
const FILE_JOBS: [&str; 6] = ["create", "stat", "rename", "unlink", "readdir", "mixed"];

/// Arguments of every load.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Measured time in seconds
    #[arg(long, alias = "seconds", default_value_t = 10.0, value_name = "SECONDS")]
    secs: f64,
    /// Unmeasured load before, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    warm_up: f64,
    /// Number of clients
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Operations in flight of each client
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Start this many operations per second, all clients together; latencies count from the time when an operation
    /// was due
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Writers of each client, for the job archive
    #[arg(long, default_value_t = 4)]
    writers: usize,
    /// Readers of each client, for the job archive
    #[arg(long, default_value_t = 4)]
    readers: usize,
    /// Objects written per second by all writers together, for the job archive
    #[arg(long, value_name = "PER_SECOND")]
    write_rate: Option<f64>,
    /// Objects read per second by all readers together, for the job archive
    #[arg(long, value_name = "PER_SECOND")]
    read_rate: Option<f64>,
    /// Number of objects that exist when the load begins; for files, in each client's directory
    #[arg(long, default_value_t = 256)]
    objects: u64,
    /// Size of each object or file
    #[arg(long, default_value = "4K")]
    object_size: String,
    /// Sizes: all alike, or spread as in an archive of small files, with the given size as median
    #[arg(long, default_value = "fixed", value_parser = ["fixed", "archive"])]
    sizes: String,
    /// First part of the objects' names
    #[arg(long, default_value = "load", value_name = "NAME")]
    run_name: String,
    /// Check every byte that is read
    #[arg(long)]
    verify: bool,
    /// Seed for order, sizes and contents
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Use the objects of an earlier run with --keep instead of writing them
    #[arg(long)]
    no_fill: bool,
    /// Keep the objects
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// Arguments of the report of a load: the processes whose CPU it names, and its form.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Process ids of local daemons whose CPU time per operation is reported
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    cpu_of: Vec<u32>,
    /// Output: lines, or JSON
    #[arg(long, default_value = "line", value_parser = ["line", "json"])]
    format: String,
}

fn rate(r: Option<f64>) -> Result<Option<f64>, Error> {
    match r {
        Some(r) if !(r > 0.0 && r.is_finite()) => Err("a rate: more than 0".into()),
        r => Ok(r),
    }
}

impl LoadArgs {
    fn roles(&self, job: &str) -> Result<Vec<Role>, Error> {
        let role = |job: &str, workers, per_second| -> Result<Role, Error> {
            let mix = Mix::of_job(job).ok_or_else(|| format!("{job}: unknown job"))?;
            Ok(Role { mix, workers, rate: rate(per_second)? })
        };
        if job != "archive" {
            return Ok(vec![role(job, self.depth, self.rate)?]);
        }
        let all = [("put", self.writers, self.write_rate), ("get", self.readers, self.read_rate)];
        all.into_iter().filter(|(_, n, _)| *n > 0).map(|(j, n, r)| role(j, n, r)).collect()
    }

    fn spec(&self, job: &str) -> Result<Steps, Error> {
        let bytes = size::parse(&self.object_size).ok_or_else(|| format!("{}: not a size", self.object_size))?;
        if bytes > lab::load::ops::BLOCK_MAX {
            return Err(format!("{}: at most {}", self.object_size, size::show(lab::load::ops::BLOCK_MAX)).into());
        }
        Ok(Steps {
            roles: self.roles(job)?,
            clients: self.clients,
            objects: self.objects,
            sizes: if self.sizes == "archive" { Sizes::Archive(bytes) } else { Sizes::Fixed(bytes) },
            time: seconds(self.secs)?,
            warm_up: seconds(self.warm_up)?,
            prefix: self.run_name.clone(),
            verify: self.verify,
            fill: !self.no_fill,
            keep: self.keep,
            seed: self.seed,
            cpu_of: self.report.cpu_of.clone(),
        })
    }
}

/// Runs a command.
pub(crate) fn run(t: &Target, c: LoadCommand) -> Result<(), Error> {
    let from_env = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let (to, spec, job, args) = match c {
        LoadCommand::S3 { endpoint, job, bucket, region, args } => {
            let (access, secret) = (from_env("AWS_ACCESS_KEY_ID")?, from_env("AWS_SECRET_ACCESS_KEY")?);
            let to = To::S3 { endpoint, bucket, keys: Keys { access, secret, region } };
            (to, args.spec(&job)?, job, args)
        }
        LoadCommand::Objects { pool, job, args } => {
            (To::Pool { options: t.options()?, pool }, args.spec(&job)?, job, args)
        }
        LoadCommand::Build(a) => return run_builds(a),
        LoadCommand::Files { directory, job, args } => {
            let spec = args.spec(if job == "mixed" { "mixed-files" } else { &job })?;
            (To::Files { dir: directory }, spec, job, args)
        }
    };
    let o = steps::run(&spec, &to, &mut |_| ())?;
    let text = match args.report.format.as_str() {
        "json" => {
            let mut j = o.to_json();
            if let Some(m) = j.as_object_mut() {
                m.insert("job".into(), json!(job));
                m.insert("seed".into(), json!(spec.seed));
            }
            serde_json::to_string_pretty(&j)?
        }
        _ => lines(&job, &o),
    };
    super::show(std::io::stdout().lock(), &text)
}

/// Builds, and shows when each client finished.
fn run_builds(a: BuildArgs) -> Result<(), Error> {
    let o = build::run(&build::Builds {
        dirs: a.directories,
        clients: a.clients,
        source: build::find_source(&a.source)?,
        command: a.command,
        ranks: a.pin_ranks,
        name: a.run_name,
        keep: a.keep,
        cpu_of: a.report.cpu_of,
    })?;
    if a.report.format == "json" {
        return super::show(std::io::stdout().lock(), &serde_json::to_string_pretty(&o.to_json())?);
    }
    let mut s = format!("{} clients in {:.1} s", o.clients.len(), o.seconds());
    for (i, c) in o.clients.iter().enumerate() {
        s += &format!(
            "\n  client {i}: unpacked after {:.1} s, built after {:.1} s, {} files",
            c.unpacked, c.built, c.files
        );
    }
    super::show(std::io::stdout().lock(), &s)
}

fn lines(job: &str, o: &Outcome) -> String {
    let n = o.all.count();
    let mut s =
        format!("{job}: {n} operations in {:.1} s, {:.0} per second, {:.1} MiB/s", o.seconds, o.iops(), o.mib_s());
    if o.not_started > 0 {
        s += &format!("; {} operations were due and never started", o.not_started);
    }
    for (k, l) in &o.kinds {
        let per_second = l.count() as f64 / o.seconds.max(1e-9);
        s += &format!(
            "\n  {:<8} {per_second:.0} per second; latency µs p50 {:.0} p99 {:.0} max {:.0}",
            k.name(),
            l.at(0.5),
            l.at(0.99),
            l.max()
        );
    }
    if o.first_byte.count() > 0 {
        let q = |x| o.first_byte.at(x);
        s += &format!(
            "\n  first byte µs: best 1 % {:.0}, 10 % {:.0}, 25 % {:.0}, median {:.0}, worst 25 % {:.0}, 10 % {:.0}, 1 % {:.0}, maximum {:.0}",
            q(0.01),
            q(0.1),
            q(0.25),
            q(0.5),
            q(0.75),
            q(0.9),
            q(0.99),
            o.first_byte.max()
        );
    }
    if !o.cpu.is_empty() {
        let nanos: u64 = o.cpu.iter().map(|(_, n)| n).sum();
        s += &format!("\n  CPU µs per operation {:.1}", nanos as f64 / 1e3 / n.max(1) as f64);
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: LoadCommand,
    }

    fn spec(words: &str) -> Steps {
        let all = std::iter::once("load").chain(words.split(' '));
        match Line::try_parse_from(all).unwrap().command {
            LoadCommand::S3 { job, args, .. } | LoadCommand::Objects { job, args, .. } => args.spec(&job).unwrap(),
            LoadCommand::Files { job, args, .. } => args.spec(&job).unwrap(),
            LoadCommand::Build(a) => panic!("no steps: {a:?}"),
        }
    }

    #[test]
    fn an_archive_has_writers_and_readers() {
        let s = spec("objects p archive --writers 3 --readers 5 --write-rate 100 --sizes archive --object-size 3K");
        let roles: Vec<_> = s.roles.iter().map(|r| (r.mix.clone(), r.workers, r.rate)).collect();
        let mix = |j| Mix::of_job(j).unwrap();
        assert_eq!(roles, [(mix("put"), 3, Some(100.0)), (mix("get"), 5, None)]);
        assert_eq!(s.sizes, Sizes::Archive(3072));
        assert_eq!(spec("objects p archive --readers 0").roles.len(), 1);
        assert_eq!(spec("s3 http://h get --depth 2").roles[0].workers, 2);
    }

    #[test]
    fn builds_have_directories_and_a_source() {
        let line = |words: &str| Line::try_parse_from(std::iter::once("load").chain(words.split(' ')));
        let LoadCommand::Build(a) = line("build /m0 /m1 --source a.tar --clients 4 --pin-ranks 2").unwrap().command
        else {
            panic!("builds");
        };
        assert_eq!((a.directories.len(), a.clients, a.pin_ranks), (2, 4, Some(2)));
        assert_eq!(a.command, build::COMPILE);
        assert!(line("build --source a.tar").is_err() && line("build /m0").is_err());
    }

    #[test]
    fn every_job_has_a_mix() {
        for job in OBJECT_JOBS.iter().chain(&FILE_JOBS).filter(|j| **j != "archive") {
            assert!(Mix::of_job(job).is_some(), "{job}");
        }
        assert!(Line::try_parse_from(["load", "objects", "p", "list"]).is_err());
    }
}
