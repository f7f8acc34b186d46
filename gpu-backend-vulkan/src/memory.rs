//! Device memory: which memory buffers are made of, how bytes get there and back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ash::vk;
use grafos_host_abi::{
    BufferDesc, BufferId, BufferInfo, BufferRange, CapacityFault, FillPattern, GpuError,
    HandleFault, HandleKind, MemoryInfo, Result, StreamId,
};
use parking_lot::Mutex;

use crate::context::{Garbage, Shared};
use crate::driver::{Allocator, Device, DeviceBuffer, MemoryType, Region};

/// Staging memory for small writes, shared by those of one batch.
const SMALL_CHUNK_BYTES: u64 = 256 << 10;
/// Staging memory for large writes and reads.
const LARGE_CHUNK_BYTES: u64 = 4 << 20;
/// Chunks that one large write or read has on their way at once.
const CHUNKS_IN_FLIGHT: usize = 4;
/// The longest write that goes through shared staging memory.
const SMALL_WRITE_BYTES: usize = 64 << 10;
/// The longest write to mapped memory that is staged rather than waited for when its stream is
/// busy.
const STAGED_WRITE_BYTES: usize = 4 << 20;
/// How long an allocation waits for deferred frees when memory is exhausted.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// Which memory types a context uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// What buffers are made of.
    pub(crate) device: MemoryType,
    /// What staging memory is made of: host-visible and coherent.
    pub(crate) staging: MemoryType,
    /// Whether bytes are written to buffers through their mapping.
    pub(crate) direct_write: bool,
    /// Whether bytes are read from buffers through their mapping.
    pub(crate) direct_read: bool,
}

impl MemoryPlan {
    /// Chooses among the types in `allowed` (a bit for each). `None` when the device has no
    /// memory that the host can see.
    pub(crate) fn choose(
        types: &[MemoryType],
        allowed: u32,
        kind: vk::PhysicalDeviceType,
        prefer_staging: bool,
    ) -> Option<Self> {
        let usable = || {
            types
                .iter()
                .filter(|memory| memory.plain && allowed & (1 << memory.index) != 0)
        };
        let shares_host_memory = matches!(
            kind,
            vk::PhysicalDeviceType::CPU | vk::PhysicalDeviceType::INTEGRATED_GPU
        );
        let mapped = |memory: &MemoryType| memory.host_visible && memory.host_coherent;
        let device = *usable().max_by_key(|memory| {
            (
                memory.device_local,
                memory.heap_bytes,
                // The host's view costs address space and, on a card, speed.
                mapped(memory) == shares_host_memory,
                shares_host_memory && memory.host_cached,
                // The first of equals: drivers list the best first.
                u32::MAX - memory.index,
            )
        })?;
        let staging = *usable()
            .filter(|memory| mapped(memory))
            .max_by_key(|memory| {
                (
                    memory.host_cached,
                    !memory.device_local,
                    u32::MAX - memory.index,
                )
            })?;
        let direct = shares_host_memory && mapped(&device) && !prefer_staging;
        Some(Self {
            device,
            staging,
            direct_write: direct,
            // Reading memory that the host does not cache is slower than a staged copy.
            direct_read: direct && device.host_cached,
        })
    }
}

/// The memory of a context.
pub(crate) struct Memory {
    pub(crate) plan: MemoryPlan,
    pub(crate) staging: Staging,
    allocator: Arc<Allocator>,
    live_bytes: AtomicU64,
    max_allocation_bytes: u64,
}

impl Memory {
    pub(crate) fn new(
        device: &Arc<Device>,
        plan: MemoryPlan,
        max_allocation_bytes: u64,
    ) -> Result<Self> {
        let allocator = Allocator::new(device)?;
        Ok(Self {
            plan,
            staging: Staging {
                allocator: Arc::clone(&allocator),
                memory: plan.staging,
                small: Mutex::new(Vec::new()),
                large: Mutex::new(Vec::new()),
            },
            allocator,
            live_bytes: AtomicU64::new(0),
            max_allocation_bytes,
        })
    }

    /// Live buffers' sizes together, in bytes.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }
}

