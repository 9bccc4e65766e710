//! `belemnite mon` and `belemnite osd`: single daemons, configured by a `ceph.conf`.

use crate::cli::Target;
use crate::cli::operate::{DaemonCommand, OsdCommand};
use crate::conf::Conf;
use crate::{admin, size};
use base::id::Uuid;
use base::{AuthName, EntityKind, OsdId};
use osd::host::OsdError;
use osd::host::options::{CrushOptions, DeviceOptions, OsdOptions};
use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

/// Ceph's default port range of OSDs.
const PORTS: (u16, u16) = (6800, 7568);

/// Arguments of `belemnite mon`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct MonArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DaemonCommand>,
    /// Name of the monitor, without `mon.`
    #[arg(long, short = 'i', value_name = "ID", required = true)]
    id: Option<String>,
    /// Make the monitor's store from the configuration and the keyrings, then exit
    #[arg(long)]
    mkfs: bool,
    /// Add the monitor to the monitors' map, with the key of `mon.`, if it is not there; then exit
    #[arg(long, conflicts_with = "mkfs")]
    join: bool,
    /// Stop when standard input ends
    #[arg(long)]
    supervised: bool,
}

/// Arguments of `belemnite osd`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct OsdArgs {
    #[command(subcommand)]
    pub(crate) command: Option<OsdCommand>,
    /// Id of the OSD
    #[arg(long, short = 'i', value_name = "N", required = true)]
    id: Option<i32>,
    /// Make the OSD's store, then exit
    #[arg(long)]
    mkfs: bool,
    /// With --mkfs: uuid given to `ceph osd new`
    #[arg(long, value_name = "UUID")]
    osd_uuid: Option<String>,
    /// With --mkfs: size of the file to make
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// With --mkfs: overwrite a device that is in use by something else
    #[arg(long)]
    force: bool,
    /// Number of reactor threads [default: cores divided by OSDs on this machine, at least 1]
    #[arg(long, value_name = "N")]
    reactors: Option<usize>,
    /// Use threads for disk I/O even if io_uring works
    #[arg(long)]
    no_io_uring: bool,
    /// Stop when standard input ends
    #[arg(long)]
    supervised: bool,
}

/// Logs go to standard error, filtered by `RUST_LOG`. The default level is `info` for daemons. Commands report errors by
/// themselves, so theirs is `error`. A line that cannot be written, such as one on a full file system, is lost and changes nothing else.
pub(crate) fn init_logging(daemon: bool) {
    use tracing_subscriber::EnvFilter;
    let default = if daemon { "info" } else { "error" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let began = filter.to_string();
    let log =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(!daemon && std::io::stderr().is_terminal());
    // The subscriber would report a lost line with `eprintln!`, which panics for the same reason.
    let log = log.log_internal_errors(false).with_env_filter(filter).with_filter_reloading();
    let handle = log.reload_handle();
    log.init();
    net::log_filter::install(move |more| {
        let all = if more.is_empty() { began.clone() } else { format!("{began},{more}") };
        match EnvFilter::try_new(&all) {
            // The handle works as long as the process runs.
            Ok(f) => drop(handle.reload(f)),
            Err(error) => tracing::warn!(%error, filter = all, "invalid log levels ignored"),
        }
    });
}

fn methods(conf: &Conf, kind: &str, id: &str) -> Result<Vec<auth::Method>, Error> {
    let text = conf.get(kind, id, "auth_cluster_required").unwrap_or_else(|| "cephx".into());
    text.split([',', ' ', ';'])
        .filter(|w| !w.is_empty())
        .map(|w| match w {
            "cephx" => Ok(auth::Method::CEPHX),
            "none" => Ok(auth::Method::NONE),
            other => Err(format!("auth_cluster_required = {other}: only cephx and none are known").into()),
        })
        .collect()
}

fn ip(conf: &Conf, id: &str, key: &str, network: &str) -> Result<Option<IpAddr>, Error> {
    if let Some(a) = conf.get("osd", id, key) {
        let text = a.trim_start_matches("v2:").trim_matches(['[', ']']).to_owned();
        return text.parse().map(Some).map_err(|_| format!("{key} = {a}: not an address").into());
    }
    match conf.get("osd", id, network) {
        Some(net) => admin::address_in(&net).map(Some),
        None => Ok(None),
    }
}

/// Runs (or makes) a monitor.
pub(crate) fn mon(t: &Target, a: MonArgs) -> Result<(), Error> {
    let path = admin::find_conf(t.conf_path())?;
    let conf = Conf::load(&path)?;
    let id = a.id.ok_or("--id names the monitor")?;
    if a.mkfs {
        return admin::mon_mkfs_from_conf(&conf, &id);
    }
    if a.join {
        return reactor::run_here(|_, _| async move { crate::join::join(&path, &conf, &id).await })?;
    }
    shift_clock(&conf, "mon", &id)?;
    let options = admin::mon_options(&conf, &id)?;
    reactor::run_here(|cx, stopper| async move {
        tokio::task::spawn_local(stop_when_told(a.supervised, stopper));
        mon::host::run(cx, options).await
    })??;
    Ok(())
}

/// `test_clock_shift`: shifts the wall clock of this daemon by this many seconds, for tests of clock skew.
fn shift_clock(conf: &Conf, kind: &str, id: &str) -> Result<(), Error> {
    let Some(text) = conf.get(kind, id, "test_clock_shift") else { return Ok(()) };
    let seconds: f64 = text.parse().map_err(|_| format!("test_clock_shift = {text}: not a number of seconds"))?;
    tracing::warn!(seconds, "the clock of this daemon is shifted for a test (test_clock_shift)");
    reactor::clock::shift((seconds * 1000.0) as i64);
    Ok(())
}

/// Stops the reactors on SIGTERM, SIGINT or, if supervised, at the end of standard input.
async fn stop_when_told(supervised: bool, stopper: reactor::Stopper) {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = async {
        let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
            return std::future::pending().await;
        };
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    };
    if supervised {
        tokio::select! { () = signals => {}, () = reactor::parent::stdin_ended() => {} }
    } else {
        signals.await;
    }
    stopper.stop();
}

