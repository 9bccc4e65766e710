//! Effort, memory and answers of one call are bounded, whatever the input names and the object holds; and counters and
//! times at the ends of their ranges do not turn over.

use crate::testing::MemCtx;
use crate::util::{LIST_BYTES, enc};
use base::Utime;
use base::errno::{E2BIG, EBUSY, EINVAL, EIO};
use bytes::Bytes;
use wire::{Reader, Writer};

fn v1(f: impl FnOnce(&mut Writer)) -> Bytes {
    enc(|w| w.versioned(1, 1, f))
}

fn exec(c: &mut MemCtx, name: &str, input: &Bytes) -> Result<Bytes, i32> {
    let (class, method) = name.split_once('.').unwrap();
    c.exec(class, method, input.clone())
}

fn lock(cookie: &[u8], duration: Utime) -> Bytes {
    v1(|w| {
        w.blob(b"n");
        w.u8(1);
        w.blob(cookie);
        w.blob(b"tag");
        w.blob(b"");
        w.put(&duration);
        w.u8(0);
    })
}

/// As on a 20.2 OSD, which stores the last second.
#[test]
fn a_lock_with_a_duration_beyond_the_range_of_times_is_held() {
    for sec in [u32::MAX, u32::MAX - 1_700_000_000 + 1, 4_000_000_000] {
        let mut c = MemCtx::new();
        exec(&mut c, "lock.lock", &lock(b"a", Utime { sec, nsec: 0 })).unwrap();
        assert_eq!(exec(&mut c, "lock.lock", &lock(b"b", Utime::ZERO)), Err(EBUSY), "{sec}");
    }
}

#[test]
fn garbage_deferred_beyond_the_range_of_times_is_not_due() {
    let mut c = MemCtx::new();
    let set = v1(|w| {
        w.u32(u32::MAX);
        w.versioned(1, 1, |w| {
            w.blob(b"tag");
            w.versioned(1, 1, |w| w.u32(0));
            w.put(&Utime::ZERO);
        });
    });
    exec(&mut c, "rgw.gc_set_entry", &set).unwrap();
    let list = enc(|w| {
        w.versioned(2, 1, |w| {
            w.blob(b"");
            w.u32(10);
            w.bool(true);
        });
    });
    let out = exec(&mut c, "rgw.gc_list", &list).unwrap();
    assert_eq!(out.slice(6..10), [0; 4][..], "no entry is due");
}

fn queue_init(size: u64, urgent_max: u64, urgent: &[u8]) -> Bytes {
    v1(|w| {
        w.u64(size);
        w.u64(urgent_max);
        w.blob(urgent);
    })
}

fn enqueue(entries: &[Bytes]) -> Bytes {
    v1(|w| w.put(entries))
}

fn queue_list(max: u64) -> Bytes {
    v1(|w| {
        w.u64(max);
        w.blob(b"");
    })
}

/// As on a 20.2 OSD.
#[test]
fn urgent_data_beyond_the_head_is_refused() {
    let mut c = MemCtx::new();
    assert_eq!(exec(&mut c, "queue.queue_init", &queue_init(4096, 0, &[b'u'; 5000])), Err(EINVAL));
    assert!(c.object.is_none());
    exec(&mut c, "queue.queue_init", &queue_init(4096, 0, &[b'u'; 900])).unwrap();
    exec(&mut c, "queue.queue_enqueue", &enqueue(&["one".into()])).unwrap();
    assert!(exec(&mut c, "queue.queue_list_entries", &queue_list(5)).is_ok());
}

