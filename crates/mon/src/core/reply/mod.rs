//! Answers to sessions: queries, maps by subscription, and records that are read for them.

pub(super) mod awaited;
pub(super) mod fetch;
pub(super) mod made;
pub(super) mod query;
pub(super) mod requests;
pub(super) mod subscribe;
