//! A device that does not answer, and the OSD's watch over it.

use super::OsdNode;
use crate::world::{Ctx, Event};
use base::{Mono, Now};
use std::time::Duration;

/// Default of `osd_device_timeout`.
pub(super) const DEVICE_TIMEOUT: Duration = Duration::from_secs(20);

/// The state of a device that does not answer.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// Number of completions that came due.
    due: usize,
    /// Time since which a request waits.
    since: Option<Mono>,
}

impl Stuck {
    /// The process ended, and with it its requests.
    pub(super) fn ended(&mut self) {
        *self = Self::default();
    }
}

impl OsdNode {
    /// Lets the device answer no request any more. False if it did not answer before.
    pub fn freeze(&mut self) -> bool {
        let answered = self.stuck.is_none();
        self.stuck.get_or_insert_default();
        answered
    }

    /// Lets the device go on.
    pub fn thaw(&mut self, cx: &mut Ctx) {
        let Some(s) = self.stuck.take() else { return };
        for _ in 0..s.due {
            cx.queue.after(0, Event::Disk(self.node, self.inc().unwrap_or(0)));
        }
    }

    /// True if a completion that came due waits, because the device does not answer.
    pub(super) fn withholds(&mut self) -> bool {
        self.stuck.as_mut().map(|s| s.due += 1).is_some()
    }

    /// Judges the device as the real host does.
    pub(super) fn watch_device(&mut self, now: Now, cx: &mut Ctx) {
        if let Some(s) = &mut self.stuck {
            s.since = (self.disk.queued() > 0).then(|| s.since.unwrap_or(now.mono));
        }
        let oldest = self.stuck.as_ref().and_then(|s| s.since).map(|t| now.mono.since(t));
        let Some(p) = &mut self.process else { return };
        let news = p.reactors.first_mut().and_then(|r| r.judge_device(oldest));
        if let Some(o) = news {
            p.reactor_output(0, o, self.node, now, cx);
        }
    }
}
