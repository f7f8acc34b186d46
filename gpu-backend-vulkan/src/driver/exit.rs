//! Keeps threads out of the driver while the process ends.
//!
//! Libraries tear their state down when the process exits, with threads still running. A thread
//! that is inside a driver or layer then, or calls it after that, would crash a program that has
//! done nothing wrong. So threads that wait, submit or destroy hold the exit up for as long as they
//! are in the driver, and once the process is ending they stay out of it.

#![expect(
    unsafe_code,
    reason = "the C library is asked to call back at exit, and which thread it is"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

/// Whether the process is ending. Held for reading by threads that are in the driver.
static EXITING: RwLock<bool> = RwLock::new(false);

/// The thread that runs the process's exit, or 0. It may call the driver: what that tears down, it
/// tears down afterwards.
static EXITING_THREAD: AtomicUsize = AtomicUsize::new(0);

/// How long the exit waits for threads that are in the driver. They stay there for a tenth of a
/// second at most, unless the driver hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Holds up the process's exit while a thread is in the driver.
pub(crate) struct ExitGuard {
    /// Nothing on the thread that runs the exit.
    _exiting: Option<RwLockReadGuard<'static, bool>>,
}

impl ExitGuard {
    /// `None` when the process is ending: the driver must not be called any more.
    pub(crate) fn new() -> Option<Self> {
        if EXITING_THREAD.load(Ordering::Acquire) == this_thread() {
            return Some(Self { _exiting: None });
        }
        // Recursive, as a thread that has one guard must get another while the exit waits.
        let exiting = EXITING.read_recursive();
        (!*exiting).then(|| Self {
            _exiting: Some(exiting),
        })
    }

    /// Never returns when the process is ending on another thread.
    pub(crate) fn enter() -> Self {
        match Self::new() {
            Some(guard) => guard,
            None => loop {
                thread::park();
            },
        }
    }
}

/// Asks to be told of the process's exit before the libraries that are loaded by now.
///
/// Callbacks run in the reverse order of their registration, so this is to be called after each
/// load of a driver or layer.
pub(super) fn watch() {
    // SAFETY: the callback is a function of this program, and takes and gives nothing. Without
    // memory for it the process exits without the callback, as it did before.
    let _ = unsafe { libc::atexit(note_exit) };
}

extern "C" fn note_exit() {
    EXITING_THREAD.store(this_thread(), Ordering::Release);
    if let Some(mut exiting) = EXITING.try_write_for(PATIENCE) {
        *exiting = true;
    }
}

/// A number that tells live threads apart, also while a thread ends.
#[cfg(unix)]
fn this_thread() -> usize {
    // SAFETY: the call has no conditions.
    let id = unsafe { libc::pthread_self() };
    id as usize
}

/// The same number for all threads: none of them is kept out.
#[cfg(not(unix))]
fn this_thread() -> usize {
    usize::MAX
}
