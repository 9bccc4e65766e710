//! The commands on a file system in memory: their answers, and what is left when the client is lost at any change.

use super::model::Model;
use super::snap_schedule::snapshot;
use super::*;
use crate::host::tests::Fake;
use crate::volumes::schedule::{New, Plan};
use base::errno::{EEXIST, EINVAL, ENOSPC, ENOSYS};
use base::{EntityAddr, Utime};
use subvolume::state;

/// A service with the file system.
struct Home {
    model: Rc<Model>,
    service: Rc<Service>,
}

impl Home {
    fn new() -> Self {
        let service = Service::new(Box::new(Fake { active: true, looks: Rc::default() }), EntityAddr::default());
        Self { model: Rc::new(Model::new()), service }
    }

    fn fs(&self) -> Fs {
        Fs { backend: Rc::<Model>::clone(&self.model) }
    }

    /// Runs a command: its words, then `name=value`.
    async fn run(&self, command: &str) -> Out {
        let (words, args): (Vec<&str>, Vec<&str>) = command.split_whitespace().partition(|w| !w.contains('='));
        let mut all: BTreeMap<String, String> =
            args.iter().filter_map(|a| a.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        all.insert("vol_name".to_owned(), "home".to_owned());
        let v = Vol { fs: self.fs(), fscid: 1, service: &self.service, args: &all };
        run(&v, &words.join(" ")).await
    }

    async fn ok(&self, command: &str) -> String {
        self.run(command).await.unwrap_or_else(|e| panic!("{command}: {e:?}"))
    }

    async fn fails(&self, command: &str, errno: Errno, why: &str) {
        assert_eq!(self.run(command).await, Err((errno, why.to_owned())), "{command}");
    }

    /// Runs all jobs that wait.
    async fn jobs(&self) -> Result<(), Fail> {
        for t in clone::tracked(&self.fs()).await.map_err(|e| (e, String::new()))? {
            clone::run(&self.fs(), &self.service.volumes.lock(1), &t, &Rc::default()).await?;
        }
        for e in purge::entries(&self.fs(), usize::MAX, |_| true).await.map_err(|e| (e, String::new()))? {
            purge::purge(&self.fs(), &self.service.volumes.lock(1), &e).await.map_err(|e| (e, String::new()))?;
        }
        Ok(())
    }
}

fn test(f: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, f());
}

fn field(json: &str, key: &str) -> Value {
    serde_json::from_str::<Value>(json).unwrap()[key].clone()
}

/// A subvolume `s` in `g` with a tree of files, and its snapshot `one`.
async fn filled(h: &Home) -> String {
    h.ok("fs subvolumegroup create group_name=g").await;
    h.ok("fs subvolume create sub_name=s group_name=g size=1000000 uid=5 gid=6 mode=700").await;
    let path = h.ok("fs subvolume getpath sub_name=s group_name=g").await;
    let fs = h.fs();
    fs.mkdirs(&format!("{path}/a/b"), 0o750).await.unwrap();
    for (name, data) in [("a/f", vec![7; 200_000]), ("a/b/g", vec![1]), ("e", Vec::new())] {
        fs.write_file(&format!("{path}/{name}"), data.into(), 0o640).await.unwrap();
    }
    fs.setxattr(format!("{path}/a/f").as_bytes(), b"user.k", b"v").await.unwrap();
    fs.symlink(b"a/f", format!("{path}/l").as_bytes()).await.unwrap();
    h.ok("fs subvolume snapshot create sub_name=s group_name=g snap_name=one").await;
    path
}

