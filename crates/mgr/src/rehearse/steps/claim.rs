//! The claim of the one program that carries a change out: others are refused while it is heard of.

use base::{Mono, Now};
use std::time::Duration;

/// Time after which a program that is not heard of has given up its claim.
pub const CLAIM_MAX: Duration = Duration::from_secs(6);

/// The claim. Not stored: after a change of the leading monitor it is the program's that asks first.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    holder: Option<(String, Mono)>,
}

impl Claim {
    /// The program that has the claim, and the time since it was heard of.
    #[must_use]
    pub fn holder(&self, now: Now) -> Option<(&str, Duration)> {
        let (by, at) = self.holder.as_ref()?;
        let age = now.mono.since(*at);
        (age < CLAIM_MAX).then_some((by.as_str(), age))
    }

    /// Another program that has the claim.
    #[must_use]
    pub fn other(&self, by: &str, now: Now) -> Option<(&str, Duration)> {
        self.holder(now).filter(|(h, _)| *h != by)
    }

    /// Takes the claim, or keeps it; without a name it ends.
    pub fn take(&mut self, by: String, now: Now) {
        self.holder = (!by.is_empty()).then_some((by, now.mono));
    }
}
