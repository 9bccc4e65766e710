//! Parses a plan from TOML. Every error names its line.

use super::keys::{self, Key};
use super::{Axes, Axis, Disturbance, Plan, Settings};
use base::buf::PAGE;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Error in a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{line}: {what}", if .file.is_empty() { "line ".to_owned() } else { format!("{file}:") })]
pub struct PlanError {
    /// The plan's file, if known.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
}

/// A change of a plan by a command-line option: a key and values as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `section.key` or `load.NAME.key`.
    pub key: String,
    /// A value or a list of values.
    pub value: String,
}

impl Change {
    /// Parses `key=value`; a bare word counts as text. Error: text without `=`.
    pub fn parse(s: &str) -> std::result::Result<Self, String> {
        let (key, value) = s.split_once('=').ok_or_else(|| format!("{s}: expected KEY=VALUE"))?;
        let quoted = |v: &str| format!("{v:?}");
        let value = if DeValue::parse(value).is_ok() { value.to_owned() } else { quoted(value) };
        Ok(Self { key: key.trim().to_owned(), value })
    }
}

struct Source<'a> {
    text: &'a str,
    file: &'a str,
    /// Line for all errors of this source; changes from the command line have no lines.
    fixed: Option<usize>,
}

type Result<T> = std::result::Result<T, PlanError>;

impl Source<'_> {
    fn line(&self, at: usize) -> usize {
        self.fixed.unwrap_or_else(|| 1 + self.text.bytes().take(at).filter(|b| *b == b'\n').count())
    }

    fn error<T>(&self, at: usize, what: impl Into<String>) -> Result<T> {
        Err(PlanError { file: self.file.to_owned(), line: self.line(at), what: what.into() })
    }
}

/// A value other than a list or table, as text.
fn scalar(v: &DeValue<'_>) -> Option<String> {
    match v {
        DeValue::String(s) => Some(s.to_string()),
        DeValue::Integer(i) if i.radix() == 10 => Some(i.as_str().replace('_', "")),
        DeValue::Float(f) => Some(f.as_str().replace('_', "")),
        DeValue::Boolean(b) => Some(b.to_string()),
        _ => None,
    }
}

/// The checked values of a key.
fn values(src: &Source<'_>, k: &Key, v: &Spanned<DeValue<'_>>, swept: bool) -> Result<Vec<String>> {
    let one = |v: &Spanned<DeValue<'_>>| {
        let at = v.span().start;
        let Some(s) = scalar(v.get_ref()) else {
            return src.error(at, format!("{}: expected a value, found {}", k.name, v.get_ref().type_str()));
        };
        match k.kind.check(&s) {
            Ok(()) => Ok(s),
            Err(e) => src.error(at, format!("{}: {e}", k.name)),
        }
    };
    match v.get_ref() {
        DeValue::Array(_) if !swept => {
            src.error(v.span().start, format!("{}: expected one value, found a list", k.name))
        }
        DeValue::Array(a) if a.is_empty() => src.error(v.span().start, format!("{}: an empty list", k.name)),
        DeValue::Array(a) => a.iter().map(one).collect(),
        _ => Ok(vec![one(v)?]),
    }
}

