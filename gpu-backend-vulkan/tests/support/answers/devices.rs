//! What opened devices do: they have the memory types that were said.

#![expect(unsafe_code, reason = "stands where a C library stands")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use ash::vk::{self, Handle};

use super::physical::{Listed, is};
use super::{Function, MemoryAnswers, Stage, below_as, erased, stage};

/// The replaced functions that an instance hands out.
pub(super) fn instance_function(name: &CStr) -> Option<Function> {
    match name.to_bytes() {
        b"vkCreateDevice" => erased!(create_device, vk::PFN_vkCreateDevice),
        b"vkGetDeviceProcAddr" => erased!(get_device_proc_addr, vk::PFN_vkGetDeviceProcAddr),
        _ => None,
    }
}

/// The function of the loader below, as its type.
///
/// # Safety
///
/// `F` is the type of the function that `name` names.
unsafe fn below_device<F: Copy>(device: vk::Device, name: &CStr) -> Option<F> {
    let found = find_below(device, name)?;
    // SAFETY: both are function pointers, and the caller vouches for the type.
    Some(unsafe { std::mem::transmute_copy(&found) })
}

fn find_below(device: vk::Device, name: &CStr) -> Option<Function> {
    let (instance, _) = (*stage()?.real.lock())?;
    // SAFETY: the type is the named function's.
    let find =
        unsafe { below_as::<vk::PFN_vkGetDeviceProcAddr>(instance, c"vkGetDeviceProcAddr") }?;
    // SAFETY: passed on as it came.
    unsafe { find(device, name.as_ptr()) }
}

unsafe extern "system" fn get_device_proc_addr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller gives a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let own = match name.to_bytes() {
        b"vkAllocateMemory" => erased!(allocate_memory, vk::PFN_vkAllocateMemory),
        b"vkMapMemory" => erased!(map_memory, vk::PFN_vkMapMemory),
        b"vkGetBufferMemoryRequirements" => erased!(
            get_buffer_memory_requirements,
            vk::PFN_vkGetBufferMemoryRequirements
        ),
        _ => None,
    };
    own.or_else(|| find_below(device, name))
}

unsafe extern "system" fn create_device(
    handle: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    let Some(listed) = Listed::of(handle) else {
        return vk::Result::ERROR_UNKNOWN;
    };
    // SAFETY: the type is the named function's.
    let real = unsafe { below_as::<vk::PFN_vkCreateDevice>(listed.instance, c"vkCreateDevice") };
    let Some(real) = real else {
        return vk::Result::ERROR_UNKNOWN;
    };
    // SAFETY: the caller gives the structure.
    let mut info = unsafe { info.read() };
    let asked = match info.enabled_extension_count {
        0 => &[][..],
        count => {
            let first = info.pp_enabled_extension_names;
            // SAFETY: the caller gives as many names.
            unsafe { std::slice::from_raw_parts(first, count as usize) }
        }
    };
    let (told, known) = (listed.extensions(), listed.real_extensions());
    let mut names = Vec::new();
    for &name in asked {
        // SAFETY: the caller gives C strings.
        let text = unsafe { CStr::from_ptr(name) };
        if !told.iter().any(|extension| is(extension, text)) {
            return vk::Result::ERROR_EXTENSION_NOT_PRESENT;
        }
        // The driver does not know those that were only said to be there.
        if known.iter().any(|extension| is(extension, text)) {
            names.push(name);
        }
    }
    let newer = vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    // SAFETY: the caller gives a chain.
    unsafe { listed.watch_chain((&raw mut info).cast(), newer) };
    info.enabled_extension_count = names.len() as u32;
    info.pp_enabled_extension_names = names.as_ptr();
    // SAFETY: passed on as it came but for the names, for the driver's own device.
    let result = unsafe { real(listed.real, &info, allocator, device) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the driver has filled it.
        let device = unsafe { device.read() };
        let mut opened = listed.stage.opened.lock();
        opened.insert(device.as_raw(), listed.index);
    }
    result
}

/// The memory that an opened device was said to have, where it is not its own.
fn memory_of(device: vk::Device) -> Option<(Arc<Stage>, MemoryAnswers)> {
    let stage = stage()?;
    let index = *stage.opened.lock().get(&device.as_raw())?;
    let memory = stage.answers.devices.get(index)?.memory.clone()?;
    Some((stage, memory))
}

/// The driver's memory type that all are made of.
fn real_memory_type(stage: &Stage) -> Option<u32> {
    let (instance, device) = (*stage.real.lock())?;
    let name = c"vkGetPhysicalDeviceMemoryProperties";
    // SAFETY: the type is the named function's.
    let ask = unsafe { below_as::<vk::PFN_vkGetPhysicalDeviceMemoryProperties>(instance, name) }?;
    let mut answer = vk::PhysicalDeviceMemoryProperties::default();
    // SAFETY: the device is the instance's.
    unsafe { ask(device, &mut answer) };
    let needed = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
    let place = answer
        .memory_types_as_slice()
        .iter()
        .position(|memory| memory.property_flags.contains(needed))?;
    u32::try_from(place).ok()
}

unsafe extern "system" fn get_buffer_memory_requirements(
    device: vk::Device,
    buffer: vk::Buffer,
    answer: *mut vk::MemoryRequirements,
) {
    let name = c"vkGetBufferMemoryRequirements";
    // SAFETY: the type is the named function's.
    let real = unsafe { below_device::<vk::PFN_vkGetBufferMemoryRequirements>(device, name) };
    let Some(real) = real else {
        return;
    };
    // SAFETY: passed on as it came.
    unsafe { real(device, buffer, answer) };
    if let Some((_, memory)) = memory_of(device) {
        // SAFETY: the caller gives the structure, and the driver has filled it.
        unsafe { &mut *answer }.memory_type_bits = memory.for_buffers;
    }
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: the type is the named function's.
    let real = unsafe { below_device::<vk::PFN_vkAllocateMemory>(device, c"vkAllocateMemory") };
    let Some(real) = real else {
        return vk::Result::ERROR_UNKNOWN;
    };
    let Some((stage, said)) = memory_of(device) else {
        // SAFETY: passed on as it came.
        return unsafe { real(device, info, allocator, memory) };
    };
    // SAFETY: the caller gives the structure.
    let mut info = unsafe { info.read() };
    let asked = info.memory_type_index;
    let (Some((flags, _)), Some(own)) = (said.types.get(asked as usize), real_memory_type(&stage))
    else {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    };
    info.memory_type_index = own;
    // SAFETY: passed on as it came but for the type.
    let result = unsafe { real(device, &info, allocator, memory) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the driver has filled it.
        let memory = unsafe { memory.read() }.as_raw();
        let mut unseen = stage.unseen.lock();
        // A handle can be one that was freed before.
        if flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE) {
            unseen.remove(&memory);
        } else {
            unseen.insert(memory);
        }
        *stage.allocations.lock().entry(asked).or_default() += 1;
    }
    result
}

unsafe extern "system" fn map_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    offset: vk::DeviceSize,
    size: vk::DeviceSize,
    flags: vk::MemoryMapFlags,
    place: *mut *mut c_void,
) -> vk::Result {
    if stage().is_some_and(|stage| stage.unseen.lock().contains(&memory.as_raw())) {
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    }
    // SAFETY: the type is the named function's.
    let real = unsafe { below_device::<vk::PFN_vkMapMemory>(device, c"vkMapMemory") };
    match real {
        // SAFETY: passed on as it came.
        Some(real) => unsafe { real(device, memory, offset, size, flags, place) },
        None => vk::Result::ERROR_UNKNOWN,
    }
}
