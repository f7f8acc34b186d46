//! SPIR-V images: read, checked and described before a driver sees them.
//!
//! Drivers take validity for granted and crash without it, so [`SpirvModule::parse`] is the only
//! way to a module: it decodes the bytes, checks the structure, and works out how each kernel is
//! called. It makes no driver call.

mod check;
mod parse;
mod reflect;
#[cfg(test)]
mod tests;

use std::fmt;

use spirv::Capability;

/// A SPIR-V module that passed the structural checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SpirvModule {
    /// The module's words in this machine's byte order, as a driver takes them.
    pub(crate) words: Vec<u32>,
    /// Major and minor version of the format.
    pub(crate) version: (u8, u8),
    /// What the device must be able to do, sorted; `Debug` prints the specification's names.
    pub(crate) capabilities: Vec<Capability>,
    /// The kernels in the order of their declarations.
    pub(crate) entries: Vec<SpirvEntry>,
}

impl SpirvModule {
    /// Decodes, checks and describes a module in either byte order.
    ///
    /// # Errors
    /// Everything that is wrong with the bytes, that the checker has no rule for, or that cannot
    /// be called with buffers and scalars. Never panics, and takes time and memory in proportion
    /// to the length.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SpirvError> {
        let parsed = parse::Parsed::new(bytes)?;
        let module = check::Module::new(&parsed)?;
        let entries = reflect::entries(&module)?;
        let capabilities = module.capabilities.clone();
        Ok(Self {
            version: parsed.version,
            words: parsed.words,
            capabilities,
            entries,
        })
    }

    /// The kernel of that name.
    pub(crate) fn entry(&self, name: &str) -> Option<&SpirvEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// A kernel: an entry point and how it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SpirvEntry {
    pub(crate) name: String,
    pub(crate) local_size: SpirvLocalSize,
    pub(crate) style: SpirvStyle,
    /// The push-constant block; empty where the kernel uses none.
    pub(crate) push_constants: SpirvPushConstants,
    /// Bytes of workgroup variables that the kernel uses, each laid out naturally, with
    /// specialization constants at their defaults.
    pub(crate) shared_memory_bytes: u64,
    /// Whether specialization constants change `shared_memory_bytes`.
    pub(crate) shared_memory_specialized: bool,
}

/// The threads in a block, x y z.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpirvLocalSize {
    /// The image says it.
    Fixed([u32; 3]),
    /// Extents with a specialization constant can be set when the pipeline is made.
    Specialized {
        default: [u32; 3],
        spec_ids: [Option<u32>; 3],
    },
}

/// Where buffer arguments go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SpirvStyle {
    /// Every argument is a push-constant member; buffers are 64-bit device addresses.
    Pointers,
    /// Buffers are the bindings of set 0 in this order; scalars are the push-constant members.
    Descriptors { bindings: Vec<SpirvBinding> },
}

/// A storage buffer of descriptor set 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SpirvBinding {
    /// The variable's or its block's name, where the image kept it.
    pub(crate) name: Option<String>,
    pub(crate) binding: u32,
    /// Whether the image does not promise to leave it as it is.
    pub(crate) writable: bool,
}

/// A push-constant block.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct SpirvPushConstants {
    /// Bytes from offset 0 to the end of the last member.
    pub(crate) size_bytes: u32,
    /// By offset.
    pub(crate) members: Vec<SpirvMember>,
}

/// A member of a push-constant block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SpirvMember {
    /// The member's name, where the image kept it.
    pub(crate) name: Option<String>,
    pub(crate) offset_bytes: u32,
    pub(crate) size_bytes: u32,
    /// The alignment of the widest scalar in it, in bytes.
    pub(crate) alignment_bytes: u32,
    pub(crate) kind: SpirvMemberKind,
}

/// What a push-constant member holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpirvMemberKind {
    Scalar(SpirvScalar),
    Vector,
    Matrix,
    Array,
    Struct,
    /// A 64-bit device address of a buffer.
    Buffer,
}

/// A number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpirvScalar {
    Integer { bits: u32, signed: bool },
    Float { bits: u32 },
}

