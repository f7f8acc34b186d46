//! What a backend tells the suite about itself.

use core::time::Duration;
use std::format;
use std::prelude::v1::*;

use crate::{GpuBackend, GpuContext, Probe};

/// A backend on a device, ready to be tested.
///
/// # Images
///
/// [`image`](Self::image) is asked for modules by logical name. A module has a kernel of its own
/// name. The kernels are those of the `grafos-kernels` crate, with its argument orders, and
/// two that not every API can express:
///
/// | name | arguments | computes |
/// |---|---|---|
/// | `dynamic_shared_reverse` | address of `u32` data | each block reverses its own elements, one for each thread on axis x, through dynamic shared memory of 4 bytes for each thread |
/// | `module_globals` | address of a `u32` target | `target[i] = table[i]`, for `i` on axis x below 8, from the module's global `table` of 8 `u32`, zero at first |
pub trait Fixture: Send + Sync {
    /// Names what is tested, as the closing line prints it: `mock`, `lavapipe`, ...
    fn target(&self) -> &str;

    /// The backend under test.
    fn backend(&self) -> &dyn GpuBackend;

    /// Chooses the device to test; the first one by default.
    ///
    /// # Errors
    ///
    /// Why there is no device, in one sentence: the suite is then skipped.
    fn device_index(&self) -> Result<u32, String> {
        let name = self.backend().name();
        match self.backend().probe() {
            Probe::Available {
                device_count: 0, ..
            } => Err(format!("{name}: no device")),
            Probe::Available { .. } => Ok(0),
            Probe::Unavailable { reason, hint } => Err(format!("{name}: {reason}; {hint}")),
        }
    }

    /// Gives the image of a module, or `None` where the target has none of that name.
    fn image(&self, name: &str) -> Option<Vec<u8>>;

    /// Lists the kernels that a module has, sorted: the one of its own name, by default.
    fn kernel_names(&self, module: &str) -> Vec<String> {
        std::vec![module.into()]
    }

    /// Gives images that the backend must refuse as malformed, each with a description.
    ///
    /// What is malformed for every backend (an empty image, noise, a cut-off image) is sent by
    /// the suite itself.
    fn malformed_images(&self) -> Vec<(String, Vec<u8>)>;

    /// Lists cases that the target cannot pass by its nature, with the reason. They are not run.
    fn unsupported(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    /// Lists cases that fail by a known fault outside this project, with the reason. They are
    /// run, and it is a failure when one passes.
    fn expected_failures(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    /// Whether cases may take gigabytes of memory: by default where the environment variable
    /// `GRAFOS_HEAVY` is `1`.
    fn heavy(&self) -> bool {
        std::env::var("GRAFOS_HEAVY").is_ok_and(|value| value == "1")
    }

    /// Makes the device of a context be lost while the suite runs on, and tells whether it could.
    /// What is lost stays lost for that context alone; contexts opened later work.
    fn lose_device(&self, context: &dyn GpuContext) -> bool {
        let _ = context;
        false
    }

    /// How long one case may take before it counts as hanging.
    fn case_limit(&self) -> Duration {
        Duration::from_secs(300)
    }
}
