//! What a kernel sees of its launch.

use std::ops::{Deref, DerefMut};

use crate::kernel::{DeviceSlice, Element, KernelTrap};
use crate::launch::Launch;

/// One block of a running kernel: its place in the grid, its arguments, its memory.
///
/// Dimensions and indices are x y z: blocks in the grid, threads in the block.
#[derive(Debug)]
pub struct BlockScope<'a> {
    launch: &'a Launch,
    block_index: [u32; 3],
    static_shared_left: usize,
    dynamic_shared_left: usize,
}

impl<'a> BlockScope<'a> {
    pub(crate) fn new(launch: &'a Launch, block_index: [u32; 3]) -> Self {
        Self {
            launch,
            block_index,
            static_shared_left: launch.kernel().static_shared() as usize,
            dynamic_shared_left: launch.record().dynamic_shared_bytes as usize,
        }
    }

    /// Blocks per axis.
    #[must_use]
    pub fn grid(&self) -> [u32; 3] {
        self.launch.record().grid
    }

    /// Threads per block and axis.
    #[must_use]
    pub fn block(&self) -> [u32; 3] {
        self.launch.record().block
    }

    /// This block's place in the grid.
    #[must_use]
    pub fn block_index(&self) -> [u32; 3] {
        self.block_index
    }

    /// How many threads the block has.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.block().iter().map(|axis| *axis as usize).product()
    }

    /// Runs a closure for each thread of the block, x fastest.
    ///
    /// Two calls in a row are what a barrier separates on a GPU: all threads have done the first
    /// before any begins the second. What a thread keeps over a barrier goes into a vector indexed
    /// by [`Thread::linear_index`].
    ///
    /// # Errors
    ///
    /// The first trap that the closure returns, with the thread's index in it; the threads after
    /// it do not run.
    pub fn for_each_thread(
        &self,
        mut run: impl FnMut(Thread) -> Result<(), KernelTrap>,
    ) -> Result<(), KernelTrap> {
        let (grid, block) = (self.grid(), self.block());
        for z in 0..block[2] {
            for y in 0..block[1] {
                for x in 0..block[0] {
                    let index = [x, y, z];
                    let thread = Thread {
                        index,
                        block_index: self.block_index,
                        block,
                        grid,
                    };
                    run(thread).map_err(|trap| trap.in_thread(index))?;
                }
            }
        }
        Ok(())
    }

    /// How many arguments the launch has.
    #[must_use]
    pub fn arg_count(&self) -> usize {
        self.launch.record().arg_count()
    }

    /// The bytes of an argument, little-endian. Arguments count from 0.
    ///
    /// # Errors
    ///
    /// A trap when there is no such argument.
    pub fn arg_bytes(&self, index: usize) -> Result<&'a [u8], KernelTrap> {
        let record = self.launch.record();
        record.arg(index).ok_or_else(|| {
            KernelTrap::new(format!(
                "argument {index} does not exist: the launch has {}",
                record.arg_count()
            ))
        })
    }

    /// An argument by value. Arguments count from 0.
    ///
    /// # Errors
    ///
    /// A trap when there is no such argument or it has another size.
    pub fn arg<T: Element>(&self, index: usize) -> Result<T, KernelTrap> {
        let bytes = self.arg_bytes(index)?;
        if bytes.len() != T::SIZE_BYTES {
            return Err(KernelTrap::new(format!(
                "argument {index} has {} bytes, the kernel reads {}",
                bytes.len(),
                T::SIZE_BYTES
            )));
        }
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Ok(T::from_bits(u64::from_le_bytes(word)))
    }

    /// The memory that an argument's address points to, up to the end of its allocation.
    ///
    /// # Errors
    ///
    /// A trap when the argument is not an address of 8 bytes, or as [`memory`](Self::memory).
    pub fn buffer<T: Element>(&self, index: usize) -> Result<DeviceSlice<'a, T>, KernelTrap> {
        let address = self.arg::<u64>(index)?;
        self.memory(address)
            .map_err(|trap| KernelTrap::new(format!("argument {index}: {}", trap.reason())))
    }

    /// The memory at a device address, up to the end of its allocation.
    ///
    /// # Errors
    ///
    /// A trap when the address is not in memory that was live when the kernel was launched, or not
    /// a multiple of the element's size.
    pub fn memory<T: Element>(&self, address: u64) -> Result<DeviceSlice<'a, T>, KernelTrap> {
        let (allocation, offset) = self.launch.resolve(address)?;
        DeviceSlice::new(allocation, offset)
    }

    /// A global variable of the kernel's module.
    ///
    /// # Errors
    ///
    /// A trap when the module has no such variable.
    pub fn global<T: Element>(&self, name: &str) -> Result<DeviceSlice<'a, T>, KernelTrap> {
        let allocation = self.launch.global(name).ok_or_else(|| {
            KernelTrap::new(format!("the module has no global variable {name:?}"))
        })?;
        DeviceSlice::new(allocation, 0)
    }

    /// Takes an array of shared memory from what the kernel
    /// [declares](crate::HostKernel::static_shared_bytes).
    ///
    /// As on a GPU its content is undefined: here all bits are set, which makes floats NaN.
    ///
    /// # Errors
    ///
    /// A trap when the kernel has declared less.
    pub fn shared_mut<T: Element>(&mut self, len: usize) -> Result<SharedArray<T>, KernelTrap> {
        SharedArray::take(&mut self.static_shared_left, len, "declared shared memory")
    }

    /// Takes an array of shared memory from what the launch added
    /// ([`dynamic_shared_bytes`](Self::dynamic_shared_bytes)). Its content is undefined, as that
    /// of [`shared_mut`](Self::shared_mut).
    ///
    /// # Errors
    ///
    /// A trap when the launch added less.
    pub fn dynamic_shared_mut<T: Element>(
        &mut self,
        len: usize,
    ) -> Result<SharedArray<T>, KernelTrap> {
        SharedArray::take(&mut self.dynamic_shared_left, len, "dynamic shared memory")
    }

    /// How much shared memory the launch added, in bytes.
    #[must_use]
    pub fn dynamic_shared_bytes(&self) -> usize {
        self.launch.record().dynamic_shared_bytes as usize
    }
}

