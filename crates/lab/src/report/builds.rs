//! Part of the report about loads of builds: the times at which equal clients finish, and the requests of each rank of
//! the file system over time.

use super::svg::{self, Lines, escape};
use super::{Group, figure, varied};
use std::fmt::Write as _;

/// Largest number of groups whose ranks are plotted.
const PLOTS_MAX: usize = 24;

/// The section; empty if no load has builds.
#[must_use]
pub fn section(g: &[Group<'_>]) -> String {
    let g: Vec<&Group<'_>> = g.iter().filter(|x| x.cells.iter().any(|c| !c.finishes.is_empty())).collect();
    if g.is_empty() {
        return String::new();
    }
    format!(
        "<h2>Builds</h2><p>Seconds until each client finished, in order, of the first repetition.</p>\
         <div class=\"wide\">{}</div><div class=\"plots\">{}</div>",
        table(&g),
        plots(&g)
    )
}

fn name(x: &Group<'_>, keys: &[String]) -> String {
    format!("{}: {}", x.source(), x.label(keys))
}

/// Keys in which groups differ, for their names.
fn keys(g: &[&Group<'_>]) -> Vec<String> {
    let all: Vec<Group<'_>> = g.iter().map(|x| (*x).clone()).collect();
    varied(&all)
}

/// Finishing times of the first repetition, in order.
fn finishes(x: &Group<'_>) -> Vec<f64> {
    let mut all = x.cells.first().map(|c| c.finishes.clone()).unwrap_or_default();
    all.sort_by(f64::total_cmp);
    all
}

fn table(g: &[&Group<'_>]) -> String {
    let keys = keys(g);
    let most = g.iter().map(|x| finishes(x).len()).max().unwrap_or(0);
    let mut out = "<table><tr><th class=\"t\">load</th>".to_owned();
    for i in 1..=most {
        let _ = write!(out, "<th>{i}</th>");
    }
    out += "</tr>";
    for x in g {
        let _ = write!(out, "<tr><td>{}</td>", escape(&name(x, &keys)));
        let all = finishes(x);
        for i in 0..most {
            let _ = write!(out, "<td>{}</td>", all.get(i).map_or(String::new(), |s| figure(*s)));
        }
        out += "</tr>";
    }
    out += "</table>";
    out
}

fn plots(g: &[&Group<'_>]) -> String {
    let keys = keys(g);
    let clients = |x: &&Group<'_>| {
        let points = finishes(x).into_iter().enumerate().map(|(i, s)| ((i + 1) as f64, s)).collect();
        (name(x, &keys), points)
    };
    let mut out = svg::lines(&Lines {
        title: "Seconds until a client finished".into(),
        x: "clients".into(),
        series: g.iter().take(PLOTS_MAX).map(clients).collect(),
        ..Lines::default()
    });
    for x in g.iter().take(PLOTS_MAX) {
        let Some(c) = x.cells.first().filter(|c| !c.ranks.is_empty()) else { continue };
        out += &svg::lines(&Lines {
            title: format!("{}: requests per second of each rank", name(x, &keys)),
            x: "seconds".into(),
            series: c.ranks.iter().map(|(rank, points)| (format!("rank {rank}"), points.clone())).collect(),
            ..Lines::default()
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::groups;
    use crate::report::tests::sample_results;

    #[test]
    fn builds_have_a_section_and_others_have_none() {
        let mut all = sample_results();
        assert_eq!(section(&groups(&[("", &all)])), "");
        for c in &mut all {
            c.finishes = vec![31.5, 12.25];
            c.ranks = [(0, vec![(1.0, 50.0), (2.0, 80.0)]), (1, vec![(1.0, 5.0)])].into();
        }
        let text = section(&groups(&[("", &all)]));
        assert!(text.contains("<td>12.2</td><td>31.5</td>"), "{text}");
        assert!(text.contains("requests per second of each rank") && text.contains("rank 1"));
        // One plot of all groups, and one for each.
        assert_eq!(text.matches("<svg").count(), 1 + 4);
    }
}
