//! What can go wrong, as data that explains itself.
//!
//! Each kind of failure is a struct with the numbers in it; [`GpuError`] is their sum for backend
//! calls. The SDK's own error reuses the same structs, so a number is written once and reaches the
//! caller unchanged.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::ImageFormat;

/// The kind of a failure: what a caller branches on. The discriminants are the wire's status
/// codes and never change.
#[non_exhaustive]
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Memory, a reservation or a quota is exhausted.
    CapacityExceeded = -1,
    /// No library, no device, or no host to talk to.
    Disconnected = -2,
    /// The lease has reached its deadline, or was freed.
    LeaseExpired = -3,
    /// The host has taken the lease back.
    LeaseRevoked = -4,
    /// An argument that no device could accept.
    InvalidArgument = -5,
    /// Offset and length are not inside the buffer.
    OutOfBounds = -6,
    /// A handle that is not live in this session.
    InvalidHandle = -7,
    /// An image that is malformed or of an unusable format.
    InvalidModule = -8,
    /// The module has no such kernel or symbol.
    KernelNotFound = -9,
    /// Launch arguments do not match the kernel's signature.
    ArgumentMismatch = -10,
    /// Launch dimensions, shared memory or argument bytes exceed a limit.
    LaunchLimits = -11,
    /// The device or backend lacks an ability.
    Unsupported = -12,
    /// The device is lost.
    DeviceLost = -13,
    /// A wait ended before what it waited for.
    Timeout = -14,
    /// An event has not been reached yet.
    NotReady = -15,
    /// The device is in use by a lease that excludes others.
    Busy = -16,
    /// Any other failure that a driver reported.
    Driver = -17,
}

impl ErrorKind {
    const ALL: [Self; 17] = [
        Self::CapacityExceeded,
        Self::Disconnected,
        Self::LeaseExpired,
        Self::LeaseRevoked,
        Self::InvalidArgument,
        Self::OutOfBounds,
        Self::InvalidHandle,
        Self::InvalidModule,
        Self::KernelNotFound,
        Self::ArgumentMismatch,
        Self::LaunchLimits,
        Self::Unsupported,
        Self::DeviceLost,
        Self::Timeout,
        Self::NotReady,
        Self::Busy,
        Self::Driver,
    ];

    /// The wire's status code: negative, never 0.
    #[must_use]
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Translates a status code; `None` for one that this version does not know.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The failure of a backend call.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The backend cannot be used on this machine.
    #[error("{backend}: unavailable: {reason}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// What was looked for and not found.
        reason: String,
    },
    /// Device memory is exhausted.
    #[error(transparent)]
    OutOfMemory(CapacityFault),
    /// An argument that no device could accept.
    #[error("invalid argument: {reason}")]
    InvalidArgument {
        /// What is wrong with it, with the value.
        reason: String,
    },
    /// Offset and length are not inside the buffer.
    #[error(transparent)]
    OutOfBounds(BoundsFault),
    /// A handle that is not live in this context.
    #[error(transparent)]
    InvalidHandle(HandleFault),
    /// An image that is malformed or of an unusable format.
    #[error(transparent)]
    InvalidModule(ModuleFault),
    /// The module has no such kernel or symbol.
    #[error(transparent)]
    KernelNotFound(KernelFault),
    /// Launch arguments do not match the kernel's signature.
    #[error(transparent)]
    ArgumentMismatch(ArgumentFault),
    /// Launch dimensions, shared memory or argument bytes exceed a limit.
    #[error(transparent)]
    LaunchLimits(LimitFault),
    /// The device or backend lacks an ability.
    #[error(transparent)]
    Unsupported(UnsupportedFault),
    /// A wait ended before what it waited for.
    #[error(transparent)]
    Timeout(TimeoutFault),
    /// An event has not been reached yet.
    #[error("not ready: {what}")]
    NotReady {
        /// What has not been reached.
        what: String,
    },
    /// The device is lost.
    #[error(transparent)]
    DeviceLost(LostFault),
    /// Any other failure that a driver reported.
    #[error(transparent)]
    Driver(DriverFault),
}

