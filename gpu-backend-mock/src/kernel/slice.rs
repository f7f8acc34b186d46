//! Typed views of device memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use crate::kernel::KernelTrap;
use crate::memory::{Allocation, WORD_BYTES, store_masked};

mod sealed {
    /// The bit patterns of a type, in the low bits of a word.
    pub trait Bits: Copy {
        const SIZE_BYTES: usize;
        fn from_bits(bits: u64) -> Self;
        fn into_bits(self) -> u64;
    }
}

pub(crate) use sealed::Bits;

/// A type that memory and arguments can hold: integers and floats of 8 to 64 bits.
pub trait Element: Bits + Send + Sync + 'static {}

/// An element that can be added to atomically: 32-bit and 64-bit integers and floats.
pub trait AtomicElement: Element {
    #[doc(hidden)]
    #[must_use]
    fn sum(self, other: Self) -> Self;
}

/// An integer with all atomic operations: `u32`, `i32`, `u64` and `i64`.
pub trait AtomicInteger: AtomicElement + Ord {}

macro_rules! elements {
    ($($name:ident: |$value:ident| $into:expr, |$bits:ident| $from:expr;)*) => {$(
        impl Bits for $name {
            const SIZE_BYTES: usize = size_of::<$name>();
            fn from_bits($bits: u64) -> Self {
                $from
            }
            fn into_bits(self) -> u64 {
                let $value = self;
                $into
            }
        }
        impl Element for $name {}
    )*};
}

// Narrowing keeps the low bits, which are the ones that `into_bits` has set.
elements! {
    u8: |value| u64::from(value), |bits| bits as u8;
    i8: |value| u64::from(value.cast_unsigned()), |bits| bits as i8;
    u16: |value| u64::from(value), |bits| bits as u16;
    i16: |value| u64::from(value.cast_unsigned()), |bits| bits as i16;
    u32: |value| u64::from(value), |bits| bits as u32;
    i32: |value| u64::from(value.cast_unsigned()), |bits| bits as i32;
    u64: |value| value, |bits| bits;
    i64: |value| value.cast_unsigned(), |bits| bits as i64;
    f32: |value| u64::from(value.to_bits()), |bits| f32::from_bits(bits as u32);
    f64: |value| value.to_bits(), |bits| f64::from_bits(bits);
}

macro_rules! atomic_integers {
    ($($name:ident)*) => {$(
        impl AtomicElement for $name {
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
        impl AtomicInteger for $name {}
    )*};
}

atomic_integers! { u32 i32 u64 i64 }

macro_rules! atomic_floats {
    ($($name:ident)*) => {$(
        impl AtomicElement for $name {
            fn sum(self, other: Self) -> Self {
                self + other
            }
        }
    )*};
}

atomic_floats! { f32 f64 }

/// Device memory as elements of one type, from an address to the end of its allocation.
///
/// Every access is checked and atomic: kernels that race read old or new values, never torn ones,
/// and an access outside the allocation is a [`KernelTrap`]. Loads and stores are unordered
/// (relaxed); atomic operations order what comes before and after them.
pub struct DeviceSlice<'a, T> {
    allocation: &'a Allocation,
    /// Where element 0 lies within the allocation, in bytes; a multiple of the element's size.
    offset: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<'a, T: Element> DeviceSlice<'a, T> {
    /// Views an allocation from a byte offset inside it to its end.
    pub(crate) fn new(allocation: &'a Allocation, offset: usize) -> Result<Self, KernelTrap> {
        if !offset.is_multiple_of(T::SIZE_BYTES) {
            return Err(KernelTrap::new(format!(
                "address {:#x} is not a multiple of {}, as its elements need",
                allocation.address() + offset as u64,
                T::SIZE_BYTES,
            )));
        }
        Ok(Self {
            allocation,
            offset,
            len: (allocation.len() - offset) / T::SIZE_BYTES,
            element: PhantomData,
        })
    }

    /// How many elements lie between the address and the end of the allocation.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether not even one element lies there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device address of element 0.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.allocation.address() + self.offset as u64
    }

    /// Loads an element.
    ///
    /// # Errors
    ///
    /// A trap when `index` is not below [`len`](Self::len).
    pub fn load(&self, index: usize) -> Result<T, KernelTrap> {
        let place = self.place(index, "load")?;
        Ok(place.value(place.word.load(Ordering::Relaxed)))
    }

    /// Stores an element.
    ///
    /// # Errors
    ///
    /// A trap when `index` is not below [`len`](Self::len).
    pub fn store(&self, index: usize, value: T) -> Result<(), KernelTrap> {
        let place = self.place(index, "store")?;
        let bits = value.into_bits();
        if T::SIZE_BYTES == WORD_BYTES {
            place.word.store(bits, Ordering::Relaxed);
        } else {
            store_masked(place.word, place.mask, bits << place.shift);
        }
        Ok(())
    }

    /// Finds the word of an element, and the bits of it.
    fn place(&self, index: usize, access: &str) -> Result<Place<'a, T>, KernelTrap> {
        if index >= self.len {
            return Err(self.outside(index, access));
        }
        let byte = self.offset + index * T::SIZE_BYTES;
        let shift = (byte % WORD_BYTES) as u32 * 8;
        Ok(Place {
            word: &self.allocation.words()[byte / WORD_BYTES],
            shift,
            mask: (u64::MAX >> (64 - 8 * T::SIZE_BYTES as u32)) << shift,
            element: PhantomData,
        })
    }

    #[cold]
    fn outside(&self, index: usize, access: &str) -> KernelTrap {
        let first = self.address() as u128 + index as u128 * T::SIZE_BYTES as u128;
        let end = self.allocation.address() as u128 + self.allocation.len() as u128;
        KernelTrap::new(format!(
            "{access} of {} bytes at address {first:#x} ends {} bytes past the end of {}",
            T::SIZE_BYTES,
            first + T::SIZE_BYTES as u128 - end,
            self.allocation,
        ))
    }
}

