//! Every key of a plan, with its type and meaning.
//!
//! A key of `[cluster]`, `[pool]` or `[[load]]` with a list is swept: each of its values is measured with each value of
//! the other keys.

use base::size;

/// Type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number with this minimum.
    Int(i64),
    /// A number of at least zero.
    Number,
    /// True or false.
    Bool,
    /// Any text.
    Text,
    /// A size such as `4K` or `1.5G`.
    Size,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Number of copies (`3`), or data and coding shards (`4+2`).
    Redundancy,
    /// `belemnite`, `ceph`, `ceph:ROOT`, `existing:CEPH_CONF` or `floor`.
    System,
}

/// A key of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Section of the plan.
    pub section: &'static str,
    /// Name within the section.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Value if the plan does not set the key.
    pub default: &'static str,
    /// Meaning, as `lab keys` prints it.
    pub about: &'static str,
}

const fn key(section: &'static str, name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { section, name, kind, default, about }
}

/// Jobs of all load tools.
const JOBS: &[&str] = &[
    "read",
    "write",
    "rw",
    "randread",
    "randwrite",
    "randrw",
    "fill",
    "seq",
    "rand",
    "omapset",
    "omapget",
    "omaprw",
    "put",
    "get",
    "head",
    "list",
    "delete",
    "mixed",
    "archive",
    "create",
    "stat",
    "rename",
    "unlink",
    "readdir",
    "build",
];

/// Kinds of disturbances of a cluster under load.
pub const DISTURBANCES: &[&str] =
    &["scrub", "deep-scrub", "osd-kill", "osd-start", "osd-out", "osd-in", "pg_num", "snapshot", "unsnapshot"];

