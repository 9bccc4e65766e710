//! Tests of scheduled snapshots.

use super::*;

/// After all snapshots of these tests.
const NOW: &str = "2026-11-29T12:00:00";

fn at(text: &str) -> Utime {
    Utime::parse(text).unwrap()
}

fn sec(text: &str) -> u64 {
    at(text).sec.into()
}

fn new<'a>(repeat: &'a str, start: Option<&'a str>) -> New<'a> {
    New { path: "/a", subvol: None, group: None, repeat, start, minutes: false, fs: "home" }
}

fn plan(repeat: &str) -> Plan {
    Plan::add(None, &new(repeat, None), at("2026-11-29T07:30:00")).unwrap()
}

fn names(times: &[&str]) -> Vec<String> {
    times.iter().map(|t| snapshot_name(at(t))).collect()
}

#[test]
fn intervals_are_those_of_ceph() {
    let all = ["15m", "6h", "1d", "2w", "1M", "1y"].map(|t| interval(t).unwrap());
    assert_eq!(all, [900, 21_600, 86_400, 1_209_600, 2_592_000, 31_536_000]);
    for bad in ["", "h", "0h", "-1h", "1", "1x", "1.5h", "é", "99999999999999999h"] {
        assert_eq!(interval(bad).unwrap_err().0, ENOENT, "{bad}");
    }
}

#[test]
fn snapshots_are_due_at_multiples_after_the_start() {
    let p = plan("6h");
    let (before, now) = (sec("2026-11-29T07:30:00"), sec("2026-11-29T12:00:00"));
    assert_eq!(p.due(before, now - 1, false), None);
    assert_eq!(p.due(before, now, false), Some((0, now)));
    assert_eq!(p.due(before, now + 9, false), Some((0, now)));
    assert_eq!(p.due(now, now + 9, false), None);
    assert_eq!(p.next(now, false), Some(now + 21_600));
    // Not for the time before it was made, nor at its start; one snapshot for all that was missed, of the last time.
    assert_eq!(p.due(0, before, false), None);
    assert_eq!(p.due(before, now + 86_400 + 5, false), Some((0, now + 86_400)));
    assert_eq!(plan("1y").due(0, now, false), None);
    // A clock that was ahead when it was made holds nothing up.
    let earlier = sec("2026-11-29T06:00:00");
    assert_eq!(p.due(earlier - 1, earlier, false), Some((0, earlier)));
}

#[test]
fn of_several_schedules_the_last_is_due() {
    let now = at("2026-11-29T07:30:00");
    let p = Plan::add(Some(plan("1d")), &new("1h", Some("2026-11-29T00:10:00+01:00")), now).unwrap();
    let ten_past = sec("2026-11-29T08:10:00");
    assert_eq!(
        (p.next(now.sec.into(), false), p.due(now.sec.into(), ten_past, false)),
        (Some(ten_past), Some((1, ten_past)))
    );
    let midnight = sec("2026-11-30T00:00:00");
    assert_eq!(p.due(ten_past, midnight, false), Some((0, midnight)));
    assert_eq!(p.due(ten_past, midnight + 700, false), Some((1, midnight + 600)));
    let again = Plan::add(Some(p.clone()), &new("60m", Some("2026-11-28T23:10:00")), now);
    assert_eq!(
        again.unwrap_err(),
        (ENOENT, "invalid schedule specified - multiplier should be one of h,d,w,M,y".into())
    );
    let (e, why) = Plan::add(Some(p.clone()), &new("1h", Some("2026-11-28T23:10:00")), now).unwrap_err();
    assert_eq!(e, EEXIST);
    let begin = r#"Found existing schedule ['{"fs": "home", "subvol": null, "group": null, "path": "/a""#;
    assert!(why.starts_with(begin), "{why}");
    assert_eq!(Plan::parse(&p.stored()), Some(p));
}

#[test]
fn intervals_of_minutes_need_leave() {
    let now = at("2026-11-29T07:30:00");
    let p = Plan::add(None, &New { minutes: true, ..new("1m", None) }, now).unwrap();
    assert_eq!(p.next(now.sec.into(), false), None);
    assert_eq!(p.next(now.sec.into(), true), Some(u64::from(now.sec) + 60));
}

#[test]
fn schedules_are_removed_and_switched_off() {
    let mut p = Plan::add(Some(plan("1d")), &new("1h", None), at("2026-11-29T07:30:00")).unwrap();
    p.activate(Some("1h"), None, false).unwrap();
    assert_eq!(p.next(sec("2026-11-29T07:30:00"), false), Some(sec("2026-11-30T00:00:00")));
    assert_eq!(p.activate(Some("2h"), None, true), Err((ENOENT, "SnapSchedule for /a not found".into())));
    p.activate(None, None, true).unwrap();
    assert_eq!(p.remove(Some("2h"), None), Err((ENOENT, "No schedule found for 2h None".into())));
    p.remove(Some("1h"), Some("2026-11-29T00:00:00")).unwrap();
    assert_eq!(p.listed()[0].0, "/a 1d ");
    p.remove(None, None).unwrap();
    assert!(p.schedules.is_empty());
}

