//! Chunks of one stripe, or equally long runs of whole shards: encode, rebuild, apply a difference.
//!
//! Chunks are numbered as shards are: `0..k` data, `k..k + m` coding. Sets of chunks are bit masks. Lengths are free, but
//! equal within one call; every call checks them.

use crate::kernel::Kernel;
use crate::matrix::{Matrix, Technique};

/// The most chunks a code may have, so that a set of them fits a `u32`.
pub const CHUNKS_MAX: usize = 32;

/// Bytes of each chunk that are processed before the next strip: source and target strips of a stripe fit in the L1
/// cache.
const STRIP: usize = 2048;

/// Error of a codec call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The technique has no code of this shape.
    #[error("no {technique:?} code has {k} data and {m} coding chunks")]
    Shape {
        /// The requested technique.
        technique: Technique,
        /// Data chunks.
        k: usize,
        /// Coding chunks.
        m: usize,
    },
    /// The number of chunks does not fit the code.
    #[error("{wanted} chunks expected, {found} given")]
    Count {
        /// Expected number.
        wanted: usize,
        /// Number in the call.
        found: usize,
    },
    /// The chunks of a call differ in length.
    #[error("chunks of one call differ in length: {wanted} and {found} bytes")]
    Length {
        /// Bytes of the first chunk.
        wanted: usize,
        /// Bytes of the chunk that differs.
        found: usize,
    },
    /// There are too few chunks to rebuild from.
    #[error("{present} chunks are present, {needed} are needed")]
    TooFew {
        /// Number of present chunks.
        present: usize,
        /// Number of needed chunks.
        needed: usize,
    },
}

/// One code: a technique and a shape, with the kernel of this processor.
#[derive(Clone, Debug)]
pub struct Codec {
    k: usize,
    m: usize,
    generator: Matrix,
    kernel: Kernel,
}

/// Coefficients for computing lost chunks from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    sources: Vec<usize>,
    /// Each wanted chunk with its coefficients, one for each source.
    rows: Vec<(usize, Vec<u8>)>,
    kernel: Kernel,
}

impl Codec {
    /// The code of `technique` with `k` data and `m` coding chunks.
    ///
    /// # Errors
    /// [`CodecError::Shape`] if there is none.
    pub fn new(technique: Technique, k: usize, m: usize) -> Result<Self, CodecError> {
        Self::with_kernel(technique, k, m, Kernel::best())
    }

    /// The code of `technique` with a given kernel, for tests and measurements.
    ///
    /// # Errors
    /// As [`Codec::new`].
    pub fn with_kernel(technique: Technique, k: usize, m: usize, kernel: Kernel) -> Result<Self, CodecError> {
        let generator = Matrix::generator(technique, k, m).ok_or(CodecError::Shape { technique, k, m })?;
        Ok(Self { k, m, generator, kernel })
    }

    /// Number of data chunks.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of coding chunks.
    #[must_use]
    pub fn m(&self) -> usize {
        self.m
    }

    /// Computes all coding chunks from all data chunks.
    ///
    /// # Errors
    /// [`CodecError::Count`] or [`CodecError::Length`] if the chunks do not fit the code or each other.
    pub fn encode(&self, data: &[&[u8]], coding: &mut [&mut [u8]]) -> Result<(), CodecError> {
        count(self.k, data.len())?;
        count(self.m, coding.len())?;
        let rows: Vec<&[u8]> = (self.k..self.k + self.m).map(|r| self.generator.row(r)).collect();
        combine(self.kernel, data, &rows, coding)
    }

    /// Computes all coding chunks from all data chunks, as [`Codec::encode`], into new buffers that are written once: no
    /// pass fills them with zeros first.
    ///
    /// # Errors
    /// [`CodecError::Count`] or [`CodecError::Length`] if the chunks do not fit the code or each other.
    pub fn encode_new(&self, data: &[&[u8]]) -> Result<Vec<Vec<u8>>, CodecError> {
        count(self.k, data.len())?;
        let Some((first, others)) = data.split_first() else { return Ok(Vec::new()) };
        others.iter().try_for_each(|d| same_length(first.len(), d.len()))?;
        let mut coding: Vec<Vec<u8>> = (0..self.m).map(|_| Vec::with_capacity(first.len())).collect();
        for from in (0..first.len()).step_by(STRIP) {
            let strip = from..(from + STRIP).min(first.len());
            for (i, chunk) in coding.iter_mut().enumerate() {
                let factors = self.generator.row(self.k + i);
                chunk.extend_from_slice(&first[strip.clone()]);
                let target = &mut chunk[strip.clone()];
                // The target already holds the first chunk once: f · d = d + (f - 1) · d, and subtraction equals
                // addition in this field.
                if factors[0] != 1 {
                    self.kernel.mul_add(target, &first[strip.clone()], factors[0] ^ 1);
                }
                for (d, factor) in others.iter().zip(&factors[1..]) {
                    self.kernel.mul_add(target, &d[strip.clone()], *factor);
                }
            }
        }
        Ok(coding)
    }

