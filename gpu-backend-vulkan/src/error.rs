//! What Vulkan's result codes mean: the one table, and the errors made of it.

use std::borrow::Cow;

use ash::vk;
use grafos_host_abi::{CapacityFault, DriverFault, GpuError, LostFault};

/// The backend's name, and the API's name in errors.
pub(crate) const API: &str = "vulkan";

/// What a caller can do about a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Memory of the host or the device is exhausted.
    OutOfMemory,
    /// The device is lost.
    DeviceLost,
    /// The driver cannot be used at all.
    Unavailable,
    /// Any other failure.
    Other,
}

/// A code, its name in `vulkan_core.h`, and what it means.
struct Row(vk::Result, &'static str, Meaning);

/// Every code of the core and of the extensions that a compute program can meet. A code that is
/// not here is reported by number.
const TABLE: &[Row] = &[
    Row(vk::Result::SUCCESS, "VK_SUCCESS", Meaning::Other),
    Row(vk::Result::NOT_READY, "VK_NOT_READY", Meaning::Other),
    Row(vk::Result::TIMEOUT, "VK_TIMEOUT", Meaning::Other),
    Row(vk::Result::EVENT_SET, "VK_EVENT_SET", Meaning::Other),
    Row(vk::Result::EVENT_RESET, "VK_EVENT_RESET", Meaning::Other),
    Row(vk::Result::INCOMPLETE, "VK_INCOMPLETE", Meaning::Other),
    Row(
        vk::Result::PIPELINE_COMPILE_REQUIRED,
        "VK_PIPELINE_COMPILE_REQUIRED",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        "VK_ERROR_OUT_OF_HOST_MEMORY",
        Meaning::OutOfMemory,
    ),
    Row(
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        "VK_ERROR_OUT_OF_DEVICE_MEMORY",
        Meaning::OutOfMemory,
    ),
    Row(
        vk::Result::ERROR_INITIALIZATION_FAILED,
        "VK_ERROR_INITIALIZATION_FAILED",
        Meaning::Unavailable,
    ),
    Row(
        vk::Result::ERROR_DEVICE_LOST,
        "VK_ERROR_DEVICE_LOST",
        Meaning::DeviceLost,
    ),
    Row(
        vk::Result::ERROR_MEMORY_MAP_FAILED,
        "VK_ERROR_MEMORY_MAP_FAILED",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_LAYER_NOT_PRESENT,
        "VK_ERROR_LAYER_NOT_PRESENT",
        Meaning::Unavailable,
    ),
    Row(
        vk::Result::ERROR_EXTENSION_NOT_PRESENT,
        "VK_ERROR_EXTENSION_NOT_PRESENT",
        Meaning::Unavailable,
    ),
    Row(
        vk::Result::ERROR_FEATURE_NOT_PRESENT,
        "VK_ERROR_FEATURE_NOT_PRESENT",
        Meaning::Unavailable,
    ),
    Row(
        vk::Result::ERROR_INCOMPATIBLE_DRIVER,
        "VK_ERROR_INCOMPATIBLE_DRIVER",
        Meaning::Unavailable,
    ),
    Row(
        vk::Result::ERROR_TOO_MANY_OBJECTS,
        "VK_ERROR_TOO_MANY_OBJECTS",
        Meaning::OutOfMemory,
    ),
    Row(
        vk::Result::ERROR_FORMAT_NOT_SUPPORTED,
        "VK_ERROR_FORMAT_NOT_SUPPORTED",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_FRAGMENTED_POOL,
        "VK_ERROR_FRAGMENTED_POOL",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_UNKNOWN,
        "VK_ERROR_UNKNOWN",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_OUT_OF_POOL_MEMORY,
        "VK_ERROR_OUT_OF_POOL_MEMORY",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
        "VK_ERROR_INVALID_EXTERNAL_HANDLE",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_FRAGMENTATION,
        "VK_ERROR_FRAGMENTATION",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS,
        "VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_VALIDATION_FAILED_EXT,
        "VK_ERROR_VALIDATION_FAILED_EXT",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_INVALID_SHADER_NV,
        "VK_ERROR_INVALID_SHADER_NV",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_NOT_PERMITTED_KHR,
        "VK_ERROR_NOT_PERMITTED_KHR",
        Meaning::Other,
    ),
    Row(
        vk::Result::THREAD_IDLE_KHR,
        "VK_THREAD_IDLE_KHR",
        Meaning::Other,
    ),
    Row(
        vk::Result::THREAD_DONE_KHR,
        "VK_THREAD_DONE_KHR",
        Meaning::Other,
    ),
    Row(
        vk::Result::OPERATION_DEFERRED_KHR,
        "VK_OPERATION_DEFERRED_KHR",
        Meaning::Other,
    ),
    Row(
        vk::Result::OPERATION_NOT_DEFERRED_KHR,
        "VK_OPERATION_NOT_DEFERRED_KHR",
        Meaning::Other,
    ),
    Row(
        vk::Result::ERROR_COMPRESSION_EXHAUSTED_EXT,
        "VK_ERROR_COMPRESSION_EXHAUSTED_EXT",
        Meaning::OutOfMemory,
    ),
    Row(
        vk::Result::INCOMPATIBLE_SHADER_BINARY_EXT,
        "VK_INCOMPATIBLE_SHADER_BINARY_EXT",
        Meaning::Other,
    ),
];

fn row(result: vk::Result) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.0 == result)
}

