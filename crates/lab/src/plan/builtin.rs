//! Built-in plans: the published studies, each at full size and `small`.

/// Name and text of each plan.
pub const PLANS: [(&str, &str); 17] = [
    ("compare", include_str!("../../plans/compare.toml")),
    ("cpu-per-operation", include_str!("../../plans/cpu-per-operation.toml")),
    ("floor", include_str!("../../plans/floor.toml")),
    ("reactors", include_str!("../../plans/reactors.toml")),
    ("osd-cpu-scaling", include_str!("../../plans/osd-cpu-scaling.toml")),
    ("osds-per-device", include_str!("../../plans/osds-per-device.toml")),
    ("pg-count", include_str!("../../plans/pg-count.toml")),
    ("ec-and-encryption", include_str!("../../plans/ec-and-encryption.toml")),
    ("node-scaling", include_str!("../../plans/node-scaling.toml")),
    ("million-iops", include_str!("../../plans/million-iops.toml")),
    ("recovery-impact", include_str!("../../plans/recovery-impact.toml")),
    ("rados-bench-2017", include_str!("../../plans/rados-bench-2017.toml")),
    ("small-objects", include_str!("../../plans/small-objects.toml")),
    ("archive", include_str!("../../plans/archive.toml")),
    ("s3", include_str!("../../plans/s3.toml")),
    ("file-metadata", include_str!("../../plans/file-metadata.toml")),
    ("kernel-build", include_str!("../../plans/kernel-build.toml")),
];

/// Text of the built-in plan of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    PLANS.iter().find(|(n, _)| *n == name).map(|(_, t)| *t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, estimate};

    #[test]
    fn readers_of_the_archive_do_not_write_at_either_size() {
        for small in [false, true] {
            let p = plan::parse(find("archive").unwrap(), "archive", small, &[]).unwrap();
            let cells = p.cells();
            for (load, writers, readers) in [
                ("writers and packers", true, false),
                ("random readers", false, true),
                ("sequential readers", false, false),
                ("writers, packers and readers", true, true),
                ("readers, an OSD lost", false, true),
                ("readers, deep scrub", false, true),
            ] {
                let c = cells.iter().find(|c| c.load_name() == load).unwrap();
                assert_eq!((c.load.int("writers") > 0, c.load.int("readers") > 0), (writers, readers), "{load}");
            }
        }
    }

    #[test]
    fn every_plan_is_sound_at_both_sizes() {
        for (name, text) in PLANS {
            for small in [false, true] {
                let p = plan::parse(text, name, small, &[]).unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(p.name(), name);
                assert!(!p.head.text("about").is_empty(), "{name}");
                let cells = p.cells();
                let e = estimate::estimate(&cells);
                assert!(!cells.is_empty());
                if small {
                    // Both systems are measured within 20 minutes and fit on a laptop's disk.
                    assert!(e.time.as_secs() <= 20 * 60, "{name}: {e:?}");
                    assert!(e.space <= 25 << 30, "{name}: {e:?}");
                }
            }
        }
    }
}
