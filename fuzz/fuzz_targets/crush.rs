//! Fuzz target: the family of decoders `crush`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("crush", input));
