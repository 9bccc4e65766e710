//! The control plane's key-value trait and its embedded backend
