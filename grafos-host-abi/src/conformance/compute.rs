//! Each kernel computes the right values, for lengths around multiples of the block.

use std::prelude::v1::*;
use std::{format, vec};

use super::check::{Checked, Stop, ensure_same};
use super::gpu::{Arg, Buffer, Gpu, Kernel, bits_of, words_of};
use super::module::load_if_able;
use super::reference::{self, Numbers};
use super::runner::Suite;
use crate::StreamId;

cases!("compute":
    vector_add,
    vector_add_local_size_id,
    vector_add_descriptor,
    scale_descriptor,
    saxpy,
    fill,
    stream_copy,
    stream_mul,
    stream_add,
    stream_triad,
    triad_f64,
    increment,
    increment_x_only,
    stream_dot,
    reduce_sum,
    histogram,
    matmul_tiled,
    stencil_5point,
    shared_rotate,
    long_running,
);

/// Elements behind each result that must stay as they are.
const GUARD: usize = 9;
const GUARD_WORD: u32 = 0x7E57_BEEF;

/// Lengths around multiples of a block.
fn lengths(block_len: u32) -> Vec<u32> {
    let mut lengths = vec![1];
    for blocks in [1, 3, 20] {
        let even = blocks * block_len;
        lengths.extend([even - 1, even, even + 1]);
    }
    lengths.retain(|len| *len > 0);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Runs `look` with the kernel and several blocks and lengths.
fn each_shape(
    suite: &Suite,
    name: &str,
    look: impl Fn(&Gpu<'_>, &Kernel, u32, u32) -> Checked,
) -> Checked {
    let gpu = suite.open()?;
    let Some(kernel) = load_if_able(&gpu, name)? else {
        return Err(Stop::unsupported(format!(
            "the device lacks what {name} needs"
        )));
    };
    let mut block_lens: Vec<u32> = [1, 7, 64, 100, 256, 1024]
        .into_iter()
        .map(|wanted| gpu.block_len(&kernel, wanted))
        .collect();
    block_lens.dedup();
    for block_len in block_lens {
        for len in lengths(block_len) {
            look(&gpu, &kernel, block_len, len)?;
        }
    }
    Ok(())
}

/// A buffer for `len` results with guards behind them.
fn guarded(gpu: &Gpu<'_>, before: &[u32]) -> Checked<Buffer> {
    let mut words = before.to_vec();
    words.resize(before.len() + GUARD, GUARD_WORD);
    gpu.upload_words(&words)
}

/// Compares results and guards, and frees the buffers.
fn finish(
    gpu: &Gpu<'_>,
    what: &str,
    results: Buffer,
    expected: &[u32],
    others: &[Buffer],
) -> Checked {
    let mut all = expected.to_vec();
    all.resize(expected.len() + GUARD, GUARD_WORD);
    ensure_same(what, &gpu.download_words(results)?, &all)?;
    for buffer in others {
        gpu.free(buffer.id)?;
    }
    gpu.free(results.id)?;
    Ok(())
}

fn add_with(suite: &Suite, name: &str) -> Checked {
    each_shape(suite, name, |gpu, kernel, block_len, n| {
        let len = n as usize;
        let a = Numbers::new(1).floats(len);
        let b = Numbers::new(2).floats(len);
        let sums: Vec<f32> = (0..len).map(|i| a[i] + b[i]).collect();
        let (a, b) = (gpu.upload_floats(&a)?, gpu.upload_floats(&b)?);
        let c = guarded(gpu, &vec![0; len])?;
        let args = [Arg::Buffer(a), Arg::Buffer(b), Arg::Buffer(c), Arg::U32(n)];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("c of {n} elements in blocks of {block_len}");
        finish(gpu, &what, c, &bits_of(&sums), &[a, b])
    })
}

fn vector_add(suite: &Suite) -> Checked {
    add_with(suite, "vector_add")
}

fn vector_add_local_size_id(suite: &Suite) -> Checked {
    add_with(suite, "vector_add_local_size_id")
}

fn vector_add_descriptor(suite: &Suite) -> Checked {
    add_with(suite, "vector_add_descriptor")
}

fn stream_add(suite: &Suite) -> Checked {
    add_with(suite, "stream_add")
}

fn scale_descriptor(suite: &Suite) -> Checked {
    each_shape(suite, "scale_descriptor", |gpu, kernel, block_len, n| {
        let source = Numbers::new(3).floats(n as usize);
        let scaled: Vec<f32> = source.iter().map(|value| -1.75 * value).collect();
        let source = gpu.upload_floats(&source)?;
        let target = guarded(gpu, &vec![0; n as usize])?;
        let args = [
            Arg::Buffer(source),
            Arg::Buffer(target),
            Arg::F32(-1.75),
            Arg::U32(n),
        ];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("target of {n} elements in blocks of {block_len}");
        finish(gpu, &what, target, &bits_of(&scaled), &[source])
    })
}

fn saxpy(suite: &Suite) -> Checked {
    each_shape(suite, "saxpy", |gpu, kernel, block_len, n| {
        let alpha = 1.0 / 3.0;
        let x = Numbers::new(4).floats(n as usize);
        let y = Numbers::new(5).floats(n as usize);
        let results: Vec<f32> = x.iter().zip(&y).map(|(x, y)| alpha * x + y).collect();
        let x = gpu.upload_floats(&x)?;
        let y = guarded(gpu, &bits_of(&y))?;
        let args = [Arg::F32(alpha), Arg::Buffer(x), Arg::Buffer(y), Arg::U32(n)];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("y of {n} elements in blocks of {block_len}");
        finish(gpu, &what, y, &bits_of(&results), &[x])
    })
}

fn fill(suite: &Suite) -> Checked {
    each_shape(suite, "fill", |gpu, kernel, block_len, n| {
        let value = 0x1234_5678 ^ n;
        let target = guarded(gpu, &vec![1; n as usize])?;
        let args = [Arg::Buffer(target), Arg::U32(value), Arg::U32(n)];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("target of {n} elements in blocks of {block_len}");
        finish(gpu, &what, target, &vec![value; n as usize], &[])
    })
}

fn stream_copy(suite: &Suite) -> Checked {
    each_shape(suite, "stream_copy", |gpu, kernel, block_len, n| {
        let source = Numbers::new(6).floats(n as usize);
        let a = gpu.upload_floats(&source)?;
        let c = guarded(gpu, &vec![0; n as usize])?;
        let args = [Arg::Buffer(a), Arg::Buffer(c), Arg::U32(n)];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("c of {n} elements in blocks of {block_len}");
        finish(gpu, &what, c, &bits_of(&source), &[a])
    })
}

fn stream_mul(suite: &Suite) -> Checked {
    each_shape(suite, "stream_mul", |gpu, kernel, block_len, n| {
        let c = Numbers::new(7).floats(n as usize);
        let products: Vec<f32> = c.iter().map(|value| 0.4 * value).collect();
        let c = gpu.upload_floats(&c)?;
        let b = guarded(gpu, &vec![0; n as usize])?;
        let args = [Arg::Buffer(b), Arg::Buffer(c), Arg::F32(0.4), Arg::U32(n)];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("b of {n} elements in blocks of {block_len}");
        finish(gpu, &what, b, &bits_of(&products), &[c])
    })
}

fn stream_triad(suite: &Suite) -> Checked {
    each_shape(suite, "stream_triad", |gpu, kernel, block_len, n| {
        let b = Numbers::new(8).floats(n as usize);
        let c = Numbers::new(9).floats(n as usize);
        let results: Vec<f32> = b.iter().zip(&c).map(|(b, c)| b + 0.4 * c).collect();
        let (b, c) = (gpu.upload_floats(&b)?, gpu.upload_floats(&c)?);
        let a = guarded(gpu, &vec![0; n as usize])?;
        let args = [
            Arg::Buffer(a),
            Arg::Buffer(b),
            Arg::Buffer(c),
            Arg::F32(0.4),
            Arg::U32(n),
        ];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("a of {n} elements in blocks of {block_len}");
        finish(gpu, &what, a, &bits_of(&results), &[b, c])
    })
}

fn triad_f64(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.float64, "64-bit floats")?;
    each_shape(suite, "triad_f64", |gpu, kernel, block_len, n| {
        let fraction = |value: u64| (value >> 11) as f64 / (1u64 << 53) as f64 + 0.5;
        let mut numbers = Numbers::new(10);
        let b: Vec<f64> = (0..n).map(|_| fraction(numbers.next())).collect();
        let c: Vec<f64> = (0..n).map(|_| fraction(numbers.next())).collect();
        let scalar = 1.0 / 3.0;
        let to_words = |values: &[f64]| -> Vec<u32> {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_bits().to_le_bytes())
                .collect();
            words_of(&bytes)
        };
        let results: Vec<f64> = b.iter().zip(&c).map(|(b, c)| b + scalar * c).collect();
        let b = gpu.upload_words(&to_words(&b))?;
        let c = gpu.upload_words(&to_words(&c))?;
        let a = guarded(gpu, &vec![0; 2 * n as usize])?;
        let args = [
            Arg::Buffer(a),
            Arg::Buffer(b),
            Arg::Buffer(c),
            Arg::F64(scalar),
            Arg::U32(n),
        ];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("a of {n} elements in blocks of {block_len}");
        finish(gpu, &what, a, &to_words(&results), &[b, c])
    })
}

