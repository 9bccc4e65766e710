//! A self-signed certificate for TLS: X.509 v3 with an ECDSA key on P-256, as DER.
//!
//! RFC 5280 describes the structure. Only what a browser wants to see is there: names of the host as alternative names,
//! no authority, a use as a server.

use base::Utime;
use base64::Engine as _;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use std::net::IpAddr;
use std::time::Duration;

/// Time for which a certificate is valid: ten years, as Ceph's.
const VALID: Duration = Duration::from_secs(3650 * 24 * 3600);
/// Longest name.
const NAME_MAX: usize = 64;
/// Bytes of a line of PEM.
const PEM_LINE: usize = 64;

/// A certificate with its private key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// The system has no randomness, or the key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no key could be made")]
pub struct NoKey;

/// An element: tag, length, content.
fn tlv(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let n: usize = content.iter().map(|c| c.len()).sum();
    let mut out = vec![tag];
    let bytes = n.to_be_bytes();
    let first = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len() - 1);
    let short = bytes.get(first..).unwrap_or_default();
    if n < 128 {
        out.push(n as u8);
    } else {
        out.push(0x80 | short.len() as u8);
        out.extend_from_slice(short);
    }
    content.iter().for_each(|c| out.extend_from_slice(c));
    out
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const UTF8: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERAL_TIME: u8 = 0x18;

/// Object identifiers, encoded.
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const EXTENDED_USE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// A time as `YYMMDDHHMMSSZ`, and from 2050 on with the whole year.
fn time(t: Utime) -> Vec<u8> {
    let [y, m, d, h, min, s] = t.utc();
    let rest = format!("{m:02}{d:02}{h:02}{min:02}{s:02}Z");
    match y {
        2050.. => tlv(GENERAL_TIME, &[format!("{y:04}{rest}").as_bytes()]),
        _ => tlv(UTC_TIME, &[format!("{:02}{rest}", y % 100).as_bytes()]),
    }
}

fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[0x01, 0x01, 0xff] } else { &[] };
    tlv(SEQUENCE, &[&tlv(OID, &[oid]), critical, &tlv(OCTETS, &[value])])
}

fn alternative_names(hosts: &[String]) -> Vec<u8> {
    let names: Vec<Vec<u8>> = hosts
        .iter()
        .map(|h| match h.parse::<IpAddr>() {
            Ok(IpAddr::V4(a)) => tlv(0x87, &[&a.octets()]),
            Ok(IpAddr::V6(a)) => tlv(0x87, &[&a.octets()]),
            Err(_) => tlv(0x82, &[h.as_bytes()]),
        })
        .collect();
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    tlv(SEQUENCE, &names)
}

fn pem(kind: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(PEM_LINE).filter_map(|c| std::str::from_utf8(c).ok()).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

/// True for what may stand as a name in a certificate.
fn is_name(h: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    !h.is_empty() && h.len() <= NAME_MAX && h.chars().all(is_good)
}

/// A new key with a certificate for names and addresses of a host, valid from the day before `now`. Others than names and
/// addresses are left out.
///
/// # Errors
/// [`NoKey`]
pub fn self_signed(hosts: &[String], now: Utime) -> Result<Identity, NoKey> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(|_| NoKey)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random).map_err(|_| NoKey)?;
    let hosts: Vec<String> = hosts.iter().filter(|h| is_name(h)).cloned().collect();
    let first = hosts.first().map_or("belemnite", String::as_str);
    let algorithm = tlv(SEQUENCE, &[&tlv(OID, &[ECDSA_SHA256])]);
    let name =
        tlv(SEQUENCE, &[&tlv(SET, &[&tlv(SEQUENCE, &[&tlv(OID, &[COMMON_NAME]), &tlv(UTF8, &[first.as_bytes()])])])]);
    let mut serial = [0; 16];
    ring::rand::SecureRandom::fill(&random, &mut serial).map_err(|_| NoKey)?;
    // Positive, and without a leading zero.
    if let Some(b) = serial.first_mut() {
        *b = *b & 0x3f | 0x40;
    }
    let day = Duration::from_secs(24 * 3600);
    let from = Utime { sec: now.sec.saturating_sub(day.as_secs() as u32), nsec: 0 };
    let public = tlv(
        SEQUENCE,
        &[&tlv(SEQUENCE, &[&tlv(OID, &[EC_KEY]), &tlv(OID, &[P256])]), &tlv(BITS, &[&[0], pair.public_key().as_ref()])],
    );
    let extensions = tlv(
        SEQUENCE,
        &[
            &extension(ALTERNATIVE_NAMES, false, &alternative_names(&hosts)),
            &extension(BASIC_CONSTRAINTS, true, &tlv(SEQUENCE, &[])),
            &extension(EXTENDED_USE, false, &tlv(SEQUENCE, &[&tlv(OID, &[SERVER])])),
        ],
    );
    let body = tlv(
        SEQUENCE,
        &[
            // Version 3.
            &tlv(0xa0, &[&tlv(INTEGER, &[&[2]])]),
            &tlv(INTEGER, &[&serial]),
            &algorithm,
            &name,
            &tlv(SEQUENCE, &[&time(from), &time(now.plus(VALID))]),
            &name,
            &public,
            &tlv(0xa3, &[&extensions]),
        ],
    );
    let signature = pair.sign(&random, &body).map_err(|_| NoKey)?;
    let whole = tlv(SEQUENCE, &[&body, &algorithm, &tlv(BITS, &[&[0], signature.as_ref()])]);
    Ok(Identity { certificate: pem("CERTIFICATE", &whole), key: pem("PRIVATE KEY", key.as_ref()) })
}

