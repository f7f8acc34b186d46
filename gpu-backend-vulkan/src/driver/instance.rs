//! The loader library and the instance.

#![expect(
    unsafe_code,
    reason = "loading a library and every Vulkan call are unsafe by nature"
)]

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;

use ash::{ext, khr, vk};

use super::Physical;
use super::exit;
use super::validation::{LAYER, Sink, messenger_info};
use crate::error;

/// What the application asks of the instance.
#[derive(Default)]
pub(crate) struct InstanceOptions {
    /// The loader to load instead of the system's.
    pub(crate) library_path: Option<PathBuf>,
    /// The loader's entry point, where the application has loaded it; nothing is loaded then.
    pub(crate) entry_point: Option<vk::PFN_vkGetInstanceProcAddr>,
    /// Where the validation layer's messages go; the layer is enabled when this is set.
    pub(crate) validation: Option<Sink>,
}

/// Why there is no instance, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadFailure {
    pub(crate) reason: String,
    pub(crate) hint: String,
}

/// A `VkInstance`.
pub(crate) struct Instance {
    raw: ash::Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// Boxed twice so that the address the messenger was given stays the same.
    _sink: Option<Box<Sink>>,
    /// Last: the library outlives everything that came from it.
    entry: ash::Entry,
}

/// The newest version whose additions are used where a device has them.
const API_VERSION: u32 = vk::API_VERSION_1_3;

