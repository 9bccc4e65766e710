//! Fuzz target: the family of decoders `counters`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("counters", input));
