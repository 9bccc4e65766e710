//! `belemnite mon --join`: a new monitor adds itself to the monitors' map.

use crate::admin;
use crate::cli::operate::{must, must_json};
use crate::conf::Conf;
use base::AddrVec;
use client::Client;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

/// Time for a monitor to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Addresses of a monitor in the map: its `public_addr`.
fn public(conf: &Conf, id: &str) -> Result<AddrVec, Error> {
    let given = ["public_addr", "mon_addr"].iter().any(|k| conf.get("mon", id, k).is_some());
    if !given {
        return Err(format!("the configuration names no public_addr of mon.{id}").into());
    }
    admin::own_addrs(conf, id)
}

/// The commands that give the monitor its addresses, for the map of `mon dump`.
fn commands(map: &Value, id: &str, addrs: &AddrVec) -> Vec<Value> {
    let mons = map["mons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known = mons.iter().find(|m| m["name"] == id);
    let has = |kind: &str, at: Option<SocketAddr>| {
        let all = known.and_then(|m| m["public_addrs"]["addrvec"].as_array()).into_iter().flatten();
        at.is_none_or(|at| all.clone().any(|a| a["type"] == kind && a["addr"] == at.to_string()))
    };
    let (v2, v1) = (addrs.msgr2().and_then(|a| a.sock), addrs.legacy().and_then(|a| a.sock));
    let mut out = Vec::new();
    // The monitors refuse it if the map has the monitor at another address.
    if let Some(at) = v2.filter(|at| !has("v2", Some(*at))) {
        out.push(json!({ "prefix": "mon add", "name": id, "addr": format!("v2:{at}") }));
    }
    if !has("v1", v1) {
        out.push(json!({ "prefix": "mon set-addrs", "name": id, "addrs": addrs.to_string() }));
    }
    out
}

/// Adds the monitor to the map. One that is there at the same addresses stays as it is.
///
/// # Errors
/// No monitor answers in time, the state is in a file, or the map has the monitor at another address.
pub(crate) async fn join(path: &Path, conf: &Conf, id: &str) -> Result<(), Error> {
    let addrs = public(conf, id)?;
    let keyring = conf.get("mon", id, "keyring").ok_or("the configuration names no keyring with the key of mon.")?;
    let options = admin::options_as_monitor(path, Path::new(&keyring))?;
    let asked = tokio::time::timeout(ANSWER_MAX, async {
        let c = Client::connect(options).await?;
        let map = must_json(&c, json!({ "prefix": "mon dump" })).await?;
        for cmd in commands(&map, id, &addrs) {
            must(&c, cmd).await?;
        }
        Ok::<(), Error>(())
    });
    asked.await.map_err(|_| format!("no monitor answers within {} s", ANSWER_MAX.as_secs()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_gets_the_addresses_that_it_lacks() {
        let text =
            "[mon]\nmon_host = [v2:10.0.0.1:3300/0]\n[mon.b]\npublic_addr = [v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]\n";
        let conf = Conf::parse(text).unwrap();
        assert!(public(&conf, "c").is_err());
        let addrs = public(&conf, "b").unwrap();
        let at = |kind: &str, port: u16| json!({ "type": kind, "addr": format!("10.0.0.2:{port}") });
        let map = |addrs: Value| json!({ "mons": [{ "name": "b", "public_addrs": { "addrvec": addrs } }] });
        let asked = |map: &Value, addrs: &AddrVec| -> Vec<String> {
            commands(map, "b", addrs).iter().map(|c| c["prefix"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(asked(&json!({ "mons": [] }), &addrs), ["mon add", "mon set-addrs"]);
        assert_eq!(asked(&map(json!([at("v2", 3300)])), &addrs), ["mon set-addrs"]);
        assert!(asked(&map(json!([at("v2", 3300), at("v1", 6789)])), &addrs).is_empty());
        assert_eq!(asked(&map(json!([at("v2", 3301)])), &addrs), ["mon add", "mon set-addrs"]);
        let msgr2 = AddrVec(addrs.0[..1].to_vec());
        assert_eq!(asked(&json!({ "mons": [] }), &msgr2), ["mon add"]);
        assert!(asked(&map(json!([at("v2", 3300)])), &msgr2).is_empty());
    }
}
