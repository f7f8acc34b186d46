//! Launch dimensions and argument bytes at their limits, one past them, and at zero.

use grafos_kernels::reference;
use grafos_std::FabricError;
use grafos_std::error::{Axis, ErrorKind, LimitFault, LimitKind};
use grafos_std::gpu::{KernelArgs, LaunchConfig};

use crate::target::{
    Must, Target, Unsupported, download, ensure_kind, ensure_same, image, kernel, refused, upload,
};

crate::cases!("limits":
    a_zero_is_refused_on_every_axis,
    one_past_a_grid_limit_is_refused,
    one_past_a_block_limit_is_refused,
    a_block_with_too_many_threads_is_refused,
    a_grid_of_65536_squared_is_refused_or_within_the_limits,
    the_exact_grid_limit_runs,
    the_exact_block_limit_runs,
    a_fixed_block_allows_no_other,
    shared_memory_beyond_the_limit_is_refused,
    argument_bytes_up_to_the_limit_run,
);

/// Launches that are cheap enough to run at a limit have at most this many blocks.
const CHEAP_BLOCKS: u32 = 1 << 17;

fn limit_of(error: FabricError) -> LimitFault {
    match error {
        FabricError::LaunchLimits(fault) => fault,
        other => panic!("{other:?}"),
    }
}

/// Launches `write_index` over nothing and expects a refusal.
fn refusal(target: &Target, grid: [u32; 3], block: [u32; 3]) -> FabricError {
    let (_lease, session) = target.session();
    let module = session.module_load(image("write_index")).must();
    let data = upload(&session, &[5u32; 4]);
    let args = KernelArgs::new().push_buffer(&data).push_u32(4);
    let error = refused(session.launch_with_args(&module, "write_index", grid, block, args));
    session.sync().must();
    assert_eq!(
        download::<u32>(&session, &data),
        [5; 4],
        "a refused launch wrote"
    );
    error
}

fn a_zero_is_refused_on_every_axis(target: &Target) -> Result<(), Unsupported> {
    for (index, axis) in Axis::ALL.into_iter().enumerate() {
        let mut zero = [1; 3];
        zero[index] = 0;
        for (grid, block) in [(zero, [1; 3]), ([1; 3], zero)] {
            let error = refusal(target, grid, block);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("axis {axis} is 0")), "{text}");
            assert!(text.contains("write_index"), "{text}");
        }
    }
    Ok(())
}

fn one_past_a_grid_limit_is_refused(target: &Target) -> Result<(), Unsupported> {
    for (index, axis) in Axis::ALL.into_iter().enumerate() {
        let limit = target.limits().max_grid[index];
        for past in [limit.checked_add(1), Some(u32::MAX)].into_iter().flatten() {
            if past == limit {
                continue;
            }
            let mut grid = [1; 3];
            grid[index] = past;
            let fault = limit_of(refusal(target, grid, [1; 3]));
            assert_eq!(fault.kernel, "write_index");
            assert_eq!(
                (fault.what, fault.axis),
                (LimitKind::GridBlocks, Some(axis))
            );
            assert_eq!((fault.requested, fault.limit), (past.into(), limit.into()));
        }
    }
    Ok(())
}

fn one_past_a_block_limit_is_refused(target: &Target) -> Result<(), Unsupported> {
    for (index, axis) in Axis::ALL.into_iter().enumerate() {
        let limit = target.limits().max_block[index];
        for past in [limit + 1, u32::MAX] {
            let mut block = [1; 3];
            block[index] = past;
            let fault = limit_of(refusal(target, [1; 3], block));
            assert_eq!(
                (fault.what, fault.axis),
                (LimitKind::BlockThreads, Some(axis))
            );
            assert_eq!((fault.requested, fault.limit), (past.into(), limit.into()));
        }
    }
    Ok(())
}

fn a_block_with_too_many_threads_is_refused(target: &Target) -> Result<(), Unsupported> {
    let limits = target.limits();
    // Each axis as full as it may be, until the product is past the limit.
    let block = limits.max_block;
    let threads = block.iter().map(|axis| u64::from(*axis)).product::<u64>();
    assert!(
        threads > u64::from(limits.max_threads_per_block),
        "{block:?}"
    );
    let fault = limit_of(refusal(target, [1; 3], block));
    assert_eq!((fault.what, fault.axis), (LimitKind::ThreadsPerBlock, None));
    assert_eq!(
        (fault.requested, fault.limit),
        (threads, limits.max_threads_per_block.into())
    );
    Ok(())
}

fn a_grid_of_65536_squared_is_refused_or_within_the_limits(
    target: &Target,
) -> Result<(), Unsupported> {
    let limits = target.limits();
    let over = Axis::ALL[..2]
        .iter()
        .zip(limits.max_grid)
        .find(|(_, limit)| *limit < 65_536);
    let Some((axis, limit)) = over else {
        return Unsupported::because("the device runs grids of 65536 x 65536 blocks");
    };
    let fault = limit_of(refusal(target, [65_536, 65_536, 1], [1; 3]));
    assert_eq!(
        (fault.what, fault.axis),
        (LimitKind::GridBlocks, Some(*axis))
    );
    assert_eq!((fault.requested, fault.limit), (65_536, limit.into()));
    Ok(())
}

