//! Physical devices: what one is, has and can do, asked only as far as its version allows.

#![expect(unsafe_code, reason = "every Vulkan call is unsafe by nature")]

use std::ffi::CStr;
use std::sync::Arc;

use ash::{ext, khr, vk};

use super::Instance;

/// A `VkPhysicalDevice` of a live instance.
#[derive(Clone)]
pub(crate) struct Physical {
    raw: vk::PhysicalDevice,
    instance: Arc<Instance>,
}

/// What any device answers, also a 1.0 one.
pub(crate) struct Basics {
    pub(crate) name: String,
    pub(crate) api_version: u32,
    pub(crate) queue_families: Vec<QueueFamily>,
}

/// A queue family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFamily {
    pub(crate) index: u32,
    pub(crate) queue_count: u32,
    pub(crate) compute: bool,
    pub(crate) graphics: bool,
    pub(crate) timestamp_valid_bits: u32,
}

/// A memory type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryType {
    pub(crate) index: u32,
    pub(crate) heap: u32,
    pub(crate) heap_bytes: u64,
    pub(crate) device_local: bool,
    pub(crate) host_visible: bool,
    pub(crate) host_coherent: bool,
    pub(crate) host_cached: bool,
    /// Whether the flags above are all it has: no protected, lazily allocated or vendor's memory.
    pub(crate) plain: bool,
}

/// What a 1.2 device is and can do.
pub(crate) struct PhysicalInfo {
    pub(crate) name: String,
    pub(crate) vendor_id: u32,
    pub(crate) kind: vk::PhysicalDeviceType,
    pub(crate) api_version: u32,
    pub(crate) driver_name: String,
    pub(crate) driver_info: String,
    pub(crate) driver_version: u32,
    pub(crate) uuid: [u8; 16],
    /// Domain, bus, device, function.
    pub(crate) pci: Option<[u32; 4]>,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    pub(crate) max_allocation_bytes: u64,
    pub(crate) max_push_descriptors: u32,
    pub(crate) subgroup_sizes: [u32; 2],
    pub(crate) memory_types: Vec<MemoryType>,
    pub(crate) abilities: Abilities,
}

/// What a context enables on its device when it is there, and what modules can ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) buffer_device_address: bool,
    pub(crate) timeline_semaphore: bool,
    pub(crate) int8: bool,
    pub(crate) int16: bool,
    pub(crate) int64: bool,
    pub(crate) float16: bool,
    pub(crate) float64: bool,
    pub(crate) storage_8bit: bool,
    pub(crate) uniform_8bit: bool,
    pub(crate) push_constant_8bit: bool,
    pub(crate) storage_16bit: bool,
    pub(crate) uniform_16bit: bool,
    pub(crate) push_constant_16bit: bool,
    pub(crate) buffer_int64_atomics: bool,
    pub(crate) shared_int64_atomics: bool,
    pub(crate) float32_atomics: bool,
    pub(crate) float32_atomic_add: bool,
    pub(crate) shared_float32_atomic_add: bool,
    pub(crate) float64_atomics: bool,
    pub(crate) float64_atomic_add: bool,
    pub(crate) shared_float64_atomic_add: bool,
    pub(crate) variable_pointers: bool,
    pub(crate) variable_pointers_storage_buffer: bool,
    pub(crate) vulkan_memory_model: bool,
    pub(crate) vulkan_memory_model_device_scope: bool,
    pub(crate) scalar_block_layout: bool,
    pub(crate) uniform_standard_layout: bool,
    pub(crate) subgroup_extended_types: bool,
    /// `VkSubgroupFeatureFlags` of compute shaders.
    pub(crate) subgroup_operations: u32,
    pub(crate) maintenance4: bool,
    pub(crate) integer_dot_product: bool,
    pub(crate) zero_initialize_shared: bool,
    pub(crate) explicit_shared_layout: bool,
    // Extensions, where the version alone does not bring them.
    pub(crate) push_descriptor: bool,
    pub(crate) memory_budget: bool,
    pub(crate) portability_subset: bool,
    pub(crate) maintenance4_extension: bool,
    pub(crate) atomic_float_extension: bool,
    pub(crate) explicit_shared_layout_extension: bool,
}

/// What the driver says about a heap now, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapBudget {
    pub(crate) budget_bytes: u64,
    pub(crate) usage_bytes: u64,
}

impl Physical {
    pub(super) fn new(instance: Arc<Instance>, raw: vk::PhysicalDevice) -> Self {
        Self { raw, instance }
    }

    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    pub(super) fn raw(&self) -> vk::PhysicalDevice {
        self.raw
    }

    /// The device's handle as a number.
    pub(crate) fn handle(&self) -> u64 {
        use ash::vk::Handle;
        self.raw.as_raw()
    }

