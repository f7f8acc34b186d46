//! Device memory: blocks from the driver, cut into buffers by `gpu-allocator`.

#![expect(
    unsafe_code,
    reason = "Vulkan calls, and reads and writes of mapped device memory"
)]

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk::Handle;
use ash::vk;
use gpu_allocator::vulkan as pool;
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use grafos_host_abi::{GpuError, Result};
use parking_lot::Mutex;

use super::{Device, MemoryType};
use crate::error;

/// Aligned for every scalar and vector type, and for every descriptor offset that drivers ask for.
const ALIGN_BYTES: u64 = 256;

/// The first block; each further one is twice as large, up to the largest.
const FIRST_BLOCK_BYTES: u64 = 8 << 20;
const LARGEST_BLOCK_BYTES: u64 = 256 << 20;

/// Cuts buffers out of larger blocks of device memory.
pub(crate) struct Allocator {
    /// The allocator frees its blocks when it is dropped, so it goes before the device.
    state: Mutex<State>,
    device: Arc<Device>,
}

struct State {
    pool: pool::Allocator,
    /// Buffers that have not been dropped.
    live: u64,
}

impl Allocator {
    /// Creates an allocator that holds no memory yet.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::new(State {
                pool: new_pool(device)?,
                live: 0,
            }),
            device: Arc::clone(device),
        }))
    }

    /// Creates a buffer in memory of a type, for kernels, transfers and descriptors.
    pub(crate) fn buffer(self: &Arc<Self>, size_bytes: u64, memory: MemoryType) -> Result<DeviceBuffer> {
        self.device.ensure_alive()?;
        let info = buffer_info(size_bytes);
        let device = self.device.raw();
        // SAFETY: `info` is valid for the call.
        let raw = unsafe { device.create_buffer(&info, None) }
            .map_err(|result| self.device.failure("vkCreateBuffer", result, size_bytes))?;
        // From here on the buffer is destroyed on every way out.
        let mut buffer = DeviceBuffer {
            raw,
            address: 0,
            size_bytes,
            mapped: None,
            allocation: None,
            allocator: Arc::clone(self),
        };
        // SAFETY: the buffer is live.
        let mut requirements = unsafe { device.get_buffer_memory_requirements(raw) };
        requirements.alignment = requirements.alignment.max(ALIGN_BYTES);
        let allowed = requirements.memory_type_bits;
        requirements.memory_type_bits &= 1 << memory.index;
        if requirements.memory_type_bits == 0 {
            return Err(GpuError::Driver(error::driver_fault(
                "vkGetBufferMemoryRequirements",
                vk::Result::ERROR_UNKNOWN,
                format!(
                    "memory type {} is not among those allowed for buffers ({allowed:#x})",
                    memory.index
                ),
            )));
        }
        let desc = pool::AllocationCreateDesc {
            name: "",
            requirements,
            location: location(memory),
            linear: true,
            allocation_scheme: pool::AllocationScheme::GpuAllocatorManaged,
        };
        {
            let mut state = self.state.lock();
            let allocation = state
                .pool
                .allocate(&desc)
                .map_err(|cause| self.failure(&cause, size_bytes))?;
            state.live += 1;
            buffer.allocation = Some(allocation);
        }
        let Some(allocation) = &buffer.allocation else {
            return Ok(buffer);
        };
        buffer.mapped = allocation.mapped_ptr().map(NonNull::cast);
        // SAFETY: the allocation gives memory and an offset that is its own until it is freed.
        let (memory, offset) = (unsafe { allocation.memory() }, allocation.offset());
        // SAFETY: the buffer is new, and the memory is of an allowed type, aligned and large
        // enough.
        let outcome = unsafe { device.bind_buffer_memory(raw, memory, offset) };
        outcome.map_err(|result| self.device.failure("vkBindBufferMemory", result, size_bytes))?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(raw);
        // SAFETY: the buffer has memory and the usage for it.
        buffer.address = unsafe { device.get_buffer_device_address(&info) };
        Ok(buffer)
    }

    fn failure(&self, cause: &AllocationError, requested: u64) -> GpuError {
        let result = match cause {
            AllocationError::OutOfMemory => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            // The allocator keeps other codes as text.
            AllocationError::Internal(text) if text.contains("DEVICE_LOST") => {
                vk::Result::ERROR_DEVICE_LOST
            }
            AllocationError::Internal(text)
                if text.contains("OUT_OF_HOST_MEMORY") || text.contains("TOO_MANY_OBJECTS") =>
            {
                vk::Result::ERROR_OUT_OF_HOST_MEMORY
            }
            other => {
                return GpuError::Driver(error::driver_fault(
                    "vkAllocateMemory",
                    vk::Result::ERROR_UNKNOWN,
                    format!("requested {requested} bytes: {other}"),
                ));
            }
        };
        self.device.failure("vkAllocateMemory", result, requested)
    }

    /// Memory held from the driver, in bytes.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.state.lock().pool.capacity()
    }

    /// Gives blocks without buffers back to the driver, and tells how many bytes that was.
    ///
    /// The pool keeps one empty block for itself, so it is replaced when it holds nothing.
    pub(crate) fn trim(&self) -> Result<u64> {
        let mut state = self.state.lock();
        let reserved = state.pool.capacity();
        if state.live > 0 || reserved == 0 {
            return Ok(0);
        }
        state.pool = new_pool(&self.device)?;
        Ok(reserved)
    }
}

