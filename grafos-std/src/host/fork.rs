//! Whether this process is a fork of the one that opened the driver.
#![cfg_attr(
    unix,
    expect(unsafe_code, reason = "the C library is asked to tell of a fork")
)]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

#[cfg(unix)]
extern "C" fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Starts watching for forks. A host does it before its first driver call.
pub(super) fn watch() {
    WATCH.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler only stores to a static atomic, which is async-signal-safe, and it
        // lives as long as the program. A failure (out of memory) leaves forks unnoticed.
        unsafe {
            libc::pthread_atfork(None, None, Some(note_fork));
        }
    });
}

/// Whether this process was forked after [`watch`]: the driver's threads and mappings are not
/// here, and nothing may call it.
pub(super) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}