/// Entries of nothing take four bytes of input each.
#[test]
fn many_entries_are_written_at_once_and_listed_in_part() {
    let mut c = MemCtx::new();
    exec(&mut c, "queue.queue_init", &queue_init(1 << 20, 0, b"")).unwrap();
    let before = c.nested;
    exec(&mut c, "queue.queue_enqueue", &enqueue(&vec![Bytes::new(); 100_000])).unwrap();
    assert!(c.nested - before <= 6, "{} operations on the object", c.nested - before);
    let out = exec(&mut c, "queue.queue_list_entries", &queue_list(u64::MAX)).unwrap();
    let (truncated, next, found) =
        Reader::shared(&out).versioned("cls_queue_list_ret", 1, |r, _| Ok((r.bool()?, r.blob()?, r.u32()?))).unwrap();
    assert!(truncated && found > 1000 && found < 10_000, "{found}");
    let remove = v1(|w| w.blob(&next));
    exec(&mut c, "queue.queue_remove_entries", &remove).unwrap();
    let again = exec(&mut c, "queue.queue_list_entries", &queue_list(5)).unwrap();
    assert_eq!(again.slice(6..7), [1][..], "the rest is still there");
}

#[test]
fn entries_wrap_around_the_end_of_the_ring() {
    let mut c = MemCtx::new();
    exec(&mut c, "queue.queue_init", &queue_init(100, 0, b"")).unwrap();
    let names = |c: &mut MemCtx| -> (Vec<Bytes>, Bytes) {
        let out = exec(c, "queue.queue_list_entries", &queue_list(50)).unwrap();
        Reader::shared(&out)
            .versioned("cls_queue_list_ret", 1, |r, _| {
                r.bool()?;
                let next = r.blob()?;
                let one = |r: &mut Reader<'_>| r.versioned("cls_queue_entry", 1, |r, _| r.blob());
                Ok((r.vec_with("entries", one)?, next))
            })
            .unwrap()
    };
    for round in 0..40u8 {
        let given: Vec<Bytes> = (0..3).map(|n| Bytes::from(vec![round; usize::from(round % 7 + n)])).collect();
        exec(&mut c, "queue.queue_enqueue", &enqueue(&given)).unwrap();
        let (found, next) = names(&mut c);
        assert_eq!(found, given);
        exec(&mut c, "queue.queue_remove_entries", &v1(|w| w.blob(&next))).unwrap();
    }
}

/// Gateways before Quincy do not send the number of removed entries.
#[test]
fn committed_entries_are_counted_when_they_are_removed() {
    let mut c = MemCtx::new();
    exec(&mut c, "2pc_queue.2pc_queue_init", &queue_init(1 << 20, 0, b"")).unwrap();
    let n = 20_000u32;
    let reserve = v1(|w| {
        w.u64(1);
        w.u32(n);
    });
    exec(&mut c, "2pc_queue.2pc_queue_reserve", &reserve).unwrap();
    let commit = v1(|w| {
        w.u32(1);
        w.put(&vec![Bytes::new(); n as usize]);
    });
    exec(&mut c, "2pc_queue.2pc_queue_commit", &commit).unwrap();
    let stats = |c: &mut MemCtx| exec(c, "2pc_queue.2pc_queue_get_topic_stats", &Bytes::new()).unwrap().slice(14..18);
    assert_eq!(stats(&mut c), n.to_le_bytes()[..]);
    exec(&mut c, "2pc_queue.2pc_queue_remove_entries", &v1(|w| w.blob(b"0/205576"))).unwrap();
    let left = n - (205_576 - 1024 - 23_552) / 10;
    assert_eq!(stats(&mut c), left.to_le_bytes()[..]);
}

#[test]
fn a_part_of_a_fifo_at_the_end_of_its_numbers_takes_nothing() {
    let push = v1(|w| {
        w.blob(b"");
        w.put(&vec![Bytes::from_static(b"abc")]);
        w.u64(3);
    });
    let params = |w: &mut Writer| w.versioned(1, 1, |w| [u64::MAX; 3].iter().for_each(|n| w.u64(*n)));
    for (next, index) in [(u64::MAX, 0), (u64::MAX - 60, 0), (512, u64::MAX)] {
        let mut c = MemCtx::new();
        let part = v1(|w| {
            w.blob(b"");
            params(w);
            for n in [7, 512, 512, next, 0, index] {
                w.u64(n);
            }
            w.put(&Utime::ZERO);
        });
        c.object = Some(crate::testing::MemObject { data: part.to_vec(), ..Default::default() });
        assert_eq!(exec(&mut c, "fifo.push_part", &push), Err(EIO), "{next} {index}");
    }
}

