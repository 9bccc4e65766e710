//! Stores of earlier builds open; stores of later ones are refused as such, and not as damaged ones.
//!
//! `fixtures/0.1-a1f98713.store.gz` was made by the build of that commit: `belemnite store create --size 64M`, and
//! `store import` of the four PGs and the meta collection that an OSD with a few objects, a snapshot, attributes and
//! omap keys had.

use base::FeatureWords;
use base::device::Device as _;
use bytes::Bytes;
use std::io::Read as _;
use store::engine::device::{Overlay, drive};
use store::engine::{self, Config, FormatError, OpenError};
use store::testing::disk::SimDisk;
use store::testing::{fresh, set_features};
use store::{Cid, ObjectStore};

fn earlier() -> SimDisk {
    let mut image = Vec::new();
    let packed = &include_bytes!("fixtures/0.1-a1f98713.store.gz")[..];
    flate2::read::GzDecoder::new(packed).read_to_end(&mut image).unwrap();
    let mut dev = SimDisk::new(image.len() as u64);
    for (n, block) in image.chunks(4096).enumerate().filter(|(_, b)| b.iter().any(|x| *x != 0)) {
        let mut b = base::buf::AlignedBuf::zeroed(4096);
        b.copy_from_slice(block);
        dev.write(n as u64 * 4096, &[b.freeze()]).unwrap();
    }
    dev
}

#[test]
fn a_store_of_the_release_before_opens_and_stays_readable_for_it() {
    let mut dev = earlier();
    for _ in 0..2 {
        let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
        assert_eq!(s.superblock().features, FeatureWords::default());
        let all: Vec<u64> = s.collections().iter().map(|c| s.collection_usage(c.0).0).collect();
        assert_eq!(all, [10, 1, 3, 5, 3]);
        assert!(s.fsck(&mut dev, true).clean());
        s.request_checkpoint();
        drive(&mut s, &mut dev);
        let labels = s.superblock().labels.clone();
        // Every write of the superblock keeps the version that the release before reads.
        assert_eq!(engine::relabel(&mut dev, labels).unwrap().version, 2);
    }
    assert!(engine::rebuild(&mut dev, &Config::default(), |_| false).unwrap().pages.is_empty());
    assert_eq!(engine::probe(&mut dev).unwrap().version, 2);
}

fn image(dev: &mut SimDisk) -> Vec<Bytes> {
    dev.written().iter().map(|b| dev.read_many(&[(b * 4096, 4096)]).remove(0).unwrap()).collect()
}

#[test]
fn a_store_with_unknown_incompat_features_is_refused_and_not_called_damaged() {
    let (mut dev, s) = fresh(64 << 20, 1, &Config::default());
    drop(s);
    set_features(&mut dev, FeatureWords { compat: 1, ro_compat: 0, incompat: 1 << 62 });
    let before = image(&mut dev);
    let labels = Default::default();
    let errors: Vec<FormatError> = [engine::relabel(&mut dev, labels), engine::grow(&mut dev), engine::probe(&mut dev)]
        .map(Result::unwrap_err)
        .into();
    let opened = engine::open(&mut dev, &Config::default()).err().unwrap();
    let rebuilt = engine::rebuild(&mut dev, &Config::default(), |_| false).unwrap_err();
    let read = engine::open_read_only(&mut Overlay::new(dev.clone()), &Config::default()).err().unwrap();
    for e in errors.into_iter().map(OpenError::from).chain([opened, rebuilt, read]) {
        assert!(!e.is_rot(), "{e}");
        assert!(e.to_string().contains("made by a newer version of Belemnite"), "{e}");
    }
    assert!(image(&mut dev) == before, "nothing was written");
}

#[test]
fn a_store_with_unknown_read_only_compat_features_can_be_read() {
    let mut dev = earlier();
    set_features(&mut dev, FeatureWords { compat: 0, ro_compat: 1 << 7, incompat: 0 });
    let before = image(&mut dev);
    for e in [
        engine::open(&mut dev, &Config::default()).err().unwrap(),
        engine::rebuild(&mut dev, &Config::default(), |_| false).unwrap_err(),
        engine::relabel(&mut dev, Default::default()).unwrap_err().into(),
        engine::grow(&mut dev).unwrap_err().into(),
    ] {
        assert!(!e.is_rot() && e.to_string().contains("read, but not change"), "{e}");
    }
    let mut over = Overlay::new(dev.clone());
    let mut s = engine::open_read_only(&mut over, &Config::default()).unwrap().remove(0);
    assert!(s.collections().iter().any(|c| c.0 == Cid::Meta));
    assert!(s.fsck(&mut over, true).clean());
    s.request_checkpoint();
    drive(&mut s, &mut over);
    assert!(s.fsck(&mut over, true).clean(), "what it writes stays in memory");
    assert!(image(&mut dev) == before, "nothing was written");
}

#[test]
fn known_words_survive_labels_growth_and_checkpoints() {
    let (mut dev, s) = fresh(64 << 20, 1, &Config::default());
    drop(s);
    let words = FeatureWords { compat: 5, ro_compat: 0, incompat: 0 };
    set_features(&mut dev, words);
    assert_eq!(engine::relabel(&mut dev, Default::default()).unwrap().features, words);
    let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    drop(s);
    dev.grow(128 << 20);
    let sb = engine::grow(&mut dev).unwrap();
    assert_eq!((sb.features, sb.version), (words, 3));
    engine::open(&mut dev, &Config { reactors: 2, ..Config::default() }).unwrap();
    assert_eq!(engine::probe(&mut dev).unwrap().features, words);
}
