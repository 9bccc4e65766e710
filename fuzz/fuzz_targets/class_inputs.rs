//! Fuzz target: the family of decoders `class_inputs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::families::run("class_inputs", input));
