//! Asking for a lease.

use alloc::vec::Vec;
use core::fmt;

use super::GpuLease;
use crate::affinity::{Affinity, Strength, Target};
use crate::error::Result;
use crate::host::LeaseRequest;

/// How a lease shares its device with other leases.
///
/// The classes hold among the leases of one [host](crate::host) in this process. A device that two
/// backends see is one device where both report its PCI address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuExclusivityClass {
    /// Beside other shared leases. What a lease gets that asks for nothing.
    Shared,
    /// Beside other leases of this class; while a session of one of them lives and has worked, the
    /// work of the others is refused as busy. Work through handles that outlive their session, or
    /// through the raw host calls, keeps the device until the lease ends.
    SessionExclusive,
    /// Alone on the device for as long as the lease lives.
    DeviceExclusive,
    /// Alone on a device that is a hardware partition (MIG); refused on any other.
    PartitionExclusive,
}

impl GpuExclusivityClass {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::SessionExclusive => "session-exclusive",
            Self::DeviceExclusive => "device-exclusive",
            Self::PartitionExclusive => "partition-exclusive",
        }
    }
}

impl fmt::Display for GpuExclusivityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Asks for a lease on a GPU.
///
/// ```
/// use grafos_std::gpu::{GpuBuilder, GpuExclusivityClass};
///
/// # grafos_std::host::reset_mock();
/// let lease = GpuBuilder::new()
///     .min_vram(1 << 20)
///     .exclusivity(GpuExclusivityClass::DeviceExclusive)
///     .lease_secs(60)
///     .acquire()?;
/// assert_eq!(lease.exclusivity(), GpuExclusivityClass::DeviceExclusive);
/// # Ok::<(), grafos_std::FabricError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct GpuBuilder {
    min_vram: u64,
    max_vram: Option<u64>,
    lease_secs: u32,
    exclusivity: Option<GpuExclusivityClass>,
    affinities: Vec<Affinity>,
}

impl GpuBuilder {
    /// How long a lease lasts when nothing else is said, in seconds.
    pub const DEFAULT_LEASE_SECS: u32 = 300;

    /// Asks for any device, shared, for [`DEFAULT_LEASE_SECS`](Self::DEFAULT_LEASE_SECS) seconds.
    pub fn new() -> Self {
        Self {
            min_vram: 0,
            max_vram: None,
            lease_secs: Self::DEFAULT_LEASE_SECS,
            exclusivity: None,
            affinities: Vec::new(),
        }
    }

    /// Asks for a device with this much memory that no lease has reserved, in bytes, and reserves
    /// it against other leases.
    pub fn min_vram(mut self, bytes: u64) -> Self {
        self.min_vram = bytes;
        self
    }

    /// Limits what the lease can allocate, in bytes. An allocation beyond it is refused.
    pub fn max_vram(mut self, bytes: u64) -> Self {
        self.max_vram = Some(bytes);
        self
    }

    /// Asks for an exclusivity class; [`Shared`](GpuExclusivityClass::Shared) when nothing is
    /// said. A class that cannot be had is refused, never weakened.
    pub fn exclusivity(mut self, class: GpuExclusivityClass) -> Self {
        self.exclusivity = Some(class);
        self
    }

    /// Adds a placement constraint.
    pub fn affinity(mut self, affinity: Affinity) -> Self {
        self.affinities.push(affinity);
        self
    }

    /// Adds a constraint to be placed away from a target.
    pub fn anti_affinity(self, strength: Strength, target: Target) -> Self {
        self.affinity(Affinity::anti(strength, target))
    }

    /// Sets how long the lease lasts, in seconds; 0 counts as 1.
    pub fn lease_secs(mut self, secs: u32) -> Self {
        self.lease_secs = secs.max(1);
        self
    }

    /// Acquires the lease from the calling thread's current host, without waiting for other leases
    /// to end.
    ///
    /// # Errors
    ///
    /// - `Disconnected` when no device can be used, with what each backend says;
    /// - `CapacityExceeded` when no device has the memory unreserved;
    /// - `DeviceBusy` when another lease excludes this one, naming it;
    /// - `DeviceLost` when the device can be used again only by a new process;
    /// - `Unsupported` when no device can meet the class or a required constraint;
    /// - `InvalidArgument` for a `max_vram` below `min_vram`, or a wrong environment variable.
    pub fn acquire(self) -> Result<GpuLease> {
        #[cfg(not(target_arch = "wasm32"))]
        return self.acquire_on(&crate::host::Host::current()?);
        #[cfg(target_arch = "wasm32")]
        return crate::host::LeaseCore::acquire(&self.request()).map(GpuLease::from_core);
    }

    /// Acquires the lease from a host.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn acquire_on(self, host: &crate::host::Host) -> Result<GpuLease> {
        host.core()
            .acquire(&self.request())
            .map(GpuLease::from_core)
    }

    fn request(self) -> LeaseRequest {
        LeaseRequest {
            min_vram: self.min_vram,
            max_vram: self.max_vram,
            lease_secs: self.lease_secs,
            class: self.exclusivity.unwrap_or(GpuExclusivityClass::Shared),
            affinities: self.affinities,
            device_index: None,
        }
    }
}

impl Default for GpuBuilder {
    fn default() -> Self {
        Self::new()
    }
}