/// Mapped memory that bytes pass through, kept for the next time.
pub(crate) struct Staging {
    allocator: Arc<Allocator>,
    memory: MemoryType,
    small: Mutex<Vec<Arc<DeviceBuffer>>>,
    large: Mutex<Vec<Arc<DeviceBuffer>>>,
}

impl Staging {
    /// Takes a chunk of 256 KiB.
    pub(crate) fn small(&self) -> Result<Arc<DeviceBuffer>> {
        self.take(&self.small, SMALL_CHUNK_BYTES)
    }

    fn large(&self) -> Result<Arc<DeviceBuffer>> {
        self.take(&self.large, LARGE_CHUNK_BYTES)
    }

    fn take(
        &self,
        spare: &Mutex<Vec<Arc<DeviceBuffer>>>,
        size_bytes: u64,
    ) -> Result<Arc<DeviceBuffer>> {
        if let Some(chunk) = spare.lock().pop() {
            return Ok(chunk);
        }
        Ok(Arc::new(self.allocator.buffer(size_bytes, self.memory)?))
    }

    /// Takes a chunk back, unless somebody else still holds it and will give it back.
    pub(crate) fn give_back(&self, chunk: Arc<DeviceBuffer>) {
        if Arc::strong_count(&chunk) > 1 {
            return;
        }
        let spare = if chunk.size_bytes() == SMALL_CHUNK_BYTES {
            &self.small
        } else {
            &self.large
        };
        spare.lock().push(chunk);
    }

    fn clear(&self) {
        let small = std::mem::take(&mut *self.small.lock());
        let large = std::mem::take(&mut *self.large.lock());
        drop((small, large));
    }
}

impl Shared {
    pub(crate) fn alloc(&self, desc: &BufferDesc) -> Result<BufferInfo> {
        self.device.ensure_alive()?;
        let size_bytes = desc.size_bytes;
        let memory = &self.memory;
        let live = memory.live_bytes();
        let room = memory.plan.device.heap_bytes.saturating_sub(live);
        if size_bytes > memory.max_allocation_bytes.min(room) {
            return Err(GpuError::OutOfMemory(CapacityFault {
                resource: "device memory",
                requested: size_bytes,
                available: Some(memory.max_allocation_bytes.min(room)),
                unit: "bytes",
                cause: None,
            }));
        }
        self.collect();
        let buffer = match memory.allocator.buffer(size_bytes, memory.plan.device) {
            // What is freed and waits for its work may be all that is missing.
            Err(GpuError::OutOfMemory(_)) if self.reclaim() => {
                memory.allocator.buffer(size_bytes, memory.plan.device)
            }
            other => other,
        }
        .map_err(|failure| match failure {
            GpuError::OutOfMemory(mut fault) => {
                fault.available = fault.available.or(Some(self.free_bytes()));
                GpuError::OutOfMemory(fault)
            }
            other => other,
        })?;
        let address = buffer.address();
        let id = self.buffers.write().insert(Arc::new(buffer));
        memory.live_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        Ok(BufferInfo {
            id: BufferId(id),
            address,
            size_bytes,
        })
    }

    /// Waits for deferred frees and gives cached memory back; false when there was none.
    fn reclaim(&self) -> bool {
        let pending = self.has_garbage();
        if pending && self.sync(Some(RECLAIM_TIMEOUT)).is_err() {
            return false;
        }
        self.collect();
        self.memory.staging.clear();
        pending
    }

    pub(crate) fn free(&self, buffer: BufferId) -> Result<()> {
        let removed = self.buffers.write().remove(buffer.0);
        let Some(removed) = removed else {
            return Err(unknown(buffer));
        };
        self.memory
            .live_bytes
            .fetch_sub(removed.size_bytes(), Ordering::Relaxed);
        self.discard(Garbage::Buffer(removed));
        Ok(())
    }

    fn buffer(&self, buffer: BufferId) -> Result<Arc<DeviceBuffer>> {
        let buffers = self.buffers.read();
        let found = buffers.get(buffer.0).ok_or_else(|| unknown(buffer))?;
        Ok(Arc::clone(found))
    }

