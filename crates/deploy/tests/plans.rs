//! Plans lead to what the inventory says, wherever a run is cut short, and no step on the way endangers data.

use deploy::facts::{Device, FileFact, Holds, Member, OsdFacts, PoolFacts, Release, StoreFact};
use deploy::upgrade;
use deploy::{Action, Cluster, ClusterState, Facts, Home, HostFacts, Inventory, Next, Reach, Step, next, plan};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Shape of an inventory.
#[derive(Clone, Debug)]
struct Shape {
    hosts: Vec<usize>,
    monitors: Vec<usize>,
    mds: Vec<usize>,
    gateways: Vec<usize>,
    racks: usize,
    files: bool,
}

fn inventory(s: &Shape) -> Inventory {
    let names = |v: &[usize]| v.iter().map(|n| format!("\"h{n}\"")).collect::<Vec<_>>().join(",");
    let mut t = format!(
        "package=\"b.deb\"\npublic_network=\"10.0.0.0/16\"\nmonitors=[{}]\nmetadata_servers=[{}]\ngateways=[{}]\n",
        names(&s.monitors),
        names(&s.mds),
        names(&s.gateways)
    );
    let rule = if s.files { "{files=2, size=\"4G\"}" } else { "{kind=\"nvme\", min=\"1G\", count=3}" };
    let _ = writeln!(t, "devices=[{rule}]\noptions={{osd={{osd_max_backfills=2}}}}\n[hosts]");
    for h in &s.hosts {
        let rack = if s.racks == 0 { String::new() } else { format!(", rack=\"r{}\"", h % s.racks) };
        let _ = writeln!(t, "h{h}={{address=\"10.0.{}.{}\"{rack}}}", h / 200, h % 200 + 1);
    }
    Inventory::parse(&t).unwrap()
}

/// A host with nothing; every third one has a disk with foreign data.
fn fresh(n: usize) -> HostFacts {
    let disk = |i: usize, holds| Device { path: format!("/dev/nvme{i}n1"), bytes: 1 << 40, rotational: false, holds };
    let mut devices = vec![disk(0, Holds::System), disk(1, Holds::Nothing), disk(2, Holds::Nothing)];
    if n.is_multiple_of(3) {
        devices.push(disk(3, Holds::Other("ext4 data".into())));
    }
    HostFacts { is_root: true, has_systemd: true, system: "debian 12".into(), devices, ..HostFacts::default() }
}

fn facts(hosts: impl IntoIterator<Item = usize>) -> Facts {
    let hosts = hosts.into_iter().map(|n| (format!("h{n}"), Reach::Answers(Box::new(fresh(n))))).collect();
    Facts { fsid: "f".into(), release: Release::Package("1".into()), authority: "ca".into(), hosts, ..Facts::default() }
}

