//! Which right every message and every command needs at an OSD: one table, read by the host before it decodes anything.
//!
//! A message is judged by the connection it comes on (a [`Lane`]) and by the authenticated [`Principal`] at its other end. What is not
//! stated here is refused. A message type of `wire` without a row, and a command without one, fail the tests below.

use crate::core::session::caps_of;
use auth::Principal;
use base::EntityKind;
use std::cell::Cell;
use wire::WireMessage as _;
use wire::msg::*;

/// A way by which messages reach an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Connections to the public address: clients, managers, other daemons.
    Public,
    /// Data sessions with other OSDs, whoever dialled.
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

/// What a principal needs for a message on a lane, or for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// To have signed in. The message changes nothing but its own session.
    SignedIn,
    /// What the operations in it do to their object, by the session's caps ([`crate::core::shard::Shard::op`]): `EPERM`.
    Operation,
    /// `osd 'allow *'` without a condition: `EACCES`, as on Ceph (`OSD::handle_command`).
    AllowAll,
    /// Signed in as `osd.N`, come as an OSD, with `osd 'allow *'`; or an OSD that we dialled. Stricter than Ceph, which asks for
    /// the kind that HELLO claims (`OSD::require_osd_peer`) or for the kind of the name (`OSD::handle_osd_map`).
    Osd,
    /// A monitor that we dialled (`OSD::require_mon_peer`).
    Monitor,
    /// A manager that we dialled (`OSD::require_mon_or_mgr_peer`).
    Manager,
}

impl Right {
    /// True if the principal has it. [`Right::Operation`] is decided later, for each operation.
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

/// What is stated of one message type.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Number of the type.
    pub kind: u16,
    /// Where it may come from and with which right; nowhere else.
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
    // Operations of clients, and what belongs to them.
    MOsdOp: [Public Operation];
    MOsdBackoff: [Public SignedIn, Objecter Osd];
    MPing: [Public SignedIn];
    MCommand: [Public AllowAll, Manager Manager];
    MOsdOpReply: [Objecter Osd];
    MWatchNotify: [Objecter Osd];
    // Maps. A client that is behind gets them from us and has none to give.
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
    // What real OSDs say to each other; ours have messages of their own.
    MOsdPgInfo2: [];
    MOsdPgLease: [];
    MOsdPgLeaseAck: [];
    MOsdPgNotify2: [];
    MOsdPgQuery2: [];
    // What OSDs send and others take, and what concerns other daemons.
    MAuth: [];
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

/// The right that a message type needs on a lane; `None` if it is taken from nobody there.
#[must_use]
pub fn right(lane: Lane, kind: u16) -> Option<Right> {
    taken(kind).iter().find(|(l, _)| *l == lane).map(|(_, r)| *r)
}

/// Why a message is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody may send it here.
    NotHere,
    /// This principal lacks the right.
    Lacks(Right),
}

/// Judges a message by its type, before it is decoded.
pub fn admit(lane: Lane, kind: u16, who: &Principal) -> Result<(), Refusal> {
    let right = right(lane, kind).ok_or(Refusal::NotHere)?;
    if right.is_held_by(who) { Ok(()) } else { Err(Refusal::Lacks(right)) }
}

/// Counts the verdicts on what others send on one lane.
#[derive(Debug, Default)]
pub struct Door {
    taken: Cell<u64>,
    refused: Cell<u64>,
}

impl Door {
    /// [`admit`], counted.
    pub fn admit(&self, lane: Lane, kind: u16, who: &Principal) -> Result<(), Refusal> {
        self.count(admit(lane, kind, who))
    }

    /// Counts a verdict.
    pub fn count<T, E>(&self, verdict: Result<T, E>) -> Result<T, E> {
        let counter = if verdict.is_ok() { &self.taken } else { &self.refused };
        counter.set(counter.get() + 1);
        verdict
    }

    /// Messages taken, and refused.
    #[must_use]
    pub fn figures(&self) -> (u64, u64) {
        (self.taken.get(), self.refused.get())
    }
}

/// The right that a command of `ceph tell osd.N` needs. Ceph asks for the same of all of them, and for it before it looks at the command
/// (`OSD::handle_command`; recorded of 16.2 and 20.2, `vectors/rights`: unknown commands and `get_command_descriptions` as well). The
/// admin socket asks for none: who may open it is the file system's matter.
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

    /// On connections that others open, only an OSD's own key, used as an OSD, does what OSDs may.
    #[test]
    fn nobody_but_osds_speaks_as_one() {
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
    fn what_monitors_and_managers_say_counts_on_sessions_that_we_opened() {
        let socket = ([10, 0, 0, 1], 1).into();
        let dialled = |k| Principal::dialled(k, 7, Method::CEPHX, socket);
        assert!(admit(Lane::Monitor, MOsdMap::KIND, &dialled(EntityKind::MON)).is_ok());
        assert!(admit(Lane::Manager, MOsdScrub2::KIND, &dialled(EntityKind::MGR)).is_ok());
        let refused = admit(Lane::Monitor, MOsdMap::KIND, &who(EntityKind::MON, "mon.a", "allow *"));
        assert_eq!(refused, Err(Refusal::Lacks(Right::Monitor)));
        assert_eq!(admit(Lane::Manager, MOsdMap::KIND, &dialled(EntityKind::MGR)), Err(Refusal::NotHere));
    }
}
