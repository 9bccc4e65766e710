//! Log levels that change while a daemon runs: Ceph's `debug_*` options, mapped to the modules that log.
//!
//! The program installs a function that replaces its log filter. Daemons derive directives from their options
//! and pass them on. Without such options the filter is the one the program started with.

use cluster::settings::Settings;
use std::sync::OnceLock;

type Reload = Box<dyn Fn(&str) + Send + Sync>;

static RELOAD: OnceLock<Reload> = OnceLock::new();

/// Options, and the modules whose level each sets.
const MODULES: &[(&str, &[&str])] = &[
    ("debug_auth", &["auth"]),
    ("debug_bluestore", &["store"]),
    ("debug_bdev", &["reactor"]),
    ("debug_mon", &["mon"]),
    ("debug_monc", &["client"]),
    ("debug_ms", &["net", "msgr"]),
    ("debug_objclass", &["cls"]),
    ("debug_osd", &["osd", "pg"]),
];

/// Installs the function that applies directives (`osd=debug,pg=debug`; empty restores the initial filter).
pub fn install(reload: impl Fn(&str) + Send + Sync + 'static) {
    // The first installation stays: a program has one log.
    let _ = RELOAD.set(Box::new(reload));
}

/// True for options that [`apply`] uses.
#[must_use]
pub fn observes(name: &str) -> bool {
    MODULES.iter().any(|(n, _)| *n == name)
}

/// Log level for Ceph's debug number.
fn level(n: u32) -> &'static str {
    match n {
        0 => "warn",
        1..=4 => "info",
        5..=14 => "debug",
        _ => "trace",
    }
}

/// Directives that the options ask for.
fn directives(settings: &Settings) -> String {
    let mut out: Vec<String> = Vec::new();
    for (name, modules) in MODULES {
        let n = settings.given(name).and_then(|t| t.split('/').next()?.trim().parse().ok());
        if let Some(n) = n {
            out.extend(modules.iter().map(|m| format!("{m}={}", level(n))));
        }
    }
    out.join(",")
}

/// Applies the log levels of these options.
pub fn apply(settings: &Settings) {
    if let Some(reload) = RELOAD.get() {
        reload(&directives(settings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_directives() {
        let mut s = Settings::default();
        assert_eq!(directives(&s), "");
        s.set("debug_osd", "10/10", observes).unwrap();
        s.set("debug_ms", "0", observes).unwrap();
        assert_eq!(directives(&s), "net=warn,msgr=warn,osd=debug,pg=debug");
    }
}
