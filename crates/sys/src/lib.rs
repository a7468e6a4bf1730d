//! The kernel, made safe.
//!
//! Safe functions over kernel objects: owned descriptors in and out, typed errors, no flags as bare integers where it
//! can be helped. This is the only crate that contains `unsafe`; one module per facility, raw structures in [`uapi`].
//! It speaks of kernel objects only: what they are put together to is decided above.

pub mod cgroup;
pub mod child;
pub mod datagram;
pub mod directory;
pub mod fault;
pub mod fork;
mod guest;
pub mod heap;
pub mod identity;
pub mod inherited;
pub mod landlock;
pub mod loopdev;
pub mod memory_file;
pub mod message;
pub mod mount;
pub mod namespace;
pub mod netlink;
pub mod process;
pub mod redirect;
pub mod shared_memory;
pub mod signals;
pub mod socket;
pub mod splice;
pub mod stream;
pub mod uapi;
pub mod user_namespace;
pub mod workload;
