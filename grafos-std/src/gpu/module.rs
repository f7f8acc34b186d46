//! Modules and kernels as their owner holds them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use grafos_host_abi::StreamId;

use super::{ImageFormat, KernelArgs, KernelInfo};
use crate::error::Result;
use crate::host::{KernelEntry, LaunchRequest, ModuleEntry, SessionCore};

/// A handle to a loaded module. The module is unloaded when the last clone is dropped.
///
/// Clones stand for the same module, and drops behave as those of
/// [`GpuMemHandle`](super::GpuMemHandle). Kernels that were resolved from the module do not keep
/// it loaded.
#[derive(Debug, Clone)]
pub struct GpuModule {
    guard: Arc<Guard>,
}

#[derive(Debug)]
struct Guard {
    session: Arc<SessionCore>,
    entry: Arc<ModuleEntry>,
}

impl GpuModule {
    pub(super) fn new(session: Arc<SessionCore>, entry: Arc<ModuleEntry>) -> Self {
        Self {
            guard: Arc::new(Guard { session, entry }),
        }
    }

    /// The module's id within its session.
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.guard.entry.id()
    }

    pub(super) fn session(&self) -> &Arc<SessionCore> {
        &self.guard.session
    }

    pub(super) fn entry(&self) -> &Arc<ModuleEntry> {
        &self.guard.entry
    }
}

impl PartialEq for GpuModule {
    /// Whether both stand for the same loaded module.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.guard.entry, &other.guard.entry)
    }
}

impl Eq for GpuModule {}

impl Drop for Guard {
    fn drop(&mut self) {
        self.session.module_unload_on_drop(&self.entry);
    }
}

/// A kernel, found by its name once and launched from then on without a search.
#[derive(Debug, Clone)]
pub struct GpuKernel {
    session: Arc<SessionCore>,
    entry: KernelEntry,
}

impl GpuKernel {
    pub(super) fn new(session: Arc<SessionCore>, entry: KernelEntry) -> Self {
        Self { session, entry }
    }

    /// Its name, parameters and limits.
    #[must_use]
    pub fn info(&self) -> &KernelInfo {
        self.entry.info()
    }

    /// Launches it on the session's default stream. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`GpuSession::launch`](super::GpuSession::launch); `InvalidHandle` when its module has
    /// been unloaded.
    pub fn launch(&self, config: LaunchConfig, args: &KernelArgs) -> Result<()> {
        self.launch_on(StreamId::DEFAULT, config, args)
    }

    pub(super) fn launch_on(
        &self,
        stream: StreamId,
        config: LaunchConfig,
        args: &KernelArgs,
    ) -> Result<()> {
        let (args, arg_sizes) = args.as_parts();
        let LaunchConfig {
            grid,
            block,
            dynamic_shared_bytes,
        } = config;
        let request = LaunchRequest {
            grid,
            block,
            dynamic_shared_bytes,
            args,
            arg_sizes,
        };
        self.session.launch(stream, &self.entry, request)
    }

    pub(super) fn session(&self) -> &Arc<SessionCore> {
        &self.session
    }
}

/// The dimensions of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u32,
}

impl LaunchConfig {
    /// `grid` is in blocks, `block` in threads, both x y z; without dynamic shared memory.
    #[must_use]
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            dynamic_shared_bytes: 0,
        }
    }

    /// As many blocks of `block_threads` threads along x as it takes for at least `threads`
    /// threads; at least one block.
    ///
    /// Counts as a grid beyond every device's limit when it does not fit 32 bits.
    #[must_use]
    pub fn linear(threads: u64, block_threads: u32) -> Self {
        let blocks = threads.div_ceil(u64::from(block_threads.max(1))).max(1);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Self::new([blocks, 1, 1], [block_threads, 1, 1])
    }

    /// Adds shared memory to what the kernel declares, in bytes per block.
    #[must_use]
    pub fn dynamic_shared_bytes(mut self, bytes: u32) -> Self {
        self.dynamic_shared_bytes = bytes;
        self
    }
}

/// One kernel program in several formats; the session loads the one that fits its device.
///
/// ```
/// use grafos_std::gpu::{GpuBuilder, GpuSession, ImageFormat, ModuleBundle};
///
/// # grafos_std::host::reset_mock();
/// # let (spirv, ptx) = (grafos_kernels::by_name("fill").unwrap().spirv, b".version 7.0\n");
/// let bundle = ModuleBundle::new().with_image(spirv).with_image(ptx);
/// assert_eq!(bundle.formats(), [ImageFormat::SpirV, ImageFormat::Ptx]);
/// let lease = GpuBuilder::new().acquire()?;
/// let module = GpuSession::new(&lease).module_load_bundle(&bundle)?;
/// # Ok::<(), grafos_std::FabricError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleBundle {
    images: Vec<Vec<u8>>,
}

impl ModuleBundle {
    /// Starts without images.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image. Among images of one format, earlier ones are tried first.
    #[must_use]
    pub fn with_image(mut self, image: &[u8]) -> Self {
        self.images.push(image.into());
        self
    }

    /// What each image was recognized as, in order.
    #[must_use]
    pub fn formats(&self) -> Vec<ImageFormat> {
        self.images
            .iter()
            .map(|image| ImageFormat::recognize(image))
            .collect()
    }

    /// The images in the order in which a device should try them, with their positions.
    ///
    /// A device lists the formats that it takes, best first; images of other formats are left out.
    pub(super) fn candidates(&self, device_formats: &[ImageFormat]) -> Vec<(usize, &[u8])> {
        let formats = self.formats();
        let mut candidates = Vec::new();
        for wanted in device_formats {
            for (position, format) in formats.iter().enumerate() {
                if format == wanted {
                    candidates.push((position, self.images[position].as_slice()));
                }
            }
        }
        candidates
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.images.iter().map(|image| image.len() as u64).sum()
    }

    /// Says for each image what it is and why it was not loaded.
    pub(super) fn describe(&self, failures: &[(usize, String)]) -> String {
        let mut text = String::from("none of its images fits the device: ");
        for (position, format) in self.formats().into_iter().enumerate() {
            let failure = failures.iter().find(|(failed, _)| *failed == position);
            let reason = failure.map_or("the device does not take this format", |(_, why)| why);
            if position > 0 {
                text.push_str("; ");
            }
            text.push_str(&alloc::format!("image {position} ({format}): {reason}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_grids_cover_all_threads() {
        assert_eq!(
            LaunchConfig::linear(0, 64),
            LaunchConfig::new([1, 1, 1], [64, 1, 1])
        );
        assert_eq!(
            LaunchConfig::linear(64, 64),
            LaunchConfig::new([1, 1, 1], [64, 1, 1])
        );
        assert_eq!(
            LaunchConfig::linear(65, 64),
            LaunchConfig::new([2, 1, 1], [64, 1, 1])
        );
        let most = LaunchConfig::linear(u64::MAX, 1);
        assert_eq!(most, LaunchConfig::new([u32::MAX, 1, 1], [1, 1, 1]));
    }

    #[test]
    fn a_device_tries_its_best_format_first() {
        let bundle = ModuleBundle::new()
            .with_image(b"\x03\x02\x23\x07")
            .with_image(b".version 7.0")
            .with_image(b".version 8.0")
            .with_image(b"CCOB");
        let order = |formats: &[ImageFormat]| {
            bundle
                .candidates(formats)
                .into_iter()
                .map(|(position, _)| position)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(&[ImageFormat::Ptx, ImageFormat::SpirV]), [1, 2, 0]);
        assert_eq!(order(&[ImageFormat::Cubin]), [0usize; 0]);
    }
}
