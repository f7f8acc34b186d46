//! Ends leases at their deadline with nobody calling.

use alloc::collections::BTreeSet;
use alloc::sync::{Arc, Weak};
use core::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::clock::Clock;
use super::core::HostCore;

/// A host's thread that ends its leases in time. It is started by the first lease, and parked
/// while no deadline is near.
///
/// A clock that does not follow real time has no reaper: whoever moves it ends what has expired.
pub(super) struct Reaper {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Leases by the deadline that they had when they were put here. A renewal does not touch
    /// this: a lease that comes up early is put back.
    due: BTreeSet<(u64, u128)>,
    has_thread: bool,
    stop: bool,
}

impl Reaper {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            clock,
        }
    }

    /// Has a lease ended at its deadline.
    pub(super) fn watch(&self, host: &Arc<HostCore>, deadline_ns: u64, lease_id: u128) {
        if !self.clock.is_real_time() {
            return;
        }
        let mut state = self.shared.state.lock();
        let is_first = state
            .due
            .first()
            .is_none_or(|first| (deadline_ns, lease_id) < *first);
        state.due.insert((deadline_ns, lease_id));
        if !state.has_thread {
            let shared = Arc::clone(&self.shared);
            let clock = Arc::clone(&self.clock);
            let host = Arc::downgrade(host);
            // Without a thread, leases end when somebody looks at them or needs the room.
            state.has_thread = std::thread::Builder::new()
                .name("grafos-reaper".into())
                .spawn(move || shared.run(&*clock, &host))
                .is_ok();
        } else if is_first {
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// Forgets a lease that was put here with this deadline.
    pub(super) fn unwatch(&self, deadline_ns: u64, lease_id: u128) {
        self.shared
            .state
            .lock()
            .due
            .remove(&(deadline_ns, lease_id));
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        // The thread holds nothing but what it shares with this, so nobody waits for it.
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn run(&self, clock: &dyn Clock, host: &Weak<HostCore>) {
        while let Some(lease_id) = self.next_due(clock) {
            let Some(host) = host.upgrade() else { return };
            host.reap(lease_id);
        }
    }

    /// Waits for the next lease to be due. `None` when the host is gone.
    fn next_due(&self, clock: &dyn Clock) -> Option<u128> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            let Some((deadline_ns, lease_id)) = state.due.first().copied() else {
                self.wake.wait(&mut state);
                continue;
            };
            let now_ns = clock.monotonic_ns();
            if now_ns >= deadline_ns {
                state.due.remove(&(deadline_ns, lease_id));
                return Some(lease_id);
            }
            self.wake
                .wait_for(&mut state, Duration::from_nanos(deadline_ns - now_ns));
        }
    }
}
