//! The command `light`: switches the light of one of the OSD's drives, by `lsmcli` of libstoragemgmt or `ledctl` of ledmon.
//!
//! As with `smart`, the programs run beside the reactors, with bounded time, as the OSD's user.

use super::child;
use super::smart::{Drive, OUTPUT_MAX, TURN};
use base::errno::{EINVAL, ENOENT, Errno};
use serde_json::{Map, Value, json};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Time limit for one program.
const TIME_MAX: Duration = Duration::from_secs(5);

/// A switch of a light.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    devid: String,
    fault: bool,
    on: bool,
}

impl Switch {
    /// The switch that a command asks for.
    pub(super) fn of(cmd: &Map<String, Value>) -> Result<Self, (Errno, String)> {
        let text = |k: &str| cmd.get(k).and_then(Value::as_str).unwrap_or_default();
        let one_of = |k: &str, no: &str, yes: &str| match text(k) {
            t if t == no => Ok(false),
            t if t == yes => Ok(true),
            t => Err((EINVAL, format!("'{k}' is {no} or {yes}, not '{t}'"))),
        };
        let (on, fault) = (one_of("enable", "off", "on")?, one_of("light_type", "ident", "fault")?);
        Ok(Self { devid: text("devid").to_owned(), fault, on })
    }

    /// The arguments of `lsmcli` for a path.
    fn lsmcli(&self, path: &str) -> Vec<String> {
        let (kind, on) = (if self.fault { "fault" } else { "ident" }, if self.on { "on" } else { "off" });
        vec![format!("local-disk-{kind}-led-{on}"), "--path".into(), path.into()]
    }

    /// The argument of `ledctl` for a path.
    fn ledctl(&self, path: &str) -> Vec<String> {
        let pattern = match (self.fault, self.on) {
            (true, true) => "failure",
            (true, false) => "normal",
            (false, true) => "locate",
            (false, false) => "locate_off",
        };
        vec![format!("{pattern}={path}")]
    }
}

/// Switches the light of a drive. Error: ENOENT for a drive of another OSD and without a program, EINVAL if it fails.
pub(super) async fn set(drives: Vec<Drive>, s: Switch) -> Result<Value, (Errno, String)> {
    let found = drives.into_iter().find(|(dev, id)| *id == s.devid && !id.is_empty() && !dev.starts_with("dm-"));
    let Some((dev, _)) = found else { return Err((ENOENT, format!("device {} not found", s.devid))) };
    let _turn = TURN.acquire().await;
    let work = move || by(Path::new(""), &dev, &s);
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err((EINVAL, e.to_string())))
}

/// Switches a light by the first program that is there; `dir` is empty for those of the `PATH`.
fn by(dir: &Path, dev: &str, s: &Switch) -> Result<Value, (Errno, String)> {
    let path = format!("/dev/{dev}");
    let mut failed = Vec::new();
    for (program, args) in [("lsmcli", s.lsmcli(&path)), ("ledctl", s.ledctl(&path))] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        match child::run(&dir.join(program), &args, OUTPUT_MAX, TIME_MAX) {
            Ok((_, Some(status))) if status.success() => return Ok(json!({"program": program, "dev": path})),
            Ok((_, Some(status))) => failed.push(format!("{program} returned an error ({status})")),
            Ok((_, None)) => failed.push(format!("{program} did not end within {} s", TIME_MAX.as_secs())),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => failed.push(format!("{program} cannot be run: {e}")),
        }
    }
    if failed.is_empty() {
        let text = "the OSD's host has neither lsmcli (libstoragemgmt) nor ledctl (ledmon)";
        return Err((ENOENT, format!("{path}: {text}")));
    }
    Err((EINVAL, format!("{path}: {}", failed.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn switch(enable: &str, light: &str) -> Result<Switch, (Errno, String)> {
        let cmd = json!({"devid": "A", "enable": enable, "light_type": light});
        Switch::of(cmd.as_object().unwrap())
    }

    #[test]
    fn words_are_checked() {
        assert_eq!(switch("on", "fault"), Ok(Switch { devid: "A".into(), fault: true, on: true }));
        assert_eq!(switch("blink", "fault").unwrap_err().0, EINVAL);
        assert_eq!(switch("off", "").unwrap_err().1, "'light_type' is ident or fault, not ''");
    }

    #[test]
    fn the_first_program_that_works_is_taken() {
        let dir = std::env::temp_dir().join(format!("belemnite-light-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (ident, off) = (switch("on", "ident").unwrap(), switch("off", "fault").unwrap());
        let e = by(&dir, "sdx", &ident).unwrap_err();
        assert!(e.0 == ENOENT && e.1.contains("neither lsmcli"), "{}", e.1);
        let put = |name: &str, status: u8| {
            let path = dir.join(name);
            std::fs::write(&path, format!("#!/bin/sh\necho \"$*\" >$0.said; exit {status}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        put("ledctl", 0);
        assert_eq!(by(&dir, "sdx", &ident).unwrap()["program"], "ledctl");
        assert_eq!(std::fs::read_to_string(dir.join("ledctl.said")).unwrap(), "locate=/dev/sdx\n");
        put("lsmcli", 0);
        assert_eq!(by(&dir, "sdx", &off).unwrap()["program"], "lsmcli");
        let said = std::fs::read_to_string(dir.join("lsmcli.said")).unwrap();
        assert_eq!(said, "local-disk-fault-led-off --path /dev/sdx\n");
        put("lsmcli", 3);
        assert_eq!(by(&dir, "sdx", &off).unwrap()["program"], "ledctl");
        put("ledctl", 4);
        let e = by(&dir, "sdx", &off).unwrap_err();
        assert!(e.0 == EINVAL && e.1.contains("exit status: 3") && e.1.contains("exit status: 4"), "{}", e.1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
