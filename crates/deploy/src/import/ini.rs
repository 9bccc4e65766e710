//! Inventories of Ansible in their older form: sections of hosts, of variables, and of other sections.

use super::ImportError;
use super::ansible::Ansible;
use super::yaml::{self, Node};
use crate::inventory::HOSTS_MAX;

/// Longest line.
const LINE_MAX: usize = 16 << 10;

/// The name and the part of a section's head: `[osds]`, `[osds:vars]`, `[all:children]`.
fn head(line: &str) -> Option<(&str, &str)> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (name, part) = inner.split_once(':').unwrap_or((inner, "hosts"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_part = ["hosts", "vars", "children"].contains(&part);
    (!name.is_empty() && name.chars().all(plain) && is_part).then_some((name, part))
}

/// A line without its comment, which begins a line or follows a blank.
fn code(line: &str) -> &str {
    if line.trim_start().starts_with(['#', ';']) {
        return "";
    }
    line.find(" #").map_or(line, |at| &line[..at]).trim()
}

/// True if a text has a section.
pub(super) fn is_ini(text: &str) -> bool {
    text.lines().any(|l| head(code(l)).is_some())
}

/// Words of a line, of which quotes keep blanks together.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut all, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.push(c),
            None if c == '"' || c == '\'' => (quote, any) = (Some(c), true),
            None if c.is_whitespace() => {
                if any {
                    all.push(std::mem::take(&mut word));
                }
                any = false;
            }
            None => {
                word.push(c);
                any = true;
            }
        }
    }
    if any {
        all.push(word);
    }
    quote.is_none().then_some(all)
}

/// Names of a pattern `n[1:9]`, `n[01:12:2]`, `n[a:c]`; none if it is malformed or has too many.
fn expand(pattern: &str) -> Option<Vec<String>> {
    let Some((first, rest)) = pattern.split_once('[') else { return Some(vec![pattern.to_owned()]) };
    let (range, tail) = rest.split_once(']')?;
    let mut parts = range.split(':');
    let (from, to) = (parts.next()?, parts.next()?);
    let step: usize = parts.next().map_or(Some(1), |s| s.parse().ok()).filter(|s| *s > 0)?;
    if parts.next().is_some() || tail.contains('[') {
        return None;
    }
    let letter = |s: &str| Some(s.bytes().next()?).filter(|b| s.len() == 1 && b.is_ascii_alphabetic());
    if let (Some(a), Some(b)) = (letter(from), letter(to)) {
        return Some((a..=b).step_by(step).map(|c| format!("{first}{}{tail}", char::from(c))).collect());
    }
    let number = |s: &str| s.parse::<usize>().ok().filter(|_| s.len() <= 9 && s.bytes().all(|b| b.is_ascii_digit()));
    let (a, b) = (number(from)?, number(to)?);
    if a > b || (b - a) / step >= HOSTS_MAX {
        return None;
    }
    let width = if from.starts_with('0') { from.len() } else { 0 };
    Some((a..=b).step_by(step).map(|n| format!("{first}{n:0width$}{tail}")).collect())
}

/// A value: a list or map in braces, or a text.
fn value(name: &str, s: &str) -> Node {
    let s = s.trim();
    if s.starts_with(['[', '{'])
        && !s.starts_with("{{")
        && let Ok(mut all) = yaml::parse(name, s)
        && all.len() == 1
    {
        return all.remove(0);
    }
    let bare = ['"', '\''].iter().find_map(|q| s.strip_prefix(*q)?.strip_suffix(*q));
    Node::Text(bare.unwrap_or(s).to_owned())
}

/// Takes the sections of a file.
pub(super) fn read(a: &mut Ansible, name: &str, text: &str) -> Result<(), ImportError> {
    let mut section = ("ungrouped", "hosts");
    for (n, line) in text.lines().enumerate() {
        let wrong = |what: &str| ImportError::new(name, format!("line {}: {what}", n + 1));
        if line.len() > LINE_MAX {
            return Err(wrong("it is too long"));
        }
        let line = code(line);
        if line.is_empty() {
            continue;
        }
        if let Some(h) = head(line) {
            section = h;
            a.group(name, h.0)?;
            continue;
        }
        match section {
            (group, "vars") => {
                let (k, v) = line.split_once('=').ok_or_else(|| wrong("a variable is NAME = VALUE"))?;
                a.group_variable(name, group, k.trim(), value(name, v))?;
            }
            (group, "children") => a.child(name, group, line)?,
            (group, _) => {
                let words = words(line).ok_or_else(|| wrong("a quote has no end"))?;
                let (first, variables) = words.split_first().ok_or_else(|| wrong("no host"))?;
                let hosts = expand(first).ok_or_else(|| wrong("a range is [1:9], with at most 4096 hosts"))?;
                for host in hosts {
                    a.member(name, group, &host)?;
                    for v in variables {
                        let (k, v) = v.split_once('=').ok_or_else(|| wrong("a variable is NAME=VALUE"))?;
                        a.host_variable(name, &host, k, value(name, v))?;
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_hosts() {
        assert_eq!(expand("n[08:10].x").unwrap(), ["n08.x", "n09.x", "n10.x"]);
        assert_eq!(expand("n[a:c]").unwrap(), ["na", "nb", "nc"]);
        assert_eq!(expand("n[1:9:4]").unwrap(), ["n1", "n5", "n9"]);
        for bad in ["n[1:", "n[2:1]", "n[1:99999999]", "n[1:2][1:2]", "n[:]", "n[1:2:0]", "n[1]"] {
            assert_eq!(expand(bad), None, "{bad}");
        }
    }

    #[test]
    fn lines_have_words_and_comments() {
        assert_eq!(words("a x='1 2' y=\"['b']\"").unwrap(), ["a", "x=1 2", "y=['b']"]);
        assert_eq!(words("a 'b"), None);
        assert_eq!((code("a # b"), code("# [x]"), code("a#b")), ("a", "", "a#b"));
        assert_eq!(
            (head("[osds:vars]"), head("[a:b]"), head("[\"a\"]"), head("[]")),
            (Some(("osds", "vars")), None, None, None)
        );
        assert!(!is_ini("[{\"hostname\": \"a\"}]") && is_ini("x\n[mons]\n"));
    }
}
