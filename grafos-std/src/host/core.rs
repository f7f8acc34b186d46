//! A host: its backends, its devices and its leases.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::RandomState;
use std::sync::OnceLock;

use grafos_host_abi::GpuBackend;
use parking_lot::MutexGuard;

use super::clock::Clock;
use super::devices::{DeviceList, DeviceSlot};
use super::fork;
use super::lease::{LeaseCore, LeaseEnd};
use super::reaper::Reaper;
use super::request::LeaseRequest;
use super::select;
use super::table::{Claim, LeaseTable};
use crate::error::{BackendReport, DisconnectedFault, FabricError, HandleKind, Result};
use crate::hook::observe;
use crate::sync::Mutex;

/// How many ended leases a host remembers, so that it can tell how they ended.
const ENDED_REMEMBERED: usize = 1024;

/// What a host may use, and how.
pub(super) struct HostConfig {
    pub(super) backends: Vec<Arc<dyn GpuBackend>>,
    /// Backends that were asked for or expected and are not compiled in.
    pub(super) absent: Vec<BackendReport>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) software_devices: bool,
    pub(super) device: Option<String>,
    pub(super) sync_launch: bool,
}

/// What a host remembers of a lease that has ended.
struct EndedLease {
    id: u128,
    end: LeaseEnd,
}

/// The state behind a [`Host`](super::Host).
pub(crate) struct HostCore {
    config: HostConfig,
    devices: OnceLock<DeviceList>,
    table: Mutex<LeaseTable>,
    leases: Mutex<BTreeMap<u128, Weak<LeaseCore>>>,
    /// Leases that only their id refers to; they live until they are freed or expire.
    owned: Mutex<BTreeMap<u128, Arc<LeaseCore>>>,
    ended: Mutex<VecDeque<EndedLease>>,
    reaper: Reaper,
    id_hasher: RandomState,
    next_id: AtomicU64,
    mem_frees: AtomicU64,
    module_unloads: AtomicU64,
}

impl HostCore {
    pub(super) fn new(config: HostConfig) -> Self {
        Self {
            reaper: Reaper::new(Arc::clone(&config.clock)),
            config,
            devices: OnceLock::new(),
            table: Mutex::new(LeaseTable::default()),
            leases: Mutex::new(BTreeMap::new()),
            owned: Mutex::new(BTreeMap::new()),
            ended: Mutex::new(VecDeque::new()),
            id_hasher: RandomState::new(),
            next_id: AtomicU64::new(1),
            mem_frees: AtomicU64::new(0),
            module_unloads: AtomicU64::new(0),
        }
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.config.clock
    }

    pub(super) fn sync_launch(&self) -> bool {
        self.config.sync_launch
    }

    pub(super) fn table(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock()
    }

    /// The devices of all backends, asked for once.
    pub(super) fn devices(&self) -> &DeviceList {
        self.devices.get_or_init(|| {
            fork::watch();
            let list = DeviceList::enumerate(&self.config.backends);
            let mut table = self.table.lock();
            for bytes in &list.card_bytes {
                table.add_card(*bytes);
            }
            list
        })
    }

    /// Whether the host leases a device out: software devices only where they were asked for.
    pub(super) fn may_use(&self, slot: &DeviceSlot) -> bool {
        (self.config.software_devices || !slot.info().kind.is_software())
            && self
                .config
                .device
                .as_deref()
                .is_none_or(|text| select::matches_device(slot.index(), slot.info(), text))
    }

