//! Plots as SVG text: line plots and bar charts, of shapes and text only, so that a report needs no other file.

use super::figure;
use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 44.0;
/// Height of a legend line in pixels.
const LEGEND: f64 = 15.0;
/// Colours that colour-blind readers can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7f00"];

/// A line plot.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Title above the plot.
    pub title: String,
    /// Label of the horizontal axis.
    pub x: String,
    /// Whether the horizontal axis is logarithmic.
    pub log_x: bool,
    /// Whether the vertical axis is logarithmic.
    pub log_y: bool,
    /// Name and points of each series.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// Escapes text for XML.
#[must_use]
pub fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Round numbers that divide a range.
fn ticks(lo: f64, hi: f64, log: bool) -> Vec<f64> {
    if log {
        let (a, b) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
        let step = ((b - a) / 6).max(1) as usize;
        return (a..=b).step_by(step).map(|e| 10f64.powi(e)).filter(|v| *v >= lo * 0.999 && *v <= hi * 1.001).collect();
    }
    let span = (hi - lo).max(1e-12);
    let rough = span / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|f| f * power).find(|s| *s >= rough).unwrap_or(power);
    let first = (lo / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|v| *v <= hi + step * 1e-6).take(20).collect()
}

struct Scale {
    lo: f64,
    hi: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64>, log: bool, zero: bool, from: f64, to: f64) -> Self {
        let usable = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let (mut lo, mut hi) = usable.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        if lo > hi {
            (lo, hi) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if zero && !log {
            lo = lo.min(0.0);
        }
        if hi <= lo {
            hi = if log { lo * 10.0 } else { lo + lo.abs().max(1.0) };
        }
        Self { lo, hi, log, from, to }
    }

    fn at(&self, v: f64) -> f64 {
        let f = |x: f64| if self.log { x.max(1e-12).ln() } else { x };
        self.from + (f(v) - f(self.lo)) / (f(self.hi) - f(self.lo)) * (self.to - self.from)
    }
}

fn open(out: &mut String, title: &str, height: f64) {
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{t}\">\
         <text x=\"{LEFT}\" y=\"16\" class=\"t\">{t}</text>",
        t = escape(title)
    );
}

fn axes(out: &mut String, x: &Scale, y: &Scale, label: &str, plain_x: bool) {
    for v in ticks(y.lo, y.hi, y.log) {
        let at = y.at(v);
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{r}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"g\"/><text x=\"{l}\" y=\"{b:.1}\" class=\"e\">{}</text>",
            figure(v).trim_end_matches(".00"),
            r = WIDTH - RIGHT,
            l = LEFT - 6.0,
            b = at + 4.0
        );
    }
    let bottom = HEIGHT - BOTTOM;
    if plain_x {
        for v in ticks(x.lo, x.hi, x.log) {
            let at = x.at(v);
            let _ = write!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{}\" class=\"a\"/><text x=\"{at:.1}\" y=\"{}\" class=\"m\">{}</text>",
                bottom + 4.0,
                bottom + 17.0,
                figure(v).trim_end_matches(".00")
            );
        }
    }
    let _ = write!(
        out,
        "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\" class=\"a\"/><text x=\"{}\" y=\"{}\" class=\"m\">{}</text>",
        WIDTH - RIGHT,
        (LEFT + WIDTH - RIGHT) / 2.0,
        bottom + 34.0,
        escape(label)
    );
}

fn colour(i: usize) -> &'static str {
    COLOURS.get(i % COLOURS.len()).copied().unwrap_or("#000000")
}

fn legend(out: &mut String, i: usize, name: &str) {
    let y = HEIGHT + 4.0 + i as f64 * LEGEND;
    let _ = write!(
        out,
        "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{}\"/><text x=\"{}\" y=\"{:.1}\" class=\"l\">{}</text>",
        y - 5.0,
        colour(i),
        LEFT + 20.0,
        y,
        escape(name)
    );
}

