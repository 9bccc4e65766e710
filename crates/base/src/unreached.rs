//! Cases that cannot occur.

use std::panic::Location;

/// Reports a case that cannot occur; `why` is what excludes it. Tests and the simulator stop here. A release says it in
/// its log and goes on with nothing.
#[cold]
#[track_caller]
pub fn unreached<T: Default>(why: &str) -> T {
    debug_assert!(false, "this cannot occur: {why}");
    tracing::error!(at = %Location::caller(), why, "a case that cannot occur was passed over");
    T::default()
}
