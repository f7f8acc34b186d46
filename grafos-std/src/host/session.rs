//! An opened lease: its context, its objects, and the calls on them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use grafos_host_abi::{
    BufferDesc, BufferId, BufferRange, DeviceInfo, EventId, EventStatus, FillPattern, GpuContext,
    GpuError, KernelInfo, LaunchDesc, LostFault, MemoryInfo, ModuleId, NativeHandle, StreamId,
};

use super::gate::{Closed, Gate};
use super::lease::LeaseCore;
use super::validate;
use crate::error::{FabricError, HandleKind, Result};
use crate::sync::Mutex;

/// Where addresses of buffers without bytes begin: no device has memory there.
const EMPTY_BUFFER_BASE: u64 = 0xE000_0000_0000_0000;
/// Their distance, so that each looks aligned like a real one.
const EMPTY_BUFFER_STEP: u64 = 256;

/// The context of a lease and everything that lives in it.
pub(crate) struct SessionCore {
    lease: Arc<LeaseCore>,
    context: Box<dyn GpuContext>,
    buffers: Mutex<BTreeMap<u64, Arc<BufferEntry>>>,
    modules: Mutex<BTreeMap<u64, Arc<ModuleEntry>>>,
    lost: Mutex<Option<LostFault>>,
    next_empty_address: AtomicU64,
}

/// A buffer, or a global variable of a module.
#[derive(Debug)]
pub(crate) struct BufferEntry {
    address: u64,
    size_bytes: u64,
    /// `None` for a buffer without bytes, of which no backend knows.
    id: Option<BufferId>,
    /// The module that a global variable belongs to.
    owner: Option<Arc<ModuleEntry>>,
    gate: Gate,
}

impl BufferEntry {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

/// A loaded module and the kernels that have been resolved in it.
#[derive(Debug)]
pub(crate) struct ModuleEntry {
    id: ModuleId,
    gate: Gate,
    kernels: Mutex<BTreeMap<String, Arc<KernelInfo>>>,
}

impl ModuleEntry {
    pub(crate) fn id(&self) -> u64 {
        self.id.0
    }
}

/// A resolved kernel.
#[derive(Debug, Clone)]
pub(crate) struct KernelEntry {
    info: Arc<KernelInfo>,
    module: Arc<ModuleEntry>,
}

impl KernelEntry {
    pub(crate) fn info(&self) -> &KernelInfo {
        &self.info
    }
}

/// Dimensions and arguments of a launch, as the caller gave them.
#[derive(Clone, Copy)]
pub(crate) struct LaunchRequest<'a> {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) args: &'a [u8],
    pub(crate) arg_sizes: &'a [u32],
}

/// Keeps an object usable until the call that holds it has ended.
struct Inside<'a> {
    session: &'a SessionCore,
    object: Object<'a>,
}

#[derive(Clone, Copy)]
enum Object<'a> {
    Buffer(&'a BufferEntry),
    Module(&'a ModuleEntry),
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        match self.object {
            Object::Buffer(entry) => {
                if entry.gate.leave() {
                    self.session.release_buffer(entry);
                }
            }
            Object::Module(entry) => {
                if entry.gate.leave() {
                    self.session.release_module(entry);
                }
            }
        }
    }
}

impl SessionCore {
    pub(super) fn new(lease: Arc<LeaseCore>, context: Box<dyn GpuContext>) -> Self {
        Self {
            lease,
            context,
            buffers: Mutex::new(BTreeMap::new()),
            modules: Mutex::new(BTreeMap::new()),
            lost: Mutex::new(None),
            next_empty_address: AtomicU64::new(EMPTY_BUFFER_BASE),
        }
    }

    pub(crate) fn device(&self) -> &DeviceInfo {
        self.context.device()
    }

    // Memory.

    pub(crate) fn mem_alloc(&self, size_bytes: u64) -> Result<Arc<BufferEntry>> {
        self.ensure_usable()?;
        let (id, address) = if size_bytes == 0 {
            let address = self
                .next_empty_address
                .fetch_add(EMPTY_BUFFER_STEP, Ordering::Relaxed);
            (None, address)
        } else {
            let info = self.alloc_on_device(size_bytes)?;
            (Some(info.0), info.1)
        };
        let entry = Arc::new(BufferEntry {
            address,
            size_bytes,
            id,
            owner: None,
            gate: Gate::default(),
        });
        self.buffers.lock().insert(address, Arc::clone(&entry));
        Ok(entry)
    }

