//! Compression of pools: the options of maps, and the OSD's own for pools that have none.
//!
//! The store of each reactor is told of a pool's settings when a map or the OSD's options change them. Each OSD
//! compresses for itself: peers, clients and scrubs see the data as it was written.

use base::PoolId;
use cluster::pool::PoolOpt;
use cluster::{OsdMap, PgPool};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::ObjectStore;
use store::compress::{Algorithm, Compression, Mode};

/// Least and most bytes of a compressed range where neither pool nor OSD says.
const MIN_BLOB: u64 = 8 << 10;
const MAX_BLOB: u64 = 64 << 10;
/// Part of its size that compressed data may take, where neither pool nor OSD says.
const REQUIRED_RATIO: f64 = 0.875;

/// The OSD's options for pools that have none of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    mode: Option<Mode>,
    algorithm: Option<Algorithm>,
    zlib_level: i32,
    zstd_level: i32,
    required_ratio: f64,
    min_blob: u64,
    max_blob: u64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            mode: None,
            algorithm: Some(Algorithm::Snappy),
            zlib_level: Algorithm::Zlib.usual_level(),
            zstd_level: Algorithm::Zstd.usual_level(),
            required_ratio: REQUIRED_RATIO,
            min_blob: MIN_BLOB,
            max_blob: MAX_BLOB,
        }
    }
}

fn mode_named(name: &str) -> Option<Mode> {
    match name {
        "passive" => Some(Mode::Passive),
        "aggressive" => Some(Mode::Aggressive),
        "force" => Some(Mode::Force),
        _ => None,
    }
}

/// Bytes with a binary suffix or none.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['i', 'B']);
    let (digits, shift) = match text.strip_suffix(['K', 'k']) {
        Some(t) => (t, 10),
        None => text.strip_suffix('M').map_or((text, 0), |t| (t, 20)),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl Defaults {
    /// True for options that [`Defaults::take`] reads.
    #[must_use]
    pub fn observes(name: &str) -> bool {
        name.starts_with("bluestore_compression_") || matches!(name, "compressor_zlib_level" | "compressor_zstd_level")
    }

    /// Reads the options in force.
    #[must_use]
    pub fn take<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let or = Self::default();
        let size = |n: &str, d: u64| get(n).and_then(bytes).filter(|n| *n > 0).unwrap_or(d);
        let level =
            |n: &str, of: Algorithm| get(n).and_then(|t| t.trim().parse::<i32>().ok()).unwrap_or(of.usual_level());
        let ratio = get("bluestore_compression_required_ratio").and_then(|t| t.trim().parse::<f64>().ok());
        Self {
            mode: get("bluestore_compression_mode").and_then(|t| mode_named(t.trim())),
            algorithm: get("bluestore_compression_algorithm").map_or(or.algorithm, |t| Algorithm::named(t.trim())),
            zlib_level: level("compressor_zlib_level", Algorithm::Zlib),
            zstd_level: level("compressor_zstd_level", Algorithm::Zstd),
            required_ratio: ratio.filter(|r| (0.0..=1.0).contains(r)).unwrap_or(or.required_ratio),
            min_blob: size("bluestore_compression_min_blob_size", or.min_blob),
            max_blob: size("bluestore_compression_max_blob_size", or.max_blob),
        }
    }

    /// Settings of a pool; `None` if nothing of it is compressed.
    #[must_use]
    pub fn of_pool(&self, p: &PgPool) -> Option<Compression> {
        let text = |name: &str| match p.opt(name) {
            Some(PoolOpt::Str(s)) => Some(s.as_str()),
            _ => None,
        };
        let size = |name: &str, d: u64| match p.opt(name) {
            Some(PoolOpt::Int(n)) if *n > 0 => *n as u64,
            _ => d,
        };
        let required_ratio = match p.opt("compression_required_ratio") {
            Some(PoolOpt::Float(f)) if (0.0..=1.0).contains(f) => *f,
            _ => self.required_ratio,
        };
        let mode = text("compression_mode").map_or(self.mode, mode_named)?;
        let algorithm = text("compression_algorithm").map_or(self.algorithm, Algorithm::named)?;
        let level = match algorithm {
            Algorithm::Zlib => self.zlib_level,
            Algorithm::Zstd => self.zstd_level,
            Algorithm::Lz4 | Algorithm::Snappy => algorithm.usual_level(),
        };
        Some(Compression {
            mode,
            algorithm,
            level,
            required_ratio,
            min_blob: size("compression_min_blob_size", self.min_blob),
            max_blob: size("compression_max_blob_size", self.max_blob),
        })
    }
}

