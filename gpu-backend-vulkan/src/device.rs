//! Devices: which there are, what they are, and opening one.

use std::fmt::Write as _;
use std::sync::Arc;

use ash::vk;
use grafos_host_abi::{
    Capabilities, DeviceInfo, DeviceKind, DeviceLimits, DeviceUuid, DriverInfo, GpuContext,
    ImageFormat, PciAddress, Result, Vendor,
};

use crate::context::{Shared, SharedDesc, VulkanContext};
use crate::driver::{
    Device, Instance, LoadFailure, Physical, PhysicalInfo, QueueFamily, call_failure,
};
use crate::memory::{Memory, MemoryPlan};

/// Queues that one context uses at most.
const MOST_QUEUES: u32 = 8;

/// The devices of an instance.
pub(crate) struct Found {
    /// Those that can be opened, in the driver's order.
    pub(crate) usable: Vec<Usable>,
}

/// A device that can be opened.
pub(crate) struct Usable {
    pub(crate) info: DeviceInfo,
    physical: Physical,
    details: PhysicalInfo,
    family: QueueFamily,
}

impl Found {
    /// Looks at all devices. None that can be used is a failure that says why of each.
    pub(crate) fn new(instance: &Arc<Instance>, prefer_staging: bool) -> Result<Self, LoadFailure> {
        let devices = instance.physical_devices().map_err(|result| {
            let mut failure = call_failure("vkEnumeratePhysicalDevices", result);
            if result == vk::Result::ERROR_INITIALIZATION_FAILED {
                failure.hint = "install a Vulkan driver (ICD), such as mesa-vulkan-drivers; \
                                VK_ICD_FILENAMES names its manifest"
                    .into();
            }
            failure
        })?;
        let mut usable = Vec::new();
        let mut refused = Vec::new();
        for physical in devices {
            match Usable::new(usable.len() as u32, physical, prefer_staging) {
                Ok(device) => usable.push(device),
                Err(reason) => refused.push(reason),
            }
        }
        if !usable.is_empty() {
            return Ok(Self { usable });
        }
        if refused.is_empty() {
            return Err(LoadFailure {
                reason: "the Vulkan loader lists no device".into(),
                hint: "install a driver for the device, such as mesa-vulkan-drivers, and check \
                       that this user may open it"
                    .into(),
            });
        }
        Err(LoadFailure {
            reason: format!("no Vulkan device can be used: {}", refused.join("; ")),
            hint: "install a newer driver: Vulkan 1.2 with compute, bufferDeviceAddress and \
                   timelineSemaphore is needed"
                .into(),
        })
    }
}

impl Usable {
    fn new(index: u32, physical: Physical, prefer_staging: bool) -> Result<Self, String> {
        let basics = physical.basics();
        let name = &basics.name;
        // Nothing newer than 1.0 is asked before the version is known.
        if basics.api_version < vk::API_VERSION_1_2 {
            return Err(format!(
                "{name} offers Vulkan {}, 1.2 or later is needed",
                version(basics.api_version)
            ));
        }
        let family = choose_family(&basics.queue_families)
            .ok_or_else(|| format!("{name} has no queue that can compute"))?;
        let details = physical.info().map_err(|result| {
            format!(
                "{name} does not answer: {}",
                call_failure("vkEnumerateDeviceExtensionProperties", result,).reason
            )
        })?;
        for (present, feature) in [
            (
                details.abilities.buffer_device_address,
                "bufferDeviceAddress",
            ),
            (details.abilities.timeline_semaphore, "timelineSemaphore"),
        ] {
            if !present {
                return Err(format!("{name} lacks {feature}"));
            }
        }
        let plan = MemoryPlan::choose(
            &details.memory_types,
            u32::MAX,
            details.kind,
            prefer_staging,
        )
        .ok_or_else(|| format!("{name} has no memory that the host can see"))?;
        Ok(Self {
            info: describe(index, &details, family, plan),
            physical,
            details,
            family,
        })
    }

    /// Opens a context on the device.
    pub(crate) fn open(&self, prefer_staging: bool) -> Result<Box<dyn GpuContext>> {
        let details = &self.details;
        let device = Device::new(
            self.physical.clone(),
            details.abilities,
            self.family,
            details.api_version,
            MOST_QUEUES,
        )?;
        let allowed = device.buffer_memory_types()?;
        let plan = MemoryPlan::choose(&details.memory_types, allowed, details.kind, prefer_staging)
            .ok_or_else(|| {
                crate::error::unavailable(format!(
                    "{} has no memory for buffers that the host can see",
                    details.name
                ))
            })?;
        let limits = &details.limits;
        // Buffers may be kept from the memory that the listing took them to be made of.
        let info = describe(self.info.index, details, self.family, plan);
        let memory = Memory::new(&device, plan, info.limits.max_allocation_bytes)?;
        let shared = Shared::new(SharedDesc {
            info,
            api_version: details.api_version,
            max_bindings: limits
                .max_per_stage_descriptor_storage_buffers
                .min(limits.max_descriptor_set_storage_buffers)
                .min(limits.max_per_stage_resources),
            max_push_descriptors: details.max_push_descriptors,
            storage_align_bytes: limits.min_storage_buffer_offset_alignment.max(1),
            max_storage_range_bytes: limits.max_storage_buffer_range.into(),
            timestamp_period_ns: limits.timestamp_period,
            memory,
            device,
        })?;
        Ok(Box::new(VulkanContext::new(shared)))
    }
}

