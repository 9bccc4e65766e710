//! Results that scripts tell by the exit status, although the command did what it was to do.

/// Status with warnings: HEALTH_WARN, a finding of `doctor`.
const WARNED: u8 = 4;
/// Status with errors: HEALTH_ERR.
const IN_ERROR: u8 = 5;

/// The end of a command that has printed its result already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ended with status {status}")]
pub(crate) struct Ended {
    status: u8,
}

impl Ended {
    /// There is something to look at.
    pub(crate) fn warned() -> Self {
        Self { status: WARNED }
    }

    /// There is an error.
    pub(crate) fn in_error() -> Self {
        Self { status: IN_ERROR }
    }

    /// The exit status.
    pub(crate) fn status(self) -> u8 {
        self.status
    }
}
