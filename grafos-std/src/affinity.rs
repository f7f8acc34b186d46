//! Where a lease should be placed: near something, or away from it.

use alloc::string::String;

pub use grafos_host_abi::Vendor;

/// How much a constraint matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strength {
    /// Devices that meet it are chosen first; none is excluded.
    Preferred,
    /// Devices that do not meet it are excluded.
    Required,
}

/// What a constraint refers to.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// The device of a live lease of the same host, by the lease's id.
    Lease(u128),
    /// A device, by its index in the host's list, its UUID, its PCI address or a part of its name.
    Device(String),
    /// Any device of a vendor.
    Vendor(Vendor),
    /// Any device that is attached to a NUMA node.
    NumaNode(u32),
}

/// One placement constraint: a strength, a direction and a target.
///
/// ```
/// use grafos_std::affinity::{Affinity, Strength, Target, Vendor};
/// use grafos_std::gpu::GpuBuilder;
///
/// # grafos_std::host::reset_mock();
/// let first = GpuBuilder::new().acquire()?;
/// let beside = GpuBuilder::new()
///     .affinity(Affinity::toward(Strength::Required, Target::Lease(first.lease_id())))
///     .anti_affinity(Strength::Preferred, Target::Vendor(Vendor::Intel))
///     .acquire()?;
/// assert_eq!(beside.device().name, first.device().name);
/// # Ok::<(), grafos_std::FabricError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Affinity {
    strength: Strength,
    target: Target,
    away: bool,
}

impl Affinity {
    /// Asks to be placed with the target.
    #[must_use]
    pub fn toward(strength: Strength, target: Target) -> Self {
        Self {
            strength,
            target,
            away: false,
        }
    }

    /// Asks to be placed away from the target.
    #[must_use]
    pub fn anti(strength: Strength, target: Target) -> Self {
        Self {
            strength,
            target,
            away: true,
        }
    }

    /// How much it matters.
    #[must_use]
    pub fn strength(&self) -> Strength {
        self.strength
    }

    /// What it refers to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether it asks to be placed away from the target.
    #[must_use]
    pub fn is_anti(&self) -> bool {
        self.away
    }
}