/// One thread of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    index: [u32; 3],
    block_index: [u32; 3],
    block: [u32; 3],
    grid: [u32; 3],
}

impl Thread {
    /// The thread's place in its block, x y z.
    #[must_use]
    pub fn index(&self) -> [u32; 3] {
        self.index
    }

    /// The block's place in the grid, x y z.
    #[must_use]
    pub fn block_index(&self) -> [u32; 3] {
        self.block_index
    }

    /// The thread's number within its block, x fastest.
    #[must_use]
    pub fn linear_index(&self) -> usize {
        let [x, y, z] = self.index.map(|axis| axis as usize);
        let [width, height, _] = self.block.map(|axis| axis as usize);
        (z * height + y) * width + x
    }

    /// The thread's place in the whole grid, x y z: block index times block plus thread index.
    #[must_use]
    pub fn global(&self) -> [usize; 3] {
        std::array::from_fn(|axis| {
            self.block_index[axis] as usize * self.block[axis] as usize + self.index[axis] as usize
        })
    }

    /// The x of [`global`](Self::global).
    #[must_use]
    pub fn global_x(&self) -> usize {
        self.block_index[0] as usize * self.block[0] as usize + self.index[0] as usize
    }

    /// How many threads the whole grid has per axis, x y z.
    #[must_use]
    pub fn grid_threads(&self) -> [usize; 3] {
        std::array::from_fn(|axis| self.grid[axis] as usize * self.block[axis] as usize)
    }
}

/// An array in the shared memory of a block. Indexing past its end panics, and the launch fails
/// as after a trap.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedArray<T>(Box<[T]>);

impl<T: Element> SharedArray<T> {
    fn take(left: &mut usize, len: usize, what: &str) -> Result<Self, KernelTrap> {
        let bytes = len.checked_mul(T::SIZE_BYTES);
        match bytes.and_then(|bytes| left.checked_sub(bytes)) {
            Some(rest) => {
                *left = rest;
                Ok(Self(vec![T::from_bits(u64::MAX); len].into_boxed_slice()))
            }
            None => Err(KernelTrap::new(format!(
                "{what} exhausted: requested {len} elements of {} bytes, {left} bytes left",
                T::SIZE_BYTES
            ))),
        }
    }
}

impl<T> Deref for SharedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for SharedArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_know_their_places() {
        let thread = Thread {
            index: [1, 2, 3],
            block_index: [4, 5, 6],
            block: [8, 4, 4],
            grid: [10, 20, 30],
        };
        assert_eq!(thread.linear_index(), 1 + 2 * 8 + 3 * 32);
        assert_eq!(thread.global(), [33, 22, 27]);
        assert_eq!(thread.global_x(), 33);
        assert_eq!(thread.grid_threads(), [80, 80, 120]);
    }

    #[test]
    fn shared_memory_is_budgeted_and_undefined() {
        let mut left = 20;
        let array = SharedArray::<f32>::take(&mut left, 4, "shared memory").unwrap();
        assert!(array.iter().all(|value| value.is_nan()));
        assert_eq!(left, 4);
        let trap = SharedArray::<u64>::take(&mut left, 1, "shared memory").unwrap_err();
        assert_eq!(
            trap.reason(),
            "shared memory exhausted: requested 1 elements of 8 bytes, 4 bytes left"
        );
        assert!(SharedArray::<u64>::take(&mut left, usize::MAX, "shared memory").is_err());
        assert_eq!(left, 4);
    }
}
