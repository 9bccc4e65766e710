//! Tests of inventories: forms that are accepted, and words for those that are not.

use super::*;

/// An inventory with three hosts, with a text added at the start.
fn with(more: &str) -> Result<Inventory, InventoryError> {
    let base = r#"
package = "b.deb"
public_network = "10.0.0.0/24"
[hosts]
one = "10.0.0.1"
two = { address = "10.0.0.2", rack = "r1", labels = ["fast"], user = "me" }
three = "10.0.0.3"
"#;
    Inventory::parse(&format!("{more}{base}"))
}

#[test]
fn hosts_are_addresses_or_tables() {
    let i = with("monitors = [\"one\", \"two\", \"three\"]\n").unwrap();
    let two = &i.hosts["two"];
    assert_eq!(two.place["rack"], "r1");
    assert_eq!(two.user.as_deref(), Some("me"));
    assert!(i.has_etcd() && i.rules_of("two").next().is_none());
    assert_eq!(i.host_at("10.0.0.3".parse().unwrap()), Some("three"));
}

#[test]
fn errors_name_the_line_or_the_key() {
    let says = |more: &str, what: &str| {
        let e = with(more).unwrap_err().to_string();
        assert!(e.contains(what), "{e}");
    };
    says("monitors = [\"one\"]\nmonitor = 1\n", "line 2: unknown field `monitor`");
    says("monitors = [\"one\", \"two\"]\n", "monitors: 2 hosts; 1, 3 or 5");
    says("monitors = [\"four\"]\n", "four is not in [hosts]");
    says("monitors = [\"one\"]\nfilesystems = [\"f\"]\n", "filesystems need metadata_servers");
    says("monitors = [\"one\"]\ndevices = [{}]\n", "one of `kind`");
    says("monitors = [\"one\"]\ndevices = [{paths = [\"sda\"]}]\n", "not an absolute path");
    says("monitors = [\"one\"]\ndevices = [{paths = [\"/dev/$(id)\"]}]\n", "not an absolute path");
    says("monitors = [\"one\"]\ndevices = [{files = 2}]\n", "belong together");
    says("monitors = [\"one\"]\ndevices = [{min = \"x\"}]\n", "line 2: \"x\": not a size");
    says("monitors = [\"one\"]\ncluster_network = \"x\"\n", "not a network");
    says("monitors = [\"one\"]\nssh = {user = \"a b\"}\n", "is an account");
    says("monitors = [\"one\"]\noptions = {osd = {\"x\" = \"a\\nb\"}}\n", "one line");
    let text = "package=\"p\"\npublic_network=\"10.0.0.0/24\"\nmonitors=[\"a\"]\n[hosts]\na=\"10.1.0.1\"\n";
    assert!(Inventory::parse(text).unwrap_err().what.contains("is not in public_network"));
}

#[test]
fn rules_select_hosts_by_label() {
    let i = with(
        "monitors = [\"one\"]\ndevices = [{kind = \"nvme\", min = \"1G\"}, {label = \"fast\", files = 1, size = \"4G\"}]\n",
    )
    .unwrap();
    assert_eq!(i.rules_of("one").count(), 1);
    assert_eq!(i.rules_of("two").count(), 2);
    assert_eq!(i.rules_of("nobody").count(), 0);
}

#[test]
fn ranges_of_hosts_are_written_out() {
    let text = "package=\"p\"\npublic_network=\"10.0.0.0/16\"\nmonitors=[\"n1\"]\n[hosts]\n\"n[1-200]\" = \"10.0.0.[1-200]\"\n";
    let i = Inventory::parse(text).unwrap();
    assert_eq!(i.hosts.len(), 200);
    assert_eq!(i.hosts["n200"].address.to_string(), "10.0.0.200");
    let e = Inventory::parse(&text.replace("[1-200]\"\n", "[1-3]\"\n")).unwrap_err();
    assert!(e.what.contains("200 names and 3 addresses"), "{e}");
}

#[test]
fn networks_contain_their_addresses() {
    let of = |n: &str, a: &str| Network::parse(n).unwrap().contains(a.parse().unwrap());
    assert!(of("10.0.0.0/8", "10.255.0.1") && !of("10.0.0.0/8", "11.0.0.1"));
    assert!(of("0.0.0.0/0", "1.2.3.4") && !of("0.0.0.0/0", "::1") && of("::/0", "::1"));
    assert!(Network::parse("10.0.0.0/33").is_none());
}