/// A buffer for kernels, transfers and descriptors.
pub(super) fn buffer_info(size_bytes: u64) -> vk::BufferCreateInfo<'static> {
    vk::BufferCreateInfo::default()
        .size(size_bytes)
        .usage(
            vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST
                | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS,
        )
        .sharing_mode(vk::SharingMode::EXCLUSIVE)
}

fn new_pool(device: &Arc<Device>) -> Result<pool::Allocator> {
    let physical = device.physical();
    let mut silent = AllocatorDebugSettings::default();
    silent.log_leaks_on_shutdown = false;
    let desc = pool::AllocatorCreateDesc {
        instance: physical.instance().raw().clone(),
        device: device.raw().clone(),
        physical_device: physical.raw(),
        debug_settings: silent,
        buffer_device_address: true,
        allocation_sizes: AllocationSizes::new(FIRST_BLOCK_BYTES, FIRST_BLOCK_BYTES)
            .with_max_device_memblock_size(LARGEST_BLOCK_BYTES)
            .with_max_host_memblock_size(LARGEST_BLOCK_BYTES),
    };
    pool::Allocator::new(&desc).map_err(|cause| GpuError::InvalidArgument {
        reason: format!("the memory allocator cannot be set up: {cause}"),
    })
}

/// The pool's word for a memory type. The type itself is chosen by the requirements' bits.
fn location(memory: MemoryType) -> MemoryLocation {
    if memory.host_visible && memory.host_coherent {
        MemoryLocation::GpuToCpu
    } else if memory.device_local {
        MemoryLocation::GpuOnly
    } else {
        MemoryLocation::Unknown
    }
}

/// A `VkBuffer` with its memory.
pub(crate) struct DeviceBuffer {
    raw: vk::Buffer,
    address: u64,
    size_bytes: u64,
    mapped: Option<NonNull<u8>>,
    allocation: Option<pool::Allocation>,
    allocator: Arc<Allocator>,
}

// SAFETY: `mapped` points into memory that stays mapped as long as the allocation lives; Vulkan
// lets any thread use mapped memory and buffer handles.
unsafe impl Send for DeviceBuffer {}
// SAFETY: as for Send; through a shared reference, mapped memory is only read and written as
// bytes by `read` and `write`.
unsafe impl Sync for DeviceBuffer {}

impl DeviceBuffer {
    pub(super) fn raw(&self) -> vk::Buffer {
        self.raw
    }

    /// The buffer's handle as a number.
    pub(crate) fn handle(&self) -> u64 {
        self.raw.as_raw()
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Writes bytes through the mapping. False, and nothing is done, when there is no mapping or
    /// the range is not inside the buffer.
    ///
    /// No work on the device may use the range meanwhile. Threads that write one range at once
    /// leave either's bytes in it, as two kernels would.
    #[must_use]
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> bool {
        let Some(target) = self.mapped_range(offset, data.len()) else {
            return false;
        };
        // SAFETY: the range is inside this buffer's mapped memory, which no Rust reference covers.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
        true
    }

    /// Reads bytes through the mapping, as [`write`](Self::write) writes them.
    #[must_use]
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(source) = self.mapped_range(offset, out.len()) else {
            return false;
        };
        let len = out.len();
        // SAFETY: the range is inside this buffer's mapped memory, which no Rust reference covers.
        unsafe { source.copy_to_nonoverlapping(NonNull::from(out).cast(), len) };
        true
    }

    fn mapped_range(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len as u64)?;
        if end > self.size_bytes {
            return None;
        }
        let base = self.mapped?;
        // SAFETY: the offset is inside the allocation, so it fits and stays in one object.
        Some(unsafe { base.add(offset as usize) })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let device = &self.allocator.device;
        // SAFETY: created from this device; no work uses it any more.
        unsafe { device.raw().destroy_buffer(self.raw, None) };
        if let Some(allocation) = self.allocation.take() {
            let mut state = self.allocator.state.lock();
            state.live -= 1;
            // It fails only for an allocation of another pool, which this cannot be.
            let _ = state.pool.free(allocation);
        }
    }
}
