//! The end of a socket by an error.
//!
//! Invariant: after an error no further byte of the socket is parsed; asserted by [`Ending::check`].

use crate::Error;

/// Whether the present socket has ended with an error.
#[derive(Debug, Default)]
pub(crate) struct Ending(bool);

impl Ending {
    /// Asserts that the socket has not ended: the host closes a connection after its first error.
    pub(crate) fn check(&self) {
        debug_assert!(!self.0, "the socket has ended with an error, and no further byte of it is parsed");
    }

    /// Notes whether parsing has ended the socket, and passes its result on.
    pub(crate) fn note<T>(&mut self, next: Result<T, Error>) -> Result<T, Error> {
        self.0 = next.is_err();
        next
    }
}
