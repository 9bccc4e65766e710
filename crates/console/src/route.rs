//! Routes of requests, and whether a request may have come from the page.

use crate::change::{BadChange, Wanted};
use crate::http::{Answer, Method, Request};
use serde_json::Value;

/// Name of the cookie. Browsers take a cookie with this prefix only over TLS and for this host alone.
pub const COOKIE: &str = "__Host-belemnite";
/// Header with the session's token.
pub const TOKEN: &str = "x-console-token";
/// Longest name of a user and longest key, in bytes.
const USER_MAX: usize = 128;
const KEY_MAX: usize = 256;

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    kind: &'static str,
    text: &'static str,
}

const PAGE: Part = Part { kind: "text/html; charset=utf-8", text: include_str!("page/index.html") };
const SCRIPT: Part = Part { kind: "text/javascript; charset=utf-8", text: include_str!("page/console.js") };
const CHARTS: Part = Part { kind: "text/javascript; charset=utf-8", text: include_str!("page/chart.js") };
const STYLE: Part = Part { kind: "text/css; charset=utf-8", text: include_str!("page/console.css") };

impl Part {
    /// The answer with this part.
    #[must_use]
    pub fn answer(self) -> Answer {
        Answer::new("200 OK", self.kind, self.text)
    }
}

/// A request of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    /// A part of the page, for everybody.
    Part(Part),
    /// Begin a session.
    SignIn {
        /// Name of the user, without `client.`.
        user: String,
        /// The user's key in base64.
        key: String,
    },
    /// End the session.
    SignOut,
    /// State of the cluster.
    Overview,
    /// Figures over time.
    History,
    /// Changes that the page offers.
    Changes,
    /// Effect of a change.
    Preview(Wanted),
    /// Make a change.
    Apply(Wanted),
}

/// True if a browser sent the request from a page of this host. Browsers name the origin in each POST.
fn is_own_origin(r: &Request) -> bool {
    let site = r.header("sec-fetch-site").is_none_or(|s| s == "same-origin");
    let origin = r.header("origin").and_then(|o| o.strip_prefix("https://"));
    site && origin.is_some() && origin == r.header("host")
}

fn json_of(r: &Request) -> Result<Value, Answer> {
    // A form of another page cannot have this type.
    if r.header("content-type").is_none_or(|t| t.split(';').next() != Some("application/json")) {
        return Err(Answer::plain("415 Unsupported Media Type"));
    }
    serde_json::from_slice(&r.body).map_err(|_| Answer::plain("400 Bad Request"))
}

fn wanted(r: &Request) -> Result<Wanted, Answer> {
    Wanted::parse(&json_of(r)?).map_err(|e: BadChange| {
        Answer::new("400 Bad Request", "application/json", serde_json::json!({ "error": e.to_string() }).to_string())
    })
}

/// The route of a request.
///
/// # Errors
/// The answer that refuses it.
pub fn route(r: &Request) -> Result<Route, Answer> {
    if r.method == Method::Post && !is_own_origin(r) {
        return Err(Answer::plain("403 Forbidden"));
    }
    match (r.method, r.path.as_str()) {
        (Method::Get, "/") => Ok(Route::Part(PAGE)),
        (Method::Get, "/console.js") => Ok(Route::Part(SCRIPT)),
        (Method::Get, "/chart.js") => Ok(Route::Part(CHARTS)),
        (Method::Get, "/console.css") => Ok(Route::Part(STYLE)),
        (Method::Get, "/api/overview") => Ok(Route::Overview),
        (Method::Get, "/api/history") => Ok(Route::History),
        (Method::Get, "/api/changes") => Ok(Route::Changes),
        (Method::Post, "/api/sign-out") => Ok(Route::SignOut),
        (Method::Post, "/api/preview") => Ok(Route::Preview(wanted(r)?)),
        (Method::Post, "/api/apply") => Ok(Route::Apply(wanted(r)?)),
        (Method::Post, "/api/sign-in") => {
            let v = json_of(r)?;
            let word = |key: &str, most: usize| {
                let w = v[key].as_str().map(str::trim).filter(|w| !w.is_empty() && w.len() <= most);
                w.map(str::to_owned).ok_or_else(|| Answer::plain("400 Bad Request"))
            };
            let user = word("user", USER_MAX)?;
            let user = user.strip_prefix("client.").unwrap_or(&user).to_owned();
            Ok(Route::SignIn { user, key: word("key", KEY_MAX)? })
        }
        _ => Err(Answer::plain("404 Not Found")),
    }
}

