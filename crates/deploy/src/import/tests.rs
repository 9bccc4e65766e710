//! Whole files of existing clusters, and the inventories that come of them.

use super::*;
use crate::inventory::{Kind as Disk, Select};

fn of(files: &[(&str, &str)]) -> Imported {
    let sources: Vec<Source<'_>> = files.iter().map(|(name, text)| Source { name, text }).collect();
    import(&sources).unwrap()
}

/// The inventory of an import that lacks nothing.
fn valid(i: &Imported) -> Inventory {
    assert_eq!(i.lacks, None, "{}", i.text);
    Inventory::parse(&i.text).unwrap()
}

fn notes(i: &Imported, wanted: &[&str]) {
    for w in wanted {
        assert!(i.notes.iter().any(|n| n.contains(w)), "{w:?} is not in {:#?}", i.notes);
        assert!(i.text.lines().any(|l| l.starts_with("#   - ") && l.contains(w)), "{w:?} is no comment");
    }
}

const HOSTS: &str = "\
addr: 10.1.0.1
hostname: node1
labels: [_admin, mon, mgr]
status: ''
---
addr: 10.1.0.2
hostname: node2
labels:
- mon
- rgw
location: {root: default, rack: r2}
status: ''
---
addr: 10.1.0.3
hostname: node3
labels: [mon]
status: Offline
---
addr: 10.1.0.4
hostname: osd4
labels: [ssd]
---
addr: 10.1.0.5
hostname: osd5
labels: [_no_schedule]
";

const SERVICES: &str = "\
service_type: alertmanager
service_name: alertmanager
placement: {count: 1}
---
service_type: mgr
service_name: mgr
placement: {count: 2}
---
service_type: mon
service_name: mon
placement:
  label: mon
spec:
  crush_locations: {node1: [datacenter=d1]}
---
service_type: mds
service_id: home
service_name: mds.home
placement:
  hosts: [node1, 'node2:10.1.0.0/24']
---
service_type: rgw
service_id: s3
service_name: rgw.s3
placement: {label: rgw}
spec:
  rgw_frontend_port: 8080
  rgw_realm: eu
---
service_type: osd
service_id: flash
service_name: osd.flash
placement: {label: ssd}
spec:
  data_devices: {rotational: 0, size: '400G:2TB', limit: 4}
  crush_device_class: fast
  filter_logic: AND
  objectstore: bluestore
---
service_type: osd
service_id: secret
service_name: osd.secret
placement: {host_pattern: 'node*'}
spec:
  data_devices: {rotational: true}
  db_devices: {rotational: false}
  encrypted: true
---
service_type: osd
service_id: named
service_name: osd.named
placement: {host_pattern: 'node[12]'}
spec:
  data_devices:
    paths: [/dev/sdb, {path: /dev/sdc}]
---
service_type: osd
service_id: model
service_name: osd.model
placement: {host_pattern: '*'}
spec:
  data_devices: {model: MC-55-44-XZ}
---
service_type: osd
service_name: osd
unmanaged: true
placement: {}
spec: {filter_logic: AND, objectstore: bluestore}
";

