//! The right that every message and every command needs at an OSD, in one table. The host reads it before it
//! decodes anything.
//!
//! A message is judged by the connection it comes on (a [`Lane`]) and by the authenticated [`Principal`] of its
//! sender. Anything not in the table is refused. A message type of `wire` or a command without a row fails the
//! tests below.

use crate::core::session::caps_of;
use auth::Principal;
use base::EntityKind;
use std::cell::Cell;
use wire::WireMessage as _;
use wire::msg::*;

/// Kind of connection on which messages reach an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Connections to the public address: clients, managers, other daemons.
    Public,
    /// Data sessions with other OSDs, opened by either end.
    Cluster,
    /// Connections to the heartbeat addresses.
    Heartbeat,
    /// Our session with a monitor.
    Monitor,
    /// Our session with the active manager.
    Manager,
    /// Our connections to heartbeat addresses of other OSDs.
    HeartbeatOut,
    /// Our connections to public addresses of other OSDs, as a client of theirs.
    Objecter,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 7] = [
        Self::Public,
        Self::Cluster,
        Self::Heartbeat,
        Self::Monitor,
        Self::Manager,
        Self::HeartbeatOut,
        Self::Objecter,
    ];
}

/// Right that a principal needs for a message on a lane, or for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// The principal has signed in. The message changes only its own session.
    SignedIn,
    /// The session's caps allow what the operations do to their object ([`crate::core::pgs::Pgs::op`]);
    /// else `EPERM`.
    Operation,
    /// `osd 'allow *'` without a condition: `EACCES`, as on Ceph (`OSD::handle_command`).
    AllowAll,
    /// The principal signed in as `osd.N`, came as an OSD, and has `osd 'allow *'`; or it is an OSD that we
    /// dialled. Stricter than Ceph, which checks the kind in HELLO (`OSD::require_osd_peer`) or the kind of the
    /// name (`OSD::handle_osd_map`).
    Osd,
    /// The principal is a monitor that we dialled (`OSD::require_mon_peer`).
    Monitor,
    /// The principal is a manager that we dialled (`OSD::require_mon_or_mgr_peer`).
    Manager,
}

impl Right {
    /// True if the principal has the right. [`Right::Operation`] is decided later, for each operation.
    #[must_use]
    pub fn is_held_by(self, who: &Principal) -> bool {
        let dialled = |kind| !who.incoming && who.kind == kind;
        let allow_all = || caps_of(who).is_ok_and(|c| c.is_allow_all());
        match self {
            Self::SignedIn | Self::Operation => true,
            Self::AllowAll => allow_all(),
            Self::Osd => dialled(EntityKind::OSD) || who.osd().is_some() && allow_all(),
            Self::Monitor => dialled(EntityKind::MON),
            Self::Manager => dialled(EntityKind::MGR),
        }
    }
}

/// Rights for one message type.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Number of the type.
    pub kind: u16,
    /// Lanes on which the type is accepted, and the right needed there; refused on all others.
    pub taken: &'static [(Lane, Right)],
}

macro_rules! table {
    ($($message:ident: [$($lane:ident $right:ident),*];)*) => {
        /// Every message type.
        pub const TABLE: &[Row] =
            &[$(Row { kind: $message::KIND, taken: &[$((Lane::$lane, Right::$right)),*] }),*];

        fn taken(kind: u16) -> &'static [(Lane, Right)] {
            match kind {
                $($message::KIND => &[$((Lane::$lane, Right::$right)),*],)*
                _ => &[],
            }
        }
    };
}

