//! Encodings of mirroring: `cls_rbd_types.h`, `Mirror*`.

use base::{AddrKind, EntityAddr, EntityName, Utime};
use bytes::Bytes;
use wire::codec::Result;
use wire::{Decode, Encode, Reader, Writer};

/// Directions of a peer.
pub(super) const RX: u8 = 0;
pub(super) const TX: u8 = 1;
pub(super) const RX_TX: u8 = 2;

/// `MirrorPeer`.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub(super) uuid: Bytes,
    pub(super) site: Bytes,
    pub(super) client: Bytes,
    pub(super) direction: u8,
    pub(super) mirror_uuid: Bytes,
    pub(super) last_seen: Utime,
}

impl Peer {
    pub(super) fn is_valid(&self) -> bool {
        let direction = match self.direction {
            TX => true,
            RX | RX_TX => !self.client.is_empty(),
            _ => false,
        };
        direction && !self.uuid.is_empty() && !self.site.is_empty()
    }
}

impl Encode for Peer {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.blob(&self.uuid);
            w.blob(&self.site);
            w.blob(&self.client);
            w.i64(-1);
            w.u8(self.direction);
            w.blob(&self.mirror_uuid);
            w.put(&self.last_seen);
        });
    }
}
impl Decode for Peer {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("MirrorPeer", 2, |r, v| {
            let mut p = Self { uuid: r.blob()?, site: r.blob()?, client: r.blob()?, ..Self::default() };
            r.i64()?;
            if v >= 2 {
                p.direction = r.u8()?;
                p.mirror_uuid = r.blob()?;
                p.last_seen = r.get()?;
            }
            Ok(p)
        })
    }
}

/// States of a mirrored image's record.
pub(super) const IMAGE_DISABLING: u8 = 0;
pub(super) const IMAGE_ENABLED: u8 = 1;

/// `MirrorImage`.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) global_id: Bytes,
    pub(super) state: u8,
    mode: u8,
}

impl Encode for Image {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.blob(&self.global_id);
            w.u8(self.state);
            w.u8(self.mode);
        });
    }
}
impl Decode for Image {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("MirrorImage", 2, |r, v| {
            Ok(Self { global_id: r.blob()?, state: r.u8()?, mode: if v >= 2 { r.u8()? } else { 0 } })
        })
    }
}

/// `MirrorImageMap`: the instance that replays an image.
#[derive(Clone, Debug)]
pub(super) struct ImageMap {
    instance: Bytes,
    since: Utime,
    data: Bytes,
}

impl Encode for ImageMap {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.instance);
            w.put(&self.since);
            w.blob(&self.data);
        });
    }
}
impl Decode for ImageMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("MirrorImageMap", 1, |r, _| Ok(Self { instance: r.blob()?, since: r.get()?, data: r.blob()? }))
    }
}

/// States of a replay.
pub(super) const STATE_UNKNOWN: u8 = 0;
pub(super) const STATE_ERROR: u8 = 1;

/// `MirrorImageSiteStatus`: a site's report about an image. The local site has an empty uuid.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteStatus {
    pub(super) mirror_uuid: Bytes,
    pub(super) state: u8,
    pub(super) description: Bytes,
    pub(super) last_update: Utime,
    pub(super) up: bool,
}

impl SiteStatus {
    /// Encodes the fields without the envelope; version 1 lacks the uuid.
    pub(super) fn encode_meta(&self, v: u8, w: &mut Writer) {
        if v >= 2 {
            w.blob(&self.mirror_uuid);
        }
        w.u8(self.state);
        w.blob(&self.description);
        w.put(&self.last_update);
        w.bool(self.up);
    }
}

impl Encode for SiteStatus {
    fn encode(&self, w: &mut Writer) {
        let v = if self.mirror_uuid.is_empty() { 1 } else { 2 };
        w.versioned(v, v, |w| self.encode_meta(v, w));
    }
}
impl Decode for SiteStatus {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("MirrorImageSiteStatus", 2, |r, v| {
            Ok(Self {
                mirror_uuid: if v >= 2 { r.blob()? } else { Bytes::new() },
                state: r.u8()?,
                description: r.blob()?,
                last_update: r.get()?,
                up: r.bool()?,
            })
        })
    }
}

/// `entity_inst_t` with an address of type "any", because the msgr version is not part of the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    name: EntityName,
    addr: EntityAddr,
}

impl Instance {
    pub(super) fn new(name: EntityName, addr: EntityAddr) -> Self {
        Self { name, addr: EntityAddr { kind: AddrKind::ANY, ..addr } }
    }
}

impl Encode for Instance {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.name);
        w.put(&self.addr);
    }
}
impl Decode for Instance {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let name = r.get()?;
        Ok(Self::new(name, r.get()?))
    }
}

/// `MirrorImageSiteStatusOnDisk`: a report and its reporter.
#[derive(Clone, Debug)]
pub(super) struct StoredStatus {
    pub(super) origin: Instance,
    pub(super) status: SiteStatus,
}

impl Encode for StoredStatus {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| w.put(&self.origin));
        w.put(&self.status);
    }
}
impl Decode for StoredStatus {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let origin = r.versioned("MirrorImageSiteStatusOnDisk", 1, |r, _| r.get())?;
        Ok(Self { origin, status: r.get()? })
    }
}

/// `MirrorImageStatus`: reports of all sites about an image.
#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    pub(super) local: Option<SiteStatus>,
    pub(super) remote: Vec<SiteStatus>,
}

impl Encode for Status {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            self.local.clone().unwrap_or_default().encode_meta(1, w);
            w.bool(self.local.is_some());
            w.seq(self.remote.iter(), |w, s| s.encode_meta(2, w));
        });
    }
}
