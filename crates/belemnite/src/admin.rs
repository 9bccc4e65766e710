//! Shared by `up`, the daemons and the commands: configuration, keys, monitor addresses, and creating clusters and
//! stores.

use crate::conf::Conf;
use crate::up::layout::{Layout, mgr_port};
use crate::up::plan::{OsdPlan, Plan, mon_name};
use auth::{CryptoKey, KeyKind, Keyring, Random as _};
use base::id::Uuid;
use base::{AddrKind, AddrVec, AuthName, EntityAddr, OsdId};
use client::{Client, Options};
use net::OsRandom;
use state::etcd::EtcdOptions;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

/// Time limit for a command to reach a monitor.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default port of a monitor.
const MON_PORT: u16 = 3300;
const MON_PORT_MSGR1: u16 = 6789;

/// A random uuid.
pub(crate) fn new_uuid() -> Result<Uuid, Error> {
    let mut b = [0; 16];
    OsRandom.fill(&mut b);
    Ok(Uuid::from_random(b))
}

/// A new key in keyring format, of the type that every client release supports.
pub(crate) fn new_key() -> Result<String, Error> {
    Ok(CryptoKey::generate(KeyKind::Aes, reactor::clock::read().wall, &OsRandom).to_base64())
}

/// Path of the configuration file: the given one, or the first default that exists.
pub(crate) fn find_conf(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(p) = given {
        return Ok(p.to_owned());
    }
    if let Some(p) = std::env::var_os("CEPH_CONF") {
        return Ok(p.into());
    }
    ["belemnite-data/ceph.conf", "/etc/ceph/ceph.conf"]
        .iter()
        .map(PathBuf::from)
        .find(|p| p.exists())
        .ok_or_else(|| "no ceph.conf found; name one with --conf (is a cluster up? see `belemnite up`)".into())
}

/// The msgr2 addresses in `mon_host`: `[v2:IP:PORT/0,v1:…]`, `IP:PORT` or `IP`, separated by commas or blanks.
pub(crate) fn mon_addrs(text: &str) -> Result<Vec<EntityAddr>, Error> {
    let out: Vec<EntityAddr> = mon_addrvecs(text)?.iter().filter_map(|a| a.msgr2().copied()).collect();
    if out.is_empty() {
        return Err(format!("mon_host = {text}: no msgr2 address").into());
    }
    Ok(out)
}

/// The addresses in `mon_host` by monitor: an address that follows another in the same brackets is of the same one. One
/// without a port and a type stands for Ceph's two, as in Ceph.
pub(crate) fn mon_addrvecs(text: &str) -> Result<Vec<AddrVec>, Error> {
    let mut out: Vec<AddrVec> = Vec::new();
    let mut grouped = false;
    for word in text.split([',', ' ', ';']).filter(|w| !w.is_empty()) {
        // A bracket before an address type groups the addresses of one monitor; any other belongs to an IPv6 address.
        let opened = word.strip_prefix('[').filter(|w| w.starts_with('v'));
        let continues = grouped && opened.is_none();
        let word = opened.unwrap_or(word);
        let closes = word.matches(']').count() > word.matches('[').count();
        grouped = (continues || opened.is_some()) && !closes;
        let mut addrs = addrs_of(if closes { word.strip_suffix(']').unwrap_or(word) } else { word })?;
        match out.last_mut() {
            Some(all) if continues => all.0.append(&mut addrs.0),
            _ => out.push(addrs),
        }
    }
    Ok(out)
}

/// The addresses that one word of `mon_host` stands for.
fn addrs_of(word: &str) -> Result<AddrVec, Error> {
    let typed = [("v1:", AddrKind::LEGACY), ("v2:", AddrKind::MSGR2)];
    let found = typed.iter().find_map(|(p, k)| Some((*k, word.strip_prefix(p)?)));
    let (kind, rest) = found.unwrap_or((AddrKind::MSGR2, word));
    let place = rest.split('/').next().unwrap_or(rest);
    let at = |kind, sock| EntityAddr { kind, nonce: 0, sock: Some(sock) };
    if let Ok(sock) = place.parse() {
        return Ok(at(kind, sock).into());
    }
    let ip = place.trim_matches(['[', ']']).parse::<IpAddr>();
    let ip = ip.map_err(|_| format!("mon_host: '{place}' is not an address"))?;
    let v2 = at(AddrKind::MSGR2, SocketAddr::new(ip, MON_PORT));
    let v1 = at(AddrKind::LEGACY, SocketAddr::new(ip, MON_PORT_MSGR1));
    Ok(match found {
        None => AddrVec(vec![v2, v1]),
        Some((AddrKind::LEGACY, _)) => v1.into(),
        Some(_) => v2.into(),
    })
}