fn known(src: &Source<'_>, section: &str, name: &str, at: usize) -> Result<&'static Key> {
    match keys::find(section, name) {
        Some(k) => Ok(k),
        None => {
            let hint = keys::nearest(section, name).map_or(String::new(), |n| format!("; did you mean {n}?"));
            src.error(at, format!("[{section}] has no key {name}{hint}"))
        }
    }
}

/// All keys of a section: those given, and the defaults of the others, in the order of the key table.
fn section(src: &Source<'_>, name: &str, given: Option<&DeTable<'_>>) -> Result<Axes> {
    let swept = keys::SWEPT.contains(&name);
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (k, v) in given.into_iter().flatten() {
        let key = known(src, name, k.get_ref(), k.span().start)?;
        found.insert(key.name, values(src, key, v, swept)?);
    }
    let of = keys::KEYS.iter().filter(|k| k.section == name);
    Ok(of
        .map(|k| Axis {
            key: k.name.to_owned(),
            values: found.remove(k.name).unwrap_or_else(|| vec![k.default.to_owned()]),
        })
        .collect())
}

fn settings(axes: Axes) -> Settings {
    Settings(axes.into_iter().map(|a| (a.key, a.values.into_iter().next().unwrap_or_default())).collect())
}

fn table<'a, 'i>(src: &Source<'_>, name: &str, v: &'a Spanned<DeValue<'i>>) -> Result<&'a DeTable<'i>> {
    match v.get_ref() {
        DeValue::Table(t) => Ok(t),
        other => src.error(v.span().start, format!("{name}: expected a table, found {}", other.type_str())),
    }
}

fn tables<'a, 'i>(src: &Source<'_>, name: &str, v: &'a Spanned<DeValue<'i>>) -> Result<Vec<&'a DeTable<'i>>> {
    match v.get_ref() {
        DeValue::Array(a) => a.iter().map(|t| table(src, name, t)).collect(),
        _ => src.error(v.span().start, format!("{name}: expected [[{name}]]")),
    }
}

fn texts(src: &Source<'_>, name: &str, t: &DeTable<'_>) -> Result<BTreeMap<String, String>> {
    t.iter()
        .map(|(k, v)| match scalar(v.get_ref()) {
            Some(s) => Ok((k.get_ref().to_string(), s)),
            None => src.error(v.span().start, format!("{name}: {}: expected a value", k.get_ref())),
        })
        .collect()
}

/// Parses a plan. `small` applies its section `[small]`; `changes` apply after it. Error: the first place that is
/// malformed, in the text or a change, or `small` without such a section.
pub fn parse(text: &str, file: &str, small: bool, changes: &[Change]) -> Result<Plan> {
    let src = Source { text, file, fixed: None };
    let root = match DeTable::parse(text) {
        Ok(r) => r,
        Err(e) => return src.error(e.span().map_or(0, |s| s.start), e.message().to_owned()),
    };
    let root = root.get_ref();
    let mut plan = read(&src, root)?;
    if small {
        let Some(t) = root.get("small") else {
            return src.error(0, "the plan has no [small] section");
        };
        for (k, v) in table(&src, "small", t)? {
            apply(&src, &mut plan, k.get_ref(), k.span().start, v)?;
        }
    }
    for c in changes {
        let src = Source { text: &c.value, file: "--set", fixed: Some(1) };
        match DeValue::parse(&c.value) {
            Ok(v) => apply(&src, &mut plan, &c.key, 0, &v)?,
            Err(e) => return src.error(0, format!("{}: {}", c.key, e.message())),
        }
    }
    check(&src, plan)
}

fn read(src: &Source<'_>, root: &DeTable<'_>) -> Result<Plan> {
    let mut plan = Plan {
        head: Settings::default(),
        cluster: section(src, "cluster", None)?,
        pool: section(src, "pool", None)?,
        loads: Vec::new(),
        disturb: Vec::new(),
        observe: settings(section(src, "observe", None)?),
        options: BTreeMap::new(),
        except: Vec::new(),
    };
    let mut head = DeTable::new();
    for (k, v) in root {
        let (name, at) = (k.get_ref().as_ref(), k.span().start);
        match name {
            "cluster" => plan.cluster = section(src, name, Some(table(src, name, v)?))?,
            "pool" => plan.pool = section(src, name, Some(table(src, name, v)?))?,
            "observe" => plan.observe = settings(section(src, name, Some(table(src, name, v)?))?),
            "load" => {
                for t in tables(src, name, v)? {
                    plan.loads.push(section(src, name, Some(t))?);
                }
            }
            "disturb" => {
                for t in tables(src, name, v)? {
                    let s = settings(section(src, name, Some(t))?);
                    plan.disturb.push(Disturbance {
                        at: s.number("at"),
                        what: s.text("what").to_owned(),
                        load: s.text("load").to_owned(),
                        osd: s.int("osd"),
                        value: s.int("value"),
                    });
                }
            }
            "options" => {
                for (who, t) in table(src, name, v)? {
                    let t = texts(src, name, table(src, who.get_ref(), t)?)?;
                    plan.options.insert(who.get_ref().to_string(), t);
                }
            }
            "except" => {
                for t in tables(src, name, v)? {
                    let t = texts(src, name, t)?;
                    for k in t.keys() {
                        let (s, n) = k.split_once('.').unwrap_or(("", k));
                        if !keys::SWEPT.contains(&s) {
                            return src.error(at, format!("except: {k}: expected a quoted \"section.key\""));
                        }
                        known(src, s, n, at)?;
                    }
                    plan.except.push(t);
                }
            }
            "small" => {}
            _ if v.get_ref().is_table() => {
                return src.error(at, format!("no section is named {name}"));
            }
            _ => {
                head.insert(k.clone(), v.clone());
            }
        }
    }
    plan.head = settings(section(src, "plan", Some(&head))?);
    Ok(plan)
}

/// Replaces the values of a key.
fn apply(src: &Source<'_>, plan: &mut Plan, path: &str, at: usize, v: &Spanned<DeValue<'_>>) -> Result<()> {
    let (sect, rest) = path.split_once('.').unwrap_or(("plan", path));
    let (load, name) = match rest.rsplit_once('.') {
        Some((l, n)) if sect == "load" => (Some(l), n),
        _ => (None, rest),
    };
    if let ("options", Some((who, option))) = (sect, rest.split_once('.')) {
        let Some(s) = scalar(v.get_ref()) else { return src.error(at, format!("{path}: expected a value")) };
        plan.options.entry(who.to_owned()).or_default().insert(option.to_owned(), s);
        return Ok(());
    }
    let key = known(src, sect, name, at)?;
    let new = values(src, key, v, keys::SWEPT.contains(&sect))?;
    let put = |axes: &mut Axes| {
        for a in axes.iter_mut().filter(|a| a.key == key.name) {
            a.values.clone_from(&new);
        }
    };
    match sect {
        "cluster" => put(&mut plan.cluster),
        "pool" => put(&mut plan.pool),
        "load" => {
            let mut hit = false;
            for l in &mut plan.loads {
                let is = |n: &str| l.iter().any(|a| a.key == "name" && a.values.iter().any(|x| x == n));
                if load.is_none_or(is) {
                    put(l);
                    hit = true;
                }
            }
            if !hit {
                return src.error(at, format!("{path}: no load is named {}", load.unwrap_or_default()));
            }
        }
        "plan" | "observe" => {
            let s = if sect == "plan" { &mut plan.head } else { &mut plan.observe };
            s.0.insert(key.name.to_owned(), new.into_iter().next().unwrap_or_default());
        }
        _ => return src.error(at, format!("{path} cannot be changed here")),
    }
    Ok(())
}

/// Largest number of processes of a load by Winery: each has connections to PostgreSQL.
const WORKERS_MAX: u64 = 64;

/// Checks that an archive has workers, and not too many.
fn check_workers(src: &Source<'_>, c: &super::Cell) -> Result<()> {
    let load = c.load_name();
    let of = |keys: &[&str]| keys.iter().map(|k| c.load.int(k)).fold(0, u64::saturating_add);
    let by_winery = c.load.text("tool") == "winery";
    let in_order = if by_winery { c.load.int("sequential_readers") } else { 0 };
    if c.load.text("job") == "archive" && of(&["writers", "readers"]).saturating_add(in_order) == 0 {
        return src.error(0, format!("load {load}: writers and readers are both 0"));
    }
    let all = of(&["writers", "readers"]).saturating_mul(c.load.int("clients"));
    if by_winery && all.saturating_add(in_order).saturating_add(c.load.int("packers")) > WORKERS_MAX {
        return src.error(0, format!("load {load}: more than {WORKERS_MAX} writers, readers and packers"));
    }
    Ok(())
}

/// Checks that the loads of disturbances exist.
fn check_disturbances(src: &Source<'_>, plan: &Plan) -> Result<()> {
    let loads: Vec<String> = plan.cells().iter().map(super::Cell::load_name).collect();
    match plan.disturb.iter().find(|d| !d.load.is_empty() && !loads.contains(&d.load)) {
        Some(d) => src.error(0, format!("disturb: no load is named {}", d.load)),
        None => Ok(()),
    }
}

/// Checks relations between keys.
fn check(src: &Source<'_>, plan: Plan) -> Result<Plan> {
    if plan.loads.is_empty() {
        return src.error(0, "a plan needs a [[load]]");
    }
    check_disturbances(src, &plan)?;
    for c in plan.cells() {
        let job = c.load.text("job");
        let knows: &[&str] = match c.load.text("tool") {
            "bench" => {
                &["read", "write", "rw", "randread", "randwrite", "randrw", "fill", "omapset", "omapget", "omaprw"]
            }
            "fio" => &["read", "write", "rw", "randread", "randwrite", "randrw"],
            "rados" => &["write", "seq", "rand"],
            "s3" => &["put", "get", "head", "list", "delete", "mixed", "archive"],
            "objects" => &["put", "get", "head", "delete", "archive"],
            "files" => &["create", "stat", "rename", "unlink", "readdir", "mixed"],
            "build" => &["build"],
            "winery" => &["archive"],
            _ => &["read", "write", "randread", "randwrite"],
        };
        let load = c.load_name();
        if !knows.contains(&job) {
            return src.error(0, format!("load {load}: {} does {}, not {job}", c.load.text("tool"), knows.join(", ")));
        }
        if c.load.number("seconds") <= 0.0 {
            return src.error(0, format!("load {load}: seconds: expected more than 0"));
        }
        if c.load.number("rate") > 0.0 && matches!(c.load.text("tool"), "rados" | "rbd") {
            return src.error(0, format!("load {load}: {} has no rate", c.load.text("tool")));
        }
        check_workers(src, &c)?;
        let (tool, target) = (c.load.text("tool"), c.load.text("target"));
        if matches!(target, "file" | "device") && tool != "fio" {
            return src.error(0, format!("load {load}: the target {target} is for fio, not for {tool}"));
        }
        if tool == "fio" && target == "device" && (c.load.text("device").is_empty() || c.load.int("clients") > 1) {
            return src.error(0, format!("load {load}: the target device needs the key device, and has one client"));
        }
        let needed = match tool {
            "s3" => Some("endpoint"),
            _ if c.uses_files() => Some("directory"),
            _ => None,
        };
        let existing = c.cluster.text("system").starts_with("existing:");
        if let Some(key) = needed.filter(|k| existing && c.load.text(k).is_empty()) {
            return src.error(0, format!("load {load}: an existing cluster needs the key {key}"));
        }
        let paths = c.cluster.text("device_paths").split(',').filter(|p| !p.is_empty()).count() as u64;
        if paths > 0 && paths != super::estimate::osds(&c) {
            return src.error(0, format!("cluster: {paths} device_paths; expected one for each OSD"));
        }
        if keys::hosts(&c.cluster).next().is_some() {
            let limited = c.cluster.number("cores_per_device") > 0.0 || c.cluster.bytes("disk_limit") > 0;
            if c.cluster.int("nodes") > 0 || limited {
                return src.error(0, "cluster: hosts cannot be combined with nodes, cores_per_device or disk_limit");
            }
            if c.cluster.text("system").contains(':') {
                return src.error(0, "cluster: with hosts the system is belemnite, or ceph as the hosts have it");
            }
        }
        check_files(src, &c, paths)?;
        check_floor(src, &plan, &c)?;
    }
    Ok(plan)
}

/// Checks what a cell asks of the OSDs' files, or of as many devices as there are `paths`.
fn check_files(src: &Source<'_>, c: &super::Cell, paths: u64) -> Result<()> {
    let existing = c.cluster.text("system").starts_with("existing:");
    if paths > 0 && existing {
        return src.error(0, "cluster: an existing cluster takes no device_paths");
    }
    let elsewhere = existing || paths > 0 || keys::hosts(&c.cluster).next().is_some();
    if c.cluster.is("written") && elsewhere {
        return src.error(0, "cluster: written is for files that the run makes on this machine");
    }
    Ok(())
}

/// Checks that the floor can do what a cell asks for.
fn check_floor(src: &Source<'_>, plan: &Plan, c: &super::Cell) -> Result<()> {
    if !keys::is_floor(c.cluster.text("system")) {
        return Ok(());
    }
    let (load, l) = (c.load_name(), &c.load);
    let job = matches!(l.text("job"), "read" | "write" | "rw" | "randread" | "randwrite" | "randrw");
    if l.text("tool") != "bench" || l.text("target") != "object" || !job {
        return src.error(0, format!("load {load}: the floor takes reads and writes of objects by the tool bench"));
    }
    if l.bytes("object_size") > keys::FLOOR_OBJECT_MAX
        || !l.bytes("block").is_multiple_of(PAGE as u64)
        || l.bytes("block") == 0
    {
        return src
            .error(0, format!("load {load}: the floor takes objects of at most 4M, and blocks of whole pages (4K)"));
    }
    let osds = super::estimate::osds(c);
    if c.pool.text("redundancy") != osds.to_string() {
        let text =
            format!("pool: the floor keeps a copy on each of its servers: with {osds} OSDs, redundancy is {osds}");
        return src.error(0, text);
    }
    if c.cluster.text("mode") != "crc" || c.cluster.int("reactors") > 1 || keys::hosts(&c.cluster).next().is_some() {
        return src.error(0, "cluster: the floor has one reactor on this machine, and mode crc");
    }
    if c.disturbances(&plan.disturb).next().is_some() {
        return src.error(0, format!("load {load}: the floor cannot be disturbed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "name = \"t\"\nrepetitions = 2\n[cluster]\nsystem = [\"belemnite\", \"ceph\"]\n[pool]\npg_num = [8, 64]\n\
        [[load]]\nname = \"r\"\njob = \"randread\"\ndepth = [1, 16]\n[[load]]\nname = \"w\"\nseconds = 5\n\
        [small]\n\"pool.pg_num\" = 4\n\"load.r.seconds\" = 1\nrepetitions = 1\n";

    fn error(text: &str) -> String {
        parse(text, "p.toml", false, &[]).unwrap_err().to_string()
    }

    #[test]
    fn lists_are_swept() {
        let p = parse(PLAN, "p", false, &[]).unwrap();
        let cells = p.cells();
        assert_eq!(cells.len(), 2 * 2 * 3 * 2);
        assert_eq!((cells[0].id(), cells[1].id(), cells[2].id()), ("0000.0".into(), "0000.1".into(), "0001.0".into()));
        assert_eq!(cells.last().unwrap().cluster.text("system"), "ceph");
        assert_eq!(p.varied(), ["cluster.system", "pool.pg_num", "load.job", "load.depth"]);
        let first = &cells[0];
        assert_eq!((first.pool.int("pg_num"), first.load.int("depth"), first.load.bytes("block")), (8, 1, 4096));
    }

    #[test]
    fn small_and_changes_replace_values() {
        let sets = [Change::parse("cluster.system=ceph:/r").unwrap(), Change::parse("load.depth=[2,3]").unwrap()];
        let p = parse(PLAN, "p", true, &sets).unwrap();
        let cells = p.cells();
        assert_eq!(cells.len(), 4);
        assert!(cells.iter().all(|c| c.cluster.text("system") == "ceph:/r" && c.pool.int("pg_num") == 4));
        let seconds: Vec<_> = cells.iter().map(|c| (c.load_name(), c.load.text("seconds").to_owned())).collect();
        assert_eq!(seconds[0], ("r".into(), "1".into()));
        assert_eq!(seconds[3], ("w".into(), "5".into()));
        let bad = [Change::parse("load.x.depth=1").unwrap()];
        assert!(parse(PLAN, "p", false, &bad).unwrap_err().to_string().contains("no load is named x"));
    }

    #[test]
    fn cells_can_be_left_out() {
        let text = format!("{PLAN}\n[[except]]\n\"cluster.system\" = \"ceph\"\n\"load.name\" = \"w\"\n");
        let p = parse(&text, "p", false, &[]).unwrap();
        assert_eq!(p.cells().len(), 24 - 4);
        assert!(error("[[except]]\nsystem = 1\n[[load]]\n").starts_with("p.toml:1: except: system"));
    }

    #[test]
    fn a_disturbance_may_be_of_one_load() {
        let text = "[[load]]\nname = \"a\"\n[[load]]\nname = \"b\"\n[[disturb]]\nwhat = \"osd-out\"\nload = \"b\"\n\
            [[disturb]]\nwhat = \"scrub\"\n";
        let p = parse(text, "p", false, &[]).unwrap();
        let of = |name: &str| -> Vec<String> {
            let cells = p.cells();
            let c = cells.iter().find(|c| c.load_name() == name).unwrap();
            c.disturbances(&p.disturb).map(|d| d.what.clone()).collect()
        };
        assert_eq!((of("a"), of("b")), (vec!["scrub".to_owned()], vec!["osd-out".to_owned(), "scrub".to_owned()]));
        assert!(error("[[load]]\nname = \"a\"\n[[disturb]]\nload = \"c\"\n").contains("no load is named c"));
    }

    #[test]
    fn a_load_by_winery_has_workers_and_not_too_many() {
        let load =
            |rest: &str| format!("[[load]]\ntool = \"winery\"\njob = \"archive\"\nwriters = 0\nreaders = 0\n{rest}");
        assert!(error(&load("")).contains("both 0"));
        assert!(parse(&load("sequential_readers = 1\n"), "p", false, &[]).is_ok());
        assert!(error(&load("sequential_readers = 64\n")).contains("more than 64"));
        assert!(error("[[load]]\ntool = \"winery\"\njob = \"put\"\n").contains("winery does archive, not put"));
    }

    #[test]
    fn plans_beyond_the_floor_are_refused() {
        assert_eq!(
            error("[cluster]\nsystem = \"floor\"\n[[load]]\ntool = \"fio\"\n"),
            "p.toml:1: load fio randwrite: the floor takes reads and writes of objects by the tool bench"
        );
        assert_eq!(
            error("[cluster]\nsystem = \"floor\"\ndevices = 3\n[pool]\nredundancy = 2\n[[load]]\n"),
            "p.toml:1: pool: the floor keeps a copy on each of its servers: with 3 OSDs, redundancy is 3"
        );
        let floor = "[cluster]\nsystem = \"floor\"\n[[load]]\n";
        assert!(error(&format!("{floor}object_size = \"8M\"\n")).contains("objects of at most 4M"));
        assert!(error(&format!("{floor}block = 5000\n")).contains("blocks of whole pages"));
        assert!(error("[cluster]\nsystem = \"floor\"\nmode = \"secure\"\n[[load]]\n").contains("and mode crc"));
        let scrub = "[[disturb]]\nat = 0.5\nwhat = \"scrub\"\n";
        assert!(error(&format!("{floor}{scrub}")).contains("the floor cannot be disturbed"));
        assert!(parse(&format!("name = \"x\"\n{floor}"), "p.toml", false, &[]).is_ok());
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(error("[pool]\n\npgnum = 3\n"), "p.toml:3: [pool] has no key pgnum; did you mean pg_num?");
        assert_eq!(
            error("[pool]\npg_num = [8,\n  0]\n"),
            "p.toml:3: pg_num: \"0\": expected a whole number of at least 1"
        );
        assert_eq!(error("[observe]\nevery = [1]\n"), "p.toml:2: every: expected one value, found a list");
        assert_eq!(
            error("[cluster]\nsystem = \"hdfs\"\n"),
            "p.toml:2: system: \"hdfs\": expected belemnite, ceph, ceph:ROOT, existing:CEPH_CONF or floor"
        );
        assert_eq!(error("a\nb = \n"), error("a\nb = \n"));
        assert!(error("x = 1\ny ==").starts_with("p.toml:2: "), "{}", error("x = 1\ny =="));
        assert_eq!(error("[colour]\nx = 1\n"), "p.toml:1: no section is named colour");
        assert!(error("name = \"x\"\n").contains("a plan needs a [[load]]"));
        assert!(
            error("[[load]]\ntool = \"rados\"\njob = \"randread\"\n")
                .contains("rados does write, seq, rand, not randread")
        );
        assert!(error("[load]\ntool = \"rados\"\n").contains("expected [[load]]"));
    }
}
