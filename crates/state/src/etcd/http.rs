//! The subset of HTTP/1.1 that etcd's JSON gateway needs: POST with a body; a reply with a body or a stream of lines;
//! over TCP or TLS. Blocking, with timeouts; input is bounded.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Longest response header in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Longest body, and longest line of a stream, in bytes.
const BODY_MAX: usize = 96 << 20;
/// Bytes read at once.
const READ: usize = 64 << 10;

/// Address of an etcd member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Endpoint {
    /// Parses `http://HOST:PORT` or `https://HOST:PORT`; the default is etcd's port.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (tls, rest) = match url.split_once("://")? {
            ("http", r) => (false, r),
            ("https", r) => (true, r),
            _ => return None,
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((h, p)) if !p.ends_with(']') => (h, p.parse().ok()?),
            _ => (rest, 2379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        (!host.is_empty() && !host.contains('/')).then_some(Self { tls, host, port })
    }

    /// True if the address is only reachable from this machine.
    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|a| a.is_loopback())
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, b: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(s) => s.read(b),
            Self::Tls(s) => s.read(b),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(s) => s.write(b),
            Self::Tls(s) => s.write(b),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(s) => s.flush(),
            Self::Tls(s) => s.flush(),
        }
    }
}

/// Framing of the rest of a body.
enum Body {
    /// Bytes that remain.
    Length(usize),
    /// Chunked; bytes of the current chunk that remain.
    Chunked(usize),
    /// Until the connection closes.
    ToEnd,
    Done,
}

/// A connection to a member.
pub(super) struct Conn {
    stream: Stream,
    host: String,
    input: Vec<u8>,
    body: Body,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("HTTP: {what}"))
}

/// The newest known addresses of hosts.
static KNOWN: Mutex<BTreeMap<(String, u16), Vec<SocketAddr>>> = Mutex::new(BTreeMap::new());

/// Addresses of a member. A name that is not resolved within `timeout` has its last known addresses: a name server that
/// hangs must not cost the leader its lease. Error: a name that was never resolved.
fn addresses(host: &str, port: u16, timeout: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let key = (host.to_owned(), port);
    let known = || KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (tx, rx) = std::sync::mpsc::channel();
    let name = key.clone();
    // The resolver has no time limit of its own. Its thread ends when it does.
    std::thread::Builder::new().name("etcd-name".into()).spawn(move || {
        let _ = tx.send((name.0.as_str(), name.1).to_socket_addrs().map(Vec::from_iter));
    })?;
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("the name {host} is not resolved in time"));
    match rx.recv_timeout(timeout / 2).unwrap_or_else(|_| Err(late())) {
        Ok(found) => {
            known().insert(key, found.clone());
            Ok(found)
        }
        Err(e) => known().get(&key).cloned().ok_or(e),
    }
}

impl Conn {
    /// Connects; `https` needs `tls`. `timeout` applies to connecting and to each read and write.
    pub(super) fn connect(e: &Endpoint, tls: Option<&Arc<ClientConfig>>, timeout: Duration) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for addr in addresses(&e.host, e.port, timeout)? {
            match TcpStream::connect_timeout(&addr, timeout) {
                Ok(s) => {
                    s.set_nodelay(true)?;
                    s.set_read_timeout(Some(timeout))?;
                    s.set_write_timeout(Some(timeout))?;
                    let stream = match tls.filter(|_| e.tls) {
                        Some(config) => {
                            let name = ServerName::try_from(e.host.clone()).map_err(|_| bad("no name for TLS"))?;
                            let c = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                            Stream::Tls(Box::new(StreamOwned::new(c, s)))
                        }
                        None if e.tls => return Err(bad("TLS is not configured")),
                        None => Stream::Plain(s),
                    };
                    let host = format!("{}:{}", e.host, e.port);
                    return Ok(Self { stream, host, input: Vec::new(), body: Body::Done });
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(s) => s,
            Stream::Tls(s) => &s.sock,
        }
    }

    /// Second handle of the socket, with which another thread can interrupt a read.
    pub(super) fn stopper(&self) -> io::Result<impl Fn() + Send + use<>> {
        let s = self.tcp().try_clone()?;
        Ok(move || drop(s.shutdown(Shutdown::Both)))
    }

    /// Changes the timeout of reads.
    pub(super) fn set_read_timeout(&self, d: Duration) -> io::Result<()> {
        self.tcp().set_read_timeout(Some(d))
    }

    /// Sends a request. After an error it may have been received nevertheless.
    pub(super) fn send(&mut self, path: &str, token: Option<&str>, body: &str) -> io::Result<()> {
        let auth = token.map(|t| format!("Authorization: {t}\r\n")).unwrap_or_default();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{auth}Content-Length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        let mut all = head.into_bytes();
        all.extend_from_slice(body.as_bytes());
        self.stream.write_all(&all)?;
        self.stream.flush()
    }

    /// Sends a request without a body.
    pub(super) fn get(&mut self, path: &str) -> io::Result<()> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(head.as_bytes())?;
        self.stream.flush()
    }