fn increment(suite: &Suite) -> Checked {
    increment_with(suite, "increment")
}

fn increment_x_only(suite: &Suite) -> Checked {
    increment_with(suite, "increment_x_only")
}

fn increment_with(suite: &Suite, name: &str) -> Checked {
    each_shape(suite, name, |gpu, kernel, block_len, n| {
        let mut words = Numbers::new(11).words(n as usize);
        words[0] = u32::MAX;
        let data = guarded(gpu, &words)?;
        let args = [Arg::Buffer(data), Arg::U32(n)];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let expected: Vec<u32> = words.iter().map(|word| word.wrapping_add(1)).collect();
        let what = format!("data of {n} elements in blocks of {block_len}");
        finish(gpu, &what, data, &expected, &[])
    })
}

/// Runs a reduction on several lengths and grids; whole numbers, so that any order is exact.
fn reduce_with(suite: &Suite, name: &str, inputs: usize) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load(name)?;
    for (n, blocks) in [
        (1u32, 1u32),
        (255, 1),
        (256, 1),
        (257, 2),
        (600, 2),
        (4095, 16),
        (4097, 3),
        (20_000, 7),
        (3, 5),
    ] {
        let sources: Vec<Vec<f32>> = (0..inputs)
            .map(|input| Numbers::new(20 + input as u64).whole_floats(n as usize))
            .collect();
        let products: Vec<f32> = (0..n as usize)
            .map(|i| sources.iter().map(|source| source[i]).product())
            .collect();
        let buffers = sources
            .iter()
            .map(|source| gpu.upload_floats(source))
            .collect::<Checked<Vec<_>>>()?;
        let partials = guarded(&gpu, &vec![1; blocks as usize])?;
        let mut args: Vec<Arg<'_>> = buffers.iter().copied().map(Arg::Buffer).collect();
        args.extend([Arg::Buffer(partials), Arg::U32(n)]);
        gpu.launch_default(&kernel, [blocks, 1, 1], [256, 1, 1], &args)?;
        let sums = reference::block_sums(&products, blocks as usize);
        let what = format!("partials of {n} elements in {blocks} blocks");
        finish(&gpu, &what, partials, &bits_of(&sums), &buffers)?;
    }
    Ok(())
}

