//! OSDs of a host without `up`: their devices, data directories and units.
//!
//! Layout, as with Ceph's packages: `osd_data` (`/var/lib/ceph/osd/ceph-N`) has the keyring and `block`, a file or a
//! link to the device or, with dm-crypt, to its mapping. The label of the store says which OSD it belongs to; no other
//! file decides.
//!
//! The monitors decide whether data may go. They are told before a store is erased, so a command that was cut short
//! does the rest when it is run again.

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
