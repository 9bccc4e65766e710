//! OSDs of a host without `up`: their devices, data directories and units.
//!
//! Layout, as with Ceph's packages: `osd_data` (`/var/lib/ceph/osd/ceph-N`) has the keyring and `block`, a file or a
//! link to the device or, with dm-crypt, to its mapping. The label of the store says which OSD it belongs to; no other
//! file decides.
//!
//! The monitors decide whether data may go. They are told before a store is erased, so a command that was cut short
//! does the rest when it is run again.
//!
//! | module | contents |
//! | --- | --- |
//! | `activate` | `belemnite osd activate`: opens an OSD's encrypted device, and gives it to the OSD's account |
//! | `create` | `belemnite osd create`: OSDs on devices or files of this host |
//! | `crypt` | dm-crypt below an OSD: the LUKS2 container on its device, the mapping with its store, and the key |
//! | `erase` | `belemnite osd zap`, `destroy`, `remove` and `replace`: stores of this host that go |
//! | `host` | the host: where its OSDs are, and how their daemons are started and stopped |
//! | `list` | `belemnite osd list`: the OSDs and devices of this host |
//! | `note` | notes of OSDs that are being made, so that `osd create` goes on where it was interrupted |
//! | `store` | labels of stores, read without the lock that a running OSD holds |

mod activate;
mod create;
mod crypt;
mod erase;
mod host;
mod list;
mod note;
mod store;

pub(crate) use activate::{ActivateArgs, DeactivateArgs, activate, deactivate};
pub(crate) use create::{CreateArgs, create};
pub(crate) use erase::{DestroyArgs, ZapArgs, destroy, remove, replace, zap};
pub(crate) use list::{ListArgs, list};

type Error = Box<dyn std::error::Error>;