#[test]
fn services_of_cephadm() {
    let i = of(&[("ls.yaml", SERVICES), ("hosts.yaml", HOSTS)]);
    let inv = valid(&i);
    assert_eq!(inv.monitors, ["node1", "node2", "node3"]);
    assert_eq!(
        (inv.metadata_servers.len(), &inv.filesystems[..], &inv.gateways[..]),
        (2, &["home".into()][..], &["node2".into()][..])
    );
    assert_eq!((inv.gateway_port, inv.hosts.len()), (8080, 5));
    assert_eq!(inv.public_network.to_string(), "10.1.0.0/24");
    assert_eq!(inv.hosts["node2"].place["rack"], "r2");
    let rules = |h: &str| inv.rules_of(h).map(|r| (r.select.clone(), r.class.clone())).collect::<Vec<_>>();
    let flash = Select::Free { kind: Disk::Ssd, min: 400_000_000_000, max: 2_000_000_000_000, count: 4 };
    assert_eq!(rules("osd4"), [(flash, Some("fast".into()))]);
    let named = Select::Paths(vec!["/dev/sdb".into(), "/dev/sdc".into()]);
    assert_eq!((rules("node1"), rules("node2")), (vec![(named.clone(), None)], vec![(named, None)]));
    assert!(rules("node3").is_empty() && rules("osd5").is_empty());
    notes(
        &i,
        &[
            "alertmanager: services of this type are not deployed",
            "mgr: the monitors have the manager's role",
            "mon: crush_locations {node1}: not mapped",
            "rgw.s3: rgw_realm eu",
            "osd.secret: no rule for devices: encrypted",
            "osd.secret: db_devices {rotational}: an OSD has one device",
            "osd.model: no rule for devices: model MC-55-44-XZ",
            "osd: no rule for devices: no data_devices",
            "host node3: status Offline",
            "public_network: it is not stated; 10.1.0.0/24",
        ],
    );
    // What is decided by the operator is there as a comment.
    assert!(i.text.contains("# osd.secret, on 3 hosts, as a comment: encrypted"));
    assert!(i.text.contains("# [[devices]]\n# kind = \"hdd\"\n"));
}

#[test]
fn json_of_cephadm_and_chosen_hosts() {
    let hosts = r#"[{"addr": "10.1.0.1", "hostname": "a", "labels": [], "status": ""},
        {"addr": "b.example", "hostname": "b", "labels": [], "status": ""},
        {"addr": "10.2.0.3", "hostname": "c", "labels": [], "status": ""},
        {"addr": "10.1.0.4", "hostname": "d", "labels": [], "status": ""}]"#;
    let services = r#"[{"service_type": "mon", "service_name": "mon", "placement": {"count": 2}},
        {"service_type": "osd", "service_id": "all", "service_name": "osd.all", "placement": {"host_pattern": "*"},
         "spec": {"data_devices": {"all": true}}},
        {"service_type": "rgw", "service_id": "x", "service_name": "rgw.x", "placement": {"hosts": ["d"]}, "spec": {"ssl": true}}]"#;
    let i = of(&[("h.json", hosts), ("s.json", services)]);
    notes(
        &i,
        &[
            "mon: cephadm chooses 2 hosts; here they are a, b",
            "2 monitors: 1, 3 or 5",
            "[hosts]: the IP address",
            "ssl",
        ],
    );
    assert!(i.text.contains("# b = \"\"  # its address is not stated"));
    let inv = valid(&i);
    assert_eq!((inv.monitors.len(), inv.hosts.len(), inv.devices.len()), (1, 3, 1));
    assert_eq!(inv.public_network.to_string(), "10.0.0.0/14");
}

const INI: &str = "\
# The cluster.
mon1 ansible_host=10.1.0.1

[mons]
mon1
mon[2:3]

[osds]
osd[01:02] osd_crush_location=\"{ 'root': 'default', 'rack': 'r1', 'host': 'x' }\"
osd03 devices=\"['/dev/nvme0n1']\" ansible_host=10.1.0.13

[rgws]
mon3

[clients]
desk1

[mgrs:children]
mons

[all:vars]
public_network = 10.1.0.0/24
ansible_user=ceph
dashboard_enabled=False
dashboard_admin_password=hunter2

[osds:vars]
devices=['/dev/sdb', '/dev/sdc']
";

