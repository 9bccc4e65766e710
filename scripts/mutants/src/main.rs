//! Inserts mutations into Rust sources: one build has all of them, and the environment variable `MUTANT` activates one
//! by its number.
//!
//! usage: mutants SEED COUNT WITHOUT FILE...
//!
//! Draws COUNT mutations of the files by SEED, except those named in the file WITHOUT, and rewrites the files. Prints a
//! line for each: number, file, line, name, separated by tabs. A name is stable when lines move: file, function, kind,
//! and index among equal ones. Line numbers stay, so that compiler errors identify the mutation.

use proc_macro2::Span;
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Type, UnOp};

/// Kind of a mutation.
enum Change {
    /// Replaces an expression by this text.
    Expr(String),
    /// Makes the function return this value at once.
    Body(String),
    /// Makes the match arm, which has no guard, never match.
    NoArm,
}

struct Mutation {
    file: usize,
    line: usize,
    name: String,
    at: Range<usize>,
    change: Change,
}

/// Finds places for mutations.
struct Finder<'a> {
    file: usize,
    path: &'a str,
    text: &'a str,
    /// Names of the enclosing types and functions.
    within: Vec<String>,
    counts: HashMap<String, usize>,
    found: Vec<Mutation>,
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| {
        let t = a.to_token_stream().to_string();
        t.contains("test") && t.contains("cfg") || t == "# [test]"
    })
}

/// True for an expression with `let`, which cannot be moved into another one.
fn binds(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) => binds(&b.left) || binds(&b.right),
        Expr::Paren(p) => binds(&p.expr),
        _ => false,
    }
}

fn other(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Add(_) => "-",
        BinOp::Sub(_) | BinOp::Mul(_) => "+",
        BinOp::Div(_) => "*",
        BinOp::Rem(_) => "/",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::BitAnd(_) | BinOp::BitXor(_) => "|",
        BinOp::BitOr(_) => "&",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::BitAndAssign(_) => "|=",
        BinOp::BitOrAssign(_) => "&=",
        _ => return None,
    })
}

/// Values that an empty function may return.
fn nothing(output: &ReturnType) -> Vec<&'static str> {
    let ReturnType::Type(_, t) = output else { return vec![""] };
    let Type::Path(p) = t.as_ref() else { return Vec::new() };
    let Some(last) = p.path.segments.last() else { return Vec::new() };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" | "i32" => vec!["0", "1"],
        "Option" => vec!["None"],
        "Vec" => vec!["Vec::new()"],
        "Result" | "Step" if last.arguments.to_token_stream().to_string().starts_with("< ()") => vec!["Ok(())"],
        _ => Vec::new(),
    }
}

