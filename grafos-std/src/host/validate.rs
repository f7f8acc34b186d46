//! The checks that every launch and every memory call passes, once, before a backend sees it.

use alloc::format;
use alloc::string::String;

use grafos_host_abi::{
    ArgumentFault, ArgumentProblem, Axis, BoundsFault, BufferRange, DeviceLimits, KernelInfo,
    KernelParam, LaunchArg, LimitFault, LimitKind, ParamKind,
};
use smallvec::SmallVec;

use crate::error::{FabricError, Result};

/// The arguments of a launch, in the order of the kernel's parameters. Up to 16 need no
/// allocation.
pub(super) type LaunchArgs<'a> = SmallVec<[LaunchArg<'a>; 16]>;

/// Checks that `len_bytes` bytes at `offset_bytes` lie in a buffer of `size_bytes` bytes.
pub(super) fn check_bounds(offset_bytes: u64, len_bytes: u64, size_bytes: u64) -> Result<()> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(FabricError::OutOfBounds(BoundsFault {
            offset_bytes,
            len_bytes,
            size_bytes,
        })),
    }
}

/// Checks grid, block and shared memory against the device's and the kernel's limits.
pub(super) fn check_dimensions(
    kernel: &KernelInfo,
    limits: &DeviceLimits,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u32,
) -> Result<()> {
    let exceeds = |what, axis, requested: u64, limit: u64| {
        FabricError::LaunchLimits(LimitFault {
            kernel: kernel.name.clone(),
            what,
            axis,
            requested,
            limit,
        })
    };
    for (index, axis) in Axis::ALL.into_iter().enumerate() {
        if grid[index] == 0 || block[index] == 0 {
            return Err(FabricError::InvalidArgument {
                reason: format!(
                    "kernel {:?}: grid {grid:?} and block {block:?} must be at least 1 on every \
                     axis, axis {axis} is 0",
                    kernel.name
                ),
            });
        }
        if grid[index] > limits.max_grid[index] {
            let limit = limits.max_grid[index];
            return Err(exceeds(
                LimitKind::GridBlocks,
                Some(axis),
                grid[index].into(),
                limit.into(),
            ));
        }
        if block[index] > limits.max_block[index] {
            let limit = limits.max_block[index];
            return Err(exceeds(
                LimitKind::BlockThreads,
                Some(axis),
                block[index].into(),
                limit.into(),
            ));
        }
    }
    // Three factors of 32 bits fit 96 bits.
    let threads = block.iter().map(|axis| u128::from(*axis)).product::<u128>();
    let thread_limit = kernel
        .max_threads_per_block
        .min(limits.max_threads_per_block);
    if threads > u128::from(thread_limit) {
        let requested = u64::try_from(threads).unwrap_or(u64::MAX);
        return Err(exceeds(
            LimitKind::ThreadsPerBlock,
            None,
            requested,
            thread_limit.into(),
        ));
    }
    if let Some(required) = kernel.required_block {
        for (index, axis) in Axis::ALL.into_iter().enumerate() {
            if block[index] != required[index] {
                return Err(exceeds(
                    LimitKind::RequiredBlock,
                    Some(axis),
                    block[index].into(),
                    required[index].into(),
                ));
            }
        }
    }
    if dynamic_shared_bytes > kernel.max_dynamic_shared_bytes {
        return Err(exceeds(
            LimitKind::DynamicSharedMemory,
            None,
            dynamic_shared_bytes.into(),
            kernel.max_dynamic_shared_bytes.into(),
        ));
    }
    let shared = u64::from(kernel.static_shared_bytes) + u64::from(dynamic_shared_bytes);
    if shared > u64::from(limits.max_shared_memory_bytes) {
        let limit = limits.max_shared_memory_bytes;
        return Err(exceeds(LimitKind::SharedMemory, None, shared, limit.into()));
    }
    Ok(())
}

