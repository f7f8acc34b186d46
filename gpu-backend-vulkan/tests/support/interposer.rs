//! A loader between the backend and the real one, which can make a device be lost or refuse
//! memory while the driver itself is well.

#![expect(unsafe_code, reason = "stands where a C library stands")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "calls are passed on as they came"
)]

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use ash::vk::{self, Handle};
use gpu_backend_vulkan::VulkanBackendBuilder;
use grafos_host_abi::{ErrorKind, GpuContext, StreamId};
use parking_lot::Mutex;

static LOADER: OnceLock<ash::Entry> = OnceLock::new();
static STATE: Mutex<Option<State>> = Mutex::new(None);
/// How many more allocations fail.
static FAILING_ALLOCATIONS: AtomicU32 = AtomicU32::new(0);

#[derive(Default)]
struct State {
    lost: HashSet<u64>,
    /// Queues and the devices that they belong to.
    queues: HashMap<u64, u64>,
    /// The driver's functions that are replaced, by device and name.
    functions: HashMap<(u64, &'static str), Function>,
}

type Function = unsafe extern "system" fn();

fn with_state<T>(use_state: impl FnOnce(&mut State) -> T) -> T {
    use_state(STATE.lock().get_or_insert_default())
}

fn is_lost(device: u64) -> bool {
    with_state(|state| state.lost.contains(&device))
}

/// The entry point to give to the backend, or why there is none.
pub(crate) fn entry_point() -> Result<vk::PFN_vkGetInstanceProcAddr, String> {
    if LOADER.get().is_none() {
        let entry = unsafe { ash::Entry::load() }.map_err(|failure| failure.to_string())?;
        LOADER.get_or_init(|| entry);
    }
    Ok(get_instance_proc_addr)
}

/// A builder whose backend takes its functions from here.
pub(super) fn interposed(
    builder: VulkanBackendBuilder,
    entry_point: vk::PFN_vkGetInstanceProcAddr,
) -> VulkanBackendBuilder {
    // SAFETY: the interposer passes calls on to the real loader, and is never unloaded.
    unsafe { builder.entry_point(entry_point) }
}

/// Makes the next `count` allocations of device memory fail.
pub(crate) fn fail_allocations(count: u32) {
    FAILING_ALLOCATIONS.store(count, Ordering::SeqCst);
}

/// Makes a context's device be lost, and the context notice it.
pub(crate) fn lose_device(context: &dyn GpuContext) -> bool {
    let mut device = None;
    let lent = context.with_native(StreamId::DEFAULT, &[], &mut |handle| {
        device = handle.object("VkDevice");
    });
    let Some(device) = device else {
        return lent.is_err_and(|failure| failure.kind() == ErrorKind::DeviceLost);
    };
    with_state(|state| state.lost.insert(device));
    // A submission is what notices.
    let noticed = context.with_native(StreamId::DEFAULT, &[], &mut |_| {});
    // The driver is well and still works: nothing may be destroyed under it.
    if let Some(wait) = function(device, "vkDeviceWaitIdle") {
        let wait: vk::PFN_vkDeviceWaitIdle = unsafe { std::mem::transmute(wait) };
        let _ = unsafe { wait(vk::Device::from_raw(device)) };
    }
    noticed.is_err_and(|failure| failure.kind() == ErrorKind::DeviceLost)
}

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let real = LOADER.get()?.static_fn().get_instance_proc_addr;
    let text = unsafe { CStr::from_ptr(name) };
    if text == c"vkGetInstanceProcAddr" {
        let own: vk::PFN_vkGetInstanceProcAddr = get_instance_proc_addr;
        return Some(unsafe {
            std::mem::transmute::<vk::PFN_vkGetInstanceProcAddr, Function>(own)
        });
    }
    let found = unsafe { real(instance, name) }?;
    if text == c"vkGetDeviceProcAddr" {
        let _ = GET_DEVICE_PROC_ADDR.set(found);
        let own: vk::PFN_vkGetDeviceProcAddr = get_device_proc_addr;
        return Some(unsafe { std::mem::transmute::<vk::PFN_vkGetDeviceProcAddr, Function>(own) });
    }
    Some(found)
}

static GET_DEVICE_PROC_ADDR: OnceLock<Function> = OnceLock::new();

