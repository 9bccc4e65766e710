//! The command `smart`: what `smartctl` of smartmontools says about the OSD's drives, as JSON.
//!
//! The program runs beside the reactors, with bounded output and time. Failures are JSON too, with the fields that Ceph's
//! OSDs give (`block_device_get_metrics`).

use super::child;
use base::errno::EINVAL;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// Longest output that is read.
pub(super) const OUTPUT_MAX: u64 = 256 << 10;
/// Time limit for one drive; that of Ceph (`osd_smart_report_timeout`) is as long.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Drives are asked by one command at a time.
pub(super) static TURN: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(1);

/// A drive: its name below `/dev`, and its id.
pub(super) type Drive = (String, String);

/// The health data of drives by their ids; those of one drive if `only` names it. Drives without an id are left out.
pub(super) async fn probe(drives: Vec<Drive>, only: Option<String>) -> Value {
    let wanted = drives.into_iter().filter(|(dev, id)| {
        !dev.starts_with("dm-") && !id.is_empty() && only.as_ref().is_none_or(|o| o.is_empty() || o == id)
    });
    let wanted: Vec<Drive> = wanted.collect();
    let _turn = TURN.acquire().await;
    let work = move || -> Map<String, Value> {
        wanted.into_iter().map(|(dev, id)| (id, drive(Path::new("smartctl"), &dev, TIME_MAX))).collect()
    };
    Value::Object(tokio::task::spawn_blocking(work).await.unwrap_or_default())
}

/// The health data of a drive.
fn drive(program: &Path, dev: &str, limit: Duration) -> Value {
    let path = format!("/dev/{dev}");
    let failed = |text: String| {
        let failed = "smartctl failed";
        json!({"error": failed, "dev": path, "smartctl_error_code": EINVAL, "smartctl_output": text})
    };
    let (out, status) = match child::run(program, &["-x", "--json=o", &path], OUTPUT_MAX, limit) {
        Ok(r) => r,
        Err(e) => return failed(format!("error spawning smartctl: {e}")),
    };
    // The status tells of failing drives, too, and the output of errors: JSON is taken as it is.
    match (serde_json::from_slice::<Value>(&out), status) {
        (Ok(v @ Value::Object(_)), Some(_)) => v,
        (_, Some(s)) if !s.success() => failed(format!("smartctl returned an error ({s})")),
        (_, None) => failed(format!("smartctl did not end within {} s", limit.as_secs_f64())),
        _ => json!({
            "error": "smartctl returned invalid JSON", "dev": path, "smartctl_output": String::from_utf8_lossy(&out),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    /// A stand-in for the program, and the directory that it is in.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, script: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("belemnite-smart-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let me = Self(dir);
            std::fs::write(me.path(), format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(me.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            me
        }

        fn path(&self) -> PathBuf {
            self.0.join("smartctl")
        }

        fn ask(&self, limit: Duration) -> Value {
            drive(&self.path(), "sdx", limit)
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn the_answer_is_the_program_s() {
        let f = Fake::new("answer", r#"echo "{\"args\": \"$*\", \"smart_status\": {\"passed\": false}}"; exit 8"#);
        let v = f.ask(LONG);
        assert_eq!((&v["args"], &v["smart_status"]["passed"]), (&json!("-x --json=o /dev/sdx"), &json!(false)));
    }

    #[test]
    fn failures_are_json_too() {
        let v = Fake::new("error", "echo no; exit 3").ask(LONG);
        assert_eq!((&v["error"], &v["dev"]), (&json!("smartctl failed"), &json!("/dev/sdx")));
        assert_eq!(v["smartctl_error_code"], -22);
        let v = Fake::new("invalid", "echo '[1]'").ask(LONG);
        assert_eq!((&v["error"], &v["smartctl_output"]), (&json!("smartctl returned invalid JSON"), &json!("[1]\n")));
        let v = drive(Path::new("/nowhere/smartctl"), "sdx", LONG);
        assert!(v["smartctl_output"].as_str().unwrap().starts_with("error spawning smartctl: "), "{v}");
    }

    #[test]
    fn neither_time_nor_output_is_without_end() {
        let v = Fake::new("hangs", "exec sleep 1000").ask(Duration::from_millis(100));
        assert!(v["smartctl_output"].as_str().unwrap().contains("did not end"), "{v}");
        let v = Fake::new("floods", "exec cat /dev/zero").ask(Duration::from_secs(2));
        assert!(v["error"].is_string(), "{v}");
        let closed = Fake::new("closed", "exec 1>&-; exec sleep 1000").ask(Duration::from_millis(300));
        assert!(closed["smartctl_output"].as_str().unwrap().contains("did not end"), "{closed}");
    }

    #[tokio::test]
    async fn only_drives_with_an_id_are_asked() {
        let drives = || vec![("dm-0".into(), "A".into()), ("sdx".into(), String::new()), ("sdy".into(), "B".into())];
        assert_eq!(probe(drives(), None).await.as_object().map(Map::len), Some(1));
        assert_eq!(probe(drives(), Some("C".into())).await, json!({}));
    }
}
