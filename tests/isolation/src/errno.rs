//! Names of the kernel's error numbers, for people.

macro_rules! names {
    ($($name:ident)+) => {
        /// The symbolic name of an error number, or `E?` for one that no probe has met.
        #[must_use]
        pub const fn name(number: i32) -> &'static str {
            match number {
                $(libc::$name => stringify!($name),)+
                _ => "E?",
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE
    EDEADLK ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW EUSERS ENOTSOCK EPROTOTYPE ENOPROTOOPT
    EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNRESET
    ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTUNREACH ESTALE EDQUOT ENOKEY
}