    /// Charges the lease's budget, then asks the device; cached memory is returned to the driver
    /// and the request made once more before it fails.
    fn alloc_on_device(&self, size_bytes: u64) -> Result<(BufferId, u64)> {
        self.lease.charge(size_bytes)?;
        let desc = BufferDesc::new(size_bytes);
        let first = self.context.alloc(&desc);
        let answer = match first {
            Err(GpuError::OutOfMemory(_)) if self.context.trim().is_ok_and(|freed| freed > 0) => {
                self.context.alloc(&desc)
            }
            other => other,
        };
        match answer {
            Ok(info) => Ok((info.id, info.address)),
            Err(error) => {
                self.lease.refund(size_bytes);
                Err(self.fail(error))
            }
        }
    }

    pub(crate) fn mem_free(&self, entry: &BufferEntry) -> Result<()> {
        self.ensure_usable()?;
        self.free_entry(entry)
    }

    /// Frees on behalf of a drop: silent, and nothing once the lease has ended.
    pub(crate) fn mem_free_on_drop(&self, entry: &BufferEntry) {
        if entry.gate.is_open() && self.lease.is_active() {
            // There is nobody to tell: the backend has the buffer no longer, or the device is lost.
            let _ = self.free_entry(entry);
        }
    }

    fn free_entry(&self, entry: &BufferEntry) -> Result<()> {
        if entry.owner.is_some() {
            return Ok(());
        }
        self.lease.count_mem_free();
        match entry.gate.close() {
            Closed::Release => self.release_buffer(entry),
            Closed::Deferred => {}
            Closed::Already => {
                return Err(FabricError::invalid_handle(
                    HandleKind::Buffer,
                    entry.address,
                ));
            }
        }
        Ok(())
    }

    fn release_buffer(&self, entry: &BufferEntry) {
        {
            let mut buffers = self.buffers.lock();
            // The backend may have given the same address to a newer buffer only after the free
            // below, so what is found under the address is this entry.
            buffers.remove(&entry.address);
        }
        if let Some(id) = entry.id {
            // A free fails only where the context has ended, and then the buffer is gone as well.
            let _ = self.context.free(id);
            self.lease.refund(entry.size_bytes);
        }
    }

    pub(crate) fn buffer(&self, address: u64) -> Result<Arc<BufferEntry>> {
        self.buffers
            .lock()
            .get(&address)
            .cloned()
            .ok_or_else(|| FabricError::invalid_handle(HandleKind::Buffer, address))
    }

    pub(crate) fn mem_write(
        &self,
        stream: StreamId,
        entry: &BufferEntry,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        self.ensure_usable()?;
        let (_inside, range) = self.enter_range(entry, offset_bytes, data.len() as u64)?;
        match range {
            Some(range) => self.check(self.context.write(stream, range, data)),
            None => Ok(()),
        }
    }

