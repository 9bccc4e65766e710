//! Times as values: pure code gets them as arguments and never asks a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Wall-clock time as the protocol carries it (`utime_t`): seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utime {
    /// Seconds.
    pub sec: u32,
    /// Nanoseconds, below 10^9 in well-formed times.
    pub nsec: u32,
}

impl Utime {
    /// Time zero, "never".
    pub const ZERO: Self = Self { sec: 0, nsec: 0 };

    /// Converts a duration since 1970. Times beyond the range become its end.
    #[must_use]
    pub fn from_unix(d: Duration) -> Self {
        match u32::try_from(d.as_secs()) {
            Ok(sec) => Self { sec, nsec: d.subsec_nanos() },
            Err(_) => Self { sec: u32::MAX, nsec: 999_999_999 },
        }
    }

    /// Converts to a duration since 1970.
    #[must_use]
    pub fn to_unix(self) -> Duration {
        Duration::from_secs(u64::from(self.sec)) + Duration::from_nanos(u64::from(self.nsec))
    }

    /// This time plus `d`, saturating.
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Self::from_unix(self.to_unix().saturating_add(d))
    }

    /// Year, month, day, hour, minute and second, UTC.
    #[must_use]
    pub fn utc(self) -> [u32; 6] {
        let s = self.sec % 86_400;
        // Civil-from-days (Howard Hinnant's algorithm); days since 1970 are never negative here.
        let z = self.sec / 86_400 + 719_468;
        let (era, doe) = (z / 146_097, z % 146_097);
        let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let d = doy - (153 * mp + 2) / 5 + 1;
        let m = if mp < 10 { mp + 3 } else { mp - 9 };
        [yoe + era * 400 + u32::from(m <= 2), m, d, s / 3600, s / 60 % 60, s % 60]
    }

    /// Reads a date, or a date with a time and an offset from UTC, as `2026-11-29T07:00:00.000000+0000`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = |t: &str| if t.bytes().all(|b| b.is_ascii_digit()) { t.parse::<u32>().ok() } else { None };
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
        let parts: Vec<u32> = date.split('-').map(number).collect::<Option<_>>()?;
        let &[year, month, day] = parts.as_slice() else { return None };
        let at = time.find(['+', '-', 'Z']).unwrap_or(time.len());
        let (clock, zone) = (time.get(..at)?, time.get(at..)?);
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let parts: Vec<u32> = clock.split(':').map(number).collect::<Option<_>>()?;
        let (hour, minute, second) = match parts.as_slice() {
            [h, m] => (*h, *m, 0),
            [h, m, s] => (*h, *m, *s),
            _ => return None,
        };
        let micros = match fraction.len() {
            0 => 0,
            1..=9 => number(&format!("{fraction:0<9}"))? / 1000,
            _ => return None,
        };
        let digits = zone.replace([':', 'Z', '+', '-'], "");
        let offset = match digits.len() {
            0 => 0,
            4 => i64::from(number(&digits)? / 100 * 3600 + number(&digits)? % 100 * 60),
            _ => return None,
        };
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let local = days_to(year, month, day)? * 86_400 + u64::from(hour * 3600 + minute * 60 + second);
        let utc =
            if zone.starts_with('-') { local.checked_add_signed(offset) } else { local.checked_add_signed(-offset) };
        Some(Self { sec: u32::try_from(utc?).ok()?, nsec: micros * 1000 })
    }

    /// The time as Ceph prints it in JSON and logs, UTC: `2026-11-21T17:11:42.000123+0000`.
    #[must_use]
    pub fn iso(self) -> String {
        let [y, m, d, hour, minute, second] = self.utc();
        format!("{y:04}-{m:02}-{d:02}T{hour:02}:{minute:02}:{second:02}.{:06}+0000", self.nsec / 1000)
    }
}

/// Days from 1970 to a date, if there is one of these numbers.
fn days_to(year: u32, month: u32, day: u32) -> Option<u64> {
    let leap = |y: u32| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let lengths = [31, 28 + u32::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    if !(1970..=2106).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    let years: u32 = (1970..year).map(|y| 365 + u32::from(leap(y))).sum();
    let months: u32 = lengths.iter().take(month as usize - 1).sum();
    Some(u64::from(years + months + day - 1))
}

impl fmt::Display for Utime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iso())
    }
}

/// Monotonic time of one process, nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// Time since `earlier`, zero if that lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Mono> for Mono {
    type Output = Duration;
    fn sub(self, o: Self) -> Duration {
        self.since(o)
    }
}

/// The two clock readings that a pure machine gets with each input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic: deadlines, intervals.
    pub mono: Mono,
    /// Wall clock: stamps that leave the process.
    pub wall: Utime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_ceph_writes_them() {
        let at = |sec, nsec| Some(Utime { sec, nsec });
        for (text, want) in [
            ("2026-11-29", at(1_795_910_400, 0)),
            ("2026-11-29T07:30:01.250000+0000", at(1_795_937_401, 250_000_000)),
            ("2026-11-29 07:30", at(1_795_937_400, 0)),
            ("2026-11-29T07:30:00Z", at(1_795_937_400, 0)),
            ("2026-11-29T09:30:00+02:00", at(1_795_937_400, 0)),
            ("2026-11-29T02:30:00-0500", at(1_795_937_400, 0)),
            ("2000-02-29", at(951_782_400, 0)),
        ] {
            assert_eq!(Utime::parse(text), want, "{text}");
        }
        for t in [1, 951_782_399, 1_700_000_000, u32::MAX] {
            let t = Utime { sec: t, nsec: 123_456_000 };
            assert_eq!(Utime::parse(&t.iso()), Some(t));
        }
        for bad in [
            "",
            "soon",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2026-00-01",
            "2026-01-00",
            "1969-01-01",
            "2107-01-01",
            "2026-1-1T25:00",
            "2026-01-01T00:00:00.1234567890",
            "2026-01-01T00:00+1",
            "-1-1-1",
            "2026-01-01T",
            "é-é-é",
            "2026-01-01Té",
        ] {
            assert_eq!(Utime::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn iso_form() {
        assert_eq!(Utime { sec: 1_700_000_000, nsec: 123_456_789 }.iso(), "2023-11-14T22:13:20.123456+0000");
        assert_eq!(Utime::ZERO.iso(), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(Utime { sec: 951_782_400, nsec: 0 }.iso(), "2000-02-29T00:00:00.000000+0000");
    }

    #[test]
    fn sums_do_not_wrap() {
        let now = Utime { sec: 1_700_000_000, nsec: 5 };
        for secs in [u64::from(u32::MAX), 1 << 40, u64::MAX] {
            assert_eq!(now.plus(Duration::from_secs(secs)).sec, u32::MAX);
            assert!(now.plus(Duration::from_secs(secs)) > now);
        }
        assert_eq!(Mono(7) + Duration::from_secs(u64::MAX), Mono(u64::MAX));
    }
}