/// Splits packed arguments by their sizes, checks them against the kernel's parameters and puts
/// them in the parameters' order.
///
/// `find_buffer` looks an address up among the session's live buffers and answers the range from
/// the address to the buffer's end.
pub(super) fn match_arguments<'a>(
    kernel: &KernelInfo,
    limits: &DeviceLimits,
    bytes: &'a [u8],
    sizes: &[u32],
    find_buffer: impl Fn(u64) -> Option<BufferRange>,
) -> Result<LaunchArgs<'a>> {
    let mismatch = |problem| mismatch(kernel, problem);
    let total = sizes.iter().map(|size| u64::from(*size)).sum::<u64>();
    if total != bytes.len() as u64 {
        let given = bytes.len() as u64;
        return Err(mismatch(ArgumentProblem::TotalBytes {
            expected: total,
            given,
        }));
    }
    let mut args = LaunchArgs::new();
    let mut rest = bytes;
    for size in sizes {
        // The sizes add up to the bytes, so a split never runs out of them.
        let (arg, tail) = rest.split_at(*size as usize);
        args.push(LaunchArg {
            bytes: arg,
            buffer: None,
        });
        rest = tail;
    }
    let Some(params) = &kernel.params else {
        if total > u64::from(limits.max_argument_bytes) {
            return Err(FabricError::LaunchLimits(LimitFault {
                kernel: kernel.name.clone(),
                what: LimitKind::ArgumentBytes,
                axis: None,
                requested: total,
                limit: limits.max_argument_bytes.into(),
            }));
        }
        return Ok(args);
    };
    if args.len() != params.len() {
        return Err(mismatch(ArgumentProblem::Count {
            expected: params.len() as u64,
            given: args.len() as u64,
        }));
    }
    if params
        .iter()
        .any(|param| param.kind == ParamKind::BoundBuffer)
    {
        return bind_buffers(kernel, params, &args, find_buffer);
    }
    for (index, (arg, param)) in args.iter().zip(params).enumerate() {
        check_size(kernel, index, param, arg)?;
    }
    Ok(args)
}

/// Orders the arguments of a kernel that has buffers bound to slots.
///
/// The parameters are the buffers in slot order, then the values in their order. The caller's
/// arguments may interleave them: an 8-byte argument that is the address of a live buffer fills
/// the next slot, every other one is the next value.
fn bind_buffers<'a>(
    kernel: &KernelInfo,
    params: &[KernelParam],
    args: &LaunchArgs<'a>,
    find_buffer: impl Fn(u64) -> Option<BufferRange>,
) -> Result<LaunchArgs<'a>> {
    let mut slots = params
        .iter()
        .filter(|param| param.kind == ParamKind::BoundBuffer)
        .count();
    let mut values = params
        .iter()
        .filter(|param| param.kind != ParamKind::BoundBuffer);
    let mut buffers = LaunchArgs::new();
    let mut scalars = LaunchArgs::new();
    for (index, arg) in args.iter().enumerate() {
        let address = <[u8; 8]>::try_from(arg.bytes).ok().map(u64::from_le_bytes);
        if slots > 0
            && let Some(range) = address.and_then(&find_buffer)
        {
            if range.len_bytes == 0 {
                return Err(FabricError::InvalidArgument {
                    reason: format!(
                        "kernel {:?}: argument {index} is a buffer with no bytes to bind",
                        kernel.name
                    ),
                });
            }
            buffers.push(LaunchArg {
                bytes: arg.bytes,
                buffer: Some(range),
            });
            slots -= 1;
            continue;
        }
        let fits = values
            .clone()
            .next()
            .is_some_and(|param| u64::from(param.size_bytes) == arg.bytes.len() as u64);
        match (address, values.next()) {
            (_, Some(_)) if fits => scalars.push(*arg),
            (Some(address), _) => {
                let index = index as u32;
                return Err(mismatch(
                    kernel,
                    ArgumentProblem::NotABuffer { index, address },
                ));
            }
            (None, Some(param)) => check_size(kernel, index, param, arg)?,
            (None, None) => {
                let given = arg.bytes.len() as u64;
                let index = index as u32;
                return Err(mismatch(
                    kernel,
                    ArgumentProblem::Size {
                        index,
                        expected: 8,
                        given,
                    },
                ));
            }
        }
    }
    buffers.append(&mut scalars);
    Ok(buffers)
}

fn check_size(
    kernel: &KernelInfo,
    index: usize,
    param: &KernelParam,
    arg: &LaunchArg<'_>,
) -> Result<()> {
    let given = arg.bytes.len() as u64;
    let expected = u64::from(param.size_bytes);
    if given == expected {
        return Ok(());
    }
    Err(mismatch(
        kernel,
        ArgumentProblem::Size {
            index: index as u32,
            expected,
            given,
        },
    ))
}

fn mismatch(kernel: &KernelInfo, problem: ArgumentProblem) -> FabricError {
    FabricError::ArgumentMismatch(ArgumentFault {
        kernel: kernel.name.clone(),
        problem,
    })
}

/// Checks a kernel's name before a module is asked for it.
///
/// Driver entry points take C strings, so a NUL would cut a name short.
pub(super) fn check_kernel_name(name: &str) -> Result<()> {
    let problem = if name.is_empty() {
        "is empty"
    } else if name.contains('\0') {
        "contains a NUL"
    } else {
        return Ok(());
    };
    Err(FabricError::InvalidArgument {
        reason: String::from("kernel name ") + &format!("{name:?} {problem}"),
    })
}