    pub(crate) fn mem_read(
        &self,
        stream: StreamId,
        entry: &BufferEntry,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<()> {
        self.ensure_usable()?;
        let (_inside, range) = self.enter_range(entry, offset_bytes, out.len() as u64)?;
        match range {
            Some(range) => self.check(self.context.read(stream, range, out)),
            None => Ok(()),
        }
    }

    /// Checks a read's bounds before the caller makes room for the answer.
    pub(crate) fn check_read(&self, entry: &BufferEntry, offset: u64, len: u64) -> Result<()> {
        self.ensure_usable()?;
        validate::check_bounds(offset, len, entry.size_bytes)
    }

    pub(crate) fn mem_copy(
        &self,
        stream: StreamId,
        (dst, dst_offset): (&BufferEntry, u64),
        (src, src_offset): (&BufferEntry, u64),
        len_bytes: u64,
    ) -> Result<()> {
        self.ensure_usable()?;
        let (_dst_inside, dst_range) = self.enter_range(dst, dst_offset, len_bytes)?;
        let (_src_inside, src_range) = self.enter_range(src, src_offset, len_bytes)?;
        let (Some(dst_range), Some(src_range)) = (dst_range, src_range) else {
            return Ok(());
        };
        let same = dst.address == src.address;
        if same && dst_offset < src_offset + len_bytes && src_offset < dst_offset + len_bytes {
            return Err(FabricError::InvalidArgument {
                reason: format!(
                    "copy of {len_bytes} bytes from offset {src_offset} to offset {dst_offset} of \
                     one buffer overlaps itself"
                ),
            });
        }
        self.check(self.context.copy(stream, dst_range, src_range))
    }

    pub(crate) fn mem_fill(
        &self,
        stream: StreamId,
        entry: &BufferEntry,
        offset_bytes: u64,
        len_bytes: u64,
        pattern: FillPattern,
    ) -> Result<()> {
        self.ensure_usable()?;
        let width = pattern.len_bytes();
        if !offset_bytes.is_multiple_of(width) || !len_bytes.is_multiple_of(width) {
            return Err(FabricError::InvalidArgument {
                reason: format!(
                    "fill of {len_bytes} bytes at offset {offset_bytes}: both must be multiples of \
                     the pattern's {width} bytes"
                ),
            });
        }
        let (_inside, range) = self.enter_range(entry, offset_bytes, len_bytes)?;
        match range {
            Some(range) => self.check(self.context.fill(stream, range, pattern)),
            None => Ok(()),
        }
    }

    /// The memory of the device as this lease may use it: quota and other leases' reservations
    /// are taken off.
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        self.ensure_usable()?;
        let mut info = self.check(self.context.memory_info())?;
        if let Some(budget) = self.lease.budget() {
            info.total_bytes = info.total_bytes.min(budget.total_bytes);
            info.free_bytes = info.free_bytes.min(budget.free_bytes);
        }
        Ok(info)
    }

    pub(crate) fn trim(&self) -> Result<u64> {
        self.ensure_usable()?;
        self.check(self.context.trim())
    }

    // Modules.

    pub(crate) fn module_load(&self, image: &[u8]) -> Result<Arc<ModuleEntry>> {
        self.ensure_usable()?;
        let info = self.check(self.context.load_module(image))?;
        let entry = Arc::new(ModuleEntry {
            id: info.id,
            gate: Gate::default(),
            kernels: Mutex::new(BTreeMap::new()),
        });
        self.modules.lock().insert(info.id.0, Arc::clone(&entry));
        Ok(entry)
    }

    pub(crate) fn module_unload(&self, entry: &ModuleEntry) -> Result<()> {
        self.ensure_usable()?;
        self.unload_entry(entry)
    }

    /// Unloads on behalf of a drop: silent, and nothing once the lease has ended.
    pub(crate) fn module_unload_on_drop(&self, entry: &ModuleEntry) {
        if entry.gate.is_open() && self.lease.is_active() {
            // There is nobody to tell: the module is gone, or the device is lost.
            let _ = self.unload_entry(entry);
        }
    }

    fn unload_entry(&self, entry: &ModuleEntry) -> Result<()> {
        self.lease.count_module_unload();
        match entry.gate.close() {
            Closed::Release => self.release_module(entry),
            Closed::Deferred => {}
            Closed::Already => {
                return Err(FabricError::invalid_handle(HandleKind::Module, entry.id.0));
            }
        }
        Ok(())
    }

    fn release_module(&self, entry: &ModuleEntry) {
        self.modules.lock().remove(&entry.id.0);
        // An unload fails only where the context has ended, and then the module is gone as well.
        let _ = self.context.unload_module(entry.id);
    }

    pub(crate) fn module(&self, id: u64) -> Result<Arc<ModuleEntry>> {
        self.modules
            .lock()
            .get(&id)
            .cloned()
            .ok_or_else(|| FabricError::invalid_handle(HandleKind::Module, id))
    }

    pub(crate) fn kernel(&self, module: &Arc<ModuleEntry>, name: &str) -> Result<KernelEntry> {
        self.ensure_usable()?;
        let _inside = self.enter_module(module)?;
        let known = module.kernels.lock().get(name).cloned();
        let info = match known {
            Some(info) => info,
            None => {
                validate::check_kernel_name(name)?;
                let info = Arc::new(self.check(self.context.kernel(module.id, name))?);
                module.kernels.lock().insert(name.into(), Arc::clone(&info));
                info
            }
        };
        Ok(KernelEntry {
            info,
            module: Arc::clone(module),
        })
    }

