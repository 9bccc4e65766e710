//! `belemnite osd activate`: opens the device of an encrypted OSD, and gives the files and the device of an OSD to the
//! account that runs it. `belemnite osd deactivate`: closes what *activate* opened.
//!
//! The command runs as root, and the account can write the data directory. So the target of `block` is changed only if it
//! holds the store of this OSD, by the descriptor that was checked.

use super::crypt::Container;
use super::{Error, store};
use crate::cli::Target;
use crate::conf::Conf;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, fchown, lchown};
use std::path::{Path, PathBuf};

/// Arguments of `belemnite osd activate`.
#[derive(Debug, clap::Args)]
pub(crate) struct ActivateArgs {
    /// Id of the OSD
    id: u32,
    /// Account that runs the OSD
    #[arg(long, value_name = "NAME", default_value = "ceph")]
    account: String,
}

/// Arguments of `belemnite osd deactivate`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeactivateArgs {
    /// Id of the OSD
    id: u32,
}

/// User and group id of an account of this machine.
fn ids_of(passwd: &str, account: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find(|l| l.split(':').next() == Some(account))?;
    let mut words = line.split(':').skip(2);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Data directory and block file of an OSD.
pub(super) fn places(conf: &Conf, id: u32) -> (PathBuf, PathBuf) {
    let id = id.to_string();
    let get = |k: &str| conf.get("osd", &id, k).map(PathBuf::from);
    let data = get("osd_data").unwrap_or_else(|| format!("/var/lib/ceph/osd/ceph-{id}").into());
    let block = get("osd_block_path").unwrap_or_else(|| data.join("block"));
    (data, block)
}

/// `belemnite osd activate`
pub(crate) async fn activate(t: &Target, a: &ActivateArgs) -> Result<(), Error> {
    let passwd = fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
    let ids = ids_of(&passwd, &a.account).ok_or_else(|| format!("--account {}: no such account", a.account))?;
    let (data, block) = places(&t.conf()?, a.id);
    if let Some(c) = Container::of(&data, &block) {
        c.open(&t.conf_file()?, a.id).await?;
    }
    give(&data, &block, a.id, ids)
}

/// `belemnite osd deactivate`
pub(crate) fn deactivate(conf: &Conf, a: &DeactivateArgs) -> Result<(), Error> {
    let (data, block) = places(conf, a.id);
    Container::of(&data, &block).map_or(Ok(()), |c| c.close())
}

/// Gives the data directory, its files, and the file or device of the store to `ids`.
///
/// # Errors
/// A file is missing or cannot be changed, or `block` holds no store of this OSD.
fn give(data: &Path, block: &Path, id: u32, (user, group): (u32, u32)) -> Result<(), Error> {
    let shown = |p: &Path| {
        let p = p.display().to_string();
        move |e: std::io::Error| format!("{p}: {e}")
    };
    lchown(data, Some(user), Some(group)).map_err(shown(data))?;
    for e in fs::read_dir(data).map_err(shown(data))? {
        let path = e.map_err(shown(data))?.path();
        // A hard link may be to a file of another directory; the store is checked below.
        let plain = fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.nlink() == 1 || m.is_symlink());
        if plain && path.file_name() != Some(OsStr::new("block")) {
            lchown(&path, Some(user), Some(group)).map_err(shown(&path))?;
        }
    }
    let file = File::open(block).map_err(shown(block))?;
    let kind = file.metadata().map_err(shown(block))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(format!("{}: neither a file nor a block device", block.display()).into());
    }
    let labels = store::labels(&file).map_err(|e| format!("{}: {e}", block.display()))?;
    if labels.whoami != id {
        return Err(format!("{} is the store of osd.{}, not of osd.{id}", block.display(), labels.whoami).into());
    }
    Ok(fchown(&file, Some(user), Some(group)).map_err(shown(block))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::OsdId;
    use base::id::Uuid;

    #[test]
    fn accounts_are_found_by_their_whole_name() {
        let text =
            "root:x:0:0::/root:/bin/sh\ncephadm:x:7:8::/:/bin/sh\nceph:x:64045:64046:Ceph:/var/lib/ceph:/x\nbad:x\n";
        assert_eq!(ids_of(text, "ceph"), Some((64045, 64046)));
        assert_eq!(ids_of(text, "cep"), None);
        assert_eq!(ids_of(text, "bad"), None);
    }

    /// The account of the OSD may not get files of other owners by a link in its directory.
    #[test]
    fn only_the_store_of_the_osd_is_given_away() {
        let dir = std::env::temp_dir().join(format!("belemnite-activate-{}", std::process::id()));
        let data = dir.join("ceph-3");
        fs::create_dir_all(&data).unwrap();
        let me = fs::metadata(&dir).map(|m| (m.uid(), m.gid())).unwrap();
        let store = dir.join("device");
        osd::host::mkfs(&osd::host::Mkfs {
            whoami: OsdId(3),
            fsid: Uuid::from_random([1; 16]),
            osd_fsid: Uuid::from_random([2; 16]),
            block: store.clone(),
            bytes: Some(64 << 20),
            force: false,
        })
        .unwrap();
        let block = data.join("block");
        let refused = |what: &str| {
            let e = give(&data, &block, 3, me).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        };
        refused("No such file");
        let other = dir.join("shadow");
        fs::write(&other, vec![0; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(&other, &block).unwrap();
        refused("no object store");
        fs::remove_file(&block).unwrap();
        std::os::unix::fs::symlink("/dev/null", &block).unwrap();
        refused("neither a file nor a block device");
        fs::remove_file(&block).unwrap();
        std::os::unix::fs::symlink(&store, &block).unwrap();
        give(&data, &block, 3, me).unwrap();
        let e = give(&data, &block, 4, me).unwrap_err().to_string();
        assert!(e.contains("is the store of osd.3"), "{e}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
