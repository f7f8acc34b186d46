//! Who may still use an object that is being given back.

use core::sync::atomic::{AtomicU32, Ordering};

const CLOSED: u32 = 1 << 31;

/// Counts the calls that are using an object, and lets the last one out release it once it has
/// been closed.
///
/// A call that came in before the close finishes normally; a call that comes later is turned away.
/// Neither waits for the other, so that freeing never blocks behind a long read of the same buffer.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicU32);

/// What a close leaves to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// Nobody is inside: release now.
    Release,
    /// The last call inside releases on its way out.
    Deferred,
    /// Somebody else has closed it before.
    Already,
}

impl Gate {
    /// Lets a call in, unless the gate is closed.
    pub(super) fn enter(&self) -> bool {
        self.0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                // The count cannot reach the flag: every call inside occupies a thread.
                (state & CLOSED == 0).then_some(state + 1)
            })
            .is_ok()
    }

    /// Lets a call out that was let in. True when the caller must release the object.
    pub(super) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1
    }

    /// Turns later calls away.
    pub(super) fn close(&self) -> Closed {
        match self.0.fetch_or(CLOSED, Ordering::AcqRel) {
            0 => Closed::Release,
            state if state & CLOSED != 0 => Closed::Already,
            _ => Closed::Deferred,
        }
    }

    /// Whether calls are still let in.
    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_object_is_released_by_its_close() {
        let gate = Gate::default();
        assert!(gate.enter());
        assert!(!gate.leave());
        assert_eq!(gate.close(), Closed::Release);
        assert_eq!(gate.close(), Closed::Already);
        assert!(!gate.enter());
        assert!(!gate.is_open());
    }

    #[test]
    fn the_last_call_inside_releases() {
        let gate = Gate::default();
        assert!(gate.enter());
        assert!(gate.enter());
        assert_eq!(gate.close(), Closed::Deferred);
        assert!(!gate.enter());
        assert!(!gate.leave());
        assert!(gate.leave());
    }

    #[test]
    fn exactly_one_thread_releases() {
        use core::sync::atomic::AtomicUsize;
        for _ in 0..200 {
            let gate = Gate::default();
            let released = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..50 {
                            if gate.enter() && gate.leave() {
                                released.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
                scope.spawn(|| {
                    if gate.close() == Closed::Release {
                        released.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
            assert_eq!(released.load(Ordering::Relaxed), 1);
        }
    }
}
