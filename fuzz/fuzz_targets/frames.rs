//! Fuzz target: the family of decoders `frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("frames", input));
