//! Reader of HTTP/1.1 replies: status, and a body that is counted and, up to a limit, kept.
//!
//! Input comes in pieces of any size. A reply is refused if its head is longer than [`HEAD_MAX`].

/// Longest head of a reply in bytes.
pub const HEAD_MAX: usize = 64 << 10;
/// Longest line between chunks in bytes.
const LINE_MAX: usize = 1024;

/// Reason why a reply cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// The head is not one of HTTP/1.x, or too long.
    #[error("not the head of an HTTP reply")]
    Head,
    /// The framing of the body is wrong.
    #[error("the body's framing is wrong")]
    Body,
    /// Bytes follow the reply.
    #[error("bytes after the reply")]
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// Bytes that remain of a body of known length.
    Length(u64),
    /// Line with the size of the next chunk.
    ChunkLine,
    /// Bytes that remain of a chunk.
    Chunk(u64),
    /// Line end after a chunk.
    ChunkEnd,
    /// Lines after the last chunk.
    Trailer,
    /// Until the connection closes.
    ToEnd,
    Done,
}

/// A reply as far as it has been read.
#[derive(Debug)]
pub struct Reply {
    state: State,
    /// Head or line that is not complete.
    text: Vec<u8>,
    /// Status code; 0 until the head is complete.
    pub status: u16,
    /// Bytes of the body so far.
    pub length: u64,
    /// The body's first bytes, at most as many as wanted.
    pub body: Vec<u8>,
    /// Whether the connection can be used for another request.
    pub reusable: bool,
    keep: usize,
    /// Whether the request was `HEAD`, whose reply has no body.
    head_only: bool,
}

impl Reply {
    /// A reply of which at most `keep` bytes of the body are kept.
    #[must_use]
    pub fn new(head_only: bool, keep: usize) -> Self {
        Self {
            state: State::Head,
            text: Vec::new(),
            status: 0,
            length: 0,
            body: Vec::new(),
            reusable: true,
            keep,
            head_only,
        }
    }

    /// Takes in bytes; true once the reply is complete. Error: a malformed reply, or bytes after its end.
    pub fn feed(&mut self, mut b: &[u8]) -> Result<bool, BadReply> {
        while !b.is_empty() {
            b = match self.state {
                State::Done => return Err(BadReply::Rest),
                State::Head => self.head(b)?,
                State::Length(n) => {
                    let rest = self.take(b, n);
                    self.state = match n - (b.len() - rest.len()) as u64 {
                        0 => State::Done,
                        n => State::Length(n),
                    };
                    rest
                }
                State::Chunk(n) => {
                    let rest = self.take(b, n);
                    self.state = match n - (b.len() - rest.len()) as u64 {
                        0 => State::ChunkEnd,
                        n => State::Chunk(n),
                    };
                    rest
                }
                State::ToEnd => self.take(b, u64::MAX),
                State::ChunkLine | State::ChunkEnd | State::Trailer => self.line(b)?,
            };
        }
        Ok(self.state == State::Done)
    }

    /// The connection was closed; true if that ends the reply.
    #[must_use]
    pub fn closed(&mut self) -> bool {
        self.reusable = false;
        matches!(self.state, State::ToEnd | State::Done)
    }

