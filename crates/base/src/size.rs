//! Sizes as people type and read them, in powers of 1024.

/// Parses `4096`, `64K`, `10G`, `1.5TiB`; `None` if it is not a size.
#[must_use]
pub fn parse(s: &str) -> Option<u64> {
    let s = s.trim();
    let digits = s.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(s.len());
    let (num, unit) = s.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    if let Ok(n) = num.parse::<u64>() {
        return n.checked_mul(1u64 << shift);
    }
    let f: f64 = num.parse().ok()?;
    let v = f * (1u64 << shift) as f64;
    (v.is_finite() && v < u64::MAX as f64).then_some(v as u64)
}

/// Bytes on the line `key` (`MemTotal:`) of the text of `/proc/meminfo`, which has KiB.
#[must_use]
pub fn of_meminfo(text: &str, key: &str) -> Option<u64> {
    let kib = text.lines().find_map(|l| l.strip_prefix(key))?.split_whitespace().next()?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// Formats a size: `512 B`, `1.5 GiB`.
#[must_use]
pub fn show(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut v = n as f64;
    let mut u = 0;
    while v >= 1024.0 && u + 1 < UNITS.len() {
        v /= 1024.0;
        u += 1;
    }
    if u == 0 || v.fract() < 0.05 { format!("{v:.0} {}", UNITS[u]) } else { format!("{v:.1} {}", UNITS[u]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_kib() {
        let total = |text| of_meminfo(text, "MemTotal:");
        assert_eq!(total("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(
            (total(""), total("MemTotal: x kB"), total("MemTotal: 99999999999999999999 kB")),
            (None, None, None)
        );
    }

    #[test]
    fn parses_what_people_type() {
        assert_eq!(parse("4096"), Some(4096));
        assert_eq!(parse("64K"), Some(65536));
        assert_eq!(parse("10GiB"), Some(10 << 30));
        assert_eq!(parse("1.5g"), Some(3 << 29));
        assert_eq!(parse("ten"), None);
        assert_eq!(parse("1X"), None);
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(10 << 30), "10 GiB");
        assert_eq!(show(7), "7 B");
    }
}
