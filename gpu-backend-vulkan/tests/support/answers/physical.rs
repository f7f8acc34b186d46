//! What is said about physical devices.

#![expect(unsafe_code, reason = "stands where a C library stands")]

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ash::ext;
use ash::vk::{self, Handle};

use super::{DeviceAnswers, Function, Stage, below_as, chain, erased, stage};

/// A listed device.
pub(super) struct Listed {
    pub(super) stage: Arc<Stage>,
    pub(super) index: usize,
    pub(super) instance: vk::Instance,
    /// The driver's device that it is made of.
    pub(super) real: vk::PhysicalDevice,
}

impl Listed {
    pub(super) fn of(handle: vk::PhysicalDevice) -> Option<Self> {
        let stage = stage()?;
        let (instance, real) = (*stage.real.lock())?;
        let index = usize::try_from(handle.as_raw().checked_sub(1)?).ok()?;
        (index < stage.answers.devices.len()).then_some(Self {
            stage,
            index,
            instance,
            real,
        })
    }

    /// Like `of`, for a question that Vulkan 1.0 does not have.
    fn of_newer(handle: vk::PhysicalDevice) -> Option<Self> {
        let listed = Self::of(handle)?;
        listed.stage.newer_questions.fetch_add(1, Ordering::SeqCst);
        Some(listed)
    }

