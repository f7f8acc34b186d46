//! An opened lease: its context, its objects, and the calls on them.

mod launch;
mod memory;
mod module;
mod stream;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use grafos_host_abi::{BufferRange, DeviceInfo, GpuContext, GpuError, LostFault};

pub(crate) use self::launch::LaunchRequest;
pub(crate) use self::memory::BufferEntry;
use self::memory::EMPTY_BUFFER_BASE;
pub(crate) use self::module::{KernelEntry, ModuleEntry};
use super::lease::LeaseCore;
use super::validate;
use crate::error::{FabricError, HandleKind, Result};
use crate::sync::Mutex;

/// The context of a lease and everything that lives in it.
pub(crate) struct SessionCore {
    lease: Arc<LeaseCore>,
    context: Box<dyn GpuContext>,
    buffers: Mutex<BTreeMap<u64, Arc<BufferEntry>>>,
    modules: Mutex<BTreeMap<u64, Arc<ModuleEntry>>>,
    /// Set once `lost` is: what every call looks at.
    is_lost: AtomicBool,
    lost: Mutex<Option<LostFault>>,
    next_empty_address: AtomicU64,
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
            is_lost: AtomicBool::new(false),
            lost: Mutex::new(None),
            next_empty_address: AtomicU64::new(EMPTY_BUFFER_BASE),
        }
    }

    pub(crate) fn device(&self) -> &DeviceInfo {
        self.context.device()
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

    fn ensure_usable(&self) -> Result<()> {
        self.lease.ensure_usable()?;
        if self.is_lost.load(Ordering::Acquire)
            && let Some(fault) = &*self.lost.lock()
        {
            return Err(FabricError::DeviceLost(fault.clone()));
        }
        Ok(())
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
            self.is_lost.store(true, Ordering::Release);
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