#[test]
fn an_older_inventory_of_ansible() {
    let all = "cluster_network: \"10.2.0.0/24,10.3.0.0/24\"\nceph_conf_overrides:\n  global: {osd_pool_default_size: 2, fsid: x}\n  osd:\n    osd max backfills: 3\n";
    let addresses = [("mon2", 2), ("mon3", 3), ("osd01", 11), ("osd02", 12)];
    let vars: Vec<(String, String)> =
        addresses.iter().map(|(h, n)| (format!("host_vars/{h}.yml"), format!("ansible_host: 10.1.0.{n}\n"))).collect();
    let mut files = vec![("hosts", INI), ("group_vars/all.yml", all)];
    files.extend(vars.iter().map(|(n, t)| (n.as_str(), t.as_str())));
    let i = of(&files);
    let inv = valid(&i);
    assert_eq!((&inv.monitors[..], inv.hosts.len()), (&["mon1".into(), "mon2".into(), "mon3".into()][..], 6));
    assert_eq!((&inv.gateways[..], inv.gateway_port), (&["mon3".into()][..], 8080));
    assert_eq!(inv.ssh.user, "ceph");
    assert!(!i.text.contains("hunter2"));
    assert_eq!(inv.hosts["osd01"].place["rack"], "r1");
    let paths = |h: &str| inv.rules_of(h).map(|r| r.select.clone()).collect::<Vec<_>>();
    assert_eq!(paths("osd02"), [Select::Paths(vec!["/dev/sdb".into(), "/dev/sdc".into()])]);
    assert_eq!(paths("osd03"), [Select::Paths(vec!["/dev/nvme0n1".into()])]);
    assert!(paths("mon1").is_empty());
    assert_eq!(inv.options["osd"]["osd_max_backfills"], "3");
    assert_eq!(inv.options["global"]["osd_pool_default_size"], "2");
    notes(
        &i,
        &[
            "group clients: 1 hosts",
            "group mgrs",
            "variables of all: dashboard_enabled",
            "variables of all: dashboard_admin_password = (not shown)",
            "cluster_network \"10.2.0.0/24,10.3.0.0/24\": only 10.2.0.0/24",
            "option global/fsid: not taken over",
            "host osd01: CRUSH location host=x",
        ],
    );
}

#[test]
fn an_inventory_of_ansible_in_yaml() {
    let hosts = "\
all:
  vars: {public_network: 10.1.0.0/24, osd_scenario: non-collocated}
  children:
    mons:
      hosts:
        a: {ansible_host: 10.1.0.1}
    mdss:
      hosts: {a: , b: }
    osds:
      hosts:
        b: {ansible_host: 10.1.0.2, dedicated_devices: [/dev/nvme0n1], devices: [/dev/sda]}
        c:
          ansible_host: 10.1.0.3
          lvm_volumes:
            - {data: /dev/sdb, crush_device_class: hdd}
            - {data: lv1, data_vg: vg1, db: x}
        d: {ansible_host: 10.1.0.4, dmcrypt: true, osd_auto_discovery: true}
        e: {ansible_host: 10.1.0.5, osd_auto_discovery: true}
        f: {ansible_host: 10.1.0.6, devices: ['{{ disks }}']}
    nfss:
      hosts: {g: }
";
    let i = of(&[("hosts.yml", hosts)]);
    let inv = valid(&i);
    assert_eq!((&inv.filesystems[..], inv.hosts.len()), (&["cephfs".into()][..], 6));
    let one = |h: &str| inv.rules_of(h).next().cloned();
    assert_eq!(one("c").unwrap().class.as_deref(), Some("hdd"));
    assert_eq!(one("b").unwrap().select, Select::Paths(vec!["/dev/sda".into()]));
    assert!(matches!(one("e").unwrap().select, Select::Free { kind: Disk::Any, .. }));
    assert!(one("d").is_none() && one("f").is_none());
    notes(
        &i,
        &[
            "dmcrypt: no rule",
            "dedicated_devices: an OSD has one device",
            "host c: lvm_volumes {data, data_vg, db}: an OSD takes a whole disk",
            "osd_scenario non-collocated",
            "group nfss",
            "not the path of a device",
        ],
    );
}

