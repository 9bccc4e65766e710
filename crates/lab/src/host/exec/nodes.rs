//! Nodes: network namespaces on a bridge. Monitor and clients run in the machine's own namespace, which has the bridge.

use crate::host::command::{self, Cancel, CommandError};
use std::process::Command;
use std::time::Duration;

/// Namespaces of one cluster; removed when dropped.
#[derive(Debug)]
pub(super) struct Nodes {
    tag: String,
    count: u64,
}

/// Third octet of the addresses, derived from the port so that two laboratories do not collide.
fn net(port: u16) -> u8 {
    (port % 199) as u8 + 40
}

/// Address of the bridge, where the monitor listens.
pub(super) fn host_ip(port: u16) -> String {
    format!("10.213.{}.1", net(port))
}

/// Address of a node.
pub(super) fn node_ip(port: u16, node: u64) -> String {
    format!("10.213.{}.{}", net(port), 10 + node)
}

fn ip(args: &str, cancel: &Cancel) -> Result<(), CommandError> {
    let mut c = Command::new("ip");
    c.args(args.split(' '));
    command::run(c, Duration::from_secs(20), cancel, |_| ()).map(|_| ())
}

impl Nodes {
    /// Makes `count` namespaces. Needs root.
    pub(super) fn new(port: u16, count: u64, cancel: &Cancel) -> Result<Self, CommandError> {
        let tag = format!("lab{port}");
        let me = Self { tag: tag.clone(), count };
        ip(&format!("link add {tag} type bridge"), cancel)?;
        ip(&format!("addr add {}/24 dev {tag}", host_ip(port)), cancel)?;
        ip(&format!("link set {tag} up"), cancel)?;
        for n in 0..count {
            let ns = me.name(n);
            ip(&format!("netns add {ns}"), cancel)?;
            ip(&format!("link add {ns} type veth peer name eth0 netns {ns}"), cancel)?;
            ip(&format!("link set {ns} master {tag} up"), cancel)?;
            ip(&format!("-n {ns} addr add {}/24 dev eth0", node_ip(port, n)), cancel)?;
            ip(&format!("-n {ns} link set eth0 up"), cancel)?;
            ip(&format!("-n {ns} link set lo up"), cancel)?;
        }
        Ok(me)
    }

    /// Name of a node's namespace.
    pub(super) fn name(&self, node: u64) -> String {
        format!("{}n{node}", self.tag)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let go = Cancel::new(false);
        for n in 0..self.count {
            // Errors are ignored: a namespace that was not made cannot be deleted.
            let _ = ip(&format!("netns del {}", self.name(n)), &go);
        }
        let _ = ip(&format!("link del {}", self.tag), &go);
    }
}
