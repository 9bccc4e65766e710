//! Repository rules that no compiler checks, as ordinary tests: layers, file sizes, headers, purity, `unsafe`.
//!
//! Every exception is in a table here, or in `tidy/exceptions.rs` for sizes, with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Layers from the lowest to the highest: a crate may depend only on crates of lower layers. `hostile`, `testkit` and
/// `xtask` are for tests.
const LAYERS: &[&[&str]] = &[
    &["base", "testkit"],
    &["wire", "reactor", "ec", "deploy"],
    &["auth", "msgr", "state"],
    &["cluster", "store", "why"],
    &["net"],
    &["cls", "pg", "client", "doctor"],
    &["osd", "mgr", "mon", "lab", "console"],
    &["belemnite", "sim"],
    &["hostile"],
];

/// Permitted dependencies within a layer, lower crate first.
const WITHIN_LAYER: &[(&str, &str)] = &[("auth", "msgr"), ("cls", "pg"), ("mgr", "mon"), ("console", "mon")];

/// Crates without I/O, clocks, threads and randomness, except in the given folders and files.
const PURE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("wire", &[]),
    ("ec", &[]),
    ("deploy", &[]),
    ("doctor", &[]),
    ("auth", &[]),
    ("msgr", &[]),
    ("cluster", &[]),
    ("cls", &[]),
    ("why", &[]),
    ("pg", &[]),
    ("store", &["src/host/", "src/host.rs"]),
    ("client", &["src/host/", "src/host.rs"]),
    ("mgr", &["src/host/", "src/host.rs"]),
    ("mon", &["src/host/", "src/host.rs"]),
    ("osd", &["src/host/", "src/host.rs"]),
    ("lab", &["src/host/", "src/host.rs"]),
    ("console", &["src/host/"]),
    ("sim", &["src/main.rs"]),
];

/// Names that a pure crate must not use.
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "std::thread",
    "std::fs",
    "std::process",
    "std::env::",
    "std::net::Tcp",
    "std::net::Udp",
    "std::os::unix::net",
    "TcpStream",
    "UnixStream",
    "tokio",
    "getrandom",
    "rand::",
    "Mutex",
    "RwLock",
];

/// Names that a pure file may use nevertheless, each with the reason.
const PURE_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/msgr/src/pool.rs", "Mutex", "buffers come back from other threads; nothing waits while it holds the lock"),
    (
        "crates/pg/src/reserve.rs",
        "Mutex",
        "all reactors of an OSD share its places, taken once per PG that recovers; nothing waits while it holds the lock",
    ),
];

/// The only files with `unsafe` code, each with the reason.
const UNSAFE_FILES: &[(&str, &str)] = &[
    ("crates/base/src/buf.rs", "page-aligned buffers"),
    ("crates/base/src/prefetch.rs", "a hint to the processor"),
    ("crates/belemnite/src/allocator.rs", "calls of the allocator's C functions"),
    ("crates/hostile/src/meter.rs", "the counting allocator of a test"),
    ("crates/reactor/src/descriptors.rs", "system calls for the limit of descriptors"),
    ("crates/reactor/src/numa.rs", "system calls for the processors and the memory of a thread"),
];

