//! The devices of a host, and the cards that they sit on.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use grafos_host_abi::{
    ContextOptions, DeviceInfo, DeviceUuid, GpuBackend, GpuContext, GpuError, LostFault,
    PciAddress, Probe,
};

use crate::error::{BackendReport, Result};
use crate::sync::Mutex;

/// A device that a host can lease out.
pub(super) struct DeviceSlot {
    index: u32,
    backend: Arc<dyn GpuBackend>,
    info: DeviceInfo,
    card: Arc<Card>,
    /// Set when only a new process can use the device again.
    lost: Mutex<Option<LostFault>>,
}

impl DeviceSlot {
    /// Position in the host's list.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub(super) fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    pub(super) fn card(&self) -> &Arc<Card> {
        &self.card
    }

    pub(super) fn open(&self, options: &ContextOptions) -> Result<Box<dyn GpuContext>, GpuError> {
        self.backend.open(self.info.index, options)
    }

    pub(super) fn note_lost(&self, fault: &LostFault) {
        if fault.needs_process_restart {
            self.lost.lock().get_or_insert_with(|| fault.clone());
        }
    }

    /// Why the device is lost to this process, if it is.
    pub(super) fn lost(&self) -> Option<LostFault> {
        self.lost.lock().clone()
    }
}

/// A piece of hardware. Two backends that see the same one share its ledger and its claim.
pub(super) struct Card {
    index: usize,
    claimed: AtomicBool,
    claim: Mutex<Option<u128>>,
}

impl Card {
    /// The card's number in the lease table.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// The lease whose session has the card to itself.
    pub(super) fn holder(&self) -> Option<u128> {
        if self.claimed.load(Ordering::Acquire) {
            *self.claim.lock()
        } else {
            None
        }
    }

    /// Takes the card for the sessions of a lease, or names who has it.
    ///
    /// `busy_neighbor` names another lease whose work still runs on the card.
    pub(super) fn claim(
        &self,
        lease_id: u128,
        busy_neighbor: impl FnOnce() -> Option<u128>,
    ) -> Result<(), u128> {
        let mut claim = self.claim.lock();
        match *claim {
            Some(holder) if holder == lease_id => Ok(()),
            Some(holder) => Err(holder),
            None => match busy_neighbor() {
                Some(neighbor) => Err(neighbor),
                None => {
                    *claim = Some(lease_id);
                    self.claimed.store(true, Ordering::Release);
                    Ok(())
                }
            },
        }
    }

    /// Gives the card back if this lease's sessions have it.
    pub(super) fn release(&self, lease_id: u128) {
        let mut claim = self.claim.lock();
        if *claim == Some(lease_id) {
            *claim = None;
            self.claimed.store(false, Ordering::Release);
        }
    }
}

/// What makes two devices the same card.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CardKey {
    Pci(PciAddress),
    Partition(DeviceUuid),
    Backend(&'static str, u32),
}

impl CardKey {
    fn of(backend: &'static str, info: &DeviceInfo) -> Self {
        match (info.hardware_partition, info.uuid, info.pci) {
            (true, Some(uuid), _) => Self::Partition(uuid),
            (false, _, Some(pci)) => Self::Pci(pci),
            _ => Self::Backend(backend, info.index),
        }
    }
}

/// All devices of a host's backends, and why some backends have none.
pub(super) struct DeviceList {
    pub(super) slots: Vec<Arc<DeviceSlot>>,
    /// Memory in bytes of each card, by card number.
    pub(super) card_bytes: Vec<u64>,
    pub(super) reports: Vec<BackendReport>,
}

impl DeviceList {
    /// Asks every backend for its devices. One that fails is reported and passed over.
    pub(super) fn enumerate(backends: &[Arc<dyn GpuBackend>]) -> Self {
        let mut list = Self {
            slots: Vec::new(),
            card_bytes: Vec::new(),
            reports: Vec::new(),
        };
        let mut cards: Vec<(CardKey, Arc<Card>)> = Vec::new();
        for backend in backends {
            match backend.probe() {
                Probe::Unavailable { reason, hint } => list.report(backend.name(), reason, hint),
                _ => match backend.devices() {
                    Err(error) => {
                        list.report(backend.name(), alloc::format!("{error}"), String::new());
                    }
                    Ok(devices) => {
                        for info in devices {
                            list.add(&mut cards, backend, info);
                        }
                    }
                },
            }
        }
        list
    }

    fn report(&mut self, backend: &str, reason: String, hint: String) {
        self.reports.push(BackendReport {
            backend: backend.into(),
            reason,
            hint,
        });
    }

    fn add(
        &mut self,
        cards: &mut Vec<(CardKey, Arc<Card>)>,
        backend: &Arc<dyn GpuBackend>,
        info: DeviceInfo,
    ) {
        let key = CardKey::of(backend.name(), &info);
        let card = match cards.iter().find(|(known, _)| *known == key) {
            Some((_, card)) => Arc::clone(card),
            None => {
                let card = Arc::new(Card {
                    index: cards.len(),
                    claimed: AtomicBool::new(false),
                    claim: Mutex::new(None),
                });
                cards.push((key, Arc::clone(&card)));
                self.card_bytes.push(0);
                card
            }
        };
        let bytes = &mut self.card_bytes[card.index];
        *bytes = (*bytes).max(info.memory_bytes);
        self.slots.push(Arc::new(DeviceSlot {
            index: self.slots.len() as u32,
            backend: Arc::clone(backend),
            info,
            card,
            lost: Mutex::new(None),
        }));
    }
}
