//! Modules, kernels and their signatures.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{BufferId, ImageFormat};

/// A loaded module. Ids are never reused within a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u64);

/// A resolved kernel of a loaded module. Ids are never reused within a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u64);

/// A module as the backend loaded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The id that module calls take.
    pub id: ModuleId,
    /// What the image was recognized as.
    pub format: ImageFormat,
}

/// A kernel, what it takes and what it needs.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInfo {
    /// The id that a launch takes.
    pub id: KernelId,
    /// The name it was resolved by.
    pub name: String,
    /// Its parameters in order; `None` when neither image nor driver tells.
    pub params: Option<Vec<KernelParam>>,
    /// The only block that it can be launched with, in threads x y z, where it has one
    /// (`LocalSize`, `.reqntid`).
    pub required_block: Option<[u32; 3]>,
    /// The most threads that a block of it can have.
    pub max_threads_per_block: u32,
    /// Shared memory that it declares itself, in bytes per block.
    pub static_shared_bytes: u32,
    /// The most dynamic shared memory that a launch can add, in bytes per block.
    pub max_dynamic_shared_bytes: u32,
}

impl KernelInfo {
    /// Describes a kernel that takes unknown parameters, any block up to `max_threads_per_block`
    /// threads and no shared memory. The fields are public: set what is known.
    #[must_use]
    pub fn new(id: KernelId, name: impl Into<String>, max_threads_per_block: u32) -> Self {
        Self {
            id,
            name: name.into(),
            params: None,
            required_block: None,
            max_threads_per_block,
            static_shared_bytes: 0,
            max_dynamic_shared_bytes: 0,
        }
    }
}

/// One parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelParam {
    /// Its name, where the image tells.
    pub name: Option<String>,
    /// How its argument reaches the kernel.
    pub kind: ParamKind,
    /// Size in bytes. The argument has exactly as many.
    pub size_bytes: u32,
    /// Alignment in bytes within the kernel's parameter block.
    pub align_bytes: u32,
    /// Offset in bytes within the kernel's parameter block; 0 for a bound buffer.
    pub offset_bytes: u32,
}

/// How an argument reaches a kernel.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// By value; the bytes can also be an address where the image does not tell them apart.
    Value,
    /// A 64-bit device address.
    Address,
    /// A buffer that is bound to a slot: the argument is the 8-byte address of a live buffer, and
    /// [`LaunchArg::buffer`](crate::LaunchArg::buffer) is set.
    BoundBuffer,
}

/// A global variable of a loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalInfo {
    /// The id that memory calls take while the module is loaded.
    pub buffer: BufferId,
    /// Its device address.
    pub address: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
}
