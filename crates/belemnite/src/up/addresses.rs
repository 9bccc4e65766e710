//! The monitors' addresses for msgr1, which a cluster that was made without them gets by `up --msgr1`.

use super::foreign::ask;
use super::plan::{Plan, mon_name};
use super::{Error, say};
use client::Client;
use serde_json::{Value, json};

/// Gives monitors that lack an address for msgr1 the plan's. They listen there at once. Error: a monitor refuses it.
pub(super) async fn announce(c: &Client, p: &Plan) -> Result<(), Error> {
    if !p.msgr1 {
        return Ok(());
    }
    let map: Value = serde_json::from_slice(&ask(c, json!({ "prefix": "mon dump", "format": "json" })).await?)?;
    for i in 0..p.mons {
        let name = mon_name(i);
        if lacks_msgr1(&map, &name) {
            let addrs = p.mon_addrs(i).to_string();
            say(format_args!("mon.{name} gets the addresses {addrs}"));
            ask(c, json!({ "prefix": "mon set-addrs", "name": name, "addrs": addrs })).await?;
        }
    }
    Ok(())
}

/// True if a monitor is in the map of `mon dump` without an address for msgr1.
fn lacks_msgr1(map: &Value, name: &str) -> bool {
    let mons = map["mons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = mons.iter().find(|m| m["name"] == name);
    own.and_then(|m| m["public_addrs"]["addrvec"].as_array()).is_some_and(|a| a.iter().all(|a| a["type"] != "v1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_without_a_v1_address_is_found() {
        let at = |kinds: &[&str]| kinds.iter().map(|k| json!({ "type": k })).collect::<Vec<_>>();
        let map = json!({ "mons": [
            { "name": "a", "public_addrs": { "addrvec": at(&["v2", "v1"]) } },
            { "name": "b", "public_addrs": { "addrvec": at(&["v2"]) } },
        ] });
        assert_eq!(["a", "b", "c"].map(|n| lacks_msgr1(&map, n)), [false, true, false]);
    }
}
