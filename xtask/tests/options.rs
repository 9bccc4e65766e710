//! Does the list of options that our daemons read (`crates/cluster/src/used_options.rs`) agree with the sources?
//!
//! An option is read where its name occurs as a string literal in a daemon's source. Names with another meaning are
//! listed with the reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates of daemons that read options.
const READERS: &[&str] = &["osd", "mon", "net", "belemnite"];

/// Option names that occur in the sources with another meaning.
const HOMONYMS: &[(&str, &str)] = &[
    ("container_image", "a field of an OSD's metadata"),
    ("fsid", "the field of maps and answers; a cluster's id cannot be set"),
    ("host", "the CRUSH type"),
    ("key", "an argument of commands"),
    ("keyring", "read from the command line and the file alone"),
    ("mds_data", "written into the file for Ceph's MDS"),
    ("mgr_data", "an argument of Ceph's manager"),
    ("monmap", "a subscription and a record"),
    ("osd_objectstore", "a field of the OSD's metadata"),
    ("osd_uuid", "a field of the OSD's metadata"),
    ("perf", "a word of commands"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(dir: &Path, out: &mut String) {
    for e in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = e.path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|x| x == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            out.extend(code.lines().filter(|l| !l.trim_start().starts_with("//")).flat_map(|l| [l, "\n"]));
        }
    }
}

#[test]
fn the_list_of_used_options_is_what_the_sources_name() {
    let mut code = String::new();
    READERS.iter().for_each(|c| sources(&root().join("crates").join(c).join("src"), &mut code));
    assert!(code.len() > 1 << 20, "the sources were not found");
    let table = fs::read_to_string(root().join("crates/cluster/src/options.tsv")).unwrap();
    let known: BTreeSet<&str> =
        table.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split('\t').next()).collect();
    let homonym = |n: &str| HOMONYMS.iter().any(|(h, _)| *h == n);
    let words: BTreeSet<&str> = code.split('"').collect();
    let named: BTreeSet<&str> = known.into_iter().filter(|n| words.contains(n) && !homonym(n)).collect();
    let list = fs::read_to_string(root().join("crates/cluster/src/used_options.rs")).unwrap();
    let list = list.split("USED: &[&str] = &[").nth(1).and_then(|l| l.split("];").next()).unwrap();
    let listed: BTreeSet<&str> = list.lines().filter_map(|l| l.trim().strip_prefix('"')?.strip_suffix("\",")).collect();
    assert_eq!(listed, named);
}
