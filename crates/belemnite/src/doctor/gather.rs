//! Runs scripts in shells, here and over ssh, with bounds on time, output and the number at a time.

use ::doctor::OUTPUT_MAX;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

/// Time for a script on a host.
const TIME: Duration = Duration::from_secs(120);
/// Most hosts at a time.
const AT_A_TIME: usize = 32;
/// Longest text of an error that is read, in bytes.
const ERROR_MAX: usize = 4 << 10;

/// Output of a script.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    /// The output, at most [`OUTPUT_MAX`] bytes.
    pub(super) output: Vec<u8>,
    /// This host's clock when the output ended, in seconds since 1970.
    pub(super) wall: f64,
}

async fn read(from: Option<impl AsyncRead + Unpin>, most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(f) = from {
        // What was read before a failure is worth having; the exit status tells of the failure.
        let _ = f.take(most as u64).read_to_end(&mut out).await;
    }
    out
}

/// Runs a program with a script as its input.
async fn run(mut program: Command, script: &str) -> Result<Gathered, String> {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| e.to_string())?;
    let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut i) = input {
            // A program that ends early tells why by its status.
            let _ = i.write_all(script.as_bytes()).await;
        }
    };
    let all = async {
        let ((), output, error) = tokio::join!(write, read(output, OUTPUT_MAX), read(error, ERROR_MAX));
        let wall = reactor::clock::read().wall;
        // A program that writes more than is read ends by the closed pipe.
        let status = child.wait().await.map_err(|e| e.to_string())?;
        // ssh ends with 255 if it cannot connect; a script's own status does not matter.
        if status.code() == Some(255) || output.is_empty() {
            let why = String::from_utf8_lossy(&error).trim().replace('\n', "; ");
            return Err(if why.is_empty() { status.to_string() } else { why });
        }
        Ok(Gathered { output, wall: wall.to_unix().as_secs_f64() })
    };
    match tokio::time::timeout(TIME, all).await {
        Ok(r) => r,
        Err(_) => Err(format!("no answer within {} s", TIME.as_secs())),
    }
}

/// Runs a script on this host.
pub(super) async fn here(script: &str) -> Result<Gathered, String> {
    let mut c = Command::new("sh");
    c.arg("-s");
    run(c, script).await
}

/// Runs scripts on hosts over ssh, one on each; the results are in the same order.
pub(super) async fn each(ssh: &str, scripts: Vec<(String, String)>) -> Vec<Result<Gathered, String>> {
    let slots = Rc::new(Semaphore::new(AT_A_TIME));
    let tasks: Vec<_> = scripts
        .into_iter()
        .map(|(target, script)| {
            let slots = Rc::clone(&slots);
            let mut words = ssh.split_whitespace();
            let mut c = Command::new(words.next().unwrap_or("ssh"));
            c.args(words).arg(target).arg("sh -s");
            tokio::task::spawn_local(async move {
                let _slot = slots.acquire().await;
                run(c, &script).await
            })
        })
        .collect();
    let mut out = Vec::new();
    for t in tasks {
        out.push(t.await.unwrap_or_else(|e| Err(e.to_string())));
    }
    out
}
