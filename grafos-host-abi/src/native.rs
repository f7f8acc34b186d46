//! The driver's own objects, for mixing in vendor libraries.

use alloc::vec::Vec;

/// The driver objects behind a context and a stream.
///
/// The values are plain numbers: handing them out is safe, using them with the driver's API is
/// the caller's `unsafe`. They are valid while the callback that received them runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeHandle {
    /// Names the API: `cuda`, `hip`, `vulkan` or a third party's.
    pub api: &'static str,
    /// The objects, each under its type's name in the vendor's headers.
    pub objects: Vec<NativeObject>,
    /// The buffers that were asked for, in the same order.
    pub buffers: Vec<NativeBuffer>,
}

impl NativeHandle {
    /// Finds an object by its type's name in the vendor's headers, such as `CUcontext`,
    /// `CUstream`, `hipStream_t`, `VkDevice` or `VkQueue`.
    #[must_use]
    pub fn object(&self, type_name: &str) -> Option<u64> {
        self.objects
            .iter()
            .find(|object| object.type_name == type_name)
            .map(|object| object.value)
    }
}

/// One driver object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeObject {
    /// The type's name in the vendor's headers.
    pub type_name: &'static str,
    /// The handle, pointer or index as a number.
    pub value: u64,
}

/// Where a buffer lies in the driver's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeBuffer {
    /// The driver's buffer object (`VkBuffer`), or the device address where there is no such
    /// object (`CUdeviceptr`, `hipDeviceptr_t`).
    pub object: u64,
    /// Where the buffer begins within `object`, in bytes.
    pub offset_bytes: u64,
    /// The buffer's device address.
    pub address: u64,
}