/// Draws lines with a mark at each point.
#[must_use]
pub fn lines(p: &Lines) -> String {
    let mut out = String::new();
    open(&mut out, &p.title, HEIGHT + 8.0 + p.series.len() as f64 * LEGEND);
    let all = || p.series.iter().flat_map(|(_, s)| s.iter());
    let x = Scale::new(all().map(|v| v.0), p.log_x, false, LEFT, WIDTH - RIGHT);
    let y = Scale::new(all().map(|v| v.1), p.log_y, true, HEIGHT - BOTTOM, TOP);
    axes(&mut out, &x, &y, &p.x, true);
    for (i, (name, points)) in p.series.iter().enumerate() {
        let text: Vec<String> = points.iter().map(|(a, b)| format!("{:.1},{:.1}", x.at(*a), y.at(*b))).collect();
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>",
            text.join(" "),
            colour(i)
        );
        for (a, b) in points.iter().filter(|_| points.len() <= 40) {
            let _ = write!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\" fill=\"{}\"><title>{}: {}</title></circle>",
                x.at(*a),
                y.at(*b),
                colour(i),
                figure(*a),
                figure(*b)
            );
        }
        legend(&mut out, i, name);
    }
    out += "</svg>";
    out
}

/// Draws bars with error bars. Each bar has name index, colour index, value, and its least and greatest value.
#[must_use]
pub fn bars(title: &str, names: &[String], bars: &[(usize, usize, f64, (f64, f64))], sources: &[String]) -> String {
    let mut out = String::new();
    open(&mut out, title, HEIGHT + 8.0 + sources.len() as f64 * LEGEND);
    let y = Scale::new(bars.iter().flat_map(|b| [b.2, b.3.1]), false, true, HEIGHT - BOTTOM, TOP);
    axes(&mut out, &Scale::new(std::iter::empty(), false, false, LEFT, WIDTH - RIGHT), &y, "", false);
    let slot = (WIDTH - RIGHT - LEFT) / names.len().max(1) as f64;
    let wide = slot * 0.8 / sources.len().max(1) as f64;
    for (name, source, v, (lo, hi)) in bars {
        let left = LEFT + slot * (*name as f64 + 0.1) + wide * *source as f64;
        let (top, base) = (y.at(*v), y.at(0.0));
        let middle = left + wide / 2.0;
        let _ = write!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}</title></rect>\
             <line x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" class=\"a\"/>",
            wide * 0.92,
            (base - top).max(0.5),
            colour(*source),
            figure(*v),
            y.at(*lo),
            y.at(*hi)
        );
    }
    for (i, n) in names.iter().enumerate() {
        // Long names are cut; the table has them in full.
        let max = (slot / 5.6).max(4.0) as usize;
        let cut: String =
            if n.chars().count() > max { n.chars().take(max - 1).chain(['…']).collect() } else { n.clone() };
        let at = LEFT + slot * (i as f64 + 0.5);
        let _ = write!(
            out,
            "<text x=\"{at:.1}\" y=\"{}\" class=\"m\">{}<title>{}</title></text>",
            HEIGHT - BOTTOM + 17.0,
            escape(&cut),
            escape(n)
        );
    }
    for (i, s) in sources.iter().enumerate() {
        legend(&mut out, i, s);
    }
    out += "</svg>";
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 97.0, false), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(3.0, 3000.0, true), [10.0, 100.0, 1000.0]);
        assert!(ticks(0.0, 0.0, false).len() <= 20);
    }

    #[test]
    fn plots_are_well_formed_whatever_the_numbers() {
        for points in [vec![], vec![(1.0, 0.0)], vec![(0.0, f64::NAN), (2.0, 5.0)], vec![(1.0, 1.0), (1e9, 1e-9)]] {
            for log in [false, true] {
                let s = lines(&Lines {
                    title: "a<b".into(),
                    x: "x".into(),
                    log_x: log,
                    log_y: log,
                    series: vec![("s&t".into(), points.clone())],
                });
                assert!(
                    s.starts_with("<svg") && s.ends_with("</svg>") && s.contains("a&lt;b") && s.contains("s&amp;t")
                );
                assert_eq!(s.matches("<text").count(), s.matches("</text>").count());
            }
        }
        let b = bars("t", &["n".into()], &[(0, 0, 5.0, (4.0, 6.0))], &["s".into()]);
        assert!(b.matches("<rect").count() == 2 && b.ends_with("</svg>"));
    }
}
