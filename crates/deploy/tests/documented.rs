//! Are the inventories that documents print inventories?

use deploy::Inventory;
use std::path::Path;

/// Indented lines of a document that follow a line, up to a line that ends them.
fn block(name: &str, first: &str, ends: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().skip_while(|l| l.trim() != first);
    let lines = lines.skip(1).skip_while(|l| l.is_empty()).take_while(|l| l.trim() != ends);
    lines.map(|l| l.strip_prefix("    ").unwrap_or(l).to_owned() + "\n").take_while(|l| !l.starts_with('|')).collect()
}

#[test]
fn documented_inventories_are_valid() {
    let i = Inventory::parse(&block("deploy.md", "## The inventory", "| key | meaning |")).unwrap();
    assert_eq!(i.hosts.len(), 83);
    assert_eq!(i.hosts["disk41"].place["rack"], "r2");
    assert_eq!(i.rules_of("disk01").count(), 1);
    let i = Inventory::parse(&block("several-machines.md", "cat >cluster.toml <<END", "END")).unwrap();
    assert_eq!((i.monitors.len(), i.devices.len()), (3, 1));
}