/// Checks what [`filled`] made, below another path.
async fn check_filled(h: &Home, path: &str) {
    let fs = h.fs();
    for (name, data) in [("a/f", vec![7; 200_000]), ("a/b/g", vec![1]), ("e", Vec::new())] {
        let path = format!("{path}/{name}");
        assert_eq!(fs.read_file(&path, 1 << 20).await.unwrap(), data, "{path}");
        assert_eq!(fs.stat(path.as_bytes()).await.unwrap().mode & 0o7777, 0o640);
    }
    let f = fs.stat(format!("{path}/a/f").as_bytes()).await.unwrap();
    assert_eq!(client::core::mds::request::xattrs(&f).unwrap()[&b"user.k"[..]], "v");
    assert_eq!(fs.stat(format!("{path}/l").as_bytes()).await.unwrap().symlink, "a/f");
    let top = fs.stat(path.as_bytes()).await.unwrap();
    assert_eq!((top.uid, top.gid, top.mode & 0o7777, top.quota.max_bytes), (5, 6, 0o700, 1_000_000));
}

#[test]
fn a_command_asks_as_little_among_very_many_subvolumes() {
    test(async || {
        let h = Home::new();
        h.ok("fs subvolumegroup create group_name=g").await;
        let costs = async |name: String| {
            let mut out = Vec::new();
            for command in ["create", "info", "getpath", "resize", "snapshot create", "snapshot rm", "ls", "rm"] {
                let before = h.model.asked.get();
                let args = format!("sub_name={name} group_name=g snap_name=one new_size=5 size=7");
                h.ok(&format!("fs subvolume {command} {args}")).await;
                out.push((command, h.model.asked.get() - before));
            }
            out
        };
        let first = costs("a".to_owned()).await;
        assert!(first.iter().all(|(_, n)| *n > 0), "{first:?}");
        for n in 0..2000 {
            h.ok(&format!("fs subvolume create sub_name=s{n} group_name=g")).await;
        }
        assert_eq!(costs("b".to_owned()).await, first);
        let all: Vec<Value> = serde_json::from_str(&h.ok("fs subvolume ls group_name=g").await).unwrap();
        assert_eq!(all.len(), 2000);
    });
}

#[test]
fn groups_are_made_listed_and_removed() {
    test(async || {
        let h = Home::new();
        assert_eq!(h.ok("fs subvolumegroup ls").await, "[]");
        assert_eq!(h.ok("fs subvolumegroup exist").await, "no subvolumegroup exists");
        h.ok("fs subvolumegroup create group_name=g mode=750 uid=3 size=77").await;
        h.ok("fs subvolumegroup create group_name=g").await;
        assert_eq!(h.ok("fs subvolumegroup ls").await, "[\n    {\n        \"name\": \"g\"\n    }\n]");
        assert_eq!(h.ok("fs subvolumegroup getpath group_name=g").await, "/volumes/g");
        let info = h.ok("fs subvolumegroup info group_name=g").await;
        let keys: Vec<String> = serde_json::from_str::<Map<String, Value>>(&info).unwrap().keys().cloned().collect();
        assert!(keys.is_sorted() && field(&info, "data_pool") == "data" && field(&info, "bytes_quota") == 77);
        h.fails("fs subvolumegroup getpath group_name=x", ENOENT, "subvolume group 'x' does not exist").await;
        h.fails("fs subvolumegroup resize group_name=g new_size=0", EINVAL, "Invalid subvolume group size").await;
        let why = "Invalid pool layout 'none'. It must be a valid data pool";
        h.fails("fs subvolumegroup create group_name=p pool_layout=none", EINVAL, why).await;
        h.fails("fs subvolumegroup rm group_name=p", ENOENT, "subvolume group 'p' does not exist").await;
        let why = "subvolume group snapshots are not supported";
        h.fails("fs subvolumegroup snapshot create group_name=g snap_name=s", ENOSYS, why).await;
        h.ok("fs subvolume create sub_name=s group_name=g").await;
        let why = "subvolume group g contains subvolume(s) or retained snapshots of deleted subvolume(s)";
        h.fails("fs subvolumegroup rm group_name=g", ENOTEMPTY, why).await;
        h.ok("fs subvolume rm sub_name=s group_name=g").await;
        h.ok("fs subvolumegroup rm group_name=g").await;
        h.ok("fs subvolumegroup rm group_name=g force=true").await;
    });
}