/// All keys.
pub const KEYS: &[Key] = &[
    key("plan", "name", Kind::Text, "plan", "name of the plan; runs are named after it"),
    key("plan", "about", Kind::Text, "", "one line for `lab list`"),
    key("plan", "seed", Kind::Int(0), "1", "seed of the loads"),
    key("plan", "repetitions", Kind::Int(1), "3", "measurements of each cell, one after the other"),
    key("plan", "rounds", Kind::Int(1), "1", "times that everything is measured, each with new clusters"),
    key("cluster", "system", Kind::System, "belemnite", "system under test"),
    key(
        "cluster",
        "devices",
        Kind::Int(1),
        "3",
        "devices (of each node or host, if there are any); files, unless device_paths names block devices",
    ),
    key("cluster", "device_paths", Kind::Text, "", "block devices, separated by commas; their contents are destroyed"),
    key(
        "cluster",
        "osds_per_device",
        Kind::Int(1),
        "1",
        "OSDs that share a device; a block device needs a partition for each",
    ),
    key("cluster", "osd_size", Kind::Size, "8G", "size of an OSD's file"),
    key(
        "cluster",
        "written",
        Kind::Bool,
        "false",
        "OSDs' files are written once in full before the OSDs start, so that no file system allocates blocks under load",
    ),
    key("cluster", "nodes", Kind::Int(0), "0", "network namespaces as hosts, each with its devices; 0: none"),
    key(
        "cluster",
        "hosts",
        Kind::Text,
        "",
        "hosts over ssh, separated by commas, each with its devices; empty: this machine",
    ),
    key("cluster", "ssh", Kind::Text, "ssh -o BatchMode=yes", "the ssh program, with arguments"),
    key("cluster", "host_dir", Kind::Text, "/var/tmp", "directory for the cluster's files on each host"),
    key("cluster", "host_binary", Kind::Text, "", "path of `belemnite` on the hosts; empty: this program is copied"),
    key(
        "cluster",
        "cores_per_device",
        Kind::Number,
        "0",
        "CPU that the OSDs of a device may use, by cgroups; 0: no limit",
    ),
    key("cluster", "reactors", Kind::Int(0), "0", "reactors of an OSD of Belemnite; 0: as `up` chooses"),
    key(
        "cluster",
        "memory",
        Kind::Size,
        "1G",
        "memory an OSD aims for (osd_memory_target, store_cache_size of half of it)",
    ),
    key(
        "cluster",
        "disk_limit",
        Kind::Size,
        "0",
        "bytes per second of the first OSD's device, by cgroups; 0: no limit",
    ),
    key("pool", "redundancy", Kind::Redundancy, "3", "copies, or data and coding shards as 4+2"),
    key("pool", "pg_num", Kind::Int(1), "64", "placement groups"),
    key("pool", "ranks", Kind::Int(1), "1", "active metadata servers of a file system on the pool"),
    key("cluster", "mode", Kind::Word(&["crc", "secure"]), "crc", "protection of all connections"),
    key("load", "name", Kind::Text, "", "name of the load; empty: the tool and its job"),
    key(
        "load",
        "tool",
        Kind::Word(&["bench", "fio", "rados", "rbd", "s3", "objects", "files", "build", "winery"]),
        "bench",
        "load tool: `belemnite bench`, fio, `rados bench`, `rbd bench`, `belemnite load` on S3, objects or files, builds, or Software Heritage's Winery",
    ),
    key("load", "job", Kind::Word(JOBS), "randwrite", "kind of operations; each tool has its own jobs"),
    key(
        "load",
        "target",
        Kind::Word(&["object", "image", "file", "device"]),
        "object",
        "target of `bench` or fio; files, and a block device such as a mapped image, are for fio",
    ),
    key(
        "load",
        "engine",
        Kind::Word(&["libaio", "io_uring", "psync"]),
        "libaio",
        "I/O engine of fio for files and devices (direct I/O)",
    ),
    key("load", "device", Kind::Text, "", "block device for the target `device`; its contents are destroyed"),
    key("load", "block", Kind::Size, "4K", "bytes of an operation"),
    key("load", "depth", Kind::Int(1), "32", "operations in flight of each client"),
    key("load", "clients", Kind::Int(1), "1", "clients"),
    key("load", "threads", Kind::Int(1), "1", "threads of `bench`"),
    key(
        "load",
        "rate",
        Kind::Number,
        "0",
        "operations started per second by all clients together; 0: each one when an earlier one is answered",
    ),
    key(
        "load",
        "arrivals",
        Kind::Word(&["even", "poisson"]),
        "even",
        "distribution of the times between starts, if there is a rate",
    ),
    key("load", "read_percent", Kind::Int(0), "70", "percentage of reads in a mixed job"),
    key("load", "zipf", Kind::Number, "0", "exponent of Zipf's law for random jobs; 0: all blocks alike"),
    key("load", "objects", Kind::Int(1), "256", "number of objects or files"),
    key("load", "object_size", Kind::Size, "4M", "size of each object or file"),
    key("load", "keys", Kind::Int(1), "1000", "keys of each omap"),
    key("load", "image_size", Kind::Size, "1G", "size of the image"),
    key(
        "load",
        "sizes",
        Kind::Word(&["fixed", "archive"]),
        "fixed",
        "sizes of whole objects; archive: object_size is their median",
    ),
    key("load", "writers", Kind::Int(0), "4", "writers of each client, for the job archive"),
    key("load", "readers", Kind::Int(0), "4", "readers of each client, for the job archive"),
    key(
        "load",
        "write_rate",
        Kind::Number,
        "0",
        "objects written per second by all writers; 0: as fast as they are answered",
    ),
    key(
        "load",
        "read_rate",
        Kind::Number,
        "0",
        "objects read per second by all readers; 0: as fast as they are answered",
    ),
    key("load", "packers", Kind::Int(0), "1", "processes that pack full shards into images, for winery"),
    key("load", "pack_rate", Kind::Size, "0", "bytes per second that each packer writes; 0: as fast as it can"),
    key("load", "sequential_readers", Kind::Int(0), "0", "readers of whole images in order, for winery"),
    key("load", "shard_size", Kind::Size, "100G", "bytes of objects from which a shard is full, for winery"),
    key("load", "python", Kind::Text, "winery/bin/python3", "Python with `swh.objstorage[winery]`, for winery"),
    key(
        "load",
        "mapper",
        Kind::Text,
        "",
        "program in place of `rbd` that maps images, for a kernel without an RBD client; empty: `rbd`",
    ),
    key("load", "map_options", Kind::Text, "ms_mode=prefer-crc", "options of `rbd device map`, for winery"),
    key(
        "load",
        "endpoint",
        Kind::Text,
        "",
        "S3 gateway (keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY); empty: one of the cluster's own",
    ),
    key(
        "load",
        "directory",
        Kind::Text,
        "",
        "mounted directory for file loads and for fio on files; empty: a file system of the cluster's own",
    ),
    key(
        "load",
        "source",
        Kind::Text,
        "crate:lua-src",
        "archive of the source tree that is built; crate:NAME: that crate's in Cargo's cache",
    ),
    key(
        "load",
        "command",
        Kind::Text,
        "",
        "shell command that builds the unpacked tree; empty: every C file is compiled by itself",
    ),
    key(
        "load",
        "pin",
        Kind::Bool,
        "false",
        "directories of builds are pinned to the ranks in turn; else the balancer moves them",
    ),
    key("load", "write_omap", Kind::Bool, "false", "`rados bench --write-omap`"),
    key("load", "verify", Kind::Bool, "false", "`bench` and `belemnite load` check every byte read"),
    key("load", "prefill", Kind::Bool, "true", "write every object once before the load"),
    key("load", "warm_up", Kind::Number, "2", "seconds of unmeasured load before the measurement"),
    key("load", "seconds", Kind::Number, "10", "measured seconds"),
    key("load", "client_cores", Kind::Number, "0", "CPU that the client may use, by cgroups; 0: no limit"),
    key("load", "extra", Kind::Text, "", "further arguments of the tool"),
    key("disturb", "at", Kind::Number, "0", "time of the disturbance, as a fraction of the measured time"),
    key("disturb", "what", Kind::Word(DISTURBANCES), "scrub", "kind of disturbance"),
    key("disturb", "load", Kind::Text, "", "name of the load that is disturbed; empty: all"),
    key("disturb", "osd", Kind::Int(0), "0", "OSD that is disturbed"),
    key("disturb", "value", Kind::Int(0), "0", "new pg_num, for the disturbance pg_num"),
    key("observe", "every", Kind::Number, "1", "seconds between samples of processes and cluster"),
    key("observe", "counters", Kind::Bool, "true", "perf counters of every daemon before and after each cell"),
    key("observe", "profile", Kind::Bool, "false", "`perf record` of the OSDs during each cell"),
];

