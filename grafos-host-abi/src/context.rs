//! An opened device.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    BufferDesc, BufferId, BufferInfo, BufferRange, DeviceInfo, EventId, EventStatus, FillPattern,
    GlobalInfo, KernelInfo, LaunchDesc, MemoryInfo, ModuleId, ModuleInfo, NativeHandle, Result,
    StreamId,
};

/// An opened device: its memory, modules, streams, events and launches.
///
/// All methods take `&self` and can be called from any thread, and from several at once. No
/// context depends on which thread calls it.
///
/// # What the host has checked, and what an implementation checks
///
/// The host validates once, and an implementation trusts it: that a handle came from this context
/// and is live, that `offset + length` lies inside the buffer (also that it does not wrap), that a
/// fill's range is a multiple of its pattern, that copied ranges do not overlap, that arguments
/// match the kernel's [`KernelInfo::params`] in count and size and stand in their order, and that
/// grid, block, shared memory and argument bytes are within [`DeviceLimits`](crate::DeviceLimits)
/// and the kernel's own limits. Zero-length reads, writes, copies and fills, and buffers of zero
/// bytes, never reach a context.
///
/// An implementation answers a handle that it does not know with
/// [`GpuError::InvalidHandle`](crate::GpuError::InvalidHandle) where its own tables make that
/// free of cost, and it reports what no caller could foresee: driver failures, exhausted memory,
/// bad images. Images are validated before a driver sees them.
///
/// # Order
///
/// - Work on one stream runs in the order of the calls. [`StreamId::DEFAULT`] exists from the
///   start and is in order like any other; it does not synchronize with other streams.
/// - [`free`](Self::free), [`unload_module`](Self::unload_module), [`destroy_stream`] and
///   [`destroy_event`] return at once and take effect after all work enqueued before them, on
///   every stream.
/// - Work may be recorded and submitted in batches, but it starts without another call when the
///   device is idle, and [`poll`](Self::poll), every wait and every read submit what is recorded.
///
/// # A lost device
///
/// After a fault that the driver cannot recover from, every later call answers
/// [`GpuError::DeviceLost`](crate::GpuError::DeviceLost) with the first cause; waiting threads
/// wake with the same error; frees, destroys and drops stay silent and succeed.
///
/// # Dropping
///
/// Dropping a context is [`close`](Self::close) without waiting: when work is still running, the
/// device and what the work uses are left alone instead of being destroyed under it.
///
/// [`destroy_stream`]: Self::destroy_stream
/// [`destroy_event`]: Self::destroy_event
pub trait GpuContext: Send + Sync {
    /// Describes the device that this context is open on.
    fn device(&self) -> &DeviceInfo;

    /// Allocates device memory, at least one byte, aligned for every scalar and vector type
    /// (256 bytes or more). Its content is undefined.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` with the size asked for and, where known, what is free.
    fn alloc(&self, desc: &BufferDesc) -> Result<BufferInfo>;

    /// Gives a buffer back, after all work enqueued before this call has ended.
    ///
    /// Never waits.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for a buffer that is not live in this context.
    fn free(&self, buffer: BufferId) -> Result<()>;

    /// Writes bytes from the caller to a buffer, in stream order.
    ///
    /// `data` has been read completely when the call returns.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn write(&self, stream: StreamId, dst: BufferRange, data: &[u8]) -> Result<()>;

    /// Reads a buffer into the caller's slice, in stream order, and waits until it is filled.
    ///
    /// `src.len_bytes` equals `out.len()`.
    ///
    /// # Errors
    ///
    /// Driver errors; errors of earlier work on the stream that appear while waiting.
    fn read(&self, stream: StreamId, src: BufferRange, out: &mut [u8]) -> Result<()>;

    /// Copies between two buffers of this context, or within one, in stream order.
    ///
    /// Both ranges have the same length. Does not wait.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn copy(&self, stream: StreamId, dst: BufferRange, src: BufferRange) -> Result<()>;

    /// Fills a range with a repeated pattern, in stream order. Does not wait.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn fill(&self, stream: StreamId, dst: BufferRange, pattern: FillPattern) -> Result<()>;

    /// Reports the memory of the device and what this context holds of it.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Returns memory that is cached but unused to the driver, and tells how many bytes that was:
    /// by as many [`MemoryInfo::reserved_bytes`] falls.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn trim(&self) -> Result<u64>;

    /// Loads a module from an image.
    ///
    /// The image can be any bytes. It is checked before the driver sees it.
    ///
    /// # Errors
    ///
    /// `InvalidModule` for bytes that are malformed or of a format that this context does not
    /// take; `Unsupported` for a valid image that needs what the device lacks, naming it.
    fn load_module(&self, image: &[u8]) -> Result<ModuleInfo>;

    /// Unloads a module, after all launches enqueued before this call have ended. Never waits.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for a module that is not live in this context.
    fn unload_module(&self, module: ModuleId) -> Result<()>;

    /// Resolves a kernel of a module by its name. Resolving a name again gives the same id.
    ///
    /// Anything that can be prepared per kernel is prepared here, not at launch.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` listing the module's kernels, for any other text (empty, with a NUL, not
    /// ASCII); `Unsupported` or `LaunchLimits` when the kernel cannot run on this device with any
    /// launch.
    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelInfo>;

