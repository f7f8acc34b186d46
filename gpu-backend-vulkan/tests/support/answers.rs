//! A loader that changes what the driver says: about itself, and about devices that are not here.
//!
//! Every device that it lists is the driver's first one, under a handle of its own and with other
//! answers; what is done on it, the driver does. Below it are the interposer and the real loader.

#![expect(unsafe_code, reason = "stands where a C library stands")]

mod chain;
mod devices;
mod physical;

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ash::vk::{self, Handle};
use gpu_backend_vulkan::{VulkanBackend, VulkanBackendBuilder};
use parking_lot::{Mutex, MutexGuard};

use super::{Messages, interposer, is_set};

/// Changes an answer of the driver's.
pub(crate) type Change<T> = Option<Box<dyn Fn(&mut T) + Send + Sync>>;

/// A change; its parameter's type is taken from where it is used.
pub(crate) fn change<T>(how: impl Fn(&mut T) + Send + Sync + 'static) -> Change<T> {
    Some(Box::new(how))
}

/// What the loader says.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) loader: LoaderVersion,
    /// What `vkCreateInstance` fails with.
    pub(crate) instance_failure: Option<vk::Result>,
    /// What `vkEnumeratePhysicalDevices` fails with.
    pub(crate) enumeration_failure: Option<vk::Result>,
    /// The devices that it lists, each made of the driver's first.
    pub(crate) devices: Vec<DeviceAnswers>,
}

/// Which version the loader has.
#[derive(Clone, Copy, Default)]
pub(crate) enum LoaderVersion {
    /// Its own.
    #[default]
    Real,
    /// 1.0 as such loaders are: without `vkEnumerateInstanceVersion`.
    Absent,
    /// This one.
    Given(u32),
}

/// What a device says where it differs from the driver's first one.
#[derive(Default)]
pub(crate) struct DeviceAnswers {
    pub(crate) properties: Change<vk::PhysicalDeviceProperties>,
    pub(crate) features: Change<vk::PhysicalDeviceVulkan12Features<'static>>,
    pub(crate) queue_families: Change<Vec<vk::QueueFamilyProperties>>,
    /// What `vkEnumerateDeviceExtensionProperties` fails with.
    pub(crate) extension_failure: Option<vk::Result>,
    /// Extensions that it does not list.
    pub(crate) hidden_extensions: Vec<&'static CStr>,
    /// Domain, bus, device and function, which `VK_EXT_pci_bus_info` brings.
    pub(crate) pci: Option<[u32; 4]>,
    /// Budget and usage of each heap in bytes, which `VK_EXT_memory_budget` brings.
    pub(crate) budgets: Option<Vec<[u64; 2]>>,
    pub(crate) memory: Option<MemoryAnswers>,
}

/// Memory types, all of which are made of one of the driver's.
#[derive(Clone)]
pub(crate) struct MemoryAnswers {
    /// Flags and heap of each type.
    pub(crate) types: Vec<(vk::MemoryPropertyFlags, u32)>,
    /// Size in bytes of each heap.
    pub(crate) heaps: Vec<u64>,
    /// The types that buffers can be made of, a bit for each.
    pub(crate) for_buffers: u32,
}

/// Answers that are being given, and what was done under them.
struct Stage {
    answers: Answers,
    /// The instance, and the driver's first device.
    real: Mutex<Option<(vk::Instance, vk::PhysicalDevice)>>,
    /// The devices that were opened, and which of the listed ones they are.
    opened: Mutex<HashMap<u64, usize>>,
    /// Memory that the host must not see.
    unseen: Mutex<HashSet<u64>>,
    /// How many allocations of each memory type succeeded.
    allocations: Mutex<HashMap<u32, u64>>,
    /// How many questions were asked that Vulkan 1.0 does not have.
    newer_questions: AtomicU64,
    /// How many structures of Vulkan 1.3 were given to devices that do not know them.
    unknown_structures: AtomicU64,
}

static BASE: OnceLock<vk::PFN_vkGetInstanceProcAddr> = OnceLock::new();
static STAGE: Mutex<Option<Arc<Stage>>> = Mutex::new(None);
/// Answers are given to one backend at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A backend that is given answers, until this is dropped.
pub(crate) struct Answered {
    pub(crate) backend: Arc<VulkanBackend>,
    pub(crate) messages: Messages,
    stage: Arc<Stage>,
    _turn: MutexGuard<'static, ()>,
}

impl Answered {
    /// Makes a backend that is given these answers.
    pub(crate) fn new(answers: Answers) -> Result<Self, String> {
        let turn = TURN.lock();
        let base = interposer::entry_point()?;
        BASE.get_or_init(|| base);
        let stage = Arc::new(Stage {
            answers,
            real: Mutex::default(),
            opened: Mutex::default(),
            unseen: Mutex::default(),
            allocations: Mutex::default(),
            newer_questions: AtomicU64::new(0),
            unknown_structures: AtomicU64::new(0),
        });
        *STAGE.lock() = Some(Arc::clone(&stage));
        let messages = Messages::default();
        let mut builder: VulkanBackendBuilder = VulkanBackend::builder();
        if is_set("GRAFOS_VULKAN_VALIDATION") {
            builder = messages.watch(builder);
        }
        let builder = interposer::interposed(builder, get_instance_proc_addr);
        Ok(Self {
            backend: Arc::new(builder.build()),
            messages,
            stage,
            _turn: turn,
        })
    }