/// Headers of all answers: nothing from elsewhere, in no frame, kept by no cache.
#[must_use]
pub fn guarded(a: Answer) -> Answer {
    a.with(
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    )
    .with("X-Content-Type-Options", "nosniff")
    .with("X-Frame-Options", "DENY")
    .with("Referrer-Policy", "no-referrer")
    .with("Cross-Origin-Resource-Policy", "same-origin")
    .with("Cross-Origin-Opener-Policy", "same-origin")
    .with("Cache-Control", "no-store")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse;

    fn request(text: &str) -> Request {
        parse(text.as_bytes()).unwrap().unwrap()
    }

    fn post(path: &str, headers: &str, body: &str) -> Result<Route, Answer> {
        let n = body.len();
        route(&request(&format!("POST {path} HTTP/1.1\r\nHost: h:8443\r\n{headers}Content-Length: {n}\r\n\r\n{body}")))
    }

    const GOOD: &str = "Origin: https://h:8443\r\nContent-Type: application/json\r\n";
    const SIGN_IN: &str = r#"{"user": "client.admin", "key": "AQ=="}"#;

    #[test]
    fn changes_come_from_the_page_only() {
        let signed = post("/api/sign-in", GOOD, SIGN_IN);
        assert_eq!(signed, Ok(Route::SignIn { user: "admin".into(), key: "AQ==".into() }));
        for (headers, status) in [
            ("Content-Type: application/json\r\n", "403 Forbidden"),
            ("Origin: https://evil\r\nContent-Type: application/json\r\n", "403 Forbidden"),
            ("Origin: http://h:8443\r\nContent-Type: application/json\r\n", "403 Forbidden"),
            ("Origin: null\r\nContent-Type: application/json\r\n", "403 Forbidden"),
            (
                "Origin: https://h:8443\r\nSec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n",
                "403 Forbidden",
            ),
            ("Origin: https://h:8443\r\nContent-Type: text/plain\r\n", "415 Unsupported Media Type"),
        ] {
            assert_eq!(post("/api/sign-in", headers, SIGN_IN).unwrap_err().status(), status, "{headers}");
        }
    }

    #[test]
    fn bodies_are_checked() {
        let status = |body: &str| post("/api/sign-in", GOOD, body).unwrap_err().status();
        for body in ["", "{", "[]", r#"{"user": "a"}"#, r#"{"user": "", "key": "x"}"#, r#"{"user": 1, "key": "x"}"#] {
            assert_eq!(status(body), "400 Bad Request", "{body}");
        }
        assert_eq!(status(&format!(r#"{{"user": "a", "key": "{}"}}"#, "x".repeat(300))), "400 Bad Request");
        let nested = "[".repeat(10_000);
        assert_eq!(status(&nested), "400 Bad Request");
        let bad = post("/api/apply", GOOD, r#"{"change": "osd-out", "values": {"osd": "x"}}"#).unwrap_err();
        assert!(String::from_utf8_lossy(bad.body()).contains("OSD"), "{bad:?}");
        assert!(matches!(
            post("/api/apply", GOOD, r#"{"change": "osd-out", "values": {"osd": "1"}}"#),
            Ok(Route::Apply(_))
        ));
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing_from_elsewhere() {
        for path in ["/", "/console.js", "/chart.js", "/console.css"] {
            let Ok(Route::Part(p)) = route(&request(&format!("GET {path} HTTP/1.1\r\n\r\n"))) else { panic!("{path}") };
            let outside =
                ["http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("];
            // The name space of SVG is no address.
            let text = p.text.replace("http://www.w3.org/2000/svg", "");
            for word in outside {
                assert!(!text.contains(word), "{path} has {word}");
            }
        }
        assert!(!PAGE.text.contains(" style=") && !PAGE.text.contains(" onclick="), "the policy forbids both");
        assert_eq!(route(&request("GET /../etc/passwd HTTP/1.1\r\n\r\n")).unwrap_err().status(), "404 Not Found");
        let text = String::from_utf8(guarded(PAGE.answer()).bytes()).unwrap();
        assert!(text.contains("Content-Security-Policy: default-src 'none'"), "{text}");
    }
}
