//! Device memory.

/// A live allocation of a context. Ids are never reused within a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u64);

/// A request for device memory.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferDesc {
    /// How many bytes; one or more.
    pub size_bytes: u64,
}

impl BufferDesc {
    /// Asks for `size_bytes` bytes.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes }
    }
}

/// An allocation as the backend made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferInfo {
    /// The id that memory calls take.
    pub id: BufferId,
    /// The device address that a kernel takes as its argument. Live buffers of a context never
    /// overlap, and no buffer begins at 0.
    pub address: u64,
    /// The size that was asked for, in bytes.
    pub size_bytes: u64,
}

/// A part of a buffer, already checked to lie inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: BufferId,
    /// Where the range begins, in bytes from the buffer's start.
    pub offset_bytes: u64,
    /// How long it is, in bytes.
    pub len_bytes: u64,
}

/// What a fill writes, over and over, in little-endian byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillPattern {
    /// One byte (`cuMemsetD8`).
    U8(u8),
    /// Two bytes; offset and length are multiples of 2 (`cuMemsetD16`).
    U16(u16),
    /// Four bytes; offset and length are multiples of 4 (`cuMemsetD32`, `vkCmdFillBuffer`).
    U32(u32),
}

impl FillPattern {
    /// How many bytes one repetition has.
    #[must_use]
    pub fn len_bytes(self) -> u64 {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
        }
    }

    /// Repeats the pattern to four bytes, in the order in which they lie in memory.
    #[must_use]
    pub fn to_word_bytes(self) -> [u8; 4] {
        match self {
            Self::U8(byte) => [byte; 4],
            Self::U16(half) => {
                let [low, high] = half.to_le_bytes();
                [low, high, low, high]
            }
            Self::U32(word) => word.to_le_bytes(),
        }
    }
}

/// The memory of a device, and what a context holds of it. All in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The device's memory in total.
    pub total_bytes: u64,
    /// What can still be allocated, by the driver's own count where it has one.
    pub free_bytes: u64,
    /// The sizes of this context's live buffers together, as they were asked for. A buffer counts
    /// until the call that frees it, even where work still holds its memory.
    pub live_bytes: u64,
    /// How many buffers are live in this context.
    pub live_buffers: u64,
    /// What this context holds from the driver: live buffers, rounding, caches, staging memory.
    pub reserved_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_patterns_repeat_in_memory_order() {
        assert_eq!(
            FillPattern::U8(0xAB).to_word_bytes(),
            [0xAB, 0xAB, 0xAB, 0xAB]
        );
        assert_eq!(
            FillPattern::U16(0x1234).to_word_bytes(),
            [0x34, 0x12, 0x34, 0x12]
        );
        assert_eq!(FillPattern::U32(0x0102_0304).to_word_bytes(), [4, 3, 2, 1]);
        assert_eq!(FillPattern::U8(0).len_bytes(), 1);
        assert_eq!(FillPattern::U16(0).len_bytes(), 2);
        assert_eq!(FillPattern::U32(0).len_bytes(), 4);
    }
}
