//! A lease as its host keeps it.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::OnceLock;

use grafos_host_abi::{ContextOptions, DeviceInfo, GpuError, LostFault};

use super::core::HostCore;
use super::devices::DeviceSlot;
use super::fork;
use super::session::SessionCore;
use super::table::{Budget, ChargeRefusal};
use crate::error::{BusyFault, CapacityFault, DisconnectedFault, FabricError, Result};
use crate::gpu::GpuExclusivityClass;
use crate::hook::observe;
use crate::lease::{LeaseInfo, LeaseStatus};
use crate::sync::Mutex;

const ACTIVE: u8 = 0;
const EXPIRED: u8 = 1;
const REVOKED: u8 = 2;

const NANOS_PER_SEC: u64 = 1_000_000_000;
/// How long a thread that drains an ended lease waits before it looks again.
const DRAIN_INTERVAL: Duration = Duration::from_secs(60);

/// How a lease has ended.
#[derive(Debug, Clone)]
pub(crate) enum LeaseEnd {
    /// It has come to its deadline, or was freed.
    Expired,
    /// The host has taken it back, for a reason.
    Revoked(String),
}

impl LeaseEnd {
    /// What calls on the lease answer.
    pub(super) fn error(&self, lease_id: u128) -> FabricError {
        match self {
            Self::Expired => FabricError::LeaseExpired { lease_id },
            Self::Revoked(reason) => FabricError::LeaseRevoked {
                lease_id,
                reason: reason.clone(),
            },
        }
    }
}

/// A lease, from the moment it is granted.
pub(crate) struct LeaseCore {
    id: u128,
    host: Arc<HostCore>,
    slot: Arc<DeviceSlot>,
    class: GpuExclusivityClass,
    created_unix_secs: u64,
    created_ns: u64,
    deadline_ns: AtomicU64,
    status: AtomicU8,
    /// Why the host has taken the lease back.
    revoked: OnceLock<String>,
    /// The deadline that the reaper knows.
    watched_ns: AtomicU64,
    /// Held while the context opens, so that it opens once.
    opening: Mutex<()>,
    session: Mutex<Option<Arc<SessionCore>>>,
    /// How many `GpuSession` values are alive.
    sessions: AtomicUsize,
}

impl LeaseCore {
    pub(super) fn new(
        id: u128,
        host: Arc<HostCore>,
        slot: Arc<DeviceSlot>,
        class: GpuExclusivityClass,
        duration_secs: u64,
    ) -> Self {
        let created_ns = host.clock().monotonic_ns();
        Self {
            id,
            slot,
            class,
            created_unix_secs: host.clock().unix_time_secs(),
            created_ns,
            deadline_ns: AtomicU64::new(deadline(created_ns, duration_secs)),
            status: AtomicU8::new(ACTIVE),
            revoked: OnceLock::new(),
            watched_ns: AtomicU64::new(0),
            opening: Mutex::new(()),
            session: Mutex::new(None),
            sessions: AtomicUsize::new(0),
            host,
        }
    }

    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    pub(crate) fn device(&self) -> &DeviceInfo {
        self.slot.info()
    }

    pub(super) fn device_index(&self) -> u32 {
        self.slot.index()
    }

    pub(super) fn card_index(&self) -> usize {
        self.slot.card().index()
    }

