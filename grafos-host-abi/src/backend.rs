//! A GPU API that may or may not be present on this machine.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{DeviceInfo, DriverInfo, GpuContext, Result};

/// A GPU API: CUDA, HIP, Vulkan, a GPU in software, or one that a third party adds.
///
/// A value of this trait is cheap and harmless: making one loads nothing. [`probe`](Self::probe)
/// is the first call that touches a vendor's library, and it reports absence as data.
///
/// # Implementing
///
/// - Every method can be called from any thread, and from several at once.
/// - A missing library, a missing symbol, a driver that is too old and a machine without a device
///   are all [`Probe::Unavailable`]; none of them may panic, abort or print.
/// - What has been validated by the host (see [`GpuContext`]) is trusted here.
pub trait GpuBackend: Send + Sync {
    /// Names the backend: lower case, unique among the backends of one host, stable over releases.
    ///
    /// The names `cuda`, `hip`, `vulkan` and `mock` belong to this project's own backends.
    fn name(&self) -> &'static str;

    /// Tells whether the backend can be used on this machine, and if not, why.
    ///
    /// Loads the vendor's library if it has not been loaded. A second call may answer from what
    /// the first one found out.
    fn probe(&self) -> Probe;

    /// Lists the devices that can be opened, in the driver's order.
    ///
    /// [`DeviceInfo::index`] of the n-th entry is n. The vendor's own visibility variables are
    /// honored by the driver, so an index is meaningful within this process only;
    /// [`DeviceInfo::uuid`] and [`DeviceInfo::pci`] identify the card.
    ///
    /// # Errors
    ///
    /// [`GpuError::Unavailable`](crate::GpuError::Unavailable) with the reason that
    /// [`probe`](Self::probe) gives, or a driver error.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Opens a device: a context of its own that shares nothing with other contexts but the card.
    ///
    /// # Errors
    ///
    /// [`GpuError::InvalidHandle`](crate::GpuError::InvalidHandle) for an index that
    /// [`devices`](Self::devices) does not list, `Unavailable`, or a driver error.
    fn open(&self, device_index: u32, options: &ContextOptions) -> Result<Box<dyn GpuContext>>;
}

/// What [`GpuBackend::probe`] found.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The library is loaded and lists at least one device that can compute.
    Available {
        /// The driver behind the API.
        driver: DriverInfo,
        /// How many devices it lists.
        device_count: u32,
    },
    /// The backend cannot be used here.
    Unavailable {
        /// What was looked for and not found, in one sentence without a final period.
        reason: String,
        /// What a person can do about it, in one sentence without a final period.
        hint: String,
    },
}

/// How a context is to be opened.
#[non_exhaustive]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContextOptions {
    /// Names the context in driver messages and debuggers, where the driver can show names.
    pub label: String,
}
