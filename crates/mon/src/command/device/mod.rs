//! Devices that daemons report in their metadata: their ids, their hosts and paths, and the daemons that use them, with
//! the life expectancy that is set for them.
//!
//! | module | contents |
//! | --- | --- |
//! | `life` | life expectancy of devices, its alerts, and OSDs that leave failing devices in time |
//! | `light` | lights of drives: the commands, and alerts while one is on |

pub(crate) mod life;
pub(super) mod light;

use super::language::text::{Left, Right, Table};
use super::mon::versions::metadata;
use super::{Cmd, CommandOutcome, Ctx, Res, cmd, flag as cf, refuse};
use crate::json::J;
use crate::obj;
use crate::state::device_life::Life;
use base::{Utime, errno};
use life::shown;
use std::collections::{BTreeMap, BTreeSet};

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("device ls", "mgr", "r", cf::MGR, ls, "list the devices that daemons report"),
    cmd("device info devid:String", "mgr", "r", cf::MGR, info, "show a device"),
    cmd("device ls-by-daemon who:String", "mgr", "r", cf::MGR, by_daemon, "list the devices of a daemon"),
    cmd("device ls-by-host host:String", "mgr", "r", cf::MGR, by_host, "list the devices of a host"),
];

/// A device, with its places and daemons.
#[derive(Default)]
pub(super) struct Device {
    /// Host, device name on that host, and path on that host.
    places: BTreeSet<(String, String, String)>,
    pub(super) daemons: BTreeSet<String>,
    life: Life,
}

impl Device {
    fn tree(&self, id: &str) -> J {
        let place = |(host, dev, path): &(String, String, String)| obj! { "host": host, "dev": dev, "path": path };
        let mut j = obj! {
            "devid": id,
            "location": self.places.iter().map(place).collect::<J>(),
            "daemons": self.daemons.iter().cloned().collect::<J>(),
        };
        if self.life.min != Utime::ZERO {
            j.put("life_expectancy_min", shown(self.life.min));
            j.put("life_expectancy_max", shown(self.life.max));
            j.put("life_expectancy_stamp", shown(self.life.stamp));
        }
        if let Some(wear) = self.life.wear {
            j.put("wear_level", wear);
        }
        j
    }

    fn place_words(&self) -> Vec<String> {
        self.places.iter().map(|(h, d, _)| format!("{h}:{d}")).collect()
    }

    fn daemon_words(&self) -> String {
        self.daemons.iter().cloned().collect::<Vec<_>>().join(" ")
    }
}

/// The pairs of `a=x,b=y`, the form of such lists in metadata.
pub(super) fn pairs(text: Option<&String>) -> impl Iterator<Item = (&str, &str)> {
    text.map(String::as_str).unwrap_or_default().split(',').filter_map(|p| p.split_once('='))
}

/// All devices by id.
pub(super) fn devices(c: &Ctx<'_>) -> BTreeMap<String, Device> {
    let mut out: BTreeMap<String, Device> = BTreeMap::new();
    for kind in ["mon", "osd", "mds"] {
        for (name, m) in metadata(c, kind) {
            let host = m.get("hostname").cloned().unwrap_or_default();
            let paths: BTreeMap<&str, &str> = pairs(m.get("device_paths")).collect();
            for (dev, id) in pairs(m.get("device_ids")).filter(|(_, id)| !id.is_empty()) {
                let d = out.entry(id.to_owned()).or_default();
                let path = paths.get(dev).copied().unwrap_or_default();
                d.places.insert((host.clone(), dev.to_owned(), path.to_owned()));
                d.daemons.insert(format!("{kind}.{name}"));
            }
        }
    }
    for (id, life) in c.state.kv.lives() {
        out.entry(id.clone()).or_default().life = life.clone();
    }
    out
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let all = devices(c);
    let now = c.now.wall;
    let tree = || all.iter().map(|(id, d)| d.tree(id)).collect::<J>();
    let text = || {
        let mut t = Table::new(&[
            ("DEVICE", Left, Left),
            ("HOST:DEV", Left, Left),
            ("DAEMONS", Left, Left),
            ("WEAR", Right, Right),
            ("LIFE EXPECTANCY", Left, Left),
        ]);
        for (id, d) in &all {
            let (wear, left) = (d.life.wear_text(), d.life.left(now));
            t.row([id.clone(), d.place_words().join(" "), d.daemon_words(), wear, left]);
        }
        t.render()
    };
    c.tree("devices", tree).text(text)
}

fn info(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.args.str("devid")?;
    let all = devices(c);
    let Some(d) = all.get(&id) else { return refuse(errno::ENOENT, format!("device {id} not found")) };
    let tree = || d.tree(&id);
    let text = || {
        let places: String = d.place_words().iter().map(|p| format!("attachment {p}\n")).collect();
        let mut text =
            format!("device {id}\n{places}daemons {}\n", d.daemons.iter().cloned().collect::<Vec<_>>().join(","));
        if d.life.min != Utime::ZERO {
            let (min, max, stamp) = (shown(d.life.min), shown(d.life.max), shown(d.life.stamp));
            text += &format!("life_expectancy {min} to {max} (as of {stamp})\n");
        }
        if let Some(wear) = d.life.wear {
            text += &format!("wear_level {wear}\n");
        }
        text
    };
    c.tree("device", tree).text(text)
}

fn by_daemon(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let who = c.args.str("who")?;
    let (kind, id) = who.split_once('.').unwrap_or((&who, ""));
    if !metadata(c, kind).iter().any(|(n, _)| n == id) {
        return refuse(errno::ENOENT, format!("daemon {who} not found"));
    }
    let mut all = devices(c);
    all.retain(|_, d| d.daemons.contains(&who));
    let now = c.now.wall;
    let tree = || all.iter().map(|(id, d)| d.tree(id)).collect::<J>();
    let text = || {
        let mut t = Table::new(&["DEVICE", "HOST:DEV", "EXPECTED FAILURE"].map(|h| (h, Left, Left)));
        for (id, d) in &all {
            t.row([id.clone(), d.place_words().join(" "), d.life.left(now)]);
        }
        t.render()
    };
    c.tree("devices", tree).text(text)
}

fn by_host(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let host = c.args.str("host")?;
    let mut all = devices(c);
    all.retain(|_, d| d.places.iter().any(|(h, ..)| *h == host));
    let now = c.now.wall;
    let tree = || all.iter().map(|(id, d)| d.tree(id)).collect::<J>();
    let text = || {
        let mut t = Table::new(&["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"].map(|h| (h, Left, Left)));
        for (id, d) in &all {
            let devs: Vec<&str> =
                d.places.iter().filter(|(h, ..)| *h == host).map(|(_, dev, _)| dev.as_str()).collect();
            t.row([id.clone(), devs.join(" "), d.daemon_words(), d.life.left(now)]);
        }
        t.render()
    };
    c.tree("devices", tree).text(text)
}
