//! The context of a guest's lease: every call is an import.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use grafos_host_abi::{
    BufferDesc, BufferId, BufferInfo, BufferRange, CloseReport, DeviceInfo, ErrorKind, EventId,
    EventStatus, FillPattern, GlobalInfo, GpuContext, GpuError, HandleFault, HandleKind,
    ImageFormat, KernelFault, KernelId, KernelInfo, LaunchDesc, MemoryInfo, ModuleFault, ModuleId,
    ModuleInfo, NativeHandle, Result, StreamId, TimeoutFault, UnsupportedFault,
};

use super::call_error;
use super::imports::{self, check, halves};

/// A wait without bound.
const FOREVER: u64 = u64::MAX;

/// A lease's context, which lives in the host.
pub(super) struct GuestContext {
    lease_id: u128,
    device: DeviceInfo,
}

impl GuestContext {
    pub(super) fn new(lease_id: u128, device: DeviceInfo) -> Self {
        Self { lease_id, device }
    }
}

fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(FOREVER, |timeout| {
        u64::try_from(timeout.as_nanos())
            .unwrap_or(FOREVER)
            .min(FOREVER - 1)
    })
}

/// Names the import in a failure.
fn named<T>(entry_point: &'static str, answer: Result<T, i32>) -> Result<T> {
    answer.map_err(|status| call_error(entry_point, status))
}

/// As [`named`], for a wait.
fn waited(entry_point: &'static str, status: i32, timeout_ns: u64) -> Result<()> {
    match ErrorKind::from_code(status) {
        Some(ErrorKind::Timeout) => Err(GpuError::Timeout(TimeoutFault {
            waited_ns: timeout_ns,
        })),
        _ => named(entry_point, check(status)).map(drop),
    }
}

/// As [`named`], for a handle that the host may not know.
fn with_handle<T>(
    entry_point: &'static str,
    answer: Result<T, i32>,
    kind: HandleKind,
    id: u64,
) -> Result<T> {
    answer.map_err(|status| match ErrorKind::from_code(status) {
        Some(ErrorKind::InvalidHandle) => GpuError::InvalidHandle(HandleFault { kind, id }),
        _ => call_error(entry_point, status),
    })
}

impl GpuContext for GuestContext {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn alloc(&self, desc: &BufferDesc) -> Result<BufferInfo> {
        let address = named(
            "gpu_session_mem_alloc",
            imports::mem_alloc(self.lease_id, desc.size_bytes),
        )?;
        Ok(BufferInfo {
            id: BufferId(address),
            address,
            size_bytes: desc.size_bytes,
        })
    }

