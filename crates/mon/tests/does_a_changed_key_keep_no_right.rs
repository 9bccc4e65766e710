//! A key is removed, replaced or given less between any two steps of a handshake, or after it: does its holder keep a
//! right?
//!
//! The handshakes are the real ones of client and server. Their holder comes directly, through a front monitor whose
//! copy of the state is old, or to the manager role with a ticket. Whatever he does, a command that his entity may not
//! run any more is never run, from the commit of the change on.

mod support;

use std::cell::RefCell;
use std::rc::Rc;

use auth::{AuthHost, Client, ConMode, CryptoKey, KeyKind, Method, Principal};
use base::{AuthName, EntityKind, EntityName, Utime, errno};
use mon::core::session::Peer;
use mon::core::{Event, MonAuthHost};
use mon::state::Role;
use serde_json::json;
use support::*;
use wire::Features;
use wire::msg::{MCommand, MCommandReply, MMonCommand, MMonCommandAck};

const NAME: &str = "client.x";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Front,
    Manager,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Removed,
    Rotated,
    Imported,
    Reduced,
}

/// Steps of a handshake, and the change comes before the one with its number.
const STEPS: usize = 4;

fn name() -> AuthName {
    AuthName::parse(NAME).unwrap()
}

fn key(n: u8) -> CryptoKey {
    CryptoKey::new(KeyKind::Aes, Utime::default(), &[n; 16]).unwrap()
}

struct Field {
    c: Option<Cluster>,
    admin: u64,
    random: TestRandom,
}

impl Field {
    fn new() -> Self {
        let mut c = Cluster::new();
        let admin = c.admin();
        let mut me = Self { c: Some(c), admin, random: TestRandom::new(5) };
        me.import(1);
        me
    }

    fn c(&mut self) -> &mut Cluster {
        self.c.as_mut().unwrap()
    }

    fn import(&mut self, n: u8) {
        let text =
            format!("[{NAME}]\n\tkey = {}\n\tcaps mon = \"allow *\"\n\tcaps mgr = \"allow *\"\n", key(n).to_base64());
        let admin = self.admin;
        let (rc, rs, _) = self.c().command(admin, &json!({ "prefix": "auth import" }), &text);
        assert_eq!(rc, 0, "{rs}");
    }

    fn change(&mut self, change: Change) {
        let admin = self.admin;
        let caps = ["mon", "allow r", "mgr", "allow r"];
        let cmd = match change {
            Change::Nothing => return,
            Change::Removed => json!({ "prefix": "auth rm", "entity": NAME }),
            Change::Rotated => json!({ "prefix": "auth rotate", "entity": NAME }),
            Change::Imported => return self.import(2),
            Change::Reduced => json!({ "prefix": "auth caps", "entity": NAME, "caps": caps }),
        };
        self.c().ok(admin, &cmd);
    }

    /// Runs something with the authentication host of a role.
    fn with_host<T>(&mut self, service: EntityKind, f: impl FnOnce(&dyn AuthHost, &TestRandom) -> T) -> T {
        let c = self.c.take().unwrap();
        let core = Rc::new(RefCell::new(c.core));
        let host = MonAuthHost::new(Rc::clone(&core), service);
        let done = f(&host, &self.random);
        drop(host);
        let core = Rc::into_inner(core).expect("last owner").into_inner();
        self.c = Some(Cluster { core, ..c });
        done
    }

    /// One handshake with the changes `at(step)` before its steps. `None` if it is refused.
    fn handshake(
        &mut self,
        client: &mut Client,
        service: EntityKind,
        mut at: impl FnMut(&mut Self, usize),
    ) -> Option<Principal> {
        let now = self.c().now.wall;
        let (mut ours, mut theirs) = (auth::client::Handshake::new(service), auth::server::Handshake::new());
        let request = ours.request(client, &self.random).ok()?;
        at(self, 0);
        let step = self.with_host(service, |h, r| theirs.request(h, r, now, Method::CEPHX, &request)).ok()?;
        let auth::server::Step::More(challenge) = step else { panic!("no challenge") };
        let proof = ours.more(client, &self.random, &challenge).ok()?;
        at(self, 1);
        let step = self.with_host(service, |h, r| theirs.more(h, r, now, ConMode::CRC, &proof)).ok()?;
        let auth::server::Step::Done(granted) = step else { panic!("one round") };
        ours.done(client, now, granted.global_id, ConMode::CRC, &granted.reply).ok()?;
        at(self, 2);
        Principal::incoming(EntityKind::CLIENT, &granted, Method::CEPHX, HOME).ok()
    }