    fn fill(&mut self) -> io::Result<()> {
        let at = self.input.len();
        self.input.resize(at + READ, 0);
        let got = self.stream.read(self.input.get_mut(at..).unwrap_or_default());
        self.input.truncate(at + got.as_ref().map_or(0, |n| *n));
        match got {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Reads a line, without its end.
    fn line(&mut self, max: usize) -> io::Result<String> {
        let mut from = 0;
        loop {
            if let Some(n) = self.input.get(from..).and_then(|b| b.iter().position(|c| *c == b'\n')) {
                let line: Vec<u8> = self.input.drain(..=from + n).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            from = self.input.len();
            if from > max {
                return Err(bad("line too long"));
            }
            self.fill()?;
        }
    }

    /// Reads a response header; returns the status.
    pub(super) fn head(&mut self) -> io::Result<u16> {
        let status = self.line(HEAD_MAX)?;
        let code = status.strip_prefix("HTTP/1.").and_then(|s| s.get(2..5)).and_then(|s| s.parse().ok());
        let code = code.ok_or_else(|| bad("no status"))?;
        self.body = Body::ToEnd;
        let mut bytes = 0;
        loop {
            let line = self.line(HEAD_MAX)?;
            bytes += line.len();
            if line.is_empty() {
                return Ok(code);
            }
            if bytes > HEAD_MAX {
                return Err(bad("head too long"));
            }
            let Some((name, value)) = line.split_once(':') else { return Err(bad("header")) };
            if name.eq_ignore_ascii_case("content-length") {
                let n = value.trim().parse().map_err(|_| bad("length"))?;
                self.body = Body::Length(n);
            } else if name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked") {
                self.body = Body::Chunked(0);
            }
        }
    }

    /// Reads the next bytes of a body; empty at its end.
    fn some_body(&mut self) -> io::Result<Vec<u8>> {
        let left = match &mut self.body {
            Body::Done | Body::Length(0) => {
                self.body = Body::Done;
                return Ok(Vec::new());
            }
            Body::Chunked(0) => {
                let size = self.line(HEAD_MAX)?;
                let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
                let size = size.map_err(|_| bad("chunk"))?;
                if size == 0 {
                    while !self.line(HEAD_MAX)?.is_empty() {}
                    self.body = Body::Done;
                    return Ok(Vec::new());
                }
                self.body = Body::Chunked(size);
                size
            }
            Body::Length(n) | Body::Chunked(n) => *n,
            Body::ToEnd => usize::MAX,
        };
        if self.input.is_empty() {
            match self.fill() {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && matches!(self.body, Body::ToEnd) => {
                    self.body = Body::Done;
                    return Ok(Vec::new());
                }
                r => r?,
            }
        }
        let n = left.min(self.input.len());
        let out: Vec<u8> = self.input.drain(..n).collect();
        match &mut self.body {
            Body::Length(l) => *l -= n,
            Body::Chunked(l) => {
                *l -= n;
                if *l == 0 {
                    // Line end after the chunk.
                    self.line(2)?;
                }
            }
            Body::ToEnd | Body::Done => {}
        }
        Ok(out)
    }

    /// Reads the whole body.
    pub(super) fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let some = self.some_body()?;
            if some.is_empty() {
                return Ok(all);
            }
            if all.len() + some.len() > BODY_MAX {
                return Err(bad("body too long"));
            }
            all.extend(some);
        }
    }