/// Folders in which every file may have `unsafe` code: the disk engine, which shares memory with the kernel, and the
/// vector instructions of erasure codes.
const UNSAFE_FOLDERS: &[&str] = &["crates/reactor/src/disk", "crates/ec/src/kernel"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[path = "tidy/exceptions.rs"]
mod exceptions;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/sizes.rs"]
mod sizes;

/// All files of the repository in `dir` with one of the extensions, by path from the root.
fn files(dir: &str, endings: &[&str]) -> BTreeMap<String, String> {
    fn walk(root: &Path, dir: &Path, endings: &[&str], out: &mut BTreeMap<String, String>) {
        for e in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = e.path();
            let rel = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let name = e.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "vectors" | "corpus" | "artifacts") {
                    walk(root, &path, endings, out);
                }
            } else if endings.iter().any(|x| name.ends_with(x)) {
                // A file that is not text does not belong among sources, and is reported as empty.
                out.insert(rel, fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    let mut out = BTreeMap::new();
    let root = root();
    walk(&root, &root.join(dir), endings, &mut out);
    out
}

fn sources() -> BTreeMap<String, String> {
    let mut all = files("crates", &[".rs"]);
    all.extend(files("xtask", &[".rs"]));
    all.extend(files("fuzz", &[".rs"]));
    assert!(all.len() > 50, "the tree was not found");
    all
}

/// Code without comments and without the test module at the end; sufficient for searching names.
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let t = line.trim_start();
        let next_opens_a_module = lines.peek().is_some_and(|n| n.starts_with("mod ") && n.ends_with('{'));
        if t.starts_with("#[cfg(test)]") && next_opens_a_module {
            break;
        }
        if t.starts_with("//") {
            continue;
        }
        out.push_str(line.split(" // ").next().unwrap_or(line));
        out.push('\n');
    }
    out
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.contains("/benches/") || path.contains("/examples/") || path.contains("testing")
}

fn fail_if_any(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Names of crates in the `[dependencies]` section of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut out = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside =
                line.trim() == "[dependencies]" || line.starts_with("[target.") && line.contains("'.dependencies]");
        } else if inside && let Some(name) = line.split(['.', '=', ' ']).next().filter(|n| !n.is_empty()) {
            out.push(name.to_owned());
        }
    }
    out
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|l| l.contains(&name))
}

#[test]
fn crates_use_lower_layers_only() {
    let mut found = Vec::new();
    for e in fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = e.file_name().to_string_lossy().into_owned();
        let Ok(manifest) = fs::read_to_string(e.path().join("Cargo.toml")) else { continue };
        let Some(own) = layer(&name) else {
            found.push(format!("crates/{name} has no layer"));
            continue;
        };
        for d in dependencies(&manifest) {
            let Some(theirs) = layer(&d) else { continue };
            if theirs > own || theirs == own && !WITHIN_LAYER.contains(&(d.as_str(), name.as_str())) {
                found.push(format!("{name} uses {d}, which is not below it"));
            }
        }
    }
    fail_if_any("layers", found);
}

#[test]
fn files_say_what_lives_in_them() {
    let found = sources()
        .iter()
        .filter(|(_, t)| !t.lines().find(|l| !l.trim().is_empty()).is_some_and(|l| l.starts_with("//!")))
        .map(|(p, _)| p.clone())
        .collect();
    fail_if_any("files without a `//!` header", found);
}

/// Modules that a file declares, but for those of tests.
fn modules(text: &str) -> Vec<&str> {
    let mut of_tests = false;
    let mut out = Vec::new();
    for line in text.lines() {
        if line.starts_with("#[") {
            of_tests |= line.starts_with("#[cfg(test)]");
            continue;
        }
        let name = line.strip_suffix(';').and_then(|l| l.split_once("mod "));
        let name = name.filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        out.extend(name.map(|(_, name)| name).filter(|_| !of_tests));
        of_tests = false;
    }
    out
}

/// The header of a file that declares modules is their index.
#[test]
fn headers_name_the_modules_below() {
    let mut found = Vec::new();
    for (path, text) in sources().iter().filter(|(p, _)| p.contains("/src/")) {
        let header: String = text.lines().take_while(|l| l.starts_with("//!")).collect();
        let named = |m: &&str| ["`", "::", "/"].iter().any(|end| header.contains(&format!("`{m}{end}")));
        found.extend(modules(text).into_iter().filter(|m| !named(m)).map(|m| format!("{path}: {m}")));
    }
    fail_if_any("modules that the header above them does not name", found);
    assert_eq!(
        modules("mod a;\npub(crate) mod b;\n#[cfg(test)]\nmod c;\n#[macro_use]\nmod d;\nmod e {\n"),
        ["a", "b", "d"]
    );
}

