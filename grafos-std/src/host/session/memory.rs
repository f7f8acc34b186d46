//! Device memory: buffers, and the calls on them.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use core::time::Duration;

use grafos_host_abi::{BufferDesc, BufferId, FillPattern, GpuError, MemoryInfo, StreamId};

use super::super::gate::{Closed, Gate};
use super::super::validate;
use super::{ModuleEntry, SessionCore};
use crate::error::{FabricError, HandleKind, Result};

/// Where addresses of buffers without bytes begin: no device has memory there.
pub(super) const EMPTY_BUFFER_BASE: u64 = 0xE000_0000_0000_0000;
/// Their distance, so that each looks aligned like a real one.
const EMPTY_BUFFER_STEP: u64 = 256;

/// How long an allocation waits for work that may hold freed memory, before it fails.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// A buffer, or a global variable of a module.
#[derive(Debug)]
pub(crate) struct BufferEntry {
    pub(super) address: u64,
    pub(super) size_bytes: u64,
    /// `None` for a buffer without bytes, of which no backend knows.
    pub(super) id: Option<BufferId>,
    /// The module that a global variable belongs to.
    pub(super) owner: Option<Arc<ModuleEntry>>,
    pub(super) gate: Gate,
}

impl BufferEntry {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl SessionCore {
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

    /// Charges the lease's budget, then asks the device.
    ///
    /// Before it fails, work that may hold freed memory is waited for (at most
    /// [`RECLAIM_TIMEOUT`]), cached memory is returned to the driver, and the request is made once
    /// more.
    fn alloc_on_device(&self, size_bytes: u64) -> Result<(BufferId, u64)> {
        self.lease.charge(size_bytes)?;
        let desc = BufferDesc::new(size_bytes);
        let mut answer = self.context.alloc(&desc);
        if let Err(GpuError::OutOfMemory(_)) = answer {
            // Memory that was freed under running work comes back when the work has ended.
            match self.context.sync(Some(RECLAIM_TIMEOUT)) {
                // Work that does not end keeps its memory: the first answer stands.
                Err(GpuError::Timeout(_)) => {}
                synced => {
                    answer = synced
                        .and_then(|()| self.context.trim())
                        .and_then(|_| self.context.alloc(&desc));
                }
            }
        }
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

    pub(super) fn release_buffer(&self, entry: &BufferEntry) {
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
}
