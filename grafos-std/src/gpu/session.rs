//! A session as its owner holds it.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use grafos_host_abi::StreamId;

use super::{
    FillPattern, GpuEvent, GpuKernel, GpuLease, GpuMemHandle, GpuModule, GpuStream, ImageFormat,
    KernelArgs, MemoryInfo, ModuleBundle, NativeHandle,
};
use crate::error::{FabricError, HandleKind, ModuleFault, Result};
use crate::host::{LaunchRequest, LeaseCore, SessionCore};

/// Work on a lease's device: memory, modules, launches, waits.
///
/// Making a session is free; the device is opened by the first call that needs it, once per lease.
/// Several sessions on one lease share everything. When the lease ends, every call answers
/// `LeaseExpired` or `LeaseRevoked`.
///
/// ```
/// use grafos_std::gpu::{GpuBuilder, GpuSession, KernelArgs};
///
/// # grafos_std::host::reset_mock();
/// # grafos_kernels::host::register(&grafos_std::host::mock_backend());
/// # let image = grafos_kernels::by_name("fill").unwrap().spirv;
/// let lease = GpuBuilder::new().min_vram(1 << 20).acquire()?;
/// let session = GpuSession::new(&lease);
/// let buffer = session.mem_alloc(4 * 100)?;
/// let module = session.module_load(image)?;
/// let args = KernelArgs::new().push_buffer(&buffer).push_u32(7).push_u32(100);
/// session.launch_with_args(&module, "fill", [2, 1, 1], [64, 1, 1], args)?;
/// session.sync()?;
/// assert_eq!(session.mem_read(&buffer, 0, 4)?, 7u32.to_le_bytes());
/// # Ok::<(), grafos_std::FabricError>(())
/// ```
#[derive(Debug)]
pub struct GpuSession {
    lease: Arc<LeaseCore>,
}

impl GpuSession {
    /// Makes a session on a lease. Never fails: what is wrong with the lease or its device is told
    /// by the first call.
    #[must_use]
    pub fn new(lease: &GpuLease) -> Self {
        let lease = Arc::clone(lease.core());
        lease.begin_session();
        Self { lease }
    }

    /// The id of the lease, which is the session's id as well.
    #[must_use]
    pub fn lease_id(&self) -> u128 {
        self.lease.id()
    }

    // Memory.

    /// Allocates device memory. Its content is undefined.
    ///
    /// Zero bytes give a valid handle, of which the device knows nothing. When memory is short,
    /// work that may still hold freed memory is waited for, at most 10 seconds.
    ///
    /// # Errors
    ///
    /// `CapacityExceeded` when the lease's quota, the device's unreserved memory, its largest
    /// single allocation or the driver's memory does not suffice, with the numbers.
    pub fn mem_alloc(&self, size_bytes: u64) -> Result<GpuMemHandle> {
        let session = self.lease.session()?;
        let entry = session.mem_alloc(size_bytes)?;
        Ok(GpuMemHandle::new(session, entry))
    }

    /// Writes bytes to device memory at an offset. `data` can be reused when the call returns.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` when the range is not inside the buffer; `InvalidHandle` for a buffer that
    /// was freed or belongs to another lease.
    pub fn mem_write(&self, buffer: &GpuMemHandle, offset_bytes: u64, data: &[u8]) -> Result<()> {
        write_all(
            &self.lease.session()?,
            StreamId::DEFAULT,
            buffer,
            offset_bytes,
            data,
        )
    }

    /// Reads device memory at an offset, after all earlier work of the session.
    ///
    /// # Errors
    ///
    /// As [`mem_write`](Self::mem_write), and errors of earlier work.
    pub fn mem_read(
        &self,
        buffer: &GpuMemHandle,
        offset_bytes: u64,
        size_bytes: u32,
    ) -> Result<Vec<u8>> {
        let session = self.session_of(buffer)?;
        session.check_read(buffer.entry(), offset_bytes, size_bytes.into())?;
        let mut out = alloc::vec![0; size_bytes as usize];
        session.mem_read(StreamId::DEFAULT, buffer.entry(), offset_bytes, &mut out)?;
        Ok(out)
    }