impl GpuError {
    /// The kind of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable { .. } => ErrorKind::Disconnected,
            Self::OutOfMemory(_) => ErrorKind::CapacityExceeded,
            Self::InvalidArgument { .. } => ErrorKind::InvalidArgument,
            Self::OutOfBounds(_) => ErrorKind::OutOfBounds,
            Self::InvalidHandle(_) => ErrorKind::InvalidHandle,
            Self::InvalidModule(_) => ErrorKind::InvalidModule,
            Self::KernelNotFound(_) => ErrorKind::KernelNotFound,
            Self::ArgumentMismatch(_) => ErrorKind::ArgumentMismatch,
            Self::LaunchLimits(_) => ErrorKind::LaunchLimits,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Timeout(_) => ErrorKind::Timeout,
            Self::NotReady { .. } => ErrorKind::NotReady,
            Self::DeviceLost(_) => ErrorKind::DeviceLost,
            Self::Driver(_) => ErrorKind::Driver,
        }
    }
}

/// What a driver said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{api}: {entry_point}: {code_name} ({code}){}", Detail(detail))]
pub struct DriverFault {
    /// The API: `cuda`, `hip`, `vulkan`, ...
    pub api: &'static str,
    /// The function that failed (`cuMemAlloc_v2`, `vkQueueSubmit`, ...).
    pub entry_point: &'static str,
    /// The code as the driver returned it.
    pub code: i64,
    /// The code's name in the vendor's headers, or `unknown code`.
    pub code_name: Cow<'static, str>,
    /// What was asked for, and what else is known; may be empty.
    pub detail: String,
}

/// Capacity that does not suffice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityFault {
    /// What is exhausted: `device memory`, `lease quota`, ...
    pub resource: &'static str,
    /// How much was asked for, in `unit`.
    pub requested: u64,
    /// How much is left, in `unit`, where known.
    pub available: Option<u64>,
    /// The unit: `bytes`, `leases`, ...
    pub unit: &'static str,
    /// What the driver said, if it was asked.
    pub cause: Option<Box<DriverFault>>,
}

impl fmt::Display for CapacityFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            requested,
            available,
            unit,
            cause,
        } = self;
        write!(f, "{resource} exhausted: requested {requested} {unit}")?;
        if let Some(available) = available {
            write!(f, ", {available} available")?;
        }
        if let Some(cause) = cause {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl core::error::Error for CapacityFault {}

/// A range that is not inside its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of bounds: {len_bytes} bytes at offset {offset_bytes} of a buffer of {size_bytes} bytes"
)]
pub struct BoundsFault {
    /// Where the range begins, in bytes.
    pub offset_bytes: u64,
    /// How long it is, in bytes.
    pub len_bytes: u64,
    /// How long the buffer is, in bytes.
    pub size_bytes: u64,
}

/// A handle that is not live where it was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid handle: no live {kind} {id:#x} here")]
pub struct HandleFault {
    /// What the handle should have been.
    pub kind: HandleKind,
    /// The handle's number.
    pub id: u64,
}

/// What a handle stands for.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandleKind {
    /// A device.
    Device,
    /// A context or session.
    Context,
    /// A lease.
    Lease,
    /// A buffer.
    Buffer,
    /// A module.
    Module,
    /// A kernel.
    Kernel,
    /// A stream.
    Stream,
    /// An event.
    Event,
}

impl fmt::Display for HandleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Context => "context",
            Self::Lease => "lease",
            Self::Buffer => "buffer",
            Self::Module => "module",
            Self::Kernel => "kernel",
            Self::Stream => "stream",
            Self::Event => "event",
        })
    }
}

/// An image that cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid module: {format}, {len_bytes} bytes: {reason}")]
pub struct ModuleFault {
    /// What the image was recognized as.
    pub format: ImageFormat,
    /// How long it is, in bytes.
    pub len_bytes: u64,
    /// What is wrong with it, and where.
    pub reason: String,
}

