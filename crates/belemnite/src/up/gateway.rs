//! An S3 gateway of the cluster: Ceph's unmodified `radosgw`, as another supervised daemon.
//!
//! The gateway gets its own key, a minimal configuration, and a user whose keys are printed. It makes its pools itself.
//! With `--ceph-root` it runs in that root, with its files in `ROOT/run/belemnite/FSID`. Invariant: secret keys are
//! passed in files and pipes, and in arguments only to `radosgw-admin`, which has no other way.

use super::dir::write_private;
use super::layout::Layout;
use super::plan::{Plan, S3Plan};
use super::{Args, Error, keyring, say};
use crate::admin;
use client::Client;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// Arguments of `belemnite gateway`: a command, or those with which `up` runs a `radosgw` that stops at the end of
/// standard input.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    pub(crate) command: Option<crate::cli::operate::DaemonCommand>,
    /// Root directory to run in
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
    /// Path of its configuration in that root
    #[arg(long, value_name = "FILE", hide = true, required = true)]
    gateway_conf: Option<PathBuf>,
    /// Name of the gateway
    #[arg(long, value_name = "NAME", hide = true, required = true)]
    name: Option<String>,
}

/// Name of the daemon.
pub(super) const DAEMON: &str = "rgw.a";
/// Entity name of the gateway.
const NAME: &str = "client.rgw.a";
/// Id of the user.
const USER: &str = "s3";
/// Time limit for a gateway to stop; it finishes its requests.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Exit status of `radosgw-admin user create` if the user exists (`EEXIST`).
const EXISTS: i32 = 17;

/// Command for a Ceph program, in a root if one is given.
fn program(root: Option<&Path>, name: &str) -> Command {
    match root {
        Some(r) => {
            let mut c = Command::new("chroot");
            c.arg(r).arg(name);
            c
        }
        None => Command::new(name),
    }
}

fn is_installed(root: Option<&Path>, name: &str) -> bool {
    let dirs: Vec<PathBuf> = match root {
        Some(r) => ["usr/local/bin", "usr/bin", "bin"].iter().map(|d| r.join(d)).collect(),
        None => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect(),
    };
    dirs.iter().any(|d| d.join(name).is_file())
}

/// Gateway options from arguments and plan; `None` without a gateway. The error says what to install if it cannot run.
pub(super) fn plan(a: &Args, p: &Plan) -> Result<Option<S3Plan>, Error> {
    let wanted = a.s3 || p.s3.is_some();
    if !wanted {
        return match a {
            _ if a.s3_port.is_some() => Err("--s3-port goes with --s3".into()),
            _ if a.ceph_root.is_some() && p.fs.is_none() && p.mgr.is_none() => {
                Err("--ceph-root goes with --s3, --fs or --mgr ceph".into())
            }
            _ => Ok(None),
        };
    }
    let mut s = match p.s3.clone() {
        Some(s) => s,
        None => {
            let text = |n: usize| -> Result<String, Error> {
                let raw =
                    admin::new_uuid()?.to_string().replace('-', "") + &admin::new_uuid()?.to_string().replace('-', "");
                Ok(raw[..n].to_uppercase())
            };
            S3Plan { port: p.port + 5, key: admin::new_key()?, access: text(20)?, secret: text(40)?, root: None }
        }
    };
    if let Some(port) = a.s3_port {
        s.port = port;
    }
    if let Some(root) = &a.ceph_root {
        s.root = Some(std::fs::canonicalize(root).map_err(|e| format!("--ceph-root {}: {e}", root.display()))?);
    }
    for name in ["radosgw", "radosgw-admin"] {
        // Debian has `radosgw-admin` in the package of `radosgw`'s tools.
        if !is_installed(s.root.as_deref(), name) {
            let place = s.root.as_ref().map_or_else(|| "here".to_owned(), |r| format!("in {}", r.display()));
            return Err(format!(
                "--s3: {name} is not installed {place}. Debian and Ubuntu: apt install radosgw ceph-common. \
                 Or name a directory that holds another system with it: --ceph-root DIR"
            )
            .into());
        }
    }
    std::net::TcpListener::bind((p.ip, s.port))
        .map_err(|e| super::cannot_listen(p.ip, s.port, &e, "another with --s3-port"))?;
    Ok(Some(s))
}

/// Directory of the gateway's files, as seen in its root and from outside.
struct Files {
    inside: PathBuf,
    outside: PathBuf,
}

fn files(p: &Plan, s: &S3Plan, l: &Layout) -> Files {
    match &s.root {
        Some(root) => {
            let inside = Path::new("/run/belemnite").join(&p.fsid);
            let outside = root.join(inside.strip_prefix("/").unwrap_or(&inside));
            Files { inside, outside }
        }
        None => Files { inside: l.data("rgw.a"), outside: l.data("rgw.a") },
    }
}