    /// Why each backend has nothing to offer; empty when one has.
    pub(super) fn reports(&self) -> Vec<BackendReport> {
        let list = self.devices();
        let mut reports = list.reports.clone();
        reports.extend(self.config.absent.iter().cloned());
        for backend in &self.config.backends {
            let of_backend = || {
                list.slots
                    .iter()
                    .filter(|slot| slot.backend_name() == backend.name())
            };
            let listed = of_backend().count();
            if listed > 0 && !of_backend().any(|slot| self.may_use(slot)) {
                let names = of_backend()
                    .map(|slot| slot.info().name.as_str())
                    .collect::<Vec<_>>();
                let (reason, hint) = match &self.config.device {
                    Some(text) => (
                        format!("none of its devices matches {text:?}: {}", names.join(", ")),
                        String::from(
                            "name a device by index, UUID, PCI address or part of its name",
                        ),
                    ),
                    None => (
                        format!("only devices that compute on the CPU: {}", names.join(", ")),
                        format!(
                            "they are used when asked for: GRAFOS_BACKEND={}",
                            backend.name()
                        ),
                    ),
                };
                reports.push(BackendReport {
                    backend: backend.name().into(),
                    reason,
                    hint,
                });
            } else if listed == 0
                && !list
                    .reports
                    .iter()
                    .any(|report| report.backend == backend.name())
            {
                reports.push(BackendReport {
                    backend: backend.name().into(),
                    reason: String::from("it lists no device"),
                    hint: String::new(),
                });
            }
        }
        reports
    }

    /// Grants a lease, or says what stands in the way.
    pub(crate) fn acquire(self: &Arc<Self>, request: &LeaseRequest) -> Result<Arc<LeaseCore>> {
        if fork::is_child() {
            return Err(super::lease::forked());
        }
        if let Some(max) = request.max_vram
            && max < request.min_vram
        {
            return Err(FabricError::InvalidArgument {
                reason: format!(
                    "max_vram {max} bytes is below min_vram {} bytes",
                    request.min_vram
                ),
            });
        }
        let list = self.devices();
        let usable = list
            .slots
            .iter()
            .filter(|slot| self.may_use(slot))
            .cloned()
            .collect::<Vec<_>>();
        if usable.is_empty() {
            return Err(FabricError::Disconnected(DisconnectedFault {
                reason: String::from("no device can be used"),
                backends: self.reports(),
            }));
        }
        match self.grant(&usable, request) {
            // What an expired lease still holds can be had after it has been ended.
            Err(_) if self.end_expired() > 0 => self.grant(&usable, request),
            answer => answer,
        }
    }

    fn grant(
        self: &Arc<Self>,
        usable: &[Arc<DeviceSlot>],
        request: &LeaseRequest,
    ) -> Result<Arc<LeaseCore>> {
        let id = self.new_lease_id();
        let slot = {
            let mut table = self.table.lock();
            let slot = select::choose(usable, &table, request)?;
            table.insert(
                id,
                Claim {
                    card: slot.card().index(),
                    class: request.class,
                    reserved_bytes: request.min_vram,
                    max_bytes: request.max_vram,
                    allocated_bytes: 0,
                },
            );
            slot
        };
        let lease = Arc::new(LeaseCore::new(
            id,
            Arc::clone(self),
            slot,
            request.class,
            request.lease_secs.into(),
        ));
        self.leases.lock().insert(id, Arc::downgrade(&lease));
        self.watch(&lease);
        observe!(LeaseAcquired {
            lease_id: id,
            backend: lease.backend_name(),
            device: lease.device().name.clone(),
            class: request.class,
        });
        Ok(lease)
    }

    /// Grants a lease that lives until it is freed by its id or expires.
    pub(super) fn acquire_owned(self: &Arc<Self>, request: &LeaseRequest) -> Result<u128> {
        let lease = self.acquire(request)?;
        let id = lease.id();
        self.owned.lock().insert(id, lease);
        Ok(id)
    }

    /// Has a lease ended at the deadline that it has now.
    fn watch(self: &Arc<Self>, lease: &LeaseCore) {
        let deadline_ns = lease.note_watched();
        self.reaper.watch(self, deadline_ns, lease.id());
    }

    pub(super) fn unwatch(&self, deadline_ns: u64, lease_id: u128) {
        self.reaper.unwatch(deadline_ns, lease_id);
    }

