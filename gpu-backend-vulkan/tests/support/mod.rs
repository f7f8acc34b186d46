//! What the test programs share: a backend on whatever Vulkan driver the caller has chosen.
//!
//! `VK_ICD_FILENAMES` chooses the driver. `GRAFOS_VULKAN_VALIDATION=1` has the Khronos validation
//! layer watch, and any message fails. `GRAFOS_VULKAN_STAGING=1` moves bytes as on a card with
//! memory of its own.

#![allow(dead_code, reason = "each test program uses a part of what they share")]

pub(crate) mod answers;
pub(crate) mod interposer;

use std::sync::Arc;

use gpu_backend_vulkan::{VulkanBackend, VulkanBackendBuilder};
use parking_lot::Mutex;

/// Whether an environment variable is `1`.
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

/// What the validation layer has said.
#[derive(Clone, Default)]
pub(crate) struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    /// All messages so far.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Makes a backend's validation report here.
    pub(crate) fn watch(&self, builder: VulkanBackendBuilder) -> VulkanBackendBuilder {
        let messages = Arc::clone(&self.0);
        builder.validation(move |message| {
            messages
                .lock()
                .push(format!("{}: {}", message.id, message.text));
        })
    }
}

/// A backend as the environment asks for it, through the interposer where there is a loader.
pub(crate) fn builder(messages: &Messages) -> VulkanBackendBuilder {
    let mut builder = VulkanBackend::builder().prefer_staging(is_set("GRAFOS_VULKAN_STAGING"));
    // Without a loader, the backend says so itself.
    if let Ok(entry_point) = interposer::entry_point() {
        builder = interposer::interposed(builder, entry_point);
    }
    if is_set("GRAFOS_VULKAN_VALIDATION") {
        messages.watch(builder)
    } else {
        builder
    }
}

/// A short name for a driver: the one that the suite's closing line prints.
pub(crate) fn target_name(driver: &str) -> &'static str {
    let driver = driver.to_lowercase();
    if driver.contains("llvmpipe") {
        "lavapipe"
    } else if driver.contains("swiftshader") {
        "swiftshader"
    } else {
        "vulkan-gpu"
    }
}
