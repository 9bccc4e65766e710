//! The table of docs/reference/limits.md against the constants of the code.

use base::size::show;
use base::sizes;
use cluster::osdmap::MAX_OSD_LIMIT;
use pg::limits::*;
use store::layout::{DEVICE_BYTES_MAX, DEVICE_BYTES_MIN};

/// A number with a comma before each three digits.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let parts: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|p| std::str::from_utf8(p).unwrap()).collect();
    parts.join(",")
}

#[test]
fn limits_are_those_of_the_code() {
    let doc = include_str!("../../../../docs/reference/limits.md");
    let bytes = |n: usize| format!("{} bytes", grouped(n));
    let want = [
        ("object", show(OBJECT_SIZE_MAX)),
        ("payload of one write request, all its operations together", show(WRITE_SIZE_MAX as u64)),
        ("output of one request, all its operations together", show(OUTPUT_MAX as u64)),
        ("operations in one request", grouped(OPS_PER_VECTOR_MAX)),
        ("object name, locator key", bytes(OBJECT_NAME_LEN_MAX)),
        ("namespace", bytes(NAMESPACE_LEN_MAX)),
        ("attribute name", bytes(ATTR_NAME_LEN_MAX)),
        ("data that one request writes, after expansion", show(sizes::VECTOR_PAYLOAD_MAX as u64)),
        (
            "data and metadata of one request together",
            format!("{}, with {} more", show(sizes::VECTOR_BYTES_MAX as u64), show(sizes::BODY_TARGET as u64)),
        ),
        ("attributes and omap keys that one request sets or removes", grouped(sizes::VECTOR_ENTRIES_MAX)),
        ("attribute value, omap value, omap header", show(ATTR_SIZE_MAX as u64)),
        (
            "all attributes of an object",
            format!("{}, with {} bytes for each", show(sizes::OBJECT_ATTRS_MAX as u64), sizes::ENTRY_OVERHEAD),
        ),
        ("watch, notify and acknowledge operations in one request", grouped(WATCH_OPS_MAX)),
        ("results of a write with `RETURNVEC`", show(sizes::RETURNS_MAX as u64)),
        ("omap entries in one answer", grouped(OMAP_ENTRIES_PER_REQUEST)),
        (
            "notifies of one PG that wait for acknowledgements",
            format!("{}, with {} of payloads and answers", grouped(NOTIFIES_MAX), show(NOTIFY_BYTES_MAX as u64)),
        ),
        ("device or file of an OSD", format!("{} to {}", show(DEVICE_BYTES_MIN), show(DEVICE_BYTES_MAX))),
        ("OSDs in a map", grouped(MAX_OSD_LIMIT as usize)),
        ("command to a monitor, without its input", show(mon::command::COMMAND_LEN_MAX as u64)),
    ];
    for (what, limit) in want {
        let row = format!("| {what} | {limit}");
        let is_there = |l: &str| l.strip_prefix(&row).is_some_and(|rest| rest.starts_with([' ', ',']));
        assert!(doc.lines().any(is_there), "docs/reference/limits.md has no row {row:?}");
    }
    assert_eq!(WATCH_TIMEOUT_MAX.as_secs(), 24 * 60 * 60, "time of a watch or notify: a day");
}
