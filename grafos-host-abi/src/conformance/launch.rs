//! Grids, blocks, shared memory and long rows of launches.

use std::prelude::v1::*;
use std::{format, vec};

use super::check::{Checked, Stop, ensure_eq, ensure_same};
use super::gpu::{Arg, Gpu, Kernel};
use super::reference::{self, Numbers};
use super::runner::Suite;
use crate::StreamId;

cases!("launch":
    grids_cover_three_axes,
    grids_reach_far_on_each_axis,
    blocks_have_as_many_threads_as_allowed,
    blocks_reach_their_limit_on_each_axis,
    blocks_alternate_from_launch_to_launch,
    ten_thousand_launches_run_in_order,
    kernels_of_many_modules_alternate,
    dynamic_shared_memory_is_there,
    addresses_within_a_buffer_are_arguments,
    bound_buffers_begin_where_told,
    one_buffer_can_be_several_arguments,
);

/// Launches `write_index` and compares every element, and some behind them.
fn write_index(gpu: &Gpu<'_>, kernel: &Kernel, grid: [u32; 3], block: [u32; 3]) -> Checked {
    let mut expected = reference::write_index(grid, block);
    let threads = expected.len();
    expected.resize(threads + 5, 0x0F0F_0F0F);
    let target = gpu.upload_words(&vec![0x0F0F_0F0F; threads + 5])?;
    let args = [Arg::Buffer(target), Arg::U32(threads as u32)];
    gpu.launch_default(kernel, grid, block, &args)?;
    ensure_same(
        format_args!("grid {grid:?}, block {block:?}"),
        &gpu.download_words(target)?,
        &expected,
    )?;
    gpu.free(target.id)?;
    Ok(())
}

fn grids_cover_three_axes(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("write_index")?;
    let shapes = [
        ([1, 1, 1], [1, 1, 1]),
        ([5, 1, 1], [3, 1, 1]),
        ([1, 5, 1], [1, 3, 1]),
        ([1, 1, 5], [1, 1, 3]),
        ([2, 3, 4], [4, 2, 3]),
        ([4, 3, 2], [1, 1, 1]),
        ([3, 3, 3], [4, 4, 4]),
        ([1, 2, 3], [5, 7, 2]),
        ([7, 2, 1], [1, 8, 8]),
        ([100, 3, 1], [33, 1, 1]),
    ];
    for (grid, block) in shapes {
        let threads: u32 = block.iter().product();
        if threads <= kernel.info.max_threads_per_block {
            write_index(&gpu, &kernel, grid, block)?;
        }
    }
    Ok(())
}

fn grids_reach_far_on_each_axis(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("write_index")?;
    for axis in 0..3 {
        let mut grid = [1; 3];
        // The limit itself where it is cheap; 65,535 is what every device has on axis x.
        grid[axis] = suite.info.limits.max_grid[axis].min(65_535);
        write_index(&gpu, &kernel, grid, [1, 1, 1])?;
    }
    Ok(())
}

fn blocks_have_as_many_threads_as_allowed(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("write_index")?;
    let most = kernel.info.max_threads_per_block;
    let axes = suite.info.limits.max_block;
    // As many threads as can be had, with x first, with z first, and as a cube.
    let x = most.min(axes[0]);
    let y = (most / x).min(axes[1]);
    write_index(&gpu, &kernel, [3, 2, 1], [x, y, 1])?;
    let z = most.min(axes[2]);
    let y = (most / z).min(axes[1]);
    write_index(&gpu, &kernel, [2, 1, 3], [1, y, z])?;
    let side = (1..).take_while(|side| side * side * side <= most).last();
    let side = side.unwrap_or(1).min(axes[2]).min(axes[1]).min(axes[0]);
    write_index(&gpu, &kernel, [2, 2, 2], [side; 3])
}

fn blocks_reach_their_limit_on_each_axis(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("write_index")?;
    for axis in 0..3 {
        let mut block = [1; 3];
        block[axis] = suite.info.limits.max_block[axis].min(kernel.info.max_threads_per_block);
        write_index(&gpu, &kernel, [2, 2, 2], block)?;
    }
    Ok(())
}

fn blocks_alternate_from_launch_to_launch(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("increment")?;
    let n = 1000;
    let data = gpu.upload_words(&vec![0; n])?;
    let args = [Arg::Buffer(data), Arg::U32(n as u32)];
    for round in 0..60 {
        let wanted = [32, 1, 128, 33, 64][round % 5];
        let block_len = gpu.block_len(&kernel, wanted);
        gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, n as u32, &args)?;
    }
    ensure_same("words", &gpu.download_words(data)?, &vec![60; n])
}

