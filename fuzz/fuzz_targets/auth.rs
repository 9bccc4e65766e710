//! Fuzz target: the family of decoders `auth`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("auth", input));
