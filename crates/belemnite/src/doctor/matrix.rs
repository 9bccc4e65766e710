//! The network between hosts: each pings the others, with small packets and with the largest that its interfaces take.

use ::doctor::{Facts, Finding};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Most hosts that one host pings: those that follow it in the list, which is a ring.
const PEERS_MAX: usize = 32;
/// Bytes of the headers of a ping over IPv4.
const HEADERS: u32 = 28;
/// Round trip in ms above which a link in one room is slow.
const SLOW_MS: f64 = 1.0;

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    /// Index of the host that sent.
    pub(super) from: usize,
    /// Index of the host that answered.
    pub(super) to: usize,
    /// False if the sender has no `ping`.
    pub(super) pinged: bool,
    /// Mean round trip in ms; `None` without an answer.
    pub(super) ms: Option<f64>,
    /// Lost packets in percent.
    pub(super) lost: f64,
    /// Size of the largest packet that the sender's interfaces take, and whether it arrived.
    pub(super) large: Option<(u32, bool)>,
}

/// Address of a host: that at which ssh reached it, else the name in the target.
pub(super) fn address(target: &str, facts: &Facts) -> String {
    let by_ssh = facts.command("ssh").split_whitespace().nth(2).and_then(|a| a.parse::<IpAddr>().ok());
    let name = target.rsplit('@').next().unwrap_or(target);
    by_ssh.map_or_else(|| name.to_owned(), |a| a.to_string())
}

/// Hosts that a host pings.
pub(super) fn peers(from: usize, hosts: usize) -> impl Iterator<Item = usize> {
    (1..hosts).take(PEERS_MAX).map(move |i| (from + i) % hosts)
}

/// Largest packet of a host's interfaces.
fn packet(facts: &Facts) -> u32 {
    let with_device = facts.each("/sys/class/net/", "/device/uevent");
    let mtus = with_device.filter_map(|(n, _)| facts.text(&format!("/sys/class/net/{n}/mtu")).parse().ok());
    mtus.max().unwrap_or(1500).clamp(576, 65_535)
}

/// True for what is a host name or an address, so that a shell takes it as one word.
pub(super) fn is_plain(address: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".:-_%".contains(c);
    !address.is_empty() && !address.starts_with('-') && address.chars().all(plain)
}

/// Script by which a host pings others.
pub(super) fn script(facts: &Facts, others: &[(usize, String)]) -> String {
    let mut out = "LC_ALL=C; PATH=$PATH:/usr/sbin:/sbin; export LC_ALL PATH\n\
                   say() { sed \"s|^|/cmd/$1:|\"; }\n"
        .to_owned();
    let size = packet(facts);
    let payload = size - HEADERS;
    for (i, a) in others.iter().filter(|(_, a)| is_plain(a)) {
        let _ = writeln!(out, "ping -nq -c 5 -i 0.2 -w 3 {a} 2>&1 | say ping/{i}");
        let _ = writeln!(
            out,
            "if ping -nq -c 2 -i 0.2 -w 2 -M do -s {payload} {a} >/dev/null 2>&1; then echo {size} yes; \
             else echo {size} no; fi | say large/{i}"
        );
    }
    out
}

/// Links from the output of [`script`].
pub(super) fn links(from: usize, others: &[(usize, String)], output: &Facts) -> Vec<Link> {
    let one = |to: usize| {
        let text = output.command(&format!("ping/{to}"));
        // `rtt min/avg/max/mdev = 0.030/0.041/0.052/0.008 ms`
        let times = text.lines().find(|l| l.contains("min/avg/max")).and_then(|l| l.split('=').nth(1));
        let ms = times.and_then(|t| t.trim().split('/').nth(1)?.parse::<f64>().ok()).filter(|n| n.is_finite());
        let loss = text.lines().find_map(|l| l.split("% packet loss").next().filter(|before| *before != l));
        let lost = loss.and_then(|l| l.rsplit([' ', ',']).next()?.parse::<f64>().ok()).filter(|n| n.is_finite());
        let large = output.command(&format!("large/{to}")).split_once(' ');
        let large = large.and_then(|(size, word)| Some((size.parse().ok()?, word == "yes")));
        Link { from, to, pinged: text.contains("transmitted"), ms, lost: lost.unwrap_or(100.0), large }
    };
    others.iter().map(|(to, _)| one(*to)).collect()
}

/// Findings about links, for the host that sent.
pub(super) fn findings(links: &[Link], names: &[String]) -> Vec<Finding> {
    const CHECK: &str = "network between hosts";
    let mut out = Vec::new();
    let of = |i: usize| names.get(i).map_or("?", String::as_str);
    if links.iter().any(|l| !l.pinged) {
        out.push(Finding::unknown(CHECK, "`ping` is not installed, or does not know some name"));
    }
    for l in links.iter().filter(|l| l.pinged) {
        let to = of(l.to);
        if l.ms.is_none() {
            out.push(Finding::warn(
                CHECK,
                format!("no answer from {to}"),
                "OSDs of the two hosts report each other as failed",
                "check routes and firewalls; some firewalls drop only pings",
            ));
            continue;
        }
        if l.lost > 0.0 {
            out.push(Finding::warn(
                CHECK,
                format!("{:.0} % of the packets to {to} are lost", l.lost),
                "each lost packet delays its operation by a round trip, or by 200 ms",
                "check cables, optics and the switch ports of both",
            ));
        }
        if let Some((size, false)) = l.large {
            out.push(Finding::warn(
                CHECK,
                format!("packets of {size} bytes do not reach {to}"),
                "large messages stop for ever while small ones pass, so OSDs look alive and hang",
                "the same MTU on both hosts and on each switch between them",
            ));
        }
        if let Some(ms) = l.ms.filter(|ms| *ms > SLOW_MS) {
            out.push(Finding::note(
                CHECK,
                format!("{ms:.2} ms to {to} and back"),
                "each write waits for at least one round trip between its OSDs",
                "hosts of one failure domain in one room; idle states of the processors add to it",
            ));
        }
    }
    if out.is_empty() && !links.is_empty() {
        let most = links.iter().filter_map(|l| l.ms).fold(0.0, f64::max);
        out.push(Finding::fine(CHECK, format!("{} links, at most {most:.2} ms", links.len())));
    }
    out
}

