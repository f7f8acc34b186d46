//! Device memory: blocks from the driver, cut into buffers by `gpu-allocator`.

#![expect(
    unsafe_code,
    reason = "Vulkan calls, and reads and writes of mapped device memory"
)]

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;
use ash::vk::Handle;
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

/// Buffers up to this size are kept when they are dropped, for the next of their size.
const LARGEST_SPARE_BYTES: u64 = 64 << 10;
/// Memory that is kept so, at most.
const MOST_SPARE_BYTES: u64 = 16 << 20;

/// Cuts buffers out of larger blocks of device memory.
pub(crate) struct Allocator {
    /// The pool frees its blocks when it is dropped, so it goes before the device.
    state: Mutex<State>,
    device: Arc<Device>,
}

struct State {
    /// Small buffers ready for use, by memory type and size.
    spare: HashMap<(u32, u64), Vec<Parts>>,
    spare_bytes: u64,
    pool: pool::Allocator,
    /// Buffers with memory from the pool, spare ones included.
    buffers: u64,
}

/// A buffer with its memory, without an owner.
struct Parts {
    raw: vk::Buffer,
    address: u64,
    mapped: Option<NonNull<u8>>,
    allocation: Option<pool::Allocation>,
    memory: u32,
    capacity_bytes: u64,
}

// SAFETY: `mapped` points into memory that stays mapped as long as the allocation lives; Vulkan
// lets any thread use mapped memory and buffer handles.
unsafe impl Send for Parts {}
// SAFETY: as for Send; through a shared reference, mapped memory is only read and written as
// bytes by `DeviceBuffer::read` and `DeviceBuffer::write`.
unsafe impl Sync for Parts {}