    pub(crate) fn kernel_names(&self, module: &ModuleEntry) -> Result<Vec<String>> {
        self.ensure_usable()?;
        let _inside = self.enter_module(module)?;
        self.check(self.context.kernel_names(module.id))
    }

    pub(crate) fn global(&self, module: &Arc<ModuleEntry>, name: &str) -> Result<Arc<BufferEntry>> {
        self.ensure_usable()?;
        let _inside = self.enter_module(module)?;
        validate::check_kernel_name(name)?;
        let info = self.check(self.context.global(module.id, name))?;
        Ok(Arc::new(BufferEntry {
            address: info.address,
            size_bytes: info.size_bytes,
            id: Some(info.buffer),
            owner: Some(Arc::clone(module)),
            gate: Gate::default(),
        }))
    }

    // Launches.

    pub(crate) fn launch(
        &self,
        stream: StreamId,
        kernel: &KernelEntry,
        request: LaunchRequest<'_>,
    ) -> Result<()> {
        self.ensure_usable()?;
        let _inside = self.enter_module(&kernel.module)?;
        let info = &kernel.info;
        let limits = &self.context.device().limits;
        let LaunchRequest {
            grid,
            block,
            dynamic_shared_bytes,
            args,
            arg_sizes,
        } = request;
        validate::check_dimensions(info, limits, grid, block, dynamic_shared_bytes)?;
        let args = validate::match_arguments(info, limits, args, arg_sizes, |address| {
            self.find_buffer(address)
        })?;
        let launch = LaunchDesc {
            kernel: info.id,
            grid,
            block,
            dynamic_shared_bytes,
            args: &args,
            stream,
        };
        let mut answer = self.context.launch(&launch);
        if answer.is_ok() && self.lease.sync_launch() {
            answer = self
                .context
                .sync_stream(stream, None)
                .map_err(|error| match error {
                    GpuError::DeviceLost(fault) => GpuError::DeviceLost(LostFault {
                        reason: format!("launch of kernel {:?}: {}", info.name, fault.reason),
                        ..fault
                    }),
                    other => other,
                });
        }
        if answer.is_ok() {
            self.lease.observe_launch(&info.name, grid, block);
        }
        self.check(answer)
    }

    /// Finds the live buffer that an address points into, from there to its end.
    fn find_buffer(&self, address: u64) -> Option<BufferRange> {
        let buffers = self.buffers.lock();
        let (start, entry) = buffers.range(..=address).next_back()?;
        let offset_bytes = address - start;
        if offset_bytes != 0 && offset_bytes >= entry.size_bytes {
            return None;
        }
        let len_bytes = entry.size_bytes - offset_bytes;
        Some(BufferRange {
            buffer: entry.id.unwrap_or(BufferId(*start)),
            offset_bytes,
            len_bytes,
        })
    }

    // Streams, events and waits.

    pub(crate) fn create_stream(&self) -> Result<StreamId> {
        self.ensure_usable()?;
        self.check(self.context.create_stream())
    }

    pub(crate) fn destroy_stream_on_drop(&self, stream: StreamId) {
        if self.lease.is_active() {
            // There is nobody to tell: the stream is gone, or the device is lost.
            let _ = self.context.destroy_stream(stream);
        }
    }

