//! Requests and answers of HTTP/1.1, one of each on a connection.

/// Longest head of a request, in bytes, and most header lines.
pub const HEAD_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Longest body of a request, in bytes.
pub const BODY_MAX: usize = 32 << 10;

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Asks for something.
    Get,
    /// Changes something.
    Post,
}

/// A whole request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// `HEAD`: as [`Method::Get`], but only the head of the answer is sent.
    pub head_only: bool,
    /// Path without query.
    pub path: String,
    /// Body; empty for [`Method::Get`].
    pub body: Vec<u8>,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Value of the only header of this name, which is given in lower case; `None` if there is none or several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        all.next().filter(|_| all.next().is_none())
    }

    /// Value of a cookie.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let pairs = self.header("cookie")?.split(';');
        pairs.filter_map(|p| p.trim().split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

/// Refusal of a request that is no valid HTTP, or beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not HTTP/1.1.
    #[error("400 Bad Request")]
    Bad,
    /// Another method.
    #[error("405 Method Not Allowed")]
    Method,
    /// A body beyond [`BODY_MAX`].
    #[error("413 Content Too Large")]
    Body,
    /// A body without `Content-Length`.
    #[error("411 Length Required")]
    Length,
    /// A head beyond [`HEAD_MAX`].
    #[error("431 Request Header Fields Too Large")]
    Head,
}

/// Reads a request from the bytes that have arrived; `None` if more have to.
///
/// # Errors
/// See [`Refusal`].
pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut r = httparse::Request::new(&mut headers);
    let head = match r.parse(bytes) {
        Ok(httparse::Status::Complete(n)) if n <= HEAD_MAX => n,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::Head),
        Err(_) => return Err(Refusal::Bad),
    };
    let method = match r.method {
        Some("GET" | "HEAD") => Method::Get,
        Some("POST") => Method::Post,
        _ => return Err(Refusal::Method),
    };
    let text = |v: &[u8]| String::from_utf8_lossy(v).trim().to_owned();
    let head_only = r.method == Some("HEAD");
    let headers = r.headers.iter().map(|h| (h.name.to_ascii_lowercase(), text(h.value))).collect();
    let path = r.path.unwrap_or("/").split('?').next().unwrap_or("/").to_owned();
    let mut request = Request { method, head_only, path, body: Vec::new(), headers };
    if method == Method::Post {
        if request.headers.iter().any(|(n, _)| n == "transfer-encoding") {
            return Err(Refusal::Length);
        }
        let length = request.header("content-length").ok_or(Refusal::Length)?;
        let length: usize = length.parse().map_err(|_| Refusal::Bad)?;
        if length > BODY_MAX {
            return Err(Refusal::Body);
        }
        match bytes.get(head..head + length) {
            Some(body) => request.body = body.to_vec(),
            None => return Ok(None),
        }
    }
    Ok(Some(request))
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: &'static str,
    kind: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    /// An answer with a body of this content type.
    #[must_use]
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, kind, headers: Vec::new(), body: body.into() }
    }

    /// A status with its own text as body.
    #[must_use]
    pub fn plain(status: &'static str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{status}\n"))
    }

    /// The answer with another header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Status code and reason.
    #[must_use]
    pub fn status(&self) -> &'static str {
        self.status
    }

    /// Body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The bytes to send, after which the connection is closed.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.head();
        out.extend_from_slice(&self.body);
        out
    }

    /// The bytes before the body.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut out = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        for (name, value) in &self.headers {
            // A line end in a value would begin another header.
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            out += &format!("{name}: {value}\r\n");
        }
        out += "\r\n";
        out.into_bytes()
    }
}

impl From<Refusal> for Answer {
    fn from(r: Refusal) -> Self {
        Self::plain(match r {
            Refusal::Bad => "400 Bad Request",
            Refusal::Method => "405 Method Not Allowed",
            Refusal::Body => "413 Content Too Large",
            Refusal::Length => "411 Length Required",
            Refusal::Head => "431 Request Header Fields Too Large",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_in_parts() {
        let whole = b"POST /a?x=1 HTTP/1.1\r\nHost: h\r\nCookie: a=b; s=t\r\nContent-Length: 3\r\n\r\nxyz";
        for n in 0..whole.len() {
            assert_eq!(parse(&whole[..n]), Ok(None), "{n}");
        }
        let r = parse(whole).unwrap().unwrap();
        assert_eq!((r.method, r.path.as_str(), r.body.as_slice()), (Method::Post, "/a", b"xyz".as_slice()));
        assert_eq!((r.header("host"), r.cookie("s"), r.cookie("x")), (Some("h"), Some("t"), None));
        let get = parse(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap().unwrap();
        assert_eq!((get.path.as_str(), get.header("host")), ("/metrics", None), "a header twice is none");
        let head = parse(b"HEAD / HTTP/1.1\r\n\r\n").unwrap().unwrap();
        assert_eq!((head.method, head.head_only, get.head_only), (Method::Get, true, false));
    }

    #[test]
    fn hostile_requests_are_refused() {
        assert_eq!(parse(b"PUT / HTTP/1.1\r\n\r\n"), Err(Refusal::Method));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00"), Err(Refusal::Bad), "a TLS client");
        assert_eq!(parse(&[b"GET /".as_slice(), &vec![b'a'; HEAD_MAX]].concat()), Err(Refusal::Head));
        assert_eq!(parse(&[b"GET / HTTP/1.1\r\n".as_slice(), &b"A: b\r\n".repeat(65)].concat()), Err(Refusal::Head));
        let post = |headers: &str| parse(format!("POST / HTTP/1.1\r\n{headers}\r\n").as_bytes());
        assert_eq!(post(""), Err(Refusal::Length));
        assert_eq!(post("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), Err(Refusal::Length));
        assert_eq!(post("Content-Length: 1\r\nContent-Length: 2\r\n"), Err(Refusal::Length));
        assert_eq!(post("Content-Length: -1\r\n"), Err(Refusal::Bad));
        assert_eq!(post("Content-Length: 99999999999999999999\r\n"), Err(Refusal::Bad));
        assert_eq!(post("Content-Length: 40000\r\n"), Err(Refusal::Body));
    }

    #[test]
    fn an_answer_cannot_be_split() {
        let a = Answer::new("200 OK", "text/plain", "x").with("X", "a\r\nSet-Cookie: b");
        let text = String::from_utf8(a.bytes()).unwrap();
        assert!(text.contains("\r\nX: aSet-Cookie: b\r\n") && text.ends_with("\r\n\r\nx"), "{text}");
        assert_eq!(text.strip_suffix('x').map(str::as_bytes), Some(a.head().as_slice()));
    }
}
