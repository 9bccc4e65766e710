//! Part of the report about an archive of small objects: figures beside those that Software Heritage published in 2021
//! of its own cluster, and the longest reads.

use super::svg::escape;
use super::{Group, figure, varied};
use std::fmt::Write as _;

/// Figures of the table: name, text, factor to the unit of the text, and what the study reached or aimed for, on 30
/// machines with disks.
const ROWS: [(&str, &str, f64, &str); 15] = [
    ("put_iops", "objects written per second", 1.0, "goal: 3,000"),
    ("put_mb_s", "MB written per second", 1.0, "131; goal: 100"),
    ("packed_mb_s", "MB packed into images per second", 1.0, ""),
    ("get_iops", "objects read at random per second", 1.0, "goal: 3,000"),
    ("get_mb_s", "MB read at random per second", 1.0, "100 to 270; goal: 100"),
    ("sequential_mb_s", "MB read in order per second", 1.0, ""),
    ("first_byte_p50_us", "first byte, median, ms", 1e-3, "62 on average"),
    ("first_byte_p99_us", "first byte, p99, ms", 1e-3, ""),
    ("first_byte_p99.9_us", "first byte, p99.9, ms", 1e-3, ""),
    ("first_byte_max_us", "first byte, longest, ms", 1e-3, "10,800 while PGs moved"),
    ("first_byte_over_100ms_percent", "first bytes after more than 100 ms, %", 1.0, "17.8 in one run; goal: 0"),
    ("disk_per_payload", "bytes on disk per byte of the objects", 1.0, ""),
    ("osd_us_per_op", "CPU of the OSDs per object, µs", 1.0, ""),
    ("client_us_per_op", "CPU of the clients per object, µs", 1.0, ""),
    ("postgres_us_per_op", "CPU of PostgreSQL per object, µs", 1.0, ""),
];

/// The section; empty if no load is an archive.
#[must_use]
pub fn section(g: &[Group<'_>]) -> String {
    let is = |x: &&Group<'_>| x.params.get("load.job").is_some_and(|j| j == "archive");
    let of: Vec<Group<'_>> = g.iter().filter(is).cloned().collect();
    if of.is_empty() {
        return String::new();
    }
    let keys = varied(&of);
    let name = |x: &Group<'_>| escape(&format!("{}: {}", x.source(), x.label(&keys)));
    let mut out = "<h2>Archive</h2><p>Medians of the repetitions, beside what Software Heritage published of its \
                   cluster of 30 machines (2021).</p><div class=\"wide\"><table><tr><th class=\"t\">figure</th><th>study</th>"
        .to_owned();
    for x in &of {
        let _ = write!(out, "<th>{}</th>", name(x));
    }
    out += "</tr>";
    for (metric, text, factor, study) in ROWS {
        let _ = write!(out, "<tr><td>{text}</td><td>{study}</td>");
        for x in &of {
            // Zero is a figure here: no read was late.
            let value = x.sample(metric).median().map_or(String::new(), |v| figure(v * factor));
            let _ = write!(out, "<td>{value}</td>");
        }
        out += "</tr>";
    }
    out += "</table></div>";
    for x in &of {
        let worst: Vec<f64> = x.cells.iter().flat_map(|c| c.worst.iter().copied()).collect();
        if worst.is_empty() {
            continue;
        }
        let mut worst = worst;
        worst.sort_by(|a, b| b.total_cmp(a));
        let words: Vec<String> = worst.iter().take(100).map(|us| figure(us / 1e3)).collect();
        let _ = write!(
            out,
            "<details><summary>{}: the {} longest reads, ms</summary><p>{}</p></details>",
            name(x),
            words.len(),
            words.join(" · ")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::groups;
    use crate::report::tests::sample_results;

    #[test]
    fn an_archive_stands_beside_the_study_and_other_loads_do_not() {
        let mut all = sample_results();
        assert_eq!(section(&groups(&[("", &all)])), "");
        for c in &mut all {
            c.params.insert("load.job".into(), "archive".into());
            c.metrics.insert("first_byte_p99.9_us".into(), 81_500.0);
            c.metrics.insert("first_byte_over_100ms_percent".into(), 0.0);
            c.worst = (0..100).map(|i| f64::from(i) * 1000.0).collect();
        }
        let text = section(&groups(&[("", &all)]));
        assert!(text.contains("<td>first byte, p99.9, ms</td><td></td><td>81.5</td>"), "{text}");
        assert!(text.contains("<td>17.8 in one run; goal: 0</td><td>0.00</td>"), "no late read is a figure: {text}");
        assert!(text.contains("the 100 longest reads, ms</summary><p>99.0 · 99.0 · 99.0 · 98.0"), "{text}");
    }
}
