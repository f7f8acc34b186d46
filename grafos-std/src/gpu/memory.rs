//! Device memory as its owner holds it.

use alloc::sync::Arc;

use crate::host::{BufferEntry, SessionCore};

/// A handle to device memory. The memory is freed when the last clone is dropped.
///
/// Clones stand for the same memory. [`GpuSession::mem_free`](super::GpuSession::mem_free) frees
/// it at once; other clones are then invalid, and their drops do nothing. A handle keeps to its
/// own allocation: even when the device hands the same address out again, an old handle never
/// reaches the new memory.
///
/// A drop never panics, never waits for the device, and does nothing once the lease has ended:
/// what the lease held has been released with it.
#[derive(Debug, Clone)]
pub struct GpuMemHandle {
    guard: Arc<Guard>,
}

#[derive(Debug)]
struct Guard {
    session: Arc<SessionCore>,
    entry: Arc<BufferEntry>,
}

impl GpuMemHandle {
    pub(super) fn new(session: Arc<SessionCore>, entry: Arc<BufferEntry>) -> Self {
        Self {
            guard: Arc::new(Guard { session, entry }),
        }
    }

    /// The device address (`cuMemAlloc`'s, `hipMalloc`'s, `vkGetBufferDeviceAddress`'s), to be
    /// packed into arguments by hand; [`KernelArgs::push_buffer`](super::KernelArgs::push_buffer)
    /// does it for you. A buffer of zero bytes has an address where no device has memory.
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.guard.entry.address()
    }

    /// The size that was asked for, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.guard.entry.size_bytes()
    }

    pub(super) fn session(&self) -> &Arc<SessionCore> {
        &self.guard.session
    }

    pub(super) fn entry(&self) -> &BufferEntry {
        &self.guard.entry
    }
}

impl PartialEq for GpuMemHandle {
    /// Whether both stand for the same allocation.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.guard.entry, &other.guard.entry)
    }
}

impl Eq for GpuMemHandle {}

impl Drop for Guard {
    fn drop(&mut self) {
        self.session.mem_free_on_drop(&self.entry);
    }
}
