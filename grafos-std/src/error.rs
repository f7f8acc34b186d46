//! The error that every call of the SDK returns.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use grafos_host_abi::GpuError;
pub use grafos_host_abi::{
    ArgumentFault, ArgumentProblem, Axis, BoundsFault, CapacityFault, DriverFault, ErrorKind,
    HandleFault, HandleKind, KernelFault, LimitFault, LimitKind, LostFault, ModuleFault,
    TimeoutFault, UnsupportedFault,
};

/// The result of every call of the SDK.
pub type Result<T, E = FabricError> = core::result::Result<T, E>;

/// What went wrong, with the numbers that explain it.
///
/// Branch on [`kind`](Self::kind) or on the variant; print it for a person.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// Memory, a reservation or a quota is exhausted.
    #[error(transparent)]
    CapacityExceeded(CapacityFault),
    /// There is no device to talk to.
    #[error(transparent)]
    Disconnected(DisconnectedFault),
    /// The lease has reached its deadline or was freed.
    #[error("lease expired: lease {lease_id:#034x} has reached its deadline or was freed")]
    LeaseExpired {
        /// The lease.
        lease_id: u128,
    },
    /// The host has taken the lease back.
    #[error("lease revoked: lease {lease_id:#034x} was taken back by the host: {reason}")]
    LeaseRevoked {
        /// The lease.
        lease_id: u128,
        /// Why, in the words of whoever revoked it.
        reason: String,
    },
    /// An argument that no device could accept.
    #[error("invalid argument: {reason}")]
    InvalidArgument {
        /// What is wrong with it, with the value.
        reason: String,
    },
    /// Offset and length are not inside the buffer.
    #[error(transparent)]
    OutOfBounds(BoundsFault),
    /// A handle that is not live in this session.
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
    /// The device, the backend or this build lacks an ability.
    #[error(transparent)]
    Unsupported(UnsupportedFault),
    /// The device is in use by a lease that excludes this one.
    #[error(transparent)]
    DeviceBusy(BusyFault),
    /// The device is lost.
    #[error(transparent)]
    DeviceLost(LostFault),
    /// A wait ended before what it waited for.
    #[error(transparent)]
    Timeout(TimeoutFault),
    /// An event has not been reached yet.
    #[error("not ready: {what}")]
    NotReady {
        /// What has not been reached.
        what: String,
    },
    /// A driver failed in a way that no other variant describes.
    #[error("gpu session failed: {0}")]
    GpuSessionFailed(DriverFault),
}

impl FabricError {
    /// The kind of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::CapacityExceeded(_) => ErrorKind::CapacityExceeded,
            Self::Disconnected(_) => ErrorKind::Disconnected,
            Self::LeaseExpired { .. } => ErrorKind::LeaseExpired,
            Self::LeaseRevoked { .. } => ErrorKind::LeaseRevoked,
            Self::InvalidArgument { .. } => ErrorKind::InvalidArgument,
            Self::OutOfBounds(_) => ErrorKind::OutOfBounds,
            Self::InvalidHandle(_) => ErrorKind::InvalidHandle,
            Self::InvalidModule(_) => ErrorKind::InvalidModule,
            Self::KernelNotFound(_) => ErrorKind::KernelNotFound,
            Self::ArgumentMismatch(_) => ErrorKind::ArgumentMismatch,
            Self::LaunchLimits(_) => ErrorKind::LaunchLimits,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::DeviceBusy(_) => ErrorKind::Busy,
            Self::DeviceLost(_) => ErrorKind::DeviceLost,
            Self::Timeout(_) => ErrorKind::Timeout,
            Self::NotReady { .. } => ErrorKind::NotReady,
            Self::GpuSessionFailed(_) => ErrorKind::Driver,
        }
    }

    pub(crate) fn invalid_argument(reason: impl Into<String>) -> Self {
        Self::InvalidArgument {
            reason: reason.into(),
        }
    }

    pub(crate) fn invalid_handle(kind: HandleKind, id: u64) -> Self {
        Self::InvalidHandle(HandleFault { kind, id })
    }
}

