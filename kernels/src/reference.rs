//! What each kernel must compute, written plainly for the CPU.
//!
//! Sources forbid fused multiply-adds where one is possible, and these functions round after each
//! operation in the kernel's order. Normal `f32` and `f64` values therefore agree to the bit on a
//! device that adds and multiplies with IEEE rounding, as Vulkan asks. Subnormal values may be
//! flushed to zero by a device, and bits of a NaN may differ.

use alloc::vec;
use alloc::vec::Vec;

/// Threads in a block of `stream_dot` and `reduce_sum`.
const REDUCTION_THREADS: usize = 256;
/// Threads in a block of `shared_rotate`.
const ROTATE_THREADS: usize = 64;
/// Steps that `long_running` takes at most.
const LONG_RUNNING_STEPS: u32 = 60_000;

/// Computes `c` of `vector_add`, its variants and `stream_add`.
pub fn vector_add(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Computes `y` of `saxpy` from its old value.
pub fn saxpy(alpha: f32, x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(x, y)| alpha * x + y).collect()
}

/// Computes `b` of `stream_mul`, and `target` of `scale_descriptor`.
pub fn scale(factor: f32, source: &[f32]) -> Vec<f32> {
    source.iter().map(|value| factor * value).collect()
}

/// Computes `a` of `stream_triad`.
pub fn stream_triad(b: &[f32], c: &[f32], scalar: f32) -> Vec<f32> {
    b.iter().zip(c).map(|(b, c)| b + scalar * c).collect()
}

/// Computes `a` of `triad_f64`.
pub fn triad_f64(b: &[f64], c: &[f64], scalar: f64) -> Vec<f64> {
    b.iter().zip(c).map(|(b, c)| b + scalar * c).collect()
}

/// Computes the `partials` of `stream_dot` on a grid of `blocks` blocks, in the kernel's order of
/// additions.
///
/// Their sum is the dot product up to rounding; [`dot`] gives it in double precision.
pub fn stream_dot_partials(a: &[f32], b: &[f32], blocks: usize) -> Vec<f32> {
    let products: Vec<f32> = a.iter().zip(b).map(|(a, b)| a * b).collect();
    reduce_sum_partials(&products, blocks)
}

/// Computes the dot product of `a` and `b` in double precision, from first to last.
///
/// It is exact while all products and sums are integers of at most 2^53.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

/// Computes the `partials` of `reduce_sum` on a grid of `blocks` blocks, in the kernel's order of
/// additions.
///
/// Their sum is the sum of `source` up to rounding; [`sum`] gives it in double precision. While all
/// sums are integers of at most 2^24, every order gives the same bits.
pub fn reduce_sum_partials(source: &[f32], blocks: usize) -> Vec<f32> {
    let stride = blocks * REDUCTION_THREADS;
    let mut partials = Vec::with_capacity(blocks);
    for block in 0..blocks {
        let mut sums = [0.0_f32; REDUCTION_THREADS];
        for (lane, sum) in sums.iter_mut().enumerate() {
            let first = block * REDUCTION_THREADS + lane;
            for value in source.iter().skip(first).step_by(stride) {
                *sum += value;
            }
        }
        let mut width = REDUCTION_THREADS / 2;
        while width > 0 {
            for lane in 0..width {
                sums[lane] += sums[lane + width];
            }
            width /= 2;
        }
        partials.push(sums[0]);
    }
    partials
}

/// Computes the sum of `source` in double precision, from first to last.
///
/// It is exact while all sums are integers of at most 2^53.
pub fn sum(source: &[f32]) -> f64 {
    source.iter().map(|&value| f64::from(value)).sum()
}

/// Computes `bins` of `histogram` from bins of zero; values of `bin_count` or more are not counted.
pub fn histogram(source: &[u32], bin_count: usize) -> Vec<u32> {
    let mut bins = vec![0; bin_count];
    for &value in source {
        if let Some(bin) = bins.get_mut(value as usize) {
            *bin += 1;
        }
    }
    bins
}

/// Computes `c` (`m` rows, `n` columns) of `matmul_tiled` from `a` (`m` x `k`) and `b` (`k` x `n`),
/// all row-major.
pub fn matmul(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = Vec::with_capacity(m * n);
    for row in 0..m {
        for column in 0..n {
            let mut sum = 0.0;
            for step in 0..k {
                sum += a[row * k + step] * b[step * n + column];
            }
            c.push(sum);
        }
    }
    c
}

/// Computes `target` of `stencil_5point` from a row-major `source`.
pub fn stencil_5point(
    source: &[f32],
    width: usize,
    height: usize,
    center: f32,
    neighbor: f32,
) -> Vec<f32> {
    let at = |x: usize, y: usize| source[y * width + x];
    let mut target = Vec::with_capacity(width * height);
    for y in 0..height {
        for x in 0..width {
            let border = x == 0 || y == 0 || x + 1 == width || y + 1 == height;
            target.push(if border {
                at(x, y)
            } else {
                let around = at(x, y - 1) + at(x, y + 1) + at(x - 1, y) + at(x + 1, y);
                center * at(x, y) + neighbor * around
            });
        }
    }
    target
}