table! {
    // Operations of clients, and messages that belong to them.
    MOsdOp: [Public Operation];
    MOsdBackoff: [Public SignedIn, Objecter Osd];
    MPing: [Public SignedIn];
    MCommand: [Public AllowAll, Manager Manager];
    MOsdOpReply: [Objecter Osd];
    MWatchNotify: [Objecter Osd];
    // Maps. Clients that are behind get maps from us and have none to give.
    MOsdMap: [Public Osd, Cluster Osd, Monitor Monitor, HeartbeatOut Osd, Objecter Osd];
    // Between OSDs.
    MPgPeer: [Cluster Osd];
    MPgPeers: [Cluster Osd];
    MOsdPing: [Heartbeat Osd, HeartbeatOut Osd];
    MOsdLease: [Heartbeat Osd, HeartbeatOut Osd];
    // From monitors.
    MMonMap: [Monitor Monitor];
    MAuthReply: [Monitor Monitor];
    MConfig: [Monitor Monitor];
    MLogAck: [Monitor Monitor];
    MMgrMap: [Monitor Monitor];
    MMonCommandAck: [Monitor Monitor];
    MMonGetPurgedSnapsReply: [Monitor Monitor];
    MMonGetVersionReply: [Monitor Monitor];
    MMonSubscribeAck: [Monitor Monitor];
    MOsdMarkMeDown: [Monitor Monitor];
    MOsdPgCreate2: [Monitor Monitor];
    // From the manager.
    MMgrConfigure: [Manager Manager];
    MOsdForceRecovery: [Manager Manager];
    MOsdScrub2: [Manager Manager];
    // Between monitors.
    MRelayOpen: [];
    MRelayMessage: [];
    MRelayClose: [];
    MRelayIds: [];
    MRelayKeyUsed: [];
    MRelayTaken: [];
    MRelayClock: [];
    // Messages between real OSDs; ours have messages of their own.
    MOsdPgInfo2: [];
    MOsdPgLease: [];
    MOsdPgLeaseAck: [];
    MOsdPgNotify2: [];
    MOsdPgQuery2: [];
    // Messages that OSDs only send, and those for other daemons.
    MAuth: [];
    MClientCapRelease: [];
    MClientCaps: [];
    MClientLease: [];
    MClientReconnect: [];
    MClientReply: [];
    MClientRequest: [];
    MClientRequestForward: [];
    MClientSession: [];
    MCommandReply: [];
    MFsMap: [];
    MFsMapUser: [];
    MGetConfig: [];
    MGetPoolStats: [];
    MGetPoolStatsReply: [];
    MKvData: [];
    MLog: [];
    MMdsBeacon: [];
    MMdsLoadTargets: [];
    MMdsMap: [];
    MMgrBeacon: [];
    MMgrClose: [];
    MMgrCommand: [];
    MMgrCommandReply: [];
    MMgrDigest: [];
    MMgrOpen: [];
    MMgrReport: [];
    MMonCommand: [];
    MMonGetMap: [];
    MMonGetOsdMap: [];
    MMonGetPurgedSnaps: [];
    MMonGetVersion: [];
    MMonMgrReport: [];
    MMonSubscribe: [];
    MOsdAlive: [];
    MOsdBeacon: [];
    MOsdBoot: [];
    MOsdFailure: [];
    MOsdFull: [];
    MOsdMarkMeDead: [];
    MOsdPgCreated: [];
    MOsdPgReadyToMerge: [];
    MOsdPgTemp: [];
    MPgStats: [];
    MPoolOp: [];
    MPoolOpReply: [];
    MRemoveSnaps: [];
    MServiceMap: [];
    MStatfs: [];
    MStatfsReply: [];
}

/// Right that a message type needs on a lane; `None` if the lane does not accept the type.
#[must_use]
pub fn right(lane: Lane, kind: u16) -> Option<Right> {
    taken(kind).iter().find(|(l, _)| *l == lane).map(|(_, r)| *r)
}

/// Reason why a message is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The lane does not accept this type.
    NotHere,
    /// The principal lacks this right.
    Lacks(Right),
}

/// Judges a message by its type, before it is decoded. Error: the lane does not accept the type, or the sender lacks
/// the right.
pub fn admit(lane: Lane, kind: u16, who: &Principal) -> Result<(), Refusal> {
    let right = right(lane, kind).ok_or(Refusal::NotHere)?;
    if right.is_held_by(who) { Ok(()) } else { Err(Refusal::Lacks(right)) }
}

/// Counters of the verdicts on messages of one lane.
#[derive(Debug, Default)]
pub struct Admission {
    taken: Cell<u64>,
    refused: Cell<u64>,
}

impl Admission {
    /// Calls [`admit`] and counts the verdict. Errors are those of [`admit`].
    pub fn admit(&self, lane: Lane, kind: u16, who: &Principal) -> Result<(), Refusal> {
        self.count(admit(lane, kind, who))
    }

    /// Counts a verdict and returns it.
    pub fn count<T, E>(&self, verdict: Result<T, E>) -> Result<T, E> {
        let counter = if verdict.is_ok() { &self.taken } else { &self.refused };
        counter.set(counter.get() + 1);
        verdict
    }