fn ten_thousand_launches_run_in_order(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("increment")?;
    let data = gpu.upload_words(&[0; 32])?;
    let args = [Arg::Buffer(data), Arg::U32(32)];
    let block = [gpu.block_len(&kernel, 32), 1, 1];
    // The addition is not atomic: launches that overlap lose counts.
    for _ in 0..10_000 {
        gpu.launch_default(&kernel, [1, 1, 1], block, &args)?;
    }
    ensure_same("words", &gpu.download_words(data)?, &[10_000; 32])
}

fn kernels_of_many_modules_alternate(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let increments = (0..4)
        .map(|_| gpu.load("increment"))
        .collect::<Checked<Vec<_>>>()?;
    let fill = gpu.load("fill")?;
    let n = 100u32;
    let data = gpu.upload_words(&vec![0; n as usize])?;
    let mut expected = 0;
    for round in 0..200u32 {
        if round % 23 == 0 {
            let args = [Arg::Buffer(data), Arg::U32(round * 1000), Arg::U32(n)];
            let block_len = gpu.block_len(&fill, 64);
            gpu.launch_linear(StreamId::DEFAULT, &fill, block_len, n, &args)?;
            expected = round * 1000;
        }
        let kernel = &increments[round as usize % increments.len()];
        let args = [Arg::Buffer(data), Arg::U32(n)];
        let block_len = gpu.block_len(kernel, 64);
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        expected += 1;
    }
    let words = gpu.download_words(data)?;
    ensure_same("words", &words, &vec![expected; n as usize])
}

fn dynamic_shared_memory_is_there(suite: &Suite) -> Checked {
    let able = suite.info.capabilities.dynamic_shared_memory;
    suite.need(able, "dynamic shared memory")?;
    let gpu = suite.open()?;
    let kernel = gpu.load("dynamic_shared_reverse")?;
    for wanted in [1u32, 2, 33, 64, 256] {
        let block_len = gpu.block_len(&kernel, wanted);
        let bytes = block_len * 4;
        let most = kernel.info.max_dynamic_shared_bytes;
        if bytes > most {
            return Err(Stop::failed(format!(
                "the kernel can have {most} bytes of dynamic shared memory, {bytes} are too many"
            )));
        }
        let words = Numbers::new(400).words(block_len as usize * 3);
        let data = gpu.upload_words(&words)?;
        gpu.launch_with_shared(
            StreamId::DEFAULT,
            &kernel,
            [3, 1, 1],
            [block_len, 1, 1],
            bytes,
            &[Arg::Buffer(data)],
        )?;
        let mut expected = words;
        for block in expected.chunks_exact_mut(block_len as usize) {
            block.reverse();
        }
        ensure_same(
            format_args!("3 blocks of {block_len}"),
            &gpu.download_words(data)?,
            &expected,
        )?;
    }
    Ok(())
}

fn addresses_within_a_buffer_are_arguments(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    let target = gpu.upload_words(&[7; 100])?;
    let mut expected = vec![7; 100];
    for (first, n) in [(0usize, 3usize), (10, 1), (33, 20), (99, 1)] {
        let value = 1000 + first as u32;
        let args = [
            Arg::Within(target, first as u64 * 4),
            Arg::U32(value),
            Arg::U32(n as u32),
        ];
        let block_len = gpu.block_len(&kernel, 32);
        gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, n as u32, &args)?;
        expected[first..first + n].fill(value);
    }
    ensure_same("words", &gpu.download_words(target)?, &expected)
}

fn bound_buffers_begin_where_told(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("scale_descriptor")?;
    let source: Vec<f32> = (0..512).map(|i| i as f32).collect();
    let source = gpu.upload_floats(&source)?;
    let target = gpu.upload_floats(&[-1.0; 512])?;
    // 256 bytes is a multiple of what any device needs of a bound buffer's offset.
    let args = [
        Arg::Within(source, 256),
        Arg::Within(target, 1024),
        Arg::F32(2.0),
        Arg::U32(70),
    ];
    gpu.launch_linear(StreamId::DEFAULT, &kernel, 64, 70, &args)?;
    let mut expected = [-1.0f32; 512];
    for (index, value) in expected[256..326].iter_mut().enumerate() {
        *value = 2.0 * (64 + index) as f32;
    }
    let found: Vec<f32> = gpu
        .download_words(target)?
        .into_iter()
        .map(f32::from_bits)
        .collect();
    ensure_same("floats", &found, &expected)
}

fn one_buffer_can_be_several_arguments(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("vector_add")?;
    let data = gpu.upload_floats(&[1.5; 40])?;
    let args = [
        Arg::Buffer(data),
        Arg::Buffer(data),
        Arg::Buffer(data),
        Arg::U32(40),
    ];
    let block_len = gpu.block_len(&kernel, 32);
    for doublings in 1..=5 {
        gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, 40, &args)?;
        let words = gpu.download_words(data)?;
        let expected = 1.5 * f32::from(1u8 << doublings);
        ensure_eq(
            format_args!("after {doublings} doublings"),
            words,
            vec![expected.to_bits(); 40],
        )?;
    }
    Ok(())
}
