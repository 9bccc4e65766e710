//! Properties of a store as JSON.

use super::{Offline, name};
use ::store::{Cid, ObjectStore as _};
use serde_json::{Map, Value, json};

/// Text of a label. Labels include keys of daemons.
pub(super) fn label(key: &str, value: &[u8]) -> String {
    if key.contains("key") { "(not shown)".into() } else { String::from_utf8_lossy(value).into_owned() }
}

/// Properties and collections of a store.
pub(super) fn properties(s: &Offline) -> Value {
    let (sb, fs) = (s.store.superblock().clone(), s.store.statfs());
    let labels: Map<String, Value> = sb.labels.iter().map(|(k, v)| (k.clone(), label(k, v).into())).collect();
    let collection = |(c, bits): (Cid, u32)| {
        let (objects, bytes, omap) = s.store.collection_usage(c);
        let (kept, kept_bytes) = s.store.kept_usage(c);
        json!({
            "name": name(c),
            "bits": bits,
            "objects": objects,
            "bytes": bytes,
            "omap": omap,
            "kept_records": kept,
            "kept_bytes": kept_bytes,
        })
    };
    let collections: Vec<Value> = s.store.collections().into_iter().map(collection).collect();
    json!({
        "uuid": sb.uuid.to_string(),
        "format": sb.version,
        "bytes": sb.size(),
        "reactors": sb.rings,
        "features": if sb.features.any() { sb.features.to_string() } else { String::new() },
        "labels": labels,
        "total": fs.total,
        "available": fs.available,
        "allocated": fs.allocated,
        "stored": fs.stored,
        "omap": fs.omap,
        "metadata": fs.metadata,
        "log_to_replay": s.store.replay_bytes(),
        "collections": collections,
    })
}