/// Fails if a step endangers data, by rules that are not the planner's.
fn check(i: &Inventory, f: &Facts, s: &Step) {
    let cluster = f.cluster();
    let healthy = |without: Option<&str>| {
        let c = cluster.unwrap();
        c.etcd.iter().filter(|m| m.healthy && Some(m.id.as_str()) != without).count()
    };
    match &s.action {
        Action::MakeState => {
            assert!(matches!(f.cluster, ClusterState::Absent), "a second state");
            assert!(f.hosts.keys().all(|n| f.host(n).is_none_or(|h| h.stores.is_empty())), "stores without a state");
        }
        Action::Retire(all) => {
            for (id, _) in all {
                let o = cluster.and_then(|c| c.osds.get(id));
                assert!(o.is_none_or(|o| !o.is_in && !o.needed && o.host == s.host), "osd.{id} has data");
            }
            assert!(!i.hosts.contains_key(&s.host), "{} is to stay", s.host);
        }
        Action::CreateOsds(targets) => {
            let h = f.host(&s.host).unwrap();
            for t in targets {
                assert!(!h.stores.iter().any(|s| s.path == t.path), "{} has an OSD", t.path);
                let d = h.devices.iter().find(|d| d.path == t.path);
                assert!(d.is_none_or(|d| d.holds == Holds::Nothing), "{} is not free", t.path);
            }
        }
        Action::Drain(ids) => {
            let c = cluster.unwrap();
            let stay: BTreeSet<&String> =
                c.osds.iter().filter(|(id, o)| o.is_in && !ids.contains(id)).map(|(_, o)| &o.host).collect();
            let most = c.pools.iter().map(|p| p.size).max().unwrap_or_default();
            assert!(stay.len() >= most, "{} hosts for {most} copies", stay.len());
        }
        Action::RemoveMember(id) => {
            let n = cluster.unwrap().etcd.len();
            assert!(healthy(Some(id)) > n / 2, "no majority of etcd");
        }
        Action::AddMember(_) => assert!(healthy(None) > cluster.unwrap().etcd.len().div_ceil(2), "no majority of etcd"),
        Action::ClearEtcd => {
            let address = i.hosts.get(&s.host).map(|h| h.address).or_else(|| f.former.get(&s.host).copied());
            let is_member = |c: &deploy::Cluster| c.etcd.iter().any(|m| Some(m.address) == address);
            assert!(!cluster.is_some_and(is_member), "data of a member");
        }
        Action::StartEtcd { existing: false, .. } => {
            assert!(cluster.is_none() || matches!(f.home(), Home::File(_)), "a new etcd beside the cluster's");
        }
        Action::StateToEtcd => {
            assert_eq!(f.home(), Home::File(s.host.clone()), "the state is elsewhere");
            let runs = |n: &String, what: &str| f.host(n).is_some_and(|h| h.runs(&format!("belemnite-{what}@{n}")));
            assert!(i.monitors.iter().all(|m| runs(m, "etcd")), "a member of etcd does not run");
            assert!(f.hosts.keys().all(|n| *n == s.host || !runs(n, "mon")), "another monitor runs");
        }
        Action::StateToFile => {
            assert_eq!(f.home(), Home::Etcd, "the state is elsewhere");
            assert!(cluster.unwrap().monitors.keys().eq([&s.host]), "a single monitor has the state of several");
        }
        Action::RemoveMonitor | Action::RestartMonitor => {
            assert!(cluster.unwrap().quorum.iter().any(|q| *q != s.host), "the last monitor");
        }
        Action::Leave => {
            let c = cluster;
            let h = f.host(&s.host);
            assert!(h.is_none_or(|h| h.stores.is_empty() && h.etcd.is_empty()), "{} has data", s.host);
            assert!(c.is_none_or(|c| !c.monitors.contains_key(&s.host)), "{} has a monitor", s.host);
        }
        _ => {}
    }
}

/// Does a part of a move of the state: the monitor is stopped, and some of what follows is done.
fn part_of_move(i: &Inventory, f: &mut Facts, s: &Step, variant: usize) {
    let unit = format!("belemnite-mon@{}", s.host);
    let to_file = s.action == Action::StateToFile;
    let stop = |f: &mut Facts, state: bool| {
        let Some(Reach::Answers(h)) = f.hosts.get_mut(&s.host) else { panic!() };
        h.units.get_mut(&unit).unwrap().active = false;
        if state {
            h.states.insert(s.host.clone());
        }
    };
    match variant % 3 {
        0 => stop(f, false),
        // The configuration is written, and the file has its name still; or the file is there, and it is not written.
        1 if !to_file => {
            s.apply_to(i, f);
            stop(f, true);
        }
        1 => stop(f, true),
        _ => {
            s.apply_to(i, f);
            stop(f, false);
        }
    }
}

