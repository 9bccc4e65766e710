//! Certificates of etcd's members, made by `openssl`.

use super::Error;
use super::dir::Dir;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

/// Days for which certificates are valid.
const DAYS: &str = "7300";

/// Certificates of a member.
pub(super) struct Certificates {
    /// The authority's certificate.
    pub(super) authority: String,
    /// The member's certificate, as server, peer and client.
    pub(super) own: String,
    /// Its key.
    pub(super) key: String,
}

fn openssl(args: &[&str]) -> Result<(), Error> {
    let out =
        Command::new("openssl").args(args).output().map_err(|e| format!("openssl, which makes certificates: {e}"))?;
    if !out.status.success() {
        return Err(format!("openssl {}: {}", args[0], String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    Ok(())
}

fn text(p: &Path) -> Result<&str, Error> {
    Ok(p.to_str().ok_or("a path that is not UTF-8")?)
}

/// Makes a key and a certificate in two files that appear at once.
fn make(dir: &Dir, name: &str, subject: &str, extensions: &str, signed: bool) -> Result<(), Error> {
    let (key, crt) = (dir.at(&format!("tls/{name}.key")), dir.at(&format!("tls/{name}.crt")));
    if key.exists() && crt.exists() {
        return Ok(());
    }
    let (ca_key, ca) = (dir.at("tls/ca.key"), dir.at("tls/ca.crt"));
    let new_crt = crt.with_extension("new");
    let conf = dir.at(&format!("tls/{name}.cnf"));
    let config = format!(
        "[req]\ndistinguished_name=dn\nprompt=no\nx509_extensions=v3\n[dn]\nCN={subject}\n[v3]\n{extensions}\n"
    );
    dir.write(&format!("tls/{name}.cnf"), &config)?;
    openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", text(&key)?])?;
    let mut args = vec!["req", "-x509", "-new", "-sha256", "-days", DAYS, "-config", text(&conf)?];
    args.extend(["-key", text(&key)?, "-out", text(&new_crt)?]);
    if signed {
        args.extend(["-CA", text(&ca)?, "-CAkey", text(&ca_key)?]);
    }
    openssl(&args)?;
    // The certificate appears last: a pair that was cut short is made again.
    std::fs::rename(&new_crt, &crt)?;
    std::fs::remove_file(&conf)?;
    Ok(())
}

/// Makes the authority at its first use; returns the digest of its certificate.
pub(super) fn authority(dir: &Dir) -> Result<String, Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir.at("tls"))?;
    let extensions = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign";
    make(dir, "ca", "belemnite etcd", extensions, false)?;
    Ok(deploy::conf::digest(&dir.read("tls/ca.crt")?.unwrap_or_default()))
}

/// The certificates of a member, which are made at their first use.
pub(super) fn member(dir: &Dir, host: &str, address: IpAddr) -> Result<Certificates, Error> {
    let extensions = format!(
        "basicConstraints=critical,CA:false\nkeyUsage=critical,digitalSignature\n\
         extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=IP:{address},DNS:{host}"
    );
    // A host with another address needs another certificate.
    let name = format!("{host}-{address}").replace(':', "_");
    make(dir, &name, host, &extensions, true)?;
    let read = |n: &str| -> Result<String, Error> { dir.read(n)?.ok_or_else(|| format!("{n} is missing").into()) };
    Ok(Certificates {
        authority: read("tls/ca.crt")?,
        own: read(&format!("tls/{name}.crt"))?,
        key: read(&format!("tls/{name}.key"))?,
    })
}