impl Finder<'_> {
    fn add(&mut self, span: Span, at: Range<usize>, what: &str, change: Change) {
        // The copy of an expression is put on one line, so it must not contain comments.
        if self.text[at.clone()].contains("//") && !matches!(change, Change::Body(_)) {
            return;
        }
        let place = format!("{} {}", self.path, self.within.join("::"));
        let n = self.counts.entry(format!("{place} {what}")).or_default();
        *n += 1;
        let name = format!("{place}: {what} #{n}");
        self.found.push(Mutation { file: self.file, line: span.start().line, name, at, change });
    }

    fn of(&self, s: impl Spanned) -> &str {
        &self.text[s.span().byte_range()]
    }

    fn function(&mut self, sig: &syn::Signature, block: &syn::Block) {
        if sig.constness.is_some() {
            return;
        }
        self.within.push(sig.ident.to_string());
        if !block.stmts.is_empty() {
            let at = block.brace_token.span.open().byte_range().end;
            for say in nothing(&sig.output) {
                let what = if say.is_empty() { "does nothing".to_owned() } else { format!("says {say}") };
                self.add(sig.ident.span(), at..at, &what, Change::Body(say.to_owned()));
            }
        }
        visit::visit_block(self, block);
        self.within.pop();
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_mod(&mut self, m: &'a syn::ItemMod) {
        if !is_test(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }
    fn visit_item_fn(&mut self, f: &'a syn::ItemFn) {
        if !is_test(&f.attrs) {
            self.function(&f.sig, &f.block);
        }
    }
    fn visit_item_impl(&mut self, i: &'a syn::ItemImpl) {
        let name = i.self_ty.to_token_stream().to_string().replace(' ', "");
        // Debug and display output is not tested.
        let shown = i
            .trait_
            .as_ref()
            .is_some_and(|(_, p, _)| p.segments.last().is_some_and(|s| s.ident == "Debug" || s.ident == "Display"));
        if shown || is_test(&i.attrs) {
            return;
        }
        self.within.push(name);
        visit::visit_item_impl(self, i);
        self.within.pop();
    }
    fn visit_impl_item_fn(&mut self, f: &'a syn::ImplItemFn) {
        if !is_test(&f.attrs) {
            self.function(&f.sig, &f.block);
        }
    }
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_type(&mut self, _: &'a Type) {}
    fn visit_pat(&mut self, _: &'a syn::Pat) {}
    fn visit_expr_repeat(&mut self, _: &'a syn::ExprRepeat) {}

    fn visit_expr_binary(&mut self, b: &'a syn::ExprBinary) {
        if let Some(op) = other(&b.op).filter(|_| !binds(&b.left) && !binds(&b.right)) {
            let what = format!("{} becomes {op}", b.op.to_token_stream());
            let wrong = format!("{} {op} {}", self.of(&b.left), self.of(&b.right));
            self.add(b.op.span(), b.span().byte_range(), &what, Change::Expr(wrong));
        }
        visit::visit_expr_binary(self, b);
    }
    fn visit_expr_unary(&mut self, u: &'a syn::ExprUnary) {
        if matches!(u.op, UnOp::Not(_) | UnOp::Neg(_)) {
            let (what, wrong) = (format!("no {}", u.op.to_token_stream()), self.of(&u.expr).to_owned());
            self.add(u.span(), u.span().byte_range(), &what, Change::Expr(wrong));
        }
        visit::visit_expr_unary(self, u);
    }
    fn visit_expr_match(&mut self, m: &'a syn::ExprMatch) {
        let rest = m.arms.last().is_some_and(|a| matches!(a.pat, syn::Pat::Wild(_)) && a.guard.is_none());
        for a in &m.arms {
            let guard = a.guard.as_ref().map(|(_, g)| g.as_ref());
            if let Some(g) = guard.filter(|g| !binds(g)) {
                for say in ["true", "false"] {
                    self.add(g.span(), g.span().byte_range(), &format!("guard is {say}"), Change::Expr(say.to_owned()));
                }
            } else if rest && guard.is_none() && !matches!(a.pat, syn::Pat::Wild(_)) {
                let at = a.fat_arrow_token.span().byte_range().start;
                self.add(a.pat.span(), at..at, "an arm is gone", Change::NoArm);
            }
        }
        visit::visit_expr_match(self, m);
    }
}

/// Replacement text for a mutation.
fn woven(m: &Mutation, n: usize, was: &str) -> String {
    let asked = format!("::base::mutant::is({n})");
    match &m.change {
        Change::Expr(wrong) => format!("(if {asked} {{ {} }} else {{ {was} }})", wrong.replace('\n', " ")),
        Change::Body(say) => format!(" if {asked} {{ return {say}; }} "),
        Change::NoArm => format!(" if !{asked} "),
    }
}

/// Deterministic shuffle for a seed.
fn shuffle<T>(all: &mut [T], mut seed: u64) {
    let mut next = || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for i in (1..all.len()).rev() {
        all.swap(i, (next() % (i as u64 + 1)) as usize);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(seed), Some(count), Some(without)) = (args.next(), args.next(), args.next()) else {
        return Err("usage: mutants SEED COUNT WITHOUT FILE...".into());
    };
    let (seed, count): (u64, usize) = (seed.parse()?, count.parse()?);
    let without = std::fs::read_to_string(without)?;
    let without: BTreeSet<&str> = without.lines().collect();
    let paths: Vec<String> = args.collect();
    let texts = paths.iter().map(std::fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let mut all = Vec::new();
    for (file, (path, text)) in paths.iter().zip(&texts).enumerate() {
        let tree = syn::parse_file(text).map_err(|e| format!("{path}: {e}"))?;
        let (within, counts, found) = Default::default();
        let mut f = Finder { file, path, text, within, counts, found };
        f.visit_file(&tree);
        all.append(&mut f.found);
    }
    let of = all.len();
    shuffle(&mut all, seed);
    // Nested mutations could not be activated separately.
    let mut taken: BTreeMap<(usize, usize), (usize, Mutation)> = BTreeMap::new();
    for m in all {
        if taken.len() == count {
            break;
        }
        let apart = |(k, (_, o)): (&(usize, usize), &(usize, Mutation))| {
            k.0 != m.file
                || o.at.end <= m.at.start && o.at.start != m.at.start
                || m.at.end <= o.at.start && o.at.start != m.at.start
        };
        if !without.contains(m.name.as_str()) && taken.iter().all(apart) {
            taken.insert((m.file, m.at.start), (taken.len() + 1, m));
        }
    }
    eprintln!("{} of {of} mutations", taken.len());
    let mut new = texts.clone();
    for (n, m) in taken.values().rev() {
        let was = texts[m.file][m.at.clone()].to_owned();
        new[m.file].replace_range(m.at.clone(), &woven(m, *n, &was));
    }
    for ((path, old), new) in paths.iter().zip(&texts).zip(&new) {
        if old != new {
            std::fs::write(path, new)?;
        }
    }
    let mut list: Vec<_> = taken.values().collect();
    list.sort_by_key(|(n, _)| *n);
    for (n, m) in list {
        println!("{n}\t{}\t{}\t{}", paths[m.file], m.line, m.name);
    }
    Ok(())
}
