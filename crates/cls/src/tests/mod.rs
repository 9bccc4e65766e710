//! Tests of the classes as a whole.

mod bounds;
mod documented;
mod hostile;
mod parts;
mod recorded;
