//! Fuzz target: the family `osd_sessions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("osd_sessions", input));