    /// Updates coding chunk `chunk` (`k..k + m`) for `difference` (old bytes ⊕ new bytes) in data chunk `data`. Both
    /// slices are the same range of their chunks.
    ///
    /// # Errors
    /// [`CodecError::Count`] if there is no such chunk, [`CodecError::Length`] if the runs differ in length.
    pub fn apply(&self, data: usize, difference: &[u8], chunk: usize, coding: &mut [u8]) -> Result<(), CodecError> {
        if data >= self.k {
            return Err(CodecError::Count { wanted: self.k, found: data + 1 });
        }
        if !(self.k..self.k + self.m).contains(&chunk) {
            return Err(CodecError::Count { wanted: self.k + self.m, found: chunk + 1 });
        }
        same_length(difference.len(), coding.len())?;
        self.kernel.mul_add(coding, difference, self.generator.row(chunk)[data]);
        Ok(())
    }

    /// Plans the computation of the chunks `wanted` from `k` of those in `present`, data chunks before coding chunks. A
    /// wanted chunk that is present is its own source.
    ///
    /// # Errors
    /// [`CodecError::TooFew`] if fewer than `k` are present, [`CodecError::Count`] if a set names a chunk the code lacks.
    pub fn rebuild(&self, present: u32, wanted: u32) -> Result<Rebuild, CodecError> {
        let n = self.k + self.m;
        for set in [present, wanted] {
            let end = 32 - set.leading_zeros() as usize;
            if end > n {
                return Err(CodecError::Count { wanted: n, found: end });
            }
        }
        let chosen: Vec<usize> = (0..n).filter(|c| present >> c & 1 == 1).take(self.k).collect();
        let too_few = CodecError::TooFew { present: chosen.len(), needed: self.k };
        if chosen.len() < self.k {
            return Err(too_few);
        }
        let inverse = self.generator.select(&chosen).inverse().ok_or(too_few)?;
        let mut rows: Vec<(usize, Vec<u8>)> = Vec::new();
        for c in (0..n).filter(|c| wanted >> c & 1 == 1) {
            rows.push((c, inverse.left_mul(self.generator.row(c))));
        }
        // Chunks that no wanted chunk depends on need not be read.
        let used: Vec<bool> = (0..self.k).map(|i| rows.iter().any(|(_, r)| r[i] != 0)).collect();
        let keep = |row: Vec<u8>| row.into_iter().zip(&used).filter(|(_, u)| **u).map(|(f, _)| f).collect();
        Ok(Rebuild {
            sources: chosen.into_iter().zip(&used).filter(|(_, u)| **u).map(|(c, _)| c).collect(),
            rows: rows.into_iter().map(|(c, r)| (c, keep(r))).collect(),
            kernel: self.kernel,
        })
    }
}

impl Rebuild {
    /// The source chunks, in the order that [`Rebuild::run`] takes.
    #[must_use]
    pub fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// The output chunks, in the order that [`Rebuild::run`] fills.
    pub fn outputs(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|(c, _)| *c)
    }

    /// Computes the wanted chunks.
    ///
    /// # Errors
    /// [`CodecError::Count`] or [`CodecError::Length`] if the chunks do not fit the plan or each other.
    pub fn run(&self, sources: &[&[u8]], out: &mut [&mut [u8]]) -> Result<(), CodecError> {
        count(self.sources.len(), sources.len())?;
        count(self.rows.len(), out.len())?;
        let rows: Vec<&[u8]> = self.rows.iter().map(|(_, r)| r.as_slice()).collect();
        combine(self.kernel, sources, &rows, out)
    }
}

/// `out[i] = Σ rows[i][j] · sources[j]`, strip by strip.
fn combine(kernel: Kernel, sources: &[&[u8]], rows: &[&[u8]], out: &mut [&mut [u8]]) -> Result<(), CodecError> {
    let Some(len) = out.first().map(|o| o.len()) else { return Ok(()) };
    sources.iter().try_for_each(|s| same_length(len, s.len()))?;
    out.iter().try_for_each(|o| same_length(len, o.len()))?;
    for from in (0..len).step_by(STRIP) {
        let strip = from..(from + STRIP).min(len);
        for (o, row) in out.iter_mut().zip(rows) {
            let target = &mut o[strip.clone()];
            target.fill(0);
            for (s, factor) in sources.iter().zip(*row) {
                kernel.mul_add(target, &s[strip.clone()], *factor);
            }
        }
    }
    Ok(())
}

fn count(wanted: usize, found: usize) -> Result<(), CodecError> {
    if wanted == found { Ok(()) } else { Err(CodecError::Count { wanted, found }) }
}

fn same_length(wanted: usize, found: usize) -> Result<(), CodecError> {
    if wanted == found { Ok(()) } else { Err(CodecError::Length { wanted, found }) }
}