/// A family that can compute: one that does nothing else is scheduled beside graphics work.
fn choose_family(families: &[QueueFamily]) -> Option<QueueFamily> {
    families
        .iter()
        .filter(|family| family.compute && family.queue_count > 0)
        .max_by_key(|family| {
            (
                family.timestamp_valid_bits > 0,
                !family.graphics,
                family.queue_count.min(MOST_QUEUES),
                // The first of equals.
                u32::MAX - family.index,
            )
        })
        .copied()
}

fn describe(
    index: u32,
    details: &PhysicalInfo,
    family: QueueFamily,
    plan: MemoryPlan,
) -> DeviceInfo {
    let limits = &details.limits;
    let abilities = &details.abilities;
    let memory_bytes = plan.device.heap_bytes;
    let mut info = DeviceInfo::new(
        index,
        &*details.name,
        Vendor::from_id(details.vendor_id),
        match details.kind {
            vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::DiscreteGpu,
            vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::IntegratedGpu,
            vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::VirtualGpu,
            vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
            _ => DeviceKind::Unknown,
        },
        DriverInfo {
            name: details.driver_name.clone(),
            version: if details.driver_info.is_empty() {
                version(details.driver_version)
            } else {
                details.driver_info.clone()
            },
            api_version: version(details.api_version),
        },
        memory_bytes,
        DeviceLimits {
            max_grid: limits.max_compute_work_group_count,
            max_block: limits.max_compute_work_group_size,
            max_threads_per_block: limits.max_compute_work_group_invocations,
            max_shared_memory_bytes: limits.max_compute_shared_memory_size,
            max_argument_bytes: limits.max_push_constants_size,
            max_allocation_bytes: details.max_allocation_bytes.min(memory_bytes),
        },
    );
    info.uuid = Some(DeviceUuid(details.uuid));
    info.pci = details.pci.and_then(pci_address);
    info.numa_node = info.pci.and_then(numa_node);
    info.image_formats = vec![ImageFormat::SpirV];
    let mut capabilities = Capabilities::default();
    capabilities.int8 = abilities.int8;
    capabilities.int16 = abilities.int16;
    capabilities.int64 = abilities.int64;
    capabilities.float16 = abilities.float16;
    capabilities.float64 = abilities.float64;
    capabilities.int64_atomics = abilities.buffer_int64_atomics;
    capabilities.float32_atomic_add = abilities.float32_atomic_add;
    capabilities.device_addresses = true;
    capabilities.streams = true;
    capabilities.event_timing = family.timestamp_valid_bits > 0;
    capabilities.native_handle = true;
    capabilities.unified_memory = plan.direct_write;
    [
        capabilities.subgroup_size_min,
        capabilities.subgroup_size_max,
    ] = details.subgroup_sizes;
    info.capabilities = capabilities;
    info
}

/// A version number as Vulkan packs it, without a patch of 0 being hidden.
fn version(packed: u32) -> String {
    let mut text = format!(
        "{}.{}.{}",
        vk::api_version_major(packed),
        vk::api_version_minor(packed),
        vk::api_version_patch(packed)
    );
    let variant = vk::api_version_variant(packed);
    if variant != 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, " (variant {variant})");
    }
    text
}

fn pci_address([domain, bus, device, function]: [u32; 4]) -> Option<PciAddress> {
    Some(PciAddress {
        domain,
        bus: bus.try_into().ok()?,
        device: device.try_into().ok()?,
        function: function.try_into().ok()?,
    })
}

/// Asks Linux for a card's NUMA node; other systems and cards without one have none.
fn numa_node(address: PciAddress) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/sys/bus/pci/devices/{address}/numa_node")).ok()?;
    parse_numa_node(&text)
}

/// Linux writes -1 for a card without a node.
fn parse_numa_node(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(index: u32, compute: bool, graphics: bool, queue_count: u32) -> QueueFamily {
        QueueFamily {
            index,
            queue_count,
            compute,
            graphics,
            timestamp_valid_bits: 64,
        }
    }

    #[test]
    fn a_family_for_compute_alone_is_preferred() {
        let all = [
            family(0, true, true, 16),
            family(1, false, false, 2),
            family(2, true, false, 8),
        ];
        assert_eq!(choose_family(&all).map(|family| family.index), Some(2));
        assert_eq!(choose_family(&all[..2]).map(|family| family.index), Some(0));
        assert_eq!(choose_family(&all[1..2]), None);
        assert_eq!(choose_family(&[family(0, true, true, 0)]), None);
    }

    #[test]
    fn versions_read_as_vulkaninfo_prints_them() {
        assert_eq!(version(vk::make_api_version(0, 1, 3, 230)), "1.3.230");
        assert_eq!(version(vk::make_api_version(0, 1, 0, 0)), "1.0.0");
        assert_eq!(
            version(vk::make_api_version(1, 1, 0, 0)),
            "1.0.0 (variant 1)"
        );
    }

    #[test]
    fn numa_nodes_are_read_as_linux_writes_them() {
        assert_eq!(parse_numa_node("1\n"), Some(1));
        assert_eq!(parse_numa_node("-1\n"), None);
        assert_eq!(parse_numa_node(""), None);
    }

    #[test]
    fn a_pci_address_out_of_range_is_none() {
        assert_eq!(pci_address([0, 256, 0, 0]), None);
        let address = pci_address([1, 0x65, 2, 3]).map(|address| address.to_string());
        assert_eq!(address.as_deref(), Some("0001:65:02.3"));
    }
}
