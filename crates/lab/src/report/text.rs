//! Tables as plain text for a terminal, and as Markdown for documents.

use super::{Group, Pair, above_floor, figure, metrics, pairs, ratio_text, short, varied};
use std::fmt::Write as _;

/// Figures in the short tables.
const SHORT: [&str; 12] = [
    "iops",
    "mib_s",
    "p50_us",
    "p99_us",
    "finish_first_s",
    "finish_median_s",
    "finish_last_s",
    "finish_spread",
    "mds_per_second",
    "busiest_rank_percent",
    "osd_us_per_op",
    "client_us_per_op",
];

fn columns(groups: &[Group<'_>]) -> Vec<(&'static str, &'static str)> {
    metrics(groups).into_iter().filter(|(m, _)| SHORT.contains(m)).collect()
}

/// Rows of the short table: system and load, then medians.
fn rows(groups: &[Group<'_>]) -> Vec<Vec<String>> {
    let (keys, figures) = (varied(groups), columns(groups));
    let keys: Vec<&String> = keys.iter().filter(|k| *k != "cluster.system").collect();
    let mut head = vec!["system".to_owned(), "load".to_owned()];
    head.extend(keys.iter().map(|k| short(k).to_owned()));
    head.extend(figures.iter().map(|(_, name)| (*name).to_owned()));
    head.push("n".into());
    let mut out = vec![head];
    for g in groups {
        let mut row = vec![g.source(), g.load.to_owned()];
        row.extend(keys.iter().map(|k| g.params.get(*k).cloned().unwrap_or_default()));
        row.extend(figures.iter().map(|(m, _)| g.median(m).map_or(String::new(), figure)));
        row.push(g.cells.len().to_string());
        out.push(row);
    }
    out
}

/// Rows of ratios: factor by which the first group is better.
fn ratios(groups: &[Group<'_>]) -> Vec<Vec<String>> {
    let keys = varied(groups);
    let names = |p: &Pair<'_, '_>| vec![p.a.source(), p.b.source(), p.a.label(&keys)];
    factors(groups, &["times better", "than", "load"], &pairs(groups), names)
}

/// Rows of factors by which each system is above the floor.
pub(super) fn floors(groups: &[Group<'_>]) -> Vec<Vec<String>> {
    let keys = varied(groups);
    let names = |p: &Pair<'_, '_>| vec![p.b.source(), p.b.label(&keys)];
    factors(groups, &["times the floor", "load"], &above_floor(groups), names)
}

/// A row for each pair behind a row of heads: its names, and its factor in each figure of the servers. No rows without
/// pairs.
fn factors<'a, 'b>(
    groups: &[Group<'_>],
    heads: &[&str],
    pairs: &[Pair<'a, 'b>],
    names: impl Fn(&Pair<'a, 'b>) -> Vec<String>,
) -> Vec<Vec<String>> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let figures: Vec<_> = columns(groups).into_iter().filter(|(m, _)| *m != "client_us_per_op").collect();
    let mut head: Vec<String> = heads.iter().map(|h| (*h).to_owned()).collect();
    head.extend(figures.iter().map(|(_, name)| (*name).to_owned()));
    let row = |p: &Pair<'a, 'b>| {
        let each = figures.iter().map(|(m, _)| p.better(m).map_or(String::new(), |r| ratio_text(&r)));
        names(p).into_iter().chain(each).collect()
    };
    std::iter::once(head).chain(pairs.iter().map(row)).collect()
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let wide: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|f| f.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for r in rows {
        for (f, w) in r.iter().zip(&wide) {
            let pad = " ".repeat(w - f.chars().count());
            let number = f.starts_with(|c: char| c.is_ascii_digit());
            let _ = if number { write!(out, "{pad}{f}  ") } else { write!(out, "{f}{pad}  ") };
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

fn markdown(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (i, r) in rows.iter().enumerate() {
        let _ = writeln!(out, "| {} |", r.iter().map(|f| f.replace('|', "\\|")).collect::<Vec<_>>().join(" | "));
        if i == 0 {
            let _ = writeln!(out, "|{}", " --- |".repeat(r.len()));
        }
    }
    out
}

/// The tables with the given form: medians, ratios between systems, ratios to the floor.
fn tables(groups: &[Group<'_>], form: fn(&[Vec<String>]) -> String) -> String {
    let further = [ratios(groups), floors(groups)];
    let mut out = form(&rows(groups));
    for table in further.iter().filter(|t| !t.is_empty()) {
        out.push('\n');
        out += &form(table);
    }
    out
}

/// Tables for a terminal: medians, then ratios between systems and to the floor.
#[must_use]
pub fn show(groups: &[Group<'_>]) -> String {
    tables(groups, aligned)
}

/// The same tables as Markdown.
#[must_use]
pub fn to_markdown(groups: &[Group<'_>]) -> String {
    tables(groups, markdown)
}

/// Replaces the text between the marks of this name in a document; `None` if the document has no such marks.
#[must_use]
pub fn replace_between_marks(document: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {name} -->"), format!("<!-- end {name} -->"));
    let from = document.find(&begin)? + begin.len();
    let to = from + document.get(from..)?.find(&end)?;
    Some(format!("{}\n\n{}\n\n{}", document.get(..from)?, text.trim(), document.get(to..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{groups, tests::sample_results};

    #[test]
    fn tables() {
        let all = sample_results();
        let g = groups(&[("", &all)]);
        let text = show(&g);
        assert!(text.contains("belemnite 0.1") && text.contains("50,500"), "{text}");
        assert!(text.contains("times better") && text.contains("5.00 ("), "{text}");
        let md = to_markdown(&g);
        assert!(md.starts_with("| system | load | pg_num | operations per second |"), "{md}");
        assert_eq!(md.lines().filter(|l| l.starts_with("| --- |") || l.starts_with("| ---")).count(), 2);
    }

    #[test]
    fn documents_are_changed_between_marks_only() {
        let doc = "a\n<!-- begin compare -->old<!-- end compare -->\nb\n";
        let new = replace_between_marks(doc, "compare", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- begin compare -->\n\nnew\n\n<!-- end compare -->\nb\n");
        assert_eq!(replace_between_marks(&new, "compare", "new"), Some(new.clone()));
        assert_eq!(replace_between_marks(doc, "other", "x"), None);
    }
}
