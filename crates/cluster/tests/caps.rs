//! Do capability strings allow and forbid what they do in Ceph?

use base::{AuthName, EntityAddr};
use cluster::caps::{ClassCall, MdsCaps, MgrCaps, MonCaps, Need, OsdCaps, OsdRequest};
use std::collections::BTreeMap;

fn addr(s: &str) -> EntityAddr {
    EntityAddr::msgr2(s.parse().unwrap(), 0)
}

fn home() -> EntityAddr {
    addr("127.0.0.1:1234")
}

type Apps = BTreeMap<String, BTreeMap<String, String>>;

fn apps(list: &[(&str, &str, &str)]) -> Apps {
    let mut m = Apps::new();
    for (app, k, v) in list {
        let kv = m.entry((*app).to_owned()).or_default();
        if !k.is_empty() {
            kv.insert((*k).to_owned(), (*v).to_owned());
        }
    }
    m
}

/// True if `caps` allow access to `pool/namespace/object` with the `r` and `w` in `perm`, and these calls.
fn osd(caps: &str, place: &str, perm: &str, apps: &Apps, calls: &[ClassCall<'_>]) -> bool {
    let mut p = place.splitn(3, '/');
    let (pool, ns, object) = (p.next().unwrap(), p.next().unwrap(), p.next().unwrap());
    let caps = OsdCaps::parse(caps).unwrap_or_else(|e| panic!("{e}"));
    let req = OsdRequest {
        pool,
        nspace: ns.as_bytes(),
        applications: apps,
        object: object.as_bytes(),
        read: perm.contains('r'),
        write: perm.contains('w'),
        classes: calls,
    };
    caps.is_capable(&req, &home())
}

const CLS: ClassCall<'static> = ClassCall { class: "rbd", method: "get", read: true, write: false, allowed: true };

#[test]
fn osd_strings_that_parse() {
    for s in [
        "",
        "allow *",
        " allow * ",
        "allow all",
        "allow r",
        "allow rwx",
        "allow rw",
        "allow rx",
        "allow wx",
        "allow x",
        "allow r pool foo",
        "allow r pool=foo",
        "allow r pool foo object_prefix bar",
        "allow wx pool \"foo bar\" object_prefix b",
        "allow pool foo rwx; allow pool bar r",
        "allow pool foo rwx ,allow pool bar r",
        "allow pool foo r, allow pool bar rwx  ",
        "allow pool='foo' r;allow pool 'bar baz' w",
        "allow class-read",
        "allow class-write object_prefix a",
        "allow rw class-read class-write",
        "allow class-read object_prefix rbd_children, allow rwx pool=rbd",
        "allow class foo",
        "allow class foo bar",
        "allow class \"foo\" \"bar\" pool x",
        "allow rwx namespace=ns1",
        "allow rwx namespace=ns1*",
        "allow rwx pool foo namespace \"\"",
        "allow rw tag cephfs data=cephfs_a",
        "allow rw tag cephfs * = *",
        "allow rw namespace=x tag rgw all=all",
        "allow namespace=x tag rgw k=v rw",
        "profile rbd",
        "profile=rbd pool=images",
        "profile rbd-read-only pool images namespace ns",
        "profile rbd pool=images, profile rbd-read-only pool=templates",
        "allow rwx network 127.0.0.0/8",
        "profile rbd network fe80::/10",
        "allow rwx pool=allowed",
        "allow r pool=all",
        "profile osd",
    ] {
        OsdCaps::parse(s).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn osd_strings_that_do_not() {
    for (s, at) in [
        ("allow", 5),
        ("allow r pool", 12),
        ("allow r w", 7),
        ("allow wr", 7),
        ("allow rwx rwx", 9),
        ("foo", 0),
        ("allow rwx,", 10),
        ("allow rwx;;allow r", 10),
        ("allow rwx pool=\"foo", 15),
        ("allow class", 11),
        ("allow rwx pool=foo bar", 18),
        ("allow rw tag cephfs", 8),
        ("allow rw tag cephfs data", 8),
        ("allow profile rbd", 5),
        ("alow *", 0),
        ("allow *r", 7),
    ] {
        let e = OsdCaps::parse(s).expect_err(s);
        assert!(e.at <= s.len() && e.at + 6 >= at, "{s}: {e}");
        assert!(e.to_string().contains(s), "{e}");
    }
    assert!(OsdCaps::parse(&"allow rwx,".repeat(10_000)).is_err());
}

#[test]
fn osd_permissions() {
    let none = Apps::new();
    assert!(!osd("", "p//o", "r", &none, &[]));
    assert!(osd("allow *", "p/n/o", "rw", &none, &[ClassCall { allowed: false, ..CLS }]));
    assert!(osd("allow r", "p//o", "r", &none, &[]));
    assert!(!osd("allow r", "p//o", "w", &none, &[]));
    assert!(!osd("allow r, allow w", "p//o", "rw", &none, &[]), "one grant must do for an operation");
    assert!(!osd("allow rw", "p//o", "r", &none, &[CLS]));
    assert!(osd("allow rwx", "p//o", "r", &none, &[CLS]));
    assert!(!osd("allow rwx", "p//o", "r", &none, &[ClassCall { allowed: false, ..CLS }]));
    assert!(osd("allow class rbd", "p//o", "", &none, &[ClassCall { allowed: false, ..CLS }]));
    assert!(!osd("allow class rbd", "p//o", "r", &none, &[CLS]));
    assert!(osd("allow class rbd get", "p//o", "", &none, &[CLS]));
    assert!(!osd("allow class rbd set", "p//o", "", &none, &[CLS]));
    assert!(osd("allow class-read", "p//o", "", &none, &[CLS]));
    assert!(!osd("allow class-write", "p//o", "", &none, &[CLS]));
    // Calls allowed by different grants add up.
    let set = ClassCall { method: "set", read: false, write: true, ..CLS };
    assert!(osd("allow class rbd get, allow class rbd set", "p//o", "", &none, &[CLS, set]));
    assert!(!osd("allow class rbd get", "p//o", "", &none, &[CLS, set]));
}

#[test]
fn osd_places() {
    let none = Apps::new();
    for (caps, place, want) in [
        ("allow rwx pool=foo", "foo//o", true),
        ("allow rwx pool=foo", "foo/ns/o", true),
        ("allow rwx pool=foo", "bar//o", false),
        ("allow rwx pool=foo object_prefix ab", "foo//abc", true),
        ("allow rwx pool=foo object_prefix ab", "foo//acb", false),
        ("allow rwx namespace=ns", "foo/ns/o", true),
        ("allow rwx namespace=ns", "foo/ns1/o", false),
        ("allow rwx namespace=ns", "foo//o", false),
        ("allow rwx namespace=ns*", "foo/ns1/o", true),
        ("allow rwx namespace=\"ns*\"", "foo/ns1/o", true),
        ("allow rwx namespace=ns*", "foo/n/o", false),
        ("allow rwx namespace=\"\"", "foo//o", true),
        ("allow rwx namespace=\"\"", "foo/x/o", false),
        ("allow rwx pool=foo namespace=a", "foo/a/o", true),
        ("allow rwx pool=foo namespace=a", "bar/a/o", false),
    ] {
        assert_eq!(osd(caps, place, "rw", &none, &[]), want, "{caps} {place}");
    }
}

#[test]
fn osd_tags() {
    let a = apps(&[("cephfs", "data", "fs1"), ("rgw", "", "")]);
    for (caps, want) in [
        ("allow rw tag cephfs data=fs1", true),
        ("allow rw tag cephfs data=fs2", false),
        ("allow rw tag cephfs metadata=fs1", false),
        ("allow rw tag cephfs data=*", true),
        ("allow rw tag cephfs * = fs1", true),
        ("allow rw tag cephfs *=fs2", false),
        ("allow rw tag cephfs *=*", true),
        ("allow rw tag rgw *=*", true),
        ("allow rw tag rbd *=*", false),
        ("allow rw namespace=n tag cephfs *=*", false),
    ] {
        assert_eq!(osd(caps, "p//o", "rw", &a, &[]), want, "{caps}");
    }
}

#[test]
fn osd_profiles() {
    let none = Apps::new();
    let w = ClassCall { method: "create", write: true, ..CLS };
    assert!(osd("profile rbd", "p//rbd_data.1", "rw", &none, &[]));
    assert!(osd("profile rbd pool=p", "p//rbd_header.1", "", &none, &[w]));
    assert!(!osd("profile rbd pool=p", "q//rbd_header.1", "", &none, &[w]));
    assert!(osd("profile rbd pool=p", "q//rbd_children", "", &none, &[CLS]));
    assert!(osd("profile rbd pool=p", "q//rbd_info", "r", &none, &[]));
    assert!(!osd("profile rbd pool=p", "q//rbd_data.1", "r", &none, &[]));
    let md = ClassCall { method: "metadata_list", ..CLS };
    assert!(osd("profile rbd pool=p namespace=n", "p//rbd_info", "", &none, &[md]));
    assert!(!osd("profile rbd pool=p namespace=n", "p//rbd_info", "", &none, &[w]));
    assert!(osd("profile rbd-read-only pool=p", "p//rbd_data.1", "r", &none, &[CLS]));
    assert!(!osd("profile rbd-read-only pool=p", "p//rbd_data.1", "w", &none, &[]));
    assert!(!osd("profile rbd-read-only pool=p", "p//rbd_header.1", "", &none, &[w]));
    let attach = ClassCall { method: "child_attach", write: true, ..CLS };
    assert!(osd("profile rbd-read-only pool=p", "p//rbd_header.1", "", &none, &[attach]));
    assert!(!osd("profile rbd-read-only pool=p", "p//other", "", &none, &[attach]));
    assert!(osd("profile read-only", "p//o", "r", &none, &[]));
    assert!(!osd("profile read-only", "p//o", "w", &none, &[]));
    assert!(osd("profile read-write", "p//o", "rw", &none, &[]));
    assert!(!osd("profile nonsense", "p//o", "r", &none, &[]));
}

#[test]
fn osd_networks() {
    let none = Apps::new();
    let req = OsdRequest {
        pool: "p",
        nspace: b"",
        applications: &none,
        object: b"o",
        read: true,
        write: false,
        classes: &[],
    };
    let caps = OsdCaps::parse("allow r network 10.1.0.0/16, profile read-only network fe80::/10").unwrap();
    assert!(caps.is_capable(&req, &addr("10.1.2.3:1")));
    assert!(!caps.is_capable(&req, &addr("10.2.2.3:1")));
    assert!(caps.is_capable(&req, &addr("[fe80::9]:1")));
    let bad = OsdCaps::parse("allow * network 10.1.0.0").unwrap();
    assert!(!bad.is_capable(&req, &addr("10.1.0.0:1")) && !bad.is_allow_all());
    assert!(OsdCaps::parse("allow *").unwrap().is_allow_all());
    assert!(!OsdCaps::parse("allow * pool=x").unwrap().is_allow_all());
}

fn mon(caps: &str, service: &str, command: &str, args: &[(&str, &str)], perm: &str) -> bool {
    let name = AuthName::parse("osd.7").unwrap();
    let caps = MonCaps::parse(caps, &name).unwrap_or_else(|e| panic!("{e}"));
    caps.is_capable(service, command, args, Need::from_perm(perm), &home())
}

#[test]
fn mon_strings() {
    let n = AuthName::parse("client.x").unwrap();
    for s in [
        "",
        "allow *",
        "allow r",
        "allow rwx",
        "  allow rwx  ",
        "allow all",
        "allow service foo x",
        "allow service='foo' x",
        "allow service=\"froo\" x",
        "allow profile read-only",
        "profile osd",
        "profile=rbd",
        "allow command abc",
        "allow command=abc",
        "allow command \"a b c\"",
        "allow command abc with arg=foo",
        "allow command abc with arg=foo arg2=bar",
        "allow command abc with arg prefix bar arg2=baz",
        "allow command abc with arg prefix \"bar bingo\" arg2 regex '^x$'",
        "allow service foo x, allow command bar; profile rbd",
        "allow r fsname=a",
        "allow rw fsname a, allow r fsname=b",
        "allow r network 10.0.0.0/8",
    ] {
        MonCaps::parse(s, &n).unwrap_or_else(|e| panic!("{e}"));
    }
    for s in [
        "allow",
        "foo",
        "allow wr",
        "allow service foo",
        "allow command baz x",
        "allow command",
        "allow rwx foo",
        "allow r,",
        "allow rwxa",
        "allow command abc with",
    ] {
        MonCaps::parse(s, &n).expect_err(s);
    }
}

#[test]
fn mon_permissions() {
    assert!(mon("allow *", "config-key", "config-key get", &[], "rwx"));
    assert!(mon("allow r", "osd", "", &[], "r"));
    assert!(!mon("allow r", "osd", "", &[], "w"));
    assert!(mon("allow r, allow w", "osd", "", &[], "rw"), "grants add up");
    assert!(!mon("allow rwx", "config-key", "config-key get", &[], "r"), "stored keys need * or their own grant");
    assert!(mon("allow service config-key r", "config-key", "config-key get", &[], "r"));
    assert!(mon("allow service auth rx", "auth", "auth get", &[], "rx"));
    assert!(!mon("allow service auth r", "auth", "auth get", &[], "rx"));
    assert!(mon("allow command \"osd df\"", "osd", "osd df", &[], "rwx"));
    assert!(!mon("allow command \"osd df\"", "osd", "osd tree", &[], "r"));
    let caps = "allow command foo with a=1 b prefix xy c regex '[0-9]+'";
    assert!(mon(caps, "m", "foo", &[("a", "1"), ("b", "xyz"), ("c", "42")], "rwx"));
    assert!(!mon(caps, "m", "foo", &[("a", "2"), ("b", "xyz"), ("c", "42")], "r"));
    assert!(!mon(caps, "m", "foo", &[("a", "1"), ("b", "xy z"), ("c", "4 2")], "r"));
    assert!(!mon(caps, "m", "foo", &[("a", "1"), ("b", "xyz")], "r"), "an argument with a condition must be there");
    assert!(!mon("allow command foo with a regex '[('", "m", "foo", &[("a", "[(")], "r"));
}

#[test]
fn mon_profiles() {
    assert!(mon("allow profile osd", "osd", "", &[], "rwx"));
    assert!(mon("profile osd", "mon", "", &[], "r"));
    assert!(!mon("profile osd", "auth", "", &[], "r"));
    assert!(mon("profile osd", "config-key", "config-key set", &[("key", "daemon-private/osd.7/x")], "rw"));
    assert!(!mon("profile osd", "config-key", "config-key set", &[("key", "daemon-private/osd.8/x")], "rw"));
    assert!(mon("profile rbd", "osd", "", &[], "r"));
    assert!(!mon("profile rbd", "osd", "", &[], "w"));
    let one = [("blocklistop", "add"), ("addr", "10.0.0.1:0/12345")];
    assert!(mon("profile rbd", "osd", "osd blocklist", &one, "rw"));
    let host = [("blocklistop", "add"), ("addr", "10.0.0.1")];
    assert!(!mon("profile rbd", "osd", "osd blocklist", &host, "rw"));
    let range = [("range", "range"), ("blocklistop", "add"), ("addr", "0.0.0.0/0")];
    assert!(!mon("profile rbd", "osd", "osd blocklist", &range, "rw"), "not everybody");
    let rm = [("blocklistop", "rm"), ("addr", "10.0.0.1:0/12345")];
    assert!(!mon("profile rbd", "osd", "osd blocklist", &rm, "rw"));
    assert!(!mon("profile rbd-read-only", "osd", "osd blocklist", &one, "rw"));
    let peer = [("key", "rbd/mirror/peer")];
    for profile in ["profile rbd-mirror", "profile rbd-mirror-peer"] {
        assert!(mon(profile, "osd", "", &[], "r"), "{profile}");
        assert!(mon(profile, "osd", "osd blocklist", &one, "rw"), "{profile}");
    }
    assert!(mon("profile rbd-mirror", "config-key", "config-key get", &[("key", "rbd/mirror/peer/2/x")], "r"));
    assert!(mon("profile rbd-mirror-peer", "config-key", "config-key get", &peer, "r"));
    assert!(!mon("profile rbd-mirror-peer", "config-key", "config-key get", &[("key", "rbd/mirror/peer/2/x")], "r"));
    assert!(mon("profile rbd-mirror-peer", "config-key", "config-key set", &[("key", "rbd/mirror/peer/2/x")], "rw"));
    assert!(!mon("profile rbd-mirror-peer", "config-key", "config-key set", &peer, "rw"));
    assert!(mon("profile mgr", "config-key", "", &[], "rw"));
    assert!(mon("profile crash", "mon", "", &[], "r"));
    assert!(!mon("profile crash", "osd", "", &[], "r"));
    assert!(mon("profile role-definer", "auth", "auth add", &[], "rwx"));
    let mds =
        [("entity", "mds.a"), ("caps_mon", "allow profile mds"), ("caps_osd", "allow rwx"), ("caps_mds", "allow")];
    assert!(mon("profile bootstrap-mds", "auth", "auth get-or-create", &mds, "rwx"));
    let admin =
        [("entity", "client.a"), ("caps_mon", "allow profile mds"), ("caps_osd", "allow rwx"), ("caps_mds", "allow")];
    assert!(!mon("profile bootstrap-mds", "auth", "auth get-or-create", &admin, "rwx"));
    let rbd = [("entity", "client.a"), ("caps_mon", "profile rbd"), ("caps_osd", "profile rbd pool=images")];
    assert!(mon("profile bootstrap-rbd", "auth", "auth get-or-create", &rbd, "rwx"));
    let wide = [("entity", "client.a"), ("caps_mon", "profile rbd"), ("caps_osd", "allow *")];
    assert!(!mon("profile bootstrap-rbd", "auth", "auth get-or-create", &wide, "rwx"));
    assert!(mon("profile bootstrap-osd", "osd", "osd new", &[], "rwx"));
    assert!(!mon("profile bootstrap-osd", "auth", "auth get-or-create", &[], "rwx"));
    assert!(!mon("profile nonsense", "mon", "", &[], "r"));
}

#[test]
fn mon_file_systems() {
    let n = AuthName::parse("client.x").unwrap();
    let names = |s: &str| MonCaps::parse(s, &n).unwrap().fs_names().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names("allow r fsname=a, allow rw fsname=b"), ["a", "b"]);
    assert!(names("allow r fsname=a, allow r").is_empty());
    assert!(names("allow *").is_empty());
}

#[test]
fn mgr_caps() {
    let ok = |caps: &str, module: &str, command: &str, args: &[(&str, &str)], perm: &str| {
        MgrCaps::parse(caps).unwrap_or_else(|e| panic!("{e}")).is_capable(
            "mgr",
            module,
            command,
            args,
            Need::from_perm(perm),
            &home(),
        )
    };
    assert!(ok("allow *", "m", "pg dump", &[], "rwx"));
    assert!(ok("allow r", "m", "pg dump", &[], "r"));
    assert!(!ok("allow r", "m", "pg repair", &[], "rw"));
    assert!(ok("allow service mgr rw", "", "x", &[], "rw"));
    assert!(ok("profile rbd pool=p", "rbd_support", "", &[("pool", "p")], "rw"));
    assert!(!ok("profile rbd pool=p", "rbd_support", "", &[("pool", "q")], "rw"));
    assert!(!ok("profile rbd-read-only", "rbd_support", "", &[], "rw"));
    assert!(ok("allow command \"pg dump\" with dumpcontents=all", "m", "pg dump", &[("dumpcontents", "all")], "rwx"));
    assert!(ok("allow module foo with a=b rw", "foo", "", &[("a", "b")], "rw"));
    assert!(!ok("allow module foo with a=b rw", "foo", "", &[("a", "c")], "rw"));
    assert!(ok("allow profile osd", "m", "", &[], ""));
    assert!(!ok("profile osd", "m", "", &[], "r"));
    assert!(MgrCaps::parse("profile nonsense").is_err());
    assert!(MgrCaps::parse("profile rbd foo=bar").is_err());
    assert!(MgrCaps::parse("allow module foo").is_err());
}

#[test]
fn random_text_never_panics_and_rarely_parses() {
    let words = [
        "allow",
        "*",
        "r",
        "rwx",
        "pool",
        "=",
        "\"",
        "'",
        " ",
        ",",
        ";",
        "profile",
        "rbd",
        "class",
        "tag",
        "all",
        "namespace",
        "network",
        "10.0.0.0/8",
        "service",
        "command",
        "with",
        "regex",
        "[",
        "prefix",
        "é",
        "\0",
    ];
    for seed in 0..4000u64 {
        let mut rng = base::rng::Rng::new(seed);
        let n = rng.below(14);
        let text: String = (0..n).map(|_| words[rng.below(words.len() as u64) as usize]).collect();
        let _ = OsdCaps::parse(&text);
        let _ = MonCaps::parse(&text, &AuthName::default());
        let _ = MgrCaps::parse(&text);
    }
}

/// Self-managed snapshots belong to the pool, so the namespace of the grant does not matter.
#[test]
fn writers_of_a_pool_may_take_its_snapshots() {
    let addr = EntityAddr::default();
    let may = |caps: &str, pool: &str| OsdCaps::parse(caps).unwrap().may_write_in(pool, &Apps::new(), &addr);
    for caps in ["allow w", "allow w pool=images", "allow w pool=images namespace=foo", "allow w namespace=foo"] {
        assert!(may(caps, "images"), "{caps}");
        assert_eq!(may(caps, "volumes"), !caps.contains("images"), "{caps}");
    }
    for caps in
        ["profile rbd", "profile rbd pool=images", "profile rbd pool=images namespace=foo", "profile rbd namespace=foo"]
    {
        assert!(may(caps, "images"), "{caps}");
        assert_eq!(may(caps, "volumes"), !caps.contains("images"), "{caps}");
    }
    for caps in ["", "allow r", "allow w tag fooapp *=*", "profile rbd-read-only"] {
        assert!(!may(caps, "images"), "{caps}");
    }
}

/// Recorded from `ceph auth get-or-create NAME mds TEXT` of 16.2: accepted texts.
#[test]
fn mds_strings() {
    for t in [
        "allow",
        "allow r",
        "allow rw",
        "allow *",
        "allow all",
        "allow rwps",
        "allow rwp",
        "allow rws",
        "allow rwf",
        "allow rwfps",
        "allow rwfp",
        "allow rwfs",
        "allow rw path=/a",
        "allow rw path=\"/a b\"",
        "allow rw path='/a'",
        "allow rw path=/a uid=1 gids=1,2",
        "allow rw uid=1 gids=1,2",
        "allow rw path=\"\"",
        "allow rw fsname=a",
        "allow rw fsname=a path=/b root_squash",
        "allow rw root_squash",
        "allow rw network 10.0.0.0/8",
        "allow rw path=/a network 1.2.3.4/24",
        "allow rw network 1.2",
        "allow r, allow rw path=/b",
        "allow r; allow rw",
        "allow r,allow rw",
        "allow r ,allow rw",
        " allow r",
        "allow r ",
        "allow  r",
        "allow\tr",
        "allow * path=/x",
        "allow rw uid=4294967295",
        "allow rw  path=/a",
    ] {
        assert!(MdsCaps::parse(t).is_ok(), "{t}: {:?}", MdsCaps::parse(t));
    }
    let c = MdsCaps::parse("allow rwp fsname=a path=/b/c uid=3 gids=4,5, allow *").unwrap();
    let g = &c.grants()[0];
    assert_eq!((g.fs_name.as_str(), g.path.as_str(), g.uid, &g.gids[..]), ("a", "b/c", Some(3), &[4, 5][..]));
    assert!(g.spec.set_vxattr && g.spec.write && !g.spec.snapshot && !g.spec.all);
    assert!(c.is_allow_all() && !MdsCaps::parse("allow * path=/x").unwrap().is_allow_all());
}

/// Recorded in the same way: refused texts, with what is left of them at the error.
#[test]
fn refused_mds_strings() {
    for (t, rest) in [
        ("allow ", "allow "),
        ("allow w", "allow w"),
        ("allow rp", "p"),
        ("allow rwsp", "p"),
        ("allow rw gids=1", "gids=1"),
        ("allow rw uid=x", "uid=x"),
        ("allow rw path=", "path="),
        ("allow rw path=/b fsname=a", "fsname=a"),
        ("allow rw network x", "network x"),
        ("", ""),
        ("profile mds", "profile mds"),
        ("allow rw path=/a ,", ","),
        ("allow r path=/a uid=1 gids=1,", ","),
        ("allow rwx", "x"),
        ("allow*", "allow*"),
        ("allow allow r", "ow r"),
        ("allow r fsname a", "fsname a"),
        ("allow r path = /a", "path = /a"),
        ("allow rw uid=4294967296", "uid=4294967296"),
        ("allow rw uid=-1", "uid=-1"),
        ("allow rwroot_squash", "root_squash"),
        ("allow rw fsname=* path=/", "fsname=* path=/"),
        ("allow rw fsname=*", "fsname=*"),
        ("allow r;", ";"),
        ("allow r,,allow r", ",,allow r"),
        ("allow rw gids=1 uid=1", "gids=1 uid=1"),
        ("allow rw uid=1,2", ",2"),
        ("allow rw uid=1 gids=1, 2", ", 2"),
        ("allow profile mds", "allow profile mds"),
    ] {
        assert_eq!(MdsCaps::parse(t).expect_err(t).rest, rest, "{t}");
    }
}

/// An attempt of a client in the recordings: reads and changes as permission letters, and a class method with
/// its flags.
fn tried(op: &str) -> (&'static str, Option<ClassCall<'_>>) {
    let call = |class, method, read, write| ("", Some(ClassCall { class, method, read, write, allowed: true }));
    match op {
        "read" => ("r", None),
        "write" => ("w", None),
        "rbd.metadata_list" => call("rbd", "metadata_list", true, false),
        "rbd.get_id" => call("rbd", "get_id", true, false),
        "rbd.child_attach" => call("rbd", "child_attach", true, true),
        "rbd.child_detach" => call("rbd", "child_detach", true, true),
        "lock.get_info" => call("lock", "get_info", true, false),
        "lock.lock" => call("lock", "lock", true, true),
        other => panic!("{other}"),
    }
}

/// Recorded by `interop/long/record_rights.sh` from OSDs of two releases: the operations that each profile
/// allows on the objects that matter to it, in two pools and two namespaces. The releases agree, and this
/// implementation must agree with them.
#[test]
fn osd_profiles_are_those_of_real_osds() {
    let none = Apps::new();
    let mut cells = 0;
    for release in ["16.2.15", "20.2.4"] {
        let path = format!("{}/../../vectors/rights/osd-objects-{release}.json", env!("CARGO_MANIFEST_DIR"));
        let all: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let ops: Vec<&str> = all["ops"].as_array().unwrap().iter().map(|o| o.as_str().unwrap()).collect();
        for (caps, rows) in all["allowed"].as_object().unwrap() {
            for (place, allowed) in rows.as_object().unwrap() {
                for op in &ops {
                    let (perm, call) = tried(op);
                    let want = allowed.as_array().unwrap().iter().any(|a| a == op);
                    let got = osd(caps, place, perm, &none, call.as_slice());
                    assert_eq!(got, want, "{release}: '{caps}' {op} of {place}");
                    cells += 1;
                }
            }
        }
    }
    assert!(cells > 10_000, "{cells}");
}
