//! Modules, their kernels and their global variables.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use grafos_host_abi::{KernelInfo, ModuleId};

use super::super::gate::{Closed, Gate};
use super::{BufferEntry, SessionCore};
use crate::error::{FabricError, HandleKind, Result};
use crate::sync::Mutex;

/// A loaded module and the kernels that have been resolved in it.
#[derive(Debug)]
pub(crate) struct ModuleEntry {
    pub(super) id: ModuleId,
    pub(super) gate: Gate,
    kernels: Mutex<BTreeMap<String, Arc<KernelInfo>>>,
}

impl ModuleEntry {
    pub(crate) fn id(&self) -> u64 {
        self.id.0
    }
}

/// A resolved kernel.
#[derive(Debug, Clone)]
pub(crate) struct KernelEntry {
    pub(super) info: Arc<KernelInfo>,
    pub(super) module: Arc<ModuleEntry>,
}

impl KernelEntry {
    pub(crate) fn info(&self) -> &KernelInfo {
        &self.info
    }
}

impl SessionCore {
    pub(crate) fn module_load(&self, image: &[u8]) -> Result<Arc<ModuleEntry>> {
        self.ensure_usable()?;
        let info = self.check(self.context.load_module(image))?;
        let entry = Arc::new(ModuleEntry {
            id: info.id,
            gate: Gate::default(),
            kernels: Mutex::new(BTreeMap::new()),
        });
        self.modules.lock().insert(info.id.0, Arc::clone(&entry));
        Ok(entry)
    }

    pub(crate) fn module_unload(&self, entry: &ModuleEntry) -> Result<()> {
        self.ensure_usable()?;
        self.unload_entry(entry)
    }

    /// Unloads on behalf of a drop: silent, and nothing once the lease has ended.
    pub(crate) fn module_unload_on_drop(&self, entry: &ModuleEntry) {
        if entry.gate.is_open() && self.lease.is_active() {
            // There is nobody to tell: the module is gone, or the device is lost.
            let _ = self.unload_entry(entry);
        }
    }

    fn unload_entry(&self, entry: &ModuleEntry) -> Result<()> {
        self.lease.count_module_unload();
        match entry.gate.close() {
            Closed::Release => self.release_module(entry),
            Closed::Deferred => {}
            Closed::Already => {
                return Err(FabricError::invalid_handle(HandleKind::Module, entry.id.0));
            }
        }
        Ok(())
    }

    pub(super) fn release_module(&self, entry: &ModuleEntry) {
        self.modules.lock().remove(&entry.id.0);
        // An unload fails only where the context has ended, and then the module is gone as well.
        let _ = self.context.unload_module(entry.id);
    }

    pub(crate) fn module(&self, id: u64) -> Result<Arc<ModuleEntry>> {
        self.modules
            .lock()
            .get(&id)
            .cloned()
            .ok_or_else(|| FabricError::invalid_handle(HandleKind::Module, id))
    }

    pub(crate) fn kernel(&self, module: &Arc<ModuleEntry>, name: &str) -> Result<KernelEntry> {
        self.ensure_usable()?;
        let _inside = self.enter_module(module)?;
        let known = module.kernels.lock().get(name).cloned();
        let info = match known {
            Some(info) => info,
            None => {
                let info = Arc::new(self.check(self.context.kernel(module.id, name))?);
                module.kernels.lock().insert(name.into(), Arc::clone(&info));
                info
            }
        };
        Ok(KernelEntry {
            info,
            module: Arc::clone(module),
        })
    }

    pub(crate) fn kernel_names(&self, module: &ModuleEntry) -> Result<Vec<String>> {
        self.ensure_usable()?;
        let _inside = self.enter_module(module)?;
        self.check(self.context.kernel_names(module.id))
    }

    pub(crate) fn global(&self, module: &Arc<ModuleEntry>, name: &str) -> Result<Arc<BufferEntry>> {
        self.ensure_usable()?;
        let _inside = self.enter_module(module)?;
        let info = self.check(self.context.global(module.id, name))?;
        Ok(Arc::new(BufferEntry {
            address: info.address,
            size_bytes: info.size_bytes,
            id: Some(info.buffer),
            owner: Some(Arc::clone(module)),
            gate: Gate::default(),
        }))
    }
}
