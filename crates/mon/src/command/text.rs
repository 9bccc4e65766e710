//! Plain-text tables in Ceph's layout: two spaces between columns, headings aligned by column, every cell padded.

/// Alignment of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}
pub use Align::{Left, Right};

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align, Align)>,
    rows: Vec<Vec<String>>,
    separator: &'static str,
    indent: usize,
}

impl Table {
    /// With columns `(heading, alignment of the heading, alignment of the cells)`.
    #[must_use]
    pub fn new(columns: &[(&str, Align, Align)]) -> Self {
        let columns = columns.iter().map(|(h, ha, ca)| ((*h).to_owned(), *ha, *ca)).collect();
        Self { columns, rows: Vec::new(), separator: "  ", indent: 0 }
    }

    /// Spaces before each line.
    #[must_use]
    pub fn indented(mut self, n: usize) -> Self {
        self.indent = n;
        self
    }

    /// Adds a row; missing cells are blank.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text, each line ended.
    #[must_use]
    pub fn render(&self) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, (h, ..))| {
                let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
                cells.max(h.chars().count())
            })
            .collect();
        let mut out = String::new();
        // A table of columns without headings has no heading line.
        if self.columns.iter().any(|(h, ..)| !h.is_empty()) {
            let cells = self.columns.iter().map(|(h, a, _)| (h.as_str(), *a));
            self.line(&mut out, &widths, cells);
        }
        for r in &self.rows {
            let cells = self.columns.iter().enumerate().map(|(i, (_, _, a))| (r.get(i).map_or("", String::as_str), *a));
            self.line(&mut out, &widths, cells);
        }
        out
    }

    fn line<'a>(&self, out: &mut String, widths: &[usize], cells: impl Iterator<Item = (&'a str, Align)>) {
        for _ in 0..self.indent {
            out.push(' ');
        }
        for (i, ((c, a), w)) in cells.zip(widths).enumerate() {
            if i > 0 {
                out.push_str(self.separator);
            }
            let pad = w.saturating_sub(c.chars().count());
            if a == Left {
                out.push_str(c);
            }
            out.extend(std::iter::repeat_n(' ', pad));
            if a == Right {
                out.push_str(c);
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_every_cell() {
        let mut t = Table::new(&[("ID", Left, Right), ("NAME", Left, Left)]);
        t.row(["-1", "default"]);
        t.row(["0"]);
        assert_eq!(t.render(), "ID  NAME   \n-1  default\n 0         \n");
    }
}
