//! Input of class `lua`: a script, the name of a handler, and the handler's input, as JSON or encoded.

use crate::ctx::ClsResult;
use crate::util::{fail, input};
use base::errno::EINVAL;
use bytes::Bytes;

/// Deepest nesting of JSON values.
const DEPTH_MAX: u32 = 64;

/// Decoded input of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// Source text of the script.
    pub(super) script: Bytes,
    /// Name of a global function; if empty, only the script runs.
    pub(super) handler: Bytes,
    /// Input of the handler.
    pub(super) input: Bytes,
}

impl Call {
    /// Decodes a `cls_lua_eval_op`.
    pub(super) fn decode(i: &Bytes) -> ClsResult<Self> {
        input(i, |r| {
            r.versioned("cls_lua_eval_op", 1, |r, _| Ok(Self { script: r.get()?, handler: r.get()?, input: r.get()? }))
        })
    }

    /// Parses an object with the strings `script`, `handler` and optionally `input`. As in Ceph's parser, a trailing
    /// comma is accepted and a zero byte ends the text.
    pub(super) fn from_json(i: &Bytes) -> ClsResult<Self> {
        let text = i.split(|b| *b == 0).next().unwrap_or_default();
        let Some(members) = Json { b: text, at: 0 }.members() else { return fail(EINVAL) };
        let field = |name: &str| members.iter().rev().find(|(k, _)| k == name.as_bytes()).map(|(_, v)| v.clone());
        match (field("script"), field("handler"), field("input").unwrap_or(Some(Vec::new()))) {
            (Some(Some(script)), Some(Some(handler)), Some(input)) => {
                Ok(Self { script: script.into(), handler: handler.into(), input: input.into() })
            }
            _ => fail(EINVAL),
        }
    }
}

/// A cursor over JSON text.
struct Json<'a> {
    b: &'a [u8],
    at: usize,
}

/// Members of an object: names, with the values that are strings.
type Members = Vec<(Vec<u8>, Option<Vec<u8>>)>;

impl Json<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.b.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.b.get(self.at).copied()
    }

    fn eat(&mut self, c: u8) -> Option<()> {
        (self.peek()? == c).then(|| self.at += 1)
    }

    fn members(&mut self) -> Option<Members> {
        let mut out = Vec::new();
        self.eat(b'{')?;
        loop {
            if self.peek()? == b'}' {
                return Some(out);
            }
            let name = self.string()?;
            self.eat(b':')?;
            let value = if self.peek()? == b'"' { Some(self.string()?) } else { self.skip(0).map(|()| None)? };
            out.push((name, value));
            if self.eat(b',').is_none() {
                self.eat(b'}')?;
                return Some(out);
            }
        }
    }

    fn skip(&mut self, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            open @ (b'{' | b'[') => {
                let close = if open == b'{' { b'}' } else { b']' };
                self.at += 1;
                loop {
                    if self.eat(close).is_some() {
                        return Some(());
                    }
                    if open == b'{' {
                        self.string()?;
                        self.eat(b':')?;
                    }
                    self.skip(depth + 1)?;
                    if self.eat(b',').is_none() {
                        return self.eat(close);
                    }
                }
            }
            _ => {
                let word =
                    self.b[self.at..].iter().take_while(|c| c.is_ascii_alphanumeric() || b"+-.".contains(c)).count();
                let text = std::str::from_utf8(&self.b[self.at..self.at + word]).ok()?;
                self.at += word;
                (matches!(text, "true" | "false" | "null") || text.parse::<f64>().is_ok()).then_some(())
            }
        }
    }

    fn hex4(&mut self) -> Option<u32> {
        let t = self.b.get(self.at..self.at + 4)?;
        self.at += 4;
        u32::from_str_radix(std::str::from_utf8(t).ok()?, 16).ok()
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        self.eat(b'"')?;
        let mut out = Vec::new();
        loop {
            let c = *self.b.get(self.at)?;
            self.at += 1;
            match c {
                b'"' => return Some(out),
                b'\\' => {
                    let e = *self.b.get(self.at)?;
                    self.at += 1;
                    out.push(match e {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        b'b' => 8,
                        b'f' => 12,
                        b'u' => {
                            let mut code = self.hex4()?;
                            if (0xd800..0xdc00).contains(&code) && self.b[self.at..].starts_with(b"\\u") {
                                self.at += 2;
                                code = 0x10000 + ((code - 0xd800) << 10) + self.hex4()?.checked_sub(0xdc00)?;
                            }
                            let c = char::from_u32(code)?;
                            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                            continue;
                        }
                        other => other,
                    });
                }
                c => out.push(c),
            }
        }
    }
}
