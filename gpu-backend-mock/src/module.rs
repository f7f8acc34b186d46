//! Modules: images that carry the registered kernels, and their global variables.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use grafos_host_abi::{
    Axis, DeviceLimits, GlobalInfo, GpuError, HandleKind, ImageFormat, KernelId, KernelInfo,
    LimitFault, LimitKind, ModuleId, ModuleInfo, Result,
};
use parking_lot::RwLock;

use crate::context::{Core, State};
use crate::error::{invalid_handle, invalid_module, kernel_not_found, unsupported};
use crate::fault::Operation;
use crate::kernel::HostKernel;
use crate::memory::{Allocation, Label};

/// A module's own copies of the registered globals, by name.
pub(crate) type Globals = Arc<BTreeMap<String, Arc<Allocation>>>;

/// What every module of a backend offers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    kernels: RwLock<BTreeMap<String, Arc<HostKernel>>>,
    globals: RwLock<BTreeMap<String, GlobalTemplate>>,
    /// How many times a global was registered, so that modules notice new ones.
    generation: AtomicU64,
}

#[derive(Debug, Clone)]
struct GlobalTemplate {
    size_bytes: u64,
    initial: Arc<[u8]>,
}

impl Registry {
    pub(crate) fn add_kernel(&self, kernel: HostKernel) {
        let name = kernel.name().to_owned();
        self.kernels.write().insert(name, Arc::new(kernel));
    }

