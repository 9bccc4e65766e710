//! One thread per core: sockets and timers by tokio, the io_uring disk engine, mailboxes between threads.
//!
//! Values on a reactor are `Rc`/`RefCell` and never leave it; reactors talk through [`mailbox`]es. Handlers
//! queue their effects and [`turn`] hands them to the kernel once per loop turn. Time comes from [`clock`].

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
