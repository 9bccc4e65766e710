//! Plain-text tables in Ceph's layout: two spaces between columns, headings aligned by column, every cell padded.
//!
//! A table whose rows are of one kind is declared: a list of [`Column`]s says of each its heading, its alignment, how a cell
//! is made of a row, and, where programs see the same rows, the field they get ([`Table::of`], [`objects`]).

use super::json::J;

/// Alignment of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}
pub use Align::{Left, Right};

/// A field's name, and how its value is made of a row.
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

    /// Text: heading and cells to the left.
    #[must_use]
    pub const fn left(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self::new(heading, Left, Left, cell)
    }

    /// Heading and cells to the right.
    #[must_use]
    pub const fn right(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self::new(heading, Right, Right, cell)
    }

    /// Numbers below a heading to the left, as most of Ceph's tables have them.
    #[must_use]
    pub const fn number(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self::new(heading, Left, Right, cell)
    }

    /// And the field that a tree of the same rows has.
    #[must_use]
    pub const fn field(self, name: &'static str, value: fn(&R) -> J) -> Self {
        Self { field: Some((name, value)), ..self }
    }
}

/// Rows as a tree: of each an object with the columns' fields.
#[must_use]
pub fn objects<'r, R: 'r>(columns: &[Column<R>], rows: impl IntoIterator<Item = &'r R>) -> J {
    let fields = || columns.iter().filter_map(|c| c.field);
    rows.into_iter().map(|r| J::Obj(fields().map(|(name, value)| (name.into(), value(r))).collect())).collect()
}

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

    /// Rows in the columns declared for them.
    #[must_use]
    pub fn of<'r, R: 'r>(columns: &[Column<R>], rows: impl IntoIterator<Item = &'r R>) -> Self {
        let heads: Vec<_> = columns.iter().map(|c| (c.heading, c.heading_align, c.align)).collect();
        let mut t = Self::new(&heads);
        for r in rows {
            t.row(columns.iter().map(|c| (c.cell)(r)));
        }
        t
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
