//! `belemnite deploy import`: an inventory from an existing Ceph's files.

use super::Error;
use crate::cli::operate::print;
use deploy::import::{FILE_MAX, Source, import as convert};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The start of a file, with a byte more than may be in it.
fn read(path: &Path) -> Result<String, Error> {
    let shown = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut bytes = Vec::new();
    File::open(path).map_err(shown)?.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes).map_err(shown)?;
    Ok(String::from_utf8(bytes).map_err(|_| format!("{}: it is not UTF-8", path.display()))?)
}

/// Writes a new file. One that exists may have the operator's changes.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let shown = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{} exists; nothing was written", path.display()),
        _ => format!("{}: {e}", path.display()),
    };
    let mut f = File::options().write(true).create_new(true).open(path).map_err(shown)?;
    f.write_all(text.as_bytes()).and_then(|()| f.sync_all()).map_err(shown)?;
    Ok(())
}

/// Writes the inventory that files of another cluster give. Statements that do not map are comments in it.
pub(super) fn import(files: &[PathBuf], out: Option<&Path>) -> Result<(), Error> {
    let texts = files.iter().map(|f| read(f)).collect::<Result<Vec<String>, Error>>()?;
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    let sources: Vec<Source<'_>> = names.iter().zip(&texts).map(|(name, text)| Source { name, text }).collect();
    let i = convert(&sources)?;
    match out {
        Some(path) => {
            write(path, &i.text)?;
            i.notes.iter().for_each(|n| print(&format!("note: {n}")));
        }
        None => print(i.text.trim_end()),
    }
    match i.lacks {
        None => Ok(()),
        Some(e) => Err(format!("the inventory was written, and is not complete: {e}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_is_written_once() {
        let dir = std::env::temp_dir().join(format!("belemnite-import-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (hosts, out) = (dir.join("hosts"), dir.join("cluster.toml"));
        std::fs::write(&hosts, "[mons]\nm ansible_host=10.0.0.1\n").unwrap();
        import(std::slice::from_ref(&hosts), Some(&out)).unwrap();
        assert_eq!(deploy::Inventory::parse(&std::fs::read_to_string(&out).unwrap()).unwrap().monitors, ["m"]);
        let e = import(std::slice::from_ref(&hosts), Some(&out)).unwrap_err().to_string();
        assert!(e.contains("exists; nothing was written"), "{e}");
        std::fs::write(&hosts, "[mons]\nm\n").unwrap();
        let e = import(&[hosts], Some(&dir.join("other.toml"))).unwrap_err().to_string();
        assert!(e.contains("is not complete"), "{e}");
        assert!(import(&[dir.join("none")], None).unwrap_err().to_string().contains("none"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
