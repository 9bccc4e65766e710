//! `belemnite deploy`: a cluster on many hosts, from an inventory. The crate `deploy` plans; here hosts are asked and
//! steps are carried out. Design: docs/design/deploy.md.
//!
//! | module | contents |
//! | --- | --- |
//! | `act` | carries steps out |
//! | `ask` | asks hosts and monitors for the facts of a plan |
//! | `cluster` | facts of the cluster, from its monitors |
//! | `dir` | the directory beside an inventory: what facts of hosts cannot tell |
//! | `import` | `belemnite deploy import`: an inventory from an existing Ceph's files |
//! | `remove` | `deploy remove`: the whole cluster, with its data |
//! | `run` | `deploy apply` and `deploy upgrade`: stage after stage, each from new facts |
//! | `scripts` | scripts that hosts run as root |
//! | `show` | plans and states in words |
//! | `ssh` | scripts on hosts: by ssh with one connection for each host, or on this machine |
//! | `tls` | certificates of etcd's members, made by `openssl` |

mod act;
mod ask;
mod cluster;
mod dir;
mod import;
mod remove;
mod run;
mod scripts;
mod show;
mod ssh;
mod tls;

use crate::cli::operate::print;
use deploy::{Facts, Inventory};
use dir::Dir;
use ssh::Ssh;
use std::path::{Path, PathBuf};

type Error = Box<dyn std::error::Error>;

/// `belemnite deploy …`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DeployCommand {
    /// Show what differs between the inventory and what is there, and the steps that `apply` takes, with what they move
    Plan(Common),
    /// Bring hosts and cluster to what the inventory says. Can be interrupted and run again
    Apply(Common),
    /// Show the hosts, the daemons on them, and the cluster's health
    Status(Common),
    /// Bring all hosts to the inventory's package: monitors, then OSDs host by host, while clients work
    Upgrade {
        #[command(flatten)]
        common: Common,
        /// Let a running upgrade end after its current step; `upgrade` without it goes on
        #[arg(long)]
        pause: bool,
    },
    /// Write an inventory from those of an existing Ceph: what `ceph orch ls --export` and `ceph orch host ls --format
    /// yaml` print, or ceph-ansible's inventory and variables. What does not map is a comment in it
    Import {
        /// Files, in YAML, JSON or the older form of Ansible's inventories
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// File to write, a new one [default: standard output]
        #[arg(long, short = 'o', value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Remove the whole cluster from all hosts, with all its data
    Remove {
        #[command(flatten)]
        common: Common,
        /// Confirm that all data of the cluster is destroyed
        #[arg(long)]
        yes_i_really_mean_it: bool,
    },
}

/// Arguments of all subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Inventory, a TOML file; the directory beside it with the ending .deploy keeps the cluster's id and keys
    inventory: PathBuf,
    /// Leave a host alone in this run, one that does not answer for example
    #[arg(long, value_name = "HOST")]
    without: Vec<String>,
}

/// An inventory with its directory and the way to its hosts.
struct Site {
    inventory: Inventory,
    dir: Dir,
    ssh: Ssh,
    without: Vec<String>,
    /// Package or program file that hosts get.
    package: PathBuf,
}

impl Site {
    fn open(c: &Common) -> Result<Self, Error> {
        let shown = c.inventory.display();
        let text = std::fs::read_to_string(&c.inventory).map_err(|e| format!("{shown}: {e}"))?;
        let inventory = Inventory::parse(&text).map_err(|e| format!("{shown}: {e}"))?;
        if let Some(n) = c.without.iter().find(|n| !inventory.hosts.contains_key(*n)) {
            return Err(format!("--without {n}: no such host in {shown}").into());
        }
        let beside = c.inventory.parent().unwrap_or(Path::new("."));
        let package = beside.join(&inventory.package);
        let dir = Dir::open(&c.inventory.with_extension("deploy"))?;
        let ssh = Ssh::new(inventory.ssh.clone())?;
        Ok(Self { inventory, dir, ssh, without: c.without.clone(), package })
    }

    /// Asks all hosts and the cluster.
    async fn facts(&self) -> Result<Facts, Error> {
        ask::facts(self).await
    }
}

/// `belemnite deploy`
pub(crate) async fn command(c: DeployCommand) -> Result<(), Error> {
    match c {
        DeployCommand::Plan(c) => {
            let site = Site::open(&c)?;
            let f = site.facts().await?;
            show::plan(&site.inventory, &f, &deploy::plan(&site.inventory, &f, deploy::next))
        }
        DeployCommand::Apply(c) => run::apply(&Site::open(&c)?).await,
        DeployCommand::Status(c) => {
            let site = Site::open(&c)?;
            show::status(&site, &site.facts().await?).await
        }
        DeployCommand::Upgrade { common, pause: true } => {
            Dir::find(&common.inventory.with_extension("deploy"))?.set_paused(true)?;
            print("a running upgrade ends after its current step; `belemnite deploy upgrade` goes on");
            Ok(())
        }
        DeployCommand::Upgrade { common, .. } => run::upgrade(&Site::open(&common)?).await,
        DeployCommand::Import { files, out } => import::import(&files, out.as_deref()),
        DeployCommand::Remove { common, yes_i_really_mean_it } => {
            remove::remove(&Site::open(&common)?, yes_i_really_mean_it).await
        }
    }
}