    /// Counts a structure of Vulkan 1.3 in a chain that a device before 1.3 is given.
    ///
    /// # Safety
    ///
    /// `first` begins a chain.
    pub(super) unsafe fn watch_chain(
        &self,
        first: *mut vk::BaseOutStructure<'_>,
        kind: vk::StructureType,
    ) {
        // SAFETY: the caller vouches for the chain; nothing but its head is used.
        let found = unsafe { chain::find::<vk::BaseOutStructure<'_>>(first, kind) };
        if found.is_some() && self.version() < vk::API_VERSION_1_3 {
            let count = &self.stage.unknown_structures;
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The version that the device says it has.
    fn version(&self) -> u32 {
        let name = c"vkGetPhysicalDeviceProperties";
        // SAFETY: the type is the named function's.
        let real =
            unsafe { below_as::<vk::PFN_vkGetPhysicalDeviceProperties>(self.instance, name) };
        let mut said = vk::PhysicalDeviceProperties::default();
        if let Some(real) = real {
            // SAFETY: asks about the driver's own device.
            unsafe { real(self.real, &mut said) };
        }
        if let Some(change) = &self.answers().properties {
            change(&mut said);
        }
        said.api_version
    }

    /// The extensions that the device lists.
    pub(super) fn extensions(&self) -> Vec<vk::ExtensionProperties> {
        let answers = self.answers();
        let mut all = self.real_extensions();
        for (name, added) in [
            (ext::pci_bus_info::NAME, answers.pci.is_some()),
            (ext::memory_budget::NAME, answers.budgets.is_some()),
        ] {
            if added && !all.iter().any(|extension| is(extension, name)) {
                let extension = vk::ExtensionProperties::default().spec_version(1);
                all.extend(extension.extension_name(name));
            }
        }
        all.retain(|extension| {
            let hidden = &answers.hidden_extensions;
            !hidden.iter().any(|name| is(extension, name))
        });
        all
    }

    fn answers(&self) -> &DeviceAnswers {
        &self.stage.answers.devices[self.index]
    }

    /// The extensions of the device that it is made of.
    pub(super) fn real_extensions(&self) -> Vec<vk::ExtensionProperties> {
        let name = c"vkEnumerateDeviceExtensionProperties";
        // SAFETY: the type is the named function's.
        let real = unsafe {
            below_as::<vk::PFN_vkEnumerateDeviceExtensionProperties>(self.instance, name)
        };
        let Some(real) = real else {
            return Vec::new();
        };
        let layer = std::ptr::null();
        let mut count = 0;
        // SAFETY: asks for the length alone.
        let _ = unsafe { real(self.real, layer, &mut count, std::ptr::null_mut()) };
        let mut all = vec![vk::ExtensionProperties::default(); count as usize];
        // SAFETY: there is room for as many.
        let _ = unsafe { real(self.real, layer, &mut count, all.as_mut_ptr()) };
        all.truncate(count as usize);
        all
    }
}

/// Whether an extension has this name.
pub(super) fn is(extension: &vk::ExtensionProperties, name: &CStr) -> bool {
    extension.extension_name_as_c_str() == Ok(name)
}

/// The functions that are replaced.
pub(super) fn function(name: &CStr) -> Option<Function> {
    match name.to_bytes() {
        b"vkGetPhysicalDeviceProperties" => {
            erased!(properties, vk::PFN_vkGetPhysicalDeviceProperties)
        }
        b"vkGetPhysicalDeviceProperties2" => {
            erased!(properties2, vk::PFN_vkGetPhysicalDeviceProperties2)
        }
        b"vkGetPhysicalDeviceFeatures2" => {
            erased!(features2, vk::PFN_vkGetPhysicalDeviceFeatures2)
        }
        b"vkGetPhysicalDeviceQueueFamilyProperties" => erased!(
            queue_families,
            vk::PFN_vkGetPhysicalDeviceQueueFamilyProperties
        ),
        b"vkGetPhysicalDeviceMemoryProperties" => {
            erased!(memory, vk::PFN_vkGetPhysicalDeviceMemoryProperties)
        }
        b"vkGetPhysicalDeviceMemoryProperties2" => {
            erased!(memory2, vk::PFN_vkGetPhysicalDeviceMemoryProperties2)
        }
        b"vkEnumerateDeviceExtensionProperties" => {
            erased!(extensions, vk::PFN_vkEnumerateDeviceExtensionProperties)
        }
        _ => None,
    }
}

unsafe extern "system" fn properties(
    handle: vk::PhysicalDevice,
    answer: *mut vk::PhysicalDeviceProperties,
) {
    let Some(device) = Listed::of(handle) else {
        return;
    };
    let name = c"vkGetPhysicalDeviceProperties";
    // SAFETY: the type is the named function's.
    let real = unsafe { below_as::<vk::PFN_vkGetPhysicalDeviceProperties>(device.instance, name) };
    let Some(real) = real else {
        return;
    };
    // SAFETY: passed on as it came, for the driver's own device.
    unsafe { real(device.real, answer) };
    if let Some(change) = &device.answers().properties {
        // SAFETY: the caller gives the structure, and the driver has filled it.
        change(unsafe { &mut *answer });
    }
}

unsafe extern "system" fn properties2(
    handle: vk::PhysicalDevice,
    answer: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    let Some(device) = Listed::of_newer(handle) else {
        return;
    };
    let newer = vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES;
    // SAFETY: the caller gives a chain.
    unsafe { device.watch_chain(answer.cast(), newer) };
    let name = c"vkGetPhysicalDeviceProperties2";
    // SAFETY: the type is the named function's.
    let real = unsafe { below_as::<vk::PFN_vkGetPhysicalDeviceProperties2>(device.instance, name) };
    let Some(real) = real else {
        return;
    };
    // SAFETY: passed on as it came, for the driver's own device.
    let ask = || unsafe { real(device.real, answer) };
    let kind = vk::StructureType::PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT;
    match device.answers().pci {
        None => ask(),
        Some([domain, bus, slot, function]) => {
            // SAFETY: the caller gives a chain.
            unsafe { chain::without(answer.cast(), kind, ask) };
            // SAFETY: the caller gives a chain, and the type is the kind's.
            let found = unsafe {
                chain::find::<vk::PhysicalDevicePCIBusInfoPropertiesEXT<'_>>(answer.cast(), kind)
            };
            if let Some(found) = found {
                // SAFETY: it is a member of the caller's chain.
                let found = unsafe { &mut *found };
                found.pci_domain = domain;
                found.pci_bus = bus;
                found.pci_device = slot;
                found.pci_function = function;
            }
        }
    }
    if let Some(change) = &device.answers().properties {
        // SAFETY: the caller gives the structure, and the driver has filled it.
        change(&mut unsafe { &mut *answer }.properties);
    }
}

unsafe extern "system" fn features2(
    handle: vk::PhysicalDevice,
    answer: *mut vk::PhysicalDeviceFeatures2<'_>,
) {
    let Some(device) = Listed::of_newer(handle) else {
        return;
    };
    let newer = vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    // SAFETY: the caller gives a chain.
    unsafe { device.watch_chain(answer.cast(), newer) };
    let name = c"vkGetPhysicalDeviceFeatures2";
    // SAFETY: the type is the named function's.
    let real = unsafe { below_as::<vk::PFN_vkGetPhysicalDeviceFeatures2>(device.instance, name) };
    let Some(real) = real else {
        return;
    };
    // SAFETY: passed on as it came, for the driver's own device.
    unsafe { real(device.real, answer) };
    let kind = vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    // SAFETY: the caller gives a chain, and the type is the kind's.
    let found =
        unsafe { chain::find::<vk::PhysicalDeviceVulkan12Features<'static>>(answer.cast(), kind) };
    if let (Some(found), Some(change)) = (found, &device.answers().features) {
        // SAFETY: it is a member of the caller's chain.
        change(unsafe { &mut *found });
    }
}

unsafe extern "system" fn queue_families(
    handle: vk::PhysicalDevice,
    count: *mut u32,
    families: *mut vk::QueueFamilyProperties,
) {
    let Some(device) = Listed::of(handle) else {
        return;
    };
    let name = c"vkGetPhysicalDeviceQueueFamilyProperties";
    // SAFETY: the type is the named function's.
    let real = unsafe {
        below_as::<vk::PFN_vkGetPhysicalDeviceQueueFamilyProperties>(device.instance, name)
    };
    let Some(real) = real else {
        return;
    };
    let mut real_count = 0;
    // SAFETY: asks for the length alone.
    unsafe { real(device.real, &mut real_count, std::ptr::null_mut()) };
    let mut all = vec![vk::QueueFamilyProperties::default(); real_count as usize];
    // SAFETY: there is room for as many.
    unsafe { real(device.real, &mut real_count, all.as_mut_ptr()) };
    if let Some(change) = &device.answers().queue_families {
        change(&mut all);
    }
    // SAFETY: the caller gives room as the specification says.
    let _ = unsafe { chain::list(&all, count, families) };
}

unsafe extern "system" fn extensions(
    handle: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    list: *mut vk::ExtensionProperties,
) -> vk::Result {
    let Some(device) = Listed::of(handle) else {
        return vk::Result::ERROR_UNKNOWN;
    };
    if let Some(failure) = device.answers().extension_failure {
        return failure;
    }
    if !layer.is_null() {
        return vk::Result::ERROR_LAYER_NOT_PRESENT;
    }
    // SAFETY: the caller gives room as the specification says.
    unsafe { chain::list(&device.extensions(), count, list) }
}

unsafe extern "system" fn memory(
    handle: vk::PhysicalDevice,
    answer: *mut vk::PhysicalDeviceMemoryProperties,
) {
    let Some(device) = Listed::of(handle) else {
        return;
    };
    let name = c"vkGetPhysicalDeviceMemoryProperties";
    // SAFETY: the type is the named function's.
    let real =
        unsafe { below_as::<vk::PFN_vkGetPhysicalDeviceMemoryProperties>(device.instance, name) };
    let Some(real) = real else {
        return;
    };
    // SAFETY: passed on as it came, for the driver's own device.
    unsafe { real(device.real, answer) };
    // SAFETY: the caller gives the structure, and the driver has filled it.
    replace_memory(&device, unsafe { &mut *answer });
}

unsafe extern "system" fn memory2(
    handle: vk::PhysicalDevice,
    answer: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    let Some(device) = Listed::of_newer(handle) else {
        return;
    };
    let name = c"vkGetPhysicalDeviceMemoryProperties2";
    // SAFETY: the type is the named function's.
    let real =
        unsafe { below_as::<vk::PFN_vkGetPhysicalDeviceMemoryProperties2>(device.instance, name) };
    let Some(real) = real else {
        return;
    };
    // SAFETY: passed on as it came, for the driver's own device.
    let ask = || unsafe { real(device.real, answer) };
    let kind = vk::StructureType::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    match &device.answers().budgets {
        None => ask(),
        Some(budgets) => {
            // SAFETY: the caller gives a chain.
            unsafe { chain::without(answer.cast(), kind, ask) };
            // SAFETY: the caller gives a chain, and the type is the kind's.
            let found = unsafe {
                chain::find::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>(answer.cast(), kind)
            };
            if let Some(found) = found {
                // SAFETY: it is a member of the caller's chain.
                let found = unsafe { &mut *found };
                for (heap, [budget, usage]) in budgets.iter().enumerate() {
                    found.heap_budget[heap] = *budget;
                    found.heap_usage[heap] = *usage;
                }
            }
        }
    }
    // SAFETY: the caller gives the structure, and the driver has filled it.
    replace_memory(&device, &mut unsafe { &mut *answer }.memory_properties);
}

fn replace_memory(device: &Listed, answer: &mut vk::PhysicalDeviceMemoryProperties) {
    let Some(memory) = &device.answers().memory else {
        return;
    };
    *answer = vk::PhysicalDeviceMemoryProperties::default();
    answer.memory_type_count = memory.types.len() as u32;
    for (place, (flags, heap)) in answer.memory_types.iter_mut().zip(&memory.types) {
        place.property_flags = *flags;
        place.heap_index = *heap;
    }
    answer.memory_heap_count = memory.heaps.len() as u32;
    for (place, size) in answer.memory_heaps.iter_mut().zip(&memory.heaps) {
        place.size = *size;
    }
    for (flags, heap) in &memory.types {
        if flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL) {
            answer.memory_heaps[*heap as usize].flags = vk::MemoryHeapFlags::DEVICE_LOCAL;
        }
    }
}
