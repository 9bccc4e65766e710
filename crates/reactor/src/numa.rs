//! NUMA nodes: binds a thread, and all threads that it starts afterwards, to the processors and the memory of one.
//!
//! Memory is preferred on the node, not required there: a process whose node is full gets memory of another one instead
//! of being killed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Directory of nodes in sysfs.
const NODES: &str = "devices/system/node";
/// Highest number of a processor that the kernel can have, and one more.
const CPUS_MAX: usize = 8192;
/// Nodes that a kernel can have.
const NODES_MAX: usize = 1024;
/// Policy of `set_mempolicy(2)`: memory of the node while it has some.
const MPOL_PREFERRED: libc::c_int = 1;

/// Error of finding a node or binding to it.
#[derive(Debug, thiserror::Error)]
pub enum NumaError {
    /// There is no such node.
    #[error("there is no NUMA node {node}; this machine has {have}")]
    Missing {
        /// The wanted node.
        node: u32,
        /// The nodes of the machine.
        have: Nodes,
    },
    /// The system does not tell the processors of the node.
    #[error("NUMA node {node}: its list of processors in {path} cannot be read: {source}")]
    Unreadable {
        /// The wanted node.
        node: u32,
        /// The file of its processors.
        path: PathBuf,
        /// Error of reading it, or `InvalidData` for a list that does not parse.
        source: io::Error,
    },
    /// The node has memory only.
    #[error("NUMA node {0} has no processors; expected a node with some")]
    NoCpus(u32),
    /// The process may not use processors of the node.
    #[error("NUMA node {node} has the processors {cpus}, of which this process may use none ({allowed}): {source}")]
    Refused {
        /// The node.
        node: u32,
        /// Processors of the node.
        cpus: Cpus,
        /// Processors that the process may use.
        allowed: Cpus,
        /// Error of the system.
        source: io::Error,
    },
}

/// A set of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(Vec<u64>);

/// Numbers of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(Vec<u32>);

impl Nodes {
    /// Those of a directory of sysfs.
    fn of(dir: &Path) -> Self {
        let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let number_of = |e: std::fs::DirEntry| e.file_name().to_str()?.strip_prefix("node")?.parse().ok();
        let mut have: Vec<u32> = names.filter_map(number_of).collect();
        have.sort_unstable();
        Self(have)
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("none"),
            all => f.write_str(&all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Cpus {
    /// The processors of a list as the kernel writes it: `0-3,8`. `None` for another text.
    #[must_use]
    pub fn parse(list: &str) -> Option<Self> {
        let mut bits = vec![0; CPUS_MAX / 64];
        for part in list.trim().split(',').filter(|p| !p.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= CPUS_MAX {
                return None;
            }
            for n in first..=last {
                bits[n / 64] |= 1 << (n % 64);
            }
        }
        Some(Self(bits))
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        let has = |n: &usize| self.0.get(n / 64).is_some_and(|w| w >> (n % 64) & 1 == 1);
        (0..self.0.len() * 64).filter(has)
    }

    /// True if there is no processor in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// Processors that this thread may run on. Error: the system does not tell.
    pub fn of_this_thread() -> io::Result<Self> {
        let mut bits = vec![0u64; CPUS_MAX / 64];
        // SAFETY: the call fills at most the given number of bytes of a buffer of ours.
        let r = unsafe { libc::sched_getaffinity(0, size_of_val(&bits[..]), bits.as_mut_ptr().cast()) };
        if r == 0 { Ok(Self(bits)) } else { Err(io::Error::last_os_error()) }
    }
}

impl fmt::Display for Cpus {
    /// The set as the kernel writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for n in self.numbers() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == n => *last = n,
                _ => runs.push((n, n)),
            }
        }
        let text = |(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
        f.write_str(&runs.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

/// A node with its processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of the node.
    pub number: u32,
    /// Its processors.
    pub cpus: Cpus,
}

impl Node {
    /// The node of that number, as `sys` (`/sys`) has it. Error: [`NumaError::Missing`], [`NumaError::Unreadable`] or
    /// [`NumaError::NoCpus`].
    pub fn find(sys: &Path, number: u32) -> Result<Self, NumaError> {
        let dir = sys.join(NODES);
        let missing = || NumaError::Missing { node: number, have: Nodes::of(&dir) };
        if number as usize >= NODES_MAX {
            return Err(missing());
        }
        let path = dir.join(format!("node{number}/cpulist"));
        let parse = |list: String| Cpus::parse(&list).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, list));
        let cpus = match std::fs::read_to_string(&path).and_then(parse) {
            Ok(cpus) => cpus,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(source) => return Err(NumaError::Unreadable { node: number, path, source }),
        };
        if cpus.is_empty() { Err(NumaError::NoCpus(number)) } else { Ok(Self { number, cpus }) }
    }

    /// Binds this thread to the processors of the node and makes it prefer the node's memory; threads that it starts
    /// afterwards inherit both. Returns the system's error about memory, if there is one: some containers forbid that
    /// part, and kernels can lack it.
    ///
    /// # Errors
    /// [`NumaError::Refused`] if the thread may run on no processor of the node; then nothing has changed.
    pub fn bind(&self) -> Result<Option<io::Error>, NumaError> {
        let bits = &self.cpus.0[..];
        // SAFETY: the call reads the given number of bytes of a buffer of ours.
        if unsafe { libc::sched_setaffinity(0, size_of_val(bits), bits.as_ptr().cast()) } != 0 {
            let source = io::Error::last_os_error();
            let allowed = Cpus::of_this_thread().unwrap_or(Cpus(Vec::new()));
            return Err(NumaError::Refused { node: self.number, cpus: self.cpus.clone(), allowed, source });
        }
        let mut nodes = [0u64; NODES_MAX / 64];
        if let Some(word) = nodes.get_mut(self.number as usize / 64) {
            *word |= 1 << (self.number % 64);
        }
        // SAFETY: the call reads `NODES_MAX` bits of a buffer of ours that is as large.
        let r = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, nodes.as_ptr(), NODES_MAX) };
        Ok((r != 0).then(io::Error::last_os_error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reactors;
    use std::sync::mpsc;

    /// A sysfs with these nodes.
    fn sys(name: &str, nodes: &[(u32, &str)]) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("belemnite-numa-{}-{name}", std::process::id()));
        for (n, cpus) in nodes {
            let node = dir.join(NODES).join(format!("node{n}"));
            std::fs::create_dir_all(&node).unwrap();
            std::fs::write(node.join("cpulist"), format!("{cpus}\n")).unwrap();
        }
        dir
    }

