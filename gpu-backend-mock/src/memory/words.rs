//! Memory as words of 64 bits, so that any thread can touch any byte at any time.
//!
//! Device memory is shared by whatever kernels and copies run at once, and a program that races is
//! a program under test, not a reason for undefined behavior. So every access is atomic. Words of
//! 64 bits make each aligned access of 1, 2, 4 or 8 bytes indivisible, whatever sizes are mixed;
//! the price is a compare-and-exchange for a store of less than a word.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const WORD_BYTES: usize = 8;

/// Allocates zeroed memory for `len_bytes` bytes; `None` when the system has none.
///
/// The pages come zeroed from the system and are committed when they are first written.
pub(crate) fn allocate(len_bytes: u64) -> Option<Box<[AtomicU64]>> {
    let words = usize::try_from(len_bytes.div_ceil(WORD_BYTES as u64)).ok()?;
    bytemuck::allocation::try_zeroed_slice_box(words).ok()
}

/// Copies memory to the caller, beginning at byte `offset`.
pub(crate) fn read(words: &[AtomicU64], offset: usize, out: &mut [u8]) {
    let (mut index, skipped) = (offset / WORD_BYTES, offset % WORD_BYTES);
    let mut out = out;
    if skipped != 0 {
        let (head, rest) = out.split_at_mut(out.len().min(WORD_BYTES - skipped));
        let bytes = load(words, index);
        head.copy_from_slice(&bytes[skipped..skipped + head.len()]);
        out = rest;
        index += 1;
    }
    let (whole, tail) = out.as_chunks_mut::<WORD_BYTES>();
    for (bytes, word) in whole.iter_mut().zip(&words[index.min(words.len())..]) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if !tail.is_empty() {
        let bytes = load(words, index + whole.len());
        tail.copy_from_slice(&bytes[..tail.len()]);
    }
}

/// Copies the caller's bytes to memory, beginning at byte `offset`.
pub(crate) fn write(words: &[AtomicU64], offset: usize, data: &[u8]) {
    let (mut index, skipped) = (offset / WORD_BYTES, offset % WORD_BYTES);
    let mut data = data;
    if skipped != 0 {
        let (head, rest) = data.split_at(data.len().min(WORD_BYTES - skipped));
        store_part(&words[index], skipped, head);
        data = rest;
        index += 1;
    }
    let (whole, tail) = data.as_chunks::<WORD_BYTES>();
    for (bytes, word) in whole.iter().zip(&words[index.min(words.len())..]) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if !tail.is_empty() {
        store_part(&words[index + whole.len()], 0, tail);
    }
}

/// Fills `len` bytes with a pattern of four, beginning at byte `offset` with its first.
pub(crate) fn fill(words: &[AtomicU64], offset: usize, len: usize, pattern: [u8; 4]) {
    let (mut index, skipped) = (offset / WORD_BYTES, offset % WORD_BYTES);
    let mut len = len;
    let mut phase = 0;
    if skipped != 0 {
        let head = len.min(WORD_BYTES - skipped);
        store_part(&words[index], skipped, &repeat(pattern, 0)[..head]);
        len -= head;
        index += 1;
        phase = head;
    }
    let bytes = repeat(pattern, phase);
    let word = u64::from_le_bytes(bytes);
    let whole = len / WORD_BYTES;
    if whole > 0 {
        for target in &words[index..index + whole] {
            target.store(word, Ordering::Relaxed);
        }
    }
    let tail = len % WORD_BYTES;
    if tail != 0 {
        store_part(&words[index + whole], 0, &bytes[..tail]);
    }
}

/// Copies `len` bytes between two places that do not overlap.
pub(crate) fn copy(
    dst: &[AtomicU64],
    dst_offset: usize,
    src: &[AtomicU64],
    src_offset: usize,
    len: usize,
) {
    let mut staging = [0u8; 4096];
    let mut done = 0;
    while done < len {
        // The first piece ends where the destination's next word begins: later pieces are whole
        // words there.
        let misalignment = (dst_offset + done) % WORD_BYTES;
        let piece = (len - done).min(staging.len() - misalignment);
        read(src, src_offset + done, &mut staging[..piece]);
        write(dst, dst_offset + done, &staging[..piece]);
        done += piece;
    }
}

