//! Kernel launches.

mod recorder;

use grafos_host_abi::{
    ArgumentFault, ArgumentProblem, GpuError, LaunchArg, LaunchDesc, Result, UnsupportedFault,
};
use smallvec::SmallVec;

pub(crate) use recorder::Batch;

use crate::context::{Shared, Table};
use crate::driver::{DescriptorWrite, DeviceBuffer};
use crate::memory;
use crate::module::{Kernel, unknown_kernel};
use std::sync::Arc;

impl Shared {
    pub(crate) fn launch(&self, launch: &LaunchDesc<'_>) -> Result<()> {
        self.device.ensure_alive()?;
        debug_assert!(
            launch
                .grid
                .iter()
                .zip(self.info.limits.max_grid)
                .all(|(blocks, limit)| (1..=limit).contains(blocks)),
            "the host checks the grid: {:?}",
            launch.grid
        );
        debug_assert_eq!(
            launch.dynamic_shared_bytes, 0,
            "the device says that it has no dynamic shared memory"
        );
        let kernel = self.kernel_object(launch.kernel)?;
        let pipeline = kernel.pipeline(self, launch.block)?;
        let (bound, scalars) = self.split(&kernel, launch.args)?;
        let mut push_constants: SmallVec<[u8; 128]> =
            SmallVec::from_elem(0, kernel.push_constant_bytes() as usize);
        gather(&kernel, bound.len(), scalars, &mut push_constants)?;

        let stream = self.stream(launch.stream)?;
        self.record(&stream, |batch| {
            // Locked until the launch is recorded: whoever unloads or frees meanwhile does so
            // before it, and it fails, or after it, and what it uses is kept.
            let kernels = self.kernels.read();
            if kernels.get(launch.kernel.0).is_none() {
                return Err(unknown_kernel(launch.kernel));
            }
            if bound.is_empty() {
                return batch.launch(
                    &pipeline,
                    kernel.layout(),
                    &push_constants,
                    &[],
                    false,
                    launch.grid,
                );
            }
            let buffers = self.buffers.read();
            let writes = self.descriptors(&kernel, bound, &buffers)?;
            batch.launch(
                &pipeline,
                kernel.layout(),
                &push_constants,
                &writes,
                kernel.pushed(),
                launch.grid,
            )
        })
    }

    /// Splits arguments into those that are bound and those that are pushed.
    fn split<'a>(
        &self,
        kernel: &Kernel,
        args: &'a [LaunchArg<'a>],
    ) -> Result<(&'a [LaunchArg<'a>], &'a [LaunchArg<'a>])> {
        let expected = kernel.bindings().len() + kernel.members().len();
        if args.len() != expected {
            return Err(mismatch(
                kernel,
                ArgumentProblem::Count {
                    expected: expected as u64,
                    given: args.len() as u64,
                },
            ));
        }
        Ok(args.split_at(kernel.bindings().len()))
    }

    /// Describes the bound buffers, from each argument's address to its buffer's end.
    fn descriptors<'a>(
        &self,
        kernel: &Kernel,
        bound: &[LaunchArg<'_>],
        buffers: &'a Table<Arc<DeviceBuffer>>,
    ) -> Result<SmallVec<[DescriptorWrite<'a>; 8]>> {
        (0u32..)
            .zip(bound)
            .zip(kernel.bindings())
            .map(|((index, arg), &binding)| {
                let address = arg
                    .bytes
                    .first_chunk()
                    .map_or(0, |bytes| u64::from_le_bytes(*bytes));
                let range = arg.buffer.ok_or_else(|| {
                    mismatch(kernel, ArgumentProblem::NotABuffer { index, address })
                })?;
                let buffer = buffers
                    .get(range.buffer.0)
                    .ok_or_else(|| memory::unknown(range.buffer))?;
                let align_bytes = self.storage_align_bytes;
                if !range.offset_bytes.is_multiple_of(align_bytes) {
                    return Err(mismatch(
                        kernel,
                        ArgumentProblem::Misaligned {
                            index,
                            address,
                            align_bytes,
                        },
                    ));
                }
                if range.len_bytes > self.max_storage_range_bytes {
                    return Err(GpuError::Unsupported(UnsupportedFault {
                        what: format!(
                            "kernel {:?}: argument {index}: binding {} bytes",
                            kernel.info().name,
                            range.len_bytes
                        ),
                        reason: format!(
                            "{} binds up to {} bytes; kernels that take addresses have no such \
                             limit",
                            self.info.name, self.max_storage_range_bytes
                        ),
                    }));
                }
                Ok(DescriptorWrite {
                    binding,
                    buffer,
                    offset_bytes: range.offset_bytes,
                    len_bytes: range.len_bytes,
                })
            })
            .collect()
    }
}

/// Puts the scalar arguments where the kernel reads them.
fn gather(
    kernel: &Kernel,
    first: usize,
    scalars: &[LaunchArg<'_>],
    push_constants: &mut [u8],
) -> Result<()> {
    for (position, (arg, &(offset, size))) in scalars.iter().zip(kernel.members()).enumerate() {
        let place = push_constants
            .get_mut(offset as usize..)
            .and_then(|rest| rest.get_mut(..size as usize));
        match place {
            Some(place) if place.len() == arg.bytes.len() => place.copy_from_slice(arg.bytes),
            _ => {
                return Err(mismatch(
                    kernel,
                    ArgumentProblem::Size {
                        index: (first + position) as u32,
                        expected: size.into(),
                        given: arg.bytes.len() as u64,
                    },
                ));
            }
        }
    }
    Ok(())
}

fn mismatch(kernel: &Kernel, problem: ArgumentProblem) -> GpuError {
    GpuError::ArgumentMismatch(ArgumentFault {
        kernel: kernel.info().name.clone(),
        problem,
    })
}