    /// Policy of this thread's memory, and the nodes of it.
    fn memory() -> (libc::c_int, [u64; NODES_MAX / 64]) {
        let (mut policy, mut nodes) = (0, [0; NODES_MAX / 64]);
        // SAFETY: room for one number and for as many bits as the call is told.
        let r = unsafe {
            libc::syscall(libc::SYS_get_mempolicy, &mut policy as *mut libc::c_int, nodes.as_mut_ptr(), NODES_MAX, 0, 0)
        };
        assert_eq!(r, 0, "{}", io::Error::last_os_error());
        (policy, nodes)
    }

    #[test]
    fn reactors_run_on_the_processors_of_the_node() {
        let before = Cpus::of_this_thread().unwrap();
        // The last processor: a set that differs from all, where there are several.
        let one = before.numbers().last().unwrap();
        let dir = sys("reactors", &[(0, &one.to_string())]);
        let node = Node::find(&dir, 0).unwrap();
        let bound = std::thread::spawn(move || {
            let without_memory = node.bind().unwrap();
            let (tx, rx) = mpsc::channel();
            let r = Reactors::start(2, "n", move |_| {
                let tx = tx.clone();
                async move {
                    // A helper thread of a reactor as well.
                    let helper = std::thread::spawn(Cpus::of_this_thread).join().unwrap();
                    tx.send((Cpus::of_this_thread().unwrap(), helper.unwrap(), memory())).unwrap();
                }
            });
            r.unwrap().join().unwrap();
            (rx.iter().take(2).collect::<Vec<_>>(), without_memory)
        });
        let (seen, without_memory) = bound.join().unwrap();
        assert_eq!(seen.len(), 2);
        for (reactor, helper, (policy, nodes)) in seen {
            assert_eq!((reactor.to_string(), helper.to_string()), (one.to_string(), one.to_string()));
            if without_memory.is_none() {
                assert_eq!((policy, nodes[0]), (MPOL_PREFERRED, 1));
            }
        }
        assert_eq!(Cpus::of_this_thread().unwrap(), before, "other threads stay where they were");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn nodes_that_cannot_be_used_are_refused() {
        let dir = sys("refused", &[(0, "0"), (2, ""), (10, "8000-8001")]);
        let text = |n| Node::find(&dir, n).unwrap_err().to_string();
        assert_eq!(text(1), "there is no NUMA node 1; this machine has 0, 2, 10");
        assert_eq!(text(2), "NUMA node 2 has no processors; expected a node with some");
        assert_eq!(
            Node::find(&dir.join("x"), 0).unwrap_err().to_string(),
            "there is no NUMA node 0; this machine has none"
        );
        std::fs::write(dir.join(NODES).join("node2/cpulist"), "3-1").unwrap();
        let start = format!("NUMA node 2: its list of processors in {}", dir.join(NODES).display());
        assert!(text(2).starts_with(&start) && text(2).ends_with("cannot be read: 3-1"), "{}", text(2));
        let far = Node::find(&dir, 10).unwrap();
        let before = Cpus::of_this_thread().unwrap();
        let refused = far.bind().unwrap_err().to_string();
        let start =
            format!("NUMA node 10 has the processors 8000-8001, of which this process may use none ({before}): ");
        assert!(refused.starts_with(&start), "{refused}");
        assert_eq!(Cpus::of_this_thread().unwrap(), before);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for list in ["", "0", "0-3", "0-3,8,10-11", "63-64", "8191"] {
            assert_eq!(Cpus::parse(list).unwrap().to_string(), list);
        }
        assert_eq!(Cpus::parse("3,1-2\n").unwrap().to_string(), "1-3");
        for bad in ["a", "1-", "-1", "3-1", "8192", "9000", "8193-8194", "0-8192", "0-99999999999"] {
            assert_eq!(Cpus::parse(bad), None, "{bad}");
        }
    }
}
