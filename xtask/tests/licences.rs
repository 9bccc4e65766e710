//! Does every linked crate have an allowed licence? Reads `cargo metadata`; the allowed licences are those of
//! deny.toml.

use std::process::Command;

/// The values of `"key":"…"` in JSON text, unescaped as far as licence expressions need it.
fn text_after<'a>(s: &'a str, key: &str) -> Option<&'a str> {
    let at = s.find(&format!("\"{key}\":"))? + key.len() + 3;
    s[at..].strip_prefix('"')?.split('"').next()
}

/// Licences listed in deny.toml.
fn allowed(deny: &str) -> Vec<String> {
    let list = deny.split("allow = [").nth(1).and_then(|s| s.split(']').next()).unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// True if allowed licences satisfy the expression: any operand of OR, all operands of AND.
fn satisfied(expr: &str, allowed: &[String]) -> bool {
    let expr = expr.replace('/', " OR ").replace(['(', ')'], " ");
    expr.split(" AND ").all(|part| part.split(" OR ").any(|one| allowed.iter().any(|a| a == one.trim())))
}

#[test]
fn every_crate_has_a_licence_that_deny_toml_allows() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let deny = std::fs::read_to_string(root.join("deny.toml")).unwrap();
    let allowed = allowed(&deny);
    assert!(allowed.len() > 3, "deny.toml lists the allowed licences");
    let target = "x86_64-unknown-linux-gnu";
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--filter-platform", target])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json = String::from_utf8(out.stdout).unwrap();
    // A package begins with its name and version; no other part of the structure is needed.
    let mut bad = Vec::new();
    let mut seen = 0;
    let packages = json.split("\"workspace_members\"").next().unwrap();
    for p in packages.split("{\"name\":\"").skip(1) {
        let Some(name) = p.split('"').next() else { continue };
        // Only packages have a version right after the name; dependencies and targets do not.
        if !p[name.len()..].starts_with("\",\"version\":\"") {
            continue;
        }
        seen += 1;
        match text_after(p, "license") {
            Some(l) if satisfied(l, &allowed) => {}
            l => bad.push(format!("{name}: {}", l.unwrap_or("no licence"))),
        }
    }
    assert!(seen > 50, "found only {seen} packages: the form of `cargo metadata` has changed");
    assert!(bad.is_empty(), "not allowed by deny.toml:\n{}", bad.join("\n"));
}

#[test]
fn expressions() {
    let ok = ["MIT".to_owned(), "Apache-2.0".to_owned()];
    assert!(satisfied("MIT OR GPL-3.0", &ok));
    assert!(satisfied("MIT/Apache-2.0", &ok));
    assert!(satisfied("(MIT OR GPL-2.0) AND Apache-2.0", &ok));
    assert!(!satisfied("MIT AND GPL-3.0", &ok));
    assert!(!satisfied("GPL-3.0", &ok));
}
