//! OSD commands of Ceph that this program refuses, each with a reason: cache tiering, stretch pools.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag as cf, refuse};
use base::errno;

const TIERS: &str = "make and use cache tiers (not supported)";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd tier add pool:Poolname tierpool:Poolname force_nonempty:Choices(--force-nonempty)?",
        "osd",
        "rw",
        0,
        tier,
        TIERS,
    ),
    cmd("osd tier rm pool:Poolname tierpool:Poolname", "osd", "rw", 0, tier, TIERS),
    cmd("osd tier remove pool:Poolname tierpool:Poolname", "osd", "rw", cf::DEPRECATED, tier, TIERS),
    cmd(
        "osd tier cache-mode pool:Poolname mode:Choices(writeback|proxy|readproxy|readonly|none) yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        tier,
        TIERS,
    ),
    cmd("osd tier set-overlay pool:Poolname overlaypool:Poolname", "osd", "rw", 0, tier, TIERS),
    cmd("osd tier rm-overlay pool:Poolname", "osd", "rw", 0, tier, TIERS),
    cmd("osd tier remove-overlay pool:Poolname", "osd", "rw", cf::DEPRECATED, tier, TIERS),
    cmd("osd tier add-cache pool:Poolname tierpool:Poolname size:Int[0]", "osd", "rw", 0, tier, TIERS),
];

fn tier(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    // A missing pool is reported first, as in Ceph.
    c.pool_id("pool")?;
    for key in ["tierpool", "overlaypool"] {
        if c.args.opt(key).is_some() {
            c.pool_id(key)?;
        }
    }
    refuse(errno::EOPNOTSUPP, "cache tiering is not supported")
}
