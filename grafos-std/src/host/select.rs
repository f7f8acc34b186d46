//! Which device a lease gets, and why not another.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use grafos_host_abi::{DeviceInfo, LostFault};

use super::devices::DeviceSlot;
use super::request::LeaseRequest;
use super::table::{LeaseTable, Refusal};
use crate::affinity::{Affinity, Strength, Target};
use crate::error::{BusyFault, CapacityFault, FabricError, Result, UnsupportedFault};
use crate::gpu::GpuExclusivityClass;

/// Why a device was passed over.
enum Removed {
    Unsupported(String),
    Lost(LostFault),
    Busy {
        lease_id: u128,
        class: GpuExclusivityClass,
    },
    Memory {
        free_bytes: u64,
    },
}

/// Chooses the device for a request among those that the host may use.
///
/// Required constraints, memory and exclusivity remove devices. Of the rest, the one that meets
/// most preferences is taken; among equals the first backend, then the card with the most memory
/// that nobody holds.
pub(super) fn choose(
    slots: &[Arc<DeviceSlot>],
    table: &LeaseTable,
    request: &LeaseRequest,
) -> Result<Arc<DeviceSlot>> {
    let mut removed = Vec::new();
    let mut best: Option<(Rank, &Arc<DeviceSlot>)> = None;
    for slot in slots {
        match fits(slot, table, request) {
            Err(reason) => removed.push((slot, reason)),
            Ok(()) => {
                let rank = Rank::of(slot, slots, table, request);
                if best.as_ref().is_none_or(|(leader, _)| rank > *leader) {
                    best = Some((rank, slot));
                }
            }
        }
    }
    match best {
        Some((_, slot)) => Ok(Arc::clone(slot)),
        None => Err(explain(request, &removed)),
    }
}

/// Higher is better; fields in order of importance.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    preferences_met: usize,
    /// Devices are listed in the order of their backends.
    earlier_backend: core::cmp::Reverse<usize>,
    free_bytes: u64,
}

impl Rank {
    fn of(
        slot: &DeviceSlot,
        slots: &[Arc<DeviceSlot>],
        table: &LeaseTable,
        request: &LeaseRequest,
    ) -> Self {
        let preferences_met = request
            .affinities
            .iter()
            .filter(|affinity| affinity.strength() == Strength::Preferred)
            .filter(|affinity| meets(slot, table, affinity))
            .count();
        let first_of_backend = slots
            .iter()
            .position(|other| other.backend_name() == slot.backend_name());
        Self {
            preferences_met,
            earlier_backend: core::cmp::Reverse(first_of_backend.unwrap_or(usize::MAX)),
            free_bytes: table.free_bytes(slot.card().index()),
        }
    }
}

fn fits(slot: &DeviceSlot, table: &LeaseTable, request: &LeaseRequest) -> Result<(), Removed> {
    if request
        .device_index
        .is_some_and(|index| index != slot.index())
    {
        return Err(Removed::Unsupported(String::from(
            "another device was asked for",
        )));
    }
    if let Some(fault) = slot.lost() {
        return Err(Removed::Lost(fault));
    }
    if request.class == GpuExclusivityClass::PartitionExclusive && !slot.info().hardware_partition {
        return Err(Removed::Unsupported(String::from(
            "the device is not a hardware partition",
        )));
    }
    for affinity in &request.affinities {
        if affinity.strength() == Strength::Required && !meets(slot, table, affinity) {
            let direction = if affinity.is_anti() {
                "away from"
            } else {
                "toward"
            };
            let target = affinity.target();
            return Err(Removed::Unsupported(format!(
                "required placement {direction} {target:?}"
            )));
        }
    }
    match table.admits(slot.card().index(), request.class, request.min_vram) {
        Ok(()) => Ok(()),
        Err(Refusal::Held { lease_id, class }) => Err(Removed::Busy { lease_id, class }),
        Err(Refusal::Memory { free_bytes }) => Err(Removed::Memory { free_bytes }),
    }
}

fn meets(slot: &DeviceSlot, table: &LeaseTable, affinity: &Affinity) -> bool {
    let at_target = match affinity.target() {
        // A lease that has ended is nowhere: nothing is near it, everything is away from it.
        Target::Lease(id) => table.card_of(*id) == Some(slot.card().index()),
        Target::Device(text) => matches_device(slot.index(), slot.info(), text),
        Target::Vendor(vendor) => slot.info().vendor == *vendor,
        Target::NumaNode(node) => slot.info().numa_node == Some(*node),
    };
    at_target != affinity.is_anti()
}

/// Whether a text names a device: its index in the host's list, its UUID, its PCI address or a
/// part of its name in any case.
pub(super) fn matches_device(index: u32, info: &DeviceInfo, text: &str) -> bool {
    let text = text.trim();
    if let Ok(wanted) = text.parse::<u32>() {
        return wanted == index;
    }
    if let Ok(uuid) = text.parse() {
        return info.uuid == Some(uuid);
    }
    if info
        .pci
        .is_some_and(|pci| format!("{pci}").eq_ignore_ascii_case(text))
    {
        return true;
    }
    !text.is_empty() && info.name.to_lowercase().contains(&text.to_lowercase())
}

/// Names the most hopeful obstacle: a device that is only busy, then one that only lacks memory,
/// then one that is lost until the process restarts, then what no device can do.
fn explain(request: &LeaseRequest, removed: &[(&Arc<DeviceSlot>, Removed)]) -> FabricError {
    let describe = |slot: &DeviceSlot, reason: &Removed| {
        let reason = match reason {
            Removed::Unsupported(reason) => reason.clone(),
            Removed::Lost(fault) => format!("{fault}"),
            Removed::Busy { lease_id, class } => {
                format!("held by lease {lease_id:#034x} ({})", class.name())
            }
            Removed::Memory { free_bytes } => {
                format!(
                    "{} bytes asked for, {free_bytes} not reserved",
                    request.min_vram
                )
            }
        };
        format!("device {} ({}): {reason}", slot.index(), slot.info().name)
    };
    let all = removed
        .iter()
        .map(|(slot, reason)| describe(slot, reason))
        .collect::<Vec<_>>()
        .join("; ");
    for (slot, reason) in removed {
        if let Removed::Busy { lease_id, class } = reason {
            return FabricError::DeviceBusy(BusyFault {
                device: slot.info().name.clone(),
                holder_lease_id: *lease_id,
                holder_class: class.name(),
                reason: format!("a {} lease was asked for; {all}", request.class.name()),
            });
        }
    }
    let most_free = removed.iter().filter_map(|(_, reason)| match reason {
        Removed::Memory { free_bytes } => Some(*free_bytes),
        _ => None,
    });
    if let Some(available) = most_free.max() {
        return FabricError::CapacityExceeded(CapacityFault {
            resource: "device memory that no lease has reserved",
            requested: request.min_vram,
            available: Some(available),
            unit: "bytes",
            cause: None,
        });
    }
    for (_, reason) in removed {
        if let Removed::Lost(fault) = reason {
            return FabricError::DeviceLost(fault.clone());
        }
    }
    FabricError::Unsupported(UnsupportedFault {
        what: format!("a {} lease with these constraints", request.class.name()),
        reason: all,
    })
}