#[test]
fn an_otp_named_many_times_is_not_returned_as_often() {
    let mut c = MemCtx::new();
    let set = v1(|w| {
        w.u32(1);
        w.versioned(1, 1, |w| {
            w.u8(2);
            w.blob(b"i");
            w.blob(&[b'a'; 20_000]);
            w.u8(1);
            w.blob(b"");
            w.i32(0);
            w.u32(30);
            w.u32(2);
        });
    });
    exec(&mut c, "otp.otp_set", &set).unwrap();
    let get = |n: usize| {
        v1(|w| {
            w.bool(false);
            w.put(&vec![Bytes::from_static(b"i"); n]);
        })
    };
    assert!(exec(&mut c, "otp.otp_get", &get(3)).is_ok());
    assert_eq!(exec(&mut c, "otp.otp_get", &get(100_000)), Err(E2BIG));
}

#[test]
fn semaphores_are_listed_in_pages_whatever_number_is_asked_for() {
    let mut c = MemCtx::new();
    c.page = 500;
    for part in 0..4 {
        let names = v1(|w| w.seq(0..1000, |w, n| w.string(&format!("{:05}", part * 1000 + n))));
        exec(&mut c, "sem_set.increment", &names).unwrap();
    }
    let (mut cursor, mut seen, mut pages) = (Bytes::new(), 0, 0);
    loop {
        let list = v1(|w| {
            w.u64(u64::MAX);
            w.blob(&cursor);
        });
        let out = exec(&mut c, "sem_set.list", &list).unwrap();
        let (n, next) = Reader::shared(&out)
            .versioned("sem_set::list_ret", 1, |r, _| {
                let found: std::collections::BTreeMap<Bytes, u64> = r.get()?;
                Ok((found.len(), r.blob()?))
            })
            .unwrap();
        (seen, pages) = (seen + n, pages + 1);
        if next.is_empty() {
            break;
        }
        cursor = next;
    }
    assert_eq!((seen, pages), (4000, 4));
}

/// Size of an entry in the following lists.
const SIZE: usize = 4 << 20;

/// Lists of at most a thousand entries, of which each may be of any size.
#[test]
fn lists_of_large_log_entries_are_short() {
    let mut c = MemCtx::new();
    let log = enc(|w| {
        w.versioned(2, 1, |w| {
            w.seq(1..11u32, |w, sec| {
                w.versioned(2, 1, |w| {
                    w.blob(b"");
                    w.blob(b"");
                    w.put(&Utime { sec, nsec: 0 });
                    w.blob(&vec![7; SIZE]);
                    w.blob(b"");
                });
            });
            w.bool(false);
        });
    });
    exec(&mut c, "log.add", &log).unwrap();
    let range = |max: i32| {
        v1(|w| {
            w.put(&Utime::ZERO);
            w.blob(b"");
            w.put(&Utime::ZERO);
            w.i32(max);
        })
    };
    let out = exec(&mut c, "log.list", &range(1000)).unwrap();
    assert!(out.len() < LIST_BYTES + 3 * SIZE, "{}", out.len());
    assert_eq!(out.last(), Some(&1), "more follow");
}

