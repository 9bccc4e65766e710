//! Fuzz target: the family of decoders `store_pages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("store_pages", input));