    fn open(&mut self, principal: Principal, role: Role, event: fn(u64, Box<Peer>) -> Event) -> u64 {
        let c = self.c();
        let conn = c.next_conn;
        c.next_conn += 1;
        let entity = EntityName::new(EntityKind::CLIENT, principal.global_id as i64);
        let peer = Peer { principal, entity, addrs: addr(0, 7), features: Features::PACIFIC, role };
        let now = c.now;
        c.core.handle(event(conn, Box::new(peer)), now);
        c.pump();
        conn
    }

    /// True if a command that writes is run on a session.
    fn writes(&mut self, conn: u64, role: Role) -> bool {
        let c = self.c();
        if role == Role::Mgr {
            let cmd = vec![json!({ "prefix": "progress clear" }).to_string().into()];
            c.send(conn, &MCommand { fsid: FSID, cmd, ..MCommand::default() });
            return c.take::<MCommandReply>(conn).iter().any(|r| r.r == 0);
        }
        let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string().into()];
        c.send(conn, &MMonCommand { fsid: FSID, cmd, ..MMonCommand::default() });
        c.take::<MMonCommandAck>(conn).iter().any(|r| r.r == 0)
    }

    /// Comes to the cluster while the entity changes before step `when`; true if it may still write in the end.
    fn comes(&mut self, way: Way, change: Change, when: usize) -> bool {
        let mut client = Client::cephx(name(), key(1));
        client.set_want(u32::from(EntityKind::MGR.0) | u32::from(EntityKind::AUTH.0) | u32::from(EntityKind::MON.0));
        let (service, role) = match way {
            Way::Manager => (EntityKind::MGR, Role::Mgr),
            Way::Direct | Way::Front => (EntityKind::MON, Role::Mon),
        };
        if way == Way::Manager {
            self.handshake(&mut client, EntityKind::MON, |_, _| {}).expect("signs in");
        }
        // The copy of a front monitor does not follow before its session is told to the leader.
        let copy = way == Way::Front;
        let principal = self.handshake(&mut client, service, |f, step| {
            if step == when && !copy {
                f.change(change);
            }
        });
        let Some(principal) = principal else { return false };
        if copy && when < 3 {
            self.change(change);
        }
        let conn = self.open(principal, role, if copy { Event::OpenElsewhere } else { Event::Open });
        if when == 3 {
            self.change(change);
        }
        self.writes(conn, role)
    }
}

#[test]
fn no_step_is_late_enough() {
    for way in [Way::Direct, Way::Front, Way::Manager] {
        assert!(Field::new().comes(way, Change::Nothing, 0), "{way:?}: the holder of a good key works");
        for change in [Change::Removed, Change::Rotated, Change::Imported, Change::Reduced] {
            for when in 0..STEPS {
                assert!(!Field::new().comes(way, change, when), "{way:?}, {change:?} before step {when}");
            }
        }
    }
}

#[test]
fn a_ticket_opens_no_session_at_a_monitor() {
    let mut f = Field::new();
    let mut client = Client::cephx(name(), key(1));
    client.set_want(u32::from(EntityKind::MON.0));
    f.handshake(&mut client, EntityKind::MON, |_, _| {}).expect("signs in");
    let ticket = client.ticket(EntityKind::MON).expect("Ceph's clients want one").clone();
    // The authorizer of a service, made for the monitors.
    let mut forged = Client::cephx(name(), key(1));
    forged.set_ticket(EntityKind::MGR, client.global_id(), ticket);
    let mut h = auth::client::Handshake::new(EntityKind::MGR);
    let mut payload = h.request(&forged, &f.random).unwrap().to_vec();
    // u8 mode, u64 global id, u32 service.
    payload[10..14].copy_from_slice(&u32::from(EntityKind::MON.0).to_le_bytes());
    let now = f.c().now.wall;
    for method in [Method::CEPHX, Method::NONE] {
        f.c().core.change_options(|o| o.auth.cephx = method == Method::CEPHX);
        let e = f.with_host(EntityKind::MON, |h, r| {
            auth::server::Handshake::new().request(h, r, now, method, &payload).unwrap_err()
        });
        assert_eq!(e, auth::AuthError::AuthorizerAtMonitor);
        assert_eq!(e.errno(), errno::EACCES);
    }
}

