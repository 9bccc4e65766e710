//! Modules of managers: those that always run, and those of the built-in manager that serve at an address of their own.

/// The module of the built-in manager that serves metrics (`host::metrics`).
pub(crate) const METRICS: &str = "prometheus";
/// The module of the built-in manager that serves the console (`host::console`).
pub(crate) const CONSOLE: &str = "dashboard";
/// Key of the console's certificate in the config-key store, as of Ceph's dashboard.
pub(crate) const CERTIFICATE: &str = "mgr/dashboard/crt";
/// Key of the private key of [`CERTIFICATE`].
pub(crate) const PRIVATE_KEY: &str = "mgr/dashboard/key";

/// Releases of a separate manager, each of which looks the list of the modules that it always runs up by its own number.
pub(crate) const MODULES_RELEASES: std::ops::RangeInclusive<u32> = 16..=20;
/// Modules that a separate manager always runs.
pub(crate) const ALWAYS_ON_IN_CEPH: [&str; 10] = [
    "balancer",
    "crash",
    "devicehealth",
    "orchestrator",
    "pg_autoscaler",
    "progress",
    "rbd_support",
    "status",
    "telemetry",
    "volumes",
];
/// Modules that Ceph's manager always runs and whose work the built-in manager does.
pub(crate) const ALWAYS_ON_BUILT_IN: [&str; 8] =
    ["balancer", "crash", "devicehealth", "pg_autoscaler", "progress", "rbd_support", "status", "volumes"];