/// Raises the limit of descriptors as far as the system allows, and warns a daemon with few.
pub(crate) fn raise_descriptors(is_daemon: bool) {
    let Some(limit) = reactor::descriptors::raise_limit() else { return };
    net::descriptors::set_limit(limit);
    if is_daemon && limit < net::descriptors::WANTED {
        tracing::warn!(
            limit,
            wanted = net::descriptors::WANTED,
            "few descriptors: each client takes one; raise LimitNOFILE of the unit or the hard limit of the shell (ulimit -Hn)"
        );
    }
}

/// Default of `osd_file_min_free`: free bytes of the file system of an OSD's file below which the OSD accepts no growing
/// write. Half of them must be free at start.
const FILE_MIN_FREE: u64 = 256 << 20;
/// Default of `osd_device_timeout`: a device without a completion for this time has failed.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest `osd_busy_poll` in microseconds.
const BUSY_POLL_MAX: u64 = 10_000;
/// Default of `osd_failsafe_full_ratio`: used part of the store above which an OSD accepts no growing write.
const FAILSAFE_FULL_RATIO: f64 = 0.97;

/// Bounds of an OSD's space: `osd_file_min_free` in bytes, `osd_failsafe_full_ratio`.
fn room_options(get: impl Fn(&str) -> Option<String>) -> Result<(u64, f64), Error> {
    let file_min_free = match get("osd_file_min_free") {
        Some(v) => crate::size::parse(&v).ok_or_else(|| format!("osd_file_min_free = {v}: not a size"))?,
        None => FILE_MIN_FREE,
    };
    let failsafe_full_ratio = match get("osd_failsafe_full_ratio") {
        Some(v) => match v.parse() {
            Ok(r) if (0.0..=1.0).contains(&r) => r,
            _ => return Err(format!("osd_failsafe_full_ratio = {v}: not a number from 0 to 1").into()),
        },
        None => FAILSAFE_FULL_RATIO,
    };
    Ok((file_min_free, failsafe_full_ratio))
}

/// Times: `osd_device_timeout` in seconds, `osd_busy_poll` in microseconds.
fn time_options(get: impl Fn(&str) -> Option<String>) -> Result<(Duration, Duration), Error> {
    let device_timeout = match get("osd_device_timeout") {
        Some(v) => match v.parse() {
            Ok(s) if s > 0 => Duration::from_secs(s),
            _ => return Err(format!("osd_device_timeout = {v}: not a number of seconds").into()),
        },
        None => DEVICE_TIMEOUT,
    };
    let busy_poll = match get("osd_busy_poll") {
        Some(v) => match v.parse() {
            Ok(us) if us <= BUSY_POLL_MAX => Duration::from_micros(us),
            _ => return Err(format!("osd_busy_poll = {v}: not a number of microseconds up to {BUSY_POLL_MAX}").into()),
        },
        None => Duration::ZERO,
    };
    Ok((device_timeout, busy_poll))
}