/// The first address of this machine in a network such as `10.0.0.0/8`.
pub(crate) fn address_in(network: &str) -> Result<IpAddr, Error> {
    let bad = || format!("{network}: not a network");
    let (net, bits) = network.split(',').next().unwrap_or(network).trim().split_once('/').ok_or_else(bad)?;
    let (net, bits): (IpAddr, u32) = (net.parse().map_err(|_| bad())?, bits.parse().map_err(|_| bad())?);
    let value = |ip: IpAddr| -> (u128, u32) {
        match ip {
            IpAddr::V4(a) => (u128::from(u32::from(a)), 32),
            IpAddr::V6(a) => (u128::from(a), 128),
        }
    };
    let (want, width) = value(net);
    let shift = width.checked_sub(bits).ok_or_else(bad)?;
    let same = |ip: &IpAddr| {
        let (v, w) = value(*ip);
        w == width && (shift == 128 || v >> shift == want >> shift)
    };
    // The kernel chooses the source address for a destination in the network; no packet is sent.
    let any: IpAddr = if net.is_ipv4() { "0.0.0.0".parse()? } else { "::".parse()? };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect((net, 9))?;
    let ip = socket.local_addr()?.ip();
    if same(&ip) { Ok(ip) } else { Err(format!("this machine has no address in {network}").into()) }
}

/// The key of an entity in a keyring file.
pub(crate) fn key_from(path: &Path, name: &str) -> Result<CryptoKey, Error> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("keyring {shown}: {e}"))?;
    let ring = Keyring::parse(&text).map_err(|e| format!("keyring {shown}: {e}"))?;
    let who = AuthName::parse(name).ok_or_else(|| format!("{name}: not a name"))?;
    ring.key(&who).cloned().ok_or_else(|| format!("keyring {shown}: no key of {name} in it").into())
}

/// Connects to the cluster that a configuration names.
pub(crate) async fn connect(conf_path: &Path, user: &str, keyring: Option<&Path>) -> Result<Client, Error> {
    Ok(Client::connect(options(conf_path, user, keyring)?).await?)
}

/// Client options for the cluster that a configuration names.
pub(crate) fn options(conf_path: &Path, user: &str, keyring: Option<&Path>) -> Result<Options, Error> {
    let conf = Conf::load(conf_path)?;
    let get = |k: &str| conf.get("client", user, k);
    let mons = mon_addrs(&get("mon_host").ok_or_else(|| format!("{}: no mon_host", conf_path.display()))?)?;
    let key = if get("auth_client_required").is_some_and(|a| a.trim() == "none") {
        None
    } else {
        let path = keyring
            .map(Path::to_owned)
            .or_else(|| get("keyring").map(PathBuf::from))
            .ok_or_else(|| format!("{}: no keyring for client.{user}", conf_path.display()))?;
        Some(key_from(&path, &format!("client.{user}"))?)
    };
    let name = AuthName::parse(&format!("client.{user}")).ok_or("not a name")?;
    let modes = net::modes::Modes::take(get)?;
    let fsid = get("fsid").map(|f| Uuid::parse(f.trim()).ok_or(format!("fsid = {f}: not a uuid"))).transpose()?;
    Ok(Options { mons, name, key, fsid, timeout: CONNECT_TIMEOUT, modes, mds: false })
}

/// Client options to connect as `mon.`, with the key of the monitors in `keyring`.
pub(crate) fn options_as_monitor(conf_path: &Path, keyring: &Path) -> Result<Options, Error> {
    let conf = Conf::load(conf_path)?;
    let get = |k: &str| conf.get("client", "admin", k);
    let mons = mon_addrs(&get("mon_host").ok_or_else(|| format!("{}: no mon_host", conf_path.display()))?)?;
    let name = AuthName::parse("mon.").ok_or("not a name")?;
    let key = Some(key_from(keyring, "mon.")?);
    let modes = net::modes::Modes::take(get)?;
    Ok(Options { mons, name, key, fsid: None, timeout: CONNECT_TIMEOUT, modes, mds: false })
}