/// Missing parts are told, and the rest is written.
#[test]
fn an_incomplete_import_says_what_it_lacks() {
    let i = of(&[("osds.yml", "devices: [/dev/sdb]\n"), ("hosts", "[mons]\nm\n[osds]\no\n")]);
    assert!(i.text.contains("# m = \"\"  # its address is not stated"));
    assert!(i.lacks.is_some());
    let i = of(&[("all.yml", "public_network: 10.0.0.0/24\n")]);
    assert!(i.lacks.is_some());
}

#[test]
fn hostile_files_are_refused_or_bounded() {
    let e = |text: &str| import(&[Source { name: "f", text }]).unwrap_err().to_string();
    assert!(e(&"x".repeat(FILE_MAX + 1)).contains("more than"));
    assert!(e("- 1\n- 2\n").contains("neither services"));
    assert!(e(&format!("[mons]\nn[1:4096]\n{}", "m[1:4096]\n")).contains("more than 4096 hosts"));
    assert!(e("[mons]\na 'b\n").contains("line 2: a quote has no end"));
    assert!(e("[mons:vars]\nx\n").contains("a variable is NAME = VALUE"));
    assert!(e(&(0..600).map(|n| format!("[g{n}]\n")).collect::<String>()).contains("more than 500 groups"));
    let many: String = (0..100).map(|n| format!("h[1:4000] k{n}={}\n", "x".repeat(1000))).collect();
    assert!(e(&format!("[osds]\n{many}")).contains("too many variables"));
    let placed: String =
        (0..4000).map(|n| format!("---\nhostname: h{n}\naddr: 10.0.{}.{}\n", n / 250, n % 250)).collect();
    let services =
        "---\nservice_type: osd\nplacement: {host_pattern: '*'}\nspec: {data_devices: {all: true}}\n".repeat(300);
    assert!(e(&(placed + &services)).contains("name too many hosts"));
    // Names and values from files are data in the text that is written.
    let hosts = "hostname: \"a\\n[ssh]\"\naddr: 10.0.0.1\n---\nhostname: b\naddr: 10.0.0.2\nlabels: [\"x\\\"]\"]\n---\nservice_type: mon\nplacement: {hosts: [b]}\nnetworks: [\"x\\ny = 1\"]\n";
    let i = of(&[("f\nmonitors = []", hosts)]);
    assert_eq!(valid(&i).hosts.len(), 1);
    // A group that contains itself ends.
    let i = of(&[("h", "[mons]\na ansible_host=10.0.0.1\n[x:children]\ny\n[y:children]\nx\n")]);
    assert_eq!(valid(&i).hosts.len(), 1);
}

mod any {
    use super::super::*;
    use proptest::prelude::*;

    const WORDS: [&str; 40] = [
        "service_type",
        "hostname",
        "addr",
        "placement",
        "hosts",
        "label",
        "count",
        "host_pattern",
        "spec",
        "data_devices",
        "paths",
        "size",
        "rotational",
        "all",
        "mon",
        "osd",
        "mds",
        "rgw",
        "labels",
        "10.0.0.1",
        "10.0.0.0/24",
        "[mons]",
        "[osds:vars]",
        "devices",
        "vars",
        "children",
        ":",
        "- ",
        "\n",
        "\n  ",
        "\n---\n",
        "[",
        "]",
        "{",
        "}",
        ",",
        "=",
        "'",
        "\"",
        "[1:3]",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Whatever files have: an error, or a text that is an inventory or lacks something.
        #[test]
        fn files_give_inventories_or_errors(parts in prop::collection::vec((0..WORDS.len(), prop::bool::ANY), 0..60)) {
            let text: String = parts.iter().map(|(w, s)| format!("{}{}", WORDS[*w], if *s { ": " } else { "" })).collect();
            if let Ok(i) = import(&[Source { name: "group_vars/osds.yml", text: &text }]) {
                prop_assert!(i.lacks.is_some() || Inventory::parse(&i.text).is_ok());
                prop_assert!(i.text.lines().all(|l| l.len() < 100_000));
            }
        }
    }
}
