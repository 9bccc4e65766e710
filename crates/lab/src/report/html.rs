//! The report: one self-contained HTML file without scripts.

use super::svg::{self, Lines, escape};
use super::{Group, archive, builds, figure, groups, metrics, pairs, ratio_text, short, varied};
use crate::findings::Finding;
use crate::result::CellResult;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1180px;padding:0 1rem;color:#1b1b1b}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid #ddd}table{border-collapse:collapse;font-size:13px;margin:.6rem 0}\
td,th{padding:.2rem .6rem;border-bottom:1px solid #e5e5e5;text-align:right;white-space:nowrap}td:first-child,th:first-child,td.t,th.t{text-align:left}\
th{font-weight:600;white-space:normal;vertical-align:bottom}.s{color:#777;font-size:11px}.f{padding:.35rem .7rem;margin:.3rem 0;background:#fff4e5;border-left:4px solid #d55e00}\
.n{background:#eef3f8;border-left-color:#0072b2}.plots{display:flex;flex-wrap:wrap;gap:1rem}svg .t{font:600 13px sans-serif}svg .g{stroke:#e6e6e6}svg .a{stroke:#444}\
svg .e{font:11px sans-serif;text-anchor:end}svg .m{font:11px sans-serif;text-anchor:middle}svg .l{font:11px sans-serif}.wide{overflow-x:auto}";

/// Content security policy that forbids the browser every request, whatever names and texts are in the report.
const POLICY: &str =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";

/// Contents of a report.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Title of the report.
    pub title: &'a str,
    /// Runs by name; a single run has an empty name.
    pub runs: Vec<(&'a str, &'a [CellResult])>,
    /// Facts about the machine.
    pub about: &'a Value,
    /// Findings and notes.
    pub findings: &'a [Finding],
    /// Failed cells, each with its error.
    pub failures: &'a [(String, String)],
    /// The plan's text.
    pub plan: &'a str,
}

/// Points of each curve, by the curve's name.
type Curves = BTreeMap<String, Vec<(f64, f64)>>;

/// Figures that are plotted.
const PLOTTED: [(&str, &str); 5] = [
    ("iops", "Operations per second"),
    ("mib_s", "MiB per second"),
    ("p99_us", "p99 latency, µs"),
    ("osd_us_per_op", "CPU of the OSDs per operation, µs"),
    ("iops_per_osd_core", "Operations per second and core of the OSDs"),
];
/// Largest number of series in a plot.
const SERIES_MAX: usize = 16;
/// Largest number of time series.
const TIMES_MAX: usize = 48;

/// Text of the HTML file.
#[must_use]
pub fn html(r: &Report<'_>) -> String {
    let g = groups(&r.runs);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{POLICY}<title>{t}</title><style>{STYLE}</style></head><body><h1>{t}</h1>",
        t = escape(r.title)
    );
    place(&mut out, r);
    found(&mut out, r);
    let pairs = pair_table(&g);
    if !pairs.is_empty() {
        let _ = write!(
            out,
            "<h2>Ratios</h2><p>How many times better the first is: more operations, less time. In brackets the 95 % confidence interval.</p>{pairs}"
        );
    }
    let floors = floor_table(&g);
    if !floors.is_empty() {
        let _ = write!(
            out,
            "<h2>Above the floor</h2><p>Factor to a bare server that does only frames and disk: 1 is the least possible. In brackets the 95 % confidence interval.</p>{floors}"
        );
    }
    let _ = write!(out, "<h2>Plots</h2><div class=\"plots\">{}</div>", plots(&g));
    let _ = write!(
        out,
        "<h2>Figures</h2><p>Medians, with least and greatest of the repetitions.</p><div class=\"wide\">{}</div>",
        table(&g)
    );
    out += &builds::section(&g);
    out += &archive::section(&g);
    let _ = write!(out, "<h2>Latencies</h2><div class=\"plots\">{}</div>", distributions(&g));
    let _ = write!(
        out,
        "<h2>Time series</h2><details><summary>Second by second, the first repetition of each</summary><div class=\"plots\">{}</div></details>",
        times(&g)
    );
    if !r.plan.is_empty() {
        let _ = write!(
            out,
            "<h2>Plan</h2><details><summary>As it was run</summary><pre>{}</pre></details>",
            escape(r.plan)
        );
    }
    out += "</body></html>\n";
    out
}

fn place(out: &mut String, r: &Report<'_>) {
    let m = &r.about["machine"];
    let text = |k: &str| match &m[k] {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        v => v.to_string(),
    };
    let cells: usize = r.runs.iter().map(|(_, c)| c.len()).sum();
    let _ = write!(
        out,
        "<p>{cells} measurements. {} with {} cores and {} MiB, Linux {}; stores on {}.</p>",
        escape(&text("cpu")),
        escape(&text("cores")),
        escape(&text("memory_mib")),
        escape(&text("kernel")),
        escape(r.about["file_system"].as_str().unwrap_or("unknown"))
    );
}

fn found(out: &mut String, r: &Report<'_>) {
    *out += "<h2>Findings</h2>";
    if r.findings.is_empty() {
        *out += "<p>None.</p>";
    }
    // Equal findings of several cells share a line.
    let mut by: BTreeMap<(&str, &str), Vec<&Finding>> = BTreeMap::new();
    for f in r.findings {
        let what = f.about.rsplit_once(" (").map_or(f.about.as_str(), |(a, _)| a);
        by.entry((f.kind, what)).or_default().push(f);
    }
    for ((kind, what), all) in &by {
        let Some(first) = all.first() else { continue };
        let class = if first.about == "run" { "f n" } else { "f" };
        let more = if all.len() > 1 { format!(" (and {} more)", all.len() - 1) } else { String::new() };
        let _ = write!(
            out,
            "<div class=\"{class}\"><b>{}</b> {}: {}{more}</div>",
            escape(kind),
            escape(what),
            escape(&first.text)
        );
    }
    for (id, why) in r.failures {
        let _ = write!(
            out,
            "<div class=\"f\"><b>failed</b> {}: {}</div>",
            escape(id),
            escape(why.lines().next().unwrap_or_default())
        );
    }
}

fn table(g: &[Group<'_>]) -> String {
    let (keys, figures) = (varied(g), metrics(g));
    let keys: Vec<&String> = keys.iter().filter(|k| *k != "cluster.system").collect();
    let mut out = "<table><tr><th class=\"t\">system</th><th class=\"t\">load</th>".to_owned();
    for k in &keys {
        let _ = write!(out, "<th>{}</th>", escape(short(k)));
    }
    for (_, name) in &figures {
        let _ = write!(out, "<th>{}</th>", escape(name));
    }
    out += "<th>n</th></tr>";
    for x in g {
        let _ = write!(out, "<tr><td class=\"t\">{}</td><td class=\"t\">{}</td>", escape(&x.source()), escape(x.load));
        for k in &keys {
            let _ = write!(out, "<td>{}</td>", escape(x.params.get(*k).map_or("", String::as_str)));
        }
        for (m, _) in &figures {
            let s = x.sample(m);
            match (s.median(), s.range()) {
                (Some(v), Some((lo, hi))) if s.count() > 1 => {
                    let _ =
                        write!(out, "<td>{}<br><span class=\"s\">{}–{}</span></td>", figure(v), figure(lo), figure(hi));
                }
                (Some(v), _) => {
                    let _ = write!(out, "<td>{}</td>", figure(v));
                }
                _ => out += "<td></td>",
            }
        }
        let _ = write!(out, "<td>{}</td></tr>", x.cells.len());
    }
    out += "</table>";
    out
}

/// Factors by which each system is above the floor.
fn floor_table(g: &[Group<'_>]) -> String {
    let rows = super::text::floors(g);
    if rows.is_empty() {
        return String::new();
    }
    let mut out = "<div class=\"wide\"><table>".to_owned();
    for (i, row) in rows.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        out += "<tr>";
        for (j, cell) in row.iter().enumerate() {
            let class = if j < 2 { " class=\"t\"" } else { "" };
            let _ = write!(out, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        out += "</tr>";
    }
    out + "</table></div>"
}

fn pair_table(g: &[Group<'_>]) -> String {
    let (pairs, keys) = (pairs(g), varied(g));
    if pairs.is_empty() {
        return String::new();
    }
    let figures: Vec<_> = metrics(g)
        .into_iter()
        .filter(|(m, _)| {
            !matches!(
                *m,
                "ops"
                    | "seconds"
                    | "not_started"
                    | "client_us_per_op"
                    | "p1_us"
                    | "p10_us"
                    | "p25_us"
                    | "p75_us"
                    | "p90_us"
            )
        })
        .collect();
    let mut out =
        "<div class=\"wide\"><table><tr><th class=\"t\">load</th><th class=\"t\">first</th><th class=\"t\">second</th>"
            .to_owned();
    for (_, name) in &figures {
        let _ = write!(out, "<th>{}</th>", escape(name));
    }
    out += "</tr>";
    for p in &pairs {
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"t\">{}</td><td class=\"t\">{}</td>",
            escape(&p.a.label(&keys)),
            escape(&p.a.source()),
            escape(&p.b.source())
        );
        for (m, _) in &figures {
            let _ = write!(out, "<td>{}</td>", p.better(m).map_or(String::new(), |r| escape(&ratio_text(&r))));
        }
        out += "</tr>";
    }
    out += "</table></div>";
    out
}

/// The swept key with the most numeric values, at least two.
fn axis(g: &[Group<'_>], keys: &[String]) -> Option<String> {
    let numbers = |k: &String| {
        let mut v: Vec<&str> = g.iter().filter_map(|x| x.params.get(k)).map(String::as_str).collect();
        v.sort_unstable();
        v.dedup();
        if v.iter().all(|x| x.parse::<f64>().is_ok()) { v.len() } else { 0 }
    };
    keys.iter().map(|k| (numbers(k), k)).filter(|(n, _)| *n >= 2).max_by_key(|(n, _)| *n).map(|(_, k)| k.clone())
}

fn plots(g: &[Group<'_>]) -> String {
    let keys = varied(g);
    let mut out = String::new();
    let Some(key) = axis(g, &keys) else {
        for (m, title) in PLOTTED {
            out += &bar_plot(g, &keys, m, title);
        }
        return out;
    };
    let rest: Vec<String> = keys.iter().filter(|k| **k != key).cloned().collect();
    let name = |x: &Group<'_>| format!("{}: {}", x.source(), x.label(&rest));
    for (m, title) in PLOTTED {
        let mut series: Curves = BTreeMap::new();
        for x in g {
            if let (Some(v), Some(y)) = (x.params.get(&key).and_then(|v| v.parse().ok()), x.median(m)) {
                series.entry(name(x)).or_default().push((v, y));
            }
        }
        series.values_mut().for_each(|s| s.sort_by(|a, b| a.0.total_cmp(&b.0)));
        if !series.is_empty() {
            out += &draw(title, short(&key), series, false, false);
        }
    }
    if key == "load.rate" {
        let mut series: Curves = BTreeMap::new();
        for x in g {
            if let (Some(a), Some(b)) = (x.median("iops"), x.median("p99_us")) {
                series.entry(name(x)).or_default().push((a, b));
            }
        }
        out += &draw("p99 latency against operations per second, µs", "operations per second", series, false, true);
    }
    out
}

fn draw(title: &str, x: &str, series: Curves, log_x: bool, log_y: bool) -> String {
    let series = series.into_iter().take(SERIES_MAX).collect();
    svg::lines(&Lines { title: title.into(), x: x.into(), log_x, log_y, series })
}

fn bar_plot(g: &[Group<'_>], keys: &[String], metric: &str, title: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut sources: Vec<String> = Vec::new();
    let mut bars = Vec::new();
    for x in g {
        let Some(v) = x.median(metric) else { continue };
        let place = |all: &mut Vec<String>, s: String| {
            all.iter().position(|o| *o == s).unwrap_or_else(|| {
                all.push(s);
                all.len() - 1
            })
        };
        let (n, s) = (place(&mut names, x.label(keys)), place(&mut sources, x.source()));
        bars.push((n, s, v, x.sample(metric).range().unwrap_or((v, v))));
    }
    if bars.is_empty() { String::new() } else { svg::bars(title, &names, &bars, &sources) }
}

/// Plots of latency distributions: fraction of operations over latency, and over the time to the first byte.
fn distributions(g: &[Group<'_>]) -> String {
    distribution(g, "operations within a time", |c| &c.histogram)
        + &distribution(g, "first bytes within a time", |c| &c.first_byte)
}

fn distribution(g: &[Group<'_>], what: &str, of: fn(&CellResult) -> &Vec<(f64, u64)>) -> String {
    let keys = varied(g);
    let mut by_load: BTreeMap<&str, Curves> = BTreeMap::new();
    for x in g {
        let mut all: Vec<(f64, u64)> = x.cells.iter().flat_map(|c| of(c).iter().copied()).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: u64 = all.iter().map(|(_, n)| n).sum();
        let mut sum = 0;
        let points: Vec<(f64, f64)> = all
            .iter()
            .map(|(v, n)| {
                sum += n;
                (*v, sum as f64 / total.max(1) as f64 * 100.0)
            })
            .collect();
        if !points.is_empty() {
            let name = format!("{}: {}", x.source(), x.label(&keys));
            by_load.entry(x.load).or_default().insert(name, thin(points));
        }
    }
    let draw = |(load, s)| draw(&format!("{load}: % of {what}"), "µs", s, true, false);
    by_load.into_iter().map(draw).collect()
}

/// Reduces a curve to some hundred points.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(250).max(1);
    let last = points.len().saturating_sub(1);
    points.into_iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, p)| p).collect()
}

fn times(g: &[Group<'_>]) -> String {
    let keys = varied(g);
    let first =
        g.iter().filter_map(|x| Some((x, x.cells.first()?))).filter(|(_, c)| c.series.len() > 1).take(TIMES_MAX);
    first
        .map(|(x, c)| {
            let points = c.series.iter().map(|p| (p.at, p.iops)).collect();
            let title = format!("{}: {}", x.source(), x.label(&keys));
            svg::lines(&Lines {
                title,
                x: "seconds".into(),
                series: vec![("operations per second".into(), points)],
                ..Lines::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample_results;
    use serde_json::json;

    fn report(all: &[CellResult]) -> String {
        let finding =
            Finding { kind: "scrub", about: "read on ceph (0000.1)".into(), text: "PGs were <scrubbed>".into() };
        html(&Report {
            title: "pg-count & more",
            runs: vec![("", all)],
            about: &json!({"machine": {"cpu": "A <CPU>", "cores": 2}, "file_system": "ext4"}),
            findings: &[finding],
            failures: &[("0003.0".into(), "no disk\nlong text".into())],
            plan: "[[load]]\nname = \"<x>\"\n",
        })
    }

    #[test]
    fn a_report_loads_nothing_and_shows_everything() {
        let text = report(&sample_results());
        // Constructs that make a browser load or run something.
        for bad in ["http:", "https:", "src=", "href=", "<script", "@import", "url(", "<link", "<img", "<iframe"] {
            assert!(!text.contains(bad), "{bad}");
        }
        for want in [
            "default-src 'none'",
            "PGs were &lt;scrubbed&gt;",
            "A &lt;CPU&gt;",
            "no disk",
            "Operations per second",
            "5.00 (",
            "pg_num",
            "&lt;x&gt;",
        ] {
            assert!(text.contains(want), "{want}");
        }
        let plots = text.matches("<svg").count();
        assert!(plots >= 3 + 1 + 4, "{plots}");
        assert_eq!(plots, text.matches("</svg>").count());
        for tag in ["table", "tr", "td", "div", "details", "th", "p", "h2"] {
            let opened = text.matches(&format!("<{tag}>")).count() + text.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, text.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn a_run_without_results_has_a_report() {
        assert!(report(&[]).ends_with("</body></html>\n"));
    }

    #[test]
    fn bars_where_nothing_is_swept() {
        let all: Vec<CellResult> = sample_results().into_iter().filter(|r| r.params["pool.pg_num"] == "8").collect();
        assert!(report(&all).contains("<rect"));
    }
}
