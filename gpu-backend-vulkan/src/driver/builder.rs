//! How a backend is to be set up.

#![expect(
    unsafe_code,
    reason = "a caller can vouch for a loader's entry point, which is called as it is"
)]

use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::{InstanceOptions, ValidationMessage};
use crate::VulkanBackend;

/// Settings of a [`VulkanBackend`].
#[must_use]
pub struct VulkanBackendBuilder {
    options: InstanceOptions,
    prefer_staging: bool,
}

impl VulkanBackendBuilder {
    /// Starts with the system's loader, without validation.
    pub(crate) fn new() -> Self {
        Self {
            options: InstanceOptions::default(),
            prefer_staging: false,
        }
    }

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