/// Gives the facts as they are asked for: a cluster answers while one of its monitors runs, and tells the members of
/// etcd if its state is there.
fn settle(i: &Inventory, f: &mut Facts, kept: &mut Option<Box<Cluster>>) {
    let runs = |n: &&String| f.host(n).is_some_and(|h| h.runs(&format!("belemnite-mon@{n}")));
    let running: BTreeSet<String> = f.hosts.keys().filter(runs).cloned().collect();
    let serving =
        |c: &Cluster| running.iter().filter(|n| c.monitors.contains_key(*n)).cloned().collect::<BTreeSet<_>>();
    let now = match std::mem::take(&mut f.cluster) {
        ClusterState::Answers(c) if serving(&c).is_empty() => {
            *kept = Some(c);
            ClusterState::Silent("no monitor runs".into())
        }
        ClusterState::Silent(why) => match kept.take() {
            Some(c) if serving(&c).is_empty() => {
                *kept = Some(c);
                ClusterState::Silent(why)
            }
            Some(mut c) => {
                c.quorum = serving(&c);
                ClusterState::Answers(c)
            }
            None => ClusterState::Silent(why),
        },
        other => other,
    };
    f.cluster = now;
    let (home, mut own) = (f.home(), Vec::new());
    for n in f.hosts.keys().filter(|n| f.host(n).is_some_and(|h| !h.etcd.is_empty())) {
        let address = i.hosts.get(n).map(|h| h.address).or_else(|| f.former.get(n).copied()).unwrap();
        own.push(Member { id: address.to_string(), address, started: true, healthy: true });
    }
    if let ClusterState::Answers(c) = &mut f.cluster {
        match home {
            Home::File(_) => c.etcd.clear(),
            _ if c.etcd.is_empty() => c.etcd = own,
            _ => {}
        }
    }
}

/// Does a part of a step, as a run that is killed in it.
fn part(i: &Inventory, f: &mut Facts, s: &Step, variant: usize) {
    if matches!(s.action, Action::StateToEtcd | Action::StateToFile) {
        return part_of_move(i, f, s, variant);
    }
    let Facts { hosts, cluster, .. } = f;
    let host = match hosts.get_mut(&s.host) {
        Some(Reach::Answers(h)) => Some(h),
        _ => None,
    };
    let cluster = match cluster {
        ClusterState::Answers(c) => Some(c),
        _ => None,
    };
    match (&s.action, host, cluster) {
        (Action::Install(p), Some(h), _) if !p.is_empty() => {
            h.packages.insert(p[0].clone(), "1".into());
        }
        (Action::Drain(ids), _, Some(c)) => {
            for (_, o) in c.osds.iter_mut().filter(|(id, _)| ids.contains(id)) {
                o.is_in = false;
            }
        }
        // Out of the map, with its store.
        (Action::Retire(all), Some(h), Some(c)) => {
            let (id, _) = &all[0];
            c.osds.remove(id);
            h.units.remove(&format!("belemnite-osd@{id}"));
        }
        // One store is whole, the next one is not.
        (Action::CreateOsds(t), Some(h), Some(c)) => {
            let id = (0..).find(|id| !c.osds.contains_key(id)).unwrap();
            let place = i.hosts.get(&s.host).map(|h| h.place.clone()).unwrap_or_default();
            c.places.entry(s.host.clone()).or_insert(place);
            c.osds.insert(id, OsdFacts { host: s.host.clone(), is_in: true, bytes: 1 << 40, ..OsdFacts::default() });
            h.stores.push(StoreFact { id, path: t[0].path.clone() });
            if let Some(t) = t.get(1) {
                h.making.insert(t.path.clone());
                h.files.push(FileFact { path: t.path.clone(), has_data: true });
            }
        }
        (Action::RemoveMonitor, _, Some(c)) => {
            c.monitors.remove(&s.host);
            c.quorum.remove(&s.host);
        }
        (Action::StartEtcd { members, .. }, Some(h), _) if !members.is_empty() => {
            h.etcd.insert(s.host.clone(), deploy::conf::etcd_cluster(members));
        }
        _ => {}
    }
}

/// Cuts of a run: after how many steps of each stage it is killed; 255 is never.
type Cuts = Vec<u8>;