#[test]
fn a_subvolume_has_cephs_files() {
    test(async || {
        let h = Home::new();
        h.ok("fs subvolume create sub_name=s size=10 namespace_isolated=true pool_layout=other").await;
        let path = h.ok("fs subvolume getpath sub_name=s").await;
        let meta = h.fs().read_file("/volumes/_nogroup/s/.meta", 1000).await.unwrap();
        let want = format!("[GLOBAL]\nversion = 2\ntype = subvolume\npath = {path}\nstate = complete\n\n");
        assert_eq!(meta, want);
        assert!(h.fs().stat(b"/volumes/_:s.meta").await.is_ok());
        let info = h.ok("fs subvolume info sub_name=s").await;
        assert_eq!(
            (field(&info, "pool_namespace"), field(&info, "data_pool")),
            (json!("fsvolumens_s"), json!("other"))
        );
        h.ok("fs subvolume metadata set sub_name=s key_name=K value=v").await;
        assert_eq!(h.ok("fs subvolume metadata ls sub_name=s").await, "{\n    \"k\": \"v\"\n}");
        h.fails("fs subvolume metadata get sub_name=s key_name=x", ENOENT, "key 'x' does not exist.").await;
        h.fails("fs subvolume metadata rm sub_name=s key_name=x", ENOENT, "key 'x' does not exist.").await;
        h.ok("fs subvolume metadata rm sub_name=s key_name=x force=true").await;
        h.ok("fs subvolume earmark set sub_name=s earmark=smb.cluster").await;
        assert_eq!(h.ok("fs subvolume earmark get sub_name=s").await, "smb.cluster");
        h.fails("fs subvolume info sub_name=t", ENOENT, "subvolume 't' does not exist").await;
        h.fails("fs subvolume resize sub_name=s new_size=-1", EINVAL, "Invalid subvolume size").await;
        let why = "operation 'clone-status' is not allowed on subvolume 's' of type subvolume";
        h.fails("fs clone status clone_name=s", EOPNOTSUPP, why).await;
        for name in ["..", "a/b"] {
            assert_eq!(h.run(&format!("fs subvolume info sub_name={name}")).await.unwrap_err().0, EINVAL);
        }
        h.fs().mkdirs("/volumes/_nogroup/old", 0o755).await.unwrap();
        assert_eq!(h.run("fs subvolume info sub_name=old").await.unwrap_err().0, EOPNOTSUPP);
    });
}

#[test]
fn a_clone_has_what_the_snapshot_has() {
    test(async || {
        let h = Home::new();
        let path = filled(&h).await;
        h.fs().unlink(format!("{path}/a/f").as_bytes()).await.unwrap();
        h.fails("fs subvolume rm sub_name=s group_name=g", ENOTEMPTY, "subvolume 's' has snapshots").await;
        let clone = "fs subvolume snapshot clone sub_name=s group_name=g snap_name=one target_sub_name=c";
        h.ok(clone).await;
        h.fails(clone, EEXIST, "subvolume 'c' exists").await;
        let status = h.ok("fs clone status clone_name=c").await;
        assert_eq!(field(&status, "status")["state"], state::PENDING);
        assert_eq!(field(&status, "status")["source"]["group"], "g");
        let info = h.ok("fs subvolume snapshot info sub_name=s group_name=g snap_name=one").await;
        assert_eq!(field(&info, "pending_clones"), json!([{"name": "c"}]));
        let why = "snapshot 'one' has pending clones";
        h.fails("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one", EAGAIN, why).await;
        let why = "subvolume 'c' is not ready for operation getpath";
        h.fails("fs subvolume getpath sub_name=c", EAGAIN, why).await;
        h.jobs().await.unwrap();
        assert_eq!(field(&h.ok("fs clone status clone_name=c").await, "status"), json!({"state": "complete"}));
        check_filled(&h, &h.ok("fs subvolume getpath sub_name=c").await).await;
        assert!(clone::tracked(&h.fs()).await.unwrap().is_empty());
        let why = "cannot cancel -- clone finished (check clone status)";
        h.fails("fs clone cancel clone_name=c", EINVAL, why).await;
        h.ok("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one").await;
    });
}