/// Writes the gateway's files; returns the arguments to run it.
pub(super) fn prepare(p: &Plan, s: &S3Plan, l: &Layout) -> Result<Vec<String>, Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    let f = files(p, s, l);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&f.outside)?;
    let inside = f.inside.display();
    let ring = f.outside.join("keyring");
    write_private(&ring, &keyring(NAME, &s.key, &[]))?;
    let host = p.host();
    let conf = format!(
        "# Written by `belemnite up`.\n{}\n[client]\nkeyring = {inside}/keyring\nadmin_socket =\nlog_to_stderr = true\n\
         log_to_file = false\npid_file =\n\n[{NAME}]\nrgw_frontends = beast endpoint={host}:{} tcp_nodelay=1\nrgw_enable_usage_log = true\n",
        p.conf_global(),
        s.port
    );
    let conf_path = f.outside.join("ceph.conf");
    write_private(&conf_path, &conf)?;
    let mut args = vec!["gateway".to_owned()];
    if let Some(root) = &s.root {
        args.extend(["--root".to_owned(), root.display().to_string()]);
    }
    args.extend(["--gateway-conf".to_owned(), format!("{inside}/ceph.conf"), "--name".to_owned(), NAME.to_owned()]);
    let secret = |arg: &String| [&s.key, &s.secret].into_iter().any(|k| arg.contains(k.as_str()));
    debug_assert!(!args.iter().any(secret), "secret keys are passed in files");
    Ok(args)
}

/// Takes up the gateway's key if the monitor has one, and registers it with its caps otherwise. True if the key is
/// another one than before.
pub(super) async fn register(c: &Client, s: &mut S3Plan) -> Result<bool, Error> {
    if let Some(key) = super::make::key_of(c, NAME).await? {
        let changed = s.key != key;
        s.key = key;
        return Ok(changed);
    }
    let caps = ["mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw"];
    let import = json!({"prefix": "auth import"}).to_string();
    let ring = keyring(NAME, &s.key, &[(caps[0], caps[1]), (caps[2], caps[3]), (caps[4], caps[5])]);
    let r = c.mon_command(&import, ring.into_bytes().into()).await?;
    if r.rc < 0 {
        return Err(format!("the gateway's key: {}", r.status).into());
    }
    Ok(false)
}

/// Waits for the gateway, creates the user, and prints endpoint and keys for S3 clients.
pub(super) async fn report(p: &Plan, s: &S3Plan, l: &Layout) -> Result<(), Error> {
    let start = tokio::time::Instant::now();
    let mut warned = false;
    while tokio::net::TcpStream::connect((p.ip, s.port)).await.is_err() {
        if !warned && start.elapsed() > super::PATIENCE {
            warned = true;
            say(format_args!("still waiting for the gateway; its log is {}", l.log().join("rgw.a.log").display()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let f = files(p, s, l);
    let made = program(s.root.as_deref(), "radosgw-admin")
        .arg("-c")
        .arg(f.inside.join("ceph.conf"))
        .args(["-n", NAME, "user", "create", "--uid", USER, "--display-name", "made by belemnite up"])
        .args(["--access-key", &s.access, "--secret-key", &s.secret])
        .stdin(Stdio::null())
        .output()
        .await?;
    if !made.status.success() && made.status.code() != Some(EXISTS) {
        let text = String::from_utf8_lossy(&made.stderr);
        return Err(format!("radosgw-admin user create: {} ({})", text.trim(), made.status).into());
    }
    let url = format!("http://{}:{}", p.host(), s.port);
    say(format_args!(
        "S3:         {url}\naccess key: {}\nsecret key: {}\n\n\
         With S3 clients (Debian: apt install awscli, or s3cmd):\n\
         \x20   export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={} AWS_DEFAULT_REGION=us-east-1\n\
         \x20   aws --endpoint-url {url} s3 mb s3://first\n\
         \x20   s3cmd --no-ssl --host {}:{port} --host-bucket {}:{port} --access_key {} --secret_key {} ls\n",
        s.access,
        s.secret,
        s.access,
        s.secret,
        p.host(),
        p.host(),
        s.access,
        s.secret,
        port = s.port,
    ));
    Ok(())
}

/// Runs a `radosgw` until it exits or standard input ends.
pub(crate) async fn run(a: GatewayArgs) -> Result<(), Error> {
    let (Some(conf), Some(name)) = (&a.gateway_conf, &a.name) else {
        return Err("--gateway-conf and --name are needed".into());
    };
    let mut child = program(a.root.as_deref(), "radosgw")
        .arg("-c")
        .arg(conf)
        .args(["-n", name, "-f"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("radosgw: {e}"))?;
    let ended = |s: std::io::Result<ExitStatus>| -> Result<(), Error> {
        match s? {
            s if s.success() => Ok(()),
            s => Err(format!("radosgw ended: {s}").into()),
        }
    };
    tokio::select! {
        s = child.wait() => return ended(s),
        () = reactor::parent::stdin_ended() => {}
    }
    if let Some(pid) = child.id() {
        let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
    }
    if tokio::time::timeout(STOP_GRACE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}
