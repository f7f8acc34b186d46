//! The errors that the software GPU makes, each in one place.

use grafos_host_abi::{
    CapacityFault, GpuError, HandleFault, HandleKind, ImageFormat, KernelFault, LostFault,
    ModuleFault, TimeoutFault, UnsupportedFault,
};
use std::time::Duration;

pub(crate) fn invalid_handle(kind: HandleKind, id: u64) -> GpuError {
    GpuError::InvalidHandle(HandleFault { kind, id })
}

pub(crate) fn invalid_argument(reason: impl Into<String>) -> GpuError {
    GpuError::InvalidArgument {
        reason: reason.into(),
    }
}

pub(crate) fn out_of_memory(resource: &'static str, requested: u64, available: u64) -> GpuError {
    GpuError::OutOfMemory(CapacityFault {
        resource,
        requested,
        available: Some(available),
        unit: "bytes",
        cause: None,
    })
}

pub(crate) fn invalid_module(format: ImageFormat, image: &[u8], reason: String) -> GpuError {
    GpuError::InvalidModule(ModuleFault {
        format,
        len_bytes: image.len() as u64,
        reason,
    })
}

pub(crate) fn kernel_not_found(name: &str, available: Vec<String>) -> GpuError {
    GpuError::KernelNotFound(KernelFault {
        name: name.to_owned(),
        available,
    })
}

pub(crate) fn unsupported(what: impl Into<String>, reason: impl Into<String>) -> GpuError {
    GpuError::Unsupported(UnsupportedFault {
        what: what.into(),
        reason: reason.into(),
    })
}

pub(crate) fn timeout(waited: Option<Duration>) -> GpuError {
    let waited_ns = waited.map_or(u64::MAX, |waited| {
        u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX)
    });
    GpuError::Timeout(TimeoutFault { waited_ns })
}

pub(crate) fn lost(fault: &LostFault) -> GpuError {
    GpuError::DeviceLost(fault.clone())
}
