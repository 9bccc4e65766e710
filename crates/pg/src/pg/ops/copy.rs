//! The plans of `copy_from`: they fetch their source chunk by chunk, in the room that the reactor's copies leave.

use crate::copies::CopyRoom;
use crate::effect::{Effect, Fetch};
use crate::event::{FetchId, Fetched};
use crate::exec::{CopyRequest, CopyState, Stop};
use crate::limits::COPY_STALL;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::{Plan, Verdict};
use crate::pg::ops::work::Work;
use crate::pg::{Pg, TAG_BITS, Turn};
use base::Now;
use base::errno::{EIO, Errno};
use wire::msg::msg_flags;

/// Room of a plan's copy, and its turn.
#[derive(Debug, Default)]
pub(in crate::pg) struct Copying {
    /// Room for the content.
    pub room: Option<CopyRoom>,
    /// Bytes that the copy is known to need, from an attempt before.
    pub known: Option<usize>,
    /// Number of the attempt: chunks of another one are void.
    attempt: u32,
    /// The copy has waited for room, and there is some now.
    pub turn: bool,
}

impl Plan {
    /// Id of the plan's fetches in this attempt.
    pub(in crate::pg) fn fetch_id(&self) -> FetchId {
        FetchId(u64::from(self.copying.attempt) << TAG_BITS | self.id)
    }

    /// Drops what the copy has, so that it begins anew.
    fn drop_copy(&mut self) {
        (self.copy, self.copying.room) = (None, None);
        self.copying.attempt = self.copying.attempt.wrapping_add(1) & ((1 << (u64::BITS - TAG_BITS)) - 1);
    }
}

impl Pg {
    /// Begins a copy, or lets it wait for room.
    pub(in crate::pg) fn begin_copy(&mut self, plan: &mut Plan, request: CopyRequest, turn: &mut Turn<'_>) -> Verdict {
        let has_turn = std::mem::take(&mut plan.copying.turn);
        let Some(room) = self.env.pacer().long.copies.room(plan.copying.known, has_turn) else {
            tracing::debug!(pg = %self.env.spg(), "a copy waits for others of its reactor");
            self.env.pacer().long.copies.queue((self.env.index(), plan.id), plan.copying.known);
            return Verdict::Park(Stage::CopyRoom);
        };
        plan.copying.room = Some(room);
        let state = CopyState::new(request, turn.now.mono);
        turn.out.push(fetch(plan.fetch_id(), &state));
        plan.copy = Some(Box::new(state));
        self.look_at_copies(turn.now);
        Verdict::Park(Stage::Fetching)
    }

    /// Sees to it that copies without an answer are noticed.
    fn look_at_copies(&mut self, now: Now) {
        let at = now.mono + COPY_STALL;
        self.plans.retry_at = Some(self.plans.retry_at.map_or(at, |t| t.min(at)));
    }

    /// Handles a chunk of a `copy_from` source.
    pub(in crate::pg) fn handle_fetched(
        &mut self,
        fetched: FetchId,
        result: Result<Fetched, Errno>,
        turn: &mut Turn<'_>,
    ) {
        let id = fetched.0 & ((1 << TAG_BITS) - 1);
        let Some(plan) = self.plans.all.get_mut(&id).filter(|p| p.fetch_id() == fetched) else { return };
        let (Work::Client(..), Some(mut state)) = (&plan.work, plan.copy.take()) else { return };
        let step = result.map_err(Stop::Errno).and_then(|f| state.add(&f.data));
        match step {
            Ok(false) => {
                let need = state.bytes_needed();
                if plan.copying.room.as_mut().is_some_and(|r| r.resize(need)) {
                    state.reserve();
                    state.asked = turn.now.mono;
                    turn.out.push(fetch(fetched, &state));
                    plan.copy = Some(state);
                    return;
                }
                plan.drop_copy();
                // An omap shows its size only as it comes.
                plan.copying.known = Some(need + need / 2);
            }
            Ok(true) => plan.copied = Some(Box::new(state.finish())),
            // The vector runs again and fails, so that the failure is logged for resends.
            Err(s) => plan.copied = Some(Box::new(state.fail(crate::pg::errno_of(&s).unwrap_or(EIO)))),
        }
        self.plans.runnable.push_back(id);
    }

    /// Lets copies without an answer begin anew, if others wait for their room.
    pub(in crate::pg) fn end_stalled_copies(&mut self, turn: &mut Turn<'_>) {
        let wanted = self.env.pacer().long.copies.is_waited_for();
        let mut some = false;
        for plan in self.plans.all.values_mut() {
            let Some(copy) = &plan.copy else { continue };
            some = true;
            if wanted && copy.asked + COPY_STALL <= turn.now.mono {
                tracing::info!(pg = %self.env.spg(), source = ?copy.request, "the source of a copy does not answer; the copy makes room for others");
                turn.out.push(Effect::CancelFetch(plan.fetch_id()));
                plan.drop_copy();
                self.plans.runnable.push_back(plan.id);
            }
        }
        if some {
            self.look_at_copies(turn.now);
        }
    }
}

fn fetch(id: FetchId, state: &CopyState) -> Effect {
    let r = &state.request;
    Effect::Fetch(Box::new(Fetch {
        id,
        oid: r.oid.clone(),
        locator: r.locator.clone(),
        snapid: r.snapid,
        flags: msg_flags::READ | msg_flags::IGNORE_OVERLAY | msg_flags::IGNORE_CACHE,
        ops: state.next_ops(),
    }))
}
