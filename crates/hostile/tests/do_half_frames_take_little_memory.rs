//! Memory that announced and incomplete frames take before and while their bytes arrive.

use bytes::Bytes;
use hostile::meter::{Meter, peak_of};
use msgr::frame::{Preamble, Tag};
use msgr::policy::{DATA_BYTES_MAX, FIRST_BUFFER_BYTES};
use msgr::rx::{Phase, Rx};
use msgr::{BufPool, FrameLimits};

#[global_allocator]
static METER: Meter = Meter;

const HEADER: usize = msgr::frame::HEADER2_LEN;

fn announced(data: usize, ask: bool) -> Rx {
    let mut rx = Rx::new(BufPool::default(), FrameLimits { ask, ..FrameLimits::default() });
    rx.take_log();
    rx.set_phase(Phase::Open);
    let (_, preamble) = Preamble::build(Tag::Message, [HEADER, 0, 0, data]);
    rx.feed(Bytes::copy_from_slice(&preamble));
    rx
}

/// Passes `n` bytes of a frame.
fn receive(rx: &mut Rx, mut n: usize) {
    while n > 0 {
        let t = rx.target().expect("a buffer for the frame");
        let part = t.len().min(n);
        rx.received(part);
        n -= part;
        assert!(rx.poll_frame().unwrap().is_none());
    }
}

#[test]
fn an_announced_frame_costs_nothing_before_it_is_granted() {
    let (mut rx, n) = peak_of(|| {
        let mut rx = announced(DATA_BYTES_MAX, true);
        assert!(rx.poll_frame().unwrap().is_none());
        rx
    });
    assert!(n < 4096, "{n} bytes");
    assert!(rx.asks().is_some_and(|n| n > DATA_BYTES_MAX) && rx.target().is_none());
    rx.grant();
    let ((), n) = peak_of(|| {
        assert!(rx.poll_frame().unwrap().is_none());
        receive(&mut rx, 1 << 20);
    });
    assert!(n <= FIRST_BUFFER_BYTES + (128 << 10), "{n} bytes");
    assert_eq!(rx.partial().map(|(have, _)| have), Some(1 << 20));
}

/// A hundred of them that stop after 9 MiB hold 18 MiB each at most, not 128.
#[test]
fn memory_follows_what_has_arrived() {
    let mut rx = announced(DATA_BYTES_MAX, false);
    assert!(rx.poll_frame().unwrap().is_none());
    let mut arrived = 0;
    for step in [1 << 20, 7 << 20, 1 << 20, 20 << 20, 60 << 20] {
        let ((), _) = peak_of(|| receive(&mut rx, step));
        arrived += step;
        let held = usize::try_from(hostile::meter::live()).unwrap();
        // The pool keeps the first buffer for other frames.
        let most = FIRST_BUFFER_BYTES + FIRST_BUFFER_BYTES.max(2 * arrived) + (256 << 10);
        assert!(held <= most, "{held} bytes for {arrived}");
    }
}
