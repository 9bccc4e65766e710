//! The content of an erasure-code profile: defaults, checks, and the shape of the pools that use it.
//!
//! Ceph asks a plugin for this (`ErasureCodeInterface::init`, `get_chunk_size`). Here it is arithmetic on the
//! profile's text, with the defaults, limits and texts of the plugins `jerasure` and `isa`. A profile that the OSDs
//! cannot encode is refused with EOPNOTSUPP, before a pool can use it.

use crate::command::units::{strict_iec, strict_int};
use crate::command::{Refused, Res, invalid, refuse};
use base::errno;
use cluster::CrushMap;
use ec::Technique;
use std::collections::BTreeMap;

/// The keys and values of a profile.
pub(in crate::command) type Profile = BTreeMap<String, String>;

/// Most shards of a pool: 16 + 4.
const SHARDS_MAX: usize = 20;
/// Bytes of which a chunk is a multiple: a block of the store.
const CHUNK_UNIT: u32 = 4096;
/// Largest chunk in bytes.
const CHUNK_MAX: u32 = 256 << 10;
/// Bytes of which chunks of both plugins are multiples.
const ALIGNMENT: u64 = 32;
/// Bytes of which chunks are multiples with `jerasure-per-chunk-alignment`.
const ALIGNMENT_PER_CHUNK: u64 = 128;
/// Techniques of the plugin `jerasure`.
const JERASURE: [&str; 7] =
    ["reed_sol_van", "reed_sol_r6_op", "cauchy_orig", "cauchy_good", "liberation", "blaum_roth", "liber8tion"];
/// Plugins of Ceph that the OSDs of this program do not have.
const OTHER_PLUGINS: [&str; 3] = ["lrc", "shec", "clay"];
/// Profile keys about the placement of shards.
const CRUSH_KEYS: [&str; 3] = ["crush-root", "crush-failure-domain", "crush-device-class"];

/// The shape of the pools that use a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) struct Shape {
    /// Data shards.
    pub(in crate::command) k: u8,
    /// Coding shards.
    pub(in crate::command) m: u8,
}

impl Shape {
    /// Number of shards of a PG: the pool's `size`.
    pub(in crate::command) fn size(self) -> u8 {
        self.k + self.m
    }

    /// The pool's `min_size`: `k + 1`, one shard more than a read needs, if `m` is at least 2; else `k`.
    pub(in crate::command) fn min_size(self) -> u8 {
        self.k + (self.m - 1).min(1)
    }
}

/// A profile as text, in Ceph's form.
pub(crate) fn text(p: &Profile) -> String {
    let v: Vec<String> = p.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", v.join(","))
}

