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
use std::path::PathBuf;
use std::sync::OnceLock;

use grafos_host_abi::{
    ContextOptions, DeviceInfo, GpuBackend, GpuContext, GpuError, HandleFault, HandleKind, Probe,
    Result,
};
use parking_lot::Mutex;

pub use driver::ValidationMessage;

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
        VulkanBackendBuilder {
            options: InstanceOptions::default(),
            prefer_staging: false,
        }
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

/// Settings of a [`VulkanBackend`].
#[must_use]
pub struct VulkanBackendBuilder {
    options: InstanceOptions,
    prefer_staging: bool,
}

impl VulkanBackendBuilder {
    /// Loads this library instead of the system's Vulkan loader.
    ///
    /// A name without a slash is searched for as the system does.
    pub fn library_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.library_path = Some(path.into());
        self
    }

    /// Uses a Vulkan loader that the application has loaded or linked itself, through its
    /// `vkGetInstanceProcAddr`. Takes precedence over [`library_path`](Self::library_path).
    ///
    /// # Safety
    ///
    /// The function behaves as the Vulkan specification says, and stays loaded as long as the
    /// backend or any context of it lives.
    #[expect(
        unsafe_code,
        reason = "a wrong function would be called; the caller vouches for it"
    )]
    pub unsafe fn entry_point(mut self, function: ash::vk::PFN_vkGetInstanceProcAddr) -> Self {
        self.options.entry_point = Some(function);
        self
    }

    /// Enables the Khronos validation layer, with synchronization validation, and has `receive`
    /// called with each warning and error, from any thread.
    ///
    /// Without the layer the backend is unavailable, rather than unwatched.
    pub fn validation(
        mut self,
        receive: impl Fn(ValidationMessage) + Send + Sync + 'static,
    ) -> Self {
        self.options.validation = Some(Box::new(receive));
        self
    }

    /// Moves bytes through staging memory even where buffers can be mapped, as on a card with
    /// memory of its own. For tests and measurements on devices that share the host's memory.
    pub fn prefer_staging(mut self, prefer: bool) -> Self {
        self.prefer_staging = prefer;
        self
    }

    /// Makes the backend. Loads nothing.
    #[must_use]
    pub fn build(self) -> VulkanBackend {
        VulkanBackend {
            options: Mutex::new(self.options),
            prefer_staging: self.prefer_staging,
            found: OnceLock::new(),
        }
    }
}

impl fmt::Debug for VulkanBackendBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanBackendBuilder")
            .field("library_path", &self.options.library_path)
            .field("validation", &self.options.validation.is_some())
            .field("prefer_staging", &self.prefer_staging)
            .finish()
    }
}