    /// Reads device memory into a slice, after all earlier work of the session.
    ///
    /// # Errors
    ///
    /// As [`mem_read`](Self::mem_read).
    pub fn mem_read_into(
        &self,
        buffer: &GpuMemHandle,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let session = self.session_of(buffer)?;
        session.mem_read(StreamId::DEFAULT, buffer.entry(), offset_bytes, out)
    }

    /// Copies between two buffers at their offsets, or within one. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`mem_write`](Self::mem_write); `InvalidArgument` for ranges of one buffer that overlap.
    pub fn mem_copy(
        &self,
        dst: (&GpuMemHandle, u64),
        src: (&GpuMemHandle, u64),
        len_bytes: u64,
    ) -> Result<()> {
        let session = self.session_of(dst.0)?;
        ensure_same(&session, src.0.session(), HandleKind::Buffer, src.0.raw())?;
        let dst = (dst.0.entry(), dst.1);
        let src = (src.0.entry(), src.1);
        session.mem_copy(StreamId::DEFAULT, dst, src, len_bytes)
    }

    /// Fills a part of a buffer with a repeated pattern. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`mem_write`](Self::mem_write); `InvalidArgument` when offset or length is not a
    /// multiple of the pattern's length.
    pub fn mem_fill(
        &self,
        buffer: &GpuMemHandle,
        offset_bytes: u64,
        len_bytes: u64,
        pattern: FillPattern,
    ) -> Result<()> {
        let session = self.session_of(buffer)?;
        session.mem_fill(
            StreamId::DEFAULT,
            buffer.entry(),
            offset_bytes,
            len_bytes,
            pattern,
        )
    }

    /// Frees device memory now. Work that has been launched still has it.
    ///
    /// The handle is used up, also when the call fails; other clones of it are invalid afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` when it was freed before or belongs to another lease.
    pub fn mem_free(&self, buffer: GpuMemHandle) -> Result<()> {
        self.session_of(&buffer)?.mem_free(buffer.entry())
    }

    /// Reports memory as this lease can use it: quota and other leases' reservations are off.
    ///
    /// # Errors
    ///
    /// Driver errors.
    pub fn mem_info(&self) -> Result<MemoryInfo> {
        self.lease.session()?.memory_info()
    }

    /// Returns memory that is cached but unused to the driver, and tells how many bytes that was.
    ///
    /// # Errors
    ///
    /// Driver errors.
    pub fn mem_trim(&self) -> Result<u64> {
        self.lease.session()?.trim()
    }

    // Modules and kernels.

    /// Loads a module from an image: PTX, cubin, AMD code object or SPIR-V, as the device takes.
    ///
    /// # Errors
    ///
    /// `InvalidModule` for bytes that are malformed or of a format that the device does not take;
    /// `Unsupported` for an image that needs what the device lacks.
    pub fn module_load(&self, image: &[u8]) -> Result<GpuModule> {
        let session = self.lease.session()?;
        let entry = session.module_load(image)?;
        Ok(GpuModule::new(session, entry))
    }

