//! MonMap, OSDMap, CRUSH, pools, placement and capabilities
