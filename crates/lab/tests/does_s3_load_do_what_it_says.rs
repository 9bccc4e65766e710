//! S3 load against a gateway of this test, which closes connections now and then and can lose or damage objects.

use lab::host::steps::{Outcome, Role, Steps, StepsError, To, run};
use lab::load::sigv4::Keys;
use lab::load::steps::{Mix, Sizes};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Requests after which the gateway closes a connection without a word.
const REQUESTS: usize = 7;

#[derive(Default)]
struct Seen {
    objects: BTreeMap<String, Vec<u8>>,
    methods: BTreeSet<String>,
    bucket: bool,
    /// Requests without the headers of a signature.
    unsigned: usize,
    /// Number that is added to the last byte of each object read.
    damage: u8,
}

struct Gateway {
    endpoint: String,
    seen: Arc<Mutex<Seen>>,
}

fn serve(stream: TcpStream, seen: &Mutex<Seen>) -> Option<()> {
    let mut r = BufReader::new(stream.try_clone().ok()?);
    let mut w = stream;
    for _ in 0..REQUESTS {
        let mut first = String::new();
        if r.read_line(&mut first).ok()? == 0 {
            return None;
        }
        let mut words = first.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (mut length, mut signed) = (0, 0);
        loop {
            let mut line = String::new();
            r.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            match name {
                "content-length" => length = value.parse().ok()?,
                "authorization" => signed += usize::from(value.starts_with("AWS4-HMAC-SHA256 Credential=A/")),
                "x-amz-date" | "x-amz-content-sha256" => signed += 1,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        r.read_exact(&mut body).ok()?;
        let mut s = seen.lock().unwrap();
        s.unsigned += usize::from(signed != 3);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        s.methods.insert(if query.is_empty() { method.clone() } else { "LIST".into() });
        let is_bucket = !path[1..].contains('/');
        let (status, out) = match method.as_str() {
            "PUT" if is_bucket => {
                s.bucket = true;
                ("200 OK", Vec::new())
            }
            "HEAD" if is_bucket && s.bucket => ("200 OK", Vec::new()),
            "DELETE" if is_bucket => {
                s.bucket = false;
                ("204 No Content", Vec::new())
            }
            "PUT" => {
                s.objects.insert(path.into(), body);
                ("200 OK", Vec::new())
            }
            "GET" if is_bucket => ("200 OK", b"<ListBucketResult></ListBucketResult>".to_vec()),
            "GET" | "HEAD" => match s.objects.get(path) {
                Some(o) => {
                    let mut o = o.clone();
                    if let Some(last) = o.last_mut() {
                        *last = last.wrapping_add(s.damage);
                    }
                    ("200 OK", o)
                }
                None => ("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            },
            _ => {
                s.objects.remove(path);
                ("204 No Content", Vec::new())
            }
        };
        drop(s);
        write!(w, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", out.len()).ok()?;
        if method != "HEAD" {
            w.write_all(&out).ok()?;
        }
    }
    Some(())
}

impl Gateway {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let all = seen.clone();
        // The thread waits for connections until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = all.clone();
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Self { endpoint, seen }
    }

    fn run(&self, s: &Steps) -> Result<Outcome, StepsError> {
        let keys = Keys { access: "A".into(), secret: "S".into(), region: "us-east-1".into() };
        run(s, &To::S3 { endpoint: self.endpoint.clone(), bucket: "b".into(), keys }, &mut |_| ())
    }
}

fn steps(job: &str) -> Steps {
    Steps {
        roles: vec![Role { mix: Mix::of_job(job).unwrap(), workers: 3, rate: None }],
        clients: 2,
        objects: 12,
        sizes: Sizes::Archive(3000),
        time: Duration::from_millis(400),
        warm_up: Duration::ZERO,
        prefix: "p".into(),
        verify: true,
        fill: true,
        keep: false,
        seed: 3,
        cpu_of: Vec::new(),
    }
}

#[test]
fn only_a_bucket_that_the_load_made_is_removed() {
    for before in [false, true] {
        let g = Gateway::start();
        g.seen.lock().unwrap().bucket = before;
        g.run(&steps("put")).map_err(|e| e.to_string()).unwrap();
        let s = g.seen.lock().unwrap();
        assert_eq!((s.bucket, s.objects.len()), (before, 0));
    }
}

#[test]
fn every_kind_of_request_is_made_signed_and_undone() {
    let g = Gateway::start();
    for job in ["put", "get", "list", "head", "delete"] {
        let o = g.run(&steps(job)).map_err(|e| e.to_string()).unwrap();
        assert_eq!(o.kinds.iter().map(|(k, _)| k.name()).collect::<Vec<_>>(), [job]);
        assert_eq!(o.first_byte.count(), if job == "get" { o.all.count() } else { 0 });
        assert!(o.first_byte.max() <= o.all.max());
    }
    g.run(&steps("mixed")).map_err(|e| e.to_string()).unwrap();
    let s = g.seen.lock().unwrap();
    assert_eq!(s.unsigned, 0);
    assert_eq!(s.methods.iter().map(String::as_str).collect::<Vec<_>>(), ["DELETE", "GET", "HEAD", "LIST", "PUT"]);
    assert_eq!(s.objects.len(), 0, "all objects are removed");
}

#[test]
fn lost_and_damaged_objects_are_noticed() {
    let g = Gateway::start();
    let lost = g.run(&Steps { fill: false, ..steps("get") }).err().unwrap().to_string();
    assert!(lost.starts_with("get of number ") && lost.ends_with("status 404 NoSuchKey"), "{lost}");
    g.seen.lock().unwrap().damage = 1;
    let damaged = g.run(&steps("get")).err().unwrap().to_string();
    assert!(damaged.contains("byte ") && damaged.contains(" differs"), "{damaged}");
}
