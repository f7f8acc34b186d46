//! Launches of both image styles: what they compute, and what is refused.

use grafos_host_abi::{
    ArgumentProblem, Axis, BufferRange, GpuError, LaunchArg, LaunchDesc, LimitKind, StreamId,
};
use grafos_kernels::reference;

use crate::device::{Arg, Device, Outcome, all, ensure, floats, same, words};

pub(crate) fn both_styles_agree_under_load(device: &Device) -> Outcome {
    const LEN: usize = 1000;
    const ROUNDS: usize = 1500;
    let pointers = device.kernel("vector_add")?;
    let descriptors = device.kernel("vector_add_descriptor")?;
    // Small integers: every sum is exact, so each lost or repeated launch shows.
    let mut sum: Vec<f32> = (0..LEN).map(|index| (index % 7) as f32).collect();
    let step: Vec<f32> = (0..LEN).map(|index| (index % 3) as f32 + 1.0).collect();
    let (a, b) = (
        device.upload(&floats(&sum))?,
        device.upload(&floats(&step))?,
    );
    let n = (LEN as u32).to_le_bytes();
    for round in 0..ROUNDS {
        // Blocks alternate, so pipelines do too.
        let (kernel, block) = match round % 3 {
            0 => (&pointers, 256),
            1 => (&descriptors, 64),
            _ => (&pointers, 32),
        };
        device.launch(
            kernel,
            (LEN as u32).div_ceil(block),
            [block, 1, 1],
            &[
                Arg::Buffer(&a),
                Arg::Buffer(&b),
                Arg::Buffer(&a),
                Arg::Bytes(&n),
            ],
        )?;
        sum = reference::vector_add(&sum, &step);
    }
    same("sums", device.download(&a)?, floats(&sum))
}

pub(crate) fn blocks_are_checked_by_axis(device: &Device) -> Outcome {
    let kernel = device.kernel("increment_x_only")?;
    let buffer = device.upload(&[0; 4096])?;
    let n = 1024u32.to_le_bytes();
    let args = || [Arg::Buffer(&buffer), Arg::Bytes(&n)];
    device.launch(&kernel, 16, [64, 1, 1], &args())?;
    let limit = |block| match device.launch(&kernel, 1, block, &args()) {
        Err(GpuError::LaunchLimits(fault)) => {
            Ok((fault.what, fault.axis, fault.requested, fault.limit))
        }
        other => Err(format!("block {block:?}: {other:?}")),
    };
    same(
        "block 64 2 1",
        limit([64, 2, 1])?,
        (LimitKind::RequiredBlock, Some(Axis::Y), 2, 1),
    )?;
    let limits = device.context.device().limits;
    let over = limits.max_block[0] + 1;
    same(
        "a block over the limit",
        limit([over, 1, 1])?,
        (
            LimitKind::BlockThreads,
            Some(Axis::X),
            over.into(),
            limits.max_block[0].into(),
        ),
    )?;
    same("values", words(&device.download(&buffer)?), vec![1; 1024])
}

pub(crate) fn argument_bytes_are_checked(device: &Device) -> Outcome {
    let limit = device.context.device().limits.max_argument_bytes;
    for (name, size) in [("push_128", 128u32), ("push_136", 136), ("push_264", 264)] {
        match device.kernel(name) {
            Ok(_) => ensure(size <= limit, || format!("{name} was taken, limit {limit}"))?,
            Err(GpuError::LaunchLimits(fault)) => {
                same("what", fault.what, LimitKind::ArgumentBytes)?;
                same("requested", fault.requested, size.into())?;
                same("limit", fault.limit, limit.into())?;
                ensure(size > limit, || {
                    format!("{name} was refused, limit {limit}")
                })?;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

pub(crate) fn bound_ranges_are_checked(device: &Device) -> Outcome {
    let kernel = device.kernel("vector_add_descriptor")?;
    let buffer = device.upload(&[0; 1024])?;
    let n = 1u32.to_le_bytes();
    let launch = |offset: u64, bound: bool| {
        let address = (buffer.address + offset).to_le_bytes();
        let range = BufferRange {
            buffer: buffer.id,
            offset_bytes: offset,
            len_bytes: 1024 - offset,
        };
        let first = LaunchArg {
            bytes: &address,
            buffer: bound.then_some(range),
        };
        let rest = LaunchArg {
            bytes: &buffer.address.to_le_bytes(),
            buffer: Some(all(&buffer)),
        };
        let scalar = LaunchArg {
            bytes: &n,
            buffer: None,
        };
        device.context.launch(&LaunchDesc {
            kernel: kernel.id,
            grid: [1, 1, 1],
            block: [64, 1, 1],
            dynamic_shared_bytes: 0,
            args: &[first, rest, rest, scalar],
            stream: StreamId::DEFAULT,
        })
    };
    launch(256, true)?;
    match launch(2, true) {
        Err(GpuError::ArgumentMismatch(fault)) => match fault.problem {
            ArgumentProblem::Misaligned { index, address, .. } => {
                same("index", index, 0)?;
                same("address", address, buffer.address + 2)?;
            }
            other => return Err(format!("{other:?}").into()),
        },
        other => return Err(format!("a misaligned buffer: {other:?}").into()),
    }
    match launch(0, false) {
        Err(GpuError::ArgumentMismatch(fault)) => same(
            "problem",
            fault.problem,
            ArgumentProblem::NotABuffer {
                index: 0,
                address: buffer.address,
            },
        ),
        other => Err(format!("an argument that is no buffer: {other:?}").into()),
    }
}
