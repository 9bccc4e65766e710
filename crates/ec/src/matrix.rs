//! Matrices over GF(2⁸): the generator of each technique, and inversion.
//!
//! A generator has `k + m` rows and `k` columns. Its upper `k` rows are the identity (data chunks are stored as they are),
//! row `k + i` holds the coefficients of coding chunk `i`. The constructions follow Jerasure 2 (`reed_sol.c`) and ISA-L
//! (`ec_base.c`); `vectors/ec/coding.txt`, made with Ceph's `ceph-erasure-code-tool`, proves that the bytes are the same.

use crate::gf;

/// Construction of the coding rows of a generator; each is a technique of one of Ceph's plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Technique {
    /// `jerasure`, `reed_sol_van`: an extended Vandermonde matrix made systematic, first coding row and column all ones.
    JerasureVandermonde,
    /// `jerasure`, `reed_sol_r6_op`: a row of ones and a row of powers of two; `m` is 2.
    JerasureRaid6,
    /// `isa`, `reed_sol_van`: rows of powers of 1, 2, 4, 8, … Some shapes with `m` > 3 can't be decoded; see
    /// [`Technique::shape_is_valid`].
    IsaVandermonde,
    /// `isa`, `cauchy`: `1 / (i ⊕ j)`; a row of ones if `m` is 1.
    IsaCauchy,
}

impl Technique {
    /// The technique that a profile's `plugin` and `technique` name, or `None` if it is not supported.
    #[must_use]
    pub fn from_profile(plugin: &str, technique: &str) -> Option<Self> {
        match (plugin, technique) {
            ("jerasure", "reed_sol_van") => Some(Self::JerasureVandermonde),
            ("jerasure", "reed_sol_r6_op") => Some(Self::JerasureRaid6),
            ("isa", "reed_sol_van") => Some(Self::IsaVandermonde),
            ("isa", "cauchy") => Some(Self::IsaCauchy),
            _ => None,
        }
    }

    /// True if any `k` of `k + m` chunks can be relied on to give the rest. The limits of `isa`, `reed_sol_van` are those of
    /// Ceph's plugin (`ErasureCodeIsa.cc`): beyond them some losses leave a singular matrix.
    #[must_use]
    pub fn shape_is_valid(self, k: usize, m: usize) -> bool {
        let general = k >= 1 && m >= 1 && k + m <= crate::codec::CHUNKS_MAX;
        general
            && match self {
                Self::JerasureVandermonde | Self::IsaCauchy => true,
                Self::JerasureRaid6 => m == 2,
                Self::IsaVandermonde => k <= 32 && m <= 4 && (m < 4 || k <= 21),
            }
    }
}

/// A matrix, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    columns: usize,
    cells: Vec<u8>,
}

impl Matrix {
    /// A matrix of zeros.
    #[must_use]
    pub fn zero(rows: usize, columns: usize) -> Self {
        Self { columns, cells: vec![0; rows * columns] }
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.cells.len().checked_div(self.columns).unwrap_or(0)
    }

    /// One row; empty if there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u8] {
        self.cells.chunks_exact(self.columns.max(1)).nth(row).unwrap_or_default()
    }

    fn get(&self, row: usize, column: usize) -> u8 {
        self.cells[row * self.columns + column]
    }

    fn set(&mut self, row: usize, column: usize, value: u8) {
        self.cells[row * self.columns + column] = value;
    }

    fn scale_column(&mut self, column: usize, factor: u8, from_row: usize) {
        for r in from_row..self.rows() {
            self.set(r, column, gf::mul(self.get(r, column), factor));
        }
    }

    fn scale_row(&mut self, row: usize, factor: u8) {
        for c in 0..self.columns {
            self.set(row, c, gf::mul(self.get(row, c), factor));
        }
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for c in 0..self.columns {
            self.cells.swap(a * self.columns + c, b * self.columns + c);
        }
    }

    /// `row` += `factor` · `other`.
    fn add_row(&mut self, row: usize, factor: u8, other: usize) {
        for c in 0..self.columns {
            self.set(row, c, self.get(row, c) ^ gf::mul(factor, self.get(other, c)));
        }
    }

    /// The matrix made of the named rows.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        Self { columns: self.columns, cells: rows.iter().flat_map(|r| self.row(*r)).copied().collect() }
    }

    /// A row vector times this matrix.
    #[must_use]
    pub fn left_mul(&self, row: &[u8]) -> Vec<u8> {
        (0..self.columns)
            .map(|c| row.iter().enumerate().fold(0, |sum, (r, x)| sum ^ gf::mul(*x, self.get(r, c))))
            .collect()
    }

    /// The inverse of a square matrix by Gauss and Jordan; `None` if it is singular or not square.
    #[must_use]
    pub fn inverse(&self) -> Option<Self> {
        let n = self.columns;
        if self.rows() != n {
            return None;
        }
        let mut a = self.clone();
        let mut out = Self::zero(n, n);
        for i in 0..n {
            out.set(i, i, 1);
        }
        for i in 0..n {
            let pivot = (i..n).find(|r| a.get(*r, i) != 0)?;
            a.swap_rows(i, pivot);
            out.swap_rows(i, pivot);
            let factor = gf::inv(a.get(i, i))?;
            a.scale_row(i, factor);
            out.scale_row(i, factor);
            for r in (0..n).filter(|r| *r != i) {
                let f = a.get(r, i);
                if f != 0 {
                    a.add_row(r, f, i);
                    out.add_row(r, f, i);
                }
            }
        }
        Some(out)
    }

    /// The generator of a technique for `k` data and `m` coding chunks; `None` if the shape is not valid for it.
    #[must_use]
    pub fn generator(technique: Technique, k: usize, m: usize) -> Option<Self> {
        if !technique.shape_is_valid(k, m) {
            return None;
        }
        if technique == Technique::JerasureVandermonde {
            return jerasure_vandermonde(k, m);
        }
        let mut g = Self::zero(k + m, k);
        for i in 0..k {
            g.set(i, i, 1);
        }
        for i in 0..m {
            // The base whose powers fill row i of the Vandermonde-like ones: 2ⁱ.
            let base = (0..i).fold(1, |b, _| gf::mul(b, 2));
            let mut power = 1;
            for j in 0..k {
                let c = match technique {
                    // With one coding chunk Ceph's plugin leaves the matrix aside and adds.
                    Technique::IsaCauchy if m > 1 => gf::inv(u8::try_from((k + i) ^ j).ok()?)?,
                    _ => power,
                };
                g.set(k + i, j, c);
                power = gf::mul(power, base);
            }
        }
        Some(g)
    }
}

