//! Inventories of existing clusters, as `deploy import` reads them: YAML, JSON and the older form of Ansible's.

use super::Family;
use deploy::Inventory;
use deploy::import::{Source, import};

/// Nodes with their aliases written out, and variables of hosts, may take this much whatever the input's size.
const ALLOC: usize = 192 << 20;

pub(super) const FAMILY: Family = Family { name: "inventories", run, seeds, alloc_fixed: ALLOC, cost: 20 };

/// Files with these names and contents, one after the other.
const SEEDS: [&str; 5] = [
    "addr: 10.0.0.1\nhostname: a\nlabels: [mon, _admin]\nlocation: {rack: r1}\nstatus: ''\n---\nservice_type: mon\n\
     service_name: mon\nplacement: {label: mon, count: 3}\n",
    "service_type: osd\nservice_id: x\nplacement: {host_pattern: 'n*[0-9]'}\nspec:\n  data_devices: &d {rotational: 1, size: \
     '1G:2T', limit: 4}\n  db_devices: *d\n  encrypted: true\n---\nhostname: n1\naddr: 10.0.0.2\n",
    "[{\"hostname\": \"a\", \"addr\": \"::1\"}, {\"service_type\": \"rgw\", \"service_id\": \"r\", \"placement\": {\"hosts\": \
     [\"a:10.0.0.1=x\"]}, \"spec\": {\"rgw_frontend_port\": 80, \"ssl\": false}}]",
    "[mons]\nm[1:3] ansible_host=10.0.0.1\n[osds]\no devices=\"['/dev/sdb']\" osd_crush_location=\"{'rack': 'r'}\"\n[x:children]\n\
     mons\nosds\n[all:vars]\npublic_network = 10.0.0.0/24\n",
    "all:\n  vars: {public_network: 10.0.0.0/24, ceph_conf_overrides: {osd: {a b: 1}}}\n  children:\n    mons:\n      hosts: {a: \
     {ansible_host: 10.0.0.1}}\n    osds:\n      hosts: {a: , b: {lvm_volumes: [{data: /dev/sdb}], dmcrypt: true}}\n",
];

fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for name in ["hosts", "group_vars/osds.yml"] {
        if let Ok(i) = import(&[Source { name, text }]) {
            // What is written is an inventory, or says what it lacks.
            assert_eq!(i.lacks, Inventory::parse(&i.text).err());
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    SEEDS.iter().map(|s| s.as_bytes().to_vec()).collect()
}