/// Why an image is no module that can be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SpirvError {
    /// The length is no whole number of words, or out of range.
    #[error(
        "{len_bytes} bytes are no module: a multiple of 4 from {least_bytes} to {most_bytes} bytes"
    )]
    Size {
        len_bytes: usize,
        least_bytes: usize,
        most_bytes: usize,
    },
    /// The first word is not the magic number in either byte order.
    #[error("first word {word:#010x} is not the magic number 0x07230203")]
    Magic { word: u32 },
    /// The format's version is not one of those supported.
    #[error(
        "version {major}.{minor} (word {word:#010x}), versions {oldest} to {newest} are supported"
    )]
    Version {
        word: u32,
        major: u8,
        minor: u8,
        oldest: String,
        newest: String,
    },
    /// The id bound is zero or too large.
    #[error("id bound {bound}, 1 to {limit} are supported")]
    Bound { bound: u32, limit: u32 },
    /// The header's reserved word is in use.
    #[error("instruction schema {schema}, only 0 is defined")]
    Schema { schema: u32 },
    /// An instruction's length is zero or reaches past the end.
    #[error("instruction {instruction} (opcode {opcode}): {count} words, {left} are left")]
    WordCount {
        instruction: usize,
        opcode: u16,
        count: usize,
        left: usize,
    },
    /// No instruction has that opcode.
    #[error("instruction {instruction}: unknown opcode {opcode}")]
    Opcode { instruction: usize, opcode: u32 },
    /// An operation that specialization cannot carry out.
    #[error("instruction {instruction} (OpSpecConstantOp): operation {opcode} is not allowed")]
    SpecConstantOp { instruction: usize, opcode: u32 },
    /// An instruction's operands do not follow the grammar.
    #[error("instruction {instruction}: {reason}")]
    Decode { instruction: usize, reason: String },
    /// A part that every module has is not there.
    #[error("the module has no {what}", what = .what.trim_start_matches("a "))]
    Missing { what: &'static str },
    /// A feature of the format that the checker has no rules for.
    #[error("instruction {instruction}: {what} is not supported")]
    Unsupported { what: String, instruction: usize },
    /// A rule of the format is broken.
    #[error("instruction {instruction} (Op{opcode}) id %{id}: {rule}: {detail}")]
    Rule {
        rule: Rule,
        instruction: usize,
        opcode: &'static str,
        /// The id in question, 0 for none.
        id: u32,
        detail: String,
    },
    /// A resource that launches cannot provide.
    #[error("kernel {entry:?}: variable %{variable}: {what} is not supported")]
    Interface {
        entry: String,
        variable: u32,
        what: String,
    },
}

/// The rules of the structural checker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Rule {
    Layout,
    IdBound,
    IdDefinedOnce,
    IdDefined,
    OperandKind,
    Capability,
    Type,
    Constant,
    Decoration,
    BlockLayout,
    BuiltIn,
    Variable,
    EntryPoint,
    ExecutionMode,
    LocalSize,
    Interface,
    Function,
    Block,
    Branch,
    Phi,
    Dominance,
    Structure,
    Recursion,
    Call,
    Switch,
    OperandType,
    ResultType,
    AccessChain,
    CompositeIndex,
    MemoryAccess,
    Atomic,
    Scope,
    Semantics,
    ExtendedInstruction,
    Limit,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Layout => "sections must stand in order",
            Self::IdBound => "ids must be below the bound and not zero",
            Self::IdDefinedOnce => "an id must be defined once",
            Self::IdDefined => "a used id must be defined",
            Self::OperandKind => "operands must be of the expected kind",
            Self::Capability => "capabilities must be declared",
            Self::Type => "types must be well formed",
            Self::Constant => "constants must match their types",
            Self::Decoration => "decorations must fit their targets",
            Self::BlockLayout => "blocks must be laid out",
            Self::BuiltIn => "inputs must be built-ins",
            Self::Variable => "variables must match their storage",
            Self::EntryPoint => "entry points must be named functions",
            Self::ExecutionMode => "execution modes must fit their entry points",
            Self::LocalSize => "an entry point must have one block size",
            Self::Interface => "interfaces must list what is used",
            Self::Function => "functions must match their types",
            Self::Block => "blocks must start with a label and end with one terminator",
            Self::Branch => "branches must lead to labels of the function",
            Self::Phi => "phis must name every predecessor once",
            Self::Dominance => "definitions must dominate uses",
            Self::Structure => "control flow must be structured",
            Self::Recursion => "functions must not recurse",
            Self::Call => "calls must match functions",
            Self::Switch => "switch literals must be unique and of the selector's width",
            Self::OperandType => "operand types must agree",
            Self::ResultType => "result types must agree",
            Self::AccessChain => "access chains must stay within types",
            Self::CompositeIndex => "parts of composites must be in range",
            Self::MemoryAccess => "memory accesses must be possible",
            Self::Atomic => "atomics must be possible",
            Self::Scope => "scopes must be allowed constants",
            Self::Semantics => "memory semantics must be allowed constants",
            Self::ExtendedInstruction => "extended instructions must match their set",
            Self::Limit => "limits must be kept",
        })
    }
}