/// Launches `write_index` and compares what every thread wrote.
fn run_write_index(target: &Target, grid: [u32; 3], block: [u32; 3]) {
    let (_lease, session) = target.session();
    let module = session.module_load(image("write_index")).must();
    let resolved = session.kernel(&module, "write_index").must();
    let expected = reference::write_index(grid, block);
    let data = upload(&session, &vec![0u32; expected.len()]);
    let args = KernelArgs::new()
        .push_buffer(&data)
        .push_u32(expected.len() as u32);
    resolved
        .launch(LaunchConfig::new(grid, block), &args)
        .must();
    let what = format!("grid {grid:?}, block {block:?}");
    ensure_same(&what, &download::<u32>(&session, &data), &expected);
}

fn the_exact_grid_limit_runs(target: &Target) -> Result<(), Unsupported> {
    let mut ran = 0;
    for index in 0..3 {
        let limit = target.limits().max_grid[index];
        if limit <= CHEAP_BLOCKS {
            let mut grid = [1; 3];
            grid[index] = limit;
            run_write_index(target, grid, [1; 3]);
            ran += 1;
        }
    }
    if ran == 0 {
        let limits = target.limits().max_grid;
        return Unsupported::because(format!("grids of {limits:?} blocks take too long"));
    }
    Ok(())
}

fn the_exact_block_limit_runs(target: &Target) -> Result<(), Unsupported> {
    let limits = target.limits();
    for index in 0..3 {
        let mut block = [1; 3];
        block[index] = limits.max_block[index].min(limits.max_threads_per_block);
        run_write_index(target, [2, 1, 1], block);
    }
    Ok(())
}

fn a_fixed_block_allows_no_other(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let module = session.module_load(image("shared_rotate")).must();
    let data = upload(&session, &[7u32; 64]);
    for (block, axis) in [
        ([32, 1, 1], Axis::X),
        ([64, 2, 1], Axis::Y),
        ([64, 1, 2], Axis::Z),
    ] {
        let args = KernelArgs::new().push_buffer(&data);
        let answer = session.launch_with_args(&module, "shared_rotate", [1; 3], block, args);
        let fault = limit_of(refused(answer));
        // A block past what the kernel allows in total is named by its total.
        match fault.what {
            LimitKind::RequiredBlock => {
                assert_eq!(fault.axis, Some(axis), "{fault}");
                assert_eq!(fault.kernel, "shared_rotate");
            }
            LimitKind::ThreadsPerBlock => assert_eq!((fault.requested, fault.limit), (128, 64)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(download::<u32>(&session, &data), [7; 64]);
    Ok(())
}

fn shared_memory_beyond_the_limit_is_refused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, resolved) = target.kernel(&session, "fill")?;
    let data = upload(&session, &[7u32; 4]);
    let args = KernelArgs::new().push_buffer(&data).push_u32(1).push_u32(4);
    let most = resolved.info().max_dynamic_shared_bytes;
    if !target.device.capabilities.dynamic_shared_memory {
        assert_eq!(most, 0);
    }
    for past in [most + 1, u32::MAX] {
        let config = LaunchConfig::new([1; 3], [4, 1, 1]).dynamic_shared_bytes(past);
        let fault = limit_of(refused(resolved.launch(config, &args)));
        assert_eq!(fault.what, LimitKind::DynamicSharedMemory);
        assert_eq!((fault.requested, fault.limit), (past.into(), most.into()));
    }
    assert_eq!(download::<u32>(&session, &data), [7; 4]);
    let config = LaunchConfig::new([1; 3], [4, 1, 1]).dynamic_shared_bytes(most);
    resolved.launch(config, &args).must();
    assert_eq!(download::<u32>(&session, &data), [1; 4]);
    Ok(())
}

fn argument_bytes_up_to_the_limit_run(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let limit = target.limits().max_argument_bytes;
    assert!(
        limit >= 128,
        "Vulkan promises 128 bytes, and every other API more"
    );
    for name in ["push_128", "push_136", "push_264"] {
        let bytes = kernel(name).push_constant_bytes();
        let loaded = session.module_load(image(name)).and_then(|module| {
            let resolved = session.kernel(&module, name)?;
            Ok((module, resolved))
        });
        if bytes > limit {
            let fault = limit_of(refused(loaded));
            assert_eq!(fault.what, LimitKind::ArgumentBytes, "{fault}");
            assert_eq!(
                (fault.requested, fault.limit),
                (bytes.into(), limit.into()),
                "{fault}"
            );
            continue;
        }
        let (_module, resolved) = loaded.must();
        let out = upload(&session, &[0u32]);
        let words: Vec<u32> = (0..(bytes - 8) / 4)
            .map(|word| 0x0101_0101 * word + 1)
            .collect();
        let args = words
            .iter()
            .fold(KernelArgs::new().push_buffer(&out), |args, word| {
                args.push_u32(*word)
            });
        resolved
            .launch(LaunchConfig::new([1; 3], [1; 3]), &args)
            .must();
        assert_eq!(
            download::<u32>(&session, &out),
            [reference::push_sum(&words)],
            "{name}"
        );
        let more = args.push_u32(1);
        let answer = resolved.launch(LaunchConfig::new([1; 3], [1; 3]), &more);
        ensure_kind("one word more", answer, ErrorKind::ArgumentMismatch);
    }
    Ok(())
}
