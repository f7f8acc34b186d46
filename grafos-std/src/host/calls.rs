//! The host calls by lease id and raw handle.

use alloc::vec::Vec;

use grafos_host_abi::{StreamId, wire};

use super::{LaunchRequest, LeaseEnd};
use crate::error::{FabricError, Result};
use crate::gpu::GpuExclusivityClass;
use crate::lease::LeaseStatus;

#[cfg(target_arch = "wasm32")]
use super::guest::{acquire_owned, lease, lease_status, now};
#[cfg(not(target_arch = "wasm32"))]
use native::{acquire_owned, lease, lease_status, now};

/// Acquires a shared lease that lives until it is freed by its id or reaches its deadline.
///
/// `resource_id` 0 takes any device; n takes the n-th of the host's list, counted from 1.
///
/// # Errors
///
/// As [`GpuBuilder::acquire`](crate::gpu::GpuBuilder::acquire).
pub fn gpu_lease_alloc(resource_id: u32, lease_secs: u32) -> Result<u128> {
    acquire_owned(&super::LeaseRequest {
        min_vram: 0,
        max_vram: None,
        lease_secs: lease_secs.max(1),
        class: GpuExclusivityClass::Shared,
        affinities: Vec::new(),
        device_index: resource_id.checked_sub(1),
    })
}

/// Tells a lease's status: 0 active, 1 expired or freed, 2 revoked.
///
/// # Errors
///
/// `InvalidHandle` for an id that the host never gave out or no longer remembers (it remembers the
/// last 1,024 leases that ended).
pub fn gpu_lease_query(lease_id: u128) -> Result<i32> {
    Ok(match lease_status(lease_id)? {
        LeaseStatus::Active => wire::LEASE_ACTIVE,
        LeaseStatus::Expired => wire::LEASE_EXPIRED,
        LeaseStatus::Revoked => wire::LEASE_REVOKED,
    })
}

/// Moves a lease's deadline `duration_secs` seconds further.
///
/// # Errors
///
/// `LeaseExpired` or `LeaseRevoked` when it has ended, `InvalidHandle` for an unknown id.
pub fn gpu_lease_renew(lease_id: u128, duration_secs: u64) -> Result<()> {
    lease(lease_id)?.renew(duration_secs)
}

/// Ends a lease. Freeing one that has ended is harmless.
///
/// # Errors
///
/// `InvalidHandle` for an unknown id.
pub fn gpu_lease_free(lease_id: u128) -> Result<()> {
    match lease(lease_id) {
        Ok(lease) => lease.end(LeaseEnd::Expired),
        Err(FabricError::LeaseExpired { .. } | FabricError::LeaseRevoked { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Allocates device memory and answers its device address.
///
/// # Errors
///
/// As [`GpuSession::mem_alloc`](crate::gpu::GpuSession::mem_alloc).
pub fn gpu_session_mem_alloc(lease_id: u128, size_bytes: u64) -> Result<u64> {
    Ok(lease(lease_id)?.session()?.mem_alloc(size_bytes)?.address())
}

/// Frees device memory by its address.
///
/// # Errors
///
/// As [`GpuSession::mem_free`](crate::gpu::GpuSession::mem_free).
pub fn gpu_session_mem_free(lease_id: u128, handle: u64) -> Result<()> {
    let session = lease(lease_id)?.session()?;
    session.mem_free(&*session.buffer(handle)?)
}

/// Writes to device memory by its address.
///
/// # Errors
///
/// As [`GpuSession::mem_write`](crate::gpu::GpuSession::mem_write).
pub fn gpu_session_mem_write(
    lease_id: u128,
    handle: u64,
    offset_bytes: u64,
    data: &[u8],
) -> Result<()> {
    let session = lease(lease_id)?.session()?;
    session.mem_write(
        StreamId::DEFAULT,
        &*session.buffer(handle)?,
        offset_bytes,
        data,
    )
}

/// Reads device memory by its address.
///
/// # Errors
///
/// As [`GpuSession::mem_read`](crate::gpu::GpuSession::mem_read).
pub fn gpu_session_mem_read(
    lease_id: u128,
    handle: u64,
    offset_bytes: u64,
    size_bytes: u32,
) -> Result<Vec<u8>> {
    let session = lease(lease_id)?.session()?;
    let entry = session.buffer(handle)?;
    session.check_read(&entry, offset_bytes, size_bytes.into())?;
    let mut out = alloc::vec![0; size_bytes as usize];
    session.mem_read(StreamId::DEFAULT, &entry, offset_bytes, &mut out)?;
    Ok(out)
}

/// Loads a module and answers its id.
///
/// # Errors
///
/// As [`GpuSession::module_load`](crate::gpu::GpuSession::module_load).
pub fn gpu_session_module_load(lease_id: u128, image: &[u8]) -> Result<u64> {
    Ok(lease(lease_id)?.session()?.module_load(image)?.id())
}

/// Unloads a module by its id.
///
/// # Errors
///
/// As [`GpuSession::module_unload`](crate::gpu::GpuSession::module_unload).
pub fn gpu_session_module_unload(lease_id: u128, module_id: u64) -> Result<()> {
    let session = lease(lease_id)?.session()?;
    session.module_unload(&*session.module(module_id)?)
}

/// Launches a kernel by its module's id and its name.
///
/// # Errors
///
/// As [`GpuSession::launch`](crate::gpu::GpuSession::launch).
pub fn gpu_session_launch(
    lease_id: u128,
    module_id: u64,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    args: &[u8],
    arg_sizes: &[u32],
) -> Result<()> {
    let session = lease(lease_id)?.session()?;
    let kernel = session.kernel(&session.module(module_id)?, kernel)?;
    let request = LaunchRequest {
        grid,
        block,
        dynamic_shared_bytes: 0,
        args,
        arg_sizes,
    };
    session.launch(StreamId::DEFAULT, &kernel, request)
}

/// Waits for all work of a lease's session.
///
/// # Errors
///
/// As [`GpuSession::sync`](crate::gpu::GpuSession::sync).
pub fn gpu_session_sync(lease_id: u128) -> Result<()> {
    lease(lease_id)?.session()?.sync(None)
}

/// The host's wall clock, in unix seconds. For display: leases follow a monotonic clock.
#[must_use]
pub fn unix_time_secs() -> u64 {
    now()
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use alloc::sync::Arc;

    use super::super::clock::{Clock, SystemClock};
    use super::super::{Host, LeaseCore, LeaseRequest};
    use crate::error::{FabricError, Result};
    use crate::lease::LeaseStatus;

    pub(super) fn acquire_owned(request: &LeaseRequest) -> Result<u128> {
        Host::current()?.core().acquire_owned(request)
    }

    pub(super) fn lease(lease_id: u128) -> Result<Arc<LeaseCore>> {
        Host::current()?.core().lease(lease_id)
    }

    pub(super) fn lease_status(lease_id: u128) -> Result<LeaseStatus> {
        match lease(lease_id) {
            Ok(lease) => Ok(lease.status()),
            Err(FabricError::LeaseExpired { .. }) => Ok(LeaseStatus::Expired),
            Err(FabricError::LeaseRevoked { .. }) => Ok(LeaseStatus::Revoked),
            Err(error) => Err(error),
        }
    }

    pub(super) fn now() -> u64 {
        match Host::current() {
            Ok(host) => host.core().clock().unix_time_secs(),
            // A default host that cannot be set up would have used the system's clock.
            Err(_) => SystemClock::new().unix_time_secs(),
        }
    }
}