#[test]
fn lists_and_trims_of_large_index_entries_are_short() {
    let mut c = MemCtx::new();
    let index = v1(|w| {
        w.seq(1..11u32, |w, sec| {
            w.versioned(1, 1, |w| {
                w.put(&Utime { sec, nsec: 0 });
                w.blob(b"e");
                w.blob(&vec![7; SIZE]);
            });
        });
    });
    exec(&mut c, "timeindex.add", &index).unwrap();
    let to_end = v1(|w| {
        w.put(&Utime::ZERO);
        w.blob(b"");
        w.put(&Utime { sec: 100, nsec: 0 });
        w.i32(1000);
    });
    let out = exec(&mut c, "timeindex.list", &to_end).unwrap();
    assert!(out.len() < LIST_BYTES + 3 * SIZE, "{}", out.len());
    assert_eq!(out.last(), Some(&1), "more follow");
    // A trim, too, ends early, and goes on when it is repeated.
    let trim = v1(|w| {
        w.put(&Utime::ZERO);
        w.put(&Utime { sec: 100, nsec: 0 });
        w.blob(b"");
        w.blob(b"");
    });
    let mut calls = 0;
    while exec(&mut c, "timeindex.trim", &trim).is_ok() {
        calls += 1;
    }
    assert!(calls > 1 && c.object.as_ref().unwrap().omap.is_empty());
}

#[test]
fn lists_of_large_resources_are_short() {
    let mut c = MemCtx::new();
    for n in 0..10 {
        let add = v1(|w| {
            w.versioned(1, 1, |w| {
                w.string(&format!("user{n}"));
                w.blob(b"/");
                w.blob(&vec![7; SIZE]);
            });
            w.bool(true);
            w.u32(100);
        });
        exec(&mut c, "user.account_resource_add", &add).unwrap();
    }
    let list = v1(|w| {
        w.blob(b"");
        w.blob(b"");
        w.u32(1000);
    });
    let out = exec(&mut c, "user.account_resource_list", &list).unwrap();
    assert!(out.len() < LIST_BYTES + 3 * SIZE, "{}", out.len());
}

/// A gateway adds a bucket again after it was resharded, without its statistics. As on a 20.2 OSD, these stay, and the
/// id is that of the new instance.
#[test]
fn a_bucket_that_is_added_again_keeps_its_statistics() {
    let mut c = MemCtx::new();
    let entry = |w: &mut Writer, id: &[u8], size: u64| {
        w.versioned(9, 5, |w| {
            w.blob(b"");
            w.u64(size);
            w.u32(5);
            w.u64(size);
            w.versioned(9, 8, |w| [&b"b"[..], b"m", id, b"p"].iter().for_each(|f| w.blob(f)));
            w.u64(size);
            w.bool(false);
            w.put(&Utime { sec: 5, nsec: 0 });
        });
    };
    let set = |id: &[u8], size: u64, add: bool| {
        v1(|w| {
            w.u32(1);
            entry(w, id, size);
            w.bool(add);
            w.put(&Utime::ZERO);
        })
    };
    exec(&mut c, "user.set_buckets_info", &set(b"1", 0, true)).unwrap();
    exec(&mut c, "user.set_buckets_info", &set(b"1", 7, false)).unwrap();
    exec(&mut c, "user.set_buckets_info", &set(b"2", 0, true)).unwrap();
    let header = exec(&mut c, "user.get_header", &v1(|_| {})).unwrap();
    assert_eq!(header.slice(18..26), 7u64.to_le_bytes()[..]);
    let stored = &c.object.as_ref().unwrap().omap[&b"b"[..]];
    assert_eq!(stored.slice(10..18), 7u64.to_le_bytes()[..]);
    assert!(stored.windows(5).any(|w| w == b"\x01\0\0\x002"), "the new id");
}

/// As on a 20.2 OSD: nothing may be added to a full queue, not even no entry.
#[test]
fn a_full_queue_refuses_also_an_empty_enqueue() {
    let mut c = MemCtx::new();
    exec(&mut c, "queue.queue_init", &queue_init(120, 0, b"")).unwrap();
    let add = |c: &mut MemCtx, entries: &[Bytes]| exec(c, "queue.queue_enqueue", &enqueue(entries)).map(|_| ());
    assert_eq!(add(&mut c, &[vec![b'z'; 100].into()]), Ok(()));
    assert_eq!(add(&mut c, &[]), Ok(()));
    assert_eq!(add(&mut c, &[Bytes::new()]), Ok(()), "the last ten bytes");
    for entries in [&[][..], &[Bytes::new()]] {
        assert_eq!(add(&mut c, entries), Err(base::errno::ENOSPC));
    }
}
