//! The monitor and manager roles: a pure core and its host
