//! `belemnite mon --join`: a new monitor adds itself to the monitors' map.

use crate::admin;
use crate::cli::operate::must;
use crate::conf::Conf;
use client::Client;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

/// Time for a monitor to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The address of a monitor in the map: its `public_addr`.
fn public(conf: &Conf, id: &str) -> Result<SocketAddr, Error> {
    let text = conf.get("mon", id, "public_addr").or_else(|| conf.get("mon", id, "mon_addr"));
    let text = text.ok_or_else(|| format!("the configuration names no public_addr of mon.{id}"))?;
    let found = admin::mon_addrs(&text)?.iter().find_map(|a| a.sock);
    found.ok_or_else(|| format!("public_addr = {text}: not an address").into())
}

/// Adds the monitor to the map. One that is there at the same address stays as it is.
///
/// # Errors
/// No monitor answers in time, the state is in a file, or the map has the monitor at another address.
pub(crate) async fn join(path: &Path, conf: &Conf, id: &str) -> Result<(), Error> {
    let address = public(conf, id)?;
    let keyring = conf.get("mon", id, "keyring").ok_or("the configuration names no keyring with the key of mon.")?;
    let options = admin::options_as_monitor(path, Path::new(&keyring))?;
    let asked = tokio::time::timeout(ANSWER_MAX, async {
        let c = Client::connect(options).await?;
        must(&c, json!({ "prefix": "mon add", "name": id, "addr": address.to_string() })).await
    });
    asked.await.map_err(|_| format!("no monitor answers within {} s", ANSWER_MAX.as_secs()))??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_monitor() {
        let text = "[mon]\nmon_host = [v2:10.0.0.1:3300/0]\n[mon.b]\npublic_addr = [v2:10.0.0.2:3300/0]\n";
        let conf = Conf::parse(text).unwrap();
        assert_eq!(public(&conf, "b").unwrap(), "10.0.0.2:3300".parse().unwrap());
        assert!(public(&conf, "c").is_err());
    }
}
