//! `belemnite state`: the monitors' state in a file, to keep it or to move it between one monitor's file and etcd.

use crate::admin;
use crate::cli::Target;
use crate::conf::Conf;
use std::fs::OpenOptions;
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

type Error = Box<dyn std::error::Error>;

/// Subcommands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StateCommand {
    /// Write the state into a new file. It holds every key of the cluster. A monitor with its state in a file has to be stopped
    Export {
        /// Name of the monitor whose state it is, without `mon.`
        #[arg(long, short = 'i', value_name = "ID", default_value = "a")]
        id: String,
        /// The file to make
        file: PathBuf,
    },
    /// Read a state from a file to where the configuration says that the monitor has it; there must be no cluster there
    Import {
        /// Name of the monitor whose state it becomes, without `mon.`
        #[arg(long, short = 'i', value_name = "ID", default_value = "a")]
        id: String,
        /// What `export` made
        file: PathBuf,
    },
}

/// Runs one of them.
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
                    // Half of a state is none.
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
