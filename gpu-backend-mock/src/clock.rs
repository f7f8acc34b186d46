//! A clock that only moves when it is told to.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// A clock under a test's control. Clones share one time.
///
/// It keeps two times that a real machine keeps, too: the wall clock, which can be set to any
/// value, and the monotonic clock, which only ever advances. Code that measures how long something
/// may last must use the second, and this clock shows whether it does.
///
/// ```
/// use std::time::Duration;
///
/// use gpu_backend_mock::ManualClock;
///
/// let clock = ManualClock::new();
/// clock.set_unix_time_secs(1_700_000_000);
/// clock.advance(Duration::from_millis(1_500));
/// assert_eq!(clock.unix_time_secs(), 1_700_000_001);
/// assert_eq!(clock.monotonic_ns(), 1_500_000_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    times: Arc<Mutex<Times>>,
}

#[derive(Debug, Default)]
struct Times {
    unix: Duration,
    monotonic: Duration,
}

impl ManualClock {
    /// Makes a clock that stands at second 0 of the Unix epoch and at monotonic time 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The wall clock, in whole seconds since the Unix epoch.
    #[must_use]
    pub fn unix_time_secs(&self) -> u64 {
        self.times.lock().unix.as_secs()
    }

    /// Sets the wall clock, forward or back. The monotonic clock does not move.
    pub fn set_unix_time_secs(&self, secs: u64) {
        self.times.lock().unix = Duration::from_secs(secs);
    }

    /// The monotonic clock, in nanoseconds since this clock was made; it stops at [`u64::MAX`].
    #[must_use]
    pub fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.times.lock().monotonic.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Lets time pass on both clocks. A clock that reaches its largest value stays there.
    pub fn advance(&self, by: Duration) {
        let mut times = self.times.lock();
        times.unix = times.unix.saturating_add(by);
        times.monotonic = times.monotonic.saturating_add(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_wall_clock_leaves_the_monotonic_clock_alone() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(10));
        clock.set_unix_time_secs(5);
        assert_eq!(clock.unix_time_secs(), 5);
        assert_eq!(clock.monotonic_ns(), 10_000_000_000);
        clock.set_unix_time_secs(u64::MAX);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.unix_time_secs(), u64::MAX);
        assert_eq!(clock.monotonic_ns(), 11_000_000_000);
    }

    #[test]
    fn fractions_of_a_second_add_up() {
        let clock = ManualClock::new();
        for _ in 0..4 {
            clock.advance(Duration::from_millis(250));
        }
        assert_eq!(clock.unix_time_secs(), 1);
    }

    #[test]
    fn clones_share_one_time() {
        let clock = ManualClock::new();
        let other = clock.clone();
        clock.advance(Duration::MAX);
        assert_eq!(other.monotonic_ns(), u64::MAX);
        assert_eq!(other.unix_time_secs(), u64::MAX);
    }
}