    pub(crate) fn write(&self, stream: StreamId, dst: BufferRange, data: &[u8]) -> Result<()> {
        self.device.ensure_alive()?;
        let stream = self.stream(stream)?;
        if self.memory.plan.direct_write {
            let idle = stream.is_idle()?;
            if idle || data.len() > STAGED_WRITE_BYTES {
                let target = self.buffer(dst.buffer)?;
                if !idle {
                    self.wait_for_stream(&stream, None)?;
                }
                return inside(target.write(dst.offset_bytes, data), dst, &target);
            }
        }
        if data.len() <= SMALL_WRITE_BYTES {
            return self.record(&stream, |batch| {
                let buffers = self.buffers.read();
                let target = buffers
                    .get(dst.buffer.0)
                    .ok_or_else(|| unknown(dst.buffer))?;
                batch.write_small(&self.memory.staging, target, dst.offset_bytes, data)
            });
        }
        let mut values = VecDeque::new();
        let mut offset = dst.offset_bytes;
        for part in data.chunks(LARGE_CHUNK_BYTES as usize) {
            if values.len() == CHUNKS_IN_FLIGHT
                && let Some(oldest) = values.pop_front()
            {
                self.wait_for_value(&stream, oldest, None)?;
                stream.retire(&self.memory.staging)?;
            }
            let chunk = self.memory.staging.large()?;
            inside(chunk.write(0, part), dst, &chunk)?;
            self.record(&stream, |batch| {
                let buffers = self.buffers.read();
                let target = buffers
                    .get(dst.buffer.0)
                    .ok_or_else(|| unknown(dst.buffer))?;
                batch.copy(
                    target,
                    &chunk,
                    Region {
                        src_offset: 0,
                        dst_offset: offset,
                        len: part.len() as u64,
                    },
                );
                batch.keep(Arc::clone(&chunk));
                Ok(())
            })?;
            drop(chunk);
            values.push_back(stream.flush(&self.device, &self.memory.staging)?);
            offset += part.len() as u64;
        }
        Ok(())
    }

    pub(crate) fn read(&self, stream: StreamId, src: BufferRange, out: &mut [u8]) -> Result<()> {
        self.device.ensure_alive()?;
        let stream = self.stream(stream)?;
        if self.memory.plan.direct_read {
            let source = self.buffer(src.buffer)?;
            self.wait_for_stream(&stream, None)?;
            return inside(source.read(src.offset_bytes, out), src, &source);
        }
        let mut pending: VecDeque<(Arc<DeviceBuffer>, u64, &mut [u8])> = VecDeque::new();
        let mut offset = src.offset_bytes;
        for part in out.chunks_mut(LARGE_CHUNK_BYTES as usize) {
            if pending.len() == CHUNKS_IN_FLIGHT
                && let Some((chunk, value, target)) = pending.pop_front()
            {
                self.finish_read(&stream, chunk, value, target, src)?;
            }
            let chunk = if part.len() as u64 <= SMALL_CHUNK_BYTES {
                self.memory.staging.small()?
            } else {
                self.memory.staging.large()?
            };
            let len = part.len() as u64;
            self.record(&stream, |batch| {
                let buffers = self.buffers.read();
                let source = buffers
                    .get(src.buffer.0)
                    .ok_or_else(|| unknown(src.buffer))?;
                batch.copy(
                    &chunk,
                    source,
                    Region {
                        src_offset: offset,
                        dst_offset: 0,
                        len,
                    },
                );
                batch.keep(Arc::clone(&chunk));
                Ok(())
            })?;
            let value = stream.flush(&self.device, &self.memory.staging)?;
            pending.push_back((chunk, value, part));
            offset += len;
        }
        while let Some((chunk, value, target)) = pending.pop_front() {
            self.finish_read(&stream, chunk, value, target, src)?;
        }
        Ok(())
    }

    fn finish_read(
        &self,
        stream: &crate::stream::Stream,
        chunk: Arc<DeviceBuffer>,
        value: u64,
        target: &mut [u8],
        src: BufferRange,
    ) -> Result<()> {
        self.wait_for_value(stream, value, None)?;
        inside(chunk.read(0, target), src, &chunk)?;
        stream.retire(&self.memory.staging)?;
        self.memory.staging.give_back(chunk);
        Ok(())
    }