/// The reason why a certificate or key cannot be used for TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("certificate or key cannot be used: {0}")]
pub struct BadIdentity(String);

impl Identity {
    /// The configuration of a server with this certificate.
    ///
    /// # Errors
    /// [`BadIdentity`]
    pub fn server(&self) -> Result<rustls::ServerConfig, BadIdentity> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let bad = |e: &dyn std::fmt::Display| BadIdentity(e.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect();
        let chain = chain.map_err(|e| bad(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| bad(&e))?;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?;
        config.with_no_client_auth().with_single_cert(chain, key).map_err(|e| bad(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Utime = Utime { sec: 1_795_000_000, nsec: 0 };

    #[test]
    fn openssl_reads_the_certificate() {
        let hosts = ["node-1.example", "10.0.0.1", "fd00::1", "bad\nname", ""].map(str::to_owned);
        let id = self_signed(&hosts, NOW).unwrap();
        assert!(id.server().is_ok());
        let path = std::env::temp_dir().join(format!("belemnite-cert-{}", std::process::id()));
        std::fs::write(&path, &id.certificate).unwrap();
        let run = |args: &[&str]| {
            let out = std::process::Command::new("openssl").args(args).arg(&path).output();
            out.map(|o| (o.status.success(), String::from_utf8_lossy(&o.stdout).into_owned()))
        };
        // Where openssl is not installed, rustls above has read it.
        if let Ok((ok, text)) = run(&["x509", "-noout", "-text", "-in"]) {
            assert!(ok, "{text}");
            for part in [
                "Version: 3",
                "CN = node-1.example",
                "Not After : Nov 15 11:06:40 2036 GMT",
                "DNS:node-1.example, IP Address:10.0.0.1, IP Address:FD00:0:0:0:0:0:0:1",
                "CA:FALSE",
                "TLS Web Server Authentication",
            ] {
                assert!(text.replace("CN=", "CN = ").contains(part), "{part}: {text}");
            }
            let signed = std::process::Command::new("openssl")
                .args(["verify", "-partial_chain", "-CAfile"])
                .arg(&path)
                .arg(&path)
                .output()
                .unwrap();
            assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn keys_are_new_each_time_and_belong_to_their_certificate() {
        let (a, b) = (self_signed(&[], NOW).unwrap(), self_signed(&[], NOW).unwrap());
        assert!(a.key != b.key && a.certificate != b.certificate);
        assert!(Identity { key: b.key, ..a.clone() }.server().is_err(), "the key of another");
        assert!(Identity { certificate: String::new(), ..a.clone() }.server().is_err());
        assert!(Identity { key: "-----BEGIN".into(), ..a }.server().is_err());
    }

    #[test]
    fn lengths_are_encoded_shortest() {
        assert_eq!(tlv(4, &[&[1; 5]])[..2], [4, 5]);
        assert_eq!(tlv(4, &[&[1; 200]])[..3], [4, 0x81, 200]);
        assert_eq!(tlv(4, &[&[1; 300]])[..4], [4, 0x82, 1, 44]);
        assert_eq!(tlv(4, &[]), [4, 0]);
    }
}
