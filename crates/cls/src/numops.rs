//! Class `numops`: arithmetic on decimal numbers stored as text in omap values.
//!
//! Numbers are parsed as by C's `strtod` and formatted with `%.10g`.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{fail, input, omap_opt, omap_put};
use base::errno::{EBADMSG, EINVAL};
use bytes::Bytes;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] =
    &[Method::rdwr("add", |c, i| apply(c, i, |a, b| a + b)), Method::rdwr("mul", |c, i| apply(c, i, |a, b| a * b))];

/// Significant digits of a result.
const DIGITS: usize = 10;

fn apply(c: &mut dyn ObjectCtx, i: &Bytes, f: fn(f64, f64) -> f64) -> ClsResult<Output> {
    let (key, operand) = input(i, |r| Ok((r.blob()?, r.blob()?)))?;
    let Some(operand) = strtod(&operand) else { return fail(EINVAL) };
    let value = match omap_opt(c, &key)? {
        None => 0.0,
        Some(b) => match strtod(&b) {
            Some(v) => v,
            None => return fail(EBADMSG),
        },
    };
    omap_put(c, key, general(f(value, operand)).into_bytes())?;
    Ok(Output::default())
}

/// Parses a text that is a number as a whole, else `None`. Empty text is 0; a NUL ends the text.
fn strtod(text: &[u8]) -> Option<f64> {
    let text = text.split(|b| *b == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let text = std::str::from_utf8(text).ok()?.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(t) => (-1.0, t),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => hex_number(hex).map(|v| sign * v),
        None => digits.parse::<f64>().ok().map(|v| sign * v),
    }
}

/// Parses `h.hp±d`, the part of a hexadecimal number after `0x`.
fn hex_number(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.split_once(['p', 'P']) {
        Some((m, e)) => (m, e.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut v = 0.0_f64;
    for d in whole.chars().chain(fraction.chars()) {
        v = v * 16.0 + f64::from(d.to_digit(16)?);
    }
    let shift = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    Some(v * 2.0_f64.powi(exponent.saturating_sub(shift)))
}

/// Formats a number as `%.10g`.
fn general(v: f64) -> String {
    if v.is_nan() {
        return if v.is_sign_negative() { "-nan" } else { "nan" }.into();
    }
    if v.is_infinite() {
        return if v < 0.0 { "-inf" } else { "inf" }.into();
    }
    let scientific = format!("{v:.*e}", DIGITS - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => s.to_owned(),
    };
    if exponent < -4 || exponent >= DIGITS as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    } else {
        trim(&format!("{v:.*}", (DIGITS as i32 - 1 - exponent) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_as_in_c() {
        for (text, v) in [("", 0.0), (" 10.5", 10.5), ("-1e3", -1000.0), ("+.5", 0.5), ("5.", 5.0), ("0x10", 16.0)] {
            assert_eq!(strtod(text.as_bytes()), Some(v), "{text:?}");
        }
        assert_eq!(strtod(b"-0x1.8p1"), Some(-3.0));
        assert_eq!(strtod(b"12\0junk"), Some(12.0));
        for text in ["a", "1 ", "1x", "+-1", "0x", "1e", "--1"] {
            assert_eq!(strtod(text.as_bytes()), None, "{text:?}");
        }
    }

    /// The expected texts come from C's `printf("%.10g")`.
    #[test]
    fn numbers_print_as_in_c() {
        for (v, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (-0.5, "-0.5"),
            (0.1 + 0.2, "0.3"),
            (1234567890.0, "1234567890"),
            (12345678901.0, "1.23456789e+10"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (1e100, "1e+100"),
            (9999999999.9, "1e+10"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(general(v), text);
        }
    }
}
