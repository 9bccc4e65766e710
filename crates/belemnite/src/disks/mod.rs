//! OSDs of a host without `up`: their devices, data directories and units.
//!
//! Layout, as with Ceph's packages: `osd_data` (`/var/lib/ceph/osd/ceph-N`) has the keyring and `block`, a file or a
//! link to the device. The label of the store says which OSD it belongs to; no other file decides.

mod activate;
mod store;

pub(crate) use activate::{ActivateArgs, activate};

type Error = Box<dyn std::error::Error>;
