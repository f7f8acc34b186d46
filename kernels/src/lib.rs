//! Compute kernels of Grafos: built images, launch signatures, and plain CPU references.
//!
//! [`all`] lists the kernels, [`by_name`] finds one. An image is embedded in the program, so using
//! a kernel needs no file at run time. [`reference`](mod@reference) computes on the CPU what each
//! kernel must compute.
//!
//! ```
//! let kernel = grafos_kernels::by_name("saxpy").ok_or("no such kernel")?;
//! let names: Vec<&str> = kernel.params.iter().map(|param| param.name).collect();
//! assert_eq!(names, ["alpha", "x", "y", "n"]);
//! assert_eq!(kernel.push_constant_bytes(), 28);
//! # Ok::<(), &str>(())
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `mock` | `host`: the kernels as Rust closures, for the software GPU |
#![no_std]

extern crate alloc;

#[cfg(feature = "mock")]
pub mod host;
pub mod reference;
mod table;

/// Lists every kernel, in the order of `manifest.toml`.
pub fn all() -> &'static [Kernel] {
    table::KERNELS
}

/// Finds the kernel whose entry point is called `name`.
pub fn by_name(name: &str) -> Option<&'static Kernel> {
    all().iter().find(|kernel| kernel.name == name)
}

/// A kernel: its images, and what a launch must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the kernel, and of the entry point in its images.
    pub name: &'static str,
    /// What the kernel computes, in one line.
    pub summary: &'static str,
    /// SPIR-V image: little-endian words, not necessarily aligned in memory.
    pub spirv: &'static [u8],
    /// Environment that the SPIR-V image is built for.
    pub target: Target,
    /// How the SPIR-V image takes its arguments.
    pub style: Style,
    /// Threads in a block.
    pub block: Block,
    /// Parameters, in launch order.
    pub params: &'static [Param],
    /// Device features needed beyond those of the style and the target's compute baseline.
    pub needs: &'static [Feature],
}

impl Kernel {
    /// Computes the bytes of push constants that a launch writes, gaps included.
    ///
    /// This is the end of the last member. It is not rounded up to the alignment of the block.
    pub fn push_constant_bytes(&self) -> u32 {
        let end = |param: &Param| match param.slot {
            Slot::PushConstant { offset_bytes } => offset_bytes + param.size_bytes,
            Slot::Binding { .. } => 0,
        };
        self.params.iter().map(end).max().unwrap_or(0)
    }
}

/// Environment that a SPIR-V image is built for: the Vulkan version and its SPIR-V version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Vulkan 1.2, SPIR-V 1.5. A specialized block is a `WorkgroupSize` built-in.
    Vulkan12,
    /// Vulkan 1.3, SPIR-V 1.6. A specialized block is a `LocalSizeId` execution mode.
    Vulkan13,
}

/// How a SPIR-V image takes its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// One block of push constants with a member for each argument; a buffer is passed as its
    /// 64-bit address. Needs the device feature `bufferDeviceAddress`.
    Pointer,
    /// Buffers are storage buffers of descriptor set 0, scalars are members of a push-constant
    /// block.
    Descriptor,
}

/// Threads in a block, along x, y, z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Block {
    /// A launch must use exactly this block.
    Fixed([u32; 3]),
    /// A launch may choose.
    Specialized {
        /// The block unless specialized.
        default: [u32; 3],
        /// Specialization constant of each axis; an axis without one is fixed at its default.
        constant_ids: [Option<u32>; 3],
    },
}

impl Block {
    /// Gives a block that every launch may use: the fixed one, or the default.
    pub fn default_threads(self) -> [u32; 3] {
        match self {
            Block::Fixed(threads) => threads,
            Block::Specialized { default, .. } => default,
        }
    }
}

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Param {
    /// Name in the source.
    pub name: &'static str,
    /// Buffer or scalar.
    pub kind: ParamKind,
    /// Type of the buffer's elements, or of the scalar.
    pub element: ElementType,
    /// Bytes that the caller passes: 8 for a buffer, the size of the type for a scalar.
    pub size_bytes: u32,
    /// Where the SPIR-V image finds the argument.
    pub slot: Slot,
}