    /// Numbers of accepted and refused messages.
    #[must_use]
    pub fn figures(&self) -> (u64, u64) {
        (self.taken.get(), self.refused.get())
    }
}

/// Right for every command of `ceph tell osd.N`. Ceph requires the same for all of them, and before it looks at
/// the command (`OSD::handle_command`; recorded from 16.2 and 20.2 in `vectors/rights`: also for unknown
/// commands and `get_command_descriptions`). The admin socket requires none: permissions of the file system
/// protect it.
pub const COMMANDS: Right = Right::AllowAll;

#[cfg(test)]
mod tests {
    use super::*;
    use auth::{CapsInfo, Method};
    use base::AuthName;
    use std::collections::BTreeSet;

    fn who(claimed: EntityKind, name: &str, caps: &str) -> Principal {
        let nobody = Principal::nobody(([10, 0, 0, 1], 1).into());
        let name = AuthName::parse(name).unwrap();
        Principal { name, kind: claimed, caps: CapsInfo::from_text(caps), method: Method::CEPHX, ..nobody }
    }

    #[test]
    fn every_message_type_has_one_row() {
        let all: BTreeSet<u16> = wire::msg::registry::KINDS.iter().copied().collect();
        let stated: BTreeSet<u16> = TABLE.iter().map(|r| r.kind).collect();
        let missing: Vec<&str> = all.difference(&stated).map(|k| wire::msg::registry::name(*k)).collect();
        assert!(missing.is_empty(), "without a stated right at an OSD: {missing:?}");
        assert_eq!((stated.len(), all.len()), (TABLE.len(), TABLE.len()), "twice, or unknown to wire");
        for r in TABLE {
            let lanes: BTreeSet<_> = r.taken.iter().map(|(l, _)| format!("{l:?}")).collect();
            assert_eq!(lanes.len(), r.taken.len(), "one right for each lane");
        }
    }

    /// On connections opened by peers, only an OSD's own key, used as an OSD, has the rights of an OSD.
    #[test]
    fn only_an_osds_own_key_has_the_rights_of_an_osd() {
        let osd = who(EntityKind::OSD, "osd.3", "allow *");
        let others = [
            who(EntityKind::CLIENT, "client.admin", "allow *"),
            who(EntityKind::CLIENT, "client.none", ""),
            who(EntityKind::CLIENT, "osd.3", "allow *"),
            who(EntityKind::OSD, "osd.3", "allow rwx"),
            who(EntityKind::OSD, "osd.3", "allow * network 10.0.0.0/8"),
            who(EntityKind::OSD, "osd.x", "allow *"),
            who(EntityKind::MGR, "mgr.x", "allow *"),
            who(EntityKind::MDS, "mds.x", "allow *"),
        ];
        for lane in [Lane::Public, Lane::Cluster, Lane::Heartbeat] {
            for row in TABLE {
                let name = wire::msg::registry::name(row.kind);
                let needs = right(lane, row.kind);
                let taken = admit(lane, row.kind, &osd);
                assert_eq!(taken.is_ok(), needs.is_some(), "{name} from an OSD on {lane:?}");
                for o in &others {
                    let may = match needs {
                        None | Some(Right::Osd | Right::Monitor | Right::Manager) => false,
                        Some(Right::SignedIn | Right::Operation) => true,
                        Some(Right::AllowAll) => o.caps.text() == "allow *",
                    };
                    assert_eq!(admit(lane, row.kind, o).is_ok(), may, "{name} from {} on {lane:?}", o.name);
                }
            }
        }
    }

    #[test]
    fn messages_of_monitors_and_managers_are_accepted_only_on_sessions_that_we_opened() {
        let socket = ([10, 0, 0, 1], 1).into();
        let dialled = |k| Principal::dialled(k, 7, Method::CEPHX, socket);
        assert!(admit(Lane::Monitor, MOsdMap::KIND, &dialled(EntityKind::MON)).is_ok());
        assert!(admit(Lane::Manager, MOsdScrub2::KIND, &dialled(EntityKind::MGR)).is_ok());
        let refused = admit(Lane::Monitor, MOsdMap::KIND, &who(EntityKind::MON, "mon.a", "allow *"));
        assert_eq!(refused, Err(Refusal::Lacks(Right::Monitor)));
        assert_eq!(admit(Lane::Manager, MOsdMap::KIND, &dialled(EntityKind::MGR)), Err(Refusal::NotHere));
    }
}