    pub(crate) fn copy(&self, stream: StreamId, dst: BufferRange, src: BufferRange) -> Result<()> {
        self.device.ensure_alive()?;
        let stream = self.stream(stream)?;
        self.record(&stream, |batch| {
            let buffers = self.buffers.read();
            let find = |range: BufferRange| {
                buffers
                    .get(range.buffer.0)
                    .ok_or_else(|| unknown(range.buffer))
            };
            let region = Region {
                src_offset: src.offset_bytes,
                dst_offset: dst.offset_bytes,
                len: dst.len_bytes,
            };
            batch.copy(find(dst)?, find(src)?, region);
            Ok(())
        })
    }

    pub(crate) fn fill(
        &self,
        stream: StreamId,
        dst: BufferRange,
        pattern: FillPattern,
    ) -> Result<()> {
        self.device.ensure_alive()?;
        let stream = self.stream(stream)?;
        // `vkCmdFillBuffer` takes whole words only. Offset and length are multiples of the
        // pattern, so the word begins with the pattern at every multiple of 4.
        let bytes = pattern.to_word_bytes();
        let end = dst.offset_bytes + dst.len_bytes;
        let words_from = dst.offset_bytes.next_multiple_of(4).min(end);
        let words_to = (end - end % 4).max(words_from);
        let edge = |from: u64, to: u64| {
            let phase = (from % 4) as usize;
            bytes
                .get(phase..phase + (to - from) as usize)
                .unwrap_or_default()
        };
        let head = edge(dst.offset_bytes, words_from);
        let tail = edge(words_to, end);
        self.record(&stream, |batch| {
            let buffers = self.buffers.read();
            let target = buffers
                .get(dst.buffer.0)
                .ok_or_else(|| unknown(dst.buffer))?;
            let staging = &self.memory.staging;
            if !head.is_empty() {
                batch.write_small(staging, target, dst.offset_bytes, head)?;
            }
            if words_to > words_from {
                let word = u32::from_ne_bytes(bytes);
                batch.fill(target, words_from, words_to - words_from, word);
            }
            if !tail.is_empty() {
                batch.write_small(staging, target, words_to, tail)?;
            }
            Ok(())
        })
    }

    /// What can still be allocated, in bytes.
    fn free_bytes(&self) -> u64 {
        let heap = self.memory.plan.device;
        let own = heap.heap_bytes.saturating_sub(self.memory.live_bytes());
        match self.device.heap_budget(heap.heap) {
            Some(budget) => {
                // What the driver counts as used holds our empty blocks too.
                let cached = self
                    .memory
                    .allocator
                    .reserved_bytes()
                    .saturating_sub(self.memory.live_bytes());
                budget
                    .budget_bytes
                    .saturating_sub(budget.usage_bytes)
                    .saturating_add(cached)
                    .min(own)
            }
            None => own,
        }
    }

    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        self.device.ensure_alive()?;
        self.collect();
        Ok(MemoryInfo {
            total_bytes: self.memory.plan.device.heap_bytes,
            free_bytes: self.free_bytes(),
            live_bytes: self.memory.live_bytes(),
            live_buffers: self.buffers.read().len() as u64,
            reserved_bytes: self.memory.allocator.reserved_bytes(),
        })
    }

    pub(crate) fn trim(&self) -> Result<u64> {
        self.device.ensure_alive()?;
        self.poll()?;
        let before = self.memory.allocator.reserved_bytes();
        for stream in self.all_streams() {
            stream.trim();
        }
        self.memory.staging.clear();
        self.memory.allocator.trim()?;
        Ok(before.saturating_sub(self.memory.allocator.reserved_bytes()))
    }
}

pub(crate) fn unknown(buffer: BufferId) -> GpuError {
    GpuError::InvalidHandle(HandleFault {
        kind: HandleKind::Buffer,
        id: buffer.0,
    })
}

/// Turns a refused access through a mapping into an error with its numbers. The host checks
/// bounds, so it never gets there.
fn inside(done: bool, range: BufferRange, buffer: &DeviceBuffer) -> Result<()> {
    if done {
        return Ok(());
    }
    Err(GpuError::OutOfBounds(grafos_host_abi::BoundsFault {
        offset_bytes: range.offset_bytes,
        len_bytes: range.len_bytes,
        size_bytes: buffer.size_bytes(),
    }))
}