/// Carries out stages until the end; returns false if it is blocked.
fn run(i: &Inventory, f: &mut Facts, cuts: &Cuts, by: fn(&Inventory, &Facts) -> Next) -> bool {
    let mut kept = None;
    for n in 0..600 {
        settle(i, f, &mut kept);
        let stage = match by(i, f) {
            Next::Done => return true,
            Next::Blocked(p) => {
                eprintln!("blocked: {}", p[0]);
                return false;
            }
            Next::Stage(s) => s,
        };
        let cut = cuts.get(n).copied().unwrap_or(255) as usize;
        // The steps of a stage do not depend on each other.
        let mut steps: Vec<_> = stage.steps.iter().collect();
        if n % 2 == 1 {
            steps.reverse();
        }
        for (k, s) in steps.into_iter().enumerate() {
            check(i, f, s);
            if k >= cut {
                part(i, f, s, n);
                break;
            }
            s.apply_to(i, f);
        }
    }
    panic!("no end");
}

/// Parts of the facts on which two runs have to agree. Ids of OSDs depend on the order.
fn outcome(f: &Facts) -> String {
    let mut s = String::new();
    for n in f.hosts.keys() {
        let Some(h) = f.host(n) else { continue };
        let units =
            h.units.iter().filter(|(_, u)| u.active).map(|(n, _)| n.split_once("osd@").map_or(n.as_str(), |_| "osd"));
        let mut units: Vec<&str> = units.collect();
        units.sort_unstable();
        let mut stores: Vec<&String> = h.stores.iter().map(|s| &s.path).collect();
        stores.sort_unstable();
        let etcd: Vec<&String> = h.etcd.keys().collect();
        // A file that a monitor has left, and that its configuration leads away from, is none.
        let states = h.states.iter().filter(|_| h.conf.as_ref().is_some_and(|c| !c.has_etcd)).collect::<Vec<_>>();
        let _ = writeln!(s, "{n} {units:?} {stores:?} {etcd:?} {states:?} {:?} {}", h.conf, h.has_bootstrap_key);
    }
    if let Some(c) = f.cluster() {
        let etcd: BTreeSet<_> = c.etcd.iter().map(|m| m.address).collect();
        let mut osds: BTreeMap<&str, usize> = BTreeMap::new();
        for o in c.osds.values() {
            *osds.entry(&o.host).or_default() += 1;
        }
        let _ = writeln!(s, "{:?} {etcd:?} {osds:?} {:?} {:?}", c.monitors, c.places, c.options);
    }
    s
}

fn shape(etcd: bool) -> impl Strategy<Value = Shape> {
    let most = 8usize;
    let hosts = prop::sample::subsequence((0..most).collect::<Vec<_>>(), 5..=most);
    hosts.prop_flat_map(move |hosts| {
        let n = if etcd { 3..=3usize } else { 1..=1usize };
        let some = |max: usize| prop::sample::subsequence(hosts.clone(), 0..=max);
        (Just(hosts.clone()), prop::sample::subsequence(hosts.clone(), n), some(2), some(2), 0..3usize).prop_map(
            |(hosts, monitors, mds, gateways, racks)| Shape { hosts, monitors, mds, gateways, racks, files: false },
        )
    })
}

/// Two inventories of one cluster. A single monitor stays, is one of several later, or one of several before.
fn edits() -> impl Strategy<Value = (Shape, Shape)> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_flat_map(|(first, second, files)| {
        (shape(first), shape(second)).prop_map(move |(mut a, mut b)| {
            (a.files, b.files) = (files, files);
            match (first, second) {
                (true, true) => {}
                (false, true) if b.monitors.contains(&a.monitors[0]) => {}
                (false, true) => b.monitors[0] = a.monitors[0],
                (_, false) => b.monitors = vec![a.monitors[b.hosts[0] % a.monitors.len()]],
            }
            for m in b.monitors.clone() {
                if !b.hosts.contains(&m) {
                    b.hosts.push(m);
                }
            }
            (a, b)
        })
    })
}

