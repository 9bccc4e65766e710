//! Numbers as Ceph prints and parses them: sizes with binary prefixes, counts with decimal ones, `printf("%g")`,
//! ages, and the strict parsers behind option values and quotas.

/// Formats like `%.{precision}g` of C.
#[must_use]
pub fn general(v: f64, precision: usize) -> String {
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 {
            "0".into()
        } else if v.is_nan() {
            "nan".into()
        } else {
            format!("{v}")
        };
    }
    let precision = precision.max(1);
    let sci = format!("{v:.*e}", precision - 1);
    let Some((mantissa, exp)) = sci.split_once('e') else { return sci };
    let exp: i32 = exp.parse().unwrap_or(0);
    let strip = |s: &str| -> String {
        if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').to_owned() } else { s.to_owned() }
    };
    if exp < -4 || exp >= precision as i32 {
        let sign = if exp < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", strip(mantissa), exp.unsigned_abs())
    } else {
        let decimals = (precision as i32 - 1 - exp).max(0) as usize;
        strip(&format!("{v:.decimals$}"))
    }
}

/// Formats like a C++ stream with default settings.
#[must_use]
pub fn short(v: f64) -> String {
    general(v, 6)
}

fn scaled(v: u64, base: u64, power: bool, units: &[&str]) -> String {
    let (mut n, mut index) = (v, 0usize);
    while n >= base && index + 1 < units.len() {
        n /= base;
        index += 1;
    }
    let unit = units.get(index).copied().unwrap_or("");
    if index == 0 {
        return format!("{n}{unit}");
    }
    let mult = if power { 1u64 << (10 * index) } else { 1000u64.saturating_pow(index as u32) };
    if v.is_multiple_of(mult) {
        return format!("{n}{unit}");
    }
    let x = v as f64 / mult as f64;
    let mut out = String::new();
    for decimals in [2usize, 1, 0] {
        out = format!("{x:.decimals$}{unit}");
        if out.len() <= 7 {
            break;
        }
    }
    out
}

