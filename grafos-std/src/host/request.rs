//! What a lease asks for, natively and as a guest.

use alloc::vec::Vec;

use crate::affinity::Affinity;
use crate::gpu::GpuExclusivityClass;

/// What a lease asks for.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRequest {
    /// Memory to keep for the lease, in bytes.
    pub(crate) min_vram: u64,
    /// The most that the lease may allocate, in bytes.
    pub(crate) max_vram: Option<u64>,
    /// Seconds from now to the deadline.
    pub(crate) lease_secs: u32,
    /// How the lease shares its card.
    pub(crate) class: GpuExclusivityClass,
    /// Where it should be placed.
    pub(crate) affinities: Vec<Affinity>,
    /// One device only, by its index in the host's list.
    pub(crate) device_index: Option<u32>,
}
