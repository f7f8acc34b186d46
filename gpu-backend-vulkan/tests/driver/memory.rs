//! Device memory: when it comes back, and how it is refused.

use grafos_host_abi::GpuError;
use grafos_kernels::reference;

use crate::device::{Arg, Device, Outcome, ensure, floats, same};
use crate::support::interposer;

pub(crate) fn buffers_are_freed_under_work(device: &Device) -> Outcome {
    const LEN: usize = 4096;
    let kernel = device.kernel("saxpy")?;
    let alpha = 2.0f32.to_le_bytes();
    let n = (LEN as u32).to_le_bytes();
    let y = vec![1.0f32; LEN];
    let result = device.upload(&floats(&y))?;
    let mut expected = y;
    for round in 0..300 {
        let x = vec![round as f32; LEN];
        // Freed at once: the next round's buffer must not take its place too early.
        let source = device.upload(&floats(&x))?;
        device.launch(
            &kernel,
            16,
            [256, 1, 1],
            &[
                Arg::Bytes(&alpha),
                Arg::Buffer(&source),
                Arg::Buffer(&result),
                Arg::Bytes(&n),
            ],
        )?;
        device.context.free(source.id)?;
        expected = reference::saxpy(2.0, &x, &expected);
    }
    same("y", device.download(&result)?, floats(&expected))?;
    device.context.sync(None)?;
    let info = device.context.memory_info()?;
    same("live buffers", info.live_buffers, 1)?;
    same("live bytes", info.live_bytes, LEN as u64 * 4)
}

pub(crate) fn memory_comes_back(device: &Device) -> Outcome {
    let context = &*device.context;
    let mut buffers = Vec::new();
    for size in [1u64, 4096, 100_000, 20 << 20] {
        for _ in 0..10 {
            buffers.push(device.buffer(size)?);
        }
    }
    let info = context.memory_info()?;
    same("live buffers", info.live_buffers, 40)?;
    let live = 10 * (1 + 4096 + 100_000 + (20 << 20));
    same("live bytes", info.live_bytes, live)?;
    ensure(info.reserved_bytes >= live, || format!("{info:?}"))?;
    for buffer in buffers {
        context.free(buffer.id)?;
    }
    let before = context.memory_info()?.reserved_bytes;
    let trimmed = context.trim()?;
    let info = context.memory_info()?;
    same("reserved after trim", info.reserved_bytes, 0)?;
    same("trimmed", trimmed, before)?;
    same("live bytes after free", info.live_bytes, 0)?;
    // Works on.
    let again = device.upload(&[7; 64])?;
    same("bytes", device.download(&again)?, vec![7; 64])
}

pub(crate) fn a_refused_allocation_leaves_counts_right(device: &Device) -> Outcome {
    let kept = device.upload(&[3; 100])?;
    let before = device.context.memory_info()?;
    // Above the block size, so that the driver is asked. A second try must be refused too.
    interposer::fail_allocations(4);
    let refused = device.buffer(300 << 20);
    interposer::fail_allocations(0);
    match refused {
        Err(GpuError::OutOfMemory(fault)) => {
            same("requested", fault.requested, 300 << 20)?;
            same("code", fault.cause.map(|cause| cause.code), Some(-2))?;
        }
        other => return Err(format!("{other:?}").into()),
    }
    let after = device.context.memory_info()?;
    same("memory", after, before)?;
    same("bytes", device.download(&kept)?, vec![3; 100])?;
    let large = device.buffer(1 << 20)?;
    device.context.free(large.id)?;
    Ok(())
}

pub(crate) fn an_impossible_size_is_refused_at_once(device: &Device) -> Outcome {
    let most = device.context.device().limits.max_allocation_bytes;
    let before = device.context.memory_info()?;
    for size in [most + 1, 1 << 40, u64::MAX - 3, u64::MAX] {
        match device.buffer(size) {
            Err(GpuError::OutOfMemory(fault)) => same("requested", fault.requested, size)?,
            other => return Err(format!("{size} bytes: {other:?}").into()),
        }
    }
    same("memory", device.context.memory_info()?, before)
}
