//! Schedules of repeated work on images, by pool, namespace or image (`rbd … schedule`).
//!
//! A schedule is a set of intervals with optional start times, stored as Ceph's manager stores it: a JSON list of
//! `{"interval", "start_time"}`. A run is due at each multiple of the interval since 1970, shifted by the start time.
//! Times without a zone are UTC.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Minutes of a day.
const DAY: u32 = 24 * 60;
/// Longest interval: 100 years.
const MINUTES_MAX: u32 = 100 * 366 * DAY;
/// Most items of one schedule.
const ITEMS_MAX: usize = 256;

/// Interval of a schedule item, in minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    minutes: u32,
}

impl Interval {
    /// Parses `90m`, `2h`, `1d`; a bare number is minutes.
    ///
    /// # Errors
    /// Text in the words of Ceph's manager.
    pub fn parse(s: &str) -> Result<Self, String> {
        let bad = || format!("Invalid interval ({s})");
        let (number, unit) = match s.strip_suffix(['d', 'h', 'm']) {
            Some(n) => (n, s.as_bytes()[n.len()]),
            None => (s, b'm'),
        };
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let factor = match unit {
            b'd' => DAY,
            b'h' => 60,
            _ => 1,
        };
        let n: u32 = number.parse().map_err(|_| bad())?;
        let minutes = n.checked_mul(factor).filter(|m| (1..=MINUTES_MAX).contains(m)).ok_or_else(bad)?;
        Ok(Self { minutes })
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.minutes {
            m if m % DAY == 0 => write!(f, "{}d", m / DAY),
            m if m % 60 == 0 => write!(f, "{}h", m / 60),
            m => write!(f, "{m}m"),
        }
    }
}

/// Time of day at which an interval begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartTime {
    hour: u32,
    minute: u32,
    /// Offset from UTC in minutes, positive to the east, if a zone was given.
    zone: Option<i32>,
}

impl StartTime {
    /// Parses `14:30`, `14:30:00`, optionally after a date or before a zone (`Z`, `+02:00`, `-0500`).
    ///
    /// # Errors
    /// The text is not a time; the error says why.
    pub fn parse(s: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("Invalid start time {s}: {why}: {s}");
        let unknown = || bad("Unknown string format");
        let time = s.rsplit(['T', ' ']).next().unwrap_or_default();
        let (clock, zone) = match time.find(['Z', 'z', '+', '-']) {
            Some(i) => (&time[..i], Some(&time[i..])),
            None => (time, None),
        };
        let number = |n: &str| {
            let plain = (1..=2).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit());
            if plain { n.parse::<u32>().map_err(|_| unknown()) } else { Err(unknown()) }
        };
        let parts: Vec<&str> = clock.split(':').collect();
        let (hour, minute) = match parts[..] {
            [h, m] => (number(h)?, number(m)?),
            [h, m, sec] => {
                number(sec.split('.').next().unwrap_or_default())?;
                (number(h)?, number(m)?)
            }
            _ => return Err(unknown()),
        };
        if hour > 23 {
            return Err(bad(&format!("hour must be in 0..23, not {hour}")));
        }
        if minute > 59 {
            return Err(bad(&format!("minute must be in 0..59, not {minute}")));
        }
        let zone = match zone {
            None => None,
            Some("Z" | "z") => Some(0),
            Some(z) => {
                let sign = if z.starts_with('-') { -1 } else { 1 };
                let digits: String = z[1..].chars().filter(|c| *c != ':').collect();
                let (h, m) = match digits.len() {
                    2 => (number(&digits)?, 0),
                    4 if digits.is_ascii() => (number(&digits[..2])?, number(&digits[2..])?),
                    _ => return Err(unknown()),
                };
                if h > 23 || m > 59 {
                    return Err(unknown());
                }
                Some(sign * (h * 60 + m) as i32)
            }
        };
        Ok(Self { hour, minute, zone })
    }

    /// Minutes after midnight UTC.
    fn minutes(self) -> i64 {
        i64::from(self.hour * 60 + self.minute) - i64::from(self.zone.unwrap_or(0))
    }
}

impl std::fmt::Display for StartTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02}:{:02}:00", self.hour, self.minute)?;
        match self.zone {
            None => Ok(()),
            Some(z) => write!(f, "{}{:02}:{:02}", if z < 0 { '-' } else { '+' }, z.abs() / 60, z.abs() % 60),
        }
    }
}