impl Param {
    /// A buffer whose address lies in the push constants at `offset_bytes`.
    const fn address(name: &'static str, element: ElementType, offset_bytes: u32) -> Self {
        let slot = Slot::PushConstant { offset_bytes };
        Param {
            name,
            kind: ParamKind::Buffer,
            element,
            size_bytes: 8,
            slot,
        }
    }

    /// A storage buffer in set 0 at `binding`.
    const fn binding(name: &'static str, element: ElementType, binding: u32) -> Self {
        let slot = Slot::Binding { binding };
        Param {
            name,
            kind: ParamKind::Buffer,
            element,
            size_bytes: 8,
            slot,
        }
    }

    /// A scalar in the push constants at `offset_bytes`.
    const fn scalar(name: &'static str, element: ElementType, offset_bytes: u32) -> Self {
        let slot = Slot::PushConstant { offset_bytes };
        Param {
            name,
            kind: ParamKind::Scalar,
            element,
            size_bytes: element.size_bytes(),
            slot,
        }
    }
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParamKind {
    /// Device memory.
    Buffer,
    /// A value, copied at launch.
    Scalar,
}

/// Where a SPIR-V image finds an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slot {
    /// In the push-constant block.
    PushConstant {
        /// Bytes from the start of the block.
        offset_bytes: u32,
    },
    /// In descriptor set 0.
    Binding {
        /// Number of the binding.
        binding: u32,
    },
}

/// Type of a scalar or of a buffer's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// Vector of three 32-bit floats: 12 bytes, aligned to 16 as a member of a block.
    F32x3,
    /// Vector of four 32-bit floats: 16 bytes, aligned to 16 as a member of a block.
    F32x4,
}

impl ElementType {
    /// Gives the size of one value in bytes.
    pub const fn size_bytes(self) -> u32 {
        match self {
            ElementType::I32 | ElementType::U32 | ElementType::F32 => 4,
            ElementType::I64 | ElementType::U64 | ElementType::F64 => 8,
            ElementType::F32x3 => 12,
            ElementType::F32x4 => 16,
        }
    }
}

/// A device feature that not every Vulkan 1.2 device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// 64-bit integers in shaders: `shaderInt64`.
    Int64,
    /// 64-bit floats in shaders: `shaderFloat64`.
    Float64,
    /// `maintenance4`, which `LocalSizeId` needs.
    Maintenance4,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_finds_each_kernel_and_no_other() {
        for kernel in all() {
            assert_eq!(
                by_name(kernel.name).map(|found| found.name),
                Some(kernel.name)
            );
        }
        assert_eq!(by_name(""), None);
        assert_eq!(by_name("vector_ad"), None);
        assert_eq!(by_name("vector_add\0"), None);
    }

    #[test]
    fn push_constant_bytes_end_with_the_last_member() {
        let bytes = |name| by_name(name).unwrap().push_constant_bytes();
        assert_eq!(bytes("vector_add"), 28);
        assert_eq!(bytes("vector_add_descriptor"), 4);
        assert_eq!(bytes("shared_rotate"), 8);
        assert_eq!(bytes("echo_struct"), 52);
        assert_eq!(bytes("push_128"), 128);
        assert_eq!(bytes("push_136"), 136);
        assert_eq!(bytes("push_264"), 264);
    }

    #[test]
    fn default_threads_are_the_ones_in_the_source() {
        let threads = |name| by_name(name).unwrap().block.default_threads();
        assert_eq!(threads("matmul_tiled"), [16, 16, 1]);
        assert_eq!(threads("write_index"), [4, 4, 4]);
    }
}