/// The code's name in `vulkan_core.h`, or `unknown code`.
pub(crate) fn code_name(result: vk::Result) -> Cow<'static, str> {
    Cow::Borrowed(row(result).map_or("unknown code", |row| row.1))
}

/// What a code means for a caller.
pub(crate) fn meaning(result: vk::Result) -> Meaning {
    row(result).map_or(Meaning::Other, |row| row.2)
}

/// What the driver said, as data.
pub(crate) fn driver_fault(
    entry_point: &'static str,
    result: vk::Result,
    detail: String,
) -> DriverFault {
    DriverFault {
        api: API,
        entry_point,
        code: i64::from(result.as_raw()),
        code_name: code_name(result),
        detail,
    }
}

/// The error for a failed call that asked for `requested_bytes` bytes; 0 where the call names no
/// size.
pub(crate) fn from_code(
    entry_point: &'static str,
    result: vk::Result,
    requested_bytes: u64,
) -> GpuError {
    let fault = driver_fault(entry_point, result, String::new());
    match meaning(result) {
        Meaning::OutOfMemory => GpuError::OutOfMemory(CapacityFault {
            resource: if result == vk::Result::ERROR_OUT_OF_HOST_MEMORY {
                "host memory"
            } else {
                "device memory"
            },
            requested: requested_bytes,
            available: None,
            unit: "bytes",
            cause: Some(Box::new(fault)),
        }),
        Meaning::DeviceLost => GpuError::DeviceLost(LostFault {
            reason: fault.to_string(),
            // A new VkDevice can be made in the same process.
            needs_process_restart: false,
        }),
        Meaning::Unavailable | Meaning::Other => GpuError::Driver(fault),
    }
}

/// The error of a backend that cannot be used.
pub(crate) fn unavailable(reason: impl Into<String>) -> GpuError {
    GpuError::Unavailable {
        backend: API,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use grafos_host_abi::ErrorKind;

    use super::*;

    #[test]
    fn codes_map_to_the_kind_that_callers_branch_on() {
        let kind = |code| from_code("vkTest", code, 64).kind();
        assert_eq!(
            kind(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY),
            ErrorKind::CapacityExceeded
        );
        assert_eq!(
            kind(vk::Result::ERROR_OUT_OF_HOST_MEMORY),
            ErrorKind::CapacityExceeded
        );
        assert_eq!(kind(vk::Result::ERROR_DEVICE_LOST), ErrorKind::DeviceLost);
        assert_eq!(kind(vk::Result::ERROR_UNKNOWN), ErrorKind::Driver);
        assert_eq!(
            meaning(vk::Result::ERROR_INCOMPATIBLE_DRIVER),
            Meaning::Unavailable
        );
        assert_eq!(
            meaning(vk::Result::ERROR_INITIALIZATION_FAILED),
            Meaning::Unavailable
        );
    }

    #[test]
    fn messages_name_entry_point_code_and_number() {
        assert_eq!(
            from_code("vkQueueSubmit", vk::Result::ERROR_UNKNOWN, 0).to_string(),
            "vulkan: vkQueueSubmit: VK_ERROR_UNKNOWN (-13)"
        );
        assert_eq!(
            from_code(
                "vkAllocateMemory",
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
                4096
            )
            .to_string(),
            "device memory exhausted: requested 4096 bytes: \
             vulkan: vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)"
        );
        let lost = from_code("vkWaitSemaphores", vk::Result::ERROR_DEVICE_LOST, 0);
        assert_eq!(
            lost.to_string(),
            "device lost: vulkan: vkWaitSemaphores: VK_ERROR_DEVICE_LOST (-4); \
             a new lease opens it again"
        );
    }

    #[test]
    fn unknown_codes_keep_their_number() {
        let fault = driver_fault("vkTest", vk::Result::from_raw(-123_456), String::new());
        assert_eq!(fault.code, -123_456);
        assert_eq!(fault.code_name, "unknown code");
    }

    #[test]
    fn every_code_is_listed_once() {
        for (index, row) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..index].iter().all(|earlier| earlier.0 != row.0),
                "{}",
                row.1
            );
            assert!(row.1.starts_with("VK_"), "{}", row.1);
        }
    }
}
