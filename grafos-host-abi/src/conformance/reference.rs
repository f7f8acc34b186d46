//! What kernels must compute, and test data. Written plainly, and apart from the kernels' sources.

use std::prelude::v1::*;

/// A sequence of numbers that looks random and is the same for the same seed (SplitMix64).
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    pub(super) fn words(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.next() as u32).collect()
    }

    /// Normal floats between -100 and 100 with all their fraction bits in use.
    pub(super) fn floats(&mut self, len: usize) -> Vec<f32> {
        let mut one = || {
            let fraction = (self.next() >> 40) as f32 / (1u32 << 24) as f32;
            fraction * 200.0 - 100.0
        };
        (0..len).map(|_| one()).collect()
    }

    /// Small whole numbers: sums of thousands of them are exact in any order.
    pub(super) fn whole_floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.below(16) as f32).collect()
    }
}

/// Element `index` of `long_running`: xorshift32 from `index + 1`.
pub(super) fn long_running(index: u32, rounds: u32) -> u32 {
    let mut state = index.wrapping_add(1);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    state
}

/// What `write_index` writes for each thread of a grid, in linear order: x first, then y, then z.
pub(super) fn write_index(grid: [u32; 3], block: [u32; 3]) -> Vec<u32> {
    let of_grid = grid[0].wrapping_mul(0x27D4_EB2F)
        ^ grid[1].wrapping_mul(0x1656_67B1)
        ^ grid[2].wrapping_mul(0xD6E8_FEB9);
    let mut values = Vec::new();
    for z in 0..grid[2] * block[2] {
        let of_z = z.wrapping_mul(0xC2B2_AE3D);
        for y in 0..grid[1] * block[1] {
            let of_y = y.wrapping_mul(0x85EB_CA77);
            for x in 0..grid[0] * block[0] {
                values.push(x.wrapping_mul(0x9E37_79B1) ^ of_y ^ of_z ^ of_grid);
            }
        }
    }
    values
}

/// The share of each block in a sum: thread `lane` of block `block` takes every element whose
/// index is `block * 256 + lane` modulo the threads of the grid. Exact for whole numbers.
pub(super) fn block_sums(values: &[f32], blocks: usize) -> Vec<f32> {
    let mut sums = std::vec![0.0; blocks];
    for (index, value) in values.iter().enumerate() {
        sums[index / 256 % blocks] += value;
    }
    sums
}

/// Row-major `a` (m x k) times `b` (k x n).
pub(super) fn matmul(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut product = Vec::with_capacity(m * n);
    for row in 0..m {
        for column in 0..n {
            let terms = (0..k).map(|step| a[row * k + step] * b[step * n + column]);
            product.push(terms.fold(0.0, |sum, term| sum + term));
        }
    }
    product
}

/// One step of a 5-point stencil; the border is copied.
pub(super) fn stencil(
    source: &[f32],
    width: usize,
    height: usize,
    center: f32,
    neighbor: f32,
) -> Vec<f32> {
    let mut target = source.to_vec();
    for y in 1..height.saturating_sub(1) {
        for x in 1..width.saturating_sub(1) {
            let here = y * width + x;
            let mut around = source[here - width] + source[here + width];
            around += source[here - 1];
            around += source[here + 1];
            target[here] = center * source[here] + neighbor * around;
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_repeat_and_spread() {
        let mut numbers = Numbers::new(1);
        let first = numbers.words(1000);
        assert_eq!(first, Numbers::new(1).words(1000));
        assert_ne!(first, Numbers::new(2).words(1000));
        assert!(
            numbers
                .floats(1000)
                .iter()
                .all(|float| float.abs() <= 100.0)
        );
        assert_eq!(numbers.bytes(13).len(), 13);
    }

    #[test]
    fn references_match_values_worked_out_by_hand() {
        assert_eq!(long_running(5, 0), 6);
        // 1 ^ 1 << 13 is 0x2001; >> 17 adds nothing; ^ 0x2001 << 5 is 0x42021.
        assert_eq!(long_running(0, 1), 0x0004_2021);
        let grid_part = 0x4FA9_D65E ^ 0x1656_67B1 ^ 0xD6E8_FEB9u32;
        let (x, y) = (0x9E37_79B1u32, 0x85EB_CA77u32);
        assert_eq!(
            write_index([2, 1, 1], [1, 2, 1]),
            [grid_part, x ^ grid_part, y ^ grid_part, x ^ y ^ grid_part]
        );
        let ones = std::vec![1.0f32; 600];
        assert_eq!(block_sums(&ones, 2), [344.0, 256.0]);
        assert_eq!(
            matmul(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], 2, 2, 2),
            [19.0, 22.0, 43.0, 50.0]
        );
        let source = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let target = stencil(&source, 3, 3, 10.0, 1.0);
        assert_eq!(target, [1.0, 2.0, 3.0, 4.0, 70.0, 6.0, 7.0, 8.0, 9.0]);
    }
}
