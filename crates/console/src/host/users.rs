//! Users of the console: clients of the monitor, each with its own key.

use super::server::Answering;
use auth::CryptoKey;
use base::{AuthName, EntityAddr};
use client::host::{Client, ClientError, Options};
use serde_json::Value;
use std::rc::Rc;
use std::time::Duration;

/// Time limit for signing in at the monitor.
const SIGN_IN: Duration = Duration::from_secs(10);
/// Time limit of a command.
const COMMAND: Duration = Duration::from_secs(20);

/// Why nobody was signed in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The monitor refused name or key; which one is not told.
    #[error("name or key is wrong")]
    Refused,
    /// The monitor does not answer.
    #[error("the monitor does not answer: {0}")]
    NoMonitor(String),
}

/// Answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Zero or positive for success, or a negative errno.
    pub rc: i32,
    /// Status line.
    pub status: String,
    /// Output.
    pub out: Vec<u8>,
}

/// Someone who has signed in.
pub trait User {
    /// Name without `client.`.
    fn name(&self) -> &str;
    /// Runs a command of the monitor with the user's rights. Error: no answer.
    fn command(&self, command: Value) -> Answering<Result<Reply, String>>;
}

/// The cluster, as the console sees it.
pub trait Cluster {
    /// Signs a user in.
    fn sign_in(&self, user: &str, key: &str) -> Answering<Result<Rc<dyn User>, SignInError>>;
}

/// The monitor at an address.
#[derive(Clone, Copy, Debug)]
pub struct Monitor(pub EntityAddr);

struct Signed {
    name: String,
    client: Client,
}

impl User for Signed {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&self, command: Value) -> Answering<Result<Reply, String>> {
        let client = self.client.clone();
        Box::pin(async move {
            let command = command.to_string();
            let ask = client.mon_command(&command, Default::default());
            match tokio::time::timeout(COMMAND, ask).await {
                Ok(Ok(r)) => Ok(Reply { rc: r.rc, status: r.status, out: r.out.to_vec() }),
                Ok(Err(e)) => Err(e.to_string()),
                Err(_) => Err(format!("no answer within {} s", COMMAND.as_secs())),
            }
        })
    }
}

impl Cluster for Monitor {
    fn sign_in(&self, user: &str, key: &str) -> Answering<Result<Rc<dyn User>, SignInError>> {
        let (name, key) = (AuthName::parse(&format!("client.{user}")), CryptoKey::from_base64(key));
        let (user, mon) = (user.to_owned(), self.0);
        Box::pin(async move {
            let (Some(name), Ok(key)) = (name, key) else { return Err(SignInError::Refused) };
            let options = Options {
                mons: vec![mon],
                name,
                key: Some(key),
                fsid: None,
                timeout: SIGN_IN,
                modes: net::modes::Modes::default(),
                mds: false,
            };
            match Client::connect(options).await {
                Ok(client) => Ok(Rc::new(Signed { name: user, client }) as Rc<dyn User>),
                Err(ClientError::Auth(_)) => Err(SignInError::Refused),
                Err(e) => Err(SignInError::NoMonitor(e.to_string())),
            }
        })
    }
}
