//! The checks that every launch and every memory call passes, once, before a backend sees it.

use alloc::format;

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
/// them, in the parameters' order, into `args`, which is empty: it is large, and answering it would
/// copy it.
///
/// `find_buffer` looks an address up among the session's live buffers and answers the range from
/// the address to the buffer's end.
pub(super) fn match_arguments<'a>(
    kernel: &KernelInfo,
    limits: &DeviceLimits,
    bytes: &'a [u8],
    sizes: &[u32],
    find_buffer: impl Fn(u64) -> Option<BufferRange>,
    args: &mut LaunchArgs<'a>,
) -> Result<()> {
    let mismatch = |problem| mismatch(kernel, problem);
    let total = sizes.iter().map(|size| u64::from(*size)).sum::<u64>();
    if total != bytes.len() as u64 {
        let given = bytes.len() as u64;
        return Err(mismatch(ArgumentProblem::TotalBytes {
            expected: total,
            given,
        }));
    }
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
        return Ok(());
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
        *args = bind_buffers(kernel, params, args, find_buffer)?;
        return Ok(());
    }
    for (index, (arg, param)) in args.iter().zip(params).enumerate() {
        check_size(kernel, index, param, arg)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use grafos_host_abi::{BufferId, KernelId};

    use super::*;

    const LIMITS: DeviceLimits = DeviceLimits {
        max_grid: [1000, 100, 10],
        max_block: [64, 32, 16],
        max_threads_per_block: 128,
        max_shared_memory_bytes: 1024,
        max_argument_bytes: 32,
        max_allocation_bytes: 1 << 20,
    };

    fn kernel(params: Option<&[(ParamKind, u32)]>) -> KernelInfo {
        let mut info = KernelInfo::new(KernelId(1), "k", 96);
        info.params = params.map(|params| {
            let param = |&(kind, size_bytes): &(ParamKind, u32)| KernelParam {
                name: None,
                kind,
                size_bytes,
                align_bytes: size_bytes,
                offset_bytes: 0,
            };
            params.iter().map(param).collect()
        });
        info
    }

    fn limit_fault(answer: Result<()>) -> (LimitKind, Option<Axis>, u64, u64) {
        match answer {
            Err(FabricError::LaunchLimits(fault)) => {
                (fault.what, fault.axis, fault.requested, fault.limit)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bounds_do_not_wrap() {
        assert_eq!(check_bounds(0, 0, 0), Ok(()));
        assert_eq!(check_bounds(4, 4, 8), Ok(()));
        assert_eq!(check_bounds(8, 0, 8), Ok(()));
        for (offset_bytes, len_bytes, size_bytes) in [
            (1, 0, 0),
            (5, 4, 8),
            (9, 0, 8),
            (u64::MAX - 3, 8, 100),
            (u64::MAX, u64::MAX, u64::MAX),
        ] {
            assert_eq!(
                check_bounds(offset_bytes, len_bytes, size_bytes),
                Err(FabricError::OutOfBounds(BoundsFault {
                    offset_bytes,
                    len_bytes,
                    size_bytes
                }))
            );
        }
    }

    #[test]
    fn each_axis_has_its_own_limit() {
        let kernel = kernel(None);
        let check = |grid, block| check_dimensions(&kernel, &LIMITS, grid, block, 0);
        assert_eq!(check([1000, 100, 10], [64, 1, 1]), Ok(()));
        assert_eq!(check([1, 1, 1], [6, 1, 16]), Ok(()));
        for (index, axis) in Axis::ALL.into_iter().enumerate() {
            let mut grid = [1; 3];
            grid[index] = LIMITS.max_grid[index] + 1;
            let limit = u64::from(LIMITS.max_grid[index]);
            let expected = (LimitKind::GridBlocks, Some(axis), limit + 1, limit);
            assert_eq!(limit_fault(check(grid, [1; 3])), expected);

            let mut block = [1; 3];
            block[index] = LIMITS.max_block[index] + 1;
            let limit = u64::from(LIMITS.max_block[index]);
            let expected = (LimitKind::BlockThreads, Some(axis), limit + 1, limit);
            assert_eq!(limit_fault(check([1; 3], block)), expected);

            let mut zero = [1; 3];
            zero[index] = 0;
            for answer in [check(zero, [1; 3]), check([1; 3], zero)] {
                assert!(
                    matches!(answer, Err(FabricError::InvalidArgument { .. })),
                    "{answer:?}"
                );
            }
        }
        // The kernel's own limit of 96 threads is below the device's 128.
        let product = (LimitKind::ThreadsPerBlock, None, 128, 96);
        assert_eq!(limit_fault(check([1; 3], [64, 2, 1])), product);
    }

    #[test]
    fn a_required_block_and_shared_memory_are_checked() {
        let mut kernel = kernel(None);
        kernel.required_block = Some([32, 2, 1]);
        kernel.static_shared_bytes = 600;
        kernel.max_dynamic_shared_bytes = 500;
        let check = |block, shared| check_dimensions(&kernel, &LIMITS, [1; 3], block, shared);
        assert_eq!(check([32, 2, 1], 424), Ok(()));
        let required = (LimitKind::RequiredBlock, Some(Axis::Y), 1, 2);
        assert_eq!(limit_fault(check([32, 1, 1], 0)), required);
        let dynamic = (LimitKind::DynamicSharedMemory, None, 501, 500);
        assert_eq!(limit_fault(check([32, 2, 1], 501)), dynamic);
        let total = (LimitKind::SharedMemory, None, 1025, 1024);
        assert_eq!(limit_fault(check([32, 2, 1], 425)), total);
    }

    fn problem(
        params: Option<&[(ParamKind, u32)]>,
        bytes: &[u8],
        sizes: &[u32],
    ) -> ArgumentProblem {
        match matched(&kernel(params), bytes, sizes) {
            Err(FabricError::ArgumentMismatch(fault)) => fault.problem,
            other => panic!("{other:?}"),
        }
    }

    fn matched<'a>(kernel: &KernelInfo, bytes: &'a [u8], sizes: &[u32]) -> Result<LaunchArgs<'a>> {
        let mut args = LaunchArgs::new();
        match_arguments(kernel, &LIMITS, bytes, sizes, find, &mut args).map(|()| args)
    }

    /// Live buffers of 16 bytes at 0x100 and 0x200, and one without bytes at 0x300.
    fn find(address: u64) -> Option<BufferRange> {
        let range = |offset_bytes, len_bytes| BufferRange {
            buffer: BufferId(address & !0xFF),
            offset_bytes,
            len_bytes,
        };
        match address {
            0x100..0x110 | 0x200..0x210 => Some(range(address & 0xF, 16 - (address & 0xF))),
            0x300 => Some(range(0, 0)),
            _ => None,
        }
    }

    fn address(value: u64) -> Vec<u8> {
        value.to_le_bytes().to_vec()
    }

    #[test]
    fn count_size_and_total_must_match() {
        use ParamKind::{Address, Value};
        let params: &[(ParamKind, u32)] = &[(Address, 8), (Value, 4)];
        let count = ArgumentProblem::Count {
            expected: 2,
            given: 1,
        };
        assert_eq!(problem(Some(params), &[0; 8], &[8]), count);
        let size = ArgumentProblem::Size {
            index: 1,
            expected: 4,
            given: 2,
        };
        assert_eq!(problem(Some(params), &[0; 10], &[8, 2]), size);
        let total = ArgumentProblem::TotalBytes {
            expected: 12,
            given: 11,
        };
        assert_eq!(problem(Some(params), &[0; 11], &[8, 4]), total);
        let total = ArgumentProblem::TotalBytes {
            expected: 2 * u64::from(u32::MAX),
            given: 0,
        };
        assert_eq!(problem(None, &[], &[u32::MAX, u32::MAX]), total);
    }

    #[test]
    fn unknown_signatures_take_anything_up_to_the_limit() {
        let kernel = kernel(None);
        let bytes = [7u8; 33];
        let args = matched(&kernel, &bytes[..32], &[1, 31]).unwrap();
        assert_eq!(
            args.iter().map(|arg| arg.bytes.len()).collect::<Vec<_>>(),
            [1, 31]
        );
        let over = matched(&kernel, &bytes, &[33]).map(drop);
        assert_eq!(limit_fault(over), (LimitKind::ArgumentBytes, None, 33, 32));
    }

    #[test]
    fn bound_buffers_and_values_may_interleave() {
        use ParamKind::{BoundBuffer, Value};
        let params: &[(ParamKind, u32)] =
            &[(BoundBuffer, 8), (BoundBuffer, 8), (Value, 4), (Value, 8)];
        let kernel = kernel(Some(params));
        // value, buffer, buffer at an offset, a 64-bit value once the slots are full
        let mut bytes = vec![1, 2, 3, 4];
        bytes.extend(address(0x100));
        bytes.extend(address(0x204));
        bytes.extend(address(0x100));
        let args = matched(&kernel, &bytes, &[4, 8, 8, 8]).unwrap();
        let buffers = args.iter().map(|arg| arg.buffer).collect::<Vec<_>>();
        assert_eq!(buffers, [find(0x100), find(0x204), None, None]);
        assert_eq!(args[2].bytes, [1, 2, 3, 4]);
        assert_eq!(args[3].bytes, address(0x100));
    }

    #[test]
    fn what_is_bound_must_be_a_live_buffer_with_bytes() {
        use ParamKind::{BoundBuffer, Value};
        let params: &[(ParamKind, u32)] = &[(BoundBuffer, 8), (Value, 4)];
        let mut bytes = address(0x500);
        bytes.extend([0; 4]);
        let not_a_buffer = ArgumentProblem::NotABuffer {
            index: 0,
            address: 0x500,
        };
        assert_eq!(problem(Some(params), &bytes, &[8, 4]), not_a_buffer);
        let scalar = ArgumentProblem::Size {
            index: 1,
            expected: 8,
            given: 4,
        };
        assert_eq!(problem(Some(params), &[0; 8], &[4, 4]), scalar);
        let mut empty = address(0x300);
        empty.extend([0; 4]);
        let answer = matched(&kernel(Some(params)), &empty, &[8, 4]);
        assert!(
            matches!(answer, Err(FabricError::InvalidArgument { .. })),
            "{answer:?}"
        );
    }
}