/// Computes `data` of `increment` and `increment_x_only` from its old value; the top value wraps to
/// zero.
pub fn increment(data: &[u32]) -> Vec<u32> {
    data.iter().map(|value| value.wrapping_add(1)).collect()
}

/// Computes `words` of `echo_scalars`.
pub fn echo_scalars(a: i32, b: u32, c: f32) -> [u32; 3] {
    [a as u32, b, c.to_bits()]
}

/// Computes `words` of `echo_wide`.
pub fn echo_wide(a: i64, b: u64, c: f64) -> [u32; 6] {
    let low = |value: u64| value as u32;
    let high = |value: u64| (value >> 32) as u32;
    let (a, c) = (a as u64, c.to_bits());
    [low(a), high(a), low(b), high(b), low(c), high(c)]
}

/// Computes `words` of `echo_struct`.
pub fn echo_struct(v3: [f32; 3], tail: f32, v4: [f32; 4], last: u32) -> [u32; 9] {
    let [x, y, z] = v3.map(f32::to_bits);
    let [p, q, r, s] = v4.map(f32::to_bits);
    [x, y, z, tail.to_bits(), p, q, r, s, last]
}

/// Computes `target` of `write_index` for the whole of a grid of `grid` blocks of `block` threads.
pub fn write_index(grid: [u32; 3], block: [u32; 3]) -> Vec<u32> {
    let [width, height, depth] = [0, 1, 2].map(|axis| grid[axis] * block[axis]);
    let mut target = Vec::new();
    for z in 0..depth {
        for y in 0..height {
            for x in 0..width {
                target.push(write_index_value([x, y, z], grid));
            }
        }
    }
    target
}

/// Computes what `write_index` writes for the thread whose global id is `id`, on a grid of `grid`
/// blocks.
pub fn write_index_value(id: [u32; 3], grid: [u32; 3]) -> u32 {
    id[0].wrapping_mul(0x9E37_79B1)
        ^ id[1].wrapping_mul(0x85EB_CA77)
        ^ id[2].wrapping_mul(0xC2B2_AE3D)
        ^ grid[0].wrapping_mul(0x27D4_EB2F)
        ^ grid[1].wrapping_mul(0x1656_67B1)
        ^ grid[2].wrapping_mul(0xD6E8_FEB9)
}

/// Computes element `index` of `target` of `long_running`.
pub fn long_running(index: u32, rounds: u32) -> u32 {
    let mut state = index.wrapping_add(1);
    for _ in 0..rounds.min(LONG_RUNNING_STEPS) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    state
}

/// Computes `data` of `shared_rotate` from its old value, of 64 elements for each block.
pub fn shared_rotate(data: &[u32]) -> Vec<u32> {
    let mut rotated = data.to_vec();
    for block in rotated.chunks_exact_mut(ROTATE_THREADS) {
        block.rotate_left(1);
    }
    rotated
}

