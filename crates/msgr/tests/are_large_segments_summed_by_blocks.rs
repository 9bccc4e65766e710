//! Are the checksums of a large data segment's blocks known once it is verified, from a single pass?

use base::SUMMED_MIN;
use base::crc::{BLOCK, SEED, crc32c};
use base::rng::Rng;
use bytes::Bytes;
use msgr::frame::{EPILOGUE_CRC_LEN, HEADER2_LEN, PREAMBLE_LEN, header2};
use msgr::rx::{Phase, Rx};
use msgr::tx::Tx;
use msgr::{BufPool, Error, FrameLimits};
use std::io::IoSlice;
use wire::{Message, MsgHeader};

/// The bytes of a message's frame in crc mode.
fn sent(m: &Message) -> Vec<u8> {
    let mut tx = Tx::new(BufPool::default());
    tx.message(&header2(&m.header, 1, 0), m).unwrap();
    let mut s = [IoSlice::new(&[]); 64];
    let n = tx.slices(&mut s);
    s[..n].iter().flat_map(|x| x.to_vec()).collect()
}

/// The receiver's frame, whose bytes arrive in parts of at most `step`.
fn received(mut b: Bytes, step: usize) -> Result<msgr::frame::Frame, Error> {
    let mut rx = Rx::new(BufPool::default(), FrameLimits::default());
    rx.take_log();
    rx.set_phase(Phase::Open);
    loop {
        if let Some(f) = rx.poll_frame()? {
            return Ok(f);
        }
        let mut part = b.split_to(step.min(b.len()));
        assert!(!part.is_empty(), "the frame is not complete");
        if let Some(t) = rx.target() {
            let n = t.len().min(part.len());
            t[..n].copy_from_slice(&part.split_to(n));
            rx.received(n);
        }
        if !part.is_empty() {
            rx.feed(part);
        }
    }
}

#[test]
fn blocks_of_any_large_segment_have_their_checksums() {
    let mut rng = Rng::new(1);
    let near = [0, 1, BLOCK, SUMMED_MIN - 1, SUMMED_MIN, SUMMED_MIN + 1];
    for n in 0..60 {
        let len = near.get(n).copied().unwrap_or_else(|| rng.below(40 * BLOCK as u64) as usize);
        let data = Bytes::from(rng.bytes(len));
        let m = Message { header: MsgHeader::default(), front: Bytes::from(rng.bytes(n)), data, ..Message::default() };
        let f = received(sent(&m).into(), 1 + rng.below(300_000) as usize).unwrap();
        let got = &f.segments[3];
        assert_eq!(*got, m.data);
        assert_eq!(f.sums.is_some(), len >= SUMMED_MIN, "{len}");
        let Some(s) = f.sums else { continue };
        let blocks: Vec<u32> = m.data.chunks_exact(BLOCK).map(|c| crc32c(SEED, c)).collect();
        assert_eq!(s.blocks_of(got), Some(&blocks[..]), "{len}");
        if len > BLOCK {
            assert_eq!(s.blocks_of(&got.slice(BLOCK..)), Some(&blocks[1..]));
        }
        assert_eq!(s.crc_of(got), Some(crc32c(SEED, &m.data)));
        assert_eq!(s.blocks_of(&m.data), None, "the sender's memory is another");
    }
}

#[test]
fn a_changed_byte_in_a_large_segment_is_refused() {
    let mut rng = Rng::new(2);
    let m = Message { data: rng.bytes(20 * BLOCK + 77).into(), ..Message::default() };
    let good = sent(&m);
    let from = PREAMBLE_LEN + HEADER2_LEN + 4;
    let to = good.len() - EPILOGUE_CRC_LEN;
    assert_eq!(to - from, m.data.len());
    let edges = [from, from + BLOCK - 1, from + BLOCK, to - 77, to - 1];
    for at in edges.into_iter().chain((0..20).map(|_| from + rng.below((to - from) as u64) as usize)) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let e = received(bad.into(), 100_000).unwrap_err();
        assert!(matches!(e, Error::SegmentCrc { segment: 3, .. }), "{at}: {e}");
    }
    // Two blocks that change places have the same checksums in another order.
    let mut bad = good.clone();
    let (a, b) = bad[from..].split_at_mut(BLOCK);
    a.swap_with_slice(&mut b[..BLOCK]);
    assert!(received(bad.into(), 100_000).is_err());
    received(good.into(), 100_000).unwrap();
}

#[cfg(debug_assertions)]
#[test]
fn a_received_segment_is_summed_once_and_a_known_one_not_at_all() {
    use base::crc::counted;
    let m = Message { data: Rng::new(3).bytes(4 << 20).into(), ..Message::default() };
    let bytes = Bytes::from(sent(&m));
    let before = counted::bytes();
    let f = received(bytes, 1 << 20).unwrap();
    let once = counted::bytes() - before;
    assert!((4 << 20..(4 << 20) + 4096).contains(&once), "{once}");

    let data = f.segments[3].clone();
    let data_crc = f.sums.unwrap().crc_of(&data);
    let before = counted::bytes();
    let again = sent(&Message { data, data_crc, ..Message::default() });
    let summed = counted::bytes() - before;
    assert!(summed < 4096, "{summed}");
    received(again.into(), 1 << 20).unwrap();
}
