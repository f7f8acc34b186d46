//! Vulkan compute as a GPU session backend, loaded at run time.
//!
//! [`VulkanBackend`] serves the traits of [`grafos_host_abi`] from any Vulkan 1.2 driver that can
//! compute, has buffer device addresses and timeline semaphores. Building needs no SDK; where the
//! machine has no loader, no driver or no usable device,
//! [`probe`](grafos_host_abi::GpuBackend::probe) says so.
//!
//! Kernels are SPIR-V, in two styles. *Pointer style*: every argument is a member of one block of
//! push constants, buffers are 64-bit addresses. *Descriptor style*: buffer arguments are the
//! storage buffers of set 0 in binding order, scalars are the push-constant members.
//!
//! ```
//! use grafos_host_abi::{GpuBackend, Probe};
//! use gpu_backend_vulkan::VulkanBackend;
//!
//! let backend = VulkanBackend::new();
//! match backend.probe() {
//!     Probe::Available { driver, device_count } => println!("{device_count} devices, {driver}"),
//!     Probe::Unavailable { reason, hint } => println!("{reason}: {hint}"),
//!     other => println!("{other:?}"),
//! }
//! ```

mod context;
mod device;
mod driver;
mod error;
mod launch;
mod memory;
mod module;
mod stream;

use std::fmt;
use std::sync::OnceLock;

use grafos_host_abi::{
    ContextOptions, DeviceInfo, GpuBackend, GpuContext, GpuError, HandleFault, HandleKind, Probe,
    Result,
};
use parking_lot::Mutex;

pub use driver::{ValidationMessage, VulkanBackendBuilder};

use device::Found;
use driver::{Instance, InstanceOptions, LoadFailure};

/// Vulkan, as far as this machine has it.
///
/// Making one is cheap. The loader is loaded, and an instance created, by the first call that
/// needs them; what that call found stays.
pub struct VulkanBackend {
    options: Mutex<InstanceOptions>,
    prefer_staging: bool,
    found: OnceLock<Result<Found, LoadFailure>>,
}

impl VulkanBackend {
    /// Uses the system's loader, without validation.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts with the system's loader, without validation.
    pub fn builder() -> VulkanBackendBuilder {
        VulkanBackendBuilder::new()
    }

    fn found(&self) -> &Result<Found, LoadFailure> {
        self.found.get_or_init(|| {
            let instance = Instance::new(&mut self.options.lock())?;
            Found::new(&instance, self.prefer_staging)
        })
    }

    fn usable(&self) -> Result<&Found> {
        self.found()
            .as_ref()
            .map_err(|failure| error::unavailable(&*failure.reason))
    }
}

impl Default for VulkanBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for VulkanBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanBackend")
            .field("prefer_staging", &self.prefer_staging)
            .field("loaded", &self.found.get().is_some())
            .finish_non_exhaustive()
    }
}

impl GpuBackend for VulkanBackend {
    fn name(&self) -> &'static str {
        error::API
    }

    fn probe(&self) -> Probe {
        match self.found() {
            Ok(found) => Probe::Available {
                driver: found
                    .usable
                    .first()
                    .map(|device| device.info.driver.clone())
                    .unwrap_or_default(),
                device_count: found.usable.len() as u32,
            },
            Err(failure) => Probe::Unavailable {
                reason: failure.reason.clone(),
                hint: failure.hint.clone(),
            },
        }
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let found = self.usable()?;
        Ok(found
            .usable
            .iter()
            .map(|device| device.info.clone())
            .collect())
    }

    fn open(&self, device_index: u32, _options: &ContextOptions) -> Result<Box<dyn GpuContext>> {
        let found = self.usable()?;
        let device = found
            .usable
            .get(device_index as usize)
            .ok_or(GpuError::InvalidHandle(HandleFault {
                kind: HandleKind::Device,
                id: device_index.into(),
            }))?;
        device.open(self.prefer_staging)
    }
}
