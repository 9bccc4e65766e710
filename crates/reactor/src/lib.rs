//! One thread per core: sockets, timers, the io_uring disk engine, mailboxes
