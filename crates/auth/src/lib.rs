//! cephx and auth none as pure state machines
