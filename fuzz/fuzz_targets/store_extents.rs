//! Fuzz target: the family of decoders `store_extents`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("store_extents", input));
