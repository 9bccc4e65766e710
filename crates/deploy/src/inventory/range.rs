//! Ranges of names and addresses: `node[01-12]` is `node01` to `node12`.

/// The names of a pattern with at most one range, in order. `None` if the range is malformed or has more than `most`.
pub(super) fn expand(pattern: &str, most: usize) -> Option<Vec<String>> {
    let Some((head, rest)) = pattern.split_once('[') else { return Some(vec![pattern.to_owned()]) };
    let (range, tail) = rest.split_once(']')?;
    if tail.contains(['[', ']']) {
        return None;
    }
    let (first, last) = range.split_once('-')?;
    let digits = |s: &str| !s.is_empty() && s.len() <= 9 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return None;
    }
    let (from, to) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
    if from > to || to - from >= most {
        return None;
    }
    // Leading zeros give all names the same width.
    let width = if first.starts_with('0') { first.len() } else { 0 };
    Some((from..=to).map(|n| format!("{head}{n:0width$}{tail}")).collect())
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn ranges_keep_their_width() {
        assert_eq!(expand("one", 9).unwrap(), ["one"]);
        assert_eq!(expand("n[08-10].x", 9).unwrap(), ["n08.x", "n09.x", "n10.x"]);
        assert_eq!(expand("10.0.0.[9-11]", 9).unwrap(), ["10.0.0.9", "10.0.0.10", "10.0.0.11"]);
        for bad in ["n[1-", "n[2-1]", "n[1-99]", "n[a-b]", "n[1-2][1-2]", "n[-]", "n[1-99999999999]"] {
            assert_eq!(expand(bad, 9), None, "{bad}");
        }
    }
}