    /// Ends a lease that has come to its deadline, unless it was renewed meanwhile.
    pub(super) fn reap(self: &Arc<Self>, lease_id: u128) {
        let lease = self.leases.lock().get(&lease_id).and_then(Weak::upgrade);
        match lease {
            Some(lease) if lease.is_past_deadline() => lease.end(LeaseEnd::Expired),
            Some(lease) => self.watch(&lease),
            None => {}
        }
    }

    /// A live lease by its id.
    pub(super) fn lease(&self, id: u128) -> Result<Arc<LeaseCore>> {
        if let Some(lease) = self.leases.lock().get(&id).and_then(Weak::upgrade) {
            return Ok(lease);
        }
        match self.ended.lock().iter().rev().find(|ended| ended.id == id) {
            Some(ended) => Err(ended.end.error(id)),
            // The low half tells leases apart well enough for a message.
            None => Err(FabricError::invalid_handle(HandleKind::Lease, id as u64)),
        }
    }

    /// The leases that live or whose work still runs, oldest first.
    pub(super) fn live_leases(&self) -> Vec<Arc<LeaseCore>> {
        let mut leases = self
            .leases
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect::<Vec<_>>();
        leases.sort_by_key(|lease| lease.created_ns());
        leases
    }

    /// Ends the leases that are past their deadline, and tells how many those were.
    pub(super) fn end_expired(&self) -> usize {
        let leases = self.live_leases();
        let expired = leases
            .iter()
            .filter(|lease| lease.is_active_past_deadline());
        expired.map(|lease| lease.end(LeaseEnd::Expired)).count()
    }

    /// Another lease whose work still runs on a card.
    pub(super) fn busy_neighbor(&self, lease_id: u128, card: usize) -> Option<u128> {
        let leases = self.live_leases();
        leases
            .iter()
            .filter(|lease| lease.id() != lease_id && lease.card_index() == card)
            .find(|lease| {
                lease
                    .opened_session()
                    .is_some_and(|session| !session.is_idle())
            })
            .map(|lease| lease.id())
    }

    /// Offers an ended lease's share again. Called when its context has ended.
    pub(super) fn forget(&self, id: u128) {
        self.table.lock().remove(id);
        let weak = self.leases.lock().remove(&id);
        let owned = self.owned.lock().remove(&id);
        // Dropped without a lock held: this can be the last reference to the lease.
        drop((weak, owned));
    }

    /// Remembers how a lease ended.
    pub(super) fn note_ended(&self, id: u128, end: LeaseEnd) {
        let mut ended = self.ended.lock();
        if ended.len() == ENDED_REMEMBERED {
            ended.pop_front();
        }
        ended.push_back(EndedLease { id, end });
    }

    /// A number that no other lease of this process has, and that nobody can guess.
    fn new_lease_id(&self) -> u128 {
        let count = self.next_id.fetch_add(1, Ordering::Relaxed);
        let half = |salt: u64| {
            let mut hasher = self.id_hasher.build_hasher();
            hasher.write_u64(count);
            hasher.write_u64(salt);
            hasher.finish()
        };
        (u128::from(half(0)) << 64 | u128::from(half(1))).max(1)
    }

    pub(super) fn count_mem_free(&self) {
        self.mem_frees.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "mock")]
    pub(super) fn mem_frees(&self) -> u64 {
        self.mem_frees.load(Ordering::Relaxed)
    }

    pub(super) fn count_module_unload(&self) {
        self.module_unloads.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "mock")]
    pub(super) fn module_unloads(&self) -> u64 {
        self.module_unloads.load(Ordering::Relaxed)
    }
}

impl core::fmt::Debug for HostCore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let backends = self
            .config
            .backends
            .iter()
            .map(|backend| backend.name())
            .collect::<Vec<_>>();
        f.debug_struct("HostCore")
            .field("backends", &backends)
            .finish_non_exhaustive()
    }
}
