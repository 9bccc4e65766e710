//! Fuzz target: the family of decoders `maps`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("maps", input));