/// A schedule: a set of intervals with start times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    items: Vec<(Interval, Option<StartTime>)>,
}

impl Schedule {
    /// Adds an item unless the schedule already has it.
    ///
    /// # Errors
    /// The schedule has too many items.
    pub fn add(&mut self, interval: Interval, start: Option<StartTime>) -> Result<(), String> {
        if !self.items.contains(&(interval, start)) {
            if self.items.len() >= ITEMS_MAX {
                return Err(format!("more than {ITEMS_MAX} intervals"));
            }
            self.items.push((interval, start));
        }
        Ok(())
    }

    /// Removes an item if the schedule has it.
    pub fn remove(&mut self, interval: Interval, start: Option<StartTime>) {
        self.items.retain(|i| *i != (interval, start));
    }

    /// True if the schedule has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The next due minute after `now`, both in minutes since 1970.
    #[must_use]
    pub fn next(&self, now: i64) -> Option<i64> {
        let next = |(i, s): &(Interval, Option<StartTime>)| {
            let (period, start) = (i64::from(i.minutes), s.map_or(0, StartTime::minutes));
            start + ((now - start).div_euclid(period) + 1) * period
        };
        self.items.iter().map(next).min()
    }

    /// JSON form, as shown and stored.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let item = |(i, s): &(Interval, Option<StartTime>)| json!({"interval": i.to_string(), "start_time": s.map(|s| s.to_string())});
        self.items.iter().map(item).collect()
    }

    /// Parses the stored form.
    ///
    /// # Errors
    /// The text is not a schedule.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let v: Value = serde_json::from_slice(text).map_err(|e| format!("Invalid JSON ({e})"))?;
        let mut out = Self::default();
        for item in v.as_array().ok_or("Invalid schedule format")? {
            let word = |k: &str| item.get(k).and_then(Value::as_str);
            let interval = word("interval").ok_or("Invalid schedule format (missing key 'interval')")?;
            let start = word("start_time").filter(|s| !s.is_empty()).map(StartTime::parse).transpose()?;
            out.add(Interval::parse(interval)?, start)?;
        }
        Ok(out)
    }
}

/// Scope of a schedule: global, a pool, a namespace, or an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Display name: `rbd/`, `rbd/ns/`, `rbd/ns/image`.
    pub name: String,
    /// Pool id; `None` for the global level.
    pub pool: Option<i64>,
    /// Namespace, for a level below the pool.
    pub nspace: Option<String>,
    /// Image id, for an image level.
    pub image: Option<String>,
}

/// Names in a level specification, not yet resolved to ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelName<'a> {
    /// Name of the pool.
    pub pool: Option<&'a str>,
    /// Name of the namespace; `Some("")` for the default namespace.
    pub nspace: Option<&'a str>,
    /// Name of the image.
    pub image: Option<&'a str>,
}

/// Parses `''`, `rbd/`, `rbd/ns/`, `rbd//image`, `rbd/image`, `rbd/ns/image`.
///
/// # Errors
/// Text in the words of Ceph's manager.
pub fn parse_level(s: &str) -> Result<LevelName<'_>, String> {
    let bad = || format!("failed to parse {s}");
    if s.is_empty() {
        return Ok(LevelName { pool: None, nspace: None, image: None });
    }
    let parts: Vec<&str> = s.split('/').collect();
    let (pool, nspace, image) = match parts[..] {
        [pool, image] => (pool, None, image),
        [pool, nspace, image] => (pool, Some(nspace), image),
        _ => return Err(bad()),
    };
    if pool.is_empty() || image.contains('@') {
        return Err(bad());
    }
    let image = (!image.is_empty()).then_some(image);
    Ok(LevelName { pool: Some(pool), nspace: nspace.or_else(|| image.map(|_| "")), image })
}

impl Level {
    /// Storage key of the level's schedule: `''`, `3`, `3/ns`, `3/ns/image-id`.
    #[must_use]
    pub fn id(&self) -> String {
        let mut s = String::new();
        if let Some(p) = self.pool {
            s += &p.to_string();
            if let Some(n) = &self.nspace {
                s = format!("{s}/{n}");
                if let Some(i) = &self.image {
                    s = format!("{s}/{i}");
                }
            }
        }
        s
    }