/// The profile of the words of `erasure-code-profile set` over the configured defaults. The defaults count only if
/// the plugin is the same.
pub(crate) fn parse(words: &[String], defaults: &str) -> Res<Profile> {
    let mut given = Profile::new();
    for w in words {
        let (k, v) = w.split_once('=').unwrap_or((w, ""));
        if let Some(rest) = k.strip_prefix("ruleset-") {
            return invalid(format!("property '{k}' is no longer supported; try 'crush-{rest}' instead"));
        }
        given.insert(k.to_owned(), v.to_owned());
    }
    let mut p: Profile = defaults
        .split_whitespace()
        .filter_map(|w| w.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    if given.get("plugin").is_some_and(|plugin| p.get("plugin") != Some(plugin)) {
        p.clear();
    }
    p.extend(given);
    Ok(p)
}

/// Refuses a failure domain that is no bucket type of the CRUSH map.
pub(crate) fn check_failure_domain(p: &Profile, crush: &CrushMap) -> Res<()> {
    match p.get("crush-failure-domain") {
        Some(d) if crush.type_id(d).is_none() => {
            invalid(format!("erasure-code-profile {} contains an invalid failure-domain \"{d}\"", text(p)))
        }
        _ => Ok(()),
    }
}

/// Sets a key that is missing or empty.
fn fill(p: &mut Profile, key: &str, value: &str) {
    let v = p.entry(key.to_owned()).or_default();
    if v.is_empty() {
        value.clone_into(v);
    }
}

/// A number of the profile. A missing one becomes `default`, which is written into the profile.
fn number(p: &mut Profile, key: &str, default: &str) -> Res<i64> {
    fill(p, key, default);
    let v = p.get(key).map_or("", String::as_str);
    strict_int(v).map_err(|e| {
        Refused::new(errno::EINVAL, format!("could not convert {key}={v} to int because {e}, set to default {default}"))
    })
}

/// Fills in the defaults of a profile's plugin, checks the profile and returns its shape. `force` allows a stripe
/// unit that is no multiple of 4096 bytes.
pub(in crate::command) fn complete(p: &mut Profile, force: bool) -> Res<Shape> {
    let plugin = p.get("plugin").cloned().unwrap_or_default();
    if !matches!(plugin.as_str(), "jerasure" | "isa") {
        let known = if OTHER_PLUGINS.contains(&plugin.as_str()) { "supported" } else { "known" };
        return refuse(
            errno::EOPNOTSUPP,
            format!("erasure-code plugin '{plugin}' is not {known} here; use 'jerasure' or 'isa'"),
        );
    }
    if let Some(key) = p.keys().find(|k| k.starts_with("crush-") && !CRUSH_KEYS.contains(&k.as_str())) {
        return refuse(
            errno::EOPNOTSUPP,
            format!("property '{key}' is not supported here: rules are made from {}", CRUSH_KEYS.join(", ")),
        );
    }
    if p.get("mapping").is_some_and(|m| !m.is_empty()) {
        return refuse(
            errno::EOPNOTSUPP,
            "property 'mapping' is not supported here: shards are in the order of chunks",
        );
    }
    for (key, v) in [("crush-root", "default"), ("crush-failure-domain", "host")] {
        fill(p, key, v);
    }
    p.entry("crush-device-class".into()).or_default();
    fill(p, "technique", "reed_sol_van");
    let technique = technique(&plugin, p.get("technique").map_or("", String::as_str))?;
    let (k, m) = (number(p, "k", "7")?, number(p, "m", if technique == Technique::JerasureRaid6 { "2" } else { "3" })?);
    for (key, n, least) in [("k", k, 2), ("m", m, 1)] {
        if n < least {
            return invalid(format!("{key}={n} must be >= {least}"));
        }
    }
    if plugin == "jerasure" {
        check_word(p, technique)?;
    }
    check_technique(technique, k, m)?;
    let shape = usize::try_from(k).ok().zip(usize::try_from(m).ok()).filter(|(k, m)| k + m <= SHARDS_MAX);
    let Some((k, m)) = shape.filter(|(k, m)| technique.shape_is_valid(*k, *m)) else {
        return refuse(errno::EOPNOTSUPP, format!("k={k} m={m} is not supported here: at most {SHARDS_MAX} shards"));
    };
    check_stripe_unit(p, &plugin, force)?;
    // Both numbers are at most SHARDS_MAX.
    Ok(Shape { k: k as u8, m: m as u8 })
}

fn technique(plugin: &str, name: &str) -> Res<Technique> {
    if let Some(t) = Technique::from_profile(plugin, name) {
        return Ok(t);
    }
    if plugin == "jerasure" && JERASURE.contains(&name) {
        return refuse(
            errno::EOPNOTSUPP,
            format!("technique={name} of {plugin} is not supported here; use reed_sol_van or reed_sol_r6_op"),
        );
    }
    let all = if plugin == "isa" { " reed_sol_van,cauchy".to_owned() } else { format!(" {}", JERASURE.join(", ")) };
    refuse(
        errno::ENOENT,
        format!("technique={name} is not a valid coding technique.  Choose one of the following:{all}"),
    )
}

/// Checks `w` and `jerasure-per-chunk-alignment` of jerasure.
fn check_word(p: &mut Profile, technique: Technique) -> Res<()> {
    let name = if technique == Technique::JerasureRaid6 { "ReedSolomonRAID6" } else { "ReedSolomonVandermonde" };
    match number(p, "w", "8")? {
        8 => {}
        w @ (16 | 32) => {
            return refuse(errno::EOPNOTSUPP, format!("w={w} is not supported here: codes are of bytes, w=8"));
        }
        w => return invalid(format!("{name}: w={w} must be one of {{8, 16, 32}} : revert to 8")),
    }
    if technique == Technique::JerasureVandermonde {
        fill(p, "jerasure-per-chunk-alignment", "false");
    }
    Ok(())
}

/// Checks the limits of each technique, with the plugins' texts.
fn check_technique(technique: Technique, k: i64, m: i64) -> Res<()> {
    match technique {
        Technique::JerasureRaid6 if m != 2 => {
            invalid(format!("ReedSolomonRAID6: m={m} must be 2 for RAID6: revert to 2"))
        }
        Technique::IsaVandermonde if k > 32 => {
            invalid(format!("Vandermonde: m={m} should be less/equal than 32 : revert to k=32"))
        }
        Technique::IsaVandermonde if m > 4 => {
            invalid(format!("Vandermonde: m={m} should be less than 5 to guarantee an MDS codec: revert to m=4"))
        }
        Technique::IsaVandermonde if m == 4 && k > 21 => invalid(format!(
            "Vandermonde: k={k} should be less than 22 to guarantee an MDS codec with m=4: revert to k=21"
        )),
        _ => Ok(()),
    }
}

fn check_stripe_unit(p: &Profile, plugin: &str, force: bool) -> Res<()> {
    let Some(v) = p.get("stripe_unit") else { return Ok(()) };
    let unit = strict_iec(v)
        .map_err(|e| Refused::new(errno::EINVAL, format!("could not parse stripe_unit '{v}': {e}")))
        .map(|n| n.unsigned_abs())?;
    let per_chunk = plugin == "jerasure" && p.get("jerasure-per-chunk-alignment").is_some_and(|v| v == "true");
    let padded = unit.next_multiple_of(if per_chunk { ALIGNMENT_PER_CHUNK } else { ALIGNMENT });
    if unit == 0 || unit > u64::from(u32::MAX) {
        return invalid(format!("stripe_unit {v} must be from {CHUNK_UNIT} to {CHUNK_MAX} bytes"));
    }
    if padded != unit {
        return invalid(format!("stripe_unit {unit} does not match ec profile alignment. Would be padded to {padded}"));
    }
    if !unit.is_multiple_of(u64::from(CHUNK_UNIT)) && !force {
        return invalid(
            "stripe_unit should be a multiple of 4096 bytes for best performance.use --force to override this check",
        );
    }
    Ok(())
}

/// Bytes of a stripe of a pool; `default` is the stripe unit of profiles without one.
pub(in crate::command) fn stripe_width(p: &Profile, shape: Shape, default: &str) -> Res<u32> {
    let v = p.get("stripe_unit").map_or(default, String::as_str);
    let chunk = strict_iec(v).ok().and_then(|n| u32::try_from(n).ok());
    match chunk {
        Some(n) if n > 0 && n <= CHUNK_MAX && n.is_multiple_of(CHUNK_UNIT) => Ok(n * u32::from(shape.k)),
        _ => refuse(
            errno::EOPNOTSUPP,
            format!("stripe_unit {v} is not supported here: use a multiple of {CHUNK_UNIT} up to {CHUNK_MAX} bytes"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(words: &[&str]) -> Res<(Profile, Shape)> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let mut p = parse(&words, "plugin=jerasure technique=reed_sol_van k=2 m=2")?;
        let shape = complete(&mut p, false)?;
        Ok((p, shape))
    }

    #[test]
    fn every_shape_from_2_1_to_16_4_is_accepted_if_its_technique_has_it() {
        for (plugin, technique) in
            [("jerasure", "reed_sol_van"), ("jerasure", "reed_sol_r6_op"), ("isa", "reed_sol_van"), ("isa", "cauchy")]
        {
            for k in 2..=16u8 {
                for m in 1..=4u8 {
                    let words = [format!("k={k}"), format!("m={m}")];
                    let words = [&format!("plugin={plugin}"), &format!("technique={technique}"), &words[0], &words[1]];
                    let got = done(&words.map(String::as_str)).map(|(_, s)| s);
                    if technique == "reed_sol_r6_op" && m != 2 {
                        assert_eq!(got.map_err(|e| e.rc), Err(errno::EINVAL), "{words:?}");
                    } else {
                        assert_eq!(got, Ok(Shape { k, m }), "{words:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_code_that_the_osds_lack_is_refused() {
        for words in [
            &["plugin=lrc", "k=4", "m=2", "l=3"][..],
            &["plugin=clay", "k=4", "m=2"],
            &["plugin=shec", "k=4", "m=3", "c=2"],
            &["technique=cauchy_good", "k=4", "m=2"],
            &["technique=liberation", "k=4", "m=2"],
            &["k=4", "m=2", "w=16"],
            &["k=300", "m=2"],
            &["k=17", "m=4"],
            &["k=9223372036854775807", "m=9223372036854775807"],
            &["k=2", "m=1", "mapping=_DD"],
            &["k=2", "m=1", "crush-num-failure-domains=3"],
            &["k=2", "m=1", "crush-osds-per-failure-domain=2"],
        ] {
            assert_eq!(done(words).map_err(|e| e.rc), Err(errno::EOPNOTSUPP), "{words:?}");
        }
    }

    #[test]
    fn min_size_is_k_plus_one_if_two_shards_may_be_lost() {
        let all = [(2, 1, 2), (2, 2, 3), (4, 2, 5), (6, 3, 7)];
        for (k, m, min) in all {
            assert_eq!(Shape { k, m }.min_size(), min);
        }
    }

    #[test]
    fn chunks_are_whole_blocks_up_to_256_kib() {
        let shape = Shape { k: 4, m: 2 };
        let width = |unit: &str| {
            let p = Profile::from([("stripe_unit".to_owned(), unit.to_owned())]);
            stripe_width(&p, shape, "4096").map_err(|e| e.rc)
        };
        assert_eq!(stripe_width(&Profile::new(), shape, "4096"), Ok(16384));
        assert_eq!((width("16K"), width("262144")), (Ok(65536), Ok(1 << 20)));
        for unit in ["0", "1024", "266240", "-4096", "huh", "99999999999999"] {
            assert_eq!(width(unit), Err(errno::EOPNOTSUPP), "{unit}");
        }
    }
}
