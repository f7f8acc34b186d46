//! Launch arguments.
#![expect(
    unsafe_code,
    reason = "a caller's plain struct is read as bytes, under a stated contract"
)]

use alloc::vec::Vec;
use core::mem::size_of;
use core::slice;

use super::GpuMemHandle;

/// The arguments of a launch, packed as bytes with their sizes.
///
/// Scalars are little-endian. A buffer is its 8-byte device address. The bytes stand one after
/// the other without padding; where the kernel's parameters need padding between them, it is put
/// in at launch from the kernel's own signature, which also checks count and sizes.
///
/// ```
/// use grafos_std::gpu::{GpuBuilder, GpuSession, KernelArgs};
///
/// # grafos_std::host::reset_mock();
/// let lease = GpuBuilder::new().acquire()?;
/// let session = GpuSession::new(&lease);
/// let buffer = session.mem_alloc(64)?;
/// let (bytes, sizes) = KernelArgs::new().push_u32(7).push_buffer(&buffer).build();
/// assert_eq!(sizes, [4, 8]);
/// assert_eq!(bytes[..4], 7u32.to_le_bytes());
/// assert_eq!(bytes[4..], buffer.raw().to_le_bytes());
/// # Ok::<(), grafos_std::FabricError>(())
/// ```
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[must_use]
pub struct KernelArgs {
    bytes: Vec<u8>,
    sizes: Vec<u32>,
}

impl KernelArgs {
    /// Starts without arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a `u32`.
    pub fn push_u32(self, value: u32) -> Self {
        self.push_bytes(&value.to_le_bytes())
    }

    /// Adds a `u64`.
    pub fn push_u64(self, value: u64) -> Self {
        self.push_bytes(&value.to_le_bytes())
    }

    /// Adds an `i32`.
    pub fn push_i32(self, value: i32) -> Self {
        self.push_bytes(&value.to_le_bytes())
    }

    /// Adds an `i64`.
    pub fn push_i64(self, value: i64) -> Self {
        self.push_bytes(&value.to_le_bytes())
    }

    /// Adds an `f32`.
    pub fn push_f32(self, value: f32) -> Self {
        self.push_bytes(&value.to_le_bytes())
    }

    /// Adds an `f64`.
    pub fn push_f64(self, value: f64) -> Self {
        self.push_bytes(&value.to_le_bytes())
    }

    /// Adds a buffer by its device address.
    ///
    /// The arguments do not keep the buffer alive; it has to live until the launch.
    pub fn push_buffer(self, buffer: &GpuMemHandle) -> Self {
        self.push_u64(buffer.raw())
    }

    /// Adds one argument from its bytes, as they should lie in the kernel's parameter: the way to
    /// pass a struct without `unsafe`.
    ///
    /// # Panics
    ///
    /// When the bytes are more than `u32::MAX`, which no kernel parameter has.
    pub fn push_bytes(mut self, bytes: &[u8]) -> Self {
        let size = u32::try_from(bytes.len());
        assert!(
            size.is_ok(),
            "an argument of {} bytes fits no kernel",
            bytes.len()
        );
        self.bytes.extend_from_slice(bytes);
        self.sizes.extend(size);
        self
    }

    /// Adds a value of any plain type by its bytes.
    ///
    /// # Safety
    ///
    /// Every byte of `value` must be initialized: `T` has no padding, neither between its fields
    /// nor at its end (a `#[repr(C)]` struct of plain numbers whose sizes and alignments leave no
    /// gap), and no `MaybeUninit` or union with smaller variants. A `T` that holds pointers or
    /// references is allowed but means nothing to the device.
    pub unsafe fn push_raw<T: Copy>(self, value: &T) -> Self {
        let start: *const T = value;
        // SAFETY: the reference is valid for `size_of::<T>()` bytes while it lives, `u8` has no
        // alignment, and the caller warrants that all of the bytes are initialized.
        let bytes = unsafe { slice::from_raw_parts(start.cast::<u8>(), size_of::<T>()) };
        self.push_bytes(bytes)
    }

    /// Shows the bytes and the size of each argument.
    #[must_use]
    pub fn as_parts(&self) -> (&[u8], &[u32]) {
        (&self.bytes, &self.sizes)
    }

    /// Gives up the bytes and the size of each argument, as [`GpuSession::launch`] takes them.
    ///
    /// [`GpuSession::launch`]: super::GpuSession::launch
    #[must_use]
    pub fn build(self) -> (Vec<u8>, Vec<u32>) {
        (self.bytes, self.sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_little_endian_with_its_size() {
        let args = KernelArgs::new()
            .push_u32(0x0102_0304)
            .push_i32(-2)
            .push_u64(0x0102_0304_0506_0708)
            .push_i64(-3)
            .push_f32(-1.5)
            .push_f64(0.1);
        let (bytes, sizes) = args.as_parts();
        assert_eq!(sizes, [4, 4, 8, 8, 4, 8]);
        assert_eq!(bytes[..4], [4, 3, 2, 1]);
        assert_eq!(bytes[4..8], [0xFE, 0xFF, 0xFF, 0xFF]);
        assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(
            bytes[16..24],
            [0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]
        );
        assert_eq!(bytes[24..28], [0, 0, 0xC0, 0xBF]);
        assert_eq!(bytes[28..], 0.1f64.to_bits().to_le_bytes());
    }

    #[test]
    fn raw_values_are_their_bytes() {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Pair {
            first: u32,
            second: f32,
        }
        let pair = Pair {
            first: 7,
            second: 1.0,
        };
        // SAFETY: two fields of four bytes each leave no padding.
        let (bytes, sizes) = unsafe { KernelArgs::new().push_raw(&pair) }.build();
        assert_eq!(sizes, [8]);
        assert_eq!(bytes, [7, 0, 0, 0, 0, 0, 0x80, 0x3F]);
        assert_eq!((pair.first, pair.second), (7, 1.0));
    }

    #[test]
    fn no_arguments_are_no_bytes() {
        assert_eq!(KernelArgs::new().build(), (Vec::new(), Vec::new()));
    }
}