    /// Parses a storage key; the name is left empty.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        let parts: Vec<&str> = id.split('/').collect();
        let pool = match parts.first()? {
            &"" if parts.len() == 1 => return Some(Self::default()),
            p if p.bytes().all(|b| b.is_ascii_digit()) => p.parse().ok()?,
            _ => return None,
        };
        let own = |i: usize| parts.get(i).map(|s| (*s).to_owned());
        (parts.len() <= 3 && parts.get(2).is_none_or(|i| !i.is_empty())).then(|| Self {
            name: String::new(),
            pool: Some(pool),
            nspace: own(1),
            image: own(2),
        })
    }

    /// True if `self` is strictly within `other`.
    fn is_child_of(&self, other: &Self) -> bool {
        let Some(pool) = other.pool else { return self.pool.is_some() };
        if self.pool != Some(pool) {
            return false;
        }
        match (&other.nspace, &other.image) {
            (None, _) => self.nspace.is_some(),
            (n, None) => self.nspace == *n && self.image.is_some(),
            _ => false,
        }
    }

    /// True if an image (or, without one, a namespace) is within this level.
    #[must_use]
    pub fn matches(&self, pool: i64, nspace: &str, image: Option<&str>) -> bool {
        self.pool.is_none_or(|p| p == pool)
            && self.nspace.as_deref().is_none_or(|n| n == nspace)
            && self.image.as_deref().is_none_or(|i| Some(i) == image)
    }
}

/// All schedules of one kind, by the storage key of their level.
#[derive(Clone, Debug, Default)]
pub struct Schedules(BTreeMap<String, (Level, Schedule)>);

impl Schedules {
    /// Inserts a schedule that was read.
    pub fn put(&mut self, level: Level, s: Schedule) {
        self.0.insert(level.id(), (level, s));
    }

    /// Adds an item; returns the schedule to store.
    ///
    /// # Errors
    /// `interval` or `start` is invalid, or the schedule is full.
    pub fn add(&mut self, level: &Level, interval: &str, start: &str) -> Result<Schedule, String> {
        let interval = Interval::parse(interval)?;
        let start = (!start.is_empty()).then(|| StartTime::parse(start)).transpose()?;
        let (_, s) = self.0.entry(level.id()).or_insert_with(|| (level.clone(), Schedule::default()));
        s.add(interval, start)?;
        Ok(s.clone())
    }

    /// Removes an item, or all items without an interval; returns the schedule to store, `None` if it is empty.
    ///
    /// # Errors
    /// `interval` or `start` is invalid.
    pub fn remove(&mut self, level: &Level, interval: Option<&str>, start: &str) -> Result<Option<Schedule>, String> {
        let id = level.id();
        if let Some(interval) = interval {
            let interval = Interval::parse(interval)?;
            let start = (!start.is_empty()).then(|| StartTime::parse(start)).transpose()?;
            if let Some((_, s)) = self.0.get_mut(&id) {
                s.remove(interval, start);
                if !s.is_empty() {
                    return Ok(Some(s.clone()));
                }
            }
        }
        self.0.remove(&id);
        Ok(None)
    }

    /// True if there are no schedules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The schedules of the levels that a condition selects.
    pub fn of(&self, wanted: impl Fn(&Level) -> bool) -> Vec<(Level, Schedule)> {
        self.0.values().filter(|(l, _)| wanted(l)).cloned().collect()
    }

    /// True if a schedule applies to something in this pool.
    #[must_use]
    pub fn concern(&self, pool: i64) -> bool {
        self.0.values().any(|(l, _)| l.pool.is_none_or(|p| p == pool))
    }

    /// The effective schedule: that of the image, else of its namespace, its pool, or the global one.
    #[must_use]
    pub fn find(&self, pool: i64, nspace: &str, image: Option<&str>) -> Option<&Schedule> {
        let image = image.map(|i| format!("{pool}/{nspace}/{i}"));
        let ids = [image, Some(format!("{pool}/{nspace}")), Some(pool.to_string()), Some(String::new())];
        ids.into_iter().flatten().find_map(|id| self.0.get(&id)).map(|(_, s)| s)
    }