/// Gives the cluster a pool of three copies on hosts.
fn add_pool(f: &mut Facts) {
    if let ClusterState::Answers(c) = &mut f.cluster {
        c.pools = vec![PoolFacts { name: "p".into(), size: 3, domain: "host".into() }];
        for o in c.osds.values_mut() {
            (o.used, o.needed) = (1 << 30, true);
        }
    }
}

/// Takes the hosts of one inventory to another.
fn edit(f: &mut Facts, from: &Inventory, to: &Inventory) {
    for (n, h) in &from.hosts {
        if !to.hosts.contains_key(n) {
            f.former.insert(n.clone(), h.address);
        }
    }
    for n in to.hosts.keys() {
        let number = n[1..].parse().unwrap();
        f.hosts.entry(n.clone()).or_insert_with(|| Reach::Answers(Box::new(fresh(number))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// A run that is cut at any steps and begun again ends as one that is not.
    #[test]
    fn cut_runs_end_in_the_same_state((a, b) in edits(), cuts in prop::collection::vec(prop_oneof![0u8..4, Just(255)], 0..60)) {
        let (first, second) = (inventory(&a), inventory(&b));
        let outcomes: Vec<String> = [Cuts::new(), cuts].iter().map(|cuts| {
            let mut f = facts(a.hosts.clone());
            prop_assert!(run(&first, &mut f, cuts, next));
            add_pool(&mut f);
            edit(&mut f, &first, &second);
            prop_assert!(run(&second, &mut f, cuts, next));
            prop_assert!(f.former.is_empty());
            Ok(outcome(&f))
        }).collect::<Result<_, _>>()?;
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}

fn small(n: usize) -> Shape {
    Shape { hosts: (0..n).collect(), monitors: vec![0, 1, 2], mds: vec![0], gateways: vec![1], racks: 0, files: true }
}

fn blocked(i: &Inventory, f: &Facts) -> String {
    match next(i, f) {
        Next::Blocked(p) => p.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        n => panic!("{n:?}"),
    }
}

#[test]
fn problems_stop_a_plan_before_its_first_step() {
    let i = inventory(&small(4));
    let says = |change: &dyn Fn(&mut Facts), what: &str| {
        let mut f = facts(0..4);
        change(&mut f);
        let text = blocked(&i, &f);
        assert!(text.contains(what), "{text}");
    };
    let host = |f: &mut Facts, by: &dyn Fn(&mut HostFacts)| {
        let Some(Reach::Answers(h)) = f.hosts.get_mut("h3") else { panic!() };
        by(h);
    };
    says(&|f| drop(f.hosts.insert("h3".into(), Reach::Silent("timed out".into()))), "h3: does not answer: timed out");
    says(&|f| host(f, &|h| h.clock_ms = -37_000), "h3: its clock is 37 s behind");
    says(&|f| host(f, &|h| h.is_root = false), "h3: the account is not root");
    says(&|f| host(f, &|h| h.system = "fedora 40".into()), "the package is for Debian");
    let conf = |h: &mut HostFacts| {
        h.conf = Some(deploy::facts::ConfFact { digest: "d".into(), fsid: "other".into(), has_etcd: false })
    };
    says(&|f| host(f, &conf), "of another cluster (other)");
    let store = |h: &mut HostFacts| h.stores.push(StoreFact { id: 1, path: "/x".into() });
    says(&|f| host(f, &store), "the cluster's state is not known here");
    let file = |h: &mut HostFacts| h.files.push(FileFact { path: "/var/lib/ceph/files/disk-1".into(), has_data: true });
    says(&|f| host(f, &file), "disk-1 holds something else");
}

#[test]
fn a_host_that_is_left_alone_stops_nothing() {
    let i = inventory(&small(4));
    let mut f = facts(0..4);
    f.hosts.insert("h3".into(), Reach::Silent("timed out".into()));
    f.skipped.insert("h3".into());
    assert!(run(&i, &mut f, &Cuts::new(), next));
    assert_eq!(f.cluster().unwrap().osds.len(), 6);
}

/// The plan shows it, so a caller that looks at the whole plan first changes nothing.
#[test]
fn hosts_that_pools_need_are_not_drained() {
    let (i, second) = (inventory(&small(4)), inventory(&small(3)));
    let mut f = facts(0..4);
    assert!(run(&i, &mut f, &Cuts::new(), next));
    add_pool(&mut f);
    edit(&mut f, &i, &second);
    assert!(plan(&second, &f, next).problems.is_empty());
    let with = |change: &dyn Fn(&mut deploy::Cluster)| {
        let mut f = f.clone();
        let ClusterState::Answers(c) = &mut f.cluster else { panic!() };
        change(c);
        assert!(!run(&second, &mut f.clone(), &Cuts::new(), next));
        plan(&second, &f, next).problems[0].to_string()
    };
    let text = with(&|c| c.pools[0].size = 4);
    assert!(text.contains("pool p has 4 copies or shards, each on another host, and 3 hosts"), "{text}");
    let text = with(&|c| c.osds.values_mut().for_each(|o| o.used = o.bytes / 3 * 2));
    assert!(text.contains("the other OSDs have room for"), "{text}");
}

#[test]
fn a_lost_member_of_etcd_is_replaced() {
    let i = inventory(&small(3));
    let mut f = facts(0..3);
    assert!(run(&i, &mut f, &Cuts::new(), next));
    let lose = |f: &mut Facts, n: &str| {
        let Some(Reach::Answers(h)) = f.hosts.get_mut(n) else { panic!() };
        h.etcd.clear();
        h.units.get_mut(&format!("belemnite-etcd@{n}")).unwrap().active = false;
        let ClusterState::Answers(c) = &mut f.cluster else { panic!() };
        let address = i.hosts[n].address;
        c.etcd.iter_mut().filter(|m| m.address == address).for_each(|m| m.healthy = false);
    };
    lose(&mut f, "h1");
    let mut two = f.clone();
    assert!(run(&i, &mut f, &Cuts::new(), next));
    assert!(f.cluster().unwrap().etcd.iter().all(|m| m.healthy));
    lose(&mut two, "h2");
    let text = blocked(&i, &two);
    assert!(text.contains("lost its data, and the others are no majority"), "{text}");
}

#[test]
fn an_upgrade_restarts_monitors_then_osds_by_host() {
    let i = inventory(&small(4));
    let mut f = facts(0..4);
    assert!(run(&i, &mut f, &Cuts::new(), next));
    f.release = Release::Package("2".into());
    let p = plan(&i, &f, upgrade::next);
    assert!(p.problems.is_empty(), "{:?}", p.problems);
    let titles: Vec<&str> = p.stages.iter().map(|s| s.title.as_str()).collect();
    let monitor = "restart a monitor";
    let osds = "restart OSDs of a host";
    let all = ["install", monitor, monitor, monitor, "hold OSDs in", osds, osds, osds, osds, "let OSDs go out again"];
    assert_eq!(titles, all);
    assert!(run(&i, &mut f.clone(), &vec![0, 1, 0, 1, 0, 0, 1, 0], upgrade::next));
    // The operator's own noout stays.
    if let ClusterState::Answers(c) = &mut f.cluster {
        c.noout = true;
    }
    assert!(run(&i, &mut f, &Cuts::new(), upgrade::next));
    assert!(f.cluster().unwrap().noout);
}

/// Stages do not grow with the number of hosts.
#[test]
fn plans_for_147_and_680_hosts() {
    for n in [147usize, 680] {
        let mut s = small(n);
        (s.racks, s.mds) = (17, (0..16).collect());
        let i = inventory(&s);
        let p = plan(&i, &facts(0..n), next);
        assert!(p.problems.is_empty(), "{:?}", p.problems);
        let osds: usize = p
            .stages
            .iter()
            .flat_map(|s| &s.steps)
            .map(|s| match &s.action {
                Action::CreateOsds(t) => t.len(),
                _ => 0,
            })
            .sum();
        println!(
            "{n} hosts: {} stages, {} steps, {} s",
            p.stages.len(),
            p.lines.iter().map(Vec::len).sum::<usize>(),
            p.total_seconds()
        );
        assert_eq!(osds, 2 * n);
        assert!(p.stages.len() <= 11, "{} stages", p.stages.len());
    }
}

/// Monitors of a small cluster.
fn with_monitors(monitors: &[usize]) -> Shape {
    Shape { monitors: monitors.to_vec(), mds: Vec::new(), gateways: Vec::new(), ..small(4) }
}

fn titles(i: &Inventory, f: &Facts) -> Vec<String> {
    let p = plan(i, f, next);
    assert!(p.problems.is_empty(), "{:?}", p.problems);
    p.stages.into_iter().map(|s| s.title).collect()
}

/// One monitor becomes three, and another one of them is alone at last: a single monitor has moved.
#[test]
fn one_monitor_becomes_three_and_one_again() {
    let shapes = [&[0][..], &[0, 1, 2], &[2]].map(|m| inventory(&with_monitors(m)));
    let mut f = facts(0..4);
    assert!(run(&shapes[0], &mut f, &Cuts::new(), next));
    assert_eq!(f.home(), Home::File("h0".into()));
    let (make, add, start) = ("move the monitors' state", "add monitors", "start monitors");
    let all = titles(&shapes[1], &f);
    assert_eq!(all, ["install", "configure", "start etcd", make, add, start]);
    assert!(run(&shapes[1], &mut f, &Cuts::new(), next));
    assert_eq!((f.home(), f.cluster().unwrap().etcd.len()), (Home::Etcd, 3));
    let all = titles(&shapes[2], &f);
    let wanted = ["remove a monitor", "remove a monitor", make, "clear etcd"];
    assert_eq!(all.iter().filter(|t| *t != "configure").collect::<Vec<_>>(), wanted);
    assert!(run(&shapes[2], &mut f, &Cuts::new(), next));
    assert_eq!((f.home(), f.cluster().unwrap().monitors.len()), (Home::File("h2".into()), 1));
    assert!(f.hosts.keys().all(|n| f.host(n).unwrap().etcd.is_empty()));
}

#[test]
fn a_state_that_cannot_move_is_said_before_anything_is_done() {
    let shapes = [&[0][..], &[1], &[1, 2, 3], &[0, 1, 2]].map(|m| inventory(&with_monitors(m)));
    let mut f = facts(0..4);
    assert!(run(&shapes[0], &mut f, &Cuts::new(), next));
    for i in &shapes[1..3] {
        let text = blocked(i, &f);
        assert!(
            text.contains("h0: its monitor has the state in a file. Name three monitors, and this one among them"),
            "{text}"
        );
    }
    // Another host with a state: which one is the cluster's?
    let mut two = f.clone();
    let Some(Reach::Answers(h)) = two.hosts.get_mut("h1") else { panic!() };
    h.states.insert("h1".into());
    assert!(blocked(&shapes[3], &two).contains("h0, h1: several hosts have a monitors' state"));
    // A state that is left where it was once, on a host whose monitor uses etcd, is none.
    assert!(run(&shapes[3], &mut f, &Cuts::new(), next));
    let Some(Reach::Answers(h)) = f.hosts.get_mut("h0") else { panic!() };
    h.states.insert("h0".into());
    assert_eq!((next(&shapes[3], &f), f.home()), (Next::Done, Home::Etcd));
    let text = blocked(&inventory(&with_monitors(&[3])), &f);
    assert!(text.contains("of several monitors one stays: name one of h0, h1, h2"), "{text}");
    // The host of the only monitor is left alone.
    let mut f = facts(0..4);
    assert!(run(&shapes[0], &mut f, &Cuts::new(), next));
    f.hosts.remove("h0");
    f.skipped.insert("h0".into());
    assert!(blocked(&shapes[3], &f).contains("h0: its monitor is the only one"));
}
