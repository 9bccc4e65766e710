//! The `belemnite` command: a cluster on this machine (`up`), single daemons (`mon`, `osd`), and commands to use a
//! cluster without other packages (`status`, `pool`, `put`, `get`, `ls`, `rm`, `bench`).
//!
//! | module | contents |
//! | --- | --- |
//! | `admin` | configuration, keys and monitor addresses; creating clusters and stores |
//! | `allocator` | the program's memory allocator: mimalloc (adr/0008) |
//! | `cli` | commands that use a cluster without Ceph's packages |
//! | `conf` | `ceph.conf`: the options that the daemons and commands use, and the file that `up` writes |
//! | `daemon` | `belemnite mon` and `belemnite osd`: single daemons, configured by a `ceph.conf` |
//! | `disks` | OSDs of a host without `up`: their devices, data directories and units |
//! | `doctor` | `belemnite doctor`: looks at hosts for what costs an OSD speed or safety, and says how to change it |
//! | `join` | `belemnite mon --join`: a new monitor adds itself to the monitors' map |
//! | `manual` | `belemnite completions` and `belemnite man-pages`, from the tree of commands |
//! | `memory` | memory of the machine, and an OSD's part of it |
//! | `report` | `belemnite report`: a bundle for those who are to help, without a secret in it |
//! | `state_cli` | `belemnite state`: export, import and repair of the monitors' state |
//! | `store` | `belemnite store`: create, inspect, check, repair, export, import and measure a closed store |
//! | `up` | `belemnite up`: a cluster on this machine, with each daemon as a process |
//! | `why` | `belemnite why\|safe\|eta`: answers from the measurements of all daemons |

mod admin;
mod allocator;
mod cli;
mod conf;
mod daemon;
mod disks;
mod doctor;
#[cfg(test)]
mod documented;
mod join;
mod manual;
mod memory;
mod report;
mod state_cli;
mod store;
mod up;
mod why;

use base::size;
use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

/// The global allocator: messages and transactions consist of many small buffers (adr/0008).
#[global_allocator]
static ALLOCATOR: allocator::MiMalloc = allocator::MiMalloc;

#[derive(Parser)]
#[command(version, about = "A storage cluster that speaks Ceph's protocols")]
struct Belemnite {
    #[command(flatten)]
    target: cli::Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create or start a cluster on this machine and keep it running
    Up(up::Args),
    /// Run a monitor; with a command: stop, start or restart a monitor of `up`
    Mon(daemon::MonArgs),
    /// Run an OSD; with a command: stop, start, restart, add, remove or replace an OSD of `up`
    Osd(daemon::OsdArgs),
    /// Stop, start or restart the S3 gateway of `up`
    Gateway(up::gateway::GatewayArgs),
    /// Stop a cluster that `up` runs, or daemons of it
    Stop(cli::operate::StopArgs),
    /// Start daemons of a running `up`
    Start(cli::operate::StartArgs),
    /// Restart daemons of a running `up`, or with --rolling all of them one after the other
    Restart(cli::operate::RestartArgs),
    /// Show the daemons of a running `up`
    Daemons(cli::operate::DaemonsArgs),
    /// Make and change a cluster on many hosts, from an inventory
    #[command(subcommand)]
    Deploy(cli::deploy::DeployCommand),
    /// Show the status of the cluster
    Status(cli::StatusArgs),
    /// Name the causes of slow operations, with evidence and remedy
    Why(why::WhyArgs),
    /// Tell whether all data has its copies, and what the loss of any one host would do
    Safe(why::SafeArgs),
    /// Tell when recovery will be done, from measured rates
    Eta(why::EtaArgs),
    /// Tell what a change of OSDs, CRUSH or pools would do, without making it
    Rehearse(cli::rehearse::RehearseArgs),
    /// Create, list and remove pools
    #[command(subcommand)]
    Pool(cli::PoolCommand),
    #[command(flatten)]
    Object(cli::ObjectCommand),
    /// Export the monitors' state to a file, or import it
    #[command(subcommand)]
    State(state_cli::StateCommand),
    /// Make, check, copy and measure object stores that no daemon has open
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Generate load on the cluster and measure it
    Bench(cli::BenchArgs),
    /// Generate load of whole objects (S3, pools) or of files, and measure it
    #[command(subcommand)]
    Load(cli::load::LoadCommand),
    /// Measure clusters of Belemnite and Ceph by plans: studies with tables, plots and findings
    #[command(subcommand)]
    Lab(cli::lab::LabCommand),
    /// Print a keyring with a new key
    Keyring(cli::keyring::KeyringArgs),
    /// Look at this host, or at others over ssh, for what costs speed or safety, and say how to change it
    Doctor(doctor::DoctorArgs),
    /// Write a support bundle: maps, health, logs' ends, options and counters, without keys and other secrets
    Report(report::ReportArgs),
    /// Show health with all reasons
    Health(cli::views::Form),
    /// Show the space of the cluster and of its pools
    Df(cli::views::Form),
    /// Show PGs
    #[command(subcommand)]
    Pg(cli::views::PgCommand),
    /// Watch health, load, recovery, pools and the slowest OSDs
    Top(cli::views::TopArgs),
    /// Print the completions of a shell
    Completions(manual::CompletionsArgs),
    /// Write the manual pages of all commands into a directory
    ManPages(manual::ManPagesArgs),
}