/// Replaces `bits` of a word under `mask`, leaving the others as they are.
pub(crate) fn store_masked(word: &AtomicU64, mask: u64, bits: u64) {
    let mut current = word.load(Ordering::Relaxed);
    loop {
        let next = (current & !mask) | bits;
        match word.compare_exchange_weak(current, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(changed) => current = changed,
        }
    }
}

fn load(words: &[AtomicU64], index: usize) -> [u8; WORD_BYTES] {
    words[index].load(Ordering::Relaxed).to_le_bytes()
}

fn store_part(word: &AtomicU64, skipped: usize, part: &[u8]) {
    let mut mask = [0u8; WORD_BYTES];
    let mut bits = [0u8; WORD_BYTES];
    mask[skipped..skipped + part.len()].fill(0xFF);
    bits[skipped..skipped + part.len()].copy_from_slice(part);
    store_masked(word, u64::from_le_bytes(mask), u64::from_le_bytes(bits));
}

/// The eight bytes of a repeated pattern that begin at its byte `phase % 4`.
fn repeat(pattern: [u8; 4], phase: usize) -> [u8; WORD_BYTES] {
    std::array::from_fn(|index| pattern[(index + phase) % 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(content: &[u8]) -> Box<[AtomicU64]> {
        let words = allocate(content.len() as u64).unwrap();
        write(&words, 0, content);
        words
    }

    fn content(words: &[AtomicU64], len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        read(words, 0, &mut out);
        out
    }

    /// Every offset and length within five words.
    fn ranges() -> impl Iterator<Item = (usize, usize)> {
        (0..40).flat_map(|offset| (0..=40 - offset).map(move |len| (offset, len)))
    }

    #[test]
    fn writes_and_reads_of_every_alignment_match_a_byte_array() {
        let background: Vec<u8> = (100..140).collect();
        for (offset, len) in ranges() {
            let words = memory(&background);
            let data: Vec<u8> = (1..=len as u8).collect();
            write(&words, offset, &data);
            let mut expected = background.clone();
            expected[offset..offset + len].copy_from_slice(&data);
            assert_eq!(content(&words, 40), expected, "write {offset} {len}");
            let mut out = vec![0; len];
            read(&words, offset, &mut out);
            assert_eq!(out, data, "read {offset} {len}");
        }
    }

    #[test]
    fn fills_of_every_alignment_begin_with_the_first_byte_of_the_pattern() {
        for (offset, len) in ranges() {
            let words = memory(&[7; 40]);
            fill(&words, offset, len, [1, 2, 3, 4]);
            let mut expected = [7; 40];
            for (index, byte) in expected[offset..offset + len].iter_mut().enumerate() {
                *byte = (index % 4) as u8 + 1;
            }
            assert_eq!(content(&words, 40), expected, "fill {offset} {len}");
        }
    }

    #[test]
    fn copies_longer_than_the_staging_piece_match_a_byte_array() {
        let source: Vec<u8> = (0..10_000u32)
            .map(|index| (index * 7 % 251) as u8)
            .collect();
        let words = memory(&source);
        for (dst, src, len) in [(0, 0, 10_000), (3, 5, 9_990), (1, 0, 4096), (7, 2, 1)] {
            let target = memory(&[0xEE; 10_000]);
            copy(&target, dst, &words, src, len);
            let mut expected = vec![0xEE; 10_000];
            expected[dst..dst + len].copy_from_slice(&source[src..src + len]);
            assert_eq!(content(&target, 10_000), expected, "copy {dst} {src} {len}");
        }
    }

    #[test]
    fn a_size_beyond_the_address_space_is_no_memory() {
        assert!(allocate(u64::MAX).is_none());
    }
}
