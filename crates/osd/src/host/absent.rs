//! Commands of Ceph's OSDs that this one does not have, each with what to use instead.

use super::commands::{WORDS, command};
use net::admin_socket::Command;

const NOT: &str = "(not supported: the answer says what to use instead)";

/// These commands.
pub(super) const COMMANDS: &[Command] = &[
    command("bluestore", WORDS, NOT),
    command("bluefs", WORDS, NOT),
    command("debug dump_missing", WORDS, NOT),
    command("dump_mempools", &[], "get mempool stats"),
    command("dump_pg_recovery_stats", &[], NOT),
    command("dump_pgstate_history", &[], "show recent state history"),
    command("get_heap_property", WORDS, NOT),
    command("heap", WORDS, "show heap usage info"),
    command("log dump", &[], "dump recent log entries to log file"),
    command("log reopen", &[], "reopen log file"),
    command("set_heap_property", WORDS, NOT),
    command("set_recovery_delay", WORDS, NOT),
    command("trim stale osdmaps", &[], NOT),
];

/// Why a command is refused, and what to use instead.
pub(super) fn instead(prefix: &str) -> Option<&'static str> {
    let first = prefix.split(' ').next().unwrap_or_default();
    Some(match prefix {
        "log dump" => "no log entries are kept in memory",
        "log reopen" => "the log goes to standard error; whoever started the OSD keeps the file",
        "heap" => "could not issue heap profiler command -- not using tcmalloc!",
        "get_heap_property" | "set_heap_property" => "the OSD does not use tcmalloc; 'perf dump' has its memory",
        "dump_mempools" => "memory is not accounted by pools",
        "dump_pgstate_history" => "past states of PGs are not kept; see 'pg PGID query'",
        "dump_pg_recovery_stats" => "times of peering states are not counted; see 'pg PGID query', 'dump_ledger'",
        "debug dump_missing" => "see 'pg PGID list_unfound' and 'pg PGID query'",
        "set_recovery_delay" => "`ceph osd set norecover` holds recovery back",
        "trim stale osdmaps" => "the OSD removes old maps by itself",
        _ if matches!(first, "bluestore" | "bluefs") => {
            "the store is not BlueStore; 'perf dump' has its counters, 'compact' compacts it"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_an_alternative() {
        for c in COMMANDS {
            assert!(instead(c.prefix).is_some(), "{}", c.prefix);
        }
        assert!(instead("bluestore allocator score block").is_some() && instead("bench").is_none());
    }
}
