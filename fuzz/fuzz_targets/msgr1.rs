//! Fuzz target: the family of decoders `msgr1`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("msgr1", input));
