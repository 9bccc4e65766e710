//! One thread per core: sockets and timers by tokio, the io_uring disk engine, mailboxes between threads.
//!
//! Values on a reactor are `Rc`/`RefCell` and never leave it; reactors talk through [`mailbox`]es. Handlers
//! queue their effects and [`turn`] hands them to the kernel once per loop turn. Time comes from [`clock`].
//!
//! | module | contents |
//! | --- | --- |
//! | `clock` | the clocks of a reactor, read once per loop turn |
//! | `descriptors` | the process's limit of open descriptors, and the queue of connections before a listening socket |
//! | `disk` | the disk engine: executes `IoRequest`s of a store core on a file or block device |
//! | `mailbox` | bounded queues between reactors: many senders, and one receiver that takes all queued items at once |
//! | `numa` | NUMA nodes: binds a thread to the processors and the memory of one |
//! | `parent` | notices the end of the parent process, which holds the write end of our standard input |
//! | `runtime` | reactor threads: a tokio current-thread runtime with a `LocalSet` each |
//! | `spin` | staying awake for a short time after work, where the next work is likely to come soon |
//! | `turn` | the end of a loop turn, where queued work is handed to the kernel at once |

pub mod clock;
pub mod descriptors;
pub mod disk;
pub mod mailbox;
pub mod numa;
pub mod parent;
pub mod runtime;
pub mod spin;
pub mod turn;

pub use runtime::{Context, Reactors, Stopper, run_here};
pub use turn::{Turn, TurnHook};