/// A comment names its thing first: one that begins with a pronoun, or with a clause in its place, is a riddle to a new reader.
#[test]
fn comments_name_the_thing() {
    let riddles = ["What", "Who", "Whose", "Whom", "Whoever", "Nobody", "Somebody", "It", "That", "Which"];
    let comment = |line: &str| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::to_owned);
    let mut found = Vec::new();
    for (path, text) in sources() {
        // A line in the middle of a sentence begins with any word.
        let mut goes_on = false;
        for (n, line) in text.lines().map(str::trim).enumerate() {
            let words = comment(line);
            let words = words.as_deref().map_or("", str::trim);
            let first = words.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if !goes_on && riddles.contains(&first) {
                found.push(format!("{path}:{}: {line}", n + 1));
            }
            goes_on = !words.is_empty() && !words.ends_with(['.', ':', ';']);
        }
    }
    fail_if_any("comments that do not name their thing", found);
}

/// A header that states an invariant names the tests that hold it (paths from the crate, or from the root for other
/// crates and folders), or its file asserts it.
#[test]
fn invariants_name_what_holds_them() {
    let all = files("crates", &[".rs"]);
    let mut found = Vec::new();
    for (path, text) in all.iter().filter(|(p, _)| p.contains("/src/") && !is_test(p)) {
        let header: Vec<&str> = text.lines().take_while(|l| l.starts_with("//!")).collect();
        let header = header.join("\n");
        if !header.contains("Invariant") {
            continue;
        }
        let Some((_, tests)) = header.split_once("\n//! Tests: ") else {
            let excused = |(from, _): &&(&str, &str)| path.starts_with(from);
            let asserts = ["debug_assert", "unreached"].iter().any(|w| text.contains(w));
            if !asserts && !exceptions::UNTESTED_INVARIANTS.iter().any(|x| excused(&x)) {
                found.push(format!("{path}: an invariant without `Tests:` and without an assertion"));
            }
            continue;
        };
        let own = path.split('/').take(2).collect::<Vec<_>>().join("/");
        let named = tests.split('`').skip(1).step_by(2).filter(|w| w.ends_with(".rs") || w.ends_with(".sh"));
        let exists = |w: &str| {
            let from =
                if ["crates/", "fuzz/", "interop/", "xtask/"].iter().any(|p| w.starts_with(p)) { "." } else { &own };
            root().join(from).join(w).is_file()
        };
        found.extend(named.filter(|w| !exists(w)).map(|w| format!("{path}: there is no {w}")));
    }
    for (from, _) in exceptions::UNTESTED_INVARIANTS {
        if !all.keys().any(|p| p.starts_with(from)) {
            found.push(format!("{from}: there is no such file"));
        }
    }
    fail_if_any("invariants that nothing holds", found);
}

/// The name of a function, tests among them, does not begin with a pronoun either.
#[test]
fn functions_name_the_thing() {
    let riddles = ["fn what_", "fn who_", "fn whose_", "fn whoever_", "fn nobody_", "fn somebody_"];
    let mut found = Vec::new();
    for (path, text) in sources() {
        let bad = |l: &&str| riddles.iter().any(|r| l.starts_with(r) || l.contains(&format!(" {r}")));
        let code = text.lines().map(str::trim).filter(|l| !l.starts_with("//") && !l.contains('"'));
        found.extend(code.filter(bad).map(|l| format!("{path}: {l}")));
    }
    fail_if_any("functions whose names do not name their thing", found);
}

#[test]
fn nothing_is_left_undone_or_printed() {
    let unfinished = [concat!("todo", "!("), concat!("dbg", "!("), concat!("unimplemented", "!(")];
    let printing = [concat!("print", "ln!("), concat!("print", "!(")];
    let mut found = Vec::new();
    for (path, text) in sources() {
        let code = code(&text);
        let prints = !is_test(&path)
            && !["crates/belemnite/", "crates/sim/src/main.rs", "xtask/", "crates/hostile/", "fuzz/"]
                .iter()
                .any(|p| path.starts_with(p));
        for word in unfinished.iter().chain(printing.iter().filter(|_| prints)) {
            if code.contains(word) {
                found.push(format!("{path}: {word}"));
            }
        }
    }
    fail_if_any("unfinished or printing code", found);
}