fn stream_dot(suite: &Suite) -> Checked {
    reduce_with(suite, "stream_dot", 2)
}

fn reduce_sum(suite: &Suite) -> Checked {
    reduce_with(suite, "reduce_sum", 1)
}

fn histogram(suite: &Suite) -> Checked {
    each_shape(suite, "histogram", |gpu, kernel, block_len, n| {
        // Few bins, so that threads meet; values beyond them, so that some are left out.
        let bin_count = 7u32;
        let mut numbers = Numbers::new(12);
        let values: Vec<u32> = (0..n).map(|_| numbers.below(9) as u32).collect();
        let mut expected = vec![0u32; bin_count as usize];
        for value in &values {
            if let Some(bin) = expected.get_mut(*value as usize) {
                *bin += 1;
            }
        }
        let source = gpu.upload_words(&values)?;
        let bins = guarded(gpu, &vec![0; bin_count as usize])?;
        let args = [
            Arg::Buffer(source),
            Arg::Buffer(bins),
            Arg::U32(n),
            Arg::U32(bin_count),
        ];
        gpu.launch_linear(StreamId::DEFAULT, kernel, block_len, n, &args)?;
        let what = format!("bins of {n} elements in blocks of {block_len}");
        finish(gpu, &what, bins, &expected, &[source])
    })
}

