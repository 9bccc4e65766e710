//! dm-crypt below an OSD: the LUKS2 container on its device, the mapping with its store, and the key.
//!
//! `cryptsetup` makes and opens the container. The monitors have its key where `ceph-volume` leaves it: among the config
//! keys. The data directory has the key of an entity that may read it (`lockbox.keyring`), and links to the mapping
//! (`block`) and to the device (`block.luks`). The container's header names the OSD and the cluster, so a device is
//! recognised while its mapping is closed.
//!
//! Invariants:
//!  1. The container's key is in no file of this host, except in the note of an OSD that is being made.
//!  2. Only mappings that are named after an OSD's uuid are opened and closed.
//!
//! Tests: below (2, `mappings_of_osds_are_known_by_their_names`).

use super::Error;
use super::host::is_in_use;
use crate::admin::{self, StoreLabels};
use auth::Random as _;
use base::id::Uuid;
use base64::Engine as _;
use client::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directory of the mappings.
const MAPPER: &str = "/dev/mapper";
/// Bytes of a container before its data: two headers and the key slots.
pub(super) const HEADER: u64 = 16 << 20;
/// Random bytes in a container's key.
const KEY_BYTES: usize = 128;
/// Iterations of PBKDF2. The key is random and longer than the cipher's, so a slow derivation protects nothing, and the
/// default one takes up to 1 GiB of memory for each OSD that starts.
const ITERATIONS: &str = "1000";

/// Secrets of an OSD on dm-crypt, as the monitors get them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Secrets {
    /// Key of the entity that may read the container's key.
    pub(super) lockbox: String,
    /// Key of the container, as text.
    pub(super) key: String,
}

impl Secrets {
    /// New secrets.
    pub(super) fn new() -> Result<Self, Error> {
        let mut key = [0; KEY_BYTES];
        net::OsRandom.fill(&mut key);
        let key = base64::engine::general_purpose::STANDARD.encode(key);
        Ok(Self { lockbox: admin::new_key()?, key })
    }
}

/// The entity that may read the key of an OSD's container.
pub(super) fn entity(uuid: &str) -> String {
    format!("client.osd-lockbox.{uuid}")
}

/// The mapping of the OSD with this uuid.
pub(super) fn mapping(uuid: &str) -> PathBuf {
    Path::new(MAPPER).join(format!("ceph-{uuid}-block-dmcrypt"))
}

/// The uuid of the OSD that a mapping is named after.
pub(super) fn uuid_of(mapping: &Path) -> Option<String> {
    let name = mapping.strip_prefix(MAPPER).unwrap_or(mapping).to_str()?;
    let uuid = name.strip_prefix("ceph-")?.strip_suffix("-block-dmcrypt")?;
    Uuid::parse(uuid).map(|u| u.to_string())
}

/// Identity of the OSD in the header of a LUKS2 container; `None` if it is another's, or no container.
///
/// Layout: `LUKS2 On-Disk Format Specification`, binary header.
fn labels(file: &File) -> Option<StoreLabels> {
    let mut head = [0; 256];
    file.read_exact_at(&mut head, 0).ok()?;
    let text = |from: usize, to: usize| {
        let field = head.get(from..to)?;
        let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
        std::str::from_utf8(field.get(..end)?).ok()
    };
    if head.get(..8)? != b"LUKS\xba\xbe\0\x02" {
        return None;
    }
    Some(StoreLabels {
        whoami: text(24, 72)?.strip_prefix("osd.")?.parse().ok()?,
        uuid: Uuid::parse(text(168, 208)?)?.to_string(),
        fsid: Uuid::parse(text(208, 256)?.strip_prefix("ceph_fsid=")?)?.to_string(),
    })
}

/// Identity of the OSD whose container is on a device.
pub(super) fn labels_at(device: &Path) -> Option<StoreLabels> {
    labels(&File::open(device).ok()?)
}

/// True if a device begins with a LUKS container, of an OSD or not.
pub(super) fn is_container(device: &Path) -> bool {
    let mut magic = [0; 6];
    let read = File::open(device).and_then(|f| f.read_exact_at(&mut magic, 0));
    read.is_ok() && magic == *b"LUKS\xba\xbe"
}

