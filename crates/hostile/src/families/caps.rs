//! Caps of all three services, and access decisions with them.

use super::{ALLOC_DECODER, Family};
use base::{AuthName, EntityAddr, EntityKind};
use cluster::caps::{ClassCall, MdsCaps, MgrCaps, MonCaps, Need, OsdCaps, OsdRequest};
use std::collections::BTreeMap;

pub(super) const FAMILY: Family = Family { name: "caps", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 1 };

fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let addr = EntityAddr::msgr2(std::net::SocketAddr::from(([10, 0, 0, 1], 1)), 1);
    if let Ok(c) = OsdCaps::parse(&text) {
        let call = ClassCall { class: "lock", method: "lock", read: true, write: true, allowed: true };
        let applications = BTreeMap::from([("rbd".to_owned(), BTreeMap::new())]);
        let req = OsdRequest {
            pool: "rbd",
            nspace: b"ns",
            applications: &applications,
            object: b"rbd_header.1",
            read: true,
            write: true,
            classes: &[call],
        };
        let may = c.is_capable(&req, &addr);
        // A sender that may do a whole request may also do a part of it.
        let less = OsdRequest { write: false, classes: &[], ..req };
        assert!(!may || c.is_capable(&less, &addr), "{text}");
    }
    let name = AuthName { kind: EntityKind::CLIENT, id: "x".to_owned() };
    if let Ok(c) = MonCaps::parse(&text, &name) {
        let may = c.allows_service("osd", Need::RW, &addr);
        assert!(!may || c.allows_service("osd", Need::R, &addr), "{text}");
        let _ = c.fs_names().count();
    }
    if let Ok(c) = MgrCaps::parse(&text) {
        let _ = c.is_allow_all();
    }
    match MdsCaps::parse(&text) {
        Ok(c) => assert!(!c.grants().is_empty(), "{text}"),
        Err(e) => assert!(text.ends_with(&e.rest), "{text}"),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    [
        "allow *",
        "allow rwx",
        "allow r, allow w pool=a, allow class-read object_prefix rbd_children, allow rwx pool=rbd",
        "profile rbd pool=images, profile rbd-read-only",
        "profile osd",
        "allow rwps fsname=a path=/b root_squash uid=1 gids=2,3 network 10.0.0.0/8, allow r",
        "profile rbd pool=p namespace=ns",
        "allow rw tag cephfs data=*",
        "allow rw pool=a namespace=b* object_prefix c",
        "allow class lock.lock, allow class rbd",
        "allow rwx network 10.0.0.0/8, allow r network ::1/128",
        "allow command \"osd pool create\" with pool=x, allow command \"auth get-or-create\" with entity prefix client.",
        "allow service osd rw, allow module balancer with k=v r",
        "allow r fsname=cephfs, allow pool \"with space\" rwx",
        "allow pool 'quo ted' r;allow profile bootstrap-osd",
    ]
    .map(|s| s.as_bytes().to_vec())
    .to_vec()
}