    /// Finds a global variable of a module (`__device__`, `__constant__`) by its name.
    ///
    /// The variable's [`GlobalInfo::buffer`] works with `write`, `read`, `copy` and `fill` while
    /// the module is loaded; it cannot be freed.
    ///
    /// # Errors
    ///
    /// `Unsupported` where [`Capabilities::module_globals`](crate::Capabilities::module_globals)
    /// is false; `KernelNotFound` (of symbol kind) when there is no such variable.
    fn global(&self, module: ModuleId, name: &str) -> Result<GlobalInfo>;

    /// Enqueues a kernel. Does not wait for it to start or end.
    ///
    /// # Errors
    ///
    /// Driver errors, those of earlier asynchronous work included.
    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<()>;

    /// Creates a stream that runs beside the others.
    ///
    /// # Errors
    ///
    /// `Unsupported` where [`Capabilities::streams`](crate::Capabilities::streams) is false.
    fn create_stream(&self) -> Result<StreamId>;

    /// Destroys a stream once its work has ended. Never waits.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for a stream that is not live, `InvalidArgument` for the default stream.
    fn destroy_stream(&self, stream: StreamId) -> Result<()>;

    /// Waits until all work of a stream has ended.
    ///
    /// `None` waits without bound. A timeout leaves the work running.
    ///
    /// # Errors
    ///
    /// `Timeout` when the work has not ended in time, at once for a timeout of zero; errors of the
    /// stream's work.
    fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()>;

    /// Waits until all work of all streams has ended.
    ///
    /// # Errors
    ///
    /// As [`sync_stream`](Self::sync_stream).
    fn sync(&self, timeout: Option<Duration>) -> Result<()>;

    /// Submits what is recorded, retires what has ended, and tells whether nothing is outstanding.
    ///
    /// Never waits.
    ///
    /// # Errors
    ///
    /// Errors of earlier asynchronous work.
    fn poll(&self) -> Result<bool>;

    /// Creates an event.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn create_event(&self) -> Result<EventId>;

    /// Destroys an event, after all work enqueued before this call. Never waits.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for an event that is not live.
    fn destroy_event(&self, event: EventId) -> Result<()>;

    /// Marks the present end of a stream with an event. Recording again moves the mark.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn record_event(&self, event: EventId, stream: StreamId) -> Result<()>;

    /// Makes later work of a stream wait for an event that was recorded on any stream.
    ///
    /// What counts is the last record before this call: recording the event again, or destroying
    /// it, leaves the wait as it is. An event that has never been recorded counts as complete.
    ///
    /// # Errors
    ///
    /// Driver errors.
    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()>;

    /// Tells whether the work before an event's last record has ended. Never waits.
    ///
    /// # Errors
    ///
    /// Errors of earlier asynchronous work.
    fn query_event(&self, event: EventId) -> Result<EventStatus>;

    /// Waits for an event. One that has never been recorded counts as complete.
    ///
    /// # Errors
    ///
    /// `Timeout`; errors of the work waited for.
    fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()>;

    /// Measures the device time between two recorded events, in nanoseconds.
    ///
    /// The resolution is the device's own (0.5 microseconds on CUDA, the timestamp period on
    /// Vulkan). Zero when `end` was reached before `start`.
    ///
    /// # Errors
    ///
    /// `NotReady` when one of them has not been reached, `InvalidArgument` when one was never
    /// recorded, `Unsupported` where
    /// [`Capabilities::event_timing`](crate::Capabilities::event_timing) is false.
    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64>;

    /// Lends the driver's own objects to a caller, so that a vendor library can enqueue work
    /// beside this context's.
    ///
    /// What is recorded is submitted first, and the stream is locked against this context's own
    /// submissions while `use_handle` runs (a `VkQueue` must not be used by two threads at once).
    /// `buffers` are described in the same order in [`NativeHandle::buffers`]. What the caller
    /// enqueues on the stream is ordered like the context's own work there.
    ///
    /// # Errors
    ///
    /// `Unsupported` where [`Capabilities::native_handle`](crate::Capabilities::native_handle) is
    /// false; `InvalidHandle` for a buffer that is not live.
    fn with_native(
        &self,
        stream: StreamId,
        buffers: &[BufferId],
        use_handle: &mut dyn FnMut(&NativeHandle),
    ) -> Result<()>;

    /// Ends the context: waits for its work, then releases everything it holds.
    ///
    /// Later calls answer `InvalidHandle`. Closing again is harmless and reports nothing held.
    ///
    /// # Errors
    ///
    /// `Timeout` when the work has not ended in time: the device is then left alone, nothing is
    /// destroyed under the work, and `close` can be called again. Other calls in between can
    /// answer `InvalidHandle`.
    fn close(&self, timeout: Option<Duration>) -> Result<CloseReport>;

    /// Lists the names of a module's kernels, sorted.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` for a module that is not live; `Unsupported` where the driver cannot list
    /// them and the image does not tell.
    fn kernel_names(&self, module: ModuleId) -> Result<Vec<alloc::string::String>>;
}

/// What a context still held when it was closed. All of it has been released.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// Buffers that nobody had freed.
    pub live_buffers: u64,
    /// Their sizes together, in bytes as they were asked for.
    pub live_bytes: u64,
    /// Modules that nobody had unloaded.
    pub live_modules: u64,
    /// Streams other than the default one that nobody had destroyed.
    pub live_streams: u64,
    /// Events that nobody had destroyed.
    pub live_events: u64,
}
