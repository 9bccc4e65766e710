//! Tests of the classes as a whole.

mod documented;
mod hostile;
mod recorded;