/// Runs a future on a reactor of this thread.
fn on_reactor<F: Future<Output = Result<(), Box<dyn std::error::Error>>>>(
    f: impl FnOnce() -> F,
) -> Result<(), Box<dyn std::error::Error>> {
    reactor::runtime::run_here(|_, _| f())?
}

/// Prints why the program ends. The exit status tells it, too, so a message that cannot be written is lost.
fn complain(e: &dyn std::error::Error) {
    let _ = writeln!(std::io::stderr(), "belemnite: {e}");
}

fn main() -> ExitCode {
    let b = Belemnite::parse();
    let is_daemon = match &b.command {
        Command::Mon(a) => a.command.is_none(),
        Command::Osd(a) => a.command.is_none(),
        _ => false,
    };
    daemon::init_logging(is_daemon);
    daemon::raise_descriptors(is_daemon);
    let r = match b.command {
        Command::Store(c) => match store::run(c) {
            Ok(code) => return code,
            Err(e) => {
                complain(e.as_ref());
                return ExitCode::from(2);
            }
        },
        Command::State(c) => state_cli::run(&b.target, c),
        Command::Up(a) => on_reactor(|| up::run(a)),
        Command::Mon(daemon::MonArgs { command: Some(c), .. }) => {
            on_reactor(|| async move { cli::operate::daemon(&b.target, "mon", c).await })
        }
        Command::Osd(daemon::OsdArgs { command: Some(c), .. }) => {
            on_reactor(|| async move { cli::operate::osd_command(&b.target, c).await })
        }
        Command::Gateway(up::gateway::GatewayArgs { command: Some(c), .. }) => {
            on_reactor(|| async move { cli::operate::daemon(&b.target, "rgw", c).await })
        }
        Command::Mon(a) => daemon::mon(&b.target, a),
        Command::Osd(a) => daemon::osd(&b.target, a),
        Command::Gateway(a) => on_reactor(|| up::gateway::run(a)),
        Command::Stop(a) => on_reactor(|| async move { cli::operate::stop(&b.target, a).await }),
        Command::Start(a) => on_reactor(|| async move { cli::operate::start(&b.target, a).await }),
        Command::Restart(a) => on_reactor(|| async move { cli::operate::restart(&b.target, a).await }),
        Command::Daemons(a) => on_reactor(|| async move { cli::operate::daemons(&b.target, a).await }),
        Command::Deploy(c) => on_reactor(|| cli::deploy::command(c)),
        Command::Status(a) => on_reactor(|| async move { cli::status(&b.target, &a).await }),
        Command::Why(a) => on_reactor(|| async move { why::why(&b.target, a).await }),
        Command::Safe(a) => on_reactor(|| async move { why::safe(&b.target, a).await }),
        Command::Eta(a) => on_reactor(|| async move { why::eta(&b.target, a).await }),
        Command::Rehearse(a) => on_reactor(|| async move { cli::rehearse::rehearse(&b.target, a).await }),
        Command::Pool(p) => on_reactor(|| async move { cli::pool(&b.target, p).await }),
        Command::Object(o) => on_reactor(|| async move { cli::object(&b.target, o).await }),
        Command::Bench(a) => cli::bench(&b.target, &a),
        Command::Load(c) => cli::load::run(&b.target, c),
        Command::Lab(a) => cli::lab::run(a),
        Command::Keyring(a) => cli::keyring::keyring(&a),
        Command::Doctor(a) => on_reactor(|| doctor::run(a)),
        Command::Report(a) => on_reactor(|| async move { report::run(&b.target, a).await }),
        Command::Health(f) => on_reactor(|| async move { cli::views::health(&b.target, &f).await }),
        Command::Df(f) => on_reactor(|| async move { cli::views::df(&b.target, &f).await }),
        Command::Pg(c) => on_reactor(|| async move { cli::views::pg(&b.target, c).await }),
        Command::Top(a) => on_reactor(|| async move { cli::views::top(&b.target, &a).await }),
        Command::Completions(a) => manual::completions(&a),
        Command::ManPages(a) => manual::man_pages(&a),
    };
    match r {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if let Some(ended) = e.downcast_ref::<cli::Ended>() {
                return ended.status().into();
            }
            complain(e.as_ref());
            if let Some(status) = cli::operate::exit_status(e.as_ref()) {
                return status.into();
            }
            e.downcast_ref::<osd::host::OsdError>().map_or(ExitCode::FAILURE, |e| e.exit_status().into())
        }
    }
}
