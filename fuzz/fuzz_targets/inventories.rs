//! Fuzz target: the family of decoders `inventories`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("inventories", input));