/// The NUMA node that `osd_numa_node` names; -1, as in Ceph, is none. Error: the reason why its node can't be used.
fn numa_option(get: impl Fn(&str) -> Option<String>, sys: &Path) -> Result<Option<reactor::numa::Node>, String> {
    let Some(text) = get("osd_numa_node") else { return Ok(None) };
    match text.trim().parse::<i32>() {
        Ok(-1) => Ok(None),
        Ok(n @ 0..) => {
            reactor::numa::Node::find(sys, n.unsigned_abs()).map(Some).map_err(|e| format!("osd_numa_node: {e}"))
        }
        _ => Err(format!("osd_numa_node = {text}: not the number of a NUMA node, nor -1 for none")),
    }
}

fn osd_options(conf: &Conf, a: &OsdArgs) -> Result<OsdOptions, Error> {
    let whoami = a.id.ok_or("--id names the OSD")?;
    let id = whoami.to_string();
    let get = |k: &str| conf.get("osd", &id, k);
    let fsid = get("fsid").ok_or("the configuration names no fsid")?;
    let fsid = Uuid::parse(&fsid).ok_or_else(|| format!("fsid = {fsid}: not a uuid"))?;
    let data_dir = PathBuf::from(get("osd_data").unwrap_or_else(|| format!("/var/lib/ceph/osd/ceph-{id}")));
    let block = get("osd_block_path").map_or_else(|| data_dir.join("block"), PathBuf::from);
    let methods = methods(conf, "osd", &id)?;
    let public_ip = ip(conf, &id, "public_addr", "public_network")?.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let cluster_ip = ip(conf, &id, "cluster_addr", "cluster_network")?.unwrap_or(public_ip);
    let port = |k: &str, d: u16| -> Result<u16, Error> {
        get(k).map_or(Ok(d), |v| v.parse().map_err(|_| format!("{k} = {v}: not a port").into()))
    };
    let keyring = methods
        .contains(&auth::Method::CEPHX)
        .then(|| get("keyring").map_or_else(|| data_dir.join("keyring"), PathBuf::from));
    let key = keyring.as_ref().map(|k| admin::key_from(k, &format!("osd.{id}"))).transpose()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let here = get("osd_count_on_host").and_then(|v| v.parse().ok()).unwrap_or(1).max(1);
    let reactors = match (a.reactors, get("osd_reactors").and_then(|v| v.parse().ok())) {
        (Some(n), _) | (None, Some(n)) => n,
        (None, None) => cores / here,
    };
    let (device_timeout, busy_poll) = time_options(get)?;
    let (file_min_free, failsafe_full_ratio) = room_options(get)?;
    let yes = |k: &str| get(k).is_some_and(|v| v == "true" || v == "1");
    Ok(OsdOptions {
        memory: crate::memory::of_osd(get, here)?,
        busy_poll,
        numa: numa_option(get, Path::new("/sys")),
        move_pgs: get("osd_move_pgs").is_none_or(|v| v == "true" || v == "1"),
        device: DeviceOptions {
            path: block,
            discard: yes("bdev_enable_discard"),
            grow_at_start: yes("bdev_grow_at_start"),
            file_min_free,
            failsafe_full_ratio,
            timeout: device_timeout,
            no_io_uring: a.no_io_uring,
        },
        crush: CrushOptions {
            update_on_start: get("osd_crush_update_on_start").is_none_or(|v| v != "false"),
            location: get("crush_location").map(|l| l.split_whitespace().map(str::to_owned).collect()),
            device_class: get("osd_crush_initial_device_class"),
        },
        whoami: OsdId(whoami),
        fsid,
        mons: admin::mon_addrs(&get("mon_host").ok_or("the configuration names no mon_host")?)?,
        key,
        keyring,
        methods,
        public_ip,
        cluster_ip,
        ports: (port("ms_bind_port_min", PORTS.0)?, port("ms_bind_port_max", PORTS.1)?),
        msgr1: net::modes::serves_msgr1(get),
        reactors: reactors.clamp(1, osd::core::session::REACTORS_MAX),
        admin_socket: get("admin_socket").map(PathBuf::from),
        data_dir,
        supervised: a.supervised,
        release_memory: crate::allocator::release,
        shown: conf.all("osd", &id),
    })
}

