//! A cursor over a capability string.

use super::constraint::{Constraint, Match};
use super::{CapsError, MAX_CAPS_LEN, Network, Perms};

/// Position in the text. A copy is cheap, so an alternative can be tried and dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// Offset and expected text, from the alternative that got furthest.
pub(super) type Expected = (usize, &'static str);

/// Result of one rule.
pub(super) type Lex<T> = Result<T, Expected>;

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'/' | b'-')
}

impl<'a> Cursor<'a> {
    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take_while(&mut self, f: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let n = rest.bytes().take_while(|b| f(*b)).count();
        self.at += n;
        rest.get(..n).unwrap_or_default()
    }

    pub(super) fn fail<T>(&self, what: &'static str) -> Lex<T> {
        Err((self.at, what))
    }

    /// Skips white space, if any.
    pub(super) fn skip_spaces(&mut self) {
        self.take_while(|b| b.is_ascii_whitespace());
    }

    /// Skips white space, at least one character.
    pub(super) fn spaces(&mut self) -> Lex<()> {
        if self.take_while(|b| b.is_ascii_whitespace()).is_empty() { self.fail("a space") } else { Ok(()) }
    }

    /// Accepts exactly this text.
    pub(super) fn lit(&mut self, s: &'static str) -> Lex<()> {
        if self.rest().starts_with(s) {
            self.at += s.len();
            return Ok(());
        }
        self.fail(s)
    }

    /// Accepts `=` or white space.
    pub(super) fn equals_or_spaces(&mut self) -> Lex<()> {
        if self.lit("=").is_ok() { Ok(()) } else { self.spaces() }
    }

    fn quoted(&mut self, empty: bool) -> Option<String> {
        let rest = self.rest();
        let q = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let body = rest.get(1..)?;
        let n = body.find(q).filter(|n| empty || *n > 0)?;
        self.at += n + 2;
        body.get(..n).map(str::to_owned)
    }

    /// Accepts a word; in quotes if it has characters besides letters, digits and `_./-`.
    pub(super) fn word(&mut self) -> Lex<String> {
        if let Some(s) = self.quoted(false) {
            return Ok(s);
        }
        let s = self.take_while(is_word);
        if s.is_empty() { self.fail("a name") } else { Ok(s.to_owned()) }
    }

    /// Accepts a word, which may be empty if quoted.
    pub(super) fn word_or_empty(&mut self) -> Lex<String> {
        match self.quoted(true) {
            Some(s) => Ok(s),
            None => self.word(),
        }
    }

    /// Runs an optional rule. The cursor stays where it is if the rule fails.
    pub(super) fn optional<T>(&mut self, f: impl FnOnce(&mut Self) -> Lex<T>) -> Option<T> {
        let mut c = *self;
        let v = f(&mut c).ok()?;
        *self = c;
        Some(v)
    }

    /// Accepts `network CIDR` after white space, if present.
    pub(super) fn network(&mut self) -> Option<Network> {
        self.optional(|c| {
            c.spaces()?;
            c.lit("network")?;
            c.spaces()?;
            let s = c.take_while(|b| b.is_ascii_hexdigit() || matches!(b, b'/' | b'.' | b':' | b'[' | b']'));
            if s.is_empty() { c.fail("a network") } else { Ok(Network::parse(s)) }
        })
    }

    /// Accepts `*`, `all` or some of `rwx` in that order.
    pub(super) fn rwx(&mut self) -> Lex<Perms> {
        if self.lit("*").is_ok() || self.lit("all").is_ok() {
            return Ok(Perms::ANY);
        }
        let mut p = 0;
        for (s, bit) in [("r", Perms::R), ("w", Perms::W), ("x", Perms::X)] {
            if self.lit(s).is_ok() {
                p |= bit;
            }
        }
        if p == 0 { self.fail("one of *, r, w, x") } else { Ok(Perms(p)) }
    }

    /// Accepts `key=value`, `key prefix value` or `key regex value`.
    pub(super) fn constraint(&mut self) -> Lex<Constraint> {
        let key = self.word()?;
        let matching = self
            .optional(|c| {
                c.skip_spaces();
                c.lit("=")?;
                c.skip_spaces();
                Ok(Match::Equal(c.word()?))
            })
            .or_else(|| {
                self.optional(|c| {
                    c.spaces()?;
                    c.lit("prefix")?;
                    c.spaces()?;
                    Ok(Match::Prefix(c.word()?))
                })
            })
            .or_else(|| {
                self.optional(|c| {
                    c.spaces()?;
                    c.lit("regex")?;
                    c.spaces()?;
                    Ok(Match::regex(&c.word()?))
                })
            });
        match matching {
            Some(m) => Ok(Constraint { key, matching: m }),
            None => self.fail("'=', 'prefix' or 'regex'"),
        }
    }

    /// Accepts constraints separated by white space.
    pub(super) fn constraints(&mut self) -> Lex<Vec<Constraint>> {
        let mut v = vec![self.constraint()?];
        while let Some(c) = self.optional(|c| {
            c.spaces()?;
            c.constraint()
        }) {
            v.push(c);
        }
        Ok(v)
    }
}

/// A rule of a grammar.
pub(super) type Rule<'r, 'a, T> = &'r dyn Fn(&mut Cursor<'a>) -> Lex<T>;

/// Result of the first rule that succeeds; else the error of the rule that got furthest.
pub(super) fn first_of<'a, T>(at: &mut Cursor<'a>, rules: &[Rule<'_, 'a, T>]) -> Lex<T> {
    let mut worst: Expected = (at.at, "a grant");
    for rule in rules {
        let mut c = *at;
        match rule(&mut c) {
            Ok(v) => {
                *at = c;
                return Ok(v);
            }
            Err(e) if e.0 >= worst.0 => worst = e,
            Err(_) => {}
        }
    }
    Err(worst)
}

/// Parses grants separated by commas or semicolons, to the end of the text.
pub(super) fn grants<'a, T>(
    service: &'static str,
    text: &'a str,
    grant: impl Fn(&mut Cursor<'a>) -> Lex<T>,
) -> Result<Vec<T>, CapsError> {
    // As in Ceph, `rest` starts at the end of the last understood grant.
    let error = |done: usize, (at, what): Expected| CapsError {
        service,
        text: text.to_owned(),
        rest: text.get(done..).unwrap_or_default().to_owned(),
        at,
        reason: format!("expected {what}"),
    };
    if text.len() > MAX_CAPS_LEN {
        return Err(CapsError {
            service,
            text: String::new(),
            rest: String::new(),
            at: MAX_CAPS_LEN,
            reason: format!("longer than {MAX_CAPS_LEN} bytes"),
        });
    }
    let mut c = Cursor { text, at: 0 };
    c.skip_spaces();
    let mut all = Vec::new();
    if c.rest().is_empty() {
        return Ok(all);
    }
    let mut done = c.at;
    loop {
        c.skip_spaces();
        all.push(grant(&mut c).map_err(|e| error(done, e))?);
        c.skip_spaces();
        done = c.at;
        if c.lit(",").is_ok() || c.lit(";").is_ok() {
            continue;
        }
        if c.rest().is_empty() {
            return Ok(all);
        }
        return Err(error(done, (c.at, "',' or the end")));
    }
}