    /// Counts and keeps up to `n` bytes of the body; returns the rest.
    fn take<'b>(&mut self, b: &'b [u8], n: u64) -> &'b [u8] {
        let (mine, rest) = b.split_at(b.len().min(usize::try_from(n).unwrap_or(usize::MAX)));
        self.length += mine.len() as u64;
        let room = self.keep.saturating_sub(self.body.len());
        self.body.extend_from_slice(mine.get(..room.min(mine.len())).unwrap_or_default());
        rest
    }

    fn head<'b>(&mut self, b: &'b [u8]) -> Result<&'b [u8], BadReply> {
        let before = self.text.len();
        self.text.extend_from_slice(b.get(..b.len().min(HEAD_MAX)).unwrap_or_default());
        let from = before.saturating_sub(3);
        let end = self.text.get(from..).and_then(|t| t.windows(4).position(|w| w == b"\r\n\r\n"));
        let Some(end) = end.map(|at| from + at + 4) else {
            return if self.text.len() >= HEAD_MAX { Err(BadReply::Head) } else { Ok(&[]) };
        };
        let head = std::mem::take(&mut self.text);
        let head = std::str::from_utf8(head.get(..end).unwrap_or_default()).map_err(|_| BadReply::Head)?;
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let rest = first.strip_prefix("HTTP/1.").ok_or(BadReply::Head)?;
        self.status = rest.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(BadReply::Head)?;
        let (mut length, mut chunked) = (None, false);
        for l in lines.filter(|l| !l.is_empty()) {
            let (name, value) = l.split_once(':').ok_or(BadReply::Head)?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.parse::<u64>().map_err(|_| BadReply::Body)?),
                "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" if value.eq_ignore_ascii_case("close") => self.reusable = false,
                _ => {}
            }
        }
        self.state = match length {
            _ if self.status == 100 => State::Head,
            _ if self.head_only || matches!(self.status, 204 | 304) => State::Done,
            _ if chunked => State::ChunkLine,
            Some(0) => State::Done,
            Some(n) => State::Length(n),
            None => State::ToEnd,
        };
        Ok(b.get(end - before..).unwrap_or_default())
    }

    fn line<'b>(&mut self, b: &'b [u8]) -> Result<&'b [u8], BadReply> {
        let Some(at) = b.iter().position(|c| *c == b'\n') else {
            self.text.extend_from_slice(b);
            return if self.text.len() > LINE_MAX { Err(BadReply::Body) } else { Ok(&[]) };
        };
        let (mine, rest) = b.split_at(at + 1);
        self.text.extend_from_slice(mine);
        let line = std::mem::take(&mut self.text);
        let line = std::str::from_utf8(&line).map_err(|_| BadReply::Body)?.trim();
        self.state = match self.state {
            State::ChunkEnd if line.is_empty() => State::ChunkLine,
            State::ChunkEnd => return Err(BadReply::Body),
            State::Trailer if line.is_empty() => State::Done,
            State::Trailer => State::Trailer,
            _ => {
                let size = line.split(';').next().unwrap_or_default().trim();
                match u64::from_str_radix(size, 16).map_err(|_| BadReply::Body)? {
                    0 => State::Trailer,
                    n => State::Chunk(n),
                }
            }
        };
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, length and body, fed in pieces of each size.
    fn read(text: &str, head_only: bool) -> Result<(u16, u64, String, bool), BadReply> {
        let mut last = None;
        for piece in 1..=text.len() {
            let mut r = Reply::new(head_only, 8);
            let mut done = false;
            for p in text.as_bytes().chunks(piece) {
                done = r.feed(p)?;
            }
            let have = (r.status, r.length, String::from_utf8(r.body).unwrap(), done);
            assert_eq!(last.get_or_insert(have.clone()), &have, "{piece}");
        }
        Ok(last.unwrap())
    }

    #[test]
    fn replies_are_read_however_they_are_cut() {
        let ok = |s, n, b: &str, done| Ok((s, n, b.to_owned(), done));
        assert_eq!(
            read("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX: a:b\r\n\r\n0123456789", false),
            ok(200, 10, "01234567", true)
        );
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123", false), ok(200, 4, "0123", false));
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", true), ok(200, 0, "", true));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n", false), ok(204, 0, "", true));
        let chunked = "HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: 1\r\n\r\n";
        assert_eq!(read(chunked, false), ok(404, 13, "abc01234", true));
        let continued = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        assert_eq!(read(continued, false), ok(200, 1, "x", true));
    }

    #[test]
    fn wrong_replies_are_refused() {
        assert_eq!(read("SSH-2.0-x\r\n\r\n", false), Err(BadReply::Head));
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", false), Err(BadReply::Body));
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy", false), Err(BadReply::Rest));
        assert_eq!(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", false), Err(BadReply::Body));
        assert_eq!(
            read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", false),
            Err(BadReply::Body)
        );
        let mut r = Reply::new(false, 8);
        let endless = vec![b'a'; HEAD_MAX];
        assert_eq!(r.feed(&endless), Err(BadReply::Head));
        let mut r = Reply::new(false, 8);
        r.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        assert_eq!(r.feed(&[b'0'; LINE_MAX + 1]), Err(BadReply::Body));
    }

    #[test]
    fn a_closed_connection_ends_only_a_body_without_length() {
        let mut r = Reply::new(false, 8);
        assert!(!r.feed(b"HTTP/1.0 200 OK\r\n\r\nabc").unwrap());
        assert!(r.closed() && r.length == 3 && !r.reusable);
        let mut r = Reply::new(false, 8);
        r.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nabc").unwrap();
        assert!(!r.closed());
    }
}