/// Round trips of all links as a table.
pub(super) fn table(links: &[Link], names: &[String]) -> String {
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).clamp(7, 24);
    let cut = |n: &str| n.chars().take(width).collect::<String>();
    let mut out = format!("round trips in ms, from the host of the row\n{:width$}", "");
    names.iter().for_each(|n| _ = write!(out, "  {:>width$}", cut(n)));
    out.push('\n');
    for (from, name) in names.iter().enumerate() {
        let _ = write!(out, "{:width$}", cut(name));
        for to in 0..names.len() {
            let link = links.iter().find(|l| (l.from, l.to) == (from, to));
            let cell = match link {
                _ if from == to => "-".to_owned(),
                None => String::new(),
                Some(Link { ms: Some(ms), .. }) => format!("{ms:.3}"),
                Some(_) => "none".to_owned(),
            };
            let _ = write!(out, "  {cell:>width$}");
        }
        out.push('\n');
    }
    out
}

/// Links as JSON.
pub(super) fn json(links: &[Link], names: &[String]) -> Value {
    let of = |i: usize| names.get(i);
    let one = |l: &Link| {
        json!({
            "from": of(l.from),
            "to": of(l.to),
            "round_trip_ms": l.ms,
            "lost_percent": l.lost,
            "packet_bytes": l.large.map(|(size, _)| size),
            "packet_arrives": l.large.map(|(_, arrives)| arrives),
        })
    };
    links.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::doctor::Severity;

    fn others() -> Vec<(usize, String)> {
        vec![(1, "10.0.0.2".into()), (2, "b.example".into()), (3, "x; rm".into())]
    }

    #[test]
    fn hosts_ping_by_addresses_only() {
        let f = Facts::parse(b"/sys/class/net/eth0/device/uevent:D=1\n/sys/class/net/eth0/mtu:9000\n");
        let s = script(&f, &others());
        assert!(s.contains("-s 8972 10.0.0.2") && s.contains("b.example"), "{s}");
        assert!(!s.contains("rm"), "{s}");
        let by_ssh = Facts::parse(b"/cmd/ssh:10.0.0.9 555 10.0.0.2 22\n");
        assert_eq!(address("root@b", &by_ssh), "10.0.0.2");
        assert_eq!(address("root@b", &Facts::default()), "b");
        assert_eq!(peers(2, 4).collect::<Vec<_>>(), [3, 0, 1]);
        assert_eq!(peers(0, 1000).count(), PEERS_MAX);
    }

    #[test]
    fn answers_of_both_pings_are_read() {
        let out = Facts::parse(
            b"/cmd/ping/1:5 packets transmitted, 5 received, 0% packet loss, time 818ms\n\
              /cmd/ping/1:rtt min/avg/max/mdev = 0.030/0.041/0.052/0.008 ms\n\
              /cmd/large/1:9000 no\n\
              /cmd/ping/2:5 packets transmitted, 4 packets received, 20% packet loss\n\
              /cmd/ping/2:round-trip min/avg/max = 0.500/2.500/9.000 ms\n\
              /cmd/large/2:1500 yes\n\
              /cmd/ping/3:3 packets transmitted, 0 received, 100% packet loss\n",
        );
        let l = links(0, &others(), &out);
        assert_eq!(l[0], Link { from: 0, to: 1, pinged: true, ms: Some(0.041), lost: 0.0, large: Some((9000, false)) });
        assert_eq!(l[1], Link { from: 0, to: 2, pinged: true, ms: Some(2.5), lost: 20.0, large: Some((1500, true)) });
        assert_eq!((l[2].ms, l[2].lost), (None, 100.0));
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let found: Vec<String> = findings(&l, &names).into_iter().map(|f| f.what).collect();
        assert_eq!(
            found,
            [
                "packets of 9000 bytes do not reach b",
                "20 % of the packets to c are lost",
                "2.50 ms to c and back",
                "no answer from d"
            ]
        );
        let without = links(0, &others(), &Facts::parse(b"/cmd/ping/1:sh: 1: ping: not found\n/cmd/large/1:1500 no\n"));
        assert!(findings(&without, &names).iter().all(|f| f.severity == Severity::Unknown));
        let t = table(&l, &names);
        assert!(t.contains("0.041") && t.contains("none"), "{t}");
        assert_eq!(json(&l, &names)[0]["packet_arrives"], false);
    }
}