fn matmul_tiled(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("matmul_tiled")?;
    for (m, n, k) in [
        (1u32, 1u32, 1u32),
        (16, 16, 16),
        (15, 17, 16),
        (17, 15, 33),
        (3, 40, 5),
        (40, 2, 31),
    ] {
        let a = Numbers::new(13).floats((m * k) as usize);
        let b = Numbers::new(14).floats((k * n) as usize);
        let product = reference::matmul(&a, &b, m as usize, n as usize, k as usize);
        let (a, b) = (gpu.upload_floats(&a)?, gpu.upload_floats(&b)?);
        let c = guarded(&gpu, &vec![0; (m * n) as usize])?;
        let args = [
            Arg::Buffer(a),
            Arg::Buffer(b),
            Arg::Buffer(c),
            Arg::U32(m),
            Arg::U32(n),
            Arg::U32(k),
        ];
        let grid = [n.div_ceil(16), m.div_ceil(16), 1];
        gpu.launch_default(&kernel, grid, [16, 16, 1], &args)?;
        let what = format!("a product of {m} x {k} by {k} x {n}");
        finish(&gpu, &what, c, &bits_of(&product), &[a, b])?;
    }
    Ok(())
}

fn stencil_5point(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("stencil_5point")?;
    let most = kernel.info.max_threads_per_block;
    for (width, height) in [(1u32, 1u32), (2, 2), (3, 3), (16, 15), (33, 17), (5, 40)] {
        for block in [[16u32, 16, 1], [8, 4, 1], [1, 1, 1], [64, 2, 1]] {
            if block.iter().product::<u32>() > most {
                continue;
            }
            let source = Numbers::new(15).floats((width * height) as usize);
            let (center, neighbor) = (0.55, 0.1125);
            let expected =
                reference::stencil(&source, width as usize, height as usize, center, neighbor);
            let source = gpu.upload_floats(&source)?;
            let target = guarded(&gpu, &vec![0; (width * height) as usize])?;
            let args = [
                Arg::Buffer(source),
                Arg::Buffer(target),
                Arg::U32(width),
                Arg::U32(height),
                Arg::F32(center),
                Arg::F32(neighbor),
            ];
            let grid = [width.div_ceil(block[0]), height.div_ceil(block[1]), 1];
            gpu.launch_default(&kernel, grid, block, &args)?;
            let what = format!("{width} x {height} in blocks of {block:?}");
            finish(&gpu, &what, target, &bits_of(&expected), &[source])?;
        }
    }
    Ok(())
}

fn shared_rotate(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("shared_rotate")?;
    for blocks in [1u32, 2, 17, 200] {
        let words = Numbers::new(16).words(blocks as usize * 64);
        let mut expected = words.clone();
        for block in expected.chunks_exact_mut(64) {
            block.rotate_left(1);
        }
        let data = guarded(&gpu, &words)?;
        gpu.launch_default(&kernel, [blocks, 1, 1], [64, 1, 1], &[Arg::Buffer(data)])?;
        finish(&gpu, &format!("{blocks} blocks"), data, &expected, &[])?;
    }
    Ok(())
}

fn long_running(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("long_running")?;
    let block_len = gpu.block_len(&kernel, 16);
    for rounds in [0, 1, 2, 1000, 60_000] {
        let target = guarded(&gpu, &vec![0; block_len as usize * 2])?;
        let args = [Arg::Buffer(target), Arg::U32(rounds)];
        gpu.launch_default(&kernel, [2, 1, 1], [block_len, 1, 1], &args)?;
        let expected: Vec<u32> = (0..block_len * 2)
            .map(|index| reference::long_running(index, rounds))
            .collect();
        finish(&gpu, &format!("{rounds} rounds"), target, &expected, &[])?;
    }
    Ok(())
}