#[test]
fn a_retention_is_added_and_taken_by_period() {
    let mut p = plan("1h");
    p.retain("24h7d", None).unwrap();
    p.retain("w", Some("4")).unwrap();
    assert_eq!(
        (p.listed()[0].0.as_str(), to_line(&p.listed()[0].2)),
        ("/a 1h 24h7d4w", r#"{"h": 24, "d": 7, "w": 4}"#.into())
    );
    assert_eq!(p.retain("3h", None).unwrap_err().0, EIO);
    assert_eq!(p.retain("0d", None).unwrap_err().0, ENOENT);
    assert_eq!(p.retain("x", Some("3")), Err((ENOENT, "Retention spec 3x is invalid".into())));
    assert_eq!(p.release("23h", None).unwrap_err().1, "Retention for h: 23 was not set for /a can't remove");
    p.release("24h4w", None).unwrap();
    assert_eq!(p.retention, [('d', 7)]);
}

#[test]
fn snapshots_that_stay_are_the_last_of_their_periods() {
    let all = names(&[
        "2026-11-22T23:00:00",
        "2026-11-23T01:00:00",
        "2026-11-28T05:00:00",
        "2026-11-28T23:00:00",
        "2026-11-29T01:00:00",
        "2026-11-29T02:00:00",
        "2026-11-29T02:30:00",
    ]);
    let gone = |r: &[(char, u32)], most| -> Vec<usize> {
        let gone = excess(&all, r, most, at(NOW));
        gone.into_iter().map(|n| all.iter().position(|a| a == n).unwrap()).collect()
    };
    assert_eq!(gone(&[], 99), Vec::<usize>::new());
    assert_eq!(gone(&[], 3), [3, 2, 1, 0]);
    assert_eq!(gone(&[('n', 2)], 99), [4, 3, 2, 1, 0]);
    // The last of each hour and of each day; what one period keeps does not count for the next.
    assert_eq!(gone(&[('h', 2)], 99), [5, 3, 2, 1, 0]);
    assert_eq!(gone(&[('h', 1), ('d', 1)], 99), [5, 4, 2, 1, 0]);
    // The 23rd was a Monday.
    assert_eq!(gone(&[('w', 9)], 99), [5, 4, 3, 2, 1]);
    // No more than may stay, the last ones.
    assert_eq!(gone(&[('h', 9)], 2), [5, 3, 2, 1, 0]);
}

#[test]
fn other_snapshots_stay_and_count() {
    let all: Vec<String> = [
        "mine",
        "scheduled-x",
        "scheduled-2026-13-01-00_00_00",
        "scheduled-2026-11-29-07_00_00_UTC-before-the-upgrade",
        "scheduled-2026-11-29-08_00_00",
        "scheduled-2026-11-29-09_00_00_UTC",
    ]
    .map(str::to_owned)
    .into();
    let gone = |most| excess(&all, &[], most, at(NOW));
    assert_eq!(gone(6), Vec::<&str>::new());
    assert_eq!(gone(5), ["scheduled-2026-11-29-08_00_00"]);
    // The newest stays.
    assert_eq!(gone(0), ["scheduled-2026-11-29-08_00_00"]);
}

#[test]
fn snapshots_of_a_clock_that_was_ahead_displace_none() {
    let all = names(&["2027-11-29T00:00:00", "2026-11-29T11:00:00", "2026-11-28T11:00:00"]);
    assert_eq!(excess(&all, &[('d', 1)], 99, at(NOW)), [all[2].as_str()]);
}

#[test]
fn snapshots_of_a_clock_that_was_ahead_leave_room_for_the_next() {
    let day = |month: u32, n: u32| format!("2026-{month:02}-{:02}T{:02}:00:00", 1 + n / 24, n % 24);
    let mut all: Vec<String> = (0..97).map(|n| day(10, n)).collect();
    all.extend((0..3).map(|n| day(12, n)));
    let all = names(&all.iter().map(String::as_str).collect::<Vec<_>>());
    // The limit is 100, and the next snapshot did not fit.
    let gone = excess(&all, &[], 98, at(NOW));
    assert_eq!(gone, [all[1].as_str(), all[0].as_str()]);
}

#[test]
fn a_directory_that_is_gone_switches_its_schedule_off() {
    let mut p = plan("1h");
    let (of, now) = (p.schedules[0].start, at("2026-11-29T08:00:00"));
    p.done(("1h", of), Ok(()), 2, now);
    p.done(("1h", of), Err(EIO), 0, now);
    let s = &p.schedules[0];
    assert_eq!(
        (s.created_count, s.made, s.pruned_count, s.last_pruned, s.active),
        (1, Some((now, now)), 2, Some(now), true)
    );
    p.done(("1h", of), Err(ENOENT), 0, now);
    assert!(!p.schedules[0].active);
    assert_eq!(Plan::parse(&p.stored()), Some(p));
}

#[test]
fn paths_never_lead_to_snapshots() {
    let all = ["/", "//", "/a//b/./c/", "/volumes/g/s/uuid/..", "../.."].map(directory);
    assert_eq!(all, ["", "", "a/b/c", "volumes/g/s", ""]);
    assert_eq!(anchor("/volumes/g/s/uuid/..").as_deref(), Some("volumes/g/s/uuid"));
    assert_eq!(anchor("/a"), None);
    let n = New { path: "/a\u{7f}", ..new("1h", None) };
    assert_eq!(Plan::add(None, &n, at(NOW)).unwrap_err().0, EINVAL);
}