    /// Schedules listed for a level: its own or the nearest one above, and all below.
    #[must_use]
    pub fn list(&self, level: &Level) -> Value {
        let id = level.id();
        let above = || {
            let all = self.0.values().filter(|(l, _)| level.is_child_of(l));
            all.map(|(l, _)| l.id()).max_by_key(String::len)
        };
        let parent = if self.0.contains_key(&id) { Some(id.clone()) } else { above() };
        let shown = |(k, (l, _)): &(&String, &(Level, Schedule))| {
            **k == id || Some(*k) == parent.as_ref() || l.is_child_of(level)
        };
        let entry =
            |(k, (l, s)): (&String, &(Level, Schedule))| (k.clone(), json!({"name": l.name, "schedule": s.to_json()}));
        Value::Object(self.0.iter().filter(shown).map(entry).collect())
    }
}

/// Targets by the minute at which they are due.
#[derive(Clone, Debug)]
pub struct Queue<T>(BTreeMap<i64, BTreeSet<T>>);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord + Clone> Queue<T> {
    /// Replaces the plan. Targets that were due and not yet taken stay due.
    pub fn plan(&mut self, now: i64, targets: impl Iterator<Item = (T, i64)>) {
        let mut targets: BTreeMap<T, i64> = targets.collect();
        for due in self.0.range(..=now).flat_map(|(at, s)| s.iter().map(|t| (t.clone(), *at))).collect::<Vec<_>>() {
            if let Some(at) = targets.get_mut(&due.0) {
                *at = due.1;
            }
        }
        self.0.clear();
        for (t, at) in targets {
            self.add(t, at);
        }
    }

    /// Adds one target.
    pub fn add(&mut self, t: T, at: i64) {
        self.0.entry(at).or_default().insert(t);
    }

    /// Takes the targets that are due at `now`.
    pub fn take_due(&mut self, now: i64) -> Vec<T> {
        let later = self.0.split_off(&(now + 1));
        std::mem::replace(&mut self.0, later).into_values().flatten().collect()
    }

    /// The first minute at which a target is due.
    #[must_use]
    pub fn next(&self) -> Option<i64> {
        self.0.keys().next().copied()
    }

    /// All targets in order of time.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        self.0.iter().flat_map(|(at, s)| s.iter().map(|t| (*at, t)))
    }
}

