//! Modules of the built-in manager that serve at an address of their own.

/// The module of the built-in manager that serves metrics (`host::metrics`).
pub(crate) const METRICS: &str = "prometheus";
/// The module of the built-in manager that serves the console (`host::console`).
pub(crate) const CONSOLE: &str = "dashboard";
/// Key of the console's certificate in the config-key store, as of Ceph's dashboard.
pub(crate) const CERTIFICATE: &str = "mgr/dashboard/crt";
/// Key of the private key of [`CERTIFICATE`].
pub(crate) const PRIVATE_KEY: &str = "mgr/dashboard/key";