/// Computes `target[0]` of `push_128`, `push_136` and `push_264`; the sum wraps.
pub fn push_sum(words: &[u32]) -> u32 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elementwise_kernels_match_hand_computed_values() {
        assert_eq!(vector_add(&[1.0, 2.5], &[3.0, -0.5]), [4.0, 2.0]);
        assert_eq!(saxpy(2.0, &[1.0, 3.0], &[10.0, 20.0]), [12.0, 26.0]);
        assert_eq!(scale(3.0, &[2.0, -1.0]), [6.0, -3.0]);
        assert_eq!(stream_triad(&[1.0, 2.0], &[10.0, 20.0], 0.5), [6.0, 12.0]);
        assert_eq!(triad_f64(&[1.0], &[0.1], 3.0), [1.0 + 3.0 * 0.1]);
        assert_eq!(increment(&[0, 41, u32::MAX]), [1, 42, 0]);
    }

    #[test]
    fn multiply_and_add_round_separately() {
        let x = 1.0 + f32::EPSILON;
        // The exact square is 1 + 2 epsilon + epsilon^2; the product drops the last term.
        assert_eq!(saxpy(x, &[x], &[-1.0]), [2.0 * f32::EPSILON]);
        assert_eq!(stream_triad(&[-1.0], &[x], x), [2.0 * f32::EPSILON]);
    }

    #[test]
    fn reductions_split_by_block_and_cover_every_element_once() {
        let source: Vec<f32> = (1..=600_u16).map(f32::from).collect();
        // 1 to 256, then 257 to 512, then 513 to 600.
        assert_eq!(
            reduce_sum_partials(&source, 3),
            [32_896.0, 98_432.0, 48_972.0]
        );
        // Two blocks: the first also walks 513 to 600.
        assert_eq!(reduce_sum_partials(&source, 2), [81_868.0, 98_432.0]);
        assert_eq!(reduce_sum_partials(&source, 1), [180_300.0]);
        assert_eq!(reduce_sum_partials(&[], 2), [0.0, 0.0]);
        assert_eq!(sum(&source), 180_300.0);
    }

    #[test]
    fn reduction_order_is_a_tree() {
        // Lanes 0 and 128 meet first, so that the large values cancel before the small one arrives.
        let mut source = [0.0_f32; 256];
        source[0] = 1.0e8;
        source[1] = 1.0;
        source[128] = -1.0e8;
        assert_eq!(reduce_sum_partials(&source, 1), [1.0]);
        let from_first_to_last = source.iter().fold(0.0_f32, |sum, value| sum + value);
        assert_eq!(from_first_to_last, 0.0);
    }

    #[test]
    fn dot_multiplies_pairs() {
        assert_eq!(
            stream_dot_partials(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 2),
            [32.0, 0.0]
        );
        assert_eq!(dot(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 32.0);
    }

    #[test]
    fn histogram_leaves_out_values_past_the_bins() {
        assert_eq!(histogram(&[0, 2, 2, 3, u32::MAX, 1], 3), [1, 1, 2]);
        assert_eq!(histogram(&[0, 0], 0), []);
    }

    #[test]
    fn matmul_is_row_major() {
        // 2 x 3 by 3 x 2.
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = [7.0, 8.0, 9.0, 10.0, 11.0, 12.0];
        assert_eq!(matmul(&a, &b, 2, 2, 3), [58.0, 64.0, 139.0, 154.0]);
        assert_eq!(matmul(&[], &[], 1, 2, 0), [0.0, 0.0]);
    }

    #[test]
    fn stencil_copies_the_border() {
        let source = [
            1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0,
        ];
        // 4 wide, 3 high: (1, 1) is 6 with neighbors 2, 10, 5, 7; (2, 1) is 7 with 3, 11, 6, 8.
        let target = stencil_5point(&source, 4, 3, 0.5, 0.25);
        assert_eq!(target[..5], source[..5]);
        assert_eq!(target[5..7], [9.0, 10.5]);
        assert_eq!(target[7..], source[7..]);
        assert_eq!(stencil_5point(&[5.0, 6.0], 1, 2, 2.0, 2.0), [5.0, 6.0]);
    }

    #[test]
    fn echoes_keep_every_bit() {
        assert_eq!(echo_scalars(-2, 7, 1.0), [0xFFFF_FFFE, 7, 0x3F80_0000]);
        assert_eq!(
            echo_wide(-2, 0x0123_4567_89AB_CDEF, 1.0),
            [
                0xFFFF_FFFE,
                0xFFFF_FFFF,
                0x89AB_CDEF,
                0x0123_4567,
                0,
                0x3FF0_0000
            ]
        );
        let words = echo_struct([1.0, 2.0, -0.0], 0.5, [4.0, 8.0, 16.0, 32.0], 9);
        assert_eq!(
            words[..4],
            [0x3F80_0000, 0x4000_0000, 0x8000_0000, 0x3F00_0000]
        );
        assert_eq!(
            words[4..],
            [0x4080_0000, 0x4100_0000, 0x4180_0000, 0x4200_0000, 9]
        );
    }

    #[test]
    fn write_index_runs_over_x_first_and_tells_axes_apart() {
        let target = write_index([2, 1, 1], [1, 2, 1]);
        let grid_part = 0x4FA9_D65E ^ 0x1656_67B1 ^ 0xD6E8_FEB9;
        let x = 0x9E37_79B1;
        let y = 0x85EB_CA77;
        assert_eq!(
            target,
            [grid_part, x ^ grid_part, y ^ grid_part, x ^ y ^ grid_part]
        );
        assert_eq!(write_index_value([0, 0, 2], [0, 0, 0]), 0x8565_5C7A);
        assert_ne!(
            write_index([2, 1, 1], [1, 1, 1]),
            write_index([1, 2, 1], [1, 1, 1])
        );
        assert_eq!(write_index([2, 3, 4], [4, 3, 2]).len(), 8 * 9 * 8);
    }

    #[test]
    fn long_running_steps_and_stops() {
        assert_eq!(long_running(5, 0), 6);
        // 1 ^ 1 << 13 is 0x2001, >> 17 adds nothing, ^ 0x2001 << 5 is 0x42021.
        assert_eq!(long_running(0, 1), 0x0004_2021);
        assert_eq!(long_running(u32::MAX, 9), 0);
        assert_eq!(long_running(3, 60_000), long_running(3, u32::MAX));
        assert_ne!(long_running(3, 59_999), long_running(3, 60_000));
    }

    #[test]
    fn rotation_stays_within_a_block() {
        let data: Vec<u32> = (0..128).collect();
        let rotated = shared_rotate(&data);
        assert_eq!((rotated[0], rotated[62], rotated[63]), (1, 63, 0));
        assert_eq!((rotated[64], rotated[126], rotated[127]), (65, 127, 64));
    }

    #[test]
    fn push_sum_wraps() {
        assert_eq!(push_sum(&[1, 2, 3]), 6);
        assert_eq!(push_sum(&[u32::MAX, 2]), 1);
    }
}