/// Runs cryptsetup, with a key on its standard input.
///
/// # Errors
/// It is missing or fails; the text is its own.
fn cryptsetup(args: &[&str], device: Option<&Path>, name: Option<&str>, key: Option<&str>) -> Result<(), Error> {
    let failed = |e: std::io::Error| format!("cryptsetup (package cryptsetup-bin): {e}");
    let mut child = Command::new("cryptsetup")
        .args(args)
        .args(device)
        .args(name)
        .stdin(if key.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let (Some(mut stdin), Some(key)) = (child.stdin.take(), key) {
        // A program that does not read its key says why by its status.
        let _ = stdin.write_all(key.as_bytes());
    }
    let out = child.wait_with_output().map_err(failed)?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        let on = device.map(|d| format!(" {}", d.display())).unwrap_or_default();
        return Err(format!("cryptsetup {}{on}: {}", args.first().unwrap_or(&""), why.trim()).into());
    }
    Ok(())
}

/// Opens the container of an OSD on a device, if it is not open.
fn open(device: &Path, uuid: &str, key: &str) -> Result<(), Error> {
    let at = mapping(uuid);
    if at.exists() {
        return Ok(());
    }
    let name = at.file_name().and_then(|n| n.to_str());
    cryptsetup(&["open", "--type", "luks2", "--allow-discards", "--key-file", "-"], Some(device), name, Some(key))
}

/// Closes the mapping of an OSD, if it is open.
///
/// # Errors
/// A daemon has it open.
pub(super) fn close(uuid: &str) -> Result<(), Error> {
    let at = mapping(uuid);
    if !at.exists() {
        return Ok(());
    }
    if is_in_use(&at) {
        return Err(format!("{} is in use by a daemon", at.display()).into());
    }
    cryptsetup(&["close"], None, at.file_name().and_then(|n| n.to_str()), None)
}

/// Makes the container of an OSD on a device and opens it; returns the mapping. What the device held is lost.
///
/// # Errors
/// cryptsetup fails.
pub(super) fn make(device: &Path, l: &StoreLabels, s: &Secrets) -> Result<PathBuf, Error> {
    close(&l.uuid)?;
    let (label, subsystem) = (format!("osd.{}", l.whoami), format!("ceph_fsid={}", l.fsid));
    let mut args = vec!["luksFormat", "--batch-mode", "--type", "luks2", "--key-size", "512", "--key-file", "-"];
    args.extend(["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", ITERATIONS]);
    args.extend(["--uuid", &l.uuid, "--label", &label, "--subsystem", &subsystem]);
    cryptsetup(&args, Some(device), None, Some(&s.key))?;
    open(device, &l.uuid, &s.key)?;
    Ok(mapping(&l.uuid))
}

/// The container of an OSD with a data directory here.
pub(super) struct Container {
    /// Uuid of the OSD.
    uuid: String,
    /// Path of the device, a link in the data directory.
    pub(super) device: PathBuf,
    data: PathBuf,
}

impl Container {
    /// The container of the OSD with this data directory and block file; `None` if the OSD is not encrypted.
    pub(super) fn of(data: &Path, block: &Path) -> Option<Self> {
        let uuid = uuid_of(&fs::read_link(block).ok()?)?;
        Some(Self { uuid, device: data.join("block.luks"), data: data.to_owned() })
    }

    /// Opens the container of `osd.id` with its key from the monitors, if it is not open.
    ///
    /// # Errors
    /// The device is another OSD's, the monitors do not give the key, or cryptsetup fails.
    pub(super) async fn open(&self, conf: &Path, id: u32) -> Result<(), Error> {
        if mapping(&self.uuid).exists() {
            return Ok(());
        }
        let shown = self.device.display();
        // The account of the OSD can write the data directory: the link may lead anywhere.
        match labels_at(&self.device) {
            Some(l) if l.whoami == id && l.uuid == self.uuid => {}
            Some(l) => return Err(format!("{shown} is the container of osd.{}, {}", l.whoami, l.uuid).into()),
            None => {
                File::open(&self.device).map_err(|e| format!("{shown}: {e}"))?;
                return Err(format!("{shown} holds no container of an OSD").into());
            }
        }
        open(&self.device, &self.uuid, &self.key(conf).await?)
    }