/// Identity of an OSD's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreLabels {
    /// Id of the OSD.
    pub(crate) whoami: u32,
    /// The cluster.
    pub(crate) fsid: String,
    /// Uuid of the OSD.
    pub(crate) uuid: String,
}

/// The identity of the OSD's store on a file or device that no daemon has open.
pub(crate) fn store_labels(path: &Path) -> Result<StoreLabels, Error> {
    let mut dev = crate::store::Plain(reactor::disk::open(path)?);
    labels_of(&::store::engine::probe(&mut dev)?.labels)
}

/// The identity in the labels of a store. Error: the store is of no OSD.
pub(crate) fn labels_of(labels: &::store::superblock::Labels) -> Result<StoreLabels, Error> {
    let label = |k: &str| {
        let text = labels.get(k).map(|v| String::from_utf8_lossy(v).into_owned());
        text.ok_or_else(|| format!("the store has no label {k}; it is of no OSD"))
    };
    let whoami = label("whoami")?.parse().map_err(|_| "the store's label whoami is no number")?;
    Ok(StoreLabels { whoami, fsid: label("ceph_fsid")?, uuid: label("osd_uuid")? })
}

/// Makes the monitor's store of a cluster that `up` creates.
pub(crate) fn mon_mkfs(p: &Plan, l: &Layout) -> Result<(), Error> {
    let read = |path: PathBuf| std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()));
    let text = read(l.admin_keyring())? + &read(l.data("mon.a").join("keyring"))?;
    let options = mon::host::mkfs::MkfsOptions {
        fsid: Uuid::parse(&p.fsid).ok_or("the plan's fsid is not a uuid")?,
        mon_name: "a".into(),
        mon_addrs: p.mon_addrs(0),
        data_dir: l.data("mon.a"),
        others: (1..p.mons).map(|i| (mon_name(i), p.mon_addrs(i))).collect(),
        etcd: (p.mons > 1).then(|| p.etcd()),
        keyring: Keyring::parse(&text)?,
        // All OSDs are on this machine.
        failure_domain: 0,
    };
    // `mkfs` runs a reactor, of which a thread can have only one.
    let made = std::thread::spawn(move || mon::host::mkfs::mkfs(&options)).join();
    made.map_err(|_| "making the monitor's store failed; see above")??;
    Ok(())
}

/// Makes an OSD's store of a cluster that `up` creates.
pub(crate) fn osd_mkfs(p: &Plan, o: &OsdPlan, l: &Layout, force: bool) -> Result<(), Error> {
    let file = l.data(&format!("osd.{}", o.id)).join("block");
    osd::host::mkfs(&osd::host::Mkfs {
        whoami: OsdId(i32::try_from(o.id)?),
        fsid: Uuid::parse(&p.fsid).ok_or("the plan's fsid is not a uuid")?,
        osd_fsid: Uuid::parse(&o.uuid).ok_or("the plan's OSD uuid is not a uuid")?,
        block: o.device.clone().unwrap_or(file),
        bytes: o.device.is_none().then_some(o.size),
        force,
    })?;
    Ok(())
}

