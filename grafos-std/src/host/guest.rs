//! A wasm guest: leases and sessions are imports that a host serves.
//!
//! Each call lowers to one import of the module `fabricbios_gpu_v1`. An import answers a status:
//! 0 (or a count) for success and a negative [`ErrorKind`] code for failure, whose text the guest
//! then fetches. Other results go through pointers into the guest's own memory. The host checks
//! everything again: what a guest checks is for its own good error messages only.

mod context;
mod imports;
mod request;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use grafos_host_abi::{
    CapacityFault, DeviceInfo, DeviceKind, DeviceLimits, DriverFault, DriverInfo, ErrorKind,
    GpuError, LostFault, UnsupportedFault, Vendor, wire,
};

use self::context::GuestContext;
use super::request::LeaseRequest;
use super::session::SessionCore;
use crate::error::{BusyFault, DisconnectedFault, FabricError, Result};
use crate::gpu::GpuExclusivityClass;
use crate::hook::observe;
use crate::lease::{LeaseInfo, LeaseStatus};
use crate::sync::Mutex;

/// How a guest ends a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeaseEnd {
    /// It is freed.
    Expired,
}

/// A lease, which the host keeps; the guest has its id.
#[derive(Debug)]
pub(crate) struct LeaseCore {
    id: u128,
    class: GpuExclusivityClass,
    device: DeviceInfo,
    freed: AtomicBool,
    session: Mutex<Option<Arc<SessionCore>>>,
}

impl LeaseCore {
    pub(crate) fn acquire(request: &LeaseRequest) -> Result<Arc<Self>> {
        let lease = Self::with_id(acquire_owned(request)?, request.class);
        observe!(LeaseAcquired {
            lease_id: lease.id,
            backend: lease.backend_name(),
            device: lease.device.name.clone(),
            class: request.class,
        });
        Ok(lease)
    }

    fn with_id(id: u128, class: GpuExclusivityClass) -> Arc<Self> {
        Arc::new(Self {
            id,
            class,
            device: unknown_device(),
            freed: AtomicBool::new(false),
            session: Mutex::new(None),
        })
    }

    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    pub(crate) fn device(&self) -> &DeviceInfo {
        &self.device
    }

    pub(crate) fn backend_name(&self) -> &'static str {
        wire::IMPORT_MODULE
    }

    pub(crate) fn class(&self) -> GpuExclusivityClass {
        self.class
    }

    pub(crate) fn info(self: &Arc<Self>) -> LeaseInfo {
        LeaseInfo {
            lease_id: self.id,
            created_at_unix_secs: self.created_at_unix_secs(),
            expires_at_unix_secs: self.expires_at_unix_secs(),
            status: self.status(),
        }
    }

    pub(crate) fn created_at_unix_secs(&self) -> u64 {
        imports::lease_times(self.id).map_or(0, |[created, _]| created)
    }

    pub(crate) fn expires_at_unix_secs(&self) -> u64 {
        imports::lease_times(self.id).map_or(0, |[_, expires]| expires)
    }

    pub(crate) fn status(&self) -> LeaseStatus {
        if self.freed.load(Ordering::Acquire) {
            return LeaseStatus::Expired;
        }
        // A host that does not know the lease any more has ended it.
        lease_status(self.id).unwrap_or(LeaseStatus::Expired)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.status() == LeaseStatus::Active
    }

    /// The host refuses what must not be; a guest only knows whether it has freed the lease.
    pub(super) fn ensure_usable(&self) -> Result<()> {
        if self.freed.load(Ordering::Acquire) {
            return Err(FabricError::LeaseExpired { lease_id: self.id });
        }
        Ok(())
    }

    pub(crate) fn renew(&self, duration_secs: u64) -> Result<()> {
        self.ensure_usable()?;
        let (high, low) = imports::halves(self.id);
        named(
            "gpu_lease_renew",
            imports::gpu_lease_renew(high, low, duration_secs),
            self.id,
        )
        .map(drop)?;
        observe!(LeaseRenewed {
            lease_id: self.id,
            added_secs: duration_secs
        });
        Ok(())
    }

    pub(crate) fn end(&self, LeaseEnd::Expired: LeaseEnd) {
        if self.freed.swap(true, Ordering::AcqRel) {
            return;
        }
        observe!(LeaseEnded {
            lease_id: self.id,
            ended_as: LeaseStatus::Expired
        });
        let session = self.session.lock().take();
        if let Some(session) = session {
            // Closing a guest's context waits for nothing: the host takes the lease down.
            let _ = session.close(Some(core::time::Duration::ZERO));
        }
        // There is nobody to tell: a lease that the host does not know has ended.
        let (high, low) = imports::halves(self.id);
        let _ = imports::gpu_lease_free(high, low);
    }

    pub(crate) fn session(self: &Arc<Self>) -> Result<Arc<SessionCore>> {
        self.ensure_usable()?;
        let mut slot = self.session.lock();
        let session = slot.get_or_insert_with(|| {
            let context = Box::new(GuestContext::new(self.id, self.device.clone()));
            Arc::new(SessionCore::new(Arc::clone(self), context))
        });
        Ok(Arc::clone(session))
    }

    pub(crate) fn begin_session(&self) {}

    pub(crate) fn finish_session(&self) {}

    /// The host counts what a lease allocates, and refuses what is too much.
    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        observe!(Allocated {
            lease_id: self.id,
            size_bytes: bytes
        });
        Ok(())
    }

    pub(super) fn refund(&self, bytes: u64) {
        observe!(Freed {
            lease_id: self.id,
            size_bytes: bytes
        });
    }

    pub(super) fn budget(&self) -> Option<Budget> {
        None
    }

    pub(super) fn count_mem_free(&self) {}

    pub(super) fn count_module_unload(&self) {}

    pub(super) fn sync_launch(&self) -> bool {
        false
    }

    pub(super) fn note_device_lost(&self, _fault: &LostFault) {}

    pub(super) fn observe_launch(&self, kernel: &str, grid: [u32; 3], block: [u32; 3]) {
        observe!(Launched {
            lease_id: self.id,
            kernel: String::from(kernel),
            grid_blocks: grid,
            block_threads: block,
        });
    }

    pub(super) fn observe_error(&self, error: &FabricError) {
        observe!(Failed {
            lease_id: self.id,
            error: error.clone()
        });
    }

    pub(crate) fn observe_dropped(&self) {
        observe!(LeaseDropped { lease_id: self.id });
    }
}