    /// The key, from the monitors.
    async fn key(&self, conf: &Path) -> Result<String, Error> {
        let entity = entity(&self.uuid);
        let user = entity.strip_prefix("client.").unwrap_or(&entity);
        let o = admin::options(conf, user, Some(&self.data.join("lockbox.keyring")))?;
        let c = Client::connect(o).await?;
        let cmd = json!({"prefix": "config-key get", "key": format!("dm-crypt/osd/{}/luks", self.uuid)});
        let r = c.mon_command(&cmd.to_string(), bytes::Bytes::new()).await?;
        if r.rc < 0 {
            let why = format!("{} ({})", r.status, base::errno::name(r.rc));
            return Err(format!("{entity}: the monitors do not give the key: {why}").into());
        }
        Ok(String::from_utf8(r.out.to_vec()).map_err(|_| "the monitors' key is no text")?)
    }

    /// Closes the mapping, if it is open.
    ///
    /// # Errors
    /// A daemon has it open.
    pub(super) fn close(&self) -> Result<(), Error> {
        close(&self.uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: &str = "8d2a4c1e-0000-4000-8000-00000000000f";

    #[test]
    fn mappings_of_osds_are_known_by_their_names() {
        assert_eq!(uuid_of(&mapping(U)).as_deref(), Some(U));
        assert_eq!(uuid_of(Path::new(&format!("ceph-{U}-block-dmcrypt"))).as_deref(), Some(U));
        for other in [
            "/dev/mapper/root".to_owned(),
            format!("/dev/sda/ceph-{U}-block-dmcrypt"),
            "/dev/mapper/ceph-x-block-dmcrypt".into(),
            format!("/dev/mapper/ceph-{U}"),
        ] {
            assert_eq!(uuid_of(Path::new(&other)), None, "{other}");
        }
    }

    #[test]
    fn keys_are_random_and_fit_the_monitors() {
        let (a, b) = (Secrets::new().unwrap(), Secrets::new().unwrap());
        assert_eq!(a.key.len(), KEY_BYTES.div_ceil(3) * 4);
        assert!(a.key != b.key && a.lockbox != b.lockbox);
    }

    /// A header as cryptsetup writes it, field by field.
    fn header(label: &str, uuid: &str, subsystem: &str) -> Vec<u8> {
        let mut head = vec![0; 4096];
        head[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        for (at, text) in [(24, label), (72, "sha256"), (168, uuid), (208, subsystem)] {
            head[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        head
    }

    #[test]
    fn a_container_names_its_osd() {
        let path = std::env::temp_dir().join(format!("belemnite-luks-{}", std::process::id()));
        let fsid = U.replace('8', "9");
        let read = |head: &[u8]| {
            fs::write(&path, head).unwrap();
            labels_at(&path).map(|l| (l.whoami, l.uuid, l.fsid))
        };
        let of = format!("ceph_fsid={fsid}");
        assert_eq!(read(&header("osd.12", U, &of)), Some((12, U.to_owned(), fsid.clone())));
        for (label, uuid, subsystem) in [
            ("", U, of.as_str()),
            ("osd.x", U, &of),
            ("home", U, &of),
            ("osd.1", "", &of),
            ("osd.1", U, ""),
            ("osd.1", U, "ceph_fsid=x"),
        ] {
            assert_eq!(read(&header(label, uuid, subsystem)), None, "{label} {uuid} {subsystem}");
        }
        assert!(is_container(&path));
        let mut first = header("osd.1", U, &of);
        first[7] = 1;
        assert_eq!(read(&first), None);
        // Shorter than a header, and a field without an end.
        assert_eq!(read(&header("osd.1", U, &of)[..200]), None);
        assert_eq!(read(&header(&"1".repeat(48), U, &of)), None);
        assert_eq!(read(b""), None);
        assert!(!is_container(&path));
        fs::remove_file(&path).unwrap();
    }
}
