//! Class calls that the generator can repeat: the most frequent ones on an image header and its lock.

use bytes::Bytes;
use wire::msg::OsdOp;
use wire::{Features, Writer};

/// Names of the calls.
pub const NAMES: [&str; 6] =
    ["lock.lock", "lock.get_info", "rbd.get_size", "rbd.get_features", "rbd.metadata_set", "rbd.set_flags"];

/// Snapshot id of the head.
const HEAD: u64 = u64::MAX - 1;

fn enc(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    f(&mut w);
    w.into_bytes()
}

/// Operation that makes an object an image header.
pub fn header() -> OsdOp {
    let input = enc(|w| {
        w.u64(1 << 30);
        w.u8(22);
        w.u64(61);
        w.blob(b"prefix");
        w.u64(u64::MAX);
    });
    OsdOp::call("rbd", "create", &input)
}

/// The call of this name, for an object made by [`header`].
pub fn call(name: &str) -> Option<OsdOp> {
    let input = match name {
        // The same client takes the same lock again, which renews it.
        "lock.lock" => enc(|w| {
            w.versioned(1, 1, |w| {
                w.blob(b"l");
                w.u8(1);
                w.blob(b"cookie");
                w.blob(b"tag");
                w.blob(b"");
                w.put(&base::Utime::ZERO);
                w.u8(1);
            });
        }),
        "lock.get_info" => enc(|w| w.versioned(1, 1, |w| w.blob(b"l"))),
        "rbd.get_size" => enc(|w| w.u64(HEAD)),
        "rbd.get_features" => enc(|w| {
            w.u64(HEAD);
            w.u8(1);
        }),
        "rbd.metadata_set" => enc(|w| {
            w.u32(1);
            w.blob(b"key");
            w.blob(b"value");
        }),
        "rbd.set_flags" => enc(|w| {
            w.u64(0);
            w.u64(1);
            w.u64(HEAD);
        }),
        _ => return None,
    };
    let (class, method) = name.split_once('.')?;
    Some(OsdOp::call(class, method, &input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_call() {
        for name in NAMES {
            assert!(call(name).is_some(), "{name}");
        }
        assert!(call("lock").is_none());
    }
}
