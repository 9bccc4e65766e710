//! The console's answers to requests.

use super::users::{Cluster, Reply, SignInError, User};
use crate::change::{self, Wanted};
use crate::history::{History, Sample};
use crate::http::{Answer, Method, Request};
use crate::route::{COOKIE, Route, TOKEN, guarded, route};
use crate::session::{Sessions, is_same};
use base::Mono;
use base64::Engine as _;
use reactor::clock;
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// Most attempts to sign in that are under way.
const SIGN_INS: usize = 4;
/// Age up to which an overview serves further requests of its session.
const FRESH: Duration = Duration::from_secs(2);
/// Most bytes of an answer that are shown in an overview.
const PART_MAX: usize = 4 << 20;

/// Commands whose answers make an overview.
const OVERVIEW: [(&str, &str); 6] = [
    ("status", r#"{"prefix": "status", "format": "json"}"#),
    ("health", r#"{"prefix": "health", "detail": "detail", "format": "json"}"#),
    ("df", r#"{"prefix": "df", "format": "json"}"#),
    ("tree", r#"{"prefix": "osd df", "output_method": "tree", "format": "json"}"#),
    ("perf", r#"{"prefix": "osd perf", "format": "json"}"#),
    ("pools", r#"{"prefix": "osd pool stats", "format": "json"}"#),
];

/// The overview of a session, with its time.
type Overview = (Mono, Rc<str>);

/// The console.
pub struct App {
    cluster: Box<dyn Cluster>,
    sessions: RefCell<Sessions<Rc<dyn User>>>,
    overviews: RefCell<BTreeMap<String, Overview>>,
    history: RefCell<History>,
    signing_in: Cell<usize>,
}

/// Counts an attempt to sign in while it is under way.
struct SigningIn<'a>(&'a Cell<usize>);

impl<'a> SigningIn<'a> {
    fn begin(n: &'a Cell<usize>) -> Option<Self> {
        (n.get() < SIGN_INS).then(|| {
            n.set(n.get() + 1);
            Self(n)
        })
    }
}

impl Drop for SigningIn<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A random word of 256 bits.
fn random_word() -> String {
    let mut b = [0; 32];
    auth::Random::fill(&net::OsRandom, &mut b);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(b)
}

fn json_answer(status: &'static str, v: &Value) -> Answer {
    Answer::new(status, "application/json", v.to_string())
}

fn error(status: &'static str, text: impl std::fmt::Display) -> Answer {
    json_answer(status, &json!({ "error": text.to_string() }))
}

/// The JSON of a reply; an object with `error` if there is none.
fn value(r: Result<Reply, String>) -> Value {
    match r {
        Ok(r) if r.rc < 0 => json!({ "error": r.status }),
        Ok(r) if r.out.len() > PART_MAX => json!({ "error": "the answer is too large for this page" }),
        Ok(r) => serde_json::from_slice(&r.out).unwrap_or_else(|_| String::from_utf8_lossy(&r.out).into_owned().into()),
        Err(e) => json!({ "error": e }),
    }
}

impl App {
    /// A console of a cluster.
    #[must_use]
    pub fn new(cluster: Box<dyn Cluster>) -> Self {
        Self {
            cluster,
            sessions: RefCell::default(),
            overviews: RefCell::default(),
            history: RefCell::default(),
            signing_in: Cell::new(0),
        }
    }

    /// Adds a sample to the history, and ends sessions that were not used.
    pub fn sample(&self, s: Sample) {
        self.history.borrow_mut().add(s);
        self.sessions.borrow_mut().expire(clock::read().mono);
    }

    /// Ends all sessions, when the module is switched off.
    pub fn close(&self) {
        *self.sessions.borrow_mut() = Sessions::default();
        self.overviews.borrow_mut().clear();
    }

    /// Answers a request.
    pub async fn answer(&self, r: Request, from: IpAddr) -> Answer {
        guarded(match route(&r) {
            Ok(Route::Part(p)) => p.answer(),
            Ok(Route::SignIn { user, key }) => self.sign_in(&user, &key, from).await,
            Ok(wants) => match self.signed_in(&r) {
                Some((id, user)) => self.of_user(&id, user, wants).await,
                None => error("401 Unauthorized", "sign in first"),
            },
            Err(refusal) => refusal,
        })
    }

    /// The session of a request; one that changes something has its token.
    fn signed_in(&self, r: &Request) -> Option<(String, Rc<dyn User>)> {
        let id = r.cookie(COOKIE)?;
        let mut sessions = self.sessions.borrow_mut();
        let user = sessions.user(id, clock::read().mono)?;
        let is_told = || sessions.token(id).zip(r.header(TOKEN)).is_some_and(|(a, b)| is_same(a, b));
        (r.method == Method::Get || is_told()).then(|| (id.to_owned(), user))
    }

    async fn sign_in(&self, user: &str, key: &str, from: IpAddr) -> Answer {
        let now = clock::read().mono;
        let under_way = SigningIn::begin(&self.signing_in);
        if under_way.is_none() || !self.sessions.borrow_mut().may_try(from, now) {
            tracing::warn!("mgr: the console refuses attempts to sign in from {from}: too many");
            return error("429 Too Many Requests", "too many attempts; wait a minute").with("Retry-After", "60");
        }
        match self.cluster.sign_in(user, key).await {
            Ok(user) => {
                // What needs a right to be seen is not shown to one without.
                if let Err(why) = self.may_see(&user).await {
                    return error("403 Forbidden", why);
                }
                let (id, token) = (random_word(), random_word());
                let mut sessions = self.sessions.borrow_mut();
                sessions.succeeded(from);
                let name = user.name().to_owned();
                sessions.begin(id.clone(), token.clone(), user, clock::read().mono);
                tracing::info!("mgr: client.{name} signed in at the console from {from}");
                let cookie = format!("{COOKIE}={id}; Path=/; Secure; HttpOnly; SameSite=Strict");
                json_answer("200 OK", &json!({ "user": name, "token": token })).with("Set-Cookie", cookie)
            }
            Err(e @ SignInError::Refused) => {
                tracing::warn!("mgr: the console refused to sign in {} from {from}: {e}", user.escape_debug());
                error("401 Unauthorized", e)
            }
            Err(e) => error("503 Service Unavailable", e),
        }
    }

    /// Checks that a user may see the status.
    async fn may_see(&self, user: &Rc<dyn User>) -> Result<(), String> {
        let r = user.command(json!({ "prefix": "status", "format": "json" })).await?;
        if r.rc < 0 { Err(format!("client.{} may not see the status: {}", user.name(), r.status)) } else { Ok(()) }
    }

    async fn of_user(&self, id: &str, user: Rc<dyn User>, wants: Route) -> Answer {
        match wants {
            Route::SignOut => {
                self.sessions.borrow_mut().end(id);
                self.overviews.borrow_mut().remove(id);
                let gone = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
                json_answer("200 OK", &json!({})).with("Set-Cookie", gone)
            }
            Route::Overview => self.overview(id, &user).await,
            Route::History => match self.may_see(&user).await {
                Ok(()) => json_answer("200 OK", &self.history.borrow().json()),
                Err(why) => error("403 Forbidden", why),
            },
            Route::Changes => json_answer("200 OK", &change::list()),
            Route::Preview(w) => preview(&user, &w).await,
            Route::Apply(w) => apply(&user, &w).await,
            // Answered before.
            Route::Part(_) | Route::SignIn { .. } => Answer::plain("404 Not Found"),
        }
    }

    async fn overview(&self, id: &str, user: &Rc<dyn User>) -> Answer {
        let now = clock::read().mono;
        if let Some((at, text)) = self.overviews.borrow().get(id)
            && now.since(*at) < FRESH
        {
            return Answer::new("200 OK", "application/json", text.as_bytes());
        }
        let mut all = Map::new();
        all.insert("user".into(), user.name().into());
        if let Some(token) = self.sessions.borrow().token(id) {
            // A page that was loaded again knows its session by the cookie only.
            all.insert("token".into(), token.into());
        }
        for (name, command) in OVERVIEW {
            let command = serde_json::from_str(command).unwrap_or_default();
            all.insert(name.into(), value(user.command(command).await));
        }
        let text: Rc<str> = Value::Object(all).to_string().into();
        let mut kept = self.overviews.borrow_mut();
        kept.retain(|_, (at, _)| now.since(*at) < FRESH);
        kept.insert(id.to_owned(), (now, Rc::clone(&text)));
        Answer::new("200 OK", "application/json", text.as_bytes())
    }
}

async fn preview(user: &Rc<dyn User>, w: &Wanted) -> Answer {
    let mut answers = Vec::new();
    for q in w.questions() {
        let v = value(user.command(q).await);
        answers.push(if v.get("error").is_some() { Value::Null } else { v });
    }
    json_answer("200 OK", &json!({ "command": w.shell(), "effect": w.effect(&answers) }))
}

async fn apply(user: &Rc<dyn User>, w: &Wanted) -> Answer {
    match user.command(w.command()).await {
        Ok(r) if r.rc < 0 => {
            let text = format!("{} ({})", r.status, base::errno::name(r.rc));
            json_answer("200 OK", &json!({ "done": false, "text": text, "command": w.shell() }))
        }
        Ok(r) => {
            tracing::info!("mgr: client.{} ran at the console: {}", user.name(), w.shell());
            let out = String::from_utf8_lossy(&r.out).into_owned();
            let text = if r.status.is_empty() { out } else { r.status };
            json_answer("200 OK", &json!({ "done": true, "text": text, "command": w.shell() }))
        }
        Err(e) => error("504 Gateway Timeout", e),
    }
}