/// A minute since 1970 as Ceph shows it: `2026-11-21 20:53:00`.
#[must_use]
pub fn show(minute: i64) -> String {
    let sec = u32::try_from(minute.max(0).saturating_mul(60)).unwrap_or(u32::MAX);
    base::Utime { sec, nsec: 0 }.iso()[..19].replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_times_read_and_show_as_in_ceph() {
        for (s, shown) in [("2d", "2d"), ("48h", "2d"), ("90m", "90m"), ("60", "1h"), ("3h", "3h")] {
            assert_eq!(Interval::parse(s).unwrap().to_string(), shown);
        }
        for s in ["xx", "2s", "2w", "", "d", "-1m", "0m", "99999999999d", "1.5h"] {
            assert_eq!(Interval::parse(s), Err(format!("Invalid interval ({s})")));
        }
        let times = [
            ("14:00-05:00", "14:00:00-05:00", 19 * 60),
            ("10:30", "10:30:00", 630),
            ("2020-01-01T07:05:09Z", "07:05:00+00:00", 425),
            ("2020-01-01 7:05+0230", "07:05:00+02:30", 275),
        ];
        for (s, shown, minutes) in times {
            let t = StartTime::parse(s).unwrap();
            assert_eq!((t.to_string().as_str(), t.minutes()), (shown, minutes), "{s}");
        }
        let why = "Invalid start time 99:99: hour must be in 0..23, not 99: 99:99";
        assert_eq!(StartTime::parse("99:99"), Err(why.to_owned()));
        for s in ["", "x", "12", "12:60", "1:2:3:4", "12:00+1", "12:00+99:00", "é:00", "12:00+é0"] {
            assert!(StartTime::parse(s).is_err(), "{s}");
        }
    }

    #[test]
    fn runs_are_due_at_full_intervals_from_the_start_time() {
        let mut s = Schedule::default();
        assert_eq!(s.next(5), None);
        s.add(Interval::parse("10m").unwrap(), None).unwrap();
        assert_eq!([s.next(0), s.next(9), s.next(10)], [Some(10), Some(10), Some(20)]);
        s.add(Interval::parse("1d").unwrap(), Some(StartTime::parse("14:03").unwrap())).unwrap();
        let noon = 20_000 * 1440 + 14 * 60;
        assert_eq!(s.next(noon + 2), Some(noon + 3));
        assert_eq!(s.next(noon + 3), Some(noon + 10));
        assert_eq!(show(29_845_253), "2026-09-29 20:53:00");
        let back = Schedule::from_json(s.to_json().to_string().as_bytes()).unwrap();
        assert_eq!(back, s);
        assert!(Schedule::from_json(b"{}").is_err() && Schedule::from_json(b"[{}]").is_err());
        assert!(Schedule::from_json(b"[{\"interval\": \"1x\"}]").is_err());
    }

    #[test]
    fn levels() {
        let level = |pool, nspace, image| LevelName { pool, nspace, image };
        assert_eq!(parse_level(""), Ok(level(None, None, None)));
        assert_eq!(parse_level("rbd/"), Ok(level(Some("rbd"), None, None)));
        assert_eq!(parse_level("rbd/ns/"), Ok(level(Some("rbd"), Some("ns"), None)));
        assert_eq!(parse_level("rbd//i"), Ok(level(Some("rbd"), Some(""), Some("i"))));
        assert_eq!(parse_level("rbd/i"), Ok(level(Some("rbd"), Some(""), Some("i"))));
        assert_eq!(parse_level("rbd/ns/i"), Ok(level(Some("rbd"), Some("ns"), Some("i"))));
        for s in ["rbd", "/", "/x", "a/b/c/d", "rbd/i@s"] {
            assert_eq!(parse_level(s), Err(format!("failed to parse {s}")), "{s}");
        }
        for id in ["", "3", "3/", "3/ns", "3//abc", "3/ns/abc"] {
            assert_eq!(Level::from_id(id).unwrap().id(), id);
        }
        for id in ["x", "3/a/b/c", "/", "3/a/"] {
            assert_eq!(Level::from_id(id), None, "{id}");
        }
    }

    #[test]
    fn the_nearest_schedule_rules_and_lists_show_what_concerns_a_level() {
        let mut all = Schedules::default();
        let at = |id: &str| Level { name: format!("name of {id}"), ..Level::from_id(id).unwrap() };
        for (id, interval) in [("", "2d"), ("3", "3h"), ("3/ns", "2h"), ("3//abc", "1m")] {
            all.add(&at(id), interval, "").unwrap();
        }
        let of = |p, n, i| all.find(p, n, i).unwrap().to_json()[0]["interval"].as_str().unwrap().to_owned();
        assert_eq!(of(9, "", None), "2d");
        assert_eq!(of(3, "", None), "3h");
        assert_eq!(of(3, "ns", Some("x")), "2h");
        assert_eq!(of(3, "", Some("abc")), "1m");
        let keys_of = |all: &Schedules, l: &Level| all.list(l).as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let keys = |l: &Level| keys_of(&all, l);
        assert_eq!(keys(&at("")), ["", "3", "3//abc", "3/ns"]);
        assert_eq!(keys(&at("3")), ["3", "3//abc", "3/ns"]);
        assert_eq!(keys(&at("3//other")), ["3"], "the nearest above");
        assert_eq!(keys(&at("4")), [""]);
        assert!(all.concern(4));
        assert_eq!(all.remove(&at("3"), Some("1h"), "").unwrap().unwrap().to_json().as_array().unwrap().len(), 1);
        assert_eq!(all.remove(&at("3"), Some("3h"), "").unwrap(), None);
        assert_eq!(all.remove(&at("3//abc"), None, "").unwrap(), None);
        assert_eq!(keys_of(&all, &at("3//abc")), [""], "the nearest above");
    }

    #[test]
    fn a_due_target_stays_due_over_new_plans() {
        let mut q = Queue::default();
        q.plan(5, [("a", 10), ("b", 20)].into_iter());
        q.plan(12, [("a", 22), ("b", 20), ("c", 30)].into_iter());
        assert_eq!(q.iter().collect::<Vec<_>>(), [(10, &"a"), (20, &"b"), (30, &"c")]);
        assert_eq!(q.take_due(9), Vec::<&str>::new());
        assert_eq!(q.take_due(20), ["a", "b"]);
        assert_eq!(q.next(), Some(30));
        q.plan(40, [("d", 50)].into_iter());
        assert_eq!(q.iter().collect::<Vec<_>>(), [(50, &"d")], "what is gone is not due");
    }
}
