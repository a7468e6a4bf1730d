//! The memory that the C library keeps for a process.

/// Has freed memory kept up to this size, and larger pieces asked of the kernel one by one. Without it, a server whose
/// every transaction takes and frees some tens of kilobytes gives them to the kernel and takes them back each time, page by
/// page.
pub fn keep_freed(bytes: u32) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: changes numbers inside the allocator and nothing else.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, bytes);
            libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
