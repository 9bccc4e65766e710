//! `belemnite state`: export and import of the monitors' state, for backups and for moves between a monitor's file and
//! etcd; states that are older than the cluster; a state made anew from the OSDs' maps.

use crate::admin;
use crate::cli::Target;
use crate::conf::Conf;
use crate::store::Offline;
use auth::Keyring;
use base::Epoch;
use base::id::Uuid;
use cluster::OsdMap;
use mon::host::advance;
use mon::host::archive::Place;
use mon::host::mkfs::MkfsOptions;
use std::fs::OpenOptions;
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Error = Box<dyn std::error::Error>;

/// Subcommands of `belemnite state`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StateCommand {
    /// Write the state to a new file, also while monitors run. The file has all keys of the cluster's entities
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
        /// The file is a backup, and the cluster went on after it: take the newest map of the OSDs of this machine, and
        /// move its epoch by N, beyond those that other OSDs have
        #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1000000")]
        advance: Option<u32>,
        /// File or device of a stopped OSD's store with a newer map [default: those of the configuration]
        #[arg(long = "osd", value_name = "PATH", requires = "advance")]
        osds: Vec<PathBuf>,
    },
    /// Move the epochs of the maps beyond those that OSDs have, in a state that is older than the cluster, after the
    /// newest map of the OSDs of this machine. All monitors must be stopped
    Advance {
        /// Name of the monitor with the state, without `mon.`
        #[arg(long, short = 'i', value_name = "ID", default_value = "a")]
        id: String,
        /// Number of epochs
        #[arg(long, value_name = "N", default_value_t = mon::core::start::advance::ADVANCE)]
        by: u32,
        /// File or device of a stopped OSD's store with a newer map [default: those of the configuration]
        #[arg(long = "osd", value_name = "PATH")]
        osds: Vec<PathBuf>,
    },
    /// Make a lost state anew from the maps in stopped OSDs, for a single monitor. Options, file systems and all keys but
    /// those of monitors, OSDs and client.admin are lost
    Rebuild {
        /// Name of the monitor that gets the state, without `mon.`
        #[arg(long, short = 'i', value_name = "ID", default_value = "a")]
        id: String,
        /// File or device of an OSD's store; name as many as there are, since the newest map counts
        #[arg(long = "osd", value_name = "PATH", required = true)]
        osds: Vec<PathBuf>,
    },
}

/// Runs a subcommand.
pub(crate) fn run(t: &Target, c: StateCommand) -> Result<(), Error> {
    let conf = Conf::load(&admin::find_conf(t.conf_path())?)?;
    match c {
        StateCommand::Export { id, file } => export(&conf, &id, &file),
        StateCommand::Import { id, file, advance: by, osds } => {
            let place = admin::state_place(&conf, &id)?;
            let input = std::fs::File::open(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let n = mon::host::archive::import(&place, &mut BufReader::new(input))?;
            say(format_args!("{n} records read from {}", file.display()));
            by.map_or(Ok(()), |by| move_on(&conf, &place, by, &osds))
        }
        StateCommand::Advance { id, by, osds } => move_on(&conf, &admin::state_place(&conf, &id)?, by, &osds),
        StateCommand::Rebuild { id, osds } => rebuild(&conf, &id, &osds),
    }
}

fn say(text: impl std::fmt::Display) {
    // What was done stays done if nobody reads it.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn export(conf: &Conf, id: &str, file: &Path) -> Result<(), Error> {
    let place = admin::state_place(conf, id)?;
    let shown = file.display();
    if let (Place::Directory(_), Some(socket)) = (&place, conf.get("mon", id, "admin_socket"))
        && let Some(answer) = running(Path::new(&socket), file)?
    {
        say(answer);
        return Ok(());
    }
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let out = out.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{shown} exists; nothing was written"),
        _ => format!("{shown}: {e}"),
    })?;
    let sync = out.try_clone()?;
    let n = match mon::host::archive::export(&place, &mut BufWriter::new(out)) {
        Ok(n) => n,
        Err(e) => {
            // An incomplete state is useless.
            std::fs::remove_file(file)?;
            return Err(e.into());
        }
    };
    sync.sync_all()?;
    say(format_args!("{n} records written to {shown}"));
    Ok(())
}