/// Jerasure's systematic Vandermonde matrix (`reed_sol_big_vandermonde_distribution_matrix`).
fn jerasure_vandermonde(k: usize, m: usize) -> Option<Matrix> {
    let mut g = Matrix::zero(k + m, k);
    // Extended Vandermonde: the first row is 1, 0, …, the last one …, 0, 1, row i between them the powers of i.
    g.set(0, 0, 1);
    g.set(k + m - 1, k - 1, 1);
    for r in 1..k + m - 1 {
        let mut power = 1;
        for c in 0..k {
            g.set(r, c, power);
            power = gf::mul(power, u8::try_from(r).ok()?);
        }
    }
    // Column operations bring the upper square to the identity.
    for i in 1..k {
        let pivot = (i..k + m).find(|r| g.get(*r, i) != 0)?;
        g.swap_rows(i, pivot);
        g.scale_column(i, gf::inv(g.get(i, i))?, 0);
        for c in (0..k).filter(|c| *c != i) {
            let f = g.get(i, c);
            if f != 0 {
                for r in 0..k + m {
                    g.set(r, c, g.get(r, c) ^ gf::mul(f, g.get(r, i)));
                }
            }
        }
    }
    // The first coding row becomes all ones, then the first column of the other coding rows.
    for c in 0..k {
        g.scale_column(c, gf::inv(g.get(k, c))?, k);
    }
    for r in k + 1..k + m {
        g.scale_row(r, gf::inv(g.get(r, 0))?);
    }
    Some(g)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_coding_rows_are_those_of_the_plugins() {
        let row = |t, k| Matrix::generator(t, k, 2).unwrap().row(k + 1).to_vec();
        assert_eq!(row(Technique::JerasureVandermonde, 4), [1, 70, 143, 200]);
        assert_eq!(row(Technique::JerasureVandermonde, 6), [1, 123, 245, 143, 244, 142]);
        assert_eq!(row(Technique::JerasureRaid6, 4), [1, 2, 4, 8]);
        assert_eq!(row(Technique::IsaVandermonde, 4), [1, 2, 4, 8]);
    }

    #[test]
    fn a_matrix_times_its_inverse_is_the_identity() {
        let g = Matrix::generator(Technique::IsaCauchy, 5, 3).unwrap();
        let a = g.select(&[0, 3, 5, 6, 7]);
        let inverse = a.inverse().unwrap();
        for i in 0..5 {
            let unit: Vec<u8> = (0..5).map(|j| u8::from(i == j)).collect();
            assert_eq!(inverse.left_mul(a.row(i)), unit);
        }
        assert_eq!(g.select(&[1, 1, 2, 3, 4]).inverse(), None, "two equal rows");
        assert_eq!(g.inverse(), None, "not square");
    }

    #[test]
    fn shapes_beyond_the_limits_have_no_generator() {
        assert_eq!(Matrix::generator(Technique::JerasureRaid6, 4, 3), None);
        assert_eq!(Matrix::generator(Technique::IsaVandermonde, 22, 4), None);
        assert_eq!(Matrix::generator(Technique::IsaCauchy, 0, 2), None);
        assert_eq!(Matrix::generator(Technique::IsaCauchy, 250, 20), None);
    }
}
