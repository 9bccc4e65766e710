//! The method table in docs/design/classes.md equals the registry.

use crate::registry::CLASSES;
use std::collections::BTreeMap;

/// Texts between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_of_methods_is_the_registry() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/classes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("<!-- methods:").unwrap();
    let (table, _) = table.split_once("<!-- end -->").unwrap();
    let documented: BTreeMap<&str, Vec<&str>> = table
        .lines()
        .filter(|l| l.starts_with("| `"))
        .map(|l| {
            let cells: Vec<&str> = l.split('|').collect();
            (quoted(cells[1])[0], quoted(cells[4]))
        })
        .collect();
    let registered: BTreeMap<&str, Vec<&str>> =
        CLASSES.iter().map(|(c, m)| (*c, m.iter().map(|m| m.name).collect())).collect();
    assert_eq!(documented, registered);
}