#[test]
fn pure_crates_do_no_io() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let Some(rest) = path.strip_prefix("crates/") else { continue };
        let Some((name, inside)) = rest.split_once('/') else { continue };
        let Some((_, hosts)) = PURE.iter().find(|(n, _)| *n == name) else { continue };
        if !inside.starts_with("src/") || is_test(&path) || hosts.iter().any(|h| inside.starts_with(h)) {
            continue;
        }
        let code = code(&text);
        let excused = |w: &str| PURE_EXCEPTIONS.iter().any(|(f, x, _)| *f == path && *x == w);
        found.extend(IMPURE.iter().filter(|w| code.contains(**w) && !excused(w)).map(|w| format!("{path}: {w}")));
    }
    fail_if_any("I/O, clocks, threads or randomness in pure code", found);
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let allowed =
            UNSAFE_FILES.iter().any(|(f, _)| *f == path) || UNSAFE_FOLDERS.iter().any(|f| path.starts_with(f));
        let code = code(&text);
        let used = ["{", "impl", "fn", "extern", "trait"].iter().any(|w| code.contains(&format!("un{} {w}", "safe")));
        if used && !allowed && !path.starts_with("xtask/") {
            found.push(path);
        }
    }
    fail_if_any("unsafe code in files that are not listed", found);
}

#[test]
fn pure_crates_forbid_unsafe_code() {
    let found = PURE
        .iter()
        // These two have files with `unsafe` code, listed above.
        .filter(|(n, _)| !matches!(*n, "base" | "ec"))
        .map(|(n, _)| format!("crates/{n}/src/lib.rs"))
        .filter(|p| !fs::read_to_string(root().join(p)).unwrap_or_default().contains("#![forbid(unsafe_code)]"))
        .collect();
    fail_if_any("crates without #![forbid(unsafe_code)]", found);
}

#[test]
fn commands_leave_the_format_to_the_renderer() {
    // Names that a command needs to branch on the format: the argument, the parsed format, a query of it.
    let words = ["\"format\"", ".format", "Format::", "Format {", "is_plain(", "structured("];
    // The renderer, and the file that parses a command and passes its format on.
    let may = ["crates/mon/src/command/language/render.rs", "crates/mon/src/command/mod.rs"];
    let all = files("crates/mon/src/command", &[".rs"]);
    assert!(may.iter().all(|f| all.contains_key(*f)), "the renderer was not found");
    let mut found = Vec::new();
    for (path, text) in all.iter().filter(|(p, _)| !may.contains(&p.as_str())) {
        let code = code(text);
        found.extend(words.iter().filter(|w| code.contains(**w)).map(|w| format!("{path}: {w}")));
    }
    fail_if_any("commands that look at the format of their answer", found);
}

#[test]
fn the_tree_names_no_machine() {
    let private =
        [concat!("/wo", "rk/"), concat!("/tmp/", "work"), concat!("/tmp/", "sid"), concat!("/tmp/", "trixie")];
    let mut found = Vec::new();
    for (path, text) in files(".", &[".rs", ".toml", ".md", ".sh", ".yml", ".yaml", ".py", ".txt", ".conf"]) {
        for (n, line) in text.lines().enumerate() {
            if private.iter().any(|w| line.contains(w)) {
                found.push(format!("{path}:{}", n + 1));
            }
        }
    }
    fail_if_any("paths of one machine", found);
}

#[test]
fn manifests_take_versions_from_the_workspace() {
    let mut found = Vec::new();
    for (path, text) in files("crates", &["Cargo.toml"]) {
        let mut inside = false;
        for line in text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
            if line.starts_with('[') {
                inside = line.ends_with("dependencies]");
            } else if inside && !line.contains("workspace") {
                found.push(format!("{path}: {line}"));
            }
        }
    }
    fail_if_any("dependencies with a version of their own", found);
}
