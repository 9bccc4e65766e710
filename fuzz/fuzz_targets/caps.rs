//! Fuzz target: the family of decoders `caps`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("caps", input));