impl Instance {
    /// Loads the loader and creates an instance.
    pub(crate) fn new(options: &mut InstanceOptions) -> Result<Arc<Self>, LoadFailure> {
        let entry = match options.entry_point {
            // SAFETY: whoever set it vouched for it: see `VulkanBackendBuilder::entry_point`.
            Some(get_instance_proc_addr) => unsafe {
                ash::Entry::from_static_fn(ash::StaticFn {
                    get_instance_proc_addr,
                })
            },
            None => load(options.library_path.as_ref())?,
        };
        let sink = options.validation.take().map(Box::new);
        // SAFETY: no instance is needed to ask for the loader's version.
        let loader_version = unsafe { entry.try_enumerate_instance_version() };
        match loader_version {
            Ok(Some(version)) if version >= vk::API_VERSION_1_1 => {}
            Ok(_) => {
                return Err(LoadFailure {
                    reason: "the Vulkan loader is version 1.0, 1.1 or later is needed".into(),
                    hint: "install a current Vulkan loader (libvulkan1)".into(),
                });
            }
            Err(result) => return Err(call_failure("vkEnumerateInstanceVersion", result)),
        }
        // SAFETY: the entry points are loaded.
        let extensions = unsafe { entry.enumerate_instance_extension_properties(None) }
            .map_err(|result| call_failure("vkEnumerateInstanceExtensionProperties", result))?;
        let has = |name: &CStr| {
            extensions
                .iter()
                .any(|extension| extension.extension_name_as_c_str() == Ok(name))
        };

        let mut enabled = Vec::new();
        let mut flags = vk::InstanceCreateFlags::empty();
        if has(khr::portability_enumeration::NAME) {
            enabled.push(khr::portability_enumeration::NAME.as_ptr());
            flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        let mut layers = Vec::new();
        if sink.is_some() {
            require_layer(&entry)?;
            layers.push(LAYER.as_ptr());
            enabled.push(ext::debug_utils::NAME.as_ptr());
            enabled.push(ext::validation_features::NAME.as_ptr());
        }

        let application = vk::ApplicationInfo::default()
            .application_name(c"grafos")
            .engine_name(c"grafos")
            .api_version(API_VERSION);
        let checks = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features =
            vk::ValidationFeaturesEXT::default().enabled_validation_features(&checks);
        let mut info = vk::InstanceCreateInfo::default()
            .flags(flags)
            .application_info(&application)
            .enabled_extension_names(&enabled)
            .enabled_layer_names(&layers);
        let mut messenger_desc = sink.as_deref().map(messenger_info);
        if let Some(desc) = &mut messenger_desc {
            // Also in the chain, so that creating and destroying the instance is watched.
            info = info.push_next(&mut features).push_next(desc);
        }
        // SAFETY: every pointer in `info` outlives the call.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(creation_failure)?;
        // Drivers and layers are loaded by now.
        exit::watch();
        let mut instance = Self {
            raw,
            messenger: None,
            _sink: sink,
            entry,
        };
        if let Some(sink) = instance._sink.as_deref() {
            let functions = ext::debug_utils::Instance::new(&instance.entry, &instance.raw);
            // SAFETY: the extension is enabled, and the sink outlives the messenger.
            let messenger =
                unsafe { functions.create_debug_utils_messenger(&messenger_info(sink), None) }
                    .map_err(|result| call_failure("vkCreateDebugUtilsMessengerEXT", result))?;
            instance.messenger = Some((functions, messenger));
        }
        Ok(Arc::new(instance))
    }

    /// Lists the physical devices, in the driver's order.
    pub(crate) fn physical_devices(self: &Arc<Self>) -> Result<Vec<Physical>, vk::Result> {
        // SAFETY: the instance is live.
        let devices = unsafe { self.raw.enumerate_physical_devices() }?;
        Ok(devices
            .into_iter()
            .map(|device| Physical::new(Arc::clone(self), device))
            .collect())
    }

    pub(super) fn raw(&self) -> &ash::Instance {
        &self.raw
    }

    /// The instance's handle as a number.
    pub(crate) fn handle(&self) -> u64 {
        use ash::vk::Handle;
        self.raw.handle().as_raw()
    }

    /// `vkGetInstanceProcAddr` of the loaded library, as a number.
    pub(crate) fn proc_addr(&self) -> u64 {
        self.entry.static_fn().get_instance_proc_addr as usize as u64
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((functions, messenger)) = self.messenger.take() {
            // SAFETY: the messenger was created from this instance and is destroyed once.
            unsafe { functions.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: devices hold the instance, so none is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

fn load(path: Option<&PathBuf>) -> Result<ash::Entry, LoadFailure> {
    let loaded = match path {
        // SAFETY: the library is the one that the application named.
        Some(path) => unsafe { ash::Entry::load_from(path) },
        // SAFETY: the system's Vulkan loader runs no code that depends on our state.
        None => unsafe { ash::Entry::load() },
    };
    loaded.map_err(|cause| {
        let name = path.map_or_else(
            || "the Vulkan loader".to_owned(),
            |path| format!("{}", path.display()),
        );
        match cause {
            ash::LoadingError::LibraryLoadFailure(cause) => LoadFailure {
                reason: format!("{name} cannot be loaded: {cause}"),
                hint: "install a Vulkan loader (libvulkan1) and a driver".into(),
            },
            ash::LoadingError::MissingEntryPoint(_) => LoadFailure {
                reason: format!("{name} has no vkGetInstanceProcAddr"),
                hint: "install a Vulkan loader (libvulkan1); this library is not one".into(),
            },
        }
    })
}

fn require_layer(entry: &ash::Entry) -> Result<(), LoadFailure> {
    // SAFETY: the entry points are loaded.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }
        .map_err(|result| call_failure("vkEnumerateInstanceLayerProperties", result))?;
    if layers
        .iter()
        .any(|layer| layer.layer_name_as_c_str() == Ok(LAYER))
    {
        return Ok(());
    }
    Err(LoadFailure {
        reason: "validation was asked for, and VK_LAYER_KHRONOS_validation is not installed".into(),
        hint: "install the Khronos validation layer (vulkan-validationlayers)".into(),
    })
}

fn creation_failure(result: vk::Result) -> LoadFailure {
    if result == vk::Result::ERROR_INCOMPATIBLE_DRIVER {
        return LoadFailure {
            reason: format!(
                "no Vulkan driver is installed, or none that fits this loader ({})",
                error::driver_fault("vkCreateInstance", result, String::new())
            ),
            hint: "install a Vulkan driver (ICD), such as mesa-vulkan-drivers; \
                   VK_ICD_FILENAMES names its manifest"
                .into(),
        };
    }
    call_failure("vkCreateInstance", result)
}

/// The failure of a call before there is a device.
pub(crate) fn call_failure(entry_point: &'static str, result: vk::Result) -> LoadFailure {
    LoadFailure {
        reason: error::driver_fault(entry_point, result, String::new()).to_string(),
        hint: "run vulkaninfo to see whether the driver is installed correctly".into(),
    }
}