    fn free(&self, buffer: BufferId) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let answer = check(imports::gpu_session_mem_free(high, low, buffer.0));
        with_handle("gpu_session_mem_free", answer, HandleKind::Buffer, buffer.0).map(drop)
    }

    fn write(&self, stream: StreamId, dst: BufferRange, data: &[u8]) -> Result<()> {
        let answer = imports::mem_write(
            self.lease_id,
            stream.0,
            dst.buffer.0,
            dst.offset_bytes,
            data,
        );
        with_handle(
            "gpu_session_mem_write",
            answer,
            HandleKind::Buffer,
            dst.buffer.0,
        )
        .map(drop)
    }

    fn read(&self, stream: StreamId, src: BufferRange, out: &mut [u8]) -> Result<()> {
        let answer =
            imports::mem_read(self.lease_id, stream.0, src.buffer.0, src.offset_bytes, out);
        with_handle(
            "gpu_session_mem_read",
            answer,
            HandleKind::Buffer,
            src.buffer.0,
        )
        .map(drop)
    }

    fn copy(&self, stream: StreamId, dst: BufferRange, src: BufferRange) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let status = imports::gpu_session_mem_copy(
            high,
            low,
            stream.0,
            dst.buffer.0,
            dst.offset_bytes,
            src.buffer.0,
            src.offset_bytes,
            dst.len_bytes,
        );
        named("gpu_session_mem_copy", check(status)).map(drop)
    }

    fn fill(&self, stream: StreamId, dst: BufferRange, pattern: FillPattern) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let status = imports::gpu_session_mem_fill(
            high,
            low,
            stream.0,
            dst.buffer.0,
            dst.offset_bytes,
            dst.len_bytes,
            u32::from_le_bytes(pattern.to_word_bytes()),
            // A pattern has at most 4 bytes.
            pattern.len_bytes() as u32,
        );
        named("gpu_session_mem_fill", check(status)).map(drop)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let [
            total_bytes,
            free_bytes,
            live_bytes,
            live_buffers,
            reserved_bytes,
        ] = named("gpu_session_mem_info", imports::mem_info(self.lease_id))?;
        Ok(MemoryInfo {
            total_bytes,
            free_bytes,
            live_bytes,
            live_buffers,
            reserved_bytes,
        })
    }

    fn trim(&self) -> Result<u64> {
        named("gpu_session_mem_trim", imports::mem_trim(self.lease_id))
    }

    fn load_module(&self, image: &[u8]) -> Result<ModuleInfo> {
        let format = ImageFormat::recognize(image);
        match imports::module_load(self.lease_id, image) {
            Ok(id) => Ok(ModuleInfo {
                id: ModuleId(id),
                format,
            }),
            Err(status) if ErrorKind::from_code(status) == Some(ErrorKind::InvalidModule) => {
                Err(GpuError::InvalidModule(ModuleFault {
                    format,
                    len_bytes: image.len() as u64,
                    reason: imports::error_text(),
                }))
            }
            Err(status) => Err(call_error("gpu_session_module_load", status)),
        }
    }

    fn unload_module(&self, module: ModuleId) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let answer = check(imports::gpu_session_module_unload(high, low, module.0));
        with_handle(
            "gpu_session_module_unload",
            answer,
            HandleKind::Module,
            module.0,
        )
        .map(drop)
    }

    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelInfo> {
        match imports::module_kernel(self.lease_id, module.0, name) {
            Ok(id) => {
                let mut info = KernelInfo::new(KernelId(id), name, u32::MAX);
                // The host knows the kernel's limit and applies it.
                info.max_dynamic_shared_bytes = u32::MAX;
                Ok(info)
            }
            Err(status) if ErrorKind::from_code(status) == Some(ErrorKind::KernelNotFound) => {
                let available = self.kernel_names(module).unwrap_or_default();
                Err(GpuError::KernelNotFound(KernelFault {
                    name: name.to_owned(),
                    available,
                }))
            }
            Err(status) => Err(call_error("gpu_session_module_kernel", status)),
        }
    }

    fn kernel_names(&self, module: ModuleId) -> Result<Vec<String>> {
        const NAME: &str = "gpu_session_module_kernel_names";
        let mut text = Vec::new();
        let len = named(
            NAME,
            imports::module_kernel_names(self.lease_id, module.0, &mut text),
        )?;
        text.resize(len, 0);
        named(
            NAME,
            imports::module_kernel_names(self.lease_id, module.0, &mut text),
        )?;
        Ok(String::from_utf8_lossy(&text)
            .lines()
            .map(ToOwned::to_owned)
            .collect())
    }

    fn global(&self, module: ModuleId, name: &str) -> Result<GlobalInfo> {
        match imports::module_global(self.lease_id, module.0, name) {
            Ok([address, size_bytes]) => Ok(GlobalInfo {
                buffer: BufferId(address),
                address,
                size_bytes,
            }),
            Err(status) if ErrorKind::from_code(status) == Some(ErrorKind::KernelNotFound) => {
                let available = Vec::new();
                Err(GpuError::KernelNotFound(KernelFault {
                    name: name.to_owned(),
                    available,
                }))
            }
            Err(status) => Err(call_error("gpu_session_module_global", status)),
        }
    }

    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<()> {
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (launch.grid, launch.block);
        let dimensions = [
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            launch.dynamic_shared_bytes,
        ];
        let args = launch
            .args
            .iter()
            .flat_map(|arg| arg.bytes)
            .copied()
            .collect::<Vec<_>>();
        // A size came in as 32 bits.
        let sizes = launch
            .args
            .iter()
            .map(|arg| arg.bytes.len() as u32)
            .collect::<Vec<_>>();
        let (stream, kernel) = (launch.stream.0, launch.kernel.0);
        let answer = imports::launch(self.lease_id, stream, kernel, &dimensions, &args, &sizes);
        named("gpu_session_launch", answer).map(drop)
    }

    fn create_stream(&self) -> Result<StreamId> {
        named(
            "gpu_session_stream_create",
            imports::stream_create(self.lease_id),
        )
        .map(StreamId)
    }

    fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let answer = check(imports::gpu_session_stream_destroy(high, low, stream.0));
        with_handle(
            "gpu_session_stream_destroy",
            answer,
            HandleKind::Stream,
            stream.0,
        )
        .map(drop)
    }

    fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let timeout_ns = nanoseconds(timeout);
        let status = imports::gpu_session_stream_sync(high, low, stream.0, timeout_ns);
        waited("gpu_session_stream_sync", status, timeout_ns)
    }

    fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let timeout_ns = nanoseconds(timeout);
        waited(
            "gpu_session_sync",
            imports::gpu_session_sync(high, low, timeout_ns),
            timeout_ns,
        )
    }

    fn poll(&self) -> Result<bool> {
        let (high, low) = halves(self.lease_id);
        named(
            "gpu_session_poll",
            check(imports::gpu_session_poll(high, low)),
        )
        .map(|idle| idle != 0)
    }

    fn create_event(&self) -> Result<EventId> {
        named(
            "gpu_session_event_create",
            imports::event_create(self.lease_id),
        )
        .map(EventId)
    }

    fn destroy_event(&self, event: EventId) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let answer = check(imports::gpu_session_event_destroy(high, low, event.0));
        with_handle(
            "gpu_session_event_destroy",
            answer,
            HandleKind::Event,
            event.0,
        )
        .map(drop)
    }

    fn record_event(&self, event: EventId, stream: StreamId) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let status = imports::gpu_session_event_record(high, low, event.0, stream.0);
        named("gpu_session_event_record", check(status)).map(drop)
    }

    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let status = imports::gpu_session_event_wait(high, low, stream.0, event.0);
        named("gpu_session_event_wait", check(status)).map(drop)
    }

    fn query_event(&self, event: EventId) -> Result<EventStatus> {
        let (high, low) = halves(self.lease_id);
        let status = imports::gpu_session_event_query(high, low, event.0);
        named("gpu_session_event_query", check(status)).map(|status| match status {
            0 => EventStatus::NotRecorded,
            1 => EventStatus::Pending,
            _ => EventStatus::Complete,
        })
    }

    fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        let (high, low) = halves(self.lease_id);
        let timeout_ns = nanoseconds(timeout);
        let status = imports::gpu_session_event_sync(high, low, event.0, timeout_ns);
        waited("gpu_session_event_sync", status, timeout_ns)
    }

    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        let answer = imports::event_elapsed(self.lease_id, start.0, end.0);
        named("gpu_session_event_elapsed", answer)
    }

    fn with_native(
        &self,
        _stream: StreamId,
        _buffers: &[BufferId],
        _use_handle: &mut dyn FnMut(&NativeHandle),
    ) -> Result<()> {
        Err(GpuError::Unsupported(UnsupportedFault {
            what: String::from("native handles"),
            reason: String::from("a guest cannot reach the host's driver"),
        }))
    }

    fn close(&self, _timeout: Option<Duration>) -> Result<CloseReport> {
        // The lease's end closes the context; what a guest still held is the host's to report.
        Ok(CloseReport::default())
    }
}
