//! The OSD: a pure core and the host that joins it to the reactor
