//! Options of Ceph's daemons and clients: names, types, defaults and limits.
//!
//! Facts for `config help`, `config get` and for refusing values that a daemon can't use. The table
//! (`options.tsv`) is Pacific's, except for defaults in which our daemons differ (one copy per pool, no
//! autoscaling). It also covers Ceph's daemons and clients, which may run beside ours.

use crate::units::{general, strict_iec, strict_int, strict_si};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// Signed number.
    Int,
    /// Unsigned number.
    Uint,
    /// Bytes, with binary prefixes.
    Size,
    /// Floating point.
    Float,
    /// Duration in seconds.
    Secs,
    /// Duration in milliseconds.
    Millisecs,
    /// Text.
    Str,
    /// Address.
    Addr,
    /// Uuid.
    Uuid,
}

/// One option.
#[derive(Clone, Debug)]
pub struct Opt {
    /// Name of the option.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Ceph's name of the type.
    pub kind_name: &'static str,
    /// Audience of the option: `basic`, `advanced` or `dev`.
    pub level: &'static str,
    /// True if a running daemon applies a change.
    pub runtime: bool,
    /// Ceph's flags: `runtime`, `startup`, `no_mon_update`, ….
    pub flags: Vec<&'static str>,
    /// Daemons and clients that use the option.
    pub services: Vec<&'static str>,
    /// Default value, as text.
    pub default: &'static str,
    /// Default value for daemons, if different; else empty.
    pub daemon_default: &'static str,
    /// Lowest value, empty for none.
    pub min: &'static str,
    /// Highest value, empty for none.
    pub max: &'static str,
    /// Allowed values, empty for any.
    pub values: Vec<&'static str>,
}

impl Opt {
    fn parse(line: &'static str) -> Option<Self> {
        let mut f = line.split('\t');
        let name = f.next()?;
        let kind_name = f.next()?;
        let kind = match kind_name {
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "uint" => Kind::Uint,
            "size" => Kind::Size,
            "float" => Kind::Float,
            "secs" => Kind::Secs,
            "millisecs" => Kind::Millisecs,
            "str" => Kind::Str,
            "addr" | "addrvec" => Kind::Addr,
            "uuid" => Kind::Uuid,
            _ => return None,
        };
        let level = match f.next()? {
            "b" => "basic",
            "a" => "advanced",
            _ => "dev",
        };
        let runtime = f.next()? == "1";
        let list = |t: Option<&'static str>, sep: char| -> Vec<&'static str> {
            t.unwrap_or_default().split(sep).filter(|s| !s.is_empty()).collect()
        };
        let flags = list(f.next(), ',');
        let services = list(f.next(), ',');
        let mut text = || f.next().unwrap_or_default();
        let (default, daemon_default, min, max) = (text(), text(), text(), text());
        Some(Self {
            name,
            kind,
            kind_name,
            level,
            runtime,
            flags,
            services,
            default,
            daemon_default,
            min,
            max,
            values: list(f.next(), '|'),
        })
    }

    /// Purpose of the option, empty if not described.
    #[must_use]
    pub fn description(&self) -> &'static str {
        crate::option_texts::description(self.name)
    }

    /// True if only a configuration file may set the option.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.flags.contains(&"no_mon_update")
    }

    /// Default for a daemon, or for a client.
    #[must_use]
    pub fn default_for(&self, daemon: bool) -> &'static str {
        if daemon && !self.daemon_default.is_empty() { self.daemon_default } else { self.default }
    }

    /// Checks a value and returns its canonical form. The error is the text for the user.
    pub fn normalize(&self, v: &str) -> Result<String, String> {
        let out = match self.kind {
            Kind::Bool => match v.to_ascii_lowercase().as_str() {
                "true" => "true".to_owned(),
                "false" => "false".to_owned(),
                _ => (strict_int(v)? != 0).to_string(),
            },
            Kind::Int | Kind::Millisecs => strict_si(v)?.to_string(),
            Kind::Uint => {
                let n = strict_si(v)?;
                if n < 0 {
                    return Err("strict_si_cast: value should not be negative".into());
                }
                n.to_string()
            }
            Kind::Size => {
                let n = strict_iec(v)?;
                if n < 0 {
                    return Err("strict_iecstrtoll: value should not be negative".into());
                }
                n.to_string()
            }
            Kind::Float => {
                let f: f64 = v.parse().map_err(|_| format!("strict_strtod: expected double, got: '{v}'"))?;
                if !f.is_finite() {
                    return Err(format!("strict_strtod: expected double, got: '{v}'"));
                }
                format!("{f:.6}")
            }
            Kind::Secs => strict_si(v.trim_end_matches('s')).or_else(|_| duration(v))?.to_string(),
            Kind::Str if self.name.starts_with("debug_") => debug_level(v)?,
            Kind::Str => v.to_owned(),
            Kind::Addr => match v {
                "" | "-" => v.to_owned(),
                _ => base::EntityAddr::parse(v)
                    .map(|_| v.to_owned())
                    .ok_or_else(|| String::from("parsing address failed"))?,
            },
            Kind::Uuid => base::id::Uuid::parse(v).map(|u| u.to_string()).ok_or_else(String::new)?,
        };
        if !self.values.is_empty() && !self.values.contains(&out.as_str()) {
            return Err(format!("'{out}' is not one of the permitted values: {}", self.values.join(", ")));
        }
        self.check_range(&out)?;
        Ok(out)
    }

    fn check_range(&self, v: &str) -> Result<(), String> {
        let (Ok(n), numeric) =
            (v.parse::<f64>(), !matches!(self.kind, Kind::Str | Kind::Bool | Kind::Addr | Kind::Uuid))
        else {
            return Ok(());
        };
        if !numeric {
            return Ok(());
        }
        let shown = |n: f64| general(n, 15);
        if let Ok(min) = self.min.parse::<f64>()
            && n < min
        {
            return Err(format!("Value '{}' is below minimum {}", shown(n), self.min));
        }
        if let Ok(max) = self.max.parse::<f64>()
            && n > max
        {
            return Err(format!("Value '{}' exceeds maximum {}", shown(n), self.max));
        }
        Ok(())
    }
}