    pub(crate) fn backend_name(&self) -> &'static str {
        self.slot.backend_name()
    }

    pub(crate) fn class(&self) -> GpuExclusivityClass {
        self.class
    }

    pub(crate) fn info(self: &Arc<Self>) -> LeaseInfo {
        LeaseInfo {
            lease_id: self.id,
            created_at_unix_secs: self.created_unix_secs,
            expires_at_unix_secs: self.expires_at_unix_secs(),
            status: self.status(),
        }
    }

    pub(crate) fn created_at_unix_secs(&self) -> u64 {
        self.created_unix_secs
    }

    pub(crate) fn expires_at_unix_secs(&self) -> u64 {
        let term_ns = self
            .deadline_ns
            .load(Ordering::Acquire)
            .saturating_sub(self.created_ns);
        self.created_unix_secs
            .saturating_add(term_ns / NANOS_PER_SEC)
    }

    /// The status; a lease that is found to be past its deadline is ended here.
    pub(crate) fn status(&self) -> LeaseStatus {
        match self.status.load(Ordering::Acquire) {
            ACTIVE if self.is_past_deadline() => {
                self.end(LeaseEnd::Expired);
                match self.status.load(Ordering::Acquire) {
                    REVOKED => LeaseStatus::Revoked,
                    // In a fork the lease cannot be ended, but past its deadline it is.
                    _ => LeaseStatus::Expired,
                }
            }
            ACTIVE => LeaseStatus::Active,
            REVOKED => LeaseStatus::Revoked,
            _ => LeaseStatus::Expired,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        !fork::is_child() && self.status() == LeaseStatus::Active
    }

    pub(super) fn created_ns(&self) -> u64 {
        self.created_ns
    }

    /// Notes the present deadline as the one that the reaper knows, and answers it.
    pub(super) fn note_watched(&self) -> u64 {
        let deadline_ns = self.deadline_ns.load(Ordering::Acquire);
        self.watched_ns.store(deadline_ns, Ordering::Release);
        deadline_ns
    }

    /// Whether the lease should have ended and has not.
    pub(super) fn is_active_past_deadline(&self) -> bool {
        self.status.load(Ordering::Acquire) == ACTIVE && self.is_past_deadline()
    }

    pub(super) fn is_past_deadline(&self) -> bool {
        self.host.clock().monotonic_ns() >= self.deadline_ns.load(Ordering::Acquire)
    }

    pub(super) fn ensure_active(&self) -> Result<()> {
        if fork::is_child() {
            return Err(forked());
        }
        match self.status() {
            LeaseStatus::Active => Ok(()),
            LeaseStatus::Expired => Err(FabricError::LeaseExpired { lease_id: self.id }),
            LeaseStatus::Revoked => {
                let reason = self.revoked.get().cloned().unwrap_or_default();
                Err(LeaseEnd::Revoked(reason).error(self.id))
            }
        }
    }

    /// Lets work through: the lease is active, and no other lease's session has the card to itself.
    ///
    /// The first work of a session-exclusive lease claims the card.
    pub(super) fn ensure_usable(&self) -> Result<()> {
        self.ensure_active()?;
        let holder = match self.claimed_by_another() {
            // A holder past its deadline holds nothing, though nobody has noticed it yet.
            Some(_) if self.host.end_expired() > 0 => self.claimed_by_another(),
            answer => answer,
        };
        match holder {
            None => Ok(()),
            Some(holder) => Err(FabricError::DeviceBusy(BusyFault {
                device: self.device().name.clone(),
                holder_lease_id: holder,
                holder_class: GpuExclusivityClass::SessionExclusive.name(),
                reason: String::from("work of other leases waits until its session ends"),
            })),
        }
    }

    /// The lease that has the card to itself, or whose work keeps this one from claiming it.
    fn claimed_by_another(&self) -> Option<u128> {
        let card = self.slot.card();
        if self.class == GpuExclusivityClass::SessionExclusive {
            card.claim(self.id, || self.host.busy_neighbor(self.id, card.index()))
                .err()
        } else {
            card.holder()
        }
    }

    /// Moves the deadline `duration_secs` seconds further from where it is.
    pub(crate) fn renew(&self, duration_secs: u64) -> Result<()> {
        self.ensure_active()?;
        // The deadline only moves forward, and saturates at the end of time.
        let moved = self
            .deadline_ns
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
                Some(deadline(current, duration_secs))
            });
        let current = moved.unwrap_or_else(|unchanged| unchanged);
        if self.status.load(Ordering::Acquire) != ACTIVE
            || self.host.clock().monotonic_ns() >= current
        {
            // The old deadline passed meanwhile: a late renewal changes nothing.
            self.end(LeaseEnd::Expired);
            return self.ensure_active();
        }
        observe!(LeaseRenewed {
            lease_id: self.id,
            added_secs: duration_secs
        });
        Ok(())
    }

    /// Ends the lease: new work is refused from now on, what it holds is released when its device
    /// is idle, and its share is offered again after that. Ending it twice is harmless.
    pub(crate) fn end(&self, end: LeaseEnd) {
        if fork::is_child() {
            return;
        }
        let code = match &end {
            LeaseEnd::Expired => EXPIRED,
            LeaseEnd::Revoked(reason) => {
                // Before the status: whoever sees that finds the reason.
                let _ = self.revoked.set(reason.clone());
                REVOKED
            }
        };
        if self
            .status
            .compare_exchange(ACTIVE, code, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        self.host
            .unwatch(self.watched_ns.load(Ordering::Acquire), self.id);
        self.slot.card().release(self.id);
        let session = self.session.lock().take();
        observe!(LeaseEnded {
            lease_id: self.id,
            ended_as: if code == REVOKED {
                LeaseStatus::Revoked
            } else {
                LeaseStatus::Expired
            }
        });
        self.host.note_ended(self.id, end);
        let host = Arc::clone(&self.host);
        let id = self.id;
        match session {
            None => host.forget(id),
            Some(session) => drain(session, move || host.forget(id)),
        }
    }

    /// The lease's context, opened by the first call.
    pub(crate) fn session(self: &Arc<Self>) -> Result<Arc<SessionCore>> {
        self.ensure_usable()?;
        if let Some(session) = &*self.session.lock() {
            return Ok(Arc::clone(session));
        }
        let _opening = self.opening.lock();
        if let Some(session) = &*self.session.lock() {
            return Ok(Arc::clone(session));
        }
        if let Some(fault) = self.slot.lost() {
            return Err(FabricError::DeviceLost(fault));
        }
        let mut options = ContextOptions::default();
        options.label = format!("grafos lease {:#034x}", self.id);
        let context = self.slot.open(&options).map_err(|error| {
            if let GpuError::DeviceLost(fault) = &error {
                self.slot.note_lost(fault);
            }
            FabricError::from(error)
        })?;
        let session = Arc::new(SessionCore::new(Arc::clone(self), context));
        *self.session.lock() = Some(Arc::clone(&session));
        // The lease can have ended while the context opened; then nobody else takes it down.
        if self.status.load(Ordering::Acquire) != ACTIVE
            && let Some(session) = self.session.lock().take()
        {
            drain(session, || {});
        }
        self.ensure_active()?;
        Ok(session)
    }

    /// The lease's context if it has been opened.
    pub(super) fn opened_session(&self) -> Option<Arc<SessionCore>> {
        self.session.lock().clone()
    }

    /// Counts a `GpuSession`.
    pub(crate) fn begin_session(&self) {
        self.sessions.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes a `GpuSession` off. The last one gives the card back.
    pub(crate) fn finish_session(&self) {
        // In a fork another thread of the parent can have left the card locked.
        if self.sessions.fetch_sub(1, Ordering::AcqRel) == 1 && !fork::is_child() {
            self.slot.card().release(self.id);
        }
    }

    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        let limit = self.device().limits.max_allocation_bytes;
        let refused = |resource, available| {
            Err(FabricError::CapacityExceeded(CapacityFault {
                resource,
                requested: bytes,
                available: Some(available),
                unit: "bytes",
                cause: None,
            }))
        };
        if bytes > limit {
            return refused("largest single allocation", limit);
        }
        // The table is unlocked again before anybody is told.
        let charged = self.host.table().charge(self.id, bytes);
        match charged {
            Ok(()) => {
                observe!(Allocated {
                    lease_id: self.id,
                    size_bytes: bytes
                });
                Ok(())
            }
            Err(ChargeRefusal::Quota { available_bytes }) => {
                refused("lease quota", available_bytes)
            }
            Err(ChargeRefusal::Memory { available_bytes }) => {
                refused("device memory", available_bytes)
            }
            Err(ChargeRefusal::Ended) => {
                self.ensure_active()?;
                Err(FabricError::LeaseExpired { lease_id: self.id })
            }
        }
    }

    pub(super) fn refund(&self, bytes: u64) {
        self.host.table().refund(self.id, bytes);
        observe!(Freed {
            lease_id: self.id,
            size_bytes: bytes
        });
    }

    pub(super) fn budget(&self) -> Option<Budget> {
        self.host.table().budget(self.id)
    }

    pub(super) fn count_mem_free(&self) {
        self.host.count_mem_free();
    }

    pub(super) fn count_module_unload(&self) {
        self.host.count_module_unload();
    }

    pub(super) fn sync_launch(&self) -> bool {
        self.host.sync_launch()
    }

    pub(super) fn note_device_lost(&self, fault: &LostFault) {
        self.slot.note_lost(fault);
    }

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

impl core::fmt::Debug for LeaseCore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LeaseCore")
            .field("id", &format_args!("{:#034x}", self.id))
            .field("device", &self.device().name)
            .field("status", &self.status.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// The moment `duration_secs` seconds after another, at most the end of time.
fn deadline(from_ns: u64, duration_secs: u64) -> u64 {
    from_ns.saturating_add(duration_secs.saturating_mul(NANOS_PER_SEC))
}

/// What every call says in a process that was forked after a host had opened its driver.
pub(super) fn forked() -> FabricError {
    FabricError::Disconnected(DisconnectedFault {
        reason: String::from(
            "this process is a fork of the one that opened the driver, which does not work in the \
             child; open a new program instead (exec)",
        ),
        backends: Vec::new(),
    })
}

/// Closes the context of an ended lease, now if its device is idle, else on a thread that waits
/// for the work. `finish` runs once the context has ended.
fn drain(session: Arc<SessionCore>, finish: impl FnOnce() + Send + 'static) {
    if session.close(Some(Duration::ZERO)).is_ok() {
        finish();
        return;
    }
    // Where no thread can be had, the device stays marked as held: its work still runs.
    let _ = std::thread::Builder::new()
        .name("grafos-drain".into())
        .spawn(move || {
            while session.close(Some(DRAIN_INTERVAL)).is_err() {}
            finish();
        });
}
