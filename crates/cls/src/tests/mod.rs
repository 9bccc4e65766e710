//! Tests of classes over an object in memory: what real OSDs answered, replayed.

mod recorded;