fn duration(v: &str) -> Result<i64, String> {
    let mut total = 0i64;
    for part in v.split_whitespace() {
        let at = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (n, unit) = part.split_at(at);
        let scale = match unit {
            "" | "s" | "sec" | "seconds" => 1,
            "m" | "min" | "minutes" => 60,
            "h" | "hr" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "weeks" => 604_800,
            _ => return Err(format!("unit not recognized: '{unit}'")),
        };
        let n: i64 = n.parse().map_err(|_| format!("invalid duration: '{v}'"))?;
        total = total.saturating_add(n.saturating_mul(scale));
    }
    Ok(total)
}

/// `N` or `N/M`; `N` means `N/N`.
fn debug_level(v: &str) -> Result<String, String> {
    let bad = || String::from("value must take the form N or N/M, where N and M are integers");
    let (a, b) = v.split_once('/').unwrap_or((v, v));
    let (a, b): (u32, u32) = (a.parse().map_err(|_| bad())?, b.parse().map_err(|_| bad())?);
    Ok(format!("{a}/{b}"))
}

fn table() -> &'static BTreeMap<&'static str, Opt> {
    static TABLE: OnceLock<BTreeMap<&'static str, Opt>> = OnceLock::new();
    TABLE.get_or_init(|| {
        include_str!("options.tsv")
            .lines()
            .filter(|l| !l.starts_with('#'))
            .filter_map(Opt::parse)
            .map(|o| (o.name, o))
            .collect()
    })
}

/// An option by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Opt> {
    table().get(name)
}

/// All options by name.
pub fn all() -> impl Iterator<Item = &'static Opt> {
    table().values()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_parses_and_every_default_is_valid() {
        let lines = include_str!("options.tsv").lines().filter(|l| !l.starts_with('#')).count();
        assert_eq!(table().len(), lines);
        for o in all().filter(|o| !o.default.is_empty()) {
            assert!(o.normalize(o.default).is_ok(), "{} = {}", o.name, o.default);
        }
        for (n, _) in crate::option_texts::TEXTS {
            assert!(find(n).is_some(), "{n}");
        }
    }

    #[test]
    fn values_are_refused_as_ceph_refuses_them() {
        let no = |n: &str, v: &str| find(n).unwrap().normalize(v).unwrap_err();
        assert_eq!(no("rbd_cache", "zz"), "Expected option value to be integer, got 'zz'");
        assert_eq!(no("osd_max_backfills", "x"), "strict_si_cast: unit prefix not recognized");
        assert_eq!(no("osd_pool_default_size", "20"), "Value '20' exceeds maximum 10");
        assert_eq!(no("debug_osd", "zz"), "value must take the form N or N/M, where N and M are integers");
        assert_eq!(
            no("osd_pool_default_pg_autoscale_mode", "zz"),
            "'zz' is not one of the permitted values: off, warn, on"
        );
        assert_eq!(no("fsid", "zz"), "");
        let ok = |n: &str, v: &str| find(n).unwrap().normalize(v).unwrap();
        assert_eq!(ok("osd_memory_target", "4G"), "4294967296");
        assert_eq!(ok("debug_osd", "2"), "2/2");
        assert_eq!(ok("rbd_cache", "0"), "false");
        assert_eq!(ok("mon_mgr_beacon_grace", "1m"), "60");
    }
}
