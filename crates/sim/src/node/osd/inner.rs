//! Messages between an OSD's reactors and its control machine.

use super::Process;
use crate::net::NodeId;
use crate::node::reactors::Inner;
use crate::world::{Ctx, Event};
use osd::core::moves::{News, Told};
use osd::core::pgs::Input;

impl Process {
    /// Sends an input to a reactor: at once if there is only one.
    pub(in crate::node) fn post(&mut self, to: usize, input: Input, node: NodeId, now: base::Now, cx: &mut Ctx) {
        if self.reactors.len() == 1 {
            return self.input(to, input, now);
        }
        self.put_mail(to, Inner::Input(input), node, cx);
    }

    pub(super) fn put_mail(&mut self, to: usize, m: Inner, node: NodeId, cx: &mut Ctx) {
        let at = self.mail.put(to, m, cx.queue.now(), &mut cx.rng);
        cx.queue.at(at, Event::Inner(node, self.inc, to));
    }

    pub(super) fn all(&mut self, input: &Input, node: NodeId, now: base::Now, cx: &mut Ctx) {
        for i in 0..self.reactors.len() {
            self.post(i, input.clone(), node, now, cx);
        }
    }

    pub(super) fn input(&mut self, to: usize, input: Input, now: base::Now) {
        let Some(r) = self.reactors.get_mut(to) else { return };
        r.handle(input, now);
    }

    /// Handles the news of reactor `at` about PGs that move.
    pub(super) fn moving(&mut self, at: usize, news: News, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let told = self.moves.handle(at, news, self.control.map().map(|m| &**m));
        if let Some(Told::Decided { pg, from, to, granted }) = told {
            let t = cx.now();
            cx.moved += u64::from(granted);
            let word = if granted { "goes" } else { "does not go" };
            cx.trace.line(t, || format!("osd.{}: {pg} {word} from reactor {from} to {to}", node - 1));
        }
        let n = self.reactors.len();
        for (i, input) in told.into_iter().flat_map(|t| t.inputs(n)) {
            self.post(i, input, node, now, cx);
        }
    }

    /// A PG that is not on the reactor of its name, or is moving.
    #[must_use]
    pub fn astray(&self) -> Option<String> {
        if let Some((pg, from, to)) = self.moves.moving() {
            return Some(format!("{pg} goes from reactor {from} to {to}"));
        }
        self.reactors.iter().enumerate().find_map(|(i, r)| {
            let pg = r.pgs().iter().find(|p| r.pgs().home(p.spg().pg) != i)?;
            Some(format!("{} is on reactor {i}, {:?}", pg.spg(), pg.state()))
        })
    }
}