/// Time for the report of an OSD that cannot start.
const REPORT_MAX: Duration = Duration::from_secs(5);

/// Client options of an OSD.
fn report_options(o: &OsdOptions) -> Result<client::Options, Error> {
    let get = |name: &str| o.shown.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
    Ok(client::Options {
        mons: o.mons.clone(),
        name: AuthName { kind: EntityKind::OSD, id: o.whoami.0.to_string() },
        key: o.key.clone(),
        fsid: Some(o.fsid),
        timeout: REPORT_MAX,
        modes: net::modes::Modes::take(get)?,
        mds: false,
    })
}

/// Tells the monitors why an OSD does not start; health shows it. Without an answer the reason is in the log only.
fn report_failure(o: client::Options, why: &str) {
    let id = o.name.id.parse::<i64>().unwrap_or(-1);
    let cmd = serde_json::json!({ "prefix": "osd store-failed", "id": id, "reason": why }).to_string();
    let told = reactor::run_here(|_, _| async move {
        let tell = async {
            let c = client::Client::connect(o).await?;
            c.mon_command(&cmd, bytes::Bytes::new()).await
        };
        tokio::time::timeout(REPORT_MAX, tell).await.map(|r| r.map(|r| (r.rc, r.status)))
    });
    match told {
        Ok(Ok(Ok((0, _)))) => {}
        Ok(Ok(Ok((_, error)))) => tracing::warn!(error, "the monitor does not take the reason of the failed start"),
        Ok(Ok(Err(error))) => tracing::warn!(%error, "the reason of the failed start was not reported"),
        Ok(Err(_)) => tracing::warn!("the reason of the failed start was not reported: no monitor answers"),
        Err(error) => tracing::warn!(%error, "the reason of the failed start was not reported"),
    }
}

/// Runs (or makes) an OSD.
pub(crate) fn osd(t: &Target, a: OsdArgs) -> Result<(), Error> {
    let conf = Conf::load(&admin::find_conf(t.conf_path())?)?;
    let options = osd_options(&conf, &a)?;
    if !a.mkfs {
        shift_clock(&conf, "osd", &options.whoami.0.to_string())?;
        let report = report_options(&options)?;
        let ran = osd::host::run(options);
        // An OSD that has begun to serve reports a failure itself.
        if let Err(e @ (OsdError::HostFull { .. } | OsdError::Device { .. })) = &ran {
            report_failure(report, &e.to_string());
        }
        return Ok(ran?);
    }
    let uuid = match &a.osd_uuid {
        Some(u) => Uuid::parse(u).ok_or_else(|| format!("--osd-uuid {u}: not a uuid"))?,
        None => admin::new_uuid()?,
    };
    let bytes = match &a.size {
        Some(s) => Some(size::parse(s).ok_or_else(|| format!("--size {s}: not a size"))?),
        None => None,
    };
    osd::host::mkfs(&osd::host::Mkfs {
        whoami: options.whoami,
        fsid: options.fsid,
        osd_fsid: uuid,
        block: options.device.path,
        bytes,
        force: a.force,
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numa_node_exists_or_there_is_a_reason() {
        let sys = std::env::temp_dir().join(format!("belemnite-daemon-numa-{}", std::process::id()));
        let node = sys.join("devices/system/node/node0");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("cpulist"), "0-3\n").unwrap();
        let of = |text: Option<&str>| numa_option(|_| text.map(str::to_owned), &sys);
        assert_eq!((of(None), of(Some("-1"))), (Ok(None), Ok(None)));
        assert_eq!(of(Some("0")).unwrap().unwrap().cpus.to_string(), "0-3");
        let error = |text| of(Some(text)).unwrap_err();
        assert_eq!(error("1"), "osd_numa_node: there is no NUMA node 1; this machine has 0");
        for bad in ["-2", "one", "", "4294967296"] {
            assert_eq!(error(bad), format!("osd_numa_node = {bad}: not the number of a NUMA node, nor -1 for none"));
        }
        std::fs::remove_dir_all(sys).unwrap();
    }
}
