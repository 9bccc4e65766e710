//! YAML and JSON as trees. The text is not trusted: its size, its depth, and what aliases make of it are bounded.

use super::ImportError;
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::collections::BTreeMap;

/// Deepest nesting.
const DEPTH_MAX: usize = 32;
/// Bytes that a node counts beside its text.
const NODE: usize = 64;
/// Most bytes of all nodes, with aliases written out.
const WEIGHT_MAX: usize = 32 << 20;

/// A node of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Nothing.
    Null,
    /// A text, a number or a boolean.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the text.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The value of a key; the last one, if the key is there twice.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().rev().find(|(k, v)| k == key && *v != Self::Null).map(|(_, v)| v)
    }

    /// Entries of a map; none of anything else.
    pub(super) fn entries(&self) -> std::slice::Iter<'_, (String, Self)> {
        match self {
            Self::Map(m) => m.iter(),
            _ => [].iter(),
        }
    }

    /// Items of a list; none of anything else.
    pub(super) fn items(&self) -> std::slice::Iter<'_, Self> {
        match self {
            Self::List(l) => l.iter(),
            _ => [].iter(),
        }
    }

    /// A text, number or boolean as text.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(s) => Some(s),
            _ => None,
        }
    }

    /// The text of a key.
    pub(super) fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// A boolean, also in the words of YAML 1.1 and as a number.
    pub(super) fn is_true(&self) -> bool {
        let yes = ["true", "yes", "on", "1"];
        self.text().is_some_and(|s| yes.iter().any(|y| s.eq_ignore_ascii_case(y)))
    }

    /// A piece of the value of a key, for a note; nothing of a secret.
    pub(super) fn shown_of(&self, key: &str) -> String {
        let key = key.to_ascii_lowercase();
        let is_secret =
            ["password", "passphrase", "secret", "token", "_key", "_pass", "ssl_cert"].iter().any(|w| key.contains(w));
        if is_secret { "(not shown)".into() } else { self.shown() }
    }

    /// A piece of the node, for a note.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Text(s) => s.chars().take(60).collect(),
            Self::List(l) => match l.first() {
                Some(Self::Text(first)) if l.len() == 1 => format!("[{}]", first.chars().take(60).collect::<String>()),
                _ => format!("a list of {}", l.len()),
            },
            Self::Map(m) => {
                let keys: Vec<&str> = m.iter().take(4).map(|(k, _)| k.as_str()).collect();
                format!("{{{}{}}}", keys.join(", "), if m.len() > 4 { ", …" } else { "" })
            }
        }
    }

    /// Bytes of the node in memory, about.
    pub(super) fn weight(&self) -> usize {
        NODE + match self {
            Self::Null => 0,
            Self::Text(s) => s.len(),
            Self::List(l) => l.iter().map(Self::weight).sum(),
            Self::Map(m) => m.iter().map(|(k, v)| k.len() + v.weight()).sum(),
        }
    }
}

/// A list or map that is not complete, with its anchor.
enum Open {
    List(Vec<Node>, usize),
    Map(Vec<(String, Node)>, Option<String>, usize),
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    documents: Vec<Node>,
    anchors: BTreeMap<usize, Node>,
    weight: usize,
}

