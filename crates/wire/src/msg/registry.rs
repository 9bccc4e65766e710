//! Table of all message types: names for logs, and decoding by type number for tools and tests.

use crate::codec::Result;
use crate::features::Features;
use crate::frame::{Message, WireMessage};
use crate::msg::*;

/// A message that was decoded by its type number.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Fields in debug format.
    pub text: String,
    /// The message as our encoder writes it.
    pub again: Message,
}

fn inspect_as<M: WireMessage + std::fmt::Debug>(m: &Message, features: Features) -> Result<Inspected> {
    let typed = M::from_message(m)?;
    Ok(Inspected { text: format!("{typed:?}"), again: typed.to_message(features) })
}

fn reencode_as<M: WireMessage>(m: &Message, features: Features) -> Result<Message> {
    M::from_message(m).map(|typed| typed.to_message(features))
}

macro_rules! registry {
    ($($t:ident $name:literal,)*) => {
        /// Ceph's name of a message type, or "unknown".
        #[must_use]
        pub fn name(kind: u16) -> &'static str {
            $(if kind == <$t as WireMessage>::KIND { return $name; })*
            "unknown"
        }

        /// Decodes and re-encodes a message of any known type; `None` for unknown types.
        #[must_use]
        pub fn inspect(m: &Message, features: Features) -> Option<Result<Inspected>> {
            $(if m.header.kind == <$t as WireMessage>::KIND { return Some(inspect_as::<$t>(m, features)); })*
            None
        }

        /// Decodes and re-encodes a message of any known type, without its debug text; `None` for unknown types.
        #[must_use]
        pub fn reencode(m: &Message, features: Features) -> Option<Result<Message>> {
            $(if m.header.kind == <$t as WireMessage>::KIND { return Some(reencode_as::<$t>(m, features)); })*
            None
        }

        /// Every known type.
        pub const KINDS: &[u16] = &[$(<$t as WireMessage>::KIND),*];
    };
}

registry! {
    MPing "ping",
    MMonMap "mon_map",
    MMonGetMap "mon_getmap",
    MMonGetOsdMap "mon_get_osdmap",
    MStatfs "statfs",
    MStatfsReply "statfs_reply",
    MMonSubscribe "mon_subscribe",
    MMonSubscribeAck "mon_subscribe_ack",
    MAuth "auth",
    MAuthReply "auth_reply",
    MMonGetVersion "mon_get_version",
    MMonGetVersionReply "mon_get_version_reply",
    MOsdMap "osd_map",
    MOsdOp "osd_op",
    MOsdOpReply "osd_op_reply",
    MWatchNotify "watch-notify",
    MPoolOpReply "poolopreply",
    MPoolOp "poolop",
    MMonCommand "mon_command",
    MMonCommandAck "mon_command_ack",
    MLog "log",
    MLogAck "log_ack",
    MKvData "kv_data",
    MGetPoolStats "getpoolstats",
    MGetPoolStatsReply "getpoolstatsreply",
    MOsdBackoff "osd_backoff",
    MConfig "config",
    MGetConfig "get_config",
    MOsdPing "osd_ping",
    MOsdLease "belemnite_osd_lease",
    MOsdBoot "osd_boot",
    MOsdFailure "osd_failure",
    MOsdAlive "osd_alive",
    MOsdMarkMeDown "MOSDMarkMeDown",
    MOsdFull "osd_full",
    MMonGetPurgedSnaps "mon_get_purged_snaps",
    MMonGetPurgedSnapsReply "mon_get_purged_snaps_reply",
    MOsdPgTemp "osd_pgtemp",
    MOsdBeacon "osd_beacon",
    MPgStats "pg_stats",
    MCommand "command",
    MCommandReply "command_reply",
    MOsdPgCreated "osd_pg_created",
    MOsdPgCreate2 "osd_pg_create2",
    MOsdScrub2 "osd_scrub2",
    MOsdPgReadyToMerge "osd_pg_ready_to_merge",
    MOsdMarkMeDead "MOSDMarkMeDead",
    MOsdPgNotify2 "osd_pg_notify2",
    MOsdPgQuery2 "osd_pg_query2",
    MOsdPgInfo2 "osd_pg_info2",
    MOsdPgLease "osd_pg_lease",
    MOsdPgLeaseAck "osd_pg_lease_ack",
    MOsdForceRecovery "osd_force_recovery",
    MMdsMap "mdsmap",
    MFsMap "fsmap",
    MFsMapUser "fsmap.user",
    MMdsBeacon "mdsbeacon",
    MClientSession "client_session",
    MClientReconnect "client_reconnect",
    MClientRequest "client_request",
    MClientRequestForward "client_request_forward",
    MClientReply "client_reply",
    MClientCaps "client_caps",
    MClientLease "client_lease",
    MClientCapRelease "client_cap_release",
    MMdsLoadTargets "mds_load_targets",
    MRemoveSnaps "remove_snaps",
    MMgrOpen "mgropen",
    MMgrConfigure "mgrconfigure",
    MMgrReport "mgrreport",
    MMgrBeacon "mgrbeacon",
    MMgrMap "mgrmap",
    MMgrDigest "mgrdigest",
    MMonMgrReport "monmgrreport",
    MServiceMap "service_map",
    MMgrClose "mgrclose",
    MMgrCommand "mgr_command",
    MMgrCommandReply "mgr_command_reply",
    MPgPeer "pg_peer",
    MPgPeers "pg_peers",
    MRelayOpen "relay_open",
    MRelayMessage "relay_message",
    MRelayClose "relay_close",
    MRelayIds "relay_ids",
    MRelayKeyUsed "relay_key_used",
    MRelayTaken "relay_taken",
    MRelayClock "relay_clock",
}
