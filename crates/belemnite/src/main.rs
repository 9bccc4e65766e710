//! The `belemnite` command.

fn main() {}