impl Allocator {
    /// Creates an allocator that holds no memory yet.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::new(State {
                spare: HashMap::new(),
                spare_bytes: 0,
                pool: new_pool(device)?,
                buffers: 0,
            }),
            device: Arc::clone(device),
        }))
    }

    /// Creates a buffer in memory of a type, for kernels, transfers and descriptors.
    pub(crate) fn buffer(
        self: &Arc<Self>,
        size_bytes: u64,
        memory: MemoryType,
    ) -> Result<DeviceBuffer> {
        self.device.ensure_alive()?;
        // Neighbors begin at such multiples anyway, and more sizes become equal.
        let capacity_bytes = size_bytes.next_multiple_of(ALIGN_BYTES);
        let parts = match self.take_spare(capacity_bytes, memory) {
            Some(parts) => parts,
            None => match self.create(capacity_bytes, memory) {
                Err(GpuError::OutOfMemory(_)) if self.clear_spare() => {
                    self.create(capacity_bytes, memory)?
                }
                other => other?,
            },
        };
        Ok(DeviceBuffer {
            parts,
            size_bytes,
            allocator: Arc::clone(self),
        })
    }

    fn take_spare(&self, capacity_bytes: u64, memory: MemoryType) -> Option<Parts> {
        if capacity_bytes > LARGEST_SPARE_BYTES {
            return None;
        }
        let mut state = self.state.lock();
        let parts = state
            .spare
            .get_mut(&(memory.index, capacity_bytes))?
            .pop()?;
        state.spare_bytes -= capacity_bytes;
        Some(parts)
    }

    fn create(&self, capacity_bytes: u64, memory: MemoryType) -> Result<Parts> {
        let info = buffer_info(capacity_bytes);
        let device = self.device.raw();
        // SAFETY: `info` is valid for the call.
        let raw = unsafe { device.create_buffer(&info, None) }.map_err(|result| {
            self.device
                .failure("vkCreateBuffer", result, capacity_bytes)
        })?;
        let mut parts = Parts {
            raw,
            address: 0,
            mapped: None,
            allocation: None,
            memory: memory.index,
            capacity_bytes,
        };
        match self.bind(&mut parts, memory) {
            Ok(()) => Ok(parts),
            Err(failure) => {
                self.destroy([parts]);
                Err(failure)
            }
        }
    }

    /// Gives a new buffer its memory and address.
    fn bind(&self, parts: &mut Parts, memory: MemoryType) -> Result<()> {
        let device = self.device.raw();
        // SAFETY: the buffer is live.
        let mut requirements = unsafe { device.get_buffer_memory_requirements(parts.raw) };
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
        let allocation = {
            let mut state = self.state.lock();
            let allocation = state
                .pool
                .allocate(&pool::AllocationCreateDesc {
                    name: "",
                    requirements,
                    location: location(memory),
                    linear: true,
                    allocation_scheme: pool::AllocationScheme::GpuAllocatorManaged,
                })
                .map_err(|cause| self.failure(&cause, parts.capacity_bytes))?;
            state.buffers += 1;
            allocation
        };
        parts.mapped = allocation.mapped_ptr().map(NonNull::cast);
        let offset = allocation.offset();
        // SAFETY: the allocation is kept as long as the buffer that is bound to it.
        let block = unsafe { allocation.memory() };
        parts.allocation = Some(allocation);
        // SAFETY: the buffer is new, and the memory is of an allowed type, aligned and large
        // enough.
        let outcome = unsafe { device.bind_buffer_memory(parts.raw, block, offset) };
        self.device.check("vkBindBufferMemory", outcome)?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(parts.raw);
        // SAFETY: the buffer has memory and the usage for it.
        parts.address = unsafe { device.get_buffer_device_address(&info) };
        Ok(())
    }

    fn give_back(&self, parts: Parts) {
        let capacity_bytes = parts.capacity_bytes;
        {
            let mut state = self.state.lock();
            if capacity_bytes <= LARGEST_SPARE_BYTES
                && state.spare_bytes + capacity_bytes <= MOST_SPARE_BYTES
            {
                state.spare_bytes += capacity_bytes;
                let key = (parts.memory, capacity_bytes);
                state.spare.entry(key).or_default().push(parts);
                return;
            }
        }
        self.destroy([parts]);
    }

    /// Destroys buffers that no work uses any more.
    fn destroy(&self, buffers: impl IntoIterator<Item = Parts>) {
        for parts in buffers {
            // SAFETY: created from this device; no work uses it any more.
            unsafe { self.device.raw().destroy_buffer(parts.raw, None) };
            if let Some(allocation) = parts.allocation {
                let mut state = self.state.lock();
                state.buffers -= 1;
                // It fails only for an allocation of another pool, which this cannot be.
                let _ = state.pool.free(allocation);
            }
        }
    }

    /// Destroys the spare buffers; false when there were none.
    fn clear_spare(&self) -> bool {
        let spare = {
            let mut state = self.state.lock();
            state.spare_bytes = 0;
            std::mem::take(&mut state.spare)
        };
        let any = !spare.is_empty();
        self.destroy(spare.into_values().flatten());
        any
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

    /// Gives blocks without buffers back to the driver.
    ///
    /// The pool keeps one empty block for itself, so it is replaced when it holds nothing.
    pub(crate) fn trim(&self) -> Result<()> {
        self.clear_spare();
        let mut state = self.state.lock();
        if state.buffers == 0 && state.pool.capacity() > 0 {
            state.pool = new_pool(&self.device)?;
        }
        Ok(())
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        self.clear_spare();
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
    parts: Parts,
    size_bytes: u64,
    allocator: Arc<Allocator>,
}

impl DeviceBuffer {
    pub(super) fn raw(&self) -> vk::Buffer {
        self.parts.raw
    }

    /// The buffer's handle as a number.
    pub(crate) fn handle(&self) -> u64 {
        self.parts.raw.as_raw()
    }

    pub(crate) fn address(&self) -> u64 {
        self.parts.address
    }

    /// The size that was asked for.
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
        let base = self.parts.mapped?;
        // SAFETY: the offset is inside the allocation, so it fits and stays in one object.
        Some(unsafe { base.add(offset as usize) })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let parts = std::mem::replace(
            &mut self.parts,
            Parts {
                raw: vk::Buffer::null(),
                address: 0,
                mapped: None,
                allocation: None,
                memory: 0,
                capacity_bytes: 0,
            },
        );
        self.allocator.give_back(parts);
    }
}