/// The memory that a lease can use. Only a host knows one.
pub(super) struct Budget {
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
}

pub(super) fn acquire_owned(request: &LeaseRequest) -> Result<u128> {
    let resource_id = request
        .device_index
        .map_or(0, |index| index.saturating_add(1));
    imports::lease_alloc(resource_id, request.lease_secs, &request::encode(request))
        .map_err(|status| lease_error("gpu_lease_alloc", status, 0))
}

pub(super) fn lease(lease_id: u128) -> Result<Arc<LeaseCore>> {
    lease_status(lease_id)?;
    Ok(LeaseCore::with_id(lease_id, GpuExclusivityClass::Shared))
}

pub(super) fn lease_status(lease_id: u128) -> Result<LeaseStatus> {
    let (high, low) = imports::halves(lease_id);
    let status = named(
        "gpu_lease_query",
        imports::gpu_lease_query(high, low),
        lease_id,
    )?;
    Ok(match status {
        wire::LEASE_ACTIVE => LeaseStatus::Active,
        wire::LEASE_EXPIRED => LeaseStatus::Expired,
        _ => LeaseStatus::Revoked,
    })
}

pub(super) fn now() -> u64 {
    imports::unix_time_secs()
}

/// A device of which a guest knows nothing: the host knows its limits and applies them.
fn unknown_device() -> DeviceInfo {
    let limits = DeviceLimits {
        max_grid: [u32::MAX; 3],
        max_block: [u32::MAX; 3],
        max_threads_per_block: u32::MAX,
        max_shared_memory_bytes: u32::MAX,
        max_argument_bytes: u32::MAX,
        max_allocation_bytes: u64::MAX,
    };
    DeviceInfo::new(
        0,
        "a device of the host",
        Vendor::Other(0),
        DeviceKind::Unknown,
        DriverInfo::default(),
        u64::MAX,
        limits,
    )
}

/// Names the import and the lease in a failure.
fn named(entry_point: &'static str, status: i32, lease_id: u128) -> Result<i32> {
    imports::check(status).map_err(|status| lease_error(entry_point, status, lease_id))
}

/// Translates a failed import. What the text cannot carry as numbers keeps its status code.
fn lease_error(entry_point: &'static str, status: i32, lease_id: u128) -> FabricError {
    match ErrorKind::from_code(status) {
        Some(ErrorKind::LeaseExpired) => FabricError::LeaseExpired { lease_id },
        Some(ErrorKind::LeaseRevoked) => FabricError::LeaseRevoked {
            lease_id,
            reason: imports::error_text(),
        },
        Some(ErrorKind::Disconnected) => FabricError::Disconnected(DisconnectedFault {
            reason: imports::error_text(),
            backends: Vec::new(),
        }),
        Some(ErrorKind::Busy) => FabricError::DeviceBusy(BusyFault {
            device: String::from("a device of the host"),
            holder_lease_id: 0,
            holder_class: "unknown",
            reason: imports::error_text(),
        }),
        _ => FabricError::from(call_error(entry_point, status)),
    }
}

/// Translates a failed import of a session.
fn call_error(entry_point: &'static str, status: i32) -> GpuError {
    let fault = |text: String| DriverFault {
        api: wire::IMPORT_MODULE,
        entry_point,
        code: status.into(),
        code_name: "status".into(),
        detail: text,
    };
    let text = imports::error_text();
    match ErrorKind::from_code(status) {
        Some(ErrorKind::InvalidArgument) => GpuError::InvalidArgument { reason: text },
        Some(ErrorKind::CapacityExceeded) => GpuError::OutOfMemory(CapacityFault {
            resource: "the host's capacity",
            requested: 0,
            available: None,
            unit: "bytes",
            cause: Some(Box::new(fault(text))),
        }),
        Some(ErrorKind::Unsupported) => GpuError::Unsupported(UnsupportedFault {
            what: String::from(entry_point),
            reason: text,
        }),
        Some(ErrorKind::NotReady) => GpuError::NotReady { what: text },
        Some(ErrorKind::DeviceLost) => GpuError::DeviceLost(LostFault {
            reason: text,
            needs_process_restart: false,
        }),
        _ => GpuError::Driver(fault(text)),
    }
}
