//! Commands of the console (`dashboard`): its certificate. The console itself is `host::console`.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, flag as cf, invalid, refuse};
use crate::state::modules::{CERTIFICATE, PRIVATE_KEY};
use base::errno;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "dashboard create-self-signed-cert",
        "mgr",
        "w",
        cf::MGR,
        create,
        "give the console a new certificate, signed by itself",
    ),
    cmd(
        "dashboard set-ssl-certificate mgr_id:String?",
        "mgr",
        "w",
        cf::MGR,
        |c| set(c, CERTIFICATE, "CERTIFICATE-----"),
        "give the console this certificate",
    ),
    cmd(
        "dashboard set-ssl-certificate-key mgr_id:String?",
        "mgr",
        "w",
        cf::MGR,
        |c| set(c, PRIVATE_KEY, "PRIVATE KEY-----"),
        "give the console the private key of its certificate",
    ),
];

/// Longest certificate chain or key, in bytes.
const PEM_MAX: usize = 64 << 10;

/// Removes the certificate; the console makes a new one when it misses it.
fn create(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    for key in [CERTIFICATE, PRIVATE_KEY] {
        c.pending.set_kv(key.to_owned(), None);
    }
    committed("Self-signed certificate created")
}

fn set(c: &mut Ctx<'_>, key: &str, word: &str) -> Res<CommandOutcome> {
    if c.args.opt("mgr_id").is_some() {
        return refuse(errno::EOPNOTSUPP, "all monitors use the same certificate; leave the manager's name out");
    }
    let input = c.input.clone();
    if input.is_empty() {
        return invalid("Please specify the certificate file with `-i` option");
    }
    let is_pem = input.len() <= PEM_MAX && std::str::from_utf8(&input).is_ok_and(|t| t.contains(word));
    if !is_pem {
        return invalid(format!("the input is no PEM with `{word}`, or has more than {PEM_MAX} bytes"));
    }
    c.pending.set_kv(key.to_owned(), Some(input));
    committed(if key == CERTIFICATE { "SSL certificate updated" } else { "SSL certificate key updated" })
}
