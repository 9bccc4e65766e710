//! The ports of an OSD.
//!
//! They are held from their choice on: another OSD that starts on this machine at the same time would choose them, too,
//! and both would announce them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Listening addresses of an OSD.
#[derive(Debug)]
pub(super) struct Listen {
    pub(super) public: SocketAddr,
    pub(super) hb_back: SocketAddr,
    pub(super) hb_front: SocketAddr,
    /// Address of each reactor.
    pub(super) cluster: Vec<SocketAddr>,
    /// Address for clients of msgr1.
    pub(super) legacy: Option<SocketAddr>,
    held: Mutex<BTreeMap<SocketAddr, TcpListener>>,
}

impl Listen {
    /// Chooses free ports in the range, one for each address; with `msgr1` one more, if there is one. Error: what there
    /// is not, and why.
    pub(super) fn choose(
        ports: (u16, u16),
        public: IpAddr,
        cluster: IpAddr,
        reactors: usize,
        msgr1: bool,
    ) -> Result<Self, (String, io::Error)> {
        let mut held = BTreeMap::new();
        let mut next = ports.0;
        let mut choose = |ip: IpAddr| {
            loop {
                if next > ports.1 || next == u16::MAX {
                    let what = format!("no free port on {ip} in {}-{}", ports.0, ports.1);
                    return Err((what, io::ErrorKind::AddrInUse.into()));
                }
                let at = SocketAddr::new(ip, next);
                next += 1;
                if let Ok(l) = TcpListener::bind(at) {
                    held.insert(at, l);
                    return Ok(at);
                }
            }
        };
        let first_public = choose(public)?;
        let first = choose(cluster)?;
        let (hb_back, hb_front) = (choose(cluster)?, choose(public)?);
        let mut all = vec![first];
        while all.len() < reactors {
            all.push(choose(cluster)?);
        }
        // Last, so that the other addresses keep the ports they have without it.
        let legacy = if msgr1 {
            let chosen = choose(public);
            if let Err((what, _)) = &chosen {
                tracing::warn!("{what}: msgr1 is not served");
            }
            chosen.ok()
        } else {
            None
        };
        Ok(Self { public: first_public, hb_back, hb_front, cluster: all, legacy, held: Mutex::new(held) })
    }

    /// The socket of a chosen address; it is there once. Error: it was taken before.
    pub(super) fn take(&self, at: SocketAddr) -> io::Result<TcpListener> {
        let l = self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&at);
        l.ok_or_else(|| io::ErrorKind::AddrInUse.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn two_osds_that_start_at_once_choose_different_ports() {
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let free = TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap().port().min(60_000);
        let choose = || Listen::choose((free, free + 200), ip, ip, 2, true).unwrap();
        let (a, b) = (choose(), choose());
        let all = |l: &Listen| [l.cluster.clone(), vec![l.public, l.hb_back, l.hb_front, l.legacy.unwrap()]].concat();
        assert!(all(&a).iter().all(|x| !all(&b).contains(x)), "{a:?} {b:?}");
        assert_eq!(a.take(a.public).unwrap().local_addr().unwrap(), a.public);
        assert!(a.take(a.public).is_err());
        let none = Listen::choose((a.cluster[0].port(), a.cluster[0].port()), ip, ip, 1, true).unwrap_err();
        assert!(none.0.contains("no free port"), "{none:?}");
    }
}
