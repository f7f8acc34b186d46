//! Keeps this crate's own threads out of the driver while the process ends.
//!
//! Libraries tear their state down when the process exits, with threads still running. A thread of
//! ours that called into a layer after that would crash a program that has done nothing wrong.

#![expect(unsafe_code, reason = "the C library is asked to call back at exit")]

use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

/// Whether the process is ending. Held for reading by threads that are in the driver.
static EXITING: RwLock<bool> = RwLock::new(false);

/// How long the exit waits for threads that are in the driver. They stay there for a few
/// milliseconds at most, unless the driver hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Holds up the process's exit while a thread of ours is in the driver.
pub(crate) struct ExitGuard {
    _exiting: RwLockReadGuard<'static, bool>,
}

impl ExitGuard {
    /// `None` when the process is ending: the driver must not be called any more.
    pub(crate) fn new() -> Option<Self> {
        let exiting = EXITING.read();
        if *exiting {
            None
        } else {
            Some(Self { _exiting: exiting })
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
    if let Some(mut exiting) = EXITING.try_write_for(PATIENCE) {
        *exiting = true;
    }
}