    /// Asks what Vulkan 1.0 can answer.
    pub(crate) fn basics(&self) -> Basics {
        let instance = self.instance.raw();
        // SAFETY: the physical device belongs to the live instance.
        let properties = unsafe { instance.get_physical_device_properties(self.raw) };
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(self.raw) };
        Basics {
            name: text(properties.device_name_as_c_str().ok()),
            api_version: properties.api_version,
            queue_families: (0..)
                .zip(families)
                .map(|(index, family)| QueueFamily {
                    index,
                    queue_count: family.queue_count,
                    compute: family.queue_flags.contains(vk::QueueFlags::COMPUTE),
                    graphics: family.queue_flags.contains(vk::QueueFlags::GRAPHICS),
                    timestamp_valid_bits: family.timestamp_valid_bits,
                })
                .collect(),
        }
    }

    /// Asks everything else. The device's version must be 1.2 or later.
    pub(crate) fn info(&self) -> Result<PhysicalInfo, vk::Result> {
        let instance = self.instance.raw();
        // SAFETY: the physical device belongs to the live instance.
        let extensions = unsafe { instance.enumerate_device_extension_properties(self.raw) }?;
        let has = |name: &CStr| {
            extensions
                .iter()
                .any(|extension| extension.extension_name_as_c_str() == Ok(name))
        };
        let has_pci = has(ext::pci_bus_info::NAME);
        let has_push_descriptor = has(khr::push_descriptor::NAME);

        let mut core11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut core12 = vk::PhysicalDeviceVulkan12Properties::default();
        let mut core13 = vk::PhysicalDeviceVulkan13Properties::default();
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
        let mut push = vk::PhysicalDevicePushDescriptorPropertiesKHR::default();
        let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut core11)
            .push_next(&mut core12);
        // SAFETY: the physical device belongs to the live instance.
        let api_version = unsafe { instance.get_physical_device_properties(self.raw) }.api_version;
        let is_13 = api_version >= vk::API_VERSION_1_3;
        let has_maintenance4 = !is_13 && has(khr::maintenance4::NAME);
        if is_13 {
            properties = properties.push_next(&mut core13);
        }
        if has_maintenance4 {
            properties = properties.push_next(&mut maintenance4);
        }
        if has_pci {
            properties = properties.push_next(&mut pci);
        }
        if has_push_descriptor {
            properties = properties.push_next(&mut push);
        }
        // SAFETY: each structure of the chain is known to the device's version or extensions.
        unsafe { instance.get_physical_device_properties2(self.raw, &mut properties) };
        let base = properties.properties;

        let max_buffer_bytes = if is_13 {
            core13.max_buffer_size
        } else if has_maintenance4 {
            maintenance4.max_buffer_size
        } else {
            u64::MAX
        };
        let subgroup_sizes = if is_13 && core13.min_subgroup_size > 0 {
            [core13.min_subgroup_size, core13.max_subgroup_size]
        } else {
            [core11.subgroup_size; 2]
        };
        let compute_subgroups = core11
            .subgroup_supported_stages
            .contains(vk::ShaderStageFlags::COMPUTE);

        let mut abilities = self.features(is_13, &has);
        abilities.push_descriptor = has_push_descriptor;
        abilities.memory_budget = has(ext::memory_budget::NAME);
        abilities.portability_subset = has(khr::portability_subset::NAME);
        if compute_subgroups {
            abilities.subgroup_operations = core11.subgroup_supported_operations.as_raw();
        }

        Ok(PhysicalInfo {
            name: text(base.device_name_as_c_str().ok()),
            vendor_id: base.vendor_id,
            kind: base.device_type,
            api_version,
            driver_name: text(core12.driver_name_as_c_str().ok()),
            driver_info: text(core12.driver_info_as_c_str().ok()),
            driver_version: base.driver_version,
            uuid: core11.device_uuid,
            pci: has_pci.then_some([
                pci.pci_domain,
                pci.pci_bus,
                pci.pci_device,
                pci.pci_function,
            ]),
            limits: base.limits,
            max_allocation_bytes: core11.max_memory_allocation_size.min(max_buffer_bytes),
            max_push_descriptors: if has_push_descriptor {
                push.max_push_descriptors
            } else {
                0
            },
            subgroup_sizes,
            memory_types: self.memory_types(),
            abilities,
        })
    }

    fn features(&self, is_13: bool, has: &dyn Fn(&CStr) -> bool) -> Abilities {
        let has_maintenance4 = !is_13 && has(khr::maintenance4::NAME);
        let has_atomic_float = has(ext::shader_atomic_float::NAME);
        let has_explicit_shared = has(khr::workgroup_memory_explicit_layout::NAME);
        let mut core11 = vk::PhysicalDeviceVulkan11Features::default();
        let mut core12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut core13 = vk::PhysicalDeviceVulkan13Features::default();
        let mut maintenance4 = vk::PhysicalDeviceMaintenance4Features::default();
        let mut atomic_float = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT::default();
        let mut explicit_shared =
            vk::PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR::default();
        let mut features = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut core11)
            .push_next(&mut core12);
        if is_13 {
            features = features.push_next(&mut core13);
        }
        if has_maintenance4 {
            features = features.push_next(&mut maintenance4);
        }
        if has_atomic_float {
            features = features.push_next(&mut atomic_float);
        }
        if has_explicit_shared {
            features = features.push_next(&mut explicit_shared);
        }
        // SAFETY: each structure of the chain is known to the device's version or extensions.
        unsafe {
            self.instance
                .raw()
                .get_physical_device_features2(self.raw, &mut features);
        }
        let base = features.features;
        let on = |flag: vk::Bool32| flag == vk::TRUE;
        Abilities {
            buffer_device_address: on(core12.buffer_device_address),
            timeline_semaphore: on(core12.timeline_semaphore),
            int8: on(core12.shader_int8),
            int16: on(base.shader_int16),
            int64: on(base.shader_int64),
            float16: on(core12.shader_float16),
            float64: on(base.shader_float64),
            storage_8bit: on(core12.storage_buffer8_bit_access),
            uniform_8bit: on(core12.uniform_and_storage_buffer8_bit_access),
            push_constant_8bit: on(core12.storage_push_constant8),
            storage_16bit: on(core11.storage_buffer16_bit_access),
            uniform_16bit: on(core11.uniform_and_storage_buffer16_bit_access),
            push_constant_16bit: on(core11.storage_push_constant16),
            buffer_int64_atomics: on(core12.shader_buffer_int64_atomics),
            shared_int64_atomics: on(core12.shader_shared_int64_atomics),
            float32_atomics: on(atomic_float.shader_buffer_float32_atomics),
            float32_atomic_add: on(atomic_float.shader_buffer_float32_atomic_add),
            shared_float32_atomic_add: on(atomic_float.shader_shared_float32_atomic_add),
            float64_atomics: on(atomic_float.shader_buffer_float64_atomics),
            float64_atomic_add: on(atomic_float.shader_buffer_float64_atomic_add),
            shared_float64_atomic_add: on(atomic_float.shader_shared_float64_atomic_add),
            variable_pointers: on(core11.variable_pointers),
            variable_pointers_storage_buffer: on(core11.variable_pointers_storage_buffer),
            vulkan_memory_model: on(core12.vulkan_memory_model),
            vulkan_memory_model_device_scope: on(core12.vulkan_memory_model_device_scope),
            scalar_block_layout: on(core12.scalar_block_layout),
            uniform_standard_layout: on(core12.uniform_buffer_standard_layout),
            subgroup_extended_types: on(core12.shader_subgroup_extended_types),
            subgroup_operations: 0,
            maintenance4: on(core13.maintenance4) || on(maintenance4.maintenance4),
            integer_dot_product: on(core13.shader_integer_dot_product),
            zero_initialize_shared: on(core13.shader_zero_initialize_workgroup_memory),
            explicit_shared_layout: on(explicit_shared.workgroup_memory_explicit_layout),
            push_descriptor: false,
            memory_budget: false,
            portability_subset: false,
            maintenance4_extension: has_maintenance4,
            atomic_float_extension: has_atomic_float,
            explicit_shared_layout_extension: has_explicit_shared,
        }
    }

    fn memory_types(&self) -> Vec<MemoryType> {
        // SAFETY: the physical device belongs to the live instance.
        let properties = unsafe {
            self.instance
                .raw()
                .get_physical_device_memory_properties(self.raw)
        };
        let heaps = properties.memory_heaps_as_slice();
        (0..)
            .zip(properties.memory_types_as_slice())
            .map(|(index, memory)| {
                let has = |flag| memory.property_flags.contains(flag);
                MemoryType {
                    index,
                    heap: memory.heap_index,
                    heap_bytes: heaps
                        .get(memory.heap_index as usize)
                        .map_or(0, |heap| heap.size),
                    device_local: has(vk::MemoryPropertyFlags::DEVICE_LOCAL),
                    host_visible: has(vk::MemoryPropertyFlags::HOST_VISIBLE),
                    host_coherent: has(vk::MemoryPropertyFlags::HOST_COHERENT),
                    host_cached: has(vk::MemoryPropertyFlags::HOST_CACHED),
                    plain: (vk::MemoryPropertyFlags::DEVICE_LOCAL
                        | vk::MemoryPropertyFlags::HOST_VISIBLE
                        | vk::MemoryPropertyFlags::HOST_COHERENT
                        | vk::MemoryPropertyFlags::HOST_CACHED)
                        .contains(memory.property_flags),
                }
            })
            .collect()
    }

    /// Asks for a heap's budget. The device must have `VK_EXT_memory_budget`.
    pub(crate) fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the caller knows that the device has the extension.
        unsafe {
            self.instance
                .raw()
                .get_physical_device_memory_properties2(self.raw, &mut properties);
        }
        Some(HeapBudget {
            budget_bytes: *budget.heap_budget.get(heap as usize)?,
            usage_bytes: *budget.heap_usage.get(heap as usize)?,
        })
    }
}

fn text(name: Option<&CStr>) -> String {
    name.map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
