//! The device of the stores, as the control machine's host knows it.

use reactor::disk::DiskFile;
use std::cell::Cell;
use std::sync::Arc;

/// File or block device of the stores; see the module.
pub(in crate::host) struct Device {
    file: Arc<DiskFile>,
    name: String,
    rotates: bool,
    /// True while a command enlarges the stores.
    growing: Cell<bool>,
}

impl Device {
    /// Device of that path; `rotates` if it is a rotating disk.
    pub(super) fn new(file: Arc<DiskFile>, name: String, rotates: bool) -> Self {
        Self { file, name, rotates, growing: Cell::new(false) }
    }

    /// The file or block device.
    pub(in crate::host) fn file(&self) -> &DiskFile {
        &self.file
    }

    /// Its path.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// True if it is a rotating disk.
    pub(super) fn rotates(&self) -> bool {
        self.rotates
    }

    /// Begins to enlarge the stores. False if that is under way.
    pub(in crate::host) fn begin_growing(&self) -> bool {
        !self.growing.replace(true)
    }

    /// Ends enlarging the stores.
    pub(in crate::host) fn end_growing(&self) {
        self.growing.set(false);
    }
}