    pub(crate) fn add_global(&self, name: String, size_bytes: u64, initial: &[u8]) {
        let len = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let template = GlobalTemplate {
            size_bytes,
            initial: initial[..initial.len().min(len)].into(),
        };
        let mut globals = self.globals.write();
        globals.insert(name, template);
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn kernel(&self, name: &str) -> Option<Arc<HostKernel>> {
        self.kernels.read().get(name).cloned()
    }

    fn kernel_names(&self) -> Vec<String> {
        self.kernels.read().keys().cloned().collect()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Module {
    kernels: HashMap<String, KernelInfo>,
    globals: Globals,
    /// The registry's generation that `globals` reflects.
    generation: u64,
}

/// What a kernel id stands for.
#[derive(Debug)]
pub(crate) struct ResolvedKernel {
    pub(crate) module: ModuleId,
    pub(crate) name: Arc<str>,
    /// `None` for a kernel that does nothing.
    pub(crate) body: Option<Arc<HostKernel>>,
    pub(crate) max_dynamic_shared_bytes: u32,
}

impl State {
    fn module(&mut self, id: ModuleId) -> Result<&mut Module> {
        self.modules
            .get_mut(&id)
            .ok_or_else(|| invalid_handle(HandleKind::Module, id.0))
    }

    pub(crate) fn globals(&self, id: ModuleId) -> Globals {
        let module = self.modules.get(&id);
        module
            .map(|module| Arc::clone(&module.globals))
            .unwrap_or_default()
    }

    fn remove_module(&mut self, id: ModuleId) -> Option<()> {
        let module = self.modules.remove(&id)?;
        self.kernels.retain(|_, kernel| kernel.module != id);
        for allocation in module.globals.values() {
            self.retire(allocation.id());
        }
        Some(())
    }
}

impl Core {
    pub(crate) fn load_module(&self, image: &[u8]) -> Result<ModuleInfo> {
        let mut state = self.begin(Operation::LoadModule)?;
        let format = check_image(image, self.backend.strict)?;
        let id = ModuleId(state.next_id());
        state.modules.insert(id, Module::default());
        drop(state);
        if let Err(error) = self.add_new_globals(id) {
            let mut state = self.state.lock();
            state.remove_module(id);
            self.release_retired(&mut state);
            return Err(error);
        }
        Ok(ModuleInfo { id, format })
    }

    pub(crate) fn unload_module(&self, id: ModuleId) -> Result<()> {
        let mut state = self.begin_teardown(Operation::UnloadModule)?;
        if state.remove_module(id).is_none() && state.lost.is_none() {
            return Err(invalid_handle(HandleKind::Module, id.0));
        }
        self.release_retired(&mut state);
        Ok(())
    }

    pub(crate) fn kernel_names(&self, id: ModuleId) -> Result<Vec<String>> {
        let mut state = self.begin(Operation::KernelNames)?;
        state.module(id)?;
        Ok(self.backend.registry.kernel_names())
    }

    pub(crate) fn kernel(&self, id: ModuleId, name: &str) -> Result<KernelInfo> {
        let mut state = self.begin(Operation::ResolveKernel)?;
        if let Some(info) = state.module(id)?.kernels.get(name) {
            return Ok(info.clone());
        }
        let registry = &self.backend.registry;
        let body = registry.kernel(name);
        let is_name = !name.is_empty() && !name.contains('\0');
        if !is_name || (body.is_none() && self.backend.strict) {
            return Err(kernel_not_found(name, registry.kernel_names()));
        }
        let kernel = KernelId(state.next_id());
        let device = self.device.info();
        let mut info = describe(kernel, name, body.as_deref(), &device.limits)?;
        if !device.capabilities.dynamic_shared_memory {
            info.max_dynamic_shared_bytes = 0;
        }
        let resolved = ResolvedKernel {
            module: id,
            name: name.into(),
            body,
            max_dynamic_shared_bytes: info.max_dynamic_shared_bytes,
        };
        state.kernels.insert(kernel, resolved);
        let module = state.module(id)?;
        module.kernels.insert(name.to_owned(), info.clone());
        Ok(info)
    }

    pub(crate) fn global(&self, id: ModuleId, name: &str) -> Result<GlobalInfo> {
        let mut state = self.begin(Operation::FindGlobal)?;
        if !self.device.info().capabilities.module_globals {
            return Err(unsupported(
                "module globals",
                "the simulated device does not find globals by name",
            ));
        }
        if self.has_new_globals(&state, id) {
            drop(state);
            self.add_new_globals(id)?;
            state = self.state.lock();
        }
        let globals = &state.module(id)?.globals;
        match globals.get(name) {
            Some(allocation) => Ok(GlobalInfo {
                buffer: allocation.id(),
                address: allocation.address(),
                size_bytes: allocation.size_bytes(),
            }),
            None => Err(kernel_not_found(name, globals.keys().cloned().collect())),
        }
    }

    /// Whether globals were registered since the module last got its copies.
    pub(crate) fn has_new_globals(&self, state: &State, id: ModuleId) -> bool {
        let module = state.modules.get(&id);
        module.is_some_and(|module| module.generation != self.backend.registry.generation())
    }

    /// Gives a module its own copies of the globals that it does not have yet.
    pub(crate) fn add_new_globals(&self, id: ModuleId) -> Result<()> {
        // Read first: a global that is registered meanwhile makes the module stale again.
        let generation = self.backend.registry.generation();
        let templates = self.backend.registry.globals.read().clone();
        let present = self.state.lock().globals(id);
        let mut added = BTreeMap::new();
        let mut failure = None;
        for (name, template) in templates {
            if present.contains_key(&name) {
                continue;
            }
            let label = |id| Label::Global {
                name: name.clone(),
                id,
            };
            match self.allocate(template.size_bytes, label) {
                Ok(allocation) => {
                    allocation.write(0, &template.initial);
                    added.insert(name, allocation);
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let mut state = self.state.lock();
        let mut surplus = Vec::new();
        match state.modules.get_mut(&id) {
            Some(module) => {
                let globals = Arc::make_mut(&mut module.globals);
                for (name, allocation) in added {
                    // Another thread can have added the same one meanwhile; the first stays.
                    match globals.entry(name) {
                        Entry::Vacant(entry) => {
                            entry.insert(allocation);
                        }
                        Entry::Occupied(_) => surplus.push(allocation.id()),
                    }
                }
                if failure.is_none() {
                    module.generation = module.generation.max(generation);
                }
            }
            None => surplus.extend(added.values().map(|allocation| allocation.id())),
        }
        for id in surplus {
            state.retire(id);
        }
        self.release_retired(&mut state);
        failure.map_or(Ok(()), Err)
    }
}

fn describe(
    id: KernelId,
    name: &str,
    body: Option<&HostKernel>,
    limits: &DeviceLimits,
) -> Result<KernelInfo> {
    let mut info = KernelInfo::new(id, name, limits.max_threads_per_block);
    info.max_dynamic_shared_bytes = limits.max_shared_memory_bytes;
    let Some(body) = body else {
        return Ok(info);
    };
    info.params = body.params().map(<[_]>::to_vec);
    info.static_shared_bytes = body.static_shared();
    let exceeds = |what, axis, requested, limit: u32| {
        GpuError::LaunchLimits(LimitFault {
            kernel: name.to_owned(),
            what,
            axis,
            requested,
            limit: limit.into(),
        })
    };
    let shared_left = limits
        .max_shared_memory_bytes
        .checked_sub(info.static_shared_bytes);
    info.max_dynamic_shared_bytes = shared_left.ok_or_else(|| {
        let requested = info.static_shared_bytes.into();
        let limit = limits.max_shared_memory_bytes;
        exceeds(LimitKind::SharedMemory, None, requested, limit)
    })?;
    if let Some(block) = body.only_block() {
        for (index, axis) in Axis::ALL.into_iter().enumerate() {
            if block[index] > limits.max_block[index] {
                let limit = limits.max_block[index];
                let requested = block[index].into();
                return Err(exceeds(
                    LimitKind::BlockThreads,
                    Some(axis),
                    requested,
                    limit,
                ));
            }
        }
        let threads = block.iter().fold(1u64, |product, axis| {
            product.saturating_mul(u64::from(*axis))
        });
        let limit = limits.max_threads_per_block;
        info.max_threads_per_block = u32::try_from(threads)
            .ok()
            .filter(|threads| *threads <= limit)
            .ok_or_else(|| exceeds(LimitKind::ThreadsPerBlock, None, threads, limit))?;
        info.required_block = Some(block);
    }
    Ok(info)
}

/// Refuses what is plainly no image. What passes is not executed: it carries the registered
/// kernels, whatever it contains.
fn check_image(image: &[u8], strict: bool) -> Result<ImageFormat> {
    let format = ImageFormat::recognize(image);
    match malformation(format, image, strict) {
        Some(reason) => Err(invalid_module(format, image, reason)),
        None => Ok(format),
    }
}

fn malformation(format: ImageFormat, image: &[u8], strict: bool) -> Option<String> {
    if image.is_empty() {
        return Some("the image is empty".to_owned());
    }
    let shorter_than = |header: usize, of: &str| {
        (image.len() < header).then(|| format!("{of} has a header of {header} bytes"))
    };
    match format {
        ImageFormat::SpirV if !image.len().is_multiple_of(4) => {
            Some("SPIR-V consists of words of 4 bytes".to_owned())
        }
        ImageFormat::SpirV => shorter_than(20, "SPIR-V"),
        ImageFormat::Cubin | ImageFormat::AmdCodeObject => shorter_than(64, "a 64-bit ELF file"),
        ImageFormat::Fatbin => shorter_than(16, "a fatbin"),
        ImageFormat::OffloadBundle if image.starts_with(b"CCOB") => {
            shorter_than(20, "a compressed offload bundle")
        }
        ImageFormat::OffloadBundle => shorter_than(32, "an offload bundle"),
        ImageFormat::Ptx => std::str::from_utf8(image)
            .err()
            .map(|error| format!("PTX is not UTF-8 after byte {}", error.valid_up_to())),
        ImageFormat::Unknown if strict => {
            Some("the image is none of the formats that GPUs take".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spirv(words: usize) -> Vec<u8> {
        let mut image = vec![0; words * 4];
        image[..4].copy_from_slice(&0x0723_0203u32.to_le_bytes());
        image
    }

    fn elf(len: usize, machine: u8) -> Vec<u8> {
        let mut image = vec![0; len];
        image[..4].copy_from_slice(b"\x7fELF");
        image[18] = machine;
        image
    }

    #[test]
    fn well_formed_headers_pass_in_both_modes() {
        let mut bundle = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
        bundle.resize(32, 0);
        let cases: [(Vec<u8>, ImageFormat); 5] = [
            (spirv(5), ImageFormat::SpirV),
            (elf(64, 190), ImageFormat::Cubin),
            (elf(64, 224), ImageFormat::AmdCodeObject),
            (b"// k\n.version 7.0\n".to_vec(), ImageFormat::Ptx),
            (bundle, ImageFormat::OffloadBundle),
        ];
        for (image, format) in cases {
            for strict in [false, true] {
                assert_eq!(check_image(&image, strict), Ok(format));
            }
        }
    }

    #[test]
    fn malformed_images_fail_in_both_modes_and_say_why() {
        let mut odd = spirv(6);
        odd.pop();
        let mut ptx = b".version 7.0\n".to_vec();
        ptx.push(0xFF);
        let cases: [(Vec<u8>, &str); 6] = [
            (Vec::new(), "empty"),
            (odd, "words of 4 bytes"),
            (spirv(4), "header of 20 bytes"),
            (elf(63, 190), "header of 64 bytes"),
            (b"CCOB".to_vec(), "header of 20 bytes"),
            (ptx, "after byte 13"),
        ];
        for (image, part) in cases {
            for strict in [false, true] {
                match check_image(&image, strict) {
                    Err(GpuError::InvalidModule(fault)) => {
                        assert_eq!(fault.len_bytes, image.len() as u64);
                        assert!(fault.reason.contains(part), "{}", fault.reason);
                    }
                    other => panic!("{part}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn unknown_images_pass_unless_strict() {
        for image in [vec![0; 8], b"\x7fELF".to_vec(), elf(64, 62)] {
            assert_eq!(
                check_image(&image, false),
                Ok(ImageFormat::Unknown),
                "{image:?}"
            );
            assert!(check_image(&image, true).is_err(), "{image:?}");
        }
    }
}
