//! Class calls that the generator can repeat: the most frequent ones on an image header and its lock, and those of a
//! small S3 PUT on a shard of a bucket's index.

use bytes::Bytes;
use wire::msg::OsdOp;
use wire::{Features, Writer};

/// Names of the calls.
pub const NAMES: [&str; 8] = [
    "lock.lock",
    "lock.get_info",
    "rbd.get_size",
    "rbd.get_features",
    "rbd.metadata_set",
    "rbd.set_flags",
    "rgw.bucket_prepare_op",
    PUT,
];

/// Prepares an entry of a bucket index and, with the next call, completes it.
const PUT: &str = "rgw.put";

/// Snapshot id of the head.
const HEAD: u64 = u64::MAX - 1;

fn enc(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    f(&mut w);
    w.into_bytes()
}

/// The operation that prepares an object for the calls of this name: it makes an image header or an index shard.
pub fn header(name: &str) -> OsdOp {
    if name.starts_with("rgw.") {
        return OsdOp::call("rgw", "bucket_init_index", &Bytes::new());
    }
    let input = enc(|w| {
        w.u64(1 << 30);
        w.u8(22);
        w.u64(61);
        w.blob(b"prefix");
        w.u64(u64::MAX);
    });
    OsdOp::call("rbd", "create", &input)
}

/// Number of consecutive calls of this name that belong together and go to the same object.
pub fn calls_of_one(name: &str) -> u64 {
    if name == PUT { 2 } else { 1 }
}

/// `rgw_obj_index_key` of an object without versions.
fn index_key(w: &mut Writer, number: u64) {
    w.versioned(1, 1, |w| {
        w.blob(format!("directory/object-{number:010}").as_bytes());
        w.blob(b"");
    });
}

/// Input of `rgw.bucket_prepare_op` for a write of this object.
fn prepare(number: u64) -> Bytes {
    enc(|w| {
        w.versioned(7, 5, |w| {
            w.u8(0);
            w.blob(tag(number).as_bytes());
            w.blob(b"");
            w.bool(false);
            index_key(w, number);
            w.u16(0);
            w.u32(0);
        });
    })
}

fn tag(number: u64) -> String {
    format!("8b7a1f5c-3d20-4a52-9b11-5f2b8b0f6d0e.4155.{number:019}")
}

/// Input of `rgw.bucket_complete_op` for the write of an object of 4 KiB.
fn complete(number: u64) -> Bytes {
    enc(|w| {
        w.versioned(9, 7, |w| {
            w.u8(0);
            w.u64(number + 1);
            w.versioned(7, 3, |w| {
                w.u8(1);
                w.u64(4096);
                w.put(&base::Utime::ZERO);
                w.blob(b"d41d8cd98f00b204e9800998ecf8427e");
                w.blob(b"alice");
                w.blob(b"Alice");
                w.blob(b"binary/octet-stream");
                w.u64(4096);
                w.blob(b"");
                w.blob(b"");
                w.bool(false);
            });
            w.blob(tag(number).as_bytes());
            w.blob(b"");
            w.u32(0);
            // Version of the head object: pool 7, of one byte, and an epoch of eight.
            w.versioned(1, 1, |w| {
                w.u8(7);
                w.u8(0x88);
                w.u64(number + 1);
            });
            w.bool(false);
            index_key(w, number);
            w.u16(0);
            w.u32(0);
        });
    })
}

/// The call of this name with this number, for an object made by [`header`]. Calls on an index have a new entry for each
/// number, or for two.
pub fn call(name: &str, number: u64) -> Option<OsdOp> {
    let (class, method) = match name {
        PUT if number.is_multiple_of(2) => ("rgw", "bucket_prepare_op"),
        PUT => ("rgw", "bucket_complete_op"),
        _ => name.split_once('.')?,
    };
    let input = match name {
        "rgw.bucket_prepare_op" => prepare(number),
        PUT if number.is_multiple_of(2) => prepare(number / 2),
        PUT => complete(number / 2),
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
    Some(OsdOp::call(class, method, &input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_call() {
        for name in NAMES {
            assert!(call(name, 0).is_some(), "{name}");
        }
        assert!(call("lock", 0).is_none());
    }
}
