//! A new process that lives in the memory of its parent until it becomes another program.
//!
//! Copying an address space to throw the copy away at `exec` costs more than the rest of a clone. A guest has the memory
//! of the process that made it, its own stack in it, and everything else (descriptors, directory, identity) for itself.
//! Both run at the same time, so the guest's code must make system calls on what it is given and nothing else: no
//! allocation, no lock, nothing that belongs to a thread. Even `errno` does, hence [`call`].
//!
//! What the guest reads must stay until it has left. The kernel says so by clearing a word at the moment in which the
//! process lets go of the memory, at `exec` and at its end alike; whoever forgets to wait leaks, and no more.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::process::DumpableBehavior;

use crate::uapi;

/// What a guest was made with, and whether it still uses it.
#[derive(Debug)]
pub(crate) struct Guest<T> {
    /// `None` only while being dropped.
    home: Option<Box<Home<T>>>,
}

#[derive(Debug)]
struct Home<T> {
    /// Not zero until the kernel says that the guest is gone.
    occupied: AtomicU32,
    run: fn(&T) -> !,
    given: T,
    stack: Stack,
}

/// Enough for a few calls deep without large buffers, also in builds that do not optimise.
const STACK_SIZE: usize = 64 * 1024;
const STACK_ALIGNMENT: usize = 16;

/// Not initialised and never read by us.
#[derive(Debug)]
struct Stack(NonNull<u8>);