    /// Makes a backend that lists one device.
    pub(crate) fn device(device: DeviceAnswers) -> Result<Self, String> {
        Self::new(Answers {
            devices: vec![device],
            ..Answers::default()
        })
    }

    /// How many allocations of a memory type have succeeded.
    pub(crate) fn allocations(&self, memory_type: u32) -> u64 {
        let allocations = self.stage.allocations.lock();
        allocations.get(&memory_type).copied().unwrap_or(0)
    }

    /// How many questions about a device were asked that Vulkan 1.0 does not have.
    pub(crate) fn newer_questions(&self) -> u64 {
        self.stage.newer_questions.load(Ordering::SeqCst)
    }

    /// How many structures of Vulkan 1.3 were given to devices that do not know them.
    pub(crate) fn unknown_structures(&self) -> u64 {
        self.stage.unknown_structures.load(Ordering::SeqCst)
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        *STAGE.lock() = None;
    }
}

type Function = unsafe extern "system" fn();

fn stage() -> Option<Arc<Stage>> {
    STAGE.lock().clone()
}

/// The loader's own function.
fn below(instance: vk::Instance, name: &CStr) -> Option<Function> {
    let base = BASE.get()?;
    // SAFETY: the interposer takes what a loader takes.
    unsafe { base(instance, name.as_ptr()) }
}

/// The loader's own function, as its type.
///
/// # Safety
///
/// `F` is the type of the function that `name` names.
unsafe fn below_as<F: Copy>(instance: vk::Instance, name: &CStr) -> Option<F> {
    let found = below(instance, name)?;
    // SAFETY: both are function pointers, and the caller vouches for the type.
    Some(unsafe { std::mem::transmute_copy(&found) })
}

/// A function with its type forgotten, as loaders hand it out.
macro_rules! erased {
    ($function:expr, $type:ty) => {{
        let function: $type = $function;
        // SAFETY: who gets it knows its type by its name.
        Some(unsafe { std::mem::transmute::<$type, $crate::support::answers::Function>(function) })
    }};
}
use erased;

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller gives a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let loader = stage().map_or(LoaderVersion::Real, |stage| stage.answers.loader);
    match name.to_bytes() {
        b"vkGetInstanceProcAddr" => {
            erased!(get_instance_proc_addr, vk::PFN_vkGetInstanceProcAddr)
        }
        b"vkEnumerateInstanceVersion" => match loader {
            LoaderVersion::Real => below(instance, name),
            LoaderVersion::Absent => None,
            LoaderVersion::Given(_) => erased!(
                enumerate_instance_version,
                vk::PFN_vkEnumerateInstanceVersion
            ),
        },
        b"vkCreateInstance" => erased!(create_instance, vk::PFN_vkCreateInstance),
        b"vkEnumeratePhysicalDevices" => erased!(
            enumerate_physical_devices,
            vk::PFN_vkEnumeratePhysicalDevices
        ),
        _ => physical::function(name)
            .or_else(|| devices::instance_function(name))
            .or_else(|| below(instance, name)),
    }
}

unsafe extern "system" fn enumerate_instance_version(version: *mut u32) -> vk::Result {
    if let Some(stage) = stage()
        && let LoaderVersion::Given(given) = stage.answers.loader
    {
        // SAFETY: the caller gives a place for the version.
        unsafe { version.write(given) };
    }
    vk::Result::SUCCESS
}

unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    if let Some(failure) = stage().and_then(|stage| stage.answers.instance_failure) {
        return failure;
    }
    let name = c"vkCreateInstance";
    // SAFETY: the type is the named function's.
    let real = unsafe { below_as::<vk::PFN_vkCreateInstance>(vk::Instance::null(), name) };
    match real {
        // SAFETY: passed on as it came.
        Some(real) => unsafe { real(info, allocator, instance) },
        None => vk::Result::ERROR_UNKNOWN,
    }
}

unsafe extern "system" fn enumerate_physical_devices(
    instance: vk::Instance,
    count: *mut u32,
    devices: *mut vk::PhysicalDevice,
) -> vk::Result {
    let Some(stage) = stage() else {
        return vk::Result::ERROR_UNKNOWN;
    };
    if let Some(failure) = stage.answers.enumeration_failure {
        return failure;
    }
    let name = c"vkEnumeratePhysicalDevices";
    // SAFETY: the type is the named function's.
    let real = unsafe { below_as::<vk::PFN_vkEnumeratePhysicalDevices>(instance, name) };
    let Some(real) = real else {
        return vk::Result::ERROR_UNKNOWN;
    };
    let mut first = vk::PhysicalDevice::null();
    // SAFETY: there is room for one.
    let result = unsafe { real(instance, &mut 1, &mut first) };
    if result != vk::Result::INCOMPLETE && result != vk::Result::SUCCESS {
        return result;
    }
    *stage.real.lock() = Some((instance, first));
    let listed: Vec<_> = (1..=stage.answers.devices.len() as u64)
        .map(vk::PhysicalDevice::from_raw)
        .collect();
    // SAFETY: the caller gives room as the specification says.
    unsafe { chain::list(&listed, count, devices) }
}
