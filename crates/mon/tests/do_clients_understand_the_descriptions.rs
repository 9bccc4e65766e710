//! Do the `ceph` programs accept this program's command descriptions, and do these agree with Ceph's own?

mod support;

use mon::command::language::sig::Sig;
use mon::command::{Cmd, commands, flag};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use support::*;

fn reference(release: &str) -> BTreeMap<String, Vec<Value>> {
    let path = format!("{}/../../vectors/enc/command-descriptions-mon-{release}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let all: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    let mut by: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for v in all.into_values() {
        let words: Vec<&str> = v["sig"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        by.entry(words.join(" ")).or_default().push(v);
    }
    by
}

/// Arguments of newer releases, which Pacific's command of that name lacks or types otherwise.
const NEWER: [&str; 3] = ["key_type", "read_ratio", "range"];

fn arguments(v: &Value) -> Vec<(String, String, bool, bool)> {
    v["sig"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|a| a.is_object())
        .map(|a| {
            let optional = matches!(&a["req"], Value::String(s) if s == "false") || a["req"] == false;
            let name = a["name"].as_str().unwrap().to_owned();
            (name, a["type"].as_str().unwrap().to_owned(), optional, a["n"] == "N")
        })
        .collect()
}

#[test]
fn arguments_and_permissions_are_those_of_ceph() {
    let refs: Vec<_> = ["p", "r", "t"].iter().map(|r| reference(r)).collect();
    let (mut compared, mut wrong) = (0, Vec::new());
    for (sig, c) in commands() {
        // `tell` has its own `config get` and so on, which Ceph's monitor describes on its admin socket only.
        if c.flags & flag::TELL == flag::TELL && sig.prefix.starts_with("config ") {
            continue;
        }
        let ours: Value = serde_json::from_str(&sig.describe().compact()).unwrap();
        let ours = arguments(&json!({ "sig": ours }));
        let theirs: Vec<&Value> = refs.iter().filter_map(|r| r.get(&sig.prefix)).flatten().collect();
        if theirs.is_empty() {
            continue;
        }
        compared += 1;
        let fits = theirs.iter().any(|t| {
            let theirs = arguments(t);
            // The descriptions here may leave out optional arguments of Ceph's, and have those of newer releases.
            theirs.iter().all(|a| a.2 || ours.iter().any(|o| o.0 == a.0 && o.1 == a.1 && o.3 == a.3))
                && ours.iter().all(|o| NEWER.contains(&o.0.as_str()) || theirs.contains(o))
        });
        let perms = theirs.iter().any(|t| t["perm"] == c.perm && t["module"] == c.module);
        if !fits || !perms {
            wrong.push(format!("{} {} {}: {ours:?}\n   theirs {:?}", sig.prefix, c.module, c.perm, theirs.first()));
        }
    }
    assert!(compared > 250, "{compared}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_of_cephs_mon_are_served_here() {
    // Commands of Pacific's monitor that are left out, with the reason.
    const LEFT_OUT: [(&str, &str); 18] = [
        ("mds set", "obsolete, or for Ceph's own tests"),
        ("mds add_", "obsolete"),
        ("mds cluster_", "obsolete"),
        ("mds deactivate", "obsolete"),
        ("mds dump", "obsolete"),
        ("mds getmap", "obsolete"),
        ("mds newfs", "obsolete"),
        ("mds remove_", "obsolete"),
        ("mds rm_data_pool", "obsolete"),
        ("mds stop", "obsolete"),
        ("mds tell", "obsolete"),
        ("mon ", "one monitor, no elections"),
        ("quorum ", "one monitor, no elections"),
        ("sync_force", "one monitor, no elections"),
        ("osd force_", "no stretch mode"),
        ("osd tier ", "no cache tiers"),
        ("config ", "served as a tell command"),
        ("tell", "the program sends these itself"),
    ];
    let have: Vec<&str> = commands().map(|(s, _)| s.prefix.as_str()).collect();
    let missing: Vec<String> = reference("p")
        .into_iter()
        .filter(|(p, v)| {
            let mgr = v.iter().all(|v| v["flags"].as_u64().unwrap() & 8 != 0);
            !mgr && !have.contains(&p.as_str()) && !LEFT_OUT.iter().any(|(l, _)| p.starts_with(l))
        })
        .map(|(p, _)| p)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// `ceph` sends only what is described. A command of 20.2 that is not served is described, so that its refusal is shown.
#[test]
fn commands_of_20_2_are_described_whether_they_are_served_or_not() {
    // `tell` has no description of its own, the other is for Ceph's tests.
    const LEFT_OUT: [&str; 2] = ["tell", "mds set_state"];
    let mut c = Cluster::new();
    let admin = c.admin();
    let mut ours: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let ask = json!({ "prefix": "get_command_descriptions" });
    for text in [c.ok(admin, &ask), c.tell(admin, &ask).2] {
        let all: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
        for v in all.into_values() {
            let words: Vec<&str> = v["sig"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            ours.entry(words.join(" ")).or_default().push(v);
        }
    }
    let (mut refused, mut wrong) = (0, Vec::new());
    for (words, theirs) in reference("t").into_iter().filter(|(w, _)| !LEFT_OUT.contains(&w.as_str())) {
        let Some(ours) = ours.get(&words) else {
            wrong.push(words);
            continue;
        };
        let absent = |v: &&Value| v["help"] == "not supported; the answer says what to use instead";
        for v in ours.iter().filter(absent) {
            refused += 1;
            let mine = arguments(v);
            let same = |t: &Value| {
                let theirs: Vec<_> = arguments(t).into_iter().filter(|a| a.0 != "format").collect();
                theirs == mine && ["module", "perm", "flags"].iter().all(|k| t[k] == v[k])
            };
            if !theirs.iter().any(same) {
                wrong.push(format!("{words}: {mine:?} {v}"));
            }
            let mut cmd = json!({ "prefix": words });
            cmd["pool"] = "p".into();
            let (rc, rs, _) = c.command(admin, &cmd, "");
            assert!(rc == -95 && rs.contains("does not support"), "{words}: {rc} {rs}");
        }
    }
    assert!(refused > 200, "{refused}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_entry_parses_and_has_help() {
    let all: Vec<(&Sig, &Cmd)> = commands().collect();
    assert!(all.len() > 300, "{}", all.len());
    for (sig, c) in all {
        assert!(!c.help.is_empty() && !c.help.ends_with('.'), "{}", sig.prefix);
        assert!(c.perm.chars().all(|p| "rwx".contains(p)) && !c.perm.is_empty(), "{}", sig.prefix);
    }
}

const SCRIPT: &str = r#"
import json, sys
sys.path.insert(0, sys.argv[1])
import ceph_argparse as a
sigs = a.parse_json_funcsigs(sys.stdin.read(), 'cli')
for line in open(sys.argv[2]).read().splitlines():
    words = line.split()
    got = a.validate_command(sigs, words)
    assert got and got['prefix'], line
    print(json.dumps(got))
print(len(sigs))
"#;

/// Command lines that operators and scripts type.
const LINES: &str = "status
health detail
df detail
osd tree
osd tree up
osd dump
osd df tree
osd pool create p 8
osd pool create p 8 8 replicated
osd pool rm p p --yes-i-really-really-mean-it
osd pool set p size 1 --yes-i-really-mean-it
osd pool get p all
osd pool ls detail
osd pool application enable p rbd
osd blocklist add 1.2.3.4:0/5 60
osd blocklist range add 10.1.2.0/24 60
osd blocklist range rm 10.1.2.0/24
osd blocklist ls
osd reweight 0 0.5
osd reweight osd.0 0.5
osd out 0 1
osd crush set osd.0 1.0 host=h root=default
osd crush create-or-move 0 1.0 host=h root=default
osd crush tree --show-shadow
osd crush rule create-replicated r default host hdd
osd erasure-code-profile set e k=2 m=1
osd purge 3 --force --yes-i-really-mean-it
osd new 6b5dc2d2-6b0c-4b0f-9b5d-5f4e0b2e9f00 7
auth get-or-create client.x mon profile\trbd osd allow
auth caps client.x mon allow
config set osd osd_max_backfills 2
config get osd.0 osd_max_backfills
config-key set a b
pg dump pgs_brief
pg ls 1 active
pg scrub 1.0
log last 5
mgr module enable x --force
health mute OSD_DOWN 1h --sticky
orch host ls --detail
orch apply mon --placement=3
nfs cluster ls
nvme-gw show pool group
telemetry show
cephadm get-pub-key
dashboard create-self-signed-cert
osd pg-upmap-primary 1.0 2
iostat 80 --print-header";

#[test]
fn the_installed_ceph_program_validates_command_lines_against_them() {
    let dir = "/usr/lib/python3/dist-packages";
    if !std::path::Path::new(dir).join("ceph_argparse.py").exists() {
        println!("no ceph_argparse on this machine: skipped");
        return;
    }
    let mut c = Cluster::new();
    let admin = c.admin();
    let text = c.ok(admin, &json!({ "prefix": "get_command_descriptions" }));
    let lines = std::env::temp_dir().join(format!("belemnite-lines-{}", std::process::id()));
    std::fs::write(&lines, LINES).unwrap();
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", SCRIPT, dir])
        .arg(&lines)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    std::fs::remove_file(&lines).unwrap();
    let (so, se) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{so}\n{se}");
    // The `ceph` program turns each line into a command of this program with fitting types.
    for line in so.lines().filter(|l| l.starts_with('{')) {
        let cmd: Value = serde_json::from_str(line).unwrap();
        let (_, rs, _) = c.command(admin, &cmd, "");
        assert!(!rs.contains("command not known") && !rs.contains("bad or missing field"), "{line}: {rs}");
    }
    assert_eq!(so.lines().filter(|l| l.starts_with('{')).count(), LINES.lines().count());
}
