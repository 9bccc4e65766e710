//! Plain-text tables in Ceph's layout: two spaces between columns, headings aligned by column, every cell padded.
//!
//! A table with rows of one kind is declared as a list of [`Column`]s. A column has a heading, an alignment, a
//! function that makes a cell from a row, and optionally the JSON field for programs ([`Table::of`], [`objects`]).

use crate::json::J;
use std::ops::Range;

/// Alignment of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left, for text.
    Left,
    /// To the right, for numbers.
    Right,
}
pub use Align::{Left, Right};

/// The name of a JSON field, and the function that makes its value from a row.
type Field<R> = (&'static str, fn(&R) -> J);

/// A column of a table of `R`s.
pub struct Column<R> {
    heading: &'static str,
    heading_align: Align,
    align: Align,
    cell: fn(&R) -> String,
    field: Option<Field<R>>,
}

impl<R> Column<R> {
    const fn new(heading: &'static str, heading_align: Align, align: Align, cell: fn(&R) -> String) -> Self {
        Self { heading, heading_align, align, cell, field: None }
    }

    /// A column for text: heading and cells to the left.
    #[must_use]
    pub const fn left(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self::new(heading, Left, Left, cell)
    }

    /// A column with heading and cells to the right.
    #[must_use]
    pub const fn right(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self::new(heading, Right, Right, cell)
    }

    /// A column of numbers with its heading to the left, as in most of Ceph's tables.
    #[must_use]
    pub const fn number(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self::new(heading, Left, Right, cell)
    }

    /// The cell of a row.
    pub fn make(&self, row: &R) -> String {
        (self.cell)(row)
    }

    /// Adds the JSON field that [`objects`] gives for the column.
    #[must_use]
    pub const fn field(self, name: &'static str, value: fn(&R) -> J) -> Self {
        Self { field: Some((name, value)), ..self }
    }
}

/// The rows as JSON: an array of objects with the columns' fields.
#[must_use]
pub fn objects<'r, R: 'r>(columns: &[Column<R>], rows: impl IntoIterator<Item = &'r R>) -> J {
    let fields = || columns.iter().filter_map(|c| c.field);
    rows.into_iter().map(|r| J::Obj(fields().map(|(name, value)| (name.into(), value(r))).collect())).collect()
}

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align, Align)>,
    /// The widest cell or heading of each column, in characters.
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
    separator: &'static str,
    indent: usize,
}

impl Table {
    /// An empty table with columns `(heading, alignment of the heading, alignment of the cells)`.
    #[must_use]
    pub fn new(columns: &[(&str, Align, Align)]) -> Self {
        let widths = columns.iter().map(|(h, ..)| h.chars().count()).collect();
        let columns = columns.iter().map(|(h, ha, ca)| ((*h).to_owned(), *ha, *ca)).collect();
        Self { columns, widths, rows: Vec::new(), separator: "  ", indent: 0 }
    }

    /// A table of `rows` with the declared columns.
    #[must_use]
    pub fn of<'r, R: 'r>(columns: &[Column<R>], rows: impl IntoIterator<Item = &'r R>) -> Self {
        let heads: Vec<_> = columns.iter().map(|c| (c.heading, c.heading_align, c.align)).collect();
        let mut t = Self::new(&heads);
        for r in rows {
            t.row(columns.iter().map(|c| c.make(r)));
        }
        t
    }

    /// Puts `n` spaces before each line.
    #[must_use]
    pub fn indented(mut self, n: usize) -> Self {
        self.indent = n;
        self
    }

    /// Adds a row; missing cells are blank.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        for (w, c) in self.widths.iter_mut().zip(&cells) {
            *w = (*w).max(c.chars().count());
        }
        self.rows.push(cells);
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text; each line ends in a line break.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        self.heading(&mut out);
        self.lines(&mut out, 0..self.rows.len());
        out
    }

    /// Writes the heading line, which a table whose headings are all empty does not have.
    pub fn heading(&self, out: &mut String) {
        if self.columns.iter().any(|(h, ..)| !h.is_empty()) {
            let cells = self.columns.iter().map(|(h, a, _)| (h.as_str(), *a));
            self.line(out, cells);
        }
    }

    /// Writes the lines of some rows.
    pub fn lines(&self, out: &mut String, rows: Range<usize>) {
        for r in self.rows.get(rows).unwrap_or_default() {
            let cells = self.columns.iter().enumerate().map(|(i, (_, _, a))| (r.get(i).map_or("", String::as_str), *a));
            self.line(out, cells);
        }
    }

    fn line<'a>(&self, out: &mut String, cells: impl Iterator<Item = (&'a str, Align)>) {
        for _ in 0..self.indent {
            out.push(' ');
        }
        for (i, ((c, a), w)) in cells.zip(&self.widths).enumerate() {
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

    #[test]
    fn a_table_and_a_tree_are_declared_once() {
        let columns: [Column<(i32, &str)>; 3] = [
            Column::number("ID", |r: &(i32, &str)| r.0.to_string()).field("id", |r| r.0.into()),
            Column::left("NAME", |r: &(i32, &str)| r.1.to_owned()).field("name", |r| r.1.into()),
            Column::right("NOTE", |_| "-".into()),
        ];
        let rows = [(-1, "default"), (0, "b")];
        assert_eq!(Table::of(&columns, &rows).render(), "ID  NAME     NOTE\n-1  default     -\n 0  b           -\n");
        assert_eq!(objects(&columns, &rows).compact(), r#"[{"id":-1,"name":"default"},{"id":0,"name":"b"}]"#);
    }
}
