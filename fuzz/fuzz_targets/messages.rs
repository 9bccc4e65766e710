//! Fuzz target: the family of decoders `messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("messages", input));
