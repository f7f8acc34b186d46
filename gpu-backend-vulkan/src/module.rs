//! Kernel images: what a module holds and how its kernels are called.

mod pipeline;
mod requirements;
mod spirv;
#[cfg(feature = "spirv-val")]
mod validate;

use std::collections::HashMap;
use std::sync::Arc;

use grafos_host_abi::{
    GlobalInfo, GpuError, HandleFault, HandleKind, ImageFormat, KernelFault, KernelId, KernelInfo,
    ModuleFault, ModuleId, ModuleInfo, Result,
};
use parking_lot::Mutex;

pub(crate) use pipeline::Kernel;

use crate::context::{Garbage, Shared};
use crate::driver::ShaderModule;
use spirv::{SpirvError, SpirvModule};

/// A loaded module.
pub(crate) struct Module {
    spirv: SpirvModule,
    resolved: Mutex<Resolved>,
}

#[derive(Default)]
struct Resolved {
    /// Made when the first kernel is resolved.
    shader: Option<Arc<ShaderModule>>,
    kernels: HashMap<String, KernelId>,
    unloaded: bool,
}

impl Shared {
    pub(crate) fn load_module(&self, image: &[u8]) -> Result<ModuleInfo> {
        self.device.ensure_alive()?;
        let format = ImageFormat::recognize(image);
        let refuse = |reason: String| {
            GpuError::InvalidModule(ModuleFault {
                format,
                len_bytes: image.len() as u64,
                reason,
            })
        };
        if format != ImageFormat::SpirV {
            return Err(refuse(format!("{} takes SPIR-V only", self.info.name)));
        }
        let spirv = SpirvModule::parse(image).map_err(|cause| match cause {
            // Well formed, as far as can be told, but not for a backend like this.
            SpirvError::Unsupported { .. } | SpirvError::Interface { .. } => {
                requirements::lacks("SPIR-V module".into(), cause.to_string())
            }
            malformed => refuse(malformed.to_string()),
        })?;
        let provided = requirements::Provided {
            abilities: self.device.abilities(),
            api_version: self.api_version,
            device_name: &self.info.name,
        };
        requirements::check(&spirv, &provided)?;
        #[cfg(feature = "spirv-val")]
        validate::validate(&spirv.words, self.api_version, self.device.abilities())
            .map_err(refuse)?;
        let module = Arc::new(Module {
            spirv,
            resolved: Mutex::default(),
        });
        Ok(ModuleInfo {
            id: ModuleId(self.modules.write().insert(module)),
            format,
        })
    }

    pub(crate) fn unload_module(&self, module: ModuleId) -> Result<()> {
        let removed = self.modules.write().remove(module.0);
        let removed = removed.ok_or(unknown(module))?;
        let kernels = {
            let mut resolved = removed.resolved.lock();
            resolved.unloaded = true;
            std::mem::take(&mut resolved.kernels)
        };
        let kernels: Vec<Arc<Kernel>> = {
            let mut table = self.kernels.write();
            kernels
                .into_values()
                .filter_map(|kernel| table.remove(kernel.0))
                .collect()
        };
        self.discard(Garbage::Kernels(kernels));
        Ok(())
    }

    fn module(&self, module: ModuleId) -> Result<Arc<Module>> {
        let modules = self.modules.read();
        modules.get(module.0).cloned().ok_or(unknown(module))
    }

    pub(crate) fn kernel_names(&self, module: ModuleId) -> Result<Vec<String>> {
        Ok(self.module(module)?.names())
    }

    pub(crate) fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelInfo> {
        self.device.ensure_alive()?;
        let object = self.module(module)?;
        // Held while the kernel is made, so that it is made once.
        let mut resolved = object.resolved.lock();
        if resolved.unloaded {
            return Err(unknown(module));
        }
        if let Some(known) = resolved.kernels.get(name) {
            return Ok(self.kernel_object(*known)?.info().clone());
        }
        let entry = object
            .spirv
            .entry(name)
            // Drivers and layers read names as C strings, and not all of them with care.
            .filter(|_| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| {
                GpuError::KernelNotFound(KernelFault {
                    name: name.to_owned(),
                    available: object.names(),
                })
            })?;
        let shader = match &resolved.shader {
            Some(shader) => Arc::clone(shader),
            None => {
                let shader = Arc::new(ShaderModule::new(&self.device, &object.spirv.words)?);
                resolved.shader = Some(Arc::clone(&shader));
                shader
            }
        };
        let kernel = Kernel::new(self, entry, shader)?;
        let mut info = kernel.info().clone();
        let id = self
            .kernels
            .write()
            .insert_with(|id| Arc::new(kernel.with_id(KernelId(id))));
        info.id = KernelId(id);
        resolved.kernels.insert(name.to_owned(), info.id);
        Ok(info)
    }

    /// Finds a live kernel.
    pub(crate) fn kernel_object(&self, kernel: KernelId) -> Result<Arc<Kernel>> {
        let kernels = self.kernels.read();
        kernels.get(kernel.0).cloned().ok_or(unknown_kernel(kernel))
    }

    pub(crate) fn global(&self, module: ModuleId, name: &str) -> Result<GlobalInfo> {
        self.device.ensure_alive()?;
        self.module(module)?;
        Err(requirements::lacks(
            format!("global variable {name:?}"),
            "SPIR-V kernels have no variables that the host can reach".into(),
        ))
    }
}

impl Module {
    /// The kernels' names, sorted.
    fn names(&self) -> Vec<String> {
        let entries = self.spirv.entries.iter();
        let mut names: Vec<String> = entries.map(|entry| entry.name.clone()).collect();
        names.sort_unstable();
        names
    }
}

fn unknown(module: ModuleId) -> GpuError {
    GpuError::InvalidHandle(HandleFault {
        kind: HandleKind::Module,
        id: module.0,
    })
}

pub(crate) fn unknown_kernel(kernel: KernelId) -> GpuError {
    GpuError::InvalidHandle(HandleFault {
        kind: HandleKind::Kernel,
        id: kernel.0,
    })
}
