//! `belemnite osd create`: OSDs on devices or files of this host.

use super::crypt::{self, Secrets};
use super::host::{Host, is_in_use, labels_at, lasting_path, real_path, systemctl, unit};
use super::note::{Note, Notes};
use super::{Error, store};
use crate::admin::{self, StoreLabels};
use crate::cli::Target;
use crate::cli::operate::{command, must_json, print};
use crate::up::dir::write_private;
use crate::up::make::remove_dir;
use base::id::Uuid;
use base::{OsdId, size};
use client::Client;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pause between two looks at the map.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// Time in which a started OSD must be up.
const UP_MAX: Duration = Duration::from_secs(120);

/// Arguments of `belemnite osd create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Block devices, or files to make
    #[arg(required = true, value_name = "DEVICE|FILE")]
    targets: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
}

/// How a store is made and its daemon started.
#[derive(Debug, clap::Args)]
pub(crate) struct How {
    /// Size of each file, e.g. 100G
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<String>,
    /// Device class [default: hdd or ssd, as the kernel says]
    #[arg(long, value_name = "NAME")]
    pub(super) class: Option<String>,
    /// Overwrite a partition table, a file system or a store that no OSD of the cluster has
    #[arg(long)]
    pub(super) force: bool,
    /// Start the OSD in the background where no systemd runs
    #[arg(long)]
    pub(super) start: bool,
    /// Put dm-crypt under the store, with its key at the monitors
    #[arg(long)]
    pub(super) encrypt: bool,
}

impl How {
    /// Size of new files in bytes.
    ///
    /// # Errors
    /// It is no size.
    pub(super) fn check(&self) -> Result<Option<u64>, Error> {
        let parse = |s: &String| size::parse(s).ok_or_else(|| format!("--size {s}: not a size"));
        Ok(self.size.as_ref().map(parse).transpose()?)
    }
}

/// A store to be made.
pub(super) struct Make<'a> {
    pub(super) host: &'a Host,
    pub(super) client: &'a Client,
    pub(super) notes: &'a Notes,
    pub(super) how: &'a How,
    /// Size of new files in bytes.
    pub(super) bytes: Option<u64>,
    /// Id of a destroyed OSD whose place the new one takes.
    pub(super) id: Option<u32>,
}

/// `belemnite osd create`
pub(crate) async fn create(t: &Target, a: &CreateArgs) -> Result<(), Error> {
    let bytes = a.how.check()?;
    let host = Host::new(t.conf_file()?)?;
    let notes = Notes::open(&host.osds())?;
    let client = t.connect_to_create().await?;
    let m = Make { host: &host, client: &client, notes: &notes, how: &a.how, bytes, id: None };
    let (mut made, mut refused) = (Vec::new(), Ok(()));
    for target in &a.targets {
        match m.one(target).await {
            Ok(id) if made.contains(&id) => {}
            Ok(id) => made.push(id),
            Err(e) => {
                refused = Err(e);
                break;
            }
        }
    }
    // All daemons start before the first one is waited for. Those that were made serve, whatever became of the rest.
    let dump = must_json(m.client, json!({"prefix": "osd dump"})).await?;
    let mut started = Vec::new();
    for id in made {
        let before = (!is_in_use(&host.places(id).1)).then(|| up_from(&dump, id)).flatten();
        started.extend(m.start(id).await?.then_some((id, before)));
    }
    for (id, before) in started {
        m.wait_up(id, before).await?;
    }
    refused
}

/// Epoch since which the map shows an OSD up; `None` if it is down.
fn up_from(dump: &Value, id: u32) -> Option<u64> {
    let o = dump["osds"].as_array()?.iter().find(|o| o["osd"] == id && o["up"] == 1)?;
    o["up_from"].as_u64()
}