/// Lets a running monitor write its state to the file; `None` if none runs.
fn running(socket: &Path, file: &Path) -> Result<Option<String>, Error> {
    let file = std::path::absolute(file)?;
    let path = file.to_str().ok_or("the path of the file is not UTF-8")?;
    let request = serde_json::json!({ "prefix": "state export", "file": path }).to_string();
    match crate::up::control::talk(socket, &request) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(crate::up::control::AskError::NotRunning(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Moves the OSD map beyond all that OSDs have. The stores `osds`, or those that the configuration gives, tell of changes
/// that the state lacks: the number of a pool's PGs, its snapshots, pools that were made or removed.
fn move_on(conf: &Conf, place: &Place, by: u32, osds: &[PathBuf]) -> Result<(), Error> {
    let have = advance::newest(place)?;
    let mut kept = newest_of(osds, have.fsid)?;
    let mut unread = 0;
    for o in have.osds().filter(|_| osds.is_empty()) {
        let path = osd_dir(conf, o.0).join("block");
        match path.exists().then(|| newest_map(&path, have.fsid)) {
            Some(Ok(map)) => keep_newer(&mut kept, map),
            Some(Err(e)) => {
                say(format_args!("{o}: its maps were not read: {e}"));
                unread += 1;
            }
            None => unread += 1,
        }
    }
    if kept.is_none() && unread > 0 {
        say(format_args!(
            "{unread} OSDs were not asked for their maps. If pools have changed since this state, stop an OSD and name its \
             store with --osd: an OSD that has more PGs of a pool than the map refuses it"
        ));
    }
    let (from, to) = advance::advance(place, by, kept.as_deref())?;
    say(format_args!("the OSD map went from epoch {from} to {to}; OSDs take it when the monitor runs"));
    Ok(())
}

/// Data directory of an OSD.
fn osd_dir(conf: &Conf, id: i32) -> PathBuf {
    let dir = conf.get("osd", &id.to_string(), "osd_data");
    dir.unwrap_or_else(|| format!("/var/lib/ceph/osd/ceph-{id}")).into()
}

fn keep_newer(kept: &mut Option<Arc<OsdMap>>, map: Arc<OsdMap>) {
    if kept.as_ref().is_none_or(|k| map.epoch > k.epoch) {
        *kept = Some(map);
    }
}

/// The newest map in some stores of the cluster.
fn newest_of(stores: &[PathBuf], fsid: Uuid) -> Result<Option<Arc<OsdMap>>, Error> {
    let mut kept = None;
    for path in stores {
        keep_newer(&mut kept, newest_map(path, fsid)?);
    }
    Ok(kept)
}

/// The newest map in a store of the cluster.
fn newest_map(path: &Path, fsid: Uuid) -> Result<Arc<OsdMap>, Error> {
    let mut s = Offline::open(path)?;
    let loaded = s.read(|s, t| osd::core::mapstore::load(s, t, fsid));
    let (sb, maps, _) =
        loaded.map_err(|e| format!("{}: {e:?}", path.display()))?.map_err(|e| format!("{}: {e}", path.display()))?;
    let map = maps.current().cloned().ok_or_else(|| format!("{}: {} has no map yet", path.display(), sb.whoami))?;
    say(format_args!("{}: {} has map {}", path.display(), sb.whoami, map.epoch));
    Ok(map)
}

const OSD_CAPS: &str =
    "\tcaps mgr = \"allow profile osd\"\n\tcaps mon = \"allow profile osd\"\n\tcaps osd = \"allow *\"\n";

fn rebuild(conf: &Conf, id: &str, osds: &[PathBuf]) -> Result<(), Error> {
    let get = |k: &str| conf.get("mon", id, k);
    let Place::Directory(data_dir) = admin::state_place(conf, id)? else {
        return Err(
            "a state is made anew in a monitor's directory only; `state export` and `import` move it to etcd".into()
        );
    };
    let fsid = get("fsid").ok_or("the configuration names no fsid")?;
    let fsid = Uuid::parse(fsid.trim()).ok_or_else(|| format!("fsid = {fsid}: not a uuid"))?;
    let map = newest_of(osds, fsid)?.ok_or("no store was named")?;
    let mut text = String::new();
    // Keys of the keyrings in place stay; the others are made by the new state.
    let wanted = [("mon", id, get("keyring")), ("client", "admin", conf.get("client", "admin", "keyring"))];
    for (kind, who, path) in wanted {
        let Some(path) = path else { continue };
        match std::fs::read_to_string(&path) {
            Ok(more) => {
                Keyring::parse(&more).map_err(|e| format!("keyring {path}: {e}"))?;
                text += &format!("{more}\n");
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let name = if kind == "mon" { "mon.".to_owned() } else { format!("{kind}.{who}") };
                let ring = format!("[{name}]\n\tkey = {}\n\tcaps mon = \"allow *\"\n", admin::new_key()?);
                let more = if kind == "mon" {
                    ""
                } else {
                    "\tcaps mds = \"allow *\"\n\tcaps mgr = \"allow *\"\n\tcaps osd = \"allow *\"\n"
                };
                text += &put_ring(Path::new(&path), &(ring + more))?;
            }
            Err(e) => return Err(format!("keyring {path}: {e}").into()),
        }
    }
    for o in map.osds() {
        text += &osd_ring(conf, o.0)?;
    }
    let mon_addrs = admin::own_addrs(conf, id)?;
    let options = MkfsOptions {
        fsid,
        mon_name: id.to_owned(),
        mon_addrs,
        data_dir,
        others: Vec::new(),
        etcd: None,
        keyring: Keyring::parse(&text)?,
        failure_domain: 1,
    };
    let to: Epoch = advance::rebuild(&options, &map, mon::core::start::advance::ADVANCE)?;
    say(format_args!("the state was made anew from map {}; the OSD map goes on at epoch {to}", map.epoch));
    Ok(())
}

fn put_ring(path: &Path, ring: &str) -> Result<String, Error> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    crate::up::dir::write_private(path, ring).map_err(|e| format!("{}: {e}", path.display()))?;
    say(format_args!("{} was made anew", path.display()));
    Ok(format!("{ring}\n"))
}

/// The keyring of an OSD with its caps. An OSD without a keyring here gets a new key.
fn osd_ring(conf: &Conf, id: i32) -> Result<String, Error> {
    let (n, name) = (id.to_string(), format!("osd.{id}"));
    let path = conf.get("osd", &n, "keyring").map_or_else(|| osd_dir(conf, id).join("keyring"), PathBuf::from);
    let key = match admin::key_from(&path, &name) {
        Ok(k) => k.to_base64(),
        Err(_) if !path.exists() => {
            let key = admin::new_key()?;
            put_ring(&path, &format!("[{name}]\n\tkey = {key}\n"))?;
            key
        }
        Err(e) => return Err(e),
    };
    Ok(format!("[{name}]\n\tkey = {key}\n{OSD_CAPS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file after `--advance` is the file, and no number.
    #[test]
    fn the_documented_import_is_understood() {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct State {
            #[command(subcommand)]
            command: StateCommand,
        }
        for (words, wanted) in [
            (&["state", "import", "--advance", "f"][..], Some(mon::core::start::advance::ADVANCE)),
            (&["state", "import", "f", "--advance"], Some(mon::core::start::advance::ADVANCE)),
            (&["state", "import", "--advance=7", "f"], Some(7)),
            (&["state", "import", "f"], None),
        ] {
            let StateCommand::Import { file, advance, .. } = State::try_parse_from(words).unwrap().command else {
                panic!("{words:?}")
            };
            assert_eq!((file, advance), (PathBuf::from("f"), wanted));
        }
    }
}
