//! Fuzz target: the family of decoders `structures`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("structures", input));