/// An OSD of the map with this uuid: its id, and true if it has never been up.
fn in_map(dump: &Value, uuid: &str) -> Option<(u32, bool)> {
    let o = dump["osds"].as_array()?.iter().find(|o| o["uuid"] == uuid)?;
    let is = |w: &str| o["state"].as_array().is_some_and(|s| s.iter().any(|x| x == w));
    let id = u32::try_from(o["osd"].as_u64()?).ok()?;
    (!is("destroyed")).then(|| (id, is("new")))
}

/// Makes a link durably, in place of what is there.
fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    if fs::read_link(at).is_ok_and(|l| l == to) {
        return Ok(());
    }
    match fs::remove_file(at) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    symlink(to, at).and_then(|()| crate::up::dir::sync_parent(at))
}

impl Make<'_> {
    /// Makes the OSD of a file or device; returns its id. An OSD that is there already stays as it is.
    ///
    /// # Errors
    /// The target holds something else, or a step fails. The command can be run again.
    pub(super) async fn one(&self, given: &Path) -> Result<u32, Error> {
        let target = real_path(given)?;
        let shown = target.display();
        let dump = must_json(self.client, json!({"prefix": "osd dump"})).await?;
        let have = labels_at(&target).ok();
        let noted = self.notes.find(&target)?;
        if let Some(l) = have.as_ref().filter(|l| l.fsid == self.host.fsid)
            && let Some((id, is_new)) = in_map(&dump, &l.uuid)
            && !(is_new && noted.is_some())
        {
            print(&format!("osd.{id}: is on {shown}"));
            // The daemon has started, so the store was whole.
            noted.map_or(Ok(()), |n| self.notes.remove(&n))?;
            return Ok(id);
        }
        let resumed = noted.is_some();
        let mut note = match noted {
            Some(n) => {
                self.check_same(&n)?;
                print(&format!("{shown}: going on with an OSD that was not finished"));
                n
            }
            None => Note {
                target: target.clone(),
                uuid: admin::new_uuid()?.to_string(),
                key: admin::new_key()?,
                crypt: self.how.encrypt.then(Secrets::new).transpose()?,
                id: None,
            },
        };
        let ours = resumed && have.as_ref().is_none_or(|l| l.uuid == note.uuid);
        if resumed {
            // Its mapping holds the device.
            crypt::close(&note.uuid)?;
        }
        self.check_free(&target, ours)?;
        self.notes.store(&note)?;
        self.after("note");
        let id = self.number(&mut note).await?;
        self.after("id");
        self.directory(id, &note)?;
        self.after("directory");
        self.format(id, &note, ours)?;
        self.after("store");
        self.notes.remove(&note)?;
        self.after("finished");
        print(&format!("osd.{id}: has a store on {shown}"));
        Ok(id)
    }

    /// Checks that an OSD that was not finished is to be encrypted, or not, as when it was begun.
    fn check_same(&self, note: &Note) -> Result<(), Error> {
        let with = match (note.crypt.is_some(), self.how.encrypt) {
            (true, false) => "with",
            (false, true) => "without",
            _ => return Ok(()),
        };
        let shown = note.target.display();
        Err(format!("{shown}: an OSD was begun there {with} --encrypt; `belemnite osd zap` gives it up").into())
    }

    /// Ends the process after a step, for tests of interrupted commands (`test_end_create_after`).
    fn after(&self, step: &str) {
        if self.host.conf.get("osd", "", "test_end_create_after").is_some_and(|s| s == step) {
            std::process::abort();
        }
    }

    /// Checks that a target may be overwritten; `ours` says that this command began to make a store there.
    fn check_free(&self, target: &Path, ours: bool) -> Result<(), Error> {
        let shown = target.display();
        let no_file = || format!("--encrypt: {shown} is a file, and dm-crypt needs a block device");
        let Ok(meta) = fs::metadata(target) else {
            return match self.bytes {
                Some(_) if self.how.encrypt => Err(no_file().into()),
                Some(_) => Ok(()),
                None => Err(format!("{shown}: no such device; for a new file add --size").into()),
            };
        };
        let is_device = meta.file_type().is_block_device();
        if is_device && self.bytes.is_some() {
            return Err(format!("{shown}: an OSD takes the whole device; leave out --size").into());
        }
        if !is_device && !meta.is_file() {
            return Err(format!("{shown}: neither a file nor a block device").into());
        }
        if !is_device && self.how.encrypt {
            return Err(no_file().into());
        }
        // A daemon or a mount holds it.
        reactor::disk::open(target).map_err(|e| format!("{shown}: {e}"))?;
        if self.how.force {
            return Ok(());
        }
        match store::contents(target)? {
            Some(s) if !(ours && (s.is_store || crypt::labels_at(target).is_some())) => {
                let what = match labels_at(target) {
                    Ok(l) => format!("the store of osd.{} of cluster {}", l.whoami, l.fsid),
                    Err(_) => s.text,
                };
                Err(format!("{shown} holds {what}; `belemnite osd zap` erases it, or --force").into())
            }
            None if !is_device && !ours && !store::begins_with_zeros(target)? => {
                Err(format!("{shown} holds something else; --force overwrites it").into())
            }
            _ => Ok(()),
        }
    }

    /// Asks the monitors for the id of a note's OSD.
    async fn number(&self, note: &mut Note) -> Result<u32, Error> {
        let mut cmd = json!({"prefix": "osd new", "uuid": note.uuid, "format": "json"});
        if let Some(id) = self.id {
            cmd["id"] = id.into();
        }
        let mut secrets = json!({ "cephx_secret": note.key });
        if let Some(s) = &note.crypt {
            secrets["cephx_lockbox_secret"] = s.lockbox.as_str().into();
            secrets["dmcrypt_key"] = s.key.as_str().into();
        }
        if let Some(class) = &self.how.class {
            secrets["crush_device_class"] = class.as_str().into();
        }
        let r = self.client.mon_command(&cmd.to_string(), secrets.to_string().into_bytes().into()).await?;
        if r.rc < 0 {
            return Err(format!("the monitors give no id: {} ({})", r.status, base::errno::name(r.rc)).into());
        }
        let answer: Value = serde_json::from_slice(&r.out)?;
        let id = answer["osdid"].as_u64().and_then(|n| u32::try_from(n).ok());
        let id = id.ok_or_else(|| format!("the monitors answered `osd new` with {answer}"))?;
        if let Some(old) = note.id.filter(|old| *old != id) {
            // Its OSD was purged before the store was finished.
            self.clear(old, note)?;
        }
        if note.id != Some(id) {
            print(&format!("osd.{id}: id and key are known to the monitors"));
            note.id = Some(id);
            self.notes.store(note)?;
        }
        Ok(id)
    }

    /// True if the data directory of an OSD is of this note.
    fn is_of(&self, id: u32, note: &Note) -> bool {
        let key = admin::key_from(&self.host.places(id).0.join("keyring"), &format!("osd.{id}"));
        key.is_ok_and(|k| k.to_base64() == note.key)
    }

    fn clear(&self, id: u32, note: &Note) -> Result<(), Error> {
        if self.is_of(id, note) { remove_dir(&self.host.places(id).0) } else { Ok(()) }
    }

    /// Makes the data directory with the keyrings and the links to the store and its device.
    fn directory(&self, id: u32, note: &Note) -> Result<(), Error> {
        let (data, block) = self.host.places(id);
        let shown = |e: std::io::Error| format!("{}: {e}", data.display());
        let holds = fs::read_dir(&data).is_ok_and(|mut d| d.next().is_some());
        if holds && !self.is_of(id, note) {
            return Err(format!(
                "{} is of an earlier osd.{id}, which the monitors do not know; rm -r it, and try again",
                data.display()
            )
            .into());
        }
        fs::create_dir_all(&data).map_err(shown)?;
        let name = format!("osd.{id}");
        let text = crate::up::keyring(&name, &note.key, &[]);
        write_private(&data.join("keyring"), &text).map_err(shown)?;
        let device = if note.target.exists() { lasting_path(&note.target) } else { note.target.clone() };
        if let Some(s) = &note.crypt {
            let text = crate::up::keyring(&crypt::entity(&note.uuid), &s.lockbox, &[]);
            write_private(&data.join("lockbox.keyring"), &text).map_err(shown)?;
            link(&device, &data.join("block.luks")).map_err(shown)?;
            return Ok(link(&crypt::mapping(&note.uuid), &block).map_err(shown)?);
        }
        if block == note.target { Ok(()) } else { Ok(link(&device, &block).map_err(shown)?) }
    }

    /// Makes the store. What this command left there is overwritten.
    fn format(&self, id: u32, note: &Note, ours: bool) -> Result<(), Error> {
        let is_device = fs::metadata(&note.target).is_ok_and(|m| m.file_type().is_block_device());
        let fsid =
            Uuid::parse(self.host.fsid.trim()).ok_or_else(|| format!("fsid = {}: not a uuid", self.host.fsid))?;
        let block = match &note.crypt {
            None => note.target.clone(),
            Some(s) => {
                let l = StoreLabels { whoami: id, fsid: fsid.to_string(), uuid: note.uuid.clone() };
                crypt::make(&note.target, &l, s)?
            }
        };
        osd::host::mkfs(&osd::host::Mkfs {
            whoami: OsdId(i32::try_from(id)?),
            fsid,
            osd_fsid: Uuid::parse(&note.uuid).ok_or("the note's uuid is not one")?,
            block,
            bytes: self.bytes.filter(|_| !is_device),
            force: self.how.force || ours || note.crypt.is_some(),
        })?;
        Ok(())
    }

    /// Starts an OSD's daemon; false if nothing here starts daemons.
    ///
    /// # Errors
    /// Its unit or process does not start.
    pub(super) async fn start(&self, id: u32) -> Result<bool, Error> {
        if self.host.has_units() {
            systemctl(&["enable", "--now", &unit(id)])?;
            print(&format!("osd.{id}: {} is enabled", unit(id)));
        } else if is_in_use(&self.host.places(id).1) {
            return Ok(true);
        } else if self.how.start {
            if let Some(c) = self.host.container(id) {
                c.open(&self.host.conf_path, id).await?;
            }
            let pid = self.host.spawn(id)?;
            print(&format!("osd.{id}: runs as process {pid}"));
        } else {
            print(&format!("osd.{id}: start it with `{}`", self.host.start_line(id)));
            return Ok(false);
        }
        Ok(true)
    }

    /// Waits until an OSD is up, and prints where it is. `before` is the epoch since which the map shows an earlier
    /// process of it up.
    ///
    /// # Errors
    /// It is not up in time.
    pub(super) async fn wait_up(&self, id: u32, before: Option<u64>) -> Result<(), Error> {
        let up = async {
            loop {
                let dump = must_json(self.client, json!({"prefix": "osd dump"})).await?;
                if up_from(&dump, id).is_some_and(|e| before != Some(e)) {
                    return Ok::<(), Error>(());
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let log = match self.host.has_units() {
            true => format!("`journalctl -u {}`", unit(id)),
            false => self.host.places(id).0.join("log").display().to_string(),
        };
        let late = || format!("osd.{id} is not up after {} s; its log ({log}) says why", UP_MAX.as_secs());
        tokio::time::timeout(UP_MAX, up).await.map_err(|_| late())??;
        let r = command(self.client, json!({"prefix": "osd find", "id": id, "format": "json"})).await?;
        let found: Value = serde_json::from_slice(&r.out).unwrap_or_default();
        let place: Vec<String> = found["crush_location"]
            .as_object()
            .map(|o| o.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect())
            .unwrap_or_default();
        print(&format!("osd.{id}: up at {}", place.join(" ")));
        Ok(())
    }
}