/// Options for the monitors' state in etcd, if the configuration places it there.
pub(crate) fn etcd_options(conf: &Conf, id: &str) -> Result<Option<EtcdOptions>, Error> {
    let get = |k: &str| conf.get("mon", id, k);
    let Some(endpoints) = get("mon_state_etcd") else { return Ok(None) };
    let path = |k: &str| get(k).map(PathBuf::from);
    let user = match (get("mon_state_etcd_user"), path("mon_state_etcd_password_file")) {
        (Some(u), Some(f)) => {
            let text = std::fs::read_to_string(&f).map_err(|e| format!("{}: {e}", f.display()))?;
            Some((u, text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        (None, None) => None,
        _ => return Err("mon_state_etcd_user and mon_state_etcd_password_file belong together".into()),
    };
    let cert = match (path("mon_state_etcd_cert"), path("mon_state_etcd_key")) {
        (Some(c), Some(k)) => Some((c, k)),
        (None, None) => None,
        _ => return Err("mon_state_etcd_cert and mon_state_etcd_key belong together".into()),
    };
    Ok(Some(EtcdOptions {
        endpoints: endpoints.split([',', ' ']).filter(|e| !e.is_empty()).map(str::to_owned).collect(),
        prefix: get("mon_state_etcd_prefix").unwrap_or_else(|| "belemnite/".into()),
        user,
        ca: path("mon_state_etcd_ca"),
        cert,
    }))
}

/// Location of a monitor's state according to the configuration.
pub(crate) fn state_place(conf: &Conf, id: &str) -> Result<mon::host::archive::Place, Error> {
    use mon::host::archive::Place;
    if let Some(e) = etcd_options(conf, id)? {
        return Ok(Place::Etcd(e));
    }
    let dir = conf.get("mon", id, "mon_data").unwrap_or_else(|| format!("/var/lib/ceph/mon/ceph-{id}"));
    Ok(Place::Directory(dir.into()))
}

/// Options of `belemnite mon`.
pub(crate) fn mon_options(conf: &Conf, id: &str) -> Result<mon::host::MonRunOptions, Error> {
    let get = |k: &str| conf.get("mon", id, k);
    let data_dir = PathBuf::from(get("mon_data").unwrap_or_else(|| format!("/var/lib/ceph/mon/ceph-{id}")));
    let first = mon_addrs(&get("mon_host").ok_or("the configuration names no mon_host")?)?.first().copied();
    let own = get("public_addr").or_else(|| get("mon_addr")).map(|a| mon_addrs(&a)).transpose()?;
    let first = own.and_then(|a| a.first().copied()).or(first);
    let mgr_bind = match (get("mgr"), get("mgr_port")) {
        (Some(m), _) if m == "external" => None,
        (_, port) => {
            let sock = first.and_then(|a| a.sock).ok_or("mon_host has no address")?;
            let port = match port {
                Some(p) => p.parse().map_err(|_| format!("mgr_port = {p}: not a port"))?,
                None => mgr_port(sock.port()),
            };
            Some(SocketAddr::new(sock.ip(), port))
        }
    };
    let bind = get("public_bind_addr").map(|a| bind_addr(&a, first.and_then(|a| a.sock))).transpose()?;
    Ok(mon::host::MonRunOptions {
        name: id.to_owned(),
        data_dir,
        etcd: etcd_options(conf, id)?,
        bind,
        mgr_bind,
        admin_socket: get("admin_socket").map(PathBuf::from),
        config: conf.all("mon", id).into_iter().collect::<BTreeMap<_, _>>(),
    })
}

/// The address at which a monitor listens, by `public_bind_addr`: an address without a port has that of `public`.
fn bind_addr(text: &str, public: Option<SocketAddr>) -> Result<SocketAddr, Error> {
    if let Ok(ip) = text.trim().parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, public.map_or(MON_PORT, |p| p.port())));
    }
    let found = mon_addrs(text).ok().and_then(|a| a.first()?.sock);
    found.ok_or_else(|| format!("public_bind_addr = {text}: not an address, and none for msgr2").into())
}

/// Addresses of a monitor that is made: that for msgr2, and that for msgr1 unless `ms_bind_msgr1` is off.
pub(crate) fn own_addrs(conf: &Conf, id: &str) -> Result<AddrVec, Error> {
    let get = |k: &str| conf.get("mon", id, k);
    let text = get("public_addr").or_else(|| get("mon_addr")).or_else(|| get("mon_host"));
    let addrs = mon_addrvecs(&text.ok_or("the configuration names no mon_host")?)?;
    let mut own = addrs.into_iter().find(|a| a.msgr2().is_some()).ok_or("the monitor has no msgr2 address")?;
    let msgr1 = net::modes::serves_msgr1(get);
    own.0.retain(|a| msgr1 || a.kind != AddrKind::LEGACY);
    Ok(own)
}

