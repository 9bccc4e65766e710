//! Data objects: copy-up from a parent, removal of zeroes, and a guard on snapshot contexts.

use super::must_exist;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input, optional};
use base::errno::{EINVAL, EOPNOTSUPP, ERANGE};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Writes the parent's data unless the object exists: then a concurrent write has copied it already.
pub(super) fn copyup(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    if c.exists()? {
        return Ok(Output::default());
    }
    c.write(0, i).map(Output::from)
}

/// Copy-up of data with holes: extents, followed by their data.
pub(super) fn sparse_copyup(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (extents, data) = input(i, |r| Ok((r.get::<BTreeMap<u64, u64>>()?, r.blob()?)))?;
    if c.exists()? {
        return Ok(Output::default());
    }
    if extents.is_empty() {
        return c.create(true).map(Output::from);
    }
    let mut rest = &data[..];
    for (off, len) in extents {
        let n = usize::try_from(len).unwrap_or(usize::MAX);
        let Some((part, after)) = rest.split_at_checked(n) else { return fail(EINVAL) };
        rest = after;
        c.write(off, part)?;
    }
    Ok(Output::default())
}

/// Rewrites the object without zero runs of at least `sparse_size` bytes; removes it if it is all zeroes.
pub(super) fn sparsify(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (sparse_size, remove_empty) = input(i, |r| Ok((r.u64()?, r.bool()?)))?;
    must_exist(c)?;
    let data = c.read(0, 0)?;
    if data.iter().all(|b| *b == 0) {
        if remove_empty {
            c.remove()?;
        } else if !data.is_empty() {
            c.truncate(0)?;
            c.write(0, b"")?;
        }
        return Ok(Output::default());
    }
    let piece = usize::try_from(sparse_size).unwrap_or(usize::MAX);
    if piece == 0 {
        return fail(EINVAL);
    }
    let extents = full_extents(&data, piece);
    if extents == [(0, data.len())] {
        return Ok(Output::default());
    }
    c.truncate(0)?;
    for (start, end) in extents {
        c.write(start as u64, &data[start..end])?;
    }
    Ok(Output::default())
}

/// Runs of pieces that are not all zero, each with start and end.
fn full_extents(data: &[u8], piece: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (n, p) in data.chunks(piece).enumerate() {
        if p.iter().all(|b| *b == 0) {
            continue;
        }
        let start = n * piece;
        match runs.last_mut() {
            Some((_, end)) if *end == start => *end += p.len(),
            _ => runs.push((start, start + p.len())),
        }
    }
    runs
}

/// Fails with `ERANGE` unless the comparison of the object's snapshot sequence with the given one holds.
pub(super) fn assert_snapc_seq(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (seq, state) = input(i, |r| Ok((r.u64()?, r.u8()?)))?;
    let newer = match optional(c.snapset_seq())? {
        None => true,
        Some(stored) => seq > stored,
    };
    match (state, newer) {
        (0, true) | (1, false) => Ok(Output::default()),
        (0 | 1, _) => fail(ERANGE),
        _ => fail(EOPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::full_extents;

    #[test]
    fn zero_pieces_split_runs() {
        let mut d = vec![0u8; 50];
        d[12] = 1;
        d[29] = 1;
        d[49] = 1;
        assert_eq!(full_extents(&d, 10), [(10, 30), (40, 50)]);
        assert_eq!(full_extents(&d[..45], 10), [(10, 30)]);
        assert_eq!(full_extents(&d, 100), [(0, 50)]);
    }
}
