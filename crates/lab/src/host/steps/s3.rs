//! A connection to an S3 gateway that sends one signed request at a time.

use super::{Done, StepError};
use crate::load::http::Reply;
use crate::load::sigv4::{self, Request, Signer, UNSIGNED};
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes read at once.
const READ: usize = 64 << 10;
/// Bytes kept of the body of an error.
const ERROR_MAX: usize = 4 << 10;
/// Bytes kept of a page of names.
pub(super) const PAGE_MAX: usize = 4 << 20;
/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection; it is opened by the first request, and again if the gateway has closed it.
pub(super) struct Conn {
    /// `HOST:PORT`.
    host: String,
    signer: Signer,
    stream: Option<TcpStream>,
    buf: Vec<u8>,
}

/// One request.
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    /// Path, percent-encoded.
    pub(super) path: &'a str,
    /// Query, percent-encoded and sorted by name.
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
    /// Bytes kept of the reply's body.
    pub(super) keep: usize,
}

/// `HOST:PORT` of an endpoint given as a URL or in that form; `None` for other protocols than HTTP.
pub(super) fn host(endpoint: &str) -> Option<String> {
    let rest = match endpoint.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return None,
        None => endpoint,
    };
    let rest = rest.trim_end_matches('/');
    if rest.is_empty() || rest.contains('/') {
        return None;
    }
    let has_port = rest.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
    Some(if has_port { rest.to_owned() } else { format!("{rest}:80") })
}

impl Conn {
    pub(super) fn new(host: &str, keys: sigv4::Keys) -> Self {
        Self { host: host.to_owned(), signer: Signer::new(keys), stream: None, buf: vec![0; READ] }
    }

    /// Another connection to the same gateway.
    pub(super) fn again(&self) -> Self {
        Self { host: self.host.clone(), signer: self.signer.clone(), stream: None, buf: vec![0; READ] }
    }

    /// Sends a request and reads its reply. A reply with an error status is returned like any other.
    pub(super) async fn call(&mut self, c: &Call<'_>) -> Result<(Reply, Done), StepError> {
        let fresh = self.stream.is_none();
        match self.limited(c).await {
            // The gateway closes idle connections: the request is tried once more on a new one.
            Err(_) if !fresh => {
                self.stream = None;
                self.limited(c).await
            }
            r => r,
        }
        .map_err(|e| {
            self.stream = None;
            StepError(format!("{}: {e}", self.host))
        })
    }

    async fn limited(&mut self, c: &Call<'_>) -> io::Result<(Reply, Done)> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {LIMIT:?}"));
        tokio::time::timeout(LIMIT, self.once(c)).await.map_err(|_| late())?
    }

    async fn once(&mut self, c: &Call<'_>) -> io::Result<(Reply, Done)> {
        let date = sigv4::date(reactor::clock::read().wall);
        let headers = [("host", self.host.as_str()), ("x-amz-content-sha256", UNSIGNED), ("x-amz-date", &date)];
        let signed = Request { method: c.method, path: c.path, query: c.query, headers: &headers, payload: UNSIGNED };
        let authorization = self.signer.authorization(&date, &signed);
        let query = if c.query.is_empty() { String::new() } else { format!("?{}", c.query) };
        let mut out = format!(
            "{} {}{query} HTTP/1.1\r\nhost: {}\r\nx-amz-content-sha256: {UNSIGNED}\r\nx-amz-date: {date}\r\n\
             authorization: {authorization}\r\ncontent-length: {}\r\n\r\n",
            c.method,
            c.path,
            self.host,
            c.body.len()
        )
        .into_bytes();
        out.extend_from_slice(c.body);
        let stream = match &mut self.stream {
            Some(s) => s,
            none => {
                let s = TcpStream::connect(&self.host).await?;
                s.set_nodelay(true)?;
                none.insert(s)
            }
        };
        stream.write_all(&out).await?;
        let mut reply = Reply::new(c.method == "HEAD", c.keep.max(ERROR_MAX));
        let mut first = None;
        loop {
            let n = stream.read(&mut self.buf).await?;
            if n == 0 {
                if reply.closed() {
                    break;
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            first.get_or_insert_with(Instant::now);
            let bad = |e| io::Error::new(io::ErrorKind::InvalidData, e);
            if reply.feed(self.buf.get(..n).unwrap_or_default()).map_err(bad)? {
                break;
            }
        }
        if !reply.reusable {
            self.stream = None;
        }
        let bytes = reply.length;
        Ok((reply, Done { first, bytes }))
    }
}

/// Text of an error reply: the status, and the code in the body.
pub(super) fn refusal(r: &Reply) -> StepError {
    let text = String::from_utf8_lossy(&r.body);
    let code = text.split_once("<Code>").and_then(|(_, t)| t.split_once("</Code>")).map_or("", |(c, _)| c);
    StepError(format!("status {} {code}", r.status))
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn endpoints() {
        assert_eq!(host("http://127.0.0.1:7480/").as_deref(), Some("127.0.0.1:7480"));
        assert_eq!(host("s3.example").as_deref(), Some("s3.example:80"));
        assert_eq!(host("[::1]").as_deref(), Some("[::1]:80"));
        assert_eq!(host("https://s3.example"), None);
        assert_eq!(host("http://s3.example/bucket"), None);
    }
}