impl From<GpuError> for FabricError {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Unavailable { backend, reason } => Self::Disconnected(DisconnectedFault {
                reason: String::from("the backend is not available"),
                backends: alloc::vec![BackendReport {
                    backend: backend.into(),
                    reason,
                    hint: String::new()
                }],
            }),
            GpuError::OutOfMemory(fault) => Self::CapacityExceeded(fault),
            GpuError::InvalidArgument { reason } => Self::InvalidArgument { reason },
            GpuError::OutOfBounds(fault) => Self::OutOfBounds(fault),
            GpuError::InvalidHandle(fault) => Self::InvalidHandle(fault),
            GpuError::InvalidModule(fault) => Self::InvalidModule(fault),
            GpuError::KernelNotFound(fault) => Self::KernelNotFound(fault),
            GpuError::ArgumentMismatch(fault) => Self::ArgumentMismatch(fault),
            GpuError::LaunchLimits(fault) => Self::LaunchLimits(fault),
            GpuError::Unsupported(fault) => Self::Unsupported(fault),
            GpuError::Timeout(fault) => Self::Timeout(fault),
            GpuError::NotReady { what } => Self::NotReady { what },
            GpuError::DeviceLost(fault) => Self::DeviceLost(fault),
            GpuError::Driver(fault) => Self::GpuSessionFailed(fault),
            // The enum may grow; what this version does not know is still a driver's failure.
            other => Self::GpuSessionFailed(DriverFault {
                api: "backend",
                entry_point: "call",
                code: i64::from(other.kind().code()),
                code_name: "unknown code".into(),
                detail: alloc::format!("{other}"),
            }),
        }
    }
}

/// Why there is no device to talk to, backend by backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisconnectedFault {
    /// What was asked for and could not be had.
    pub reason: String,
    /// What each backend said; a backend that is not compiled in is listed as such.
    pub backends: Vec<BackendReport>,
}

/// Why one backend has no device to offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendReport {
    /// The backend's name.
    pub backend: String,
    /// What was looked for and not found.
    pub reason: String,
    /// What a person can do about it; may be empty.
    pub hint: String,
}

impl fmt::Display for DisconnectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disconnected: {}", self.reason)?;
        for BackendReport {
            backend,
            reason,
            hint,
        } in &self.backends
        {
            write!(f, "; {backend}: {reason}")?;
            if !hint.is_empty() {
                write!(f, " ({hint})")?;
            }
        }
        Ok(())
    }
}

impl core::error::Error for DisconnectedFault {}

/// Who holds a device that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "device busy: {device} is held by lease {holder_lease_id:#034x} ({holder_class}): {reason}"
)]
pub struct BusyFault {
    /// The device's name.
    pub device: String,
    /// The lease that holds it.
    pub holder_lease_id: u128,
    /// The exclusivity class of that lease.
    pub holder_class: &'static str,
    /// What that excludes; for a request that several devices could have met, also what removed
    /// each of the others.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    #[test]
    fn backend_errors_keep_their_kind_and_numbers() {
        let bounds = BoundsFault {
            offset_bytes: 3,
            len_bytes: 8,
            size_bytes: 10,
        };
        let limit = LimitFault {
            kernel: "k".into(),
            what: LimitKind::ThreadsPerBlock,
            axis: None,
            requested: 2048,
            limit: 1024,
        };
        let errors = [
            GpuError::Unavailable {
                backend: "cuda",
                reason: "no library".into(),
            },
            GpuError::OutOfBounds(bounds),
            GpuError::LaunchLimits(limit),
            GpuError::NotReady {
                what: "event 3".into(),
            },
            GpuError::DeviceLost(LostFault {
                reason: "x".into(),
                needs_process_restart: true,
            }),
        ];
        for error in errors {
            let kind = error.kind();
            let text = error.to_string();
            let fabric = FabricError::from(error);
            assert_eq!(fabric.kind(), kind);
            if kind != ErrorKind::Disconnected {
                assert_eq!(fabric.to_string(), text);
            }
        }
    }

    #[test]
    fn disconnected_lists_each_backend() {
        let fault = DisconnectedFault {
            reason: "no device".into(),
            backends: vec![
                BackendReport {
                    backend: "cuda".into(),
                    reason: "no library".into(),
                    hint: String::new(),
                },
                BackendReport {
                    backend: "vulkan".into(),
                    reason: "no device".into(),
                    hint: "install a driver".into(),
                },
            ],
        };
        assert_eq!(
            fault.to_string(),
            "disconnected: no device; cuda: no library; vulkan: no device (install a driver)"
        );
    }

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(
            size_of::<FabricError>() <= 112,
            "{} bytes",
            size_of::<FabricError>()
        );
    }
}