/// A name that a module does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFault {
    /// The name that was asked for.
    pub name: String,
    /// The names that the module has, sorted; empty when the driver cannot list them.
    pub available: Vec<String>,
}

impl fmt::Display for KernelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel not found: {:?}", self.name)?;
        if !self.available.is_empty() {
            write!(f, "; the module has {:?}", self.available)?;
        }
        Ok(())
    }
}

impl core::error::Error for KernelFault {}

/// Launch arguments that do not match a kernel's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentFault {
    /// The kernel.
    pub kernel: String,
    /// What does not match.
    pub problem: ArgumentProblem,
}

/// What does not match between arguments and parameters. Indices count from 0.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentProblem {
    /// The number of arguments.
    Count {
        /// How many the kernel takes.
        expected: u64,
        /// How many were given.
        given: u64,
    },
    /// The size of one argument, in bytes.
    Size {
        /// The argument's index.
        index: u32,
        /// The parameter's size.
        expected: u64,
        /// The argument's size.
        given: u64,
    },
    /// The sizes do not add up to the bytes that were given.
    TotalBytes {
        /// The sum of the sizes.
        expected: u64,
        /// The number of bytes.
        given: u64,
    },
    /// An argument should be the address of a live buffer and is not.
    NotABuffer {
        /// The argument's index.
        index: u32,
        /// The address that was given.
        address: u64,
    },
    /// An address is not a multiple of what binding it needs.
    Misaligned {
        /// The argument's index.
        index: u32,
        /// The address that was given.
        address: u64,
        /// The alignment that is needed, in bytes.
        align_bytes: u64,
    },
}

impl fmt::Display for ArgumentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "argument mismatch: kernel {:?}: ", self.kernel)?;
        match self.problem {
            ArgumentProblem::Count { expected, given } => {
                write!(f, "takes {expected} arguments, {given} given")
            }
            ArgumentProblem::Size {
                index,
                expected,
                given,
            } => {
                write!(f, "argument {index} has {expected} bytes, {given} given")
            }
            ArgumentProblem::TotalBytes { expected, given } => {
                write!(
                    f,
                    "the argument sizes add up to {expected} bytes, {given} given"
                )
            }
            ArgumentProblem::NotABuffer { index, address } => {
                write!(
                    f,
                    "argument {index} must be a live buffer's address, {address:#x} given"
                )
            }
            ArgumentProblem::Misaligned {
                index,
                address,
                align_bytes,
            } => {
                write!(
                    f,
                    "argument {index} must be a multiple of {align_bytes}, {address:#x} given"
                )
            }
        }
    }
}

impl core::error::Error for ArgumentFault {}

/// A launch that exceeds a limit of the device or the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFault {
    /// The kernel, where one is concerned.
    pub kernel: String,
    /// Which limit.
    pub what: LimitKind,
    /// On which axis, where the limit is per axis.
    pub axis: Option<Axis>,
    /// What was asked for, in the limit's unit.
    pub requested: u64,
    /// What is allowed, in the limit's unit.
    pub limit: u64,
}

/// A limit on launches. Each has its unit.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// Blocks per grid and axis.
    GridBlocks,
    /// Threads per block and axis.
    BlockThreads,
    /// Threads per block, all axes multiplied.
    ThreadsPerBlock,
    /// Threads per block and axis, where the kernel allows one value only.
    RequiredBlock,
    /// Shared memory per block in bytes, declared and dynamic together.
    SharedMemory,
    /// Dynamic shared memory per block in bytes.
    DynamicSharedMemory,
    /// All arguments together, in bytes.
    ArgumentBytes,
}