impl Builder {
    fn count(&mut self, weight: usize) -> Result<(), &'static str> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > WEIGHT_MAX { Err("it is too large with its aliases written out") } else { Ok(()) }
    }

    /// Adds a complete node to what is open.
    fn add(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        if anchor > 0 {
            self.count(node.weight())?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.documents.push(node),
            Some(Open::List(l, _)) => l.push(node),
            Some(Open::Map(m, key, _)) => match key.take() {
                Some(k) => m.push((k, node)),
                None => match node {
                    Node::Text(k) => *key = Some(k),
                    Node::Null => *key = Some(String::new()),
                    _ => return Err("a key is no text"),
                },
            },
        }
        Ok(())
    }

    fn open(&mut self, o: Open) -> Result<(), &'static str> {
        self.count(NODE)?;
        self.open.push(o);
        if self.open.len() > DEPTH_MAX { Err("it is nested too deeply") } else { Ok(()) }
    }

    fn event(&mut self, e: Event<'_>) -> Result<(), &'static str> {
        match e {
            Event::Scalar(text, style, anchor, _) => {
                self.count(NODE + text.len())?;
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                self.add(if is_null { Node::Null } else { Node::Text(text.into_owned()) }, anchor)
            }
            Event::Alias(anchor) => {
                let weight = self.anchors.get(&anchor).ok_or("an alias of what is not complete")?.weight();
                self.count(weight)?;
                let node = self.anchors.get(&anchor).cloned().unwrap_or(Node::Null);
                self.add(node, 0)
            }
            Event::SequenceStart(anchor, _) => self.open(Open::List(Vec::new(), anchor)),
            Event::MappingStart(anchor, _) => self.open(Open::Map(Vec::new(), None, anchor)),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(l, anchor)) => self.add(Node::List(l), anchor),
                Some(Open::Map(m, _, anchor)) => self.add(Node::Map(m), anchor),
                None => Err("it ends what was not begun"),
            },
            _ => Ok(()),
        }
    }
}

/// The documents of a text; `name` is that of its file, for errors.
pub(super) fn parse(name: &str, text: &str) -> Result<Vec<Node>, ImportError> {
    let mut b = Builder::default();
    let mut p = Parser::new_from_str(text);
    while let Some(e) = p.next_event() {
        let (event, span) =
            e.map_err(|e| ImportError::new(name, format!("line {}: {}", e.marker().line(), e.info())))?;
        let line = span.start.line();
        b.event(event).map_err(|what| ImportError::new(name, format!("line {line}: {what}")))?;
    }
    Ok(b.documents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> Node {
        parse("f", text).unwrap().remove(0)
    }

    #[test]
    fn documents_are_trees() {
        let n = one("a: [x, 'y', null]\nb: {c: 1, d: ~}\nb2: \"null\"\n");
        let items: Vec<_> = n.get("a").unwrap().items().cloned().collect();
        assert_eq!(items, [Node::Text("x".into()), Node::Text("y".into()), Node::Null]);
        assert_eq!(n.get("b").unwrap().text_of("c"), Some("1"));
        assert_eq!((n.get("b").unwrap().get("d"), n.text_of("b2")), (None, Some("null")));
        assert_eq!(parse("f", "---\na: 1\n---\nb: 2\n...\n").unwrap().len(), 2);
        assert_eq!(
            one("[{\"hostname\": \"a\", \"labels\": []}]").items().next().unwrap().text_of("hostname"),
            Some("a")
        );
        assert!(["True", "yes", "1", "on"].iter().all(|s| Node::Text((*s).into()).is_true()));
        assert!(!Node::Text("no".into()).is_true() && !Node::Null.is_true());
        assert_eq!(one("x: &a {k: v}\ny: *a\n").get("y").unwrap().text_of("k"), Some("v"));
    }

    #[test]
    fn hostile_documents_are_refused() {
        let says = |text: &str, what: &str| {
            let e = parse("f", text).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        };
        says("a: [", "f: line");
        says("a: &x [*x]", "an alias of what is not complete");
        says("? [a]\n: b\n", "a key is no text");
        says(&"[".repeat(DEPTH_MAX + 1), "nested too deeply");
        says(&"- ".repeat(100_000), "nested too deeply");
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
        for (from, to) in ["ab", "bc", "cd", "de", "ef", "fg", "gh"].iter().map(|s| s.split_at(1)) {
            bomb += &format!("{to}: &{to} [{}]\n", vec![format!("*{from}"); 10].join(","));
        }
        says(&bomb, "too large with its aliases");
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 16), vec!["*a"; 1000].join(","));
        says(&long, "too large with its aliases");
    }

    proptest! {
        #[test]
        fn any_text_is_a_tree_or_an_error(text in "[-a:\\[\\]{},&*?|>'\"#! \n\t%@`~]{0,64}") {
            let _ = parse("f", &text);
        }
    }
}