/// A size: `89 KiB`, `6.0 GiB` (`byte_u_t`).
#[must_use]
pub fn bytes(v: u64) -> String {
    scaled(v, 1024, true, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// A count: `12`, `1.23k` (`si_u_t`).
#[must_use]
pub fn count(v: u64) -> String {
    scaled(v, 1000, false, &["", "k", "M", "G", "T", "P", "E"])
}

/// The value of a signed statistic, 0 if it is negative.
#[must_use]
pub fn unsigned(v: i64) -> u64 {
    u64::try_from(v).unwrap_or(0)
}

/// An age in seconds as status lines show it: `3m`, `17s`, `2h`, `5w`.
#[must_use]
pub fn age(seconds: u64) -> String {
    let (m, h, d, w, y) = (seconds / 60, seconds / 3600, seconds / 86_400, seconds / 604_800, seconds / 31_536_000);
    if seconds < 120 {
        format!("{seconds}s")
    } else if m < 120 {
        format!("{m}m")
    } else if h < 48 {
        format!("{h}h")
    } else if d < 14 {
        format!("{d}d")
    } else if w < 12 {
        format!("{w}w")
    } else if d < 365 * 2 {
        format!("{}M", d / 30)
    } else {
        format!("{y}y")
    }
}

/// Result of a parser. The error is the text for a status line.
pub type ParseResult<T> = Result<T, String>;

/// Parses a plain integer.
pub fn strict_int(s: &str) -> ParseResult<i64> {
    match s.parse::<i64>() {
        Ok(v) => Ok(v),
        Err(_) if !s.is_empty() && s.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) => {
            Err(format!("The option value '{s}' seems to be invalid"))
        }
        Err(_) => Err(format!("Expected option value to be integer, got '{s}'")),
    }
}

/// Parses a plain finite floating-point number.
pub fn strict_float(s: &str) -> ParseResult<f64> {
    s.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or_else(|| format!("strict_strtof: expected float, got: '{s}'"))
}

fn with_prefix(s: &str, what: &str, binary: bool) -> ParseResult<i64> {
    let fail = |why: &str| Err(format!("{what}: {why}"));
    let s = s.trim();
    if s.is_empty() {
        return fail("value not specified");
    }
    let split = s.find(|c: char| !(c.is_ascii_digit() || c == '-' || c == '+')).unwrap_or(s.len());
    let (num, unit) = s.split_at(split);
    let mut unit = unit;
    if binary {
        if let Some(u) = unit.strip_suffix('i') {
            if u.is_empty() || u == "B" {
                return fail("illegal prefix with length > 2");
            }
            unit = u;
        } else if unit.len() > 2 {
            return fail("illegal prefix (length > 2)");
        } else if unit.len() == 2 {
            // `KB` as people write it; Ceph looks at the first letter.
            unit = unit.strip_suffix('B').filter(|u| *u != "B").unwrap_or(unit);
        }
    } else if unit.len() > 2 {
        return fail("illegal prefix (length > 2)");
    }
    let power = match unit {
        "" | "B" => 0u32,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return fail("unit prefix not recognized"),
    };
    let n: i64 = num.parse().map_err(|_| format!("Expected option value to be integer, got '{s}'"))?;
    // Sizes are unsigned.
    if n < 0 && (binary || power > 0) {
        return fail("value should not be negative");
    }
    let mult = if binary { 1i64.checked_shl(10 * power) } else { 1000i64.checked_pow(power) };
    mult.and_then(|m| n.checked_mul(m)).ok_or_else(|| format!("{what}: the option value '{s}' seems to be too large"))
}

/// Parses a size with a binary prefix: `1Gi`, `4K` (`strict_iecstrtoll`). Negative sizes are refused.
pub fn strict_iec(s: &str) -> ParseResult<i64> {
    with_prefix(s, "strict_iecstrtoll", true)
}

/// Parses a count with a decimal prefix: `10K` (`strict_si_cast`). A negative count may not have a prefix.
pub fn strict_si(s: &str) -> ParseResult<i64> {
    with_prefix(s, "strict_si_cast", false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_a_byte_letter_are_powers_of_1024() {
        for (s, v) in [("10", 10), ("10B", 10), ("10K", 10 << 10), ("10Ki", 10 << 10), ("10KB", 10 << 10)] {
            assert_eq!(strict_iec(s), Ok(v), "{s}");
        }
        assert_eq!((strict_iec("100GB"), strict_iec("1TB")), (Ok(100 << 30), Ok(1 << 40)));
        for s in ["1BB", "1KBB", "1Bi", "1XB", "1kB", "KB"] {
            assert!(strict_iec(s).is_err(), "{s}");
        }
        assert!(strict_si("1KB").is_err(), "a count has no bytes");
    }

    #[test]
    fn general_is_printf_g() {
        for (v, p, want) in [
            (0.95f32 as f64, 17, "0.94999998807907104"),
            (1.0, 17, "1"),
            (1.4098826795816422e-05, 17, "1.4098826795816422e-05"),
            (0.00138282775878906, 6, "0.00138283"),
            (1_234_567.0, 6, "1.23457e+06"),
            (100_000.0, 6, "100000"),
            (-2.5, 6, "-2.5"),
            (0.0, 6, "0"),
        ] {
            assert_eq!(general(v, p), want);
        }
    }

    #[test]
    fn sizes_and_counts_as_in_captures() {
        for (v, want) in [
            (0, "0 B"),
            (90_831, "89 KiB"),
            (6_442_360_113, "6.0 GiB"),
            (6_442_450_944, "6 GiB"),
            (3_060_118_016, "2.8 GiB"),
            (1023, "1023 B"),
            (608_174_080, "580 MiB"),
        ] {
            assert_eq!(bytes(v), want);
        }
        assert_eq!(count(999), "999");
        assert_eq!(count(12_345), "12.35k");
        assert_eq!(count(2_000), "2k");
    }

    #[test]
    fn strict_parsers() {
        assert_eq!(strict_iec("1Gi"), Ok(1 << 30));
        assert_eq!(strict_iec("1G"), Ok(1 << 30));
        assert_eq!(strict_iec("0"), Ok(0));
        assert_eq!(strict_iec("-5").unwrap_err(), "strict_iecstrtoll: value should not be negative");
        assert_eq!(strict_iec("zz").unwrap_err(), "strict_iecstrtoll: unit prefix not recognized");
        assert_eq!(strict_si("1k").unwrap_err(), "strict_si_cast: unit prefix not recognized");
        assert_eq!(strict_si("1K"), Ok(1000));
        assert_eq!(strict_int("x").unwrap_err(), "Expected option value to be integer, got 'x'");
        assert!(strict_iec("9999999999999999E").is_err());
    }

    #[test]
    fn ages() {
        for (s, want) in [(17, "17s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (200_000, "2d")] {
            assert_eq!(age(s), want);
        }
    }
}
