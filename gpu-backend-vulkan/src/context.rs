//! The context: the trait's calls, forwarded to the parts that serve them.

mod shared;
mod table;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use grafos_host_abi::{
    BufferDesc, BufferId, BufferInfo, BufferRange, CloseReport, DeviceInfo, EventId, EventStatus,
    FillPattern, GlobalInfo, GpuContext, GpuError, HandleFault, HandleKind, KernelInfo, LaunchDesc,
    MemoryInfo, ModuleId, ModuleInfo, NativeBuffer, NativeHandle, NativeObject, Result, StreamId,
};
use parking_lot::RwLock;

pub(crate) use shared::{Garbage, Marks, Shared, SharedDesc};
pub(crate) use table::Table;

use crate::driver::ExitGuard;
use crate::error::API;
use crate::memory;

/// How long a dropped context waits for the little that may be left to do.
const DROP_TIMEOUT: Duration = Duration::from_millis(10);

/// A context: a `VkDevice` of its own with what was made on it.
pub(crate) struct VulkanContext {
    info: DeviceInfo,
    /// Empty once the context is closed.
    shared: RwLock<Option<Arc<Shared>>>,
}

impl VulkanContext {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            info: shared.info.clone(),
            shared: RwLock::new(Some(Arc::new(shared))),
        }
    }

    /// The open context. Calls hold it while they run, so closing never pulls it away from them.
    fn open(&self) -> Result<Arc<Shared>> {
        self.shared.read().clone().ok_or_else(closed)
    }

    /// As [`open`](Self::open), for calls that succeed in silence once there is nothing to do.
    fn open_or_lost<T: Default>(&self, release: impl FnOnce(&Shared) -> Result<T>) -> Result<T> {
        let shared = self.open()?;
        match release(&shared) {
            Err(GpuError::DeviceLost(_)) => Ok(T::default()),
            other => other,
        }
    }
}

impl GpuContext for VulkanContext {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, desc: &BufferDesc) -> Result<BufferInfo> {
        self.open()?.alloc(desc)
    }

    fn free(&self, buffer: BufferId) -> Result<()> {
        self.open_or_lost(|shared| shared.free(buffer))
    }

    fn write(&self, stream: StreamId, dst: BufferRange, data: &[u8]) -> Result<()> {
        self.open()?.write(stream, dst, data)
    }

    fn read(&self, stream: StreamId, src: BufferRange, out: &mut [u8]) -> Result<()> {
        self.open()?.read(stream, src, out)
    }

    fn copy(&self, stream: StreamId, dst: BufferRange, src: BufferRange) -> Result<()> {
        self.open()?.copy(stream, dst, src)
    }

    fn fill(&self, stream: StreamId, dst: BufferRange, pattern: FillPattern) -> Result<()> {
        self.open()?.fill(stream, dst, pattern)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.open()?.memory_info()
    }

    fn trim(&self) -> Result<u64> {
        self.open()?.trim()
    }

    fn load_module(&self, image: &[u8]) -> Result<ModuleInfo> {
        self.open()?.load_module(image)
    }

    fn unload_module(&self, module: ModuleId) -> Result<()> {
        self.open_or_lost(|shared| shared.unload_module(module))
    }

    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelInfo> {
        self.open()?.kernel(module, name)
    }

    fn kernel_names(&self, module: ModuleId) -> Result<Vec<String>> {
        self.open()?.kernel_names(module)
    }

    fn global(&self, module: ModuleId, name: &str) -> Result<GlobalInfo> {
        self.open()?.global(module, name)
    }

    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<()> {
        self.open()?.launch(launch)
    }

    fn create_stream(&self) -> Result<StreamId> {
        self.open()?.create_stream()
    }

    fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        self.open_or_lost(|shared| shared.destroy_stream(stream))
    }

    fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()> {
        self.open()?.sync_stream(stream, timeout)
    }

    fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        self.open()?.sync(timeout)
    }

    fn poll(&self) -> Result<bool> {
        self.open()?.poll()
    }

    fn create_event(&self) -> Result<EventId> {
        self.open()?.create_event()
    }

    fn destroy_event(&self, event: EventId) -> Result<()> {
        self.open_or_lost(|shared| shared.destroy_event(event))
    }

    fn record_event(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.open()?.record_event(event, stream)
    }

    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        self.open()?.wait_event(stream, event)
    }

    fn query_event(&self, event: EventId) -> Result<EventStatus> {
        self.open()?.query_event(event)
    }

    fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        self.open()?.sync_event(event, timeout)
    }

    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        self.open()?.elapsed_ns(start, end)
    }

    fn with_native(
        &self,
        stream: StreamId,
        buffers: &[BufferId],
        use_handle: &mut dyn FnMut(&NativeHandle),
    ) -> Result<()> {
        let shared = self.open()?;
        let buffers = buffers
            .iter()
            .map(|buffer| {
                let table = shared.buffers.read();
                let found = table
                    .get(buffer.0)
                    .ok_or_else(|| memory::unknown(*buffer))?;
                Ok(NativeBuffer {
                    object: found.handle(),
                    // Each buffer has a VkBuffer of its own.
                    offset_bytes: 0,
                    address: found.address(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let [instance, physical, device, proc_addr] = shared.device.handles();
        let family = shared.device.family().index;
        shared.with_queue(stream, &mut |queue| {
            let object = |type_name, value| NativeObject { type_name, value };
            use_handle(&NativeHandle {
                api: API,
                objects: vec![
                    object("PFN_vkGetInstanceProcAddr", proc_addr),
                    object("VkInstance", instance),
                    object("VkPhysicalDevice", physical),
                    object("VkDevice", device),
                    object("VkQueue", queue),
                    object("queueFamilyIndex", family.into()),
                ],
                buffers: buffers.clone(),
            });
        })
    }

    fn close(&self, timeout: Option<Duration>) -> Result<CloseReport> {
        let Ok(shared) = self.open() else {
            return Ok(CloseReport::default());
        };
        shared.closing.store(true, Ordering::Release);
        match shared.sync(timeout) {
            Ok(()) | Err(GpuError::DeviceLost(_)) => {}
            Err(failure) => {
                shared.closing.store(false, Ordering::Release);
                return Err(failure);
            }
        }
        let report = shared.report();
        shared.feeder.stop();
        let _exit_waits = ExitGuard::enter();
        self.shared.write().take();
        // The device is destroyed with the last call that still holds it, which can be this one.
        drop(shared);
        Ok(report)
    }
}

/// The error of calls on a context that is closed.
pub(crate) fn closed() -> GpuError {
    GpuError::InvalidHandle(HandleFault {
        kind: HandleKind::Context,
        id: 0,
    })
}

impl Drop for VulkanContext {
    fn drop(&mut self) {
        let Some(shared) = self.shared.get_mut().take() else {
            return;
        };
        // Destroying a device takes a while, and the process can end meanwhile.
        let _exit_waits = ExitGuard::enter();
        let idle = match shared.sync(Some(DROP_TIMEOUT)) {
            Ok(()) | Err(GpuError::DeviceLost(_)) => true,
            Err(_) => false,
        };
        shared.feeder.stop();
        if !idle {
            // Destroying a device under its work is undefined, and drivers block in it for as
            // long as the work takes. The work goes on, and what it uses stays.
            std::mem::forget(shared);
        } else {
            // Under the guard.
            drop(shared);
        }
    }
}
