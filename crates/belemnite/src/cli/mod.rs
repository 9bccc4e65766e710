//! Commands that need no Ceph packages: `status`, `pool`, `put`, `get`, `ls`, `rm`, `bench`.
//!
//! | module | contents |
//! | --- | --- |
//! | `begun` | `belemnite osd add\|remove\|replace` that were interrupted: they go on when they are run again |
//! | `bench` | `belemnite bench`: generates load and reports latencies, and the CPU that daemons used |
//! | `deploy` | `belemnite deploy`: a cluster on many hosts, from an inventory |
//! | `ended` | results that scripts tell by the exit status, although the command did what it was to do |
//! | `keyring` | `belemnite keyring`: a new key, for a cluster that is made from it or an entity that gets it |
//! | `lab` | `belemnite lab`: runs, shows and compares plans of measurements |
//! | `load` | `belemnite load`: load of whole objects and of files, with the latencies of each kind of operation |
//! | `objects` | objects as files: put, get, list, remove |
//! | `operate` | commands about the daemons of a running `up`: `stop`, `start`, `restart`, `daemons`, … |
//! | `osds` | `belemnite osd add\|remove\|replace`: stores of a running `up`, with the checks that keep data |
//! | `rehearse` | `belemnite rehearse COMMAND`: what a change would do, before it is made |
//! | `table` | tables and progress of commands, as text |
//! | `views` | the first look of an operator: `health`, `df`, `osd status`, `pg status`, `top` |

mod begun;
mod bench;
pub(crate) mod deploy;
mod ended;
pub(crate) mod keyring;
pub(crate) mod lab;
pub(crate) mod load;
mod objects;
pub(crate) mod operate;
pub(crate) mod osds;
pub(crate) mod rehearse;
pub(crate) mod table;
pub(crate) mod views;

pub(crate) use bench::BenchArgs;
pub(crate) use ended::Ended;

use crate::admin;
use crate::conf::Conf;
use client::Client;
use serde_json::json;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

type Error = Box<dyn std::error::Error>;

/// Options that select the cluster and the user.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// Configuration file of the cluster [default: $CEPH_CONF, belemnite-data/ceph.conf, /etc/ceph/ceph.conf]
    #[arg(long, short = 'c', global = true, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Name of the user, without `client.`
    #[arg(long, global = true, default_value = "admin", value_name = "ID")]
    user: String,
    /// Keyring with the user's key [default: from the configuration]
    #[arg(long, global = true, value_name = "FILE")]
    keyring: Option<PathBuf>,
}

impl Target {
    /// Path given with `--conf`, if any.
    pub(crate) fn conf_path(&self) -> Option<&std::path::Path> {
        self.conf.as_deref()
    }

    /// Path of the cluster's configuration.
    pub(crate) fn conf_file(&self) -> Result<PathBuf, Error> {
        admin::find_conf(self.conf.as_deref())
    }

    /// The cluster's configuration.
    pub(crate) fn conf(&self) -> Result<Conf, Error> {
        Ok(Conf::load(&self.conf_file()?)?)
    }

    /// Connects as `client.bootstrap-osd` if this host has its key, else as the user of the command.
    pub(crate) async fn connect_to_create(&self) -> Result<Client, Error> {
        let named = self.conf()?.get("client", "bootstrap-osd", "keyring").map(PathBuf::from);
        let path = named.unwrap_or_else(|| BOOTSTRAP_KEYRING.into());
        if self.keyring.is_some() || !path.exists() {
            return self.connect().await;
        }
        let o = admin::options(&self.conf_file()?, "bootstrap-osd", Some(&path))?;
        check_refused(&o).await?;
        Ok(Client::connect(o).await?)
    }

    fn options(&self) -> Result<client::Options, Error> {
        admin::options(&admin::find_conf(self.conf.as_deref())?, &self.user, self.keyring.as_deref())
    }

    /// Connects as the user of the command. If that takes longer than a moment, a line on standard error names what is
    /// tried.
    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        let o = self.options()?;
        let mons: Vec<String> = o.mons.iter().filter_map(|m| m.sock).map(|a| a.to_string()).collect();
        let tried = format!("connecting as {} to a monitor at {}", o.name, mons.join(", "));
        let connect = async {
            check_refused(&o).await?;
            Ok(Client::connect(o.clone()).await?)
        };
        let mut connect = std::pin::pin!(connect);
        loop {
            tokio::select! {
                r = &mut connect => return r,
                () = tokio::time::sleep(TELL_EVERY) => {
                    // The command goes on if nobody reads it.
                    let _ = writeln!(std::io::stderr(), "belemnite: {tried} …");
                }
            }
        }
    }
}

/// Interval at which a command that waits for a monitor says so.
const TELL_EVERY: std::time::Duration = std::time::Duration::from_secs(2);

/// Keyring of a host that may make OSDs, as with Ceph's packages.
const BOOTSTRAP_KEYRING: &str = "/var/lib/ceph/bootstrap-osd/ceph.keyring";