impl<T: AtomicElement> DeviceSlice<'_, T> {
    /// Adds to an element as one indivisible step and returns its value before. Integers wrap.
    ///
    /// # Errors
    ///
    /// A trap when `index` is not below [`len`](Self::len).
    pub fn atomic_add(&self, index: usize, value: T) -> Result<T, KernelTrap> {
        self.update(index, |current| current.sum(value))
    }

    /// Replaces an element as one indivisible step and returns its value before.
    ///
    /// # Errors
    ///
    /// A trap when `index` is not below [`len`](Self::len).
    pub fn atomic_exchange(&self, index: usize, value: T) -> Result<T, KernelTrap> {
        self.update(index, |_| value)
    }

    fn update(&self, index: usize, change: impl Fn(T) -> T) -> Result<T, KernelTrap> {
        let place = self.place(index, "atomic access")?;
        let mut current = place.word.load(Ordering::Relaxed);
        loop {
            let before = place.value(current);
            let bits = change(before).into_bits() << place.shift;
            let next = (current & !place.mask) | bits;
            match place.word.compare_exchange_weak(
                current,
                next,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(before),
                Err(changed) => current = changed,
            }
        }
    }
}

impl<T: AtomicInteger> DeviceSlice<'_, T> {
    /// Lowers an element to `value` if that is less, and returns its value before.
    ///
    /// # Errors
    ///
    /// A trap when `index` is not below [`len`](Self::len).
    pub fn atomic_min(&self, index: usize, value: T) -> Result<T, KernelTrap> {
        self.update(index, |current| current.min(value))
    }

    /// Raises an element to `value` if that is more, and returns its value before.
    ///
    /// # Errors
    ///
    /// A trap when `index` is not below [`len`](Self::len).
    pub fn atomic_max(&self, index: usize, value: T) -> Result<T, KernelTrap> {
        self.update(index, |current| current.max(value))
    }

    /// Replaces an element by `new` if it equals `expected`, and returns its value before.
    ///
    /// # Errors
    ///
    /// A trap when `index` is not below [`len`](Self::len).
    pub fn atomic_compare_exchange(
        &self,
        index: usize,
        expected: T,
        new: T,
    ) -> Result<T, KernelTrap> {
        self.update(
            index,
            |current| {
                if current == expected { new } else { current }
            },
        )
    }
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<T> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSlice")
            .field("allocation", &format_args!("{}", self.allocation))
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish()
    }
}

/// An element within its word.
struct Place<'a, T> {
    word: &'a std::sync::atomic::AtomicU64,
    shift: u32,
    mask: u64,
    element: PhantomData<T>,
}

impl<T: Element> Place<'_, T> {
    fn value(&self, word: u64) -> T {
        T::from_bits((word & self.mask) >> self.shift)
    }
}