unsafe extern "system" fn get_device_proc_addr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let real: vk::PFN_vkGetDeviceProcAddr =
        unsafe { std::mem::transmute(*GET_DEVICE_PROC_ADDR.get()?) };
    let found = unsafe { real(device, name) }?;
    let text = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    let (name, own): (&'static str, Function) = unsafe {
        match text {
            "vkGetDeviceQueue" => (
                "vkGetDeviceQueue",
                std::mem::transmute::<vk::PFN_vkGetDeviceQueue, Function>(get_device_queue),
            ),
            "vkQueueSubmit" => (
                "vkQueueSubmit",
                std::mem::transmute::<vk::PFN_vkQueueSubmit, Function>(queue_submit),
            ),
            "vkWaitSemaphores" => (
                "vkWaitSemaphores",
                std::mem::transmute::<vk::PFN_vkWaitSemaphores, Function>(wait_semaphores),
            ),
            "vkGetSemaphoreCounterValue" => (
                "vkGetSemaphoreCounterValue",
                std::mem::transmute::<vk::PFN_vkGetSemaphoreCounterValue, Function>(
                    get_semaphore_counter_value,
                ),
            ),
            "vkAllocateMemory" => (
                "vkAllocateMemory",
                std::mem::transmute::<vk::PFN_vkAllocateMemory, Function>(allocate_memory),
            ),
            "vkDestroyDevice" => (
                "vkDestroyDevice",
                std::mem::transmute::<vk::PFN_vkDestroyDevice, Function>(destroy_device),
            ),
            "vkDeviceWaitIdle" => ("vkDeviceWaitIdle", found),
            _ => return Some(found),
        }
    };
    with_state(|state| state.functions.insert((device.as_raw(), name), found));
    Some(own)
}

fn function(device: u64, name: &'static str) -> Option<Function> {
    with_state(|state| state.functions.get(&(device, name)).copied())
}

unsafe extern "system" fn get_device_queue(
    device: vk::Device,
    family: u32,
    index: u32,
    queue: *mut vk::Queue,
) {
    if let Some(real) = function(device.as_raw(), "vkGetDeviceQueue") {
        let real: vk::PFN_vkGetDeviceQueue = unsafe { std::mem::transmute(real) };
        unsafe { real(device, family, index, queue) };
        let queue = unsafe { *queue };
        with_state(|state| state.queues.insert(queue.as_raw(), device.as_raw()));
    }
}

unsafe extern "system" fn queue_submit(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    let device = with_state(|state| state.queues.get(&queue.as_raw()).copied());
    let device = device.unwrap_or_default();
    match function(device, "vkQueueSubmit") {
        Some(real) if !is_lost(device) => {
            let real: vk::PFN_vkQueueSubmit = unsafe { std::mem::transmute(real) };
            unsafe { real(queue, count, infos, fence) }
        }
        _ => vk::Result::ERROR_DEVICE_LOST,
    }
}

unsafe extern "system" fn wait_semaphores(
    device: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    timeout: u64,
) -> vk::Result {
    let Some(real) = function(device.as_raw(), "vkWaitSemaphores") else {
        return vk::Result::ERROR_UNKNOWN;
    };
    let real: vk::PFN_vkWaitSemaphores = unsafe { std::mem::transmute(real) };
    if is_lost(device.as_raw()) {
        return vk::Result::ERROR_DEVICE_LOST;
    }
    let result = unsafe { real(device, info, timeout) };
    if is_lost(device.as_raw()) {
        return vk::Result::ERROR_DEVICE_LOST;
    }
    result
}

unsafe extern "system" fn get_semaphore_counter_value(
    device: vk::Device,
    semaphore: vk::Semaphore,
    value: *mut u64,
) -> vk::Result {
    match function(device.as_raw(), "vkGetSemaphoreCounterValue") {
        Some(real) if !is_lost(device.as_raw()) => {
            let real: vk::PFN_vkGetSemaphoreCounterValue = unsafe { std::mem::transmute(real) };
            unsafe { real(device, semaphore, value) }
        }
        _ => vk::Result::ERROR_DEVICE_LOST,
    }
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    let take = |left: u32| left.checked_sub(1);
    if FAILING_ALLOCATIONS
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
        .is_ok()
    {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    }
    match function(device.as_raw(), "vkAllocateMemory") {
        Some(real) => {
            let real: vk::PFN_vkAllocateMemory = unsafe { std::mem::transmute(real) };
            unsafe { real(device, info, allocator, memory) }
        }
        None => vk::Result::ERROR_UNKNOWN,
    }
}

unsafe extern "system" fn destroy_device(
    device: vk::Device,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    let raw = device.as_raw();
    let real = function(raw, "vkDestroyDevice");
    // Its handle can be given to another device.
    with_state(|state| {
        state.lost.remove(&raw);
        state.functions.retain(|(owner, _), _| *owner != raw);
        state.queues.retain(|_, owner| *owner != raw);
    });
    if let Some(real) = real {
        let real: vk::PFN_vkDestroyDevice = unsafe { std::mem::transmute(real) };
        unsafe { real(device, allocator) };
    }
}