impl fmt::Display for LimitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kernel,
            what,
            axis,
            requested,
            limit,
        } = self;
        write!(f, "launch limits: ")?;
        if !kernel.is_empty() {
            write!(f, "kernel {kernel:?}: ")?;
        }
        let (name, unit, relation) = match what {
            LimitKind::GridBlocks => ("grid", "blocks", "limit"),
            LimitKind::BlockThreads => ("block", "threads", "limit"),
            LimitKind::ThreadsPerBlock => ("block in total", "threads", "limit"),
            LimitKind::RequiredBlock => ("block", "threads", "the kernel requires"),
            LimitKind::SharedMemory => ("shared memory per block", "bytes", "limit"),
            LimitKind::DynamicSharedMemory => ("dynamic shared memory per block", "bytes", "limit"),
            LimitKind::ArgumentBytes => ("arguments", "bytes", "limit"),
        };
        write!(f, "{name}")?;
        if let Some(axis) = axis {
            write!(f, " {axis}")?;
        }
        write!(f, ": requested {requested} {unit}, {relation} {limit}")
    }
}

impl core::error::Error for LimitFault {}

/// An axis of a grid or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// The first.
    X,
    /// The second.
    Y,
    /// The third.
    Z,
}

impl Axis {
    /// All axes in order.
    pub const ALL: [Axis; 3] = [Axis::X, Axis::Y, Axis::Z];
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X => "x",
            Self::Y => "y",
            Self::Z => "z",
        })
    }
}

/// An ability that is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported: {what}: {reason}")]
pub struct UnsupportedFault {
    /// What was asked for.
    pub what: String,
    /// Who lacks what.
    pub reason: String,
}

/// A wait that ended early. What it waited for goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("timeout: waited {waited_ns} ns, the work goes on")]
pub struct TimeoutFault {
    /// How long was waited, in nanoseconds.
    pub waited_ns: u64,
}

/// A device that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostFault {
    /// The first cause.
    pub reason: String,
    /// Whether the device can be used again only by a new process.
    pub needs_process_restart: bool,
}

impl fmt::Display for LostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = if self.needs_process_restart {
            "the process must restart to use this device again"
        } else {
            "a new lease opens it again"
        };
        write!(f, "device lost: {}; {remedy}", self.reason)
    }
}

impl core::error::Error for LostFault {}

/// Shows a detail after a colon, and nothing when it is empty.
struct Detail<'a>(&'a str);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    #[test]
    fn status_codes_are_negative_and_translate_back() {
        for (position, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.code(), -1 - position as i32);
            assert_eq!(ErrorKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(ErrorKind::from_code(0), None);
        assert_eq!(ErrorKind::from_code(-18), None);
    }

    #[test]
    fn messages_carry_the_numbers() {
        let fault = DriverFault {
            api: "cuda",
            entry_point: "cuMemAlloc_v2",
            code: 2,
            code_name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
            detail: "requested 8589934592 bytes, 1073741824 free".into(),
        };
        assert_eq!(
            fault.to_string(),
            "cuda: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): \
             requested 8589934592 bytes, 1073741824 free"
        );
        let memory = GpuError::OutOfMemory(CapacityFault {
            resource: "device memory",
            requested: 100,
            available: Some(64),
            unit: "bytes",
            cause: None,
        });
        assert_eq!(
            memory.to_string(),
            "device memory exhausted: requested 100 bytes, 64 available"
        );
        let limit = LimitFault {
            kernel: "k".into(),
            what: LimitKind::GridBlocks,
            axis: Some(Axis::Y),
            requested: 65536,
            limit: 65535,
        };
        assert_eq!(
            limit.to_string(),
            "launch limits: kernel \"k\": grid y: requested 65536 blocks, limit 65535"
        );
        let kernel = KernelFault {
            name: "a\0b".into(),
            available: vec!["x".into()],
        };
        assert_eq!(
            kernel.to_string(),
            "kernel not found: \"a\\0b\"; the module has [\"x\"]"
        );
    }

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(
            size_of::<GpuError>() <= 96,
            "{} bytes",
            size_of::<GpuError>()
        );
    }
}
