//! A watch: a stream that is restarted at another member from its next revision.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Out;
use super::client::Client;
use super::http::Conn;
use super::json::{Prefix, num, revision};
use crate::api::{Change, Event, Outcome, Range, Reply, StateError, Token, WatchId};

/// Time without any message after which a stream is restarted elsewhere: its member may be partitioned.
const IDLE: Duration = Duration::from_secs(8);
/// Interval at which an idle stream checks for its end.
const LOOK: Duration = Duration::from_secs(1);
/// Time limit for starting a watch.
const BEGIN: Duration = Duration::from_secs(10);
/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Stops a watch from another thread.
#[derive(Clone, Default)]
pub(super) struct Stop {
    ended: Arc<AtomicBool>,
    socket: Arc<Mutex<Option<Stopper>>>,
}

/// Interrupts a read of another thread.
type Stopper = Box<dyn Fn() + Send>;

impl Stop {
    pub(super) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(s) = self.socket.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            s();
        }
    }

    fn is_stopped(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn hold(&self, c: &Conn) {
        let stopper = c.stopper().ok().map(|f| Box::new(f) as Stopper);
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = stopper;
    }
}

pub(super) struct Watch {
    pub(super) id: WatchId,
    pub(super) range: Range,
    /// Next revision to deliver; 0 until the stream has reported the current one.
    pub(super) next: u64,
    /// Request to be answered once the watch has started.
    pub(super) token: Option<Token>,
    pub(super) prefix: Prefix,
    pub(super) client: Client,
    pub(super) out: Out,
    pub(super) stop: Stop,
}

enum End {
    Stopped,
    /// The stream must be restarted.
    Broken(String),
    Lost(StateError),
}

impl Watch {
    /// Runs until the watch is stopped or lost.
    pub(super) fn run(mut self, done: &Sender<WatchId>) {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(50);
        loop {
            let at = Instant::now();
            match self.stream() {
                End::Stopped => break,
                End::Lost(why) => {
                    self.lose(why);
                    break;
                }
                End::Broken(why) => {
                    if self.token.is_some() && begun.elapsed() > BEGIN {
                        self.lose(StateError::Unavailable(why));
                        break;
                    }
                }
            }
            pause = if at.elapsed() > PAUSE_MAX { Duration::from_millis(50) } else { (pause * 2).min(PAUSE_MAX) };
            if self.stop.is_stopped() {
                break;
            }
            std::thread::sleep(pause);
        }
        // The owner may have been dropped.
        let _ = done.send(self.id);
    }

    fn lose(&mut self, why: StateError) {
        match self.token.take() {
            Some(token) => self.out.send(Event::Reply(Reply { token, revision: 0, result: Err(why) })),
            None => self.out.send(Event::Lost { watch: self.id, why }),
        }
    }

    fn stream(&mut self) -> End {
        let body = self.prefix.watch(&self.range, self.next);
        let mut conn = match self.client.stream("/v3/watch", &body) {
            Ok(c) => c,
            Err(e) => return End::Broken(e),
        };
        self.stop.hold(&conn);
        if let Err(e) = conn.set_read_timeout(LOOK) {
            return End::Broken(e.to_string());
        }
        let (mut partial, mut heard) = (Vec::new(), Instant::now());
        loop {
            if self.stop.is_stopped() {
                return End::Stopped;
            }
            match conn.stream_line(&mut partial) {
                Ok(Some(line)) => {
                    heard = Instant::now();
                    let Ok(v) = serde_json::from_slice::<Value>(&line) else {
                        self.client.rotate();
                        return End::Broken("the watch's stream is no JSON".into());
                    };
                    if let Some(end) = self.message(&v) {
                        return end;
                    }
                }
                Ok(None) => {
                    self.client.rotate();
                    return End::Broken("the watch's stream has ended".into());
                }
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    if heard.elapsed() > IDLE {
                        self.client.rotate();
                        return End::Broken("the watch's stream is silent".into());
                    }
                }
                Err(e) => {
                    self.client.rotate();
                    return End::Broken(e.to_string());
                }
            }
        }
    }

    fn message(&mut self, v: &Value) -> Option<End> {
        let r = &v["result"];
        if r.is_null() {
            self.client.rotate();
            return Some(End::Broken(v["error"].to_string()));
        }
        let compacted = num(&r["compact_revision"]);
        if compacted > 0 {
            return Some(End::Lost(StateError::Compacted(compacted)));
        }
        if r["canceled"] == true {
            self.client.rotate();
            return Some(End::Broken(r["cancel_reason"].as_str().unwrap_or("cancelled").to_owned()));
        }
        if r["created"] == true {
            let now = revision(r);
            if self.next == 0 {
                self.next = now + 1;
            }
            if let Some(token) = self.token.take() {
                let reply = Reply { token, revision: now, result: Ok(Outcome::Done) };
                self.out.send(Event::Reply(reply));
            }
        }
        let none = Vec::new();
        let mut group: Option<(u64, Vec<Change>)> = None;
        for e in r["events"].as_array().unwrap_or(&none) {
            let Some((at, change)) = self.prefix.change(e) else {
                return Some(End::Lost(StateError::Refused("etcd sent a malformed event".into())));
            };
            // Delivered before the stream was restarted.
            if at < self.next {
                continue;
            }
            match &mut group {
                Some((revision, changes)) if *revision == at => changes.push(change),
                _ => {
                    if let Some(g) = group.replace((at, vec![change])) {
                        self.tell(g);
                    }
                }
            }
        }
        if let Some(g) = group {
            self.tell(g);
        }
        None
    }

    fn tell(&mut self, (revision, changes): (u64, Vec<Change>)) {
        self.next = revision + 1;
        self.out.send(Event::Changed { watch: self.id, revision, changes });
    }
}