/// Time for a connection to a monitor to be refused.
const KNOCK_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// `belemnite pool …`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PoolCommand {
    /// Create a pool
    Create {
        /// Name of the pool
        name: String,
        /// Number of placement groups
        #[arg(default_value_t = 32)]
        pg_num: u32,
    },
    /// List pools
    Ls(views::Form),
    /// Remove a pool with all its objects
    Rm {
        /// Name of the pool
        name: String,
        /// Confirm that all data of the pool is destroyed
        #[arg(long)]
        yes_i_really_mean_it: bool,
    },
}

/// `belemnite put`, `get`, `ls` and `rm`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ObjectCommand {
    /// Store a file as an object (`-` reads standard input)
    Put {
        /// Name of the pool
        pool: String,
        /// Name of the object
        object: String,
        /// File to read
        file: PathBuf,
    },
    /// Read an object into a file (`-` writes standard output)
    Get {
        /// Name of the pool
        pool: String,
        /// Name of the object
        object: String,
        /// File to write
        file: PathBuf,
    },
    /// List the objects of a pool
    Ls {
        /// Name of the pool
        pool: String,
        #[command(flatten)]
        form: views::Form,
    },
    /// Remove objects
    Rm {
        /// Name of the pool
        pool: String,
        /// Names of the objects
        #[arg(required = true)]
        objects: Vec<String>,
    },
}

/// Runs a monitor command and prints its output, as `ceph` does.
async fn plain(c: &Client, cmd: serde_json::Value) -> Result<(), Error> {
    let r = c.mon_command(&cmd.to_string(), Default::default()).await?;
    if r.rc < 0 {
        return Err(format!("{} ({})", r.status, base::errno::name(r.rc)).into());
    }
    let text = String::from_utf8_lossy(&r.out);
    show(std::io::stdout().lock(), if r.out.is_empty() { &r.status } else { text.trim_end() })
}

/// Prints a text as a line. A reader that closes the pipe early (`… | grep -q`) causes no error.
fn show(mut to: impl Write, text: &str) -> Result<(), Error> {
    match to.write_all(format!("{text}\n").as_bytes()).and_then(|()| to.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// `belemnite status`
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Form of the output
    #[arg(long, short = 'f', value_name = "FORM", value_parser = ["plain", "json", "json-pretty"], default_value = "plain")]
    format: String,
}

/// `belemnite status`
pub(crate) async fn status(t: &Target, a: &StatusArgs) -> Result<(), Error> {
    plain(&t.connect().await?, json!({"prefix": "status", "format": a.format})).await
}

/// Checks that a monitor's machine does not refuse connections, so that a cluster that does not run is reported at once.
pub(crate) async fn check_refused(o: &client::Options) -> Result<(), Error> {
    let mut refused = Vec::new();
    for addr in o.mons.iter().filter_map(|m| m.sock) {
        let tried = tokio::time::timeout(KNOCK_MAX, tokio::net::TcpStream::connect(addr)).await;
        match tried {
            Ok(Err(e)) if e.kind() == ErrorKind::ConnectionRefused => refused.push(addr.to_string()),
            // A monitor listens, or the network is slow.
            _ => return Ok(()),
        }
    }
    Err(format!("no monitor listens at {}; is the cluster running? See `belemnite up`", refused.join(", ")).into())
}

/// `belemnite pool`
pub(crate) async fn pool(t: &Target, p: PoolCommand) -> Result<(), Error> {
    let c = t.connect().await?;
    match p {
        PoolCommand::Create { name, pg_num } => {
            plain(&c, json!({"prefix": "osd pool create", "pool": name, "pg_num": pg_num})).await
        }
        PoolCommand::Ls(f) => {
            let v = operate::must_json(&c, json!({"prefix": "osd pool ls"})).await?;
            f.show(&v, || views::lines(&v));
            Ok(())
        }
        PoolCommand::Rm { name, yes_i_really_mean_it: true } => {
            let cmd =
                json!({"prefix": "osd pool rm", "pool": name, "pool2": name, "yes_i_really_really_mean_it": true});
            plain(&c, cmd).await
        }
        PoolCommand::Rm { name, .. } => {
            Err(format!("this destroys all objects of pool {name}; add --yes-i-really-mean-it").into())
        }
    }
}

/// `belemnite put|get|ls|rm`
pub(crate) async fn object(t: &Target, o: ObjectCommand) -> Result<(), Error> {
    let c = t.connect().await?;
    match o {
        ObjectCommand::Put { pool, object, file } => objects::put(&c, &pool, &object, &file).await,
        ObjectCommand::Get { pool, object, file } => objects::get(&c, &pool, &object, &file).await,
        ObjectCommand::Ls { pool, form } => objects::ls(&c, &pool, &form).await,
        ObjectCommand::Rm { pool, objects } => objects::rm(&c, &pool, &objects).await,
    }
}

/// `belemnite bench`
pub(crate) fn bench(t: &Target, b: &BenchArgs) -> Result<(), Error> {
    bench::run(&t.options()?, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let mut out = Vec::new();
        show(&mut out, "a\nb").unwrap();
        assert_eq!(out, b"a\nb\n");
        assert!(show(Fails(ErrorKind::BrokenPipe), "a").is_ok());
        assert!(show(Fails(ErrorKind::StorageFull), "a").is_err());
    }
}