/// `belemnite mon --mkfs`: makes a new cluster from a configuration, with the keys of the keyrings that it names.
pub(crate) fn mon_mkfs_from_conf(conf: &Conf, id: &str) -> Result<(), Error> {
    let o = mon_options(conf, id)?;
    let fsid = conf.get("mon", id, "fsid").ok_or("the configuration names no fsid")?;
    let mut text = String::new();
    for (kind, who) in [("mon", id), ("client", "admin")] {
        if let Some(path) = conf.get(kind, who, "keyring") {
            let more = std::fs::read_to_string(&path).map_err(|e| format!("keyring {path}: {e}"))?;
            Keyring::parse(&more).map_err(|e| format!("keyring {path}: {e}"))?;
            text += &more;
            text.push('\n');
        }
    }
    let mon_addrs = own_addrs(conf, id)?;
    mon::host::mkfs::mkfs(&mon::host::mkfs::MkfsOptions {
        fsid: Uuid::parse(&fsid).ok_or_else(|| format!("fsid = {fsid}: not a uuid"))?,
        mon_name: id.to_owned(),
        mon_addrs,
        data_dir: o.data_dir,
        others: Vec::new(),
        etcd: o.etcd,
        keyring: Keyring::parse(&text)?,
        failure_domain: conf
            .get("mon", id, "osd_crush_chooseleaf_type")
            .and_then(|t| t.trim().parse().ok())
            .unwrap_or(1),
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mon_host_forms() {
        let one = |t: &str| mon_addrs(t).unwrap().iter().map(|a| a.sock.unwrap().to_string()).collect::<Vec<_>>();
        assert_eq!(one("[v2:127.0.0.1:3300/0,v1:127.0.0.1:6789/0]"), ["127.0.0.1:3300"]);
        assert_eq!(one("[v2:[::1]:40/0]"), ["[::1]:40"]);
        assert_eq!(one("10.0.0.1,10.0.0.2:3301"), ["10.0.0.1:3300", "10.0.0.2:3301"]);
        assert_eq!(one("[v2:1.2.3.4:1/0] [v2:1.2.3.5:2/0]"), ["1.2.3.4:1", "1.2.3.5:2"]);
        assert!(mon_addrs("[v1:127.0.0.1:6789/0]").is_err());
        assert!(mon_addrs("host.example").is_err());
    }

    #[test]
    fn addresses_to_listen_at() {
        let public = Some("10.96.0.7:3310".parse().unwrap());
        let at = |t: &str| bind_addr(t, public).map(|a| a.to_string());
        assert_eq!(at("10.244.1.9").unwrap(), "10.244.1.9:3310");
        assert_eq!(at("fd00::9").unwrap(), "[fd00::9]:3310");
        assert_eq!(at("[v2:0.0.0.0:3300/0,v1:0.0.0.0:6789/0]").unwrap(), "0.0.0.0:3300");
        assert_eq!(bind_addr("0.0.0.0", None).unwrap().to_string(), "0.0.0.0:3300");
        for bad in ["", "pod", "[v1:10.0.0.1:6789/0]"] {
            assert!(at(bad).unwrap_err().to_string().contains(&format!("public_bind_addr = {bad}")), "{bad}");
        }
    }

    /// The error has the path and the reason in every case.
    #[test]
    fn errors_of_keyrings_name_the_file_and_the_reason() {
        let dir = std::env::temp_dir().join(format!("belemnite-keyring-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("keyring");
        let why = || key_from(&path, "client.x").unwrap_err().to_string();
        let says = |what: &str| {
            let why = why();
            assert!(why.contains(&path.display().to_string()) && why.contains(what), "{why}");
        };
        says("No such file");
        std::fs::create_dir(&path).unwrap();
        says("Is a directory");
        std::fs::remove_dir(&path).unwrap();
        for (text, what) in [
            ("key = x", "line 1: expected [entity]"),
            ("[client.x]\nkey = !", "line 2: bad key: not base64"),
            // Type 7: an unknown cipher.
            ("[client.x]\nkey = BwCDSQFrrCnoLhAA7DqkHzyE1GFyzXGYJNe5Iw==", "line 2: malformed: key type"),
            ("[client.y]\nkey = AQCDSQFrrCnoLhAA7DqkHzyE1GFyzXGYJNe5Iw==", "no key of client.x"),
        ] {
            std::fs::write(&path, text).unwrap();
            says(what);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
