//! What connected sockets are told.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};

/// No more bytes will be sent; what comes from the other side goes on.
pub fn end_writing(socket: impl AsFd) -> io::Result<()> {
    Ok(shutdown(socket, Shutdown::Write)?)
}

/// Has the kernel ask an idle peer whether it is still there.
pub fn keep_alive(socket: impl AsFd, after: Duration) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_keepidle(socket, after)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}
