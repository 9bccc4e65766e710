//! The parts of the state that a front monitor keeps for handshakes: keys, caps, service keys, options and the
//! monmap. The copy follows the state store revision by revision.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use auth::rotating::RotatingKeys;
use auth::server::{AUTH_TICKET_TTL, pick};
use auth::{AuthHost, CryptoKey, EntityAuth, Method, ServiceKeys};
use base::{AuthName, EntityKind, Utime};
use bytes::Bytes;
use cluster::MonMap;
use state::{Change, Entry, Range};
use wire::Decode;

use crate::core::start::load::{LoadError, check_format};
use crate::state::options::MonOptions;
use crate::state::records::key;
use crate::state::{AuthEntry, ConfigDb, ConfigKey};

/// A front monitor's copy of a part of the state.
pub struct Replica {
    name: String,
    /// The revision up to which changes are applied.
    pub revision: u64,
    /// The options in effect for this monitor.
    pub options: MonOptions,
    /// The monmap.
    pub monmap: MonMap,
    auth: BTreeMap<AuthName, AuthEntry>,
    config: ConfigDb,
    service_keys: ServiceKeys,
    /// See [`crate::state::lost_tickets`].
    lost_tickets: Option<Utime>,
}

fn decode<T: Decode>(k: &[u8], v: &Bytes) -> Result<T, LoadError> {
    T::from_bytes(v).map_err(|error| LoadError::Record { key: String::from_utf8_lossy(k).into_owned(), error })
}

impl Replica {
    /// The ranges that are read and watched.
    #[must_use]
    pub fn ranges() -> Vec<Range> {
        let prefixes = ["auth/", key::CONFIG, "meta/", key::MONMAP];
        prefixes.iter().map(|p| Range::prefix(p.as_bytes())).collect()
    }

    /// A replica from the contents of [`Replica::ranges`] at one revision. Error: a missing record, an unknown
    /// format, or a record that does not decode.
    pub fn load(
        records: &[(Bytes, Entry)],
        revision: u64,
        name: &str,
        options: &MonOptions,
    ) -> Result<Self, LoadError> {
        let record = |name: &str| records.iter().find(|(k, _)| k == name).map(|(_, e)| e.value.clone());
        check_format(record, true)?;
        if !records.iter().any(|(k, _)| k == key::MONMAP) {
            return Err(LoadError::Missing(key::MONMAP));
        }
        let mut me = Self {
            name: name.to_owned(),
            revision,
            options: options.clone(),
            monmap: MonMap::default(),
            auth: BTreeMap::new(),
            config: ConfigDb::default(),
            service_keys: ServiceKeys::default(),
            lost_tickets: None,
        };
        for (k, e) in records {
            me.record(k, Some(&e.value))?;
        }
        me.options.apply_central(&me.config, &me.name);
        Ok(me)
    }

    /// Applies the changes of one revision. Error: a revision that is not newer than the replica's, or a record that
    /// does not decode.
    pub fn apply(&mut self, revision: u64, changes: &[Change]) -> Result<(), LoadError> {
        if revision <= self.revision {
            return Err(LoadError::OldRevision { have: self.revision, got: revision });
        }
        for c in changes {
            self.record(&c.key, c.entry.as_ref().map(|e| &e.value))?;
        }
        self.revision = revision;
        self.options.apply_central(&self.config, &self.name);
        Ok(())
    }

    fn record(&mut self, k: &Bytes, v: Option<&Bytes>) -> Result<(), LoadError> {
        let Ok(text) = std::str::from_utf8(k) else { return Ok(()) };
        if let Some(n) = text.strip_prefix(key::AUTH).and_then(AuthName::parse) {
            match v {
                Some(v) => self.auth.insert(n, decode(k, v)?),
                None => self.auth.remove(&n),
            };
        } else if let Some((who, name)) = text.strip_prefix(key::CONFIG).and_then(|r| r.split_once('\0')) {
            let key = ConfigKey { who: who.to_owned(), name: name.to_owned() };
            match v {
                Some(v) => self.config.values.insert(key, String::from_utf8_lossy(v).into_owned()),
                None => self.config.values.remove(&key),
            };
        } else if let (key::SERVICE_KEYS, Some(v)) = (text, v) {
            self.service_keys = decode(k, v)?;
        } else if text == key::LOST_TICKETS {
            self.lost_tickets = v.map(|v| decode(k, v)).transpose()?;
        } else if let (key::MONMAP, Some(v)) = (text, v) {
            self.monmap = decode(k, v)?;
        }
        Ok(())
    }

