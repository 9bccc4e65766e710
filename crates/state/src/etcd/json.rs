//! Encoding of requests and decoding of replies of etcd's JSON gateway.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::api::{Change, Compare, Entry, LeaseId, Range, Txn, Write, prefix_end};

/// Prefix of all keys of this store in etcd.
#[derive(Clone, Debug)]
pub(super) struct Prefix(pub(super) Vec<u8>);

fn b64(b: &[u8]) -> String {
    STANDARD.encode(b)
}

fn bytes(v: &Value) -> Option<Vec<u8>> {
    match v {
        Value::Null => Some(Vec::new()),
        v => STANDARD.decode(v.as_str()?).ok(),
    }
}

/// Decodes a number, which the gateway writes as text and omits if it is 0.
pub(super) fn num(v: &Value) -> u64 {
    v.as_u64().or_else(|| v.as_str().and_then(|s| s.parse().ok())).unwrap_or(0)
}

/// Revision in the header of a reply.
pub(super) fn revision(v: &Value) -> u64 {
    num(&v["header"]["revision"])
}

impl Prefix {
    fn key(&self, k: &[u8]) -> String {
        b64(&[self.0.as_slice(), k].concat())
    }

    fn range(&self, r: &Range) -> (String, String) {
        let end = match &r.end {
            Some(e) => self.key(e),
            // Up to the end of all keys if the prefix has no successor.
            None => prefix_end(&self.0).map_or_else(|| b64(&[0]), |e| b64(&e)),
        };
        (self.key(&r.start), end)
    }

    pub(super) fn get(&self, r: &Range, limit: usize, reverse: bool, at: u64) -> Value {
        let (key, end) = self.range(r);
        let mut v = json!({ "key": key, "range_end": end, "limit": limit.to_string(), "revision": at.to_string() });
        if reverse {
            v["sort_order"] = "DESCEND".into();
            v["sort_target"] = "KEY".into();
        }
        v
    }

    /// Request that reads several single keys.
    pub(super) fn get_keys(&self, keys: &[Bytes], at: u64) -> Value {
        let one = |k: &Bytes| json!({ "request_range": { "key": self.key(k), "revision": at.to_string() } });
        json!({ "success": keys.iter().map(one).collect::<Vec<_>>() })
    }

    pub(super) fn txn(&self, t: &Txn) -> Value {
        let compare = |c: &Compare| match c {
            Compare::Modified(k, r) => json!({
                "key": self.key(k), "target": "MOD", "result": "EQUAL", "mod_revision": r.to_string()
            }),
            Compare::Value(k, v) => json!({
                "key": self.key(k), "target": "VALUE", "result": "EQUAL", "value": b64(v)
            }),
        };
        let write = |w: &Write| match w {
            Write::Put(k, v, lease) => json!({ "request_put": {
                "key": self.key(k), "value": b64(v), "lease": lease.map_or(0, |l| l.0).to_string()
            } }),
            Write::Delete(k) => json!({ "request_delete_range": { "key": self.key(k) } }),
            Write::DeleteRange(r) => {
                let (key, end) = self.range(r);
                json!({ "request_delete_range": { "key": key, "range_end": end } })
            }
        };
        json!({
            "compare": t.compare.iter().map(compare).collect::<Vec<_>>(),
            "success": t.then.iter().map(write).collect::<Vec<_>>(),
        })
    }

    pub(super) fn watch(&self, r: &Range, from: u64) -> Value {
        let (key, end) = self.range(r);
        json!({ "create_request": { "key": key, "range_end": end, "start_revision": from.to_string() } })
    }

    fn own(&self, v: &Value) -> Option<Bytes> {
        bytes(v)?.strip_prefix(self.0.as_slice()).map(Bytes::copy_from_slice)
    }

    /// Decodes an entry of a reply; `None` if it is malformed.
    pub(super) fn entry(&self, kv: &Value) -> Option<(Bytes, Entry)> {
        let lease = num(&kv["lease"]);
        let entry = Entry {
            value: bytes(&kv["value"])?.into(),
            created: num(&kv["create_revision"]),
            modified: num(&kv["mod_revision"]),
            lease: (lease != 0).then_some(LeaseId(lease)),
        };
        Some((self.own(&kv["key"])?, entry))
    }

    /// Decodes a watch event into a change with its revision.
    pub(super) fn change(&self, event: &Value) -> Option<(u64, Change)> {
        let kv = &event["kv"];
        let revision = num(&kv["mod_revision"]);
        if event["type"] == "DELETE" {
            return Some((revision, Change { key: self.own(&kv["key"])?, entry: None }));
        }
        let (key, e) = self.entry(kv)?;
        Some((revision, Change { key, entry: Some(e) }))
    }
}

/// Code and text of an error reply of gRPC.
pub(super) fn error_of(body: &[u8]) -> (u64, String) {
    let v: Value = serde_json::from_slice(body).unwrap_or_else(|_| Value::Object(Map::new()));
    let text = ["error", "message"].iter().find_map(|k| v[k].as_str());
    let text = text.map_or_else(|| String::from_utf8_lossy(body).chars().take(200).collect(), str::to_owned);
    (num(&v["code"]), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_within_the_prefix() {
        let p = Prefix(b"c/".to_vec());
        let dec = |v: &Value| STANDARD.decode(v.as_str().unwrap()).unwrap();
        let all = p.get(&Range { start: Bytes::new(), end: None }, 0, false, 0);
        assert_eq!((dec(&all["key"]), dec(&all["range_end"])), (b"c/".to_vec(), b"c0".to_vec()));
        let kv = json!({ "key": b64(b"c/a"), "value": b64(b"v"), "mod_revision": "7", "create_revision": "5" });
        let (k, e) = p.entry(&kv).unwrap();
        assert_eq!((&k[..], &e.value[..], e.created, e.modified, e.lease), (&b"a"[..], &b"v"[..], 5, 7, None));
        assert_eq!(p.entry(&json!({ "key": b64(b"other"), "value": "" })), None);
        assert_eq!(p.entry(&json!({ "key": "***" })), None);
        let gone = json!({ "type": "DELETE", "kv": { "key": b64(b"c/a"), "mod_revision": "9" } });
        assert_eq!(p.change(&gone), Some((9, Change { key: Bytes::from_static(b"a"), entry: None })));
    }
}
