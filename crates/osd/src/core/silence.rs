//! A device that does not answer.
//!
//! After half of `Silence::timeout` the OSD tells the monitors, which take it out of service if its PGs go on without
//! it. Such an OSD keeps running, and boots again once the device answers.
//! After the whole time the device counts as failed, and the OSD ends.

use base::planted::{Bug, acts};
use std::time::Duration;

/// Part of the time-out after which the monitors are told.
const TELL_AFTER: u32 = 2;
/// Part of the time-out within which a device answers that is well again.
const WELL: u32 = 20;

/// A change that the host reports to the control machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The device has not answered for this time.
    Silent(Duration),
    /// The device answers again.
    Answers,
    /// The device has failed: it has not answered for this time.
    Failed(Duration),
}

/// Why a device that has not answered for this time is reported.
#[must_use]
pub fn reason(waits: Duration) -> String {
    format!("a request has no answer for {} s", waits.as_secs())
}

/// Watches the requests of one reactor.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    timeout: Duration,
    told: Option<News>,
}

impl Silence {
    /// Watches a device that has failed if it does not answer for `timeout` (`osd_device_timeout`).
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, told: None }
    }

    /// Judges the age of the oldest request in flight; `None`: there is none. Returns a change once.
    pub fn judge(&mut self, oldest: Option<Duration>) -> Option<News> {
        let waits = oldest.unwrap_or_default();
        if acts(Bug::IgnoreSilence) || matches!(self.told, Some(News::Failed(_))) {
            return None;
        }
        let news = if waits >= self.timeout {
            News::Failed(waits)
        } else if self.told.is_none() && waits >= self.timeout / TELL_AFTER {
            News::Silent(waits)
        } else if self.told.is_some() && waits < self.timeout / WELL {
            News::Answers
        } else {
            return None;
        };
        self.told = Some(news).filter(|n| *n != News::Answers);
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let secs = |s| Some(Duration::from_secs(s));
        let mut s = Silence::new(Duration::from_secs(20));
        let mut judge = |w: Option<Duration>| s.judge(w);
        assert_eq!([judge(None), judge(secs(9))], [None, None]);
        assert_eq!([judge(secs(10)), judge(secs(11))], [Some(News::Silent(Duration::from_secs(10))), None]);
        assert_eq!([judge(secs(5)), judge(None), judge(None)], [None, Some(News::Answers), None]);
        assert_eq!(judge(secs(12)), Some(News::Silent(Duration::from_secs(12))));
        assert_eq!(
            [judge(secs(20)), judge(secs(21)), judge(None)],
            [Some(News::Failed(Duration::from_secs(20))), None, None]
        );
    }
}
