//! Where a host takes its time from.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock for deadlines and a wall clock for display.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment. Never goes back, whatever happens to the wall clock.
    fn monotonic_ns(&self) -> u64;

    /// Seconds since 1970-01-01 00:00:00 UTC, as the system shows them.
    fn unix_time_secs(&self) -> u64;

    /// Whether monotonic time passes by itself, as fast as real time.
    ///
    /// Where it does not, a host cannot know when a deadline comes: whoever moves the clock calls
    /// [`Host::end_expired_leases`](super::Host::end_expired_leases).
    fn is_real_time(&self) -> bool;
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Counts monotonic time from now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else uses"
    )]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic_ns(&self) -> u64 {
        // 2^64 nanoseconds are 584 years.
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else uses"
    )]
    fn unix_time_secs(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |elapsed| elapsed.as_secs())
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

#[cfg(feature = "mock")]
impl Clock for gpu_backend_mock::ManualClock {
    fn monotonic_ns(&self) -> u64 {
        gpu_backend_mock::ManualClock::monotonic_ns(self)
    }

    fn unix_time_secs(&self) -> u64 {
        gpu_backend_mock::ManualClock::unix_time_secs(self)
    }

    fn is_real_time(&self) -> bool {
        false
    }
}