#[test]
fn a_cancelled_clone_says_so_and_can_be_removed() {
    test(async || {
        let h = Home::new();
        filled(&h).await;
        h.ok("fs subvolume snapshot clone sub_name=s group_name=g snap_name=one target_sub_name=c").await;
        h.ok("fs clone cancel clone_name=c").await;
        let status = h.ok("fs clone status clone_name=c").await;
        assert_eq!(
            field(&status, "status")["failure"],
            json!({"errno": "4", "error_msg": "user interrupted clone operation"})
        );
        let why = "subvolume 'c' is not ready for operation rm (use --force to override)";
        h.fails("fs subvolume rm sub_name=c", EAGAIN, why).await;
        h.ok("fs subvolume rm sub_name=c force=true").await;
        h.ok("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one").await;
    });
}

#[test]
fn retained_snapshots_make_the_subvolume_anew() {
    test(async || {
        let h = Home::new();
        filled(&h).await;
        h.ok("fs subvolume rm sub_name=s group_name=g retain_snapshots=true").await;
        let why = "subvolume 's' is removed and has only snapshots retained";
        h.fails("fs subvolume getpath sub_name=s group_name=g", ENOENT, why).await;
        let again = "fs subvolume create sub_name=s group_name=g";
        h.fails(again, EAGAIN, "asynchronous purge of subvolume in progress").await;
        h.jobs().await.unwrap();
        let clone =
            "fs subvolume snapshot clone sub_name=s group_name=g snap_name=one target_sub_name=s target_group_name=g";
        h.ok(clone).await;
        h.jobs().await.unwrap();
        check_filled(&h, &h.ok("fs subvolume getpath sub_name=s group_name=g").await).await;
        h.ok("fs subvolume rm sub_name=s group_name=g retain_snapshots=true").await;
        h.ok("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one").await;
        h.jobs().await.unwrap();
        // The last part removes the rest, in whatever order.
        h.jobs().await.unwrap();
        let left = h.fs().dirs(b"/volumes/g").await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_client_that_is_lost_at_any_change_leaves_what_the_next_one_finishes() {
    test(async || {
        let clone = "fs subvolume snapshot clone sub_name=s group_name=g snap_name=one target_sub_name=c";
        for step in 0.. {
            let h = Home::new();
            filled(&h).await;
            h.model.left.set(step);
            let (cloned, ran) = (h.run(clone).await, h.jobs().await);
            let lost = h.model.left.get() == 0 || ran.is_err() || cloned.is_err();
            h.model.left.set(u32::MAX);
            h.jobs().await.unwrap();
            match h.run("fs clone status clone_name=c").await {
                Ok(status) if field(&status, "status")["state"] == state::COMPLETE => {}
                // The command failed before there was a clone.
                r => {
                    assert!(cloned.is_err() && matches!(r, Err((ENOENT, _))), "step {step}: {r:?}");
                    h.ok(clone).await;
                    h.jobs().await.unwrap();
                }
            }
            check_filled(&h, &h.ok("fs subvolume getpath sub_name=c").await).await;
            h.ok("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one").await;
            h.ok("fs subvolume rm sub_name=c").await;
            h.ok("fs subvolume rm sub_name=s group_name=g").await;
            h.jobs().await.unwrap();
            assert_eq!(h.fs().list(b"/volumes/_deleting", |e| Some(e.name)).await.unwrap(), Vec::<Bytes>::new());
            assert_eq!(h.model.objects(), 0, "step {step}");
            if !lost {
                assert!(step > 20, "{step}");
                break;
            }
        }
    });
}

/// A time of tests of schedules.
fn second(n: u32) -> Utime {
    Utime { sec: 1_795_937_400 + n, nsec: 0 }
}

/// A plan with a snapshot each hour.
fn hourly(path: &str, retention: &str) -> Plan {
    let new = New { path, subvol: None, group: None, repeat: "1h", start: None, minutes: false, fs: "home" };
    let mut p = Plan::add(None, &new, second(0)).unwrap();
    p.retain(retention, None).unwrap();
    p
}

#[test]
fn scheduled_snapshots_are_made_and_old_ones_go() {
    test(async || {
        let h = Home::new();
        h.fs().mkdirs("/a/b", 0o755).await.unwrap();
        h.fs().mksnap(b"/a/b", "mine").await.unwrap();
        let mut p = hourly("//a/./b/", "2h");
        let lock = Mutex::new(());
        let taken = async |p: &Plan, most, at| snapshot(&h.fs(), p, most, at, &lock).await;
        for hour in 0..5 {
            let now = second(3600 * hour);
            assert_eq!(taken(&p, 99, now).await, (Ok(()), u64::from(hour >= 2)));
            // Once more, since the manager ended before it could note this.
            assert_eq!(taken(&p, 99, now).await, (Ok(()), 0));
        }
        let left = h.fs().snaps(b"/a/b").await.unwrap();
        assert_eq!(left, ["mine", "scheduled-2026-11-29-10_30_00_UTC", "scheduled-2026-11-29-11_30_00_UTC"]);
        assert_eq!(taken(&p, 1, second(3600 * 5)).await, (Ok(()), 2));
        p.path = "/gone".to_owned();
        assert_eq!(taken(&p, 99, second(0)).await, (Err(ENOENT), 0));
    });
}

#[test]
fn listings_delay_no_changes() {
    let v = Volumes::default();
    let held = v.lock_of(1, "fs subvolume exist");
    let _guard = held.try_lock().unwrap();
    assert!(v.lock_of(1, "fs subvolume ls").try_lock().is_err());
    let change = v.lock_of(1, "fs subvolume create");
    let _change = change.try_lock().unwrap();
    assert!(v.lock(1).try_lock().is_err(), "steps of jobs wait for changes");
}

#[test]
fn a_part_of_a_long_trash_is_purged() {
    test(async || {
        let h = Home::new();
        for n in 0..5 {
            h.ok(&format!("fs subvolume create sub_name=s{n}")).await;
            h.ok(&format!("fs subvolume rm sub_name=s{n}")).await;
        }
        let all = purge::entries(&h.fs(), usize::MAX, |_| true).await.unwrap();
        let some = purge::entries(&h.fs(), 2, |n| *n != all[0]).await.unwrap();
        assert_eq!((all.len(), &some[..]), (5, &all[1..3]));
    });
}

#[test]
fn a_purge_that_is_interrupted_goes_on() {
    test(async || {
        for step in 0.. {
            let h = Home::new();
            filled(&h).await;
            h.ok("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one").await;
            h.ok("fs subvolume rm sub_name=s group_name=g").await;
            h.model.left.set(step);
            let first = h.jobs().await;
            h.model.left.set(u32::MAX);
            h.jobs().await.unwrap();
            assert_eq!(h.model.objects(), 0);
            if first.is_ok() {
                break;
            }
        }
    });
}

#[test]
fn a_schedule_of_a_removed_subvolume_removes_no_retained_snapshot() {
    test(async || {
        let h = Home::new();
        let path = filled(&h).await;
        let (lock, second) = (Mutex::new(()), |n: u32| Utime { sec: 1_795_937_400 + n, nsec: 0 });
        let path = format!("{path}/..");
        let new = New { path: &path, subvol: None, group: None, repeat: "1h", start: None, minutes: false, fs: "home" };
        let mut p = Plan::add(None, &new, second(0)).unwrap();
        p.retain("1h", None).unwrap();
        assert_eq!(snapshot(&h.fs(), &p, 99, second(0), &lock).await, (Ok(()), 0));
        // What a clone is made of stays.
        let kept = "scheduled-2026-11-29-07_30_00_UTC";
        h.ok(&format!("fs subvolume snapshot clone sub_name=s group_name=g snap_name={kept} target_sub_name=c")).await;
        assert_eq!(snapshot(&h.fs(), &p, 99, second(3600), &lock).await, (Ok(()), 0));
        h.jobs().await.unwrap();
        check_filled(&h, &h.ok("fs subvolume getpath sub_name=c").await).await;
        h.ok("fs subvolume rm sub_name=s group_name=g retain_snapshots=true").await;
        h.jobs().await.unwrap();
        assert_eq!(snapshot(&h.fs(), &p, 99, second(7200), &lock).await, (Err(ENOENT), 0));
        let left = h.fs().snaps(b"/volumes/g/s").await.unwrap();
        assert_eq!(left, ["one", kept, "scheduled-2026-11-29-08_30_00_UTC"]);
    });
}

#[test]
fn a_schedule_removes_no_source_of_a_clone_that_it_cannot_see() {
    test(async || {
        let h = Home::new();
        let path = filled(&h).await;
        let lock = Mutex::new(());
        // A schedule of the data itself, as subvolumes of the first version have it, and one of the subvolume.
        let (first, second_version) = (hourly(&path, "1h"), hourly(&format!("{path}/.."), "1h"));
        for p in [&first, &second_version] {
            assert_eq!(snapshot(&h.fs(), p, 99, second(0), &lock).await, (Ok(()), 0));
        }
        let kept = "scheduled-2026-11-29-07_30_00_UTC";
        h.ok(&format!("fs subvolume snapshot clone sub_name=s group_name=g snap_name={kept} target_sub_name=c")).await;
        assert_eq!(snapshot(&h.fs(), &first, 99, second(3600), &lock).await, (Ok(()), 0));
        let meta = "/volumes/g/s/.meta";
        let sound = h.fs().read_file(meta, 1 << 20).await.unwrap();
        h.fs().write_file(meta, b"\xff".to_vec().into(), 0o600).await.unwrap();
        assert_eq!(snapshot(&h.fs(), &second_version, 99, second(3600), &lock).await, (Ok(()), 0));
        h.fs().write_file(meta, sound.to_vec().into(), 0o600).await.unwrap();
        h.jobs().await.unwrap();
        check_filled(&h, &h.ok("fs subvolume getpath sub_name=c").await).await;
        for p in [&first, &second_version] {
            assert_eq!(snapshot(&h.fs(), p, 99, second(7200), &lock).await, (Ok(()), 2), "the clone is made");
        }
    });
}

#[test]
fn a_link_that_an_interrupted_command_left_makes_no_second_copy() {
    test(async || {
        let h = Home::new();
        filled(&h).await;
        let clone = "fs subvolume snapshot clone sub_name=s group_name=g snap_name=one target_sub_name=c";
        clone::track(&h.fs(), "/volumes/_nogroup/c").await.unwrap();
        h.ok(clone).await;
        assert_eq!(clone::tracked(&h.fs()).await.unwrap().len(), 1);
        h.jobs().await.unwrap();
        check_filled(&h, &h.ok("fs subvolume getpath sub_name=c").await).await;
        h.ok("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one").await;
        // Nor does it hold anything up once it leads to another subvolume.
        clone::track(&h.fs(), "/volumes/_nogroup/d").await.unwrap();
        h.ok("fs subvolume create sub_name=d").await;
        h.jobs().await.unwrap();
        assert_eq!(clone::tracked(&h.fs()).await.unwrap(), []);
    });
}

#[test]
fn a_cancelled_copy_that_loses_its_client_is_cancelled() {
    test(async || {
        let h = Home::new();
        filled(&h).await;
        h.ok("fs subvolume snapshot clone sub_name=s group_name=g snap_name=one target_sub_name=c").await;
        let (t, progress) = (clone::tracked(&h.fs()).await.unwrap().remove(0), Rc::new(Progress::default()));
        // Its first attempt ends in the copy.
        h.model.left.set(6);
        let lock = h.service.volumes.lock(1);
        assert!(clone::run(&h.fs(), &lock, &t, &progress).await.is_err());
        h.model.left.set(u32::MAX);
        progress.canceled.set(true);
        clone::run(&h.fs(), &lock, &t, &progress).await.unwrap();
        let status = h.ok("fs clone status clone_name=c").await;
        assert_eq!(field(&status, "status")["state"], state::CANCELED);
    });
}

#[test]
fn a_removal_that_keeps_snapshots_is_finished_after_any_change() {
    test(async || {
        let rm = "fs subvolume rm sub_name=s group_name=g retain_snapshots=true";
        for step in 0.. {
            let h = Home::new();
            filled(&h).await;
            h.model.left.set(step);
            let removed = h.run(rm).await;
            h.model.left.set(u32::MAX);
            h.jobs().await.unwrap();
            h.ok(rm).await;
            h.jobs().await.unwrap();
            h.ok("fs subvolume snapshot clone sub_name=s group_name=g snap_name=one target_sub_name=c").await;
            h.jobs().await.unwrap();
            check_filled(&h, &h.ok("fs subvolume getpath sub_name=c").await).await;
            h.ok("fs subvolume snapshot rm sub_name=s group_name=g snap_name=one").await;
            h.ok("fs subvolume rm sub_name=c").await;
            h.jobs().await.unwrap();
            h.jobs().await.unwrap();
            assert_eq!(h.fs().dirs(b"/volumes/g").await.unwrap(), Vec::<String>::new(), "step {step}");
            assert_eq!(h.model.objects(), 0, "step {step}");
            if removed.is_ok() {
                assert!(step > 3, "{step}");
                break;
            }
        }
    });
}

#[test]
fn a_file_of_a_subvolume_never_grows_too_long_to_be_read() {
    test(async || {
        let h = Home::new();
        h.ok("fs subvolume create sub_name=s").await;
        let value = "v".repeat(60_000);
        let mut set = 0;
        while h.run(&format!("fs subvolume metadata set sub_name=s key_name=k{set} value={value}")).await.is_ok() {
            set += 1;
            assert!(set < 1000);
        }
        h.fails(
            &format!("fs subvolume metadata set sub_name=s key_name=z value={value}"),
            ENOSPC,
            "subvolume 's' has too many clones or keys",
        )
        .await;
        h.ok("fs subvolume info sub_name=s").await;
        h.ok("fs subvolume rm sub_name=s").await;
    });
}

#[test]
fn the_trash_takes_directories_of_any_depth() {
    test(async || {
        let h = Home::new();
        h.ok("fs subvolume create sub_name=s").await;
        let mut path = h.ok("fs subvolume getpath sub_name=s").await;
        let name = "n".repeat(255);
        for _ in 0..200 {
            path = format!("{path}/{name}");
            h.fs().mkdir(path.as_bytes(), 0o755).await.unwrap();
        }
        h.fs().write_file(&format!("{path}/f"), vec![1; 10].into(), 0o600).await.unwrap();
        h.ok("fs subvolume rm sub_name=s").await;
        for _ in 0..3 {
            h.jobs().await.unwrap();
        }
        assert_eq!(h.fs().dirs(b"/volumes/_deleting").await.unwrap(), Vec::<String>::new());
        assert_eq!(h.model.objects(), 0);
    });
}
