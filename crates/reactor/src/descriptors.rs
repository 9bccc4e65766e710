//! The process's limit of open descriptors, the queue of connections before a listening socket, and the bytes that wake
//! a socket's reader.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};

/// Raises the soft limit of open descriptors to the hard one, and returns the limit in force; `None` if the system does
/// not tell.
#[must_use]
pub fn raise_limit() -> Option<u64> {
    let mut l = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for one `rlimit`, which the call fills if it returns 0.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut l) } != 0 {
        return None;
    }
    let most = libc::rlimit { rlim_cur: l.rlim_max, ..l };
    // SAFETY: the call reads one `rlimit`.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &most) } == 0;
    Some(if raised { most.rlim_cur } else { l.rlim_cur })
}

/// Sets how many connections wait at a listening socket for being accepted. More are dropped by the kernel, and their
/// clients try again after 1, 3, 7 seconds. The kernel's own bound is `net.core.somaxconn`. Error: the system refuses.
pub fn set_backlog(listener: &TcpListener, connections: u16) -> io::Result<()> {
    // SAFETY: the descriptor is that of an open socket for the whole call, and no memory is passed.
    if unsafe { libc::listen(listener.as_raw_fd(), i32::from(connections)) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets how many bytes must have arrived before the reader of a TCP socket is woken. The end of the stream and errors
/// wake in any case, and so does a full receive buffer. Error: the system refuses.
pub fn set_receive_low_water(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let mark = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let fd = socket.as_fd();
    // SAFETY: the descriptor is borrowed for the whole call, which reads one `c_int`.
    let r = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const mark).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_the_hard_one() {
        let limit = super::raise_limit().unwrap();
        assert!(limit > 0);
        assert_eq!(super::raise_limit(), Some(limit));
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = text.lines().find(|l| l.starts_with("Max open files")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[3], words[4], "soft and hard");
    }
}
