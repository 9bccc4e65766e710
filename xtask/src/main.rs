//! Checks of the repository; they are the tests of this crate.

fn main() {}
