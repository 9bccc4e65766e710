//! Tests of the classes as a whole.

mod hostile;
mod recorded;
