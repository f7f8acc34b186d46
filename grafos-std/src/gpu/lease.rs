//! A lease as its owner holds it.

use alloc::sync::Arc;

use super::{DeviceInfo, GpuExclusivityClass};
use crate::error::Result;
use crate::host::{LeaseCore, LeaseEnd};
use crate::lease::{LeaseInfo, LeaseStatus};

/// The right to use a GPU until a deadline. Dropping it frees it.
///
/// At the deadline new work is refused at once, with nobody calling. What the lease holds is
/// released as soon as the device is idle, and the device's share is offered again after that.
#[derive(Debug)]
pub struct GpuLease {
    core: Arc<LeaseCore>,
}

impl GpuLease {
    pub(crate) fn from_core(core: Arc<LeaseCore>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<LeaseCore> {
        &self.core
    }

    /// The lease at this moment.
    #[must_use]
    pub fn info(&self) -> LeaseInfo {
        self.core.info()
    }

    /// The lease's id: never 0, never used twice.
    #[must_use]
    pub fn lease_id(&self) -> u128 {
        self.core.id()
    }

    /// When the lease was acquired, in unix seconds.
    #[must_use]
    pub fn created_at_unix_secs(&self) -> u64 {
        self.core.created_at_unix_secs()
    }

    /// When the lease ends, in unix seconds by the clock at the time it was acquired.
    #[must_use]
    pub fn expires_at_unix_secs(&self) -> u64 {
        self.core.expires_at_unix_secs()
    }

    /// Whether the lease can be used, by the host's own state.
    #[must_use]
    pub fn status(&self) -> LeaseStatus {
        self.core.status()
    }

    /// Moves the deadline `duration_secs` seconds further from where it is.
    ///
    /// # Errors
    ///
    /// `LeaseExpired` or `LeaseRevoked` when the lease has ended: a late renewal changes nothing.
    pub fn renew(&self, duration_secs: u64) -> Result<()> {
        self.core.renew(duration_secs)
    }

    /// Ends the lease now. Ending it twice is harmless.
    pub fn free(&self) {
        self.core.end(LeaseEnd::Expired);
    }

    /// The device that the lease is on.
    #[must_use]
    pub fn device(&self) -> &DeviceInfo {
        self.core.device()
    }

    /// The name of the device's backend.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.core.backend_name()
    }

    /// How the lease shares its device.
    #[must_use]
    pub fn exclusivity(&self) -> GpuExclusivityClass {
        self.core.class()
    }
}

impl Drop for GpuLease {
    fn drop(&mut self) {
        self.core.observe_dropped();
        self.core.end(LeaseEnd::Expired);
    }
}