/// Sections whose lists are swept.
pub const SWEPT: [&str; 3] = ["cluster", "pool", "load"];

/// Finds a key.
#[must_use]
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.section == section && k.name == name)
}

/// The known key that a mistyped name most resembles.
#[must_use]
pub fn nearest(section: &str, name: &str) -> Option<&'static str> {
    let of = KEYS.iter().filter(|k| k.section == section).map(|k| (distance(k.name, name), k.name));
    of.min().filter(|(d, n)| *d <= 1 + n.len() / 4).map(|(_, n)| n)
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// The value of `cluster.system` that is a bare server instead of OSDs.
const FLOOR: &str = "floor";
/// Largest object of the floor, in bytes.
pub const FLOOR_OBJECT_MAX: u64 = 4 << 20;

/// True if that value of `cluster.system` is the floor.
#[must_use]
pub fn is_floor(system: &str) -> bool {
    system == FLOOR
}

/// Hosts of a cluster, as given to ssh.
pub fn hosts(cluster: &super::Settings) -> impl Iterator<Item = &str> {
    cluster.text("hosts").split(',').map(str::trim).filter(|h| !h.is_empty())
}

/// `k` and `m` of a redundancy such as `4+2`; `None` for copies.
#[must_use]
pub fn shards(redundancy: &str) -> Option<(u32, u32)> {
    let (k, m) = redundancy.split_once('+')?;
    Some((k.trim().parse().ok()?, m.trim().parse().ok()?))
}

impl Kind {
    /// Checks a value given as text; the error says what is accepted.
    pub fn check(self, v: &str) -> Result<(), String> {
        let ok = match self {
            Self::Int(min) => v.parse::<i64>().is_ok_and(|n| n >= min),
            Self::Number => v.parse::<f64>().is_ok_and(|n| n >= 0.0 && n.is_finite()),
            Self::Bool => matches!(v, "true" | "false"),
            Self::Text => true,
            Self::Size => size::parse(v).is_some(),
            Self::Word(words) => words.contains(&v),
            Self::Redundancy => match shards(v) {
                Some((k, m)) => k >= 1 && m >= 1,
                None => v.parse::<u8>().is_ok_and(|n| (1..=10).contains(&n)),
            },
            Self::System => {
                matches!(v, "belemnite" | "ceph")
                    || is_floor(v)
                    || [("ceph:", 5), ("existing:", 9)].iter().any(|(p, n)| v.starts_with(p) && v.len() > *n)
            }
        };
        if ok { Ok(()) } else { Err(format!("{v:?}: expected {}", self.accepts())) }
    }

    fn accepts(self) -> String {
        match self {
            Self::Int(min) => format!("a whole number of at least {min}"),
            Self::Number => "a number of at least 0".into(),
            Self::Bool => "true or false".into(),
            Self::Text => "text".into(),
            Self::Size => "a size such as 4K or 8G".into(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Redundancy => "copies (1 to 10) or shards such as \"4+2\"".into(),
            Self::System => "belemnite, ceph, ceph:ROOT, existing:CEPH_CONF or floor".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_allowed_and_no_key_comes_twice() {
        for (i, k) in KEYS.iter().enumerate() {
            assert_eq!(k.kind.check(k.default), Ok(()), "{}.{}", k.section, k.name);
            assert!(!KEYS[..i].iter().any(|o| (o.section, o.name) == (k.section, k.name)), "{}", k.name);
        }
    }

    #[test]
    fn mistyped_names_are_recognised() {
        assert_eq!(nearest("pool", "pgnum"), Some("pg_num"));
        assert_eq!(nearest("load", "dept"), Some("depth"));
        assert_eq!(nearest("load", "temperature"), None);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
