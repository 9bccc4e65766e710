//! Fuzz target: the family `mon_sessions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("mon_sessions", input));