    /// Loads the image of a bundle that fits the device, best format first.
    ///
    /// # Errors
    ///
    /// `InvalidModule` listing each image and why it was not loaded; driver errors.
    pub fn module_load_bundle(&self, bundle: &ModuleBundle) -> Result<GpuModule> {
        let session = self.lease.session()?;
        let mut failures = Vec::new();
        for (position, image) in bundle.candidates(&session.device().image_formats) {
            match session.module_load(image) {
                Ok(entry) => return Ok(GpuModule::new(session, entry)),
                Err(
                    error @ (FabricError::InvalidModule(_)
                    | FabricError::Unsupported(_)
                    | FabricError::LaunchLimits(_)),
                ) => failures.push((position, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        Err(FabricError::InvalidModule(ModuleFault {
            format: ImageFormat::Unknown,
            len_bytes: bundle.len_bytes(),
            reason: bundle.describe(&failures),
        }))
    }

    /// Unloads a module now. Launches that were made before still run.
    ///
    /// The handle is used up, also when the call fails; other clones of it are invalid afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` when it was unloaded before or belongs to another lease.
    pub fn module_unload(&self, module: GpuModule) -> Result<()> {
        self.session_of_module(&module)?
            .module_unload(module.entry())
    }

    /// Finds a kernel by its name. Finding it again costs no driver call.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` listing the module's kernels; `Unsupported` or `LaunchLimits` when the
    /// device can never run it.
    pub fn kernel(&self, module: &GpuModule, name: &str) -> Result<GpuKernel> {
        let session = self.session_of_module(module)?;
        let entry = session.kernel(module.entry(), name)?;
        Ok(GpuKernel::new(session, entry))
    }

    /// Lists the names of a module's kernels, sorted.
    ///
    /// # Errors
    ///
    /// `InvalidHandle`; `Unsupported` where neither image nor driver tells.
    pub fn kernel_names(&self, module: &GpuModule) -> Result<Vec<String>> {
        self.session_of_module(module)?.kernel_names(module.entry())
    }

    /// Finds a global variable of a module (`__device__`, `__constant__`). Its handle works with
    /// the memory calls until the module is unloaded; freeing or dropping it does nothing.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` when there is none of that name; `Unsupported` where the backend has no
    /// such variables.
    pub fn module_global(&self, module: &GpuModule, name: &str) -> Result<GpuMemHandle> {
        let session = self.session_of_module(module)?;
        let entry = session.global(module.entry(), name)?;
        Ok(GpuMemHandle::new(session, entry))
    }

    // Launches.

    /// Launches a kernel by its name on the default stream. Does not wait.
    ///
    /// `grid` is in blocks and `block` in threads, both x y z. `args` holds the arguments one
    /// after the other, `arg_sizes` the size of each in bytes. For a kernel whose buffers are
    /// bound to slots, an 8-byte argument that is the address of a live buffer fills the next
    /// slot, and every other argument is the next value.
    ///
    /// # Errors
    ///
    /// - `KernelNotFound` as for [`kernel`](Self::kernel);
    /// - `InvalidArgument` for a zero in grid or block;
    /// - `LaunchLimits` naming axis, value and limit;
    /// - `ArgumentMismatch` naming the argument, where the kernel's signature is known.
    pub fn launch(
        &self,
        module: &GpuModule,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[u8],
        arg_sizes: &[u32],
    ) -> Result<()> {
        let session = self.session_of_module(module)?;
        let kernel = session.kernel(module.entry(), kernel)?;
        let request = LaunchRequest {
            grid,
            block,
            dynamic_shared_bytes: 0,
            args,
            arg_sizes,
        };
        session.launch(StreamId::DEFAULT, &kernel, request)
    }

    /// Launches a kernel by its name with arguments that were packed by [`KernelArgs`].
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    pub fn launch_with_args(
        &self,
        module: &GpuModule,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        args: KernelArgs,
    ) -> Result<()> {
        let (bytes, sizes) = args.as_parts();
        self.launch(module, kernel, grid, block, bytes, sizes)
    }

    // Streams, events and waits.

    /// Creates a stream that runs beside the default one.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the device has one stream only.
    pub fn create_stream(&self) -> Result<GpuStream> {
        let session = self.lease.session()?;
        let id = session.create_stream()?;
        Ok(GpuStream::new(session, id))
    }

    /// Creates an event.
    ///
    /// # Errors
    ///
    /// Driver errors.
    pub fn create_event(&self) -> Result<GpuEvent> {
        let session = self.lease.session()?;
        let id = session.create_event()?;
        Ok(GpuEvent::new(session, id))
    }

    /// Marks the present end of the default stream with an event.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for an event of another lease; driver errors.
    pub fn record(&self, event: &GpuEvent) -> Result<()> {
        let session = self.session_of_event(event)?;
        session.record_event(event.id(), StreamId::DEFAULT)
    }

    /// Makes later work of the default stream wait for an event.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for an event of another lease; driver errors.
    pub fn wait(&self, event: &GpuEvent) -> Result<()> {
        let session = self.session_of_event(event)?;
        session.wait_event(StreamId::DEFAULT, event.id())
    }

    /// Waits until all work of the session has ended, on every stream.
    ///
    /// # Errors
    ///
    /// Errors of the work.
    pub fn sync(&self) -> Result<()> {
        self.lease.session()?.sync(None)
    }

    /// Waits until all work of the session has ended, at most this long. The work goes on after a
    /// timeout.
    ///
    /// # Errors
    ///
    /// `Timeout`; errors of the work.
    pub fn sync_timeout(&self, timeout: Duration) -> Result<()> {
        self.lease.session()?.sync(Some(timeout))
    }

    /// Starts what is recorded and tells whether all work has ended. Does not wait.
    ///
    /// # Errors
    ///
    /// Errors of the work.
    pub fn poll(&self) -> Result<bool> {
        self.lease.session()?.poll()
    }

    /// Lends the driver's own objects, so that a vendor library can work beside the session.
    ///
    /// `stream` is the default one where none is given. The session's own submissions to the
    /// stream wait while `use_handle` runs; it must not call the session.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the backend has no such objects; `InvalidHandle` for a buffer or stream
    /// of another lease.
    pub fn with_native(
        &self,
        stream: Option<&GpuStream>,
        buffers: &[&GpuMemHandle],
        mut use_handle: impl FnMut(&NativeHandle),
    ) -> Result<()> {
        let session = self.lease.session()?;
        let stream = match stream {
            None => StreamId::DEFAULT,
            Some(stream) => {
                ensure_same(
                    &session,
                    stream.session(),
                    HandleKind::Stream,
                    stream.id().0,
                )?;
                stream.id()
            }
        };
        let mut entries = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            ensure_same(&session, buffer.session(), HandleKind::Buffer, buffer.raw())?;
            entries.push(buffer.entry());
        }
        session.with_native(stream, &entries, &mut use_handle)
    }

    fn session_of(&self, buffer: &GpuMemHandle) -> Result<Arc<SessionCore>> {
        let session = self.lease.session()?;
        ensure_same(&session, buffer.session(), HandleKind::Buffer, buffer.raw())?;
        Ok(session)
    }

    fn session_of_module(&self, module: &GpuModule) -> Result<Arc<SessionCore>> {
        let session = self.lease.session()?;
        ensure_same(&session, module.session(), HandleKind::Module, module.raw())?;
        Ok(session)
    }

    fn session_of_event(&self, event: &GpuEvent) -> Result<Arc<SessionCore>> {
        let session = self.lease.session()?;
        ensure_same(&session, event.session(), HandleKind::Event, event.id().0)?;
        Ok(session)
    }
}

impl Drop for GpuSession {
    fn drop(&mut self) {
        self.lease.finish_session();
    }
}

/// Refuses an object of another lease.
pub(super) fn ensure_same(
    session: &Arc<SessionCore>,
    of_object: &Arc<SessionCore>,
    kind: HandleKind,
    id: u64,
) -> Result<()> {
    if Arc::ptr_eq(session, of_object) {
        return Ok(());
    }
    Err(FabricError::invalid_handle(kind, id))
}

pub(super) fn write_all(
    session: &Arc<SessionCore>,
    stream: StreamId,
    buffer: &GpuMemHandle,
    offset_bytes: u64,
    data: &[u8],
) -> Result<()> {
    ensure_same(session, buffer.session(), HandleKind::Buffer, buffer.raw())?;
    session.mem_write(stream, buffer.entry(), offset_bytes, data)
}
