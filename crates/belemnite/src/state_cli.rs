//! `belemnite state`: export and import of the monitors' state, for backups and for moves between a monitor's file and
//! etcd.

use crate::admin;
use crate::cli::Target;
use crate::conf::Conf;
use std::fs::OpenOptions;
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

type Error = Box<dyn std::error::Error>;

/// Subcommands of `belemnite state`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StateCommand {
    /// Write the state to a new file. The file has all keys of the cluster's entities. A monitor with its state in a
    /// file must be stopped
    Export {
        /// Name of the monitor with the state, without `mon.`
        #[arg(long, short = 'i', value_name = "ID", default_value = "a")]
        id: String,
        /// File to write
        file: PathBuf,
    },
    /// Read a state from a file into the place that the configuration gives for the monitor; there must be no state in
    /// it
    Import {
        /// Name of the monitor that gets the state, without `mon.`
        #[arg(long, short = 'i', value_name = "ID", default_value = "a")]
        id: String,
        /// File written by `export`
        file: PathBuf,
    },
}

/// Runs a subcommand.
pub(crate) fn run(t: &Target, c: StateCommand) -> Result<(), Error> {
    let conf = Conf::load(&admin::find_conf(t.conf_path())?)?;
    match c {
        StateCommand::Export { id, file } => {
            let place = admin::state_place(&conf, &id)?;
            let shown = file.display();
            let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
            let out = out.map_err(|e| format!("{shown}: {e}"))?;
            let sync = out.try_clone()?;
            let n = match mon::host::archive::export(&place, &mut BufWriter::new(out)) {
                Ok(n) => n,
                Err(e) => {
                    // An incomplete state is useless.
                    std::fs::remove_file(&file)?;
                    return Err(e.into());
                }
            };
            sync.sync_all()?;
            println!("{n} records written to {shown}");
        }
        StateCommand::Import { id, file } => {
            let place = admin::state_place(&conf, &id)?;
            let input = std::fs::File::open(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let n = mon::host::archive::import(&place, &mut BufReader::new(input))?;
            println!("{n} records read from {}", file.display());
        }
    }
    Ok(())
}