    /// Judges a client whose session opens, by this copy, and gives it the caps there. Error: the reason why the
    /// session is refused.
    pub fn judge(&self, who: &mut auth::Principal) -> Result<(), &'static str> {
        crate::core::session::admission::judge(
            who,
            crate::state::Role::Mon,
            self.options.auth.cephx,
            self.auth.get(&who.name),
        )
    }

    /// The key of an entity.
    #[must_use]
    pub fn key_of(&self, name: &AuthName) -> Option<CryptoKey> {
        self.auth.get(name).map(|e| e.key.clone())
    }
}

/// Global ids for sessions that the leader gave to this monitor.
#[derive(Debug, Default)]
pub struct FrontIds {
    /// Ranges of ids: the first id, and the one after the last.
    ranges: RefCell<VecDeque<(u64, u64)>>,
}

/// Number of ids below which the monitor asks for more.
const IDS_LOW: u64 = 512;

impl FrontIds {
    /// Adds a range from the leader, unless enough ids are left: a new leader sends a range that may not be needed.
    pub fn given(&self, first: u64, end: u64) {
        if end > first && self.low() {
            self.ranges.borrow_mut().push_back((first, end));
        }
    }

    /// Number of ids left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.ranges.borrow().iter().map(|(first, end)| end - first).sum()
    }

    /// True if the monitor has to ask for more ids.
    #[must_use]
    pub fn low(&self) -> bool {
        self.left() < IDS_LOW
    }

    fn take(&self) -> Option<u64> {
        let mut ranges = self.ranges.borrow_mut();
        let (first, end) = ranges.front_mut()?;
        let n = *first;
        *first += 1;
        if first == end {
            ranges.pop_front();
        }
        Some(n)
    }
}

/// The authentication host of a front monitor.
pub struct FrontAuth {
    /// The copy of keys and caps.
    pub replica: Rc<RefCell<Replica>>,
    /// The global ids for new sessions.
    pub ids: Rc<FrontIds>,
    /// Pending keys that clients used, to be reported to the leader.
    pub used: Rc<RefCell<Vec<(AuthName, CryptoKey)>>>,
}

impl AuthHost for FrontAuth {
    fn pending_key_used(&self, name: &AuthName, key: &CryptoKey) {
        self.used.borrow_mut().push((name.clone(), key.clone()));
    }

    fn service(&self) -> EntityKind {
        EntityKind::MON
    }

    fn methods(&self) -> Vec<Method> {
        if self.replica.borrow().options.auth.cephx { vec![Method::CEPHX] } else { vec![Method::NONE] }
    }

    fn entity(&self, name: &AuthName) -> Option<EntityAuth> {
        let r = self.replica.borrow();
        let e = r.auth.get(name)?;
        Some(EntityAuth { key: e.key.clone(), pending_key: e.pending_key.clone(), caps: e.caps.clone() })
    }

    fn service_key(&self, service: EntityKind, id: Option<u64>) -> Option<(u64, CryptoKey)> {
        pick(self.replica.borrow().service_keys.get(service)?, id)
    }

    fn rotating_keys(&self, service: EntityKind) -> Option<RotatingKeys> {
        self.replica.borrow().service_keys.get(service).cloned()
    }

    fn new_global_id(&self) -> Option<u64> {
        self.ids.take()
    }

    fn cluster(&self) -> Option<base::Uuid> {
        Some(self.replica.borrow().monmap.fsid)
    }

    fn insecure_reclaim_allowed(&self) -> bool {
        self.replica.borrow().options.auth.allow_insecure_reclaim
    }

    fn keeps_id_by_key(&self, _: &AuthName, _: u64, now: Utime) -> bool {
        crate::state::lost_tickets::holds(self.replica.borrow().lost_tickets, now)
    }

    fn ticket_ttl(&self, service: EntityKind) -> Duration {
        if service == EntityKind::AUTH { AUTH_TICKET_TTL } else { self.replica.borrow().options.auth.ticket_ttl }
    }
}
