//! A software GPU of its own for the calling thread.

use alloc::sync::Arc;
use core::time::Duration;
use std::cell::RefCell;

use gpu_backend_mock::{ManualClock, MockBackend};

use super::ambient;
use super::native::Host;

std::thread_local! {
    static MOCK: RefCell<Option<(MockBackend, ManualClock, Host)>> = const { RefCell::new(None) };
}

/// Gives the calling thread a fresh host with one software GPU and a clock that only moves when it
/// is told to. Other threads keep theirs, so tests run in parallel.
///
/// What was made on an earlier host of the thread stays bound to that one. The device is lenient:
/// images and kernels that it does not know are recorded and launched as no-ops (see
/// [`mock_backend`] to give it kernels that compute).
pub fn reset_mock() {
    reset_mock_with(MockBackend::new());
}

/// Gives the calling thread a fresh host on a software GPU that the caller has set up.
pub fn reset_mock_with(backend: MockBackend) {
    let clock = ManualClock::new();
    let host = Host::builder()
        .backend(Arc::new(backend.clone()))
        .software_devices(true)
        .clock(Arc::new(clock.clone()))
        .build();
    ambient::set_current(host.clone());
    let previous = MOCK.with(|mock| mock.borrow_mut().replace((backend, clock, host)));
    // Dropped outside the borrow: its leases may end here.
    drop(previous);
}

fn with_mock<T>(read: impl FnOnce(&MockBackend, &ManualClock, &Host) -> T) -> T {
    let present = MOCK.with(|mock| mock.borrow().clone());
    let (backend, clock, host) = match present {
        Some(mock) => mock,
        None => {
            reset_mock();
            return with_mock(read);
        }
    };
    read(&backend, &clock, &host)
}

/// The software GPU of the calling thread, made if there is none: register kernels, script faults,
/// read what was launched.
#[must_use]
pub fn mock_backend() -> MockBackend {
    with_mock(|backend, _, _| backend.clone())
}

/// Sets the wall clock of the calling thread's software GPU. Deadlines do not move: they follow
/// [`mock_advance_time_secs`] only.
pub fn mock_set_unix_time_secs(unix_secs: u64) {
    with_mock(|_, clock, _| clock.set_unix_time_secs(unix_secs));
}

/// Lets time pass on the calling thread's software GPU, for deadlines and the wall clock alike.
/// Leases that come to their deadline end.
pub fn mock_advance_time_secs(secs: u64) {
    with_mock(|_, clock, host| {
        clock.advance(Duration::from_secs(secs));
        host.end_expired_leases();
    });
}

/// What tests can ask about the calling thread's software GPU.
pub mod test_mock {
    /// How often memory was freed, by call or by drop, since [`reset_mock`](super::reset_mock).
    #[must_use]
    pub fn _gpu_session_mem_free_count() -> u64 {
        super::with_mock(|_, _, host| host.core().mem_frees())
    }

    /// How often a module was unloaded, by call or by drop, since
    /// [`reset_mock`](super::reset_mock).
    #[must_use]
    pub fn _gpu_session_module_unload_count() -> u64 {
        super::with_mock(|_, _, host| host.core().module_unloads())
    }
}
