//! `belemnite why|safe|eta`: answers from the measurements of all daemons.
//!
//! | module | contents |
//! | --- | --- |
//! | `collect` | collects the evidence: ledgers of all OSDs, health, maps, states of PGs, clocks of the monitors |
//! | `locks` | locks on objects (class `lock`), and whether their holders are still there |
//! | `placement` | the places that CRUSH finds for a PG, computed from the map |

mod collect;
mod locks;
mod placement;

use crate::cli::Target;
use crate::cli::operate::print;
use clap::Args;
use client::Client;
use std::rc::Rc;
use std::time::Duration;
use why::{Load, Subject, eta, judge};

type Error = Box<dyn std::error::Error>;

/// Longest span that OSDs keep.
const SINCE_MAX: u64 = 600;

/// `belemnite why`
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Subject: nothing or `slow` for the whole cluster, `osd.7`, `client.4711`, `POOL`, `POOL/IMAGE`, `pg 3.1f`, `not clean`
    #[arg(value_name = "SUBJECT")]
    subject: Vec<String>,
    /// Time back from now, at most 10m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = seconds)]
    since: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `belemnite safe`
#[derive(Debug, Args)]
pub(crate) struct SafeArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `belemnite eta`
#[derive(Debug, Args)]
pub(crate) struct EtaArgs {
    /// Time for which the rate is measured
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = seconds)]
    measure: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Seconds of a text like `30`, `30s`, `10m` or `1h`.
fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((i, 's')) => (&text[..i], 1),
        Some((i, 'm')) => (&text[..i], 60),
        Some((i, 'h')) => (&text[..i], 3600),
        _ => (text, 1),
    };
    let n: u64 = number.parse().map_err(|_| format!("{text}: not a time; 30s, 10m or 1h are"))?;
    n.checked_mul(unit).filter(|s| *s > 0).ok_or_else(|| format!("{text}: not a time that can be measured"))
}

/// Question about PGs that are not clean.
const NOT_CLEAN: &str = "not clean";

async fn subject(c: &Client, words: &[String]) -> Result<(Subject, Vec<locks::Asked>), Error> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let none = Vec::new();
    match words.as_slice() {
        [] | ["slow"] => Ok((Subject::Cluster, none)),
        ["pg", pg] => Ok((Subject::Pg(collect::acting(c, pg).await?), none)),
        [one] => {
            if let Some(n) = one.strip_prefix("osd.") {
                let n = n.parse().map_err(|_| format!("{one}: an OSD is named osd.N"))?;
                return Ok((Subject::Osd(n), none));
            }
            if one.starts_with("client.") {
                return Ok((Subject::Client((*one).to_owned()), none));
            }
            let (pool, image) = one.split_once('/').map_or((*one, None), |(p, i)| (p, Some(i)));
            let id = c.pool(pool).await?;
            let asked = match image {
                Some(i) => vec![locks::header(c, id, i).await?],
                None => none,
            };
            Ok((Subject::Pool(id.0), asked))
        }
        _ => Err(format!(
            "{}: not a subject; `slow`, `osd.N`, `client.N`, `POOL`, `POOL/IMAGE`, `pg PGID` and `not clean` are",
            words.join(" ")
        )
        .into()),
    }
}

/// `belemnite why`
pub(crate) async fn why(t: &Target, a: WhyArgs) -> Result<(), Error> {
    let c = Rc::new(t.connect().await?);
    if a.subject.join(" ") == NOT_CLEAN {
        return not_clean(&c, a.json).await;
    }
    let (about, asked) = subject(&c, &a.subject).await?;
    let since = a.since.min(SINCE_MAX);
    let mut e = collect::evidence(&c, since).await?;
    if let Subject::Osd(o) = about {
        let known = e.silent.contains(&o) || e.osds.iter().any(|x| x.osd == o);
        known.then_some(()).ok_or_else(|| format!("osd.{o} is not up"))?;
    }
    e.locks = locks::held(&c, &e, asked).await;
    let verdicts = judge(&e, &about);
    if a.json {
        let all: Vec<_> = verdicts.iter().map(why::Verdict::to_json).collect();
        let l = Load::of(&e);
        let shown = serde_json::json!({
            "seconds": since, "operations": l.ops, "mean_ms": l.mean_ms, "mean_ms_ten_minutes": l.long_mean_ms,
            "oldest_waits": l.oldest, "silent": e.silent, "young": e.young(), "verdicts": all,
        });
        print(&serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    for v in &verdicts {
        print(&v.to_string());
    }
    if verdicts.is_empty() {
        print(&nothing(&e, &about, since));
    }
    let young = e.young_text();
    if !young.is_empty() {
        print(&young);
    }
    Ok(())
}

/// The answer if nothing is wrong.
fn nothing(e: &why::Evidence, about: &Subject, since: u64) -> String {
    let l = Load::of(&about.part_of(e));
    let of = match about {
        Subject::Cluster => String::new(),
        Subject::Osd(o) => format!(" of osd.{o}"),
        Subject::Client(c) => format!(" of {c}"),
        Subject::Pool(p) => format!(" of {}", e.pool_name(*p)),
        Subject::Pg(_) => " of its OSDs".to_owned(),
    };
    let silent = match e.silent.as_slice() {
        [] => String::new(),
        some => format!("; {} OSDs did not answer", some.len()),
    };
    match l.ops {
        0 => format!("no cause found: no operations{of} in {since} s{silent}"),
        n => format!("no cause found: {n} operations{of} in {since} s took {:.2} ms each{silent}", l.mean_ms),
    }
}

/// `belemnite why not clean`
async fn not_clean(c: &Client, json: bool) -> Result<(), Error> {
    let (pgs, health) = collect::unclean(c).await?;
    let all = why::unclean::explain(&pgs, &health);
    if json {
        let all: Vec<_> = all.iter().map(why::unclean::Reason::to_json).collect();
        print(&serde_json::to_string_pretty(&all)?);
    } else if all.is_empty() {
        print("all PGs are active+clean");
    } else {
        all.iter().for_each(|r| print(&r.to_string()));
    }
    Ok(())
}

/// `belemnite safe`
pub(crate) async fn safe(t: &Target, a: SafeArgs) -> Result<(), Error> {
    let c = t.connect().await?;
    let (pools, pgs, hosts) = collect::redundancy(&c).await?;
    let s = why::safe::judge(&pools, &pgs, &hosts);
    print(&if a.json { serde_json::to_string_pretty(&s.to_json())? } else { s.to_string() });
    Ok(())
}

/// Interval of the samples of `eta`.
const SAMPLE_EVERY: Duration = Duration::from_secs(3);

/// `belemnite eta`
pub(crate) async fn eta(t: &Target, a: EtaArgs) -> Result<(), Error> {
    let c = t.connect().await?;
    let begin = tokio::time::Instant::now();
    let mut samples = Vec::new();
    loop {
        let s = collect::sample(&c, begin.elapsed().as_secs_f64()).await?;
        samples.push(s);
        if s.is_done() || begin.elapsed() >= Duration::from_secs(a.measure) {
            break;
        }
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
    let e = eta::estimate(&samples, collect::stops(&c).await?);
    print(&if a.json { serde_json::to_string_pretty(&e.to_json())? } else { e.to_string() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(["30", "30s", "10m", "1h"].map(|t| seconds(t).unwrap()), [30, 30, 600, 3600]);
        for bad in ["", "m", "0", "-3s", "1.5m", "1d", "99999999999999999999h"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
