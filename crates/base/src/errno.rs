//! Linux error numbers that travel in replies, always as negative values.

/// A negative errno as the protocol carries it.
pub type Errno = i32;

macro_rules! errnos {
    ($($name:ident = $n:literal, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: Errno = -$n;)*

        /// The symbolic name of a negative errno, `E?` if unknown.
        #[must_use]
        pub fn name(e: Errno) -> &'static str {
            match e { $($name => stringify!($name),)* _ => "E?" }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted.";
    ENOENT = 2, "No such object, pool or entity.";
    EINTR = 4, "Interrupted.";
    EIO = 5, "Input/output error.";
    ENXIO = 6, "No such address.";
    E2BIG = 7, "Argument too long.";
    ENOEXEC = 8, "The object is not of a kind this can be done to.";
    EBADF = 9, "Bad descriptor.";
    EAGAIN = 11, "Try again.";
    ENOMEM = 12, "Out of memory.";
    EACCES = 13, "Permission denied.";
    EBUSY = 16, "Held by another.";
    EEXIST = 17, "Exists already.";
    EXDEV = 18, "Cross-device.";
    ENODEV = 19, "No such device.";
    ENOTDIR = 20, "Not a directory.";
    EISDIR = 21, "Is a directory.";
    EINVAL = 22, "Invalid argument.";
    EFBIG = 27, "Too large.";
    ENOSPC = 28, "No space left.";
    EROFS = 30, "Read-only.";
    EMLINK = 31, "Linked elsewhere.";
    EDOM = 33, "Out of domain.";
    ERANGE = 34, "Out of range.";
    ENAMETOOLONG = 36, "Name too long.";
    ENOSYS = 38, "Not implemented.";
    ENOTEMPTY = 39, "Not empty.";
    ELOOP = 40, "Too many links.";
    ENOMSG = 42, "Data differs.";
    ENODATA = 61, "No such attribute.";
    ENOLINK = 67, "No such link.";
    EBADMSG = 74, "Stored data is not understood.";
    EOVERFLOW = 75, "Value too large.";
    EILSEQ = 84, "Illegal sequence.";
    ERESTART = 85, "Stale snap context.";
    EUSERS = 87, "Too many users.";
    EMSGSIZE = 90, "Message too long.";
    EOPNOTSUPP = 95, "Not supported.";
    ENOTCONN = 107, "Not connected.";
    EBLOCKLISTED = 108, "Client is blocklisted.";
    ETIMEDOUT = 110, "Timed out.";
    EALREADY = 114, "Already in progress.";
    EINPROGRESS = 115, "In progress.";
    ESTALE = 116, "Stale.";
    EDQUOT = 122, "Quota exceeded.";
    ECANCELED = 125, "Comparison failed or cancelled.";
}