/// The last one that was done with, for the next guest: fresh pages cost more than many a system call.
static SPARE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Clones the calling process as `arguments` say and runs `run` in the new one. Gives its number.
///
/// `run` makes system calls by [`call`] and nothing else (see above). The caller sees to it that no handler of a signal
/// runs in the new process, on memory that is not its own: it has none, or asks for `CLONE_CLEAR_SIGHAND`.
pub(crate) fn spawn<T>(
    mut arguments: uapi::CloneArgs,
    given: T,
    run: fn(&T) -> !,
) -> io::Result<(i32, Guest<T>)> {
    let home = Box::new(Home { occupied: AtomicU32::new(1), run, given, stack: Stack::new() });
    // SAFETY: the structure and `home` are valid; `home` is freed only after the kernel has cleared the word in it.
    let result = unsafe { clone(&mut arguments, &home) };
    let guest = Guest { home: Some(home) };
    match result {
        Ok(pid) => Ok((pid, guest)),
        Err(errno) => {
            guest.release();
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// Puts back whether others of this user may look into this process: a guest who changes who it is changes that for all
/// who share the memory.
pub(crate) fn see_off(dumpable: DumpableBehavior) {
    if rustix::process::dumpable_behavior() != Ok(dumpable) {
        let _ = rustix::process::set_dumpable_behavior(dumpable);
    }
}

impl<T> Guest<T> {
    pub(crate) fn given(&self) -> &T {
        &self.home().given
    }

    /// Waits until the guest has become another program or has ended.
    pub(crate) fn wait(&self) {
        loop {
            let occupied = self.home().occupied.load(Ordering::Acquire);
            if occupied == 0 {
                return;
            }
            let word = self.home().occupied.as_ptr() as usize;
            // Returns at once if the word has changed meanwhile, so nothing is missed; errors lead to another look.
            let _ =
                call(libc::SYS_futex, [word, libc::FUTEX_WAIT as usize, occupied as usize, 0, 0]);
        }
    }

    /// Notes that the guest is known to have left, where the kernel may not say so by itself.
    pub(crate) fn release(&self) {
        self.home().occupied.store(0, Ordering::Relaxed);
    }

    fn home(&self) -> &Home<T> {
        self.home.as_ref().expect("taken only by drop")
    }
}

impl<T> Drop for Guest<T> {
    fn drop(&mut self) {
        if let Some(home) = self.home.take()
            && home.occupied.load(Ordering::Acquire) != 0
        {
            Box::leak(home);
        }
    }
}

impl Stack {
    const LAYOUT: Layout = match Layout::from_size_align(STACK_SIZE, STACK_ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two and a small number"),
    };

    fn new() -> Self {
        if let Some(spare) = NonNull::new(SPARE.swap(ptr::null_mut(), Ordering::Acquire)) {
            return Self(spare);
        }
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { std::alloc::alloc(Self::LAYOUT) };
        NonNull::new(memory).map_or_else(|| handle_alloc_error(Self::LAYOUT), Self)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let none = ptr::null_mut();
        if SPARE
            .compare_exchange(none, self.0.as_ptr(), Ordering::Release, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
        // SAFETY: allocated with the same layout, and freed here only, where it has not become the spare.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), Self::LAYOUT) }
    }
}

/// # Safety
/// `home` stays where it is, unchanged and unfreed, until its word is zero.
#[cfg(target_arch = "x86_64")]
unsafe fn clone<T>(arguments: &mut uapi::CloneArgs, home: &Home<T>) -> Result<i32, i32> {
    arguments.flags |= (libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID) as u64;
    arguments.child_tid = home.occupied.as_ptr() as u64;
    arguments.stack = home.stack.0.as_ptr() as u64;
    arguments.stack_size = STACK_SIZE as u64;
    let mut result = libc::SYS_clone3 as isize;
    // SAFETY: in the caller's process this is a system call that changes nothing but its result, the pidfd that the
    // arguments may point to, and two registers. The new process returns from it on the top of a stack of its own,
    // aligned as calls want it, and goes on in `enter`, which never comes back.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") result,
            in("rdi") ptr::from_mut(arguments),
            in("rsi") size_of::<uapi::CloneArgs>(),
            in("r12") ptr::from_ref(home),
            in("r13") enter::<T> as extern "C" fn(&Home<T>) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if result < 0 { Err(-result as i32) } else { Ok(result as i32) }
}

/// Elsewhere the new process gets a copy, and the original is free at once.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone<T>(arguments: &mut uapi::CloneArgs, home: &Home<T>) -> Result<i32, i32> {
    let arguments = [ptr::from_mut(arguments) as usize, size_of::<uapi::CloneArgs>(), 0, 0, 0];
    let pid = call(libc::SYS_clone3, arguments)?;
    if pid == 0 {
        enter(home);
    }
    home.occupied.store(0, Ordering::Relaxed);
    Ok(pid as i32)
}

extern "C" fn enter<T>(home: &Home<T>) -> ! {
    (home.run)(&home.given)
}

/// A system call that leaves `errno` alone.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call(number: libc::c_long, [a, b, c, d, e]: [usize; 5]) -> Result<usize, i32> {
    let mut result = number as isize;
    // SAFETY: each caller passes pointers to live, initialised values of the layout that this system call reads or
    // writes, with their true sizes; the kernel does not keep them past the call.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") 0usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result as usize) }
}

/// A system call.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn call(number: libc::c_long, [a, b, c, d, e]: [usize; 5]) -> Result<usize, i32> {
    // SAFETY: each caller passes pointers to live, initialised values of the layout that this system call reads or
    // writes, with their true sizes; the kernel does not keep them past the call.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, 0usize) };
    if result < 0 {
        // SAFETY: reads this thread's errno, which the failed call has just set.
        Err(unsafe { *libc::__errno_location() })
    } else {
        Ok(result as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_sees_what_it_is_given_and_leaves() {
        fn run(&(code, _): &(usize, Vec<u8>)) -> ! {
            loop {
                let _ = call(libc::SYS_exit_group, [code, 0, 0, 0, 0]);
            }
        }
        let arguments =
            uapi::CloneArgs { exit_signal: libc::SIGCHLD as u64, ..uapi::CloneArgs::default() };
        let (pid, guest) = spawn(arguments, (7, vec![1, 2, 3]), run).unwrap();
        guest.wait();
        assert_eq!(guest.given().1, [1, 2, 3]);
        let pid = rustix::process::Pid::from_raw(pid);
        let (_, status) =
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(7));
    }

    #[test]
    fn a_failed_clone_frees_what_was_given() {
        let given = std::sync::Arc::new(());
        let arguments = uapi::CloneArgs {
            flags: libc::CLONE_THREAD as u64, // refused without its companions
            ..uapi::CloneArgs::default()
        };
        fn never(_: &std::sync::Arc<()>) -> ! {
            unreachable!("the kernel refused")
        }
        assert!(spawn(arguments, given.clone(), never).is_err());
        assert_eq!(std::sync::Arc::strong_count(&given), 1);
    }

    #[test]
    fn errors_are_told_apart_from_results() {
        assert_eq!(call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0]), Err(libc::EBADF));
        assert!(call(libc::SYS_getpid, [0; 5]).is_ok_and(|pid| pid > 0));
    }
}