#[test]
fn secrets_of_services_go_to_their_daemons_only() {
    let mut f = Field::new();
    let now = f.c().now.wall;
    for (who, given) in [
        ("osd.0", true),
        ("mds.a", true),
        ("mgr.x", true),
        ("mon.", false),
        ("mon.x", false),
        ("auth.x", false),
        ("client.x", false),
    ] {
        let Some(who) = AuthName::parse(who) else { continue };
        let caps = [("mon".to_owned(), "allow *".to_owned())].into();
        let entry = mon::state::AuthEntry { key: key(9), pending_key: None, caps };
        f.c().core.pretend(|s| drop(s.auth.insert(who.clone(), entry)));
        let request = Client::cephx(who.clone(), key(9)).rotating_request();
        let got = f.with_host(EntityKind::MON, |h, r| auth::server::handle_renewal(h, r, now, &who, &request));
        assert_eq!(got.is_ok(), given, "{who}: {got:?}");
    }
}

#[test]
fn tickets_of_a_replaced_key_are_not_renewed() {
    let mut f = Field::new();
    let mut client = Client::cephx(name(), key(1));
    client.set_want(u32::from(EntityKind::MGR.0));
    f.handshake(&mut client, EntityKind::MON, |_, _| {}).expect("signs in");
    let request = client.renewal_request(u32::from(EntityKind::MGR.0), &f.random).unwrap();
    let now = f.c().now.wall;
    let renew =
        |f: &mut Field| f.with_host(EntityKind::MON, |h, r| auth::server::handle_renewal(h, r, now, &name(), &request));
    assert!(renew(&mut f).is_ok());
    f.import(2);
    assert_eq!(renew(&mut f).unwrap_err(), auth::AuthError::ReplacedKey(name()));
}

/// The answer to `auth rotate` of the own key is the new key. Its session has no rights from then on, and its
/// connection ends when the client has had time to take the answer.
#[test]
fn a_client_that_replaces_its_own_key_gets_the_answer() {
    for relayed in [false, true] {
        let mut f = Field::new();
        let mut client = Client::cephx(name(), key(1));
        let p = f.handshake(&mut client, EntityKind::MON, |_, _| {}).expect("signs in");
        let event = if relayed { Event::OpenElsewhere } else { Event::Open };
        let (conn, other) = (f.open(p.clone(), Role::Mon, event), f.open(p, Role::Mon, event));
        let c = f.c();
        c.closed.clear();
        let out = c.ok(conn, &json!({ "prefix": "auth rotate", "entity": NAME }));
        assert!(out.contains("key = "), "{out}");
        let closed: Vec<u64> = c.closed.iter().map(|(c, _)| *c).collect();
        assert_eq!(closed, [other], "other sessions of the key end at once");
        assert!(!f.writes(conn, Role::Mon));
        assert!(f.c().take::<MMonCommandAck>(conn).is_empty(), "not even a refusal");
        f.c().ticks(16);
        assert!(f.c().closed.iter().any(|(c, why)| *c == conn && why.contains("another key")));
        assert_eq!(f.c().closed.len(), 2, "{:?}", f.c().closed);
    }
}

#[test]
fn another_key_of_the_monitors_closes_their_links_and_no_other_change_does() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let import = |n: u8, caps: &str| {
        let (mon, other) = (key(n).to_base64(), key(9).to_base64());
        format!(
            "[mon.]\n\tkey = {mon}\n\tcaps mon = \"{caps}\"\n[client.y]\n\tkey = {other}\n\tcaps mon = \"allow r\"\n"
        )
    };
    let links = |c: &mut Cluster| std::mem::take(&mut c.closed).into_iter().filter(|(to, _)| *to == 0).count();
    let (rc, rs, _) = c.command(admin, &json!({ "prefix": "auth import" }), &import(1, "allow *"));
    assert_eq!(rc, 0, "{rs}");
    links(&mut c);
    // The same key with other caps, and another entity.
    c.command(admin, &json!({ "prefix": "auth import" }), &import(1, "allow rwx"));
    c.ok(admin, &json!({ "prefix": "auth get-or-create", "entity": "client.z" }));
    assert_eq!(links(&mut c), 0);
    c.command(admin, &json!({ "prefix": "auth import" }), &import(2, "allow *"));
    assert_eq!(links(&mut c), 1, "with the commit of the other key");
    let mon = AuthName { kind: EntityKind::MON, id: String::new() };
    assert_eq!(c.core.state().auth[&mon].key, key(2));
}