    pub(crate) fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.sync_stream(stream, timeout))
    }

    pub(crate) fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.sync(timeout))
    }

    pub(crate) fn poll(&self) -> Result<bool> {
        self.ensure_usable()?;
        self.check(self.context.poll())
    }

    /// Whether nothing is outstanding, by the context's own word; a context that fails has
    /// nothing that runs.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn is_idle(&self) -> bool {
        self.context.poll().unwrap_or(true)
    }

    pub(crate) fn create_event(&self) -> Result<EventId> {
        self.ensure_usable()?;
        self.check(self.context.create_event())
    }

    pub(crate) fn destroy_event_on_drop(&self, event: EventId) {
        if self.lease.is_active() {
            // There is nobody to tell: the event is gone, or the device is lost.
            let _ = self.context.destroy_event(event);
        }
    }

    pub(crate) fn record_event(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.record_event(event, stream))
    }

    pub(crate) fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.wait_event(stream, event))
    }

    pub(crate) fn query_event(&self, event: EventId) -> Result<EventStatus> {
        self.ensure_usable()?;
        self.check(self.context.query_event(event))
    }

    pub(crate) fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        self.ensure_usable()?;
        self.check(self.context.sync_event(event, timeout))
    }

    pub(crate) fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        self.ensure_usable()?;
        self.check(self.context.elapsed_ns(start, end))
    }

    pub(crate) fn with_native(
        &self,
        stream: StreamId,
        buffers: &[&BufferEntry],
        use_handle: &mut dyn FnMut(&NativeHandle),
    ) -> Result<()> {
        self.ensure_usable()?;
        let mut inside = Vec::with_capacity(buffers.len());
        let mut ids = Vec::with_capacity(buffers.len());
        for entry in buffers {
            let Some(id) = entry.id else {
                return Err(FabricError::invalid_argument(format!(
                    "buffer {:#x} has no bytes, so there is no driver object for it",
                    entry.address
                )));
            };
            inside.push(self.enter_buffer(entry)?);
            ids.push(id);
        }
        self.check(self.context.with_native(stream, &ids, use_handle))
    }

    /// Ends the context without waiting. `Err` when work is still running: the context is then
    /// left alone, and the call can be repeated with a longer timeout.
    pub(super) fn close(&self, timeout: Option<Duration>) -> Result<(), GpuError> {
        match self.context.close(timeout) {
            Err(error @ GpuError::Timeout(_)) => Err(error),
            // Whatever else it says, the context has ended.
            _ => Ok(()),
        }
    }

    // Shared by all calls.

    fn ensure_usable(&self) -> Result<()> {
        self.lease.ensure_usable()?;
        match &*self.lost.lock() {
            Some(fault) => Err(FabricError::DeviceLost(fault.clone())),
            None => Ok(()),
        }
    }

    fn check<T>(&self, answer: Result<T, GpuError>) -> Result<T> {
        answer.map_err(|error| self.fail(error))
    }

    /// Latches a lost device, and names the lease's end as the cause of what fails after it.
    fn fail(&self, error: GpuError) -> FabricError {
        if let GpuError::DeviceLost(fault) = &error {
            let first = self
                .lost
                .lock()
                .get_or_insert_with(|| fault.clone())
                .clone();
            self.lease.note_device_lost(&first);
            let error = FabricError::DeviceLost(first);
            self.lease.observe_error(&error);
            return error;
        }
        let error = match self.lease.ensure_usable() {
            Err(ended) => ended,
            Ok(()) => FabricError::from(error),
        };
        self.lease.observe_error(&error);
        error
    }

    fn enter_buffer<'a>(&'a self, entry: &'a BufferEntry) -> Result<Inside<'a>> {
        let object = match &entry.owner {
            Some(module) if module.gate.enter() => Object::Module(module),
            None if entry.gate.enter() => Object::Buffer(entry),
            _ => {
                return Err(FabricError::invalid_handle(
                    HandleKind::Buffer,
                    entry.address,
                ));
            }
        };
        Ok(Inside {
            session: self,
            object,
        })
    }

    fn enter_module<'a>(&'a self, entry: &'a ModuleEntry) -> Result<Inside<'a>> {
        if !entry.gate.enter() {
            return Err(FabricError::invalid_handle(HandleKind::Module, entry.id.0));
        }
        Ok(Inside {
            session: self,
            object: Object::Module(entry),
        })
    }

    /// Enters a buffer and checks a range of it; no range where there is nothing to do.
    fn enter_range<'a>(
        &'a self,
        entry: &'a BufferEntry,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<(Inside<'a>, Option<BufferRange>)> {
        let inside = self.enter_buffer(entry)?;
        validate::check_bounds(offset_bytes, len_bytes, entry.size_bytes)?;
        let range = match entry.id {
            Some(buffer) if len_bytes > 0 => Some(BufferRange {
                buffer,
                offset_bytes,
                len_bytes,
            }),
            _ => None,
        };
        Ok((inside, range))
    }
}

impl core::fmt::Debug for SessionCore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SessionCore")
            .field("device", &self.device().name)
            .finish_non_exhaustive()
    }
}