/// Settings that a reactor's store has.
#[derive(Debug, Default)]
pub(super) struct Told {
    defaults: Defaults,
    pools: BTreeMap<PoolId, Compression>,
    /// Pools of the map that was applied last.
    seen: Option<Arc<BTreeMap<PoolId, Arc<PgPool>>>>,
}

impl Told {
    /// Tells the store what a map changes.
    pub(super) fn follow(&mut self, map: &OsdMap, store: &mut dyn ObjectStore) {
        if self.seen.as_ref().is_some_and(|s| Arc::ptr_eq(s, &map.pools)) {
            return;
        }
        self.seen = Some(map.pools.clone());
        self.tell(store);
    }

    /// Applies the OSD's own options.
    pub(super) fn set_defaults(&mut self, defaults: Defaults, store: &mut dyn ObjectStore) {
        self.defaults = defaults;
        self.tell(store);
    }

    fn tell(&mut self, store: &mut dyn ObjectStore) {
        let Some(pools) = &self.seen else { return };
        let settings = pools.iter().filter_map(|(id, p)| Some((*id, self.defaults.of_pool(p)?)));
        let now: BTreeMap<PoolId, Compression> = settings.collect();
        for id in self.pools.keys().filter(|id| !now.contains_key(id)) {
            store.set_compression(*id, None);
        }
        for (id, how) in now.iter().filter(|(id, how)| self.pools.get(id) != Some(how)) {
            store.set_compression(*id, Some(*how));
        }
        self.pools = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::pool::POOL_OPT_NAMES;

    fn pool(opts: &[(&str, PoolOpt)]) -> PgPool {
        let mut p = PgPool::default();
        for (name, v) in opts {
            let key = POOL_OPT_NAMES.iter().position(|n| n == name).unwrap();
            p.opts.insert(key as i32, v.clone());
        }
        p
    }

    #[test]
    fn a_pools_options_precede_those_of_the_osd() {
        let text = |s: &str| PoolOpt::Str(s.into());
        let off = Defaults::default();
        assert_eq!(off.of_pool(&pool(&[])), None);
        assert_eq!(off.of_pool(&pool(&[("compression_algorithm", text("lz4"))])), None);
        let how = off.of_pool(&pool(&[("compression_mode", text("force"))])).unwrap();
        let snappy = Algorithm::Snappy;
        let plain = Compression {
            mode: Mode::Force,
            algorithm: snappy,
            level: 0,
            required_ratio: 0.875,
            min_blob: 8192,
            max_blob: 65536,
        };
        assert_eq!(how, plain);
        let given = BTreeMap::from([
            ("bluestore_compression_mode", "aggressive"),
            ("bluestore_compression_algorithm", "zstd"),
            ("bluestore_compression_required_ratio", "0.5"),
            ("compressor_zlib_level", "1"),
            ("compressor_zstd_level", "23"),
            ("bluestore_compression_min_blob_size", "16K"),
            ("bluestore_compression_max_blob_size", "1048576"),
        ]);
        let on = Defaults::take(|n| given.get(n).copied());
        let how = on.of_pool(&pool(&[])).unwrap();
        // zstd has no level 23. The store takes the nearest one.
        assert_eq!((how.mode, how.algorithm, how.level), (Mode::Aggressive, Algorithm::Zstd, 23));
        assert_eq!(how.required_ratio, 0.5);
        assert_eq!((how.min_blob, how.max_blob), (16 << 10, 1 << 20));
        assert_eq!(on.of_pool(&pool(&[("compression_mode", text("none"))])), None);
        assert_eq!(on.of_pool(&pool(&[("compression_algorithm", text("none"))])), None);
        let all = [
            ("compression_mode", text("passive")),
            ("compression_algorithm", text("zlib")),
            ("compression_required_ratio", PoolOpt::Float(0.7)),
            ("compression_min_blob_size", PoolOpt::Int(4096)),
            ("compression_max_blob_size", PoolOpt::Int(131_072)),
        ];
        let how = on.of_pool(&pool(&all)).unwrap();
        let want = Compression {
            mode: Mode::Passive,
            algorithm: Algorithm::Zlib,
            level: 1,
            required_ratio: 0.7,
            min_blob: 4096,
            max_blob: 131_072,
        };
        assert_eq!(how, want);
        assert_eq!(Defaults::take(|_| Some("nonsense")), Defaults { algorithm: None, ..off });
    }
}
