//! Raw figures as CSV: one line for each measurement, or for each second of each.

use crate::result::{CellResult, METRICS};
use std::collections::BTreeSet;

/// A CSV field, quoted if necessary.
fn field(s: &str) -> String {
    if s.contains([',', '"', '\n']) { format!("\"{}\"", s.replace('"', "\"\"")) } else { s.to_owned() }
}

fn line(fields: impl IntoIterator<Item = String>) -> String {
    let mut s = fields.into_iter().map(|f| field(&f)).collect::<Vec<_>>().join(",");
    s.push('\n');
    s
}

/// One line for each measurement: its settings, then its figures.
#[must_use]
pub fn results(all: &[CellResult]) -> String {
    let keys: BTreeSet<&String> = all.iter().flat_map(|r| r.params.keys()).collect();
    let named: Vec<&str> = METRICS.iter().map(|(m, _)| *m).collect();
    let head = ["id", "combination", "repetition", "system", "load"].map(String::from);
    let mut out = line(
        head.into_iter()
            .chain(keys.iter().map(|k| (*k).clone()))
            .chain(named.iter().map(|m| (*m).to_owned()))
            .chain(["machine_busy".to_owned(), "disk_busy".to_owned()]),
    );
    for r in all {
        let first =
            [r.id.clone(), r.combination.to_string(), r.repetition.to_string(), r.system.clone(), r.load.clone()];
        let params = keys.iter().map(|k| r.params.get(*k).cloned().unwrap_or_default());
        let metrics = named.iter().map(|m| r.metrics.get(*m).map_or(String::new(), |v| format!("{v}")));
        let machine = [r.machine.busy, r.machine.disk_busy].map(|v| format!("{v:.4}"));
        out += &line(first.into_iter().chain(params).chain(metrics).chain(machine));
    }
    out
}

/// One line for each second of each measurement.
#[must_use]
pub fn series(all: &[CellResult]) -> String {
    let mut out = "id,system,load,at,iops,mean_us\n".to_owned();
    for r in all {
        for p in &r.series {
            let numbers = [p.at, p.iops, p.mean_us].map(|v| format!("{v}"));
            out += &line([r.id.clone(), r.system.clone(), r.load.clone()].into_iter().chain(numbers));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample_results;

    #[test]
    fn fields_are_quoted_and_lines_alike() {
        let all = sample_results();
        let text = results(&all);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 13);
        assert!(lines[1].contains("\"read \"\"<4K>\"\"\""), "{}", lines[1]);
        let commas = |l: &str| l.matches(',').count();
        assert!(lines.iter().all(|l| commas(l) == commas(lines[0])));
        assert_eq!(series(&all).lines().count(), 1 + 12 * 4);
    }
}