    /// Reads the next line of a streamed body; `None` at its end. `partial` keeps an incomplete line, so that the call
    /// can be repeated after a timeout error.
    pub(super) fn stream_line(&mut self, partial: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(n) = partial.iter().position(|c| *c == b'\n') {
                let rest = partial.split_off(n + 1);
                let mut line = std::mem::replace(partial, rest);
                line.pop();
                if !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            let some = self.some_body()?;
            if some.is_empty() {
                return Ok(None);
            }
            if partial.len() + some.len() > BODY_MAX {
                return Err(bad("line too long"));
            }
            partial.extend(some);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answer(text: &'static [u8]) -> Conn {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = l.local_addr().unwrap().port();
        let e = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        std::thread::spawn(move || {
            let (mut s, _) = l.accept().unwrap();
            s.write_all(text).unwrap();
        });
        Conn::connect(&e, None, Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn bodies_of_all_framings() {
        let mut c = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n");
        assert_eq!(c.head().unwrap(), 200);
        assert_eq!(c.body().unwrap(), b"hello");
        assert_eq!(c.head().unwrap(), 404, "the connection is used again");
        assert_eq!(c.body().unwrap(), b"abcde");
        let mut c = answer(b"HTTP/1.0 200 OK\r\n\r\nto the end");
        assert_eq!(c.head().unwrap(), 200);
        assert_eq!(c.body().unwrap(), b"to the end");
    }

    #[test]
    fn lines_of_a_stream_come_whole() {
        let mut c = answer(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab\nc\r\n3\r\nd\n\n\r\n2\r\ne\n\r\n0\r\n\r\n",
        );
        c.head().unwrap();
        let mut partial = Vec::new();
        let mut lines = Vec::new();
        while let Some(l) = c.stream_line(&mut partial).unwrap() {
            lines.push(l);
        }
        assert_eq!(lines, [&b"ab"[..], b"cd", b"e"]);
    }

    #[test]
    fn garbage_and_cut_answers_are_errors() {
        for text in [
            &b"SSH-2.0\r\n"[..],
            b"HTTP/1.1 x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        ] {
            let mut c = answer(text);
            assert!(c.head().and_then(|_| c.body()).is_err(), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn endpoints() {
        let e = |s: &str| Endpoint::parse(s).map(|e| (e.tls, e.host.clone(), e.port, e.is_loopback()));
        assert_eq!(e("http://127.0.0.1:1234"), Some((false, "127.0.0.1".into(), 1234, true)));
        assert_eq!(e("https://[::1]:99/"), Some((true, "::1".into(), 99, true)));
        assert_eq!(e("https://etcd-1.example"), Some((true, "etcd-1.example".into(), 2379, false)));
        assert_eq!(e("ftp://x"), None);
        assert_eq!(e("127.0.0.1:1"), None);
        assert_eq!(e("http://:1"), None);
    }

    #[test]
    fn a_name_that_is_not_resolved_keeps_its_addresses() {
        let (host, port) = ("etcd.belemnite.invalid", 2379);
        let limit = Duration::from_secs(20);
        assert!(addresses(host, port, limit).is_err(), "it was never known");
        let last = vec![SocketAddr::from(([127, 0, 0, 9], port))];
        KNOWN.lock().unwrap().insert((host.into(), port), last.clone());
        assert_eq!(addresses(host, port, limit).unwrap(), last);
        assert_eq!(addresses(host, port, Duration::ZERO).unwrap(), last, "also if the resolver takes its time");
        assert_eq!(addresses("::1", 5, Duration::ZERO).unwrap(), vec!["[::1]:5".parse().unwrap()]);
    }
}
