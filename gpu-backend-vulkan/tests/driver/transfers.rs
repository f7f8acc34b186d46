//! Bytes that move in many ways, held against a model in plain memory.

use std::thread;

use grafos_host_abi::{BufferRange, FillPattern, StreamId};

use crate::device::{Device, Outcome, all, ensure};

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Writes, fills, copies and reads at any offset, held against plain memory.
fn transfer_randomly(device: &Device, stream: StreamId, seed: u64, rounds: usize) -> Outcome {
    let context = &*device.context;
    let mut numbers = Numbers(seed);
    let sizes = [5000usize, 300_003];
    let mut model: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
    let mut buffers = Vec::new();
    for size in sizes {
        let buffer = device.buffer(size as u64)?;
        context.fill(stream, all(&buffer), FillPattern::U8(0))?;
        buffers.push(buffer);
    }
    for round in 0..rounds {
        let which = numbers.below(2);
        let size = sizes[which];
        let offset = numbers.below(size);
        let most = if numbers.below(4) == 0 { size } else { 40 };
        let len = 1 + numbers.below((size - offset).min(most));
        let range = BufferRange {
            buffer: buffers[which].id,
            offset_bytes: offset as u64,
            len_bytes: len as u64,
        };
        match numbers.below(8) {
            0..=2 => {
                let data: Vec<u8> = (0..len).map(|_| numbers.next() as u8).collect();
                context.write(stream, range, &data)?;
                model[which][offset..offset + len].copy_from_slice(&data);
            }
            3 | 4 => {
                let (pattern, width) = match numbers.below(3) {
                    0 => (FillPattern::U8(numbers.next() as u8), 1),
                    1 => (FillPattern::U16(numbers.next() as u16), 2),
                    _ => (FillPattern::U32(numbers.next() as u32), 4),
                };
                let (offset, len) = (offset / width * width, len / width * width);
                if len == 0 || offset + len > size {
                    continue;
                }
                let range = BufferRange {
                    offset_bytes: offset as u64,
                    len_bytes: len as u64,
                    ..range
                };
                context.fill(stream, range, pattern)?;
                let word = pattern.to_word_bytes();
                for (index, byte) in model[which][offset..offset + len].iter_mut().enumerate() {
                    *byte = word[index % width];
                }
            }
            5 | 6 => {
                let other = 1 - which;
                let len = len.min(sizes[other]);
                let target = numbers.below(sizes[other] - len + 1);
                let range = BufferRange {
                    len_bytes: len as u64,
                    ..range
                };
                let dst = BufferRange {
                    buffer: buffers[other].id,
                    offset_bytes: target as u64,
                    len_bytes: len as u64,
                };
                context.copy(stream, dst, range)?;
                let data = model[which][offset..offset + len].to_vec();
                model[other][target..target + len].copy_from_slice(&data);
            }
            _ => {
                let mut found = vec![0; len];
                context.read(stream, range, &mut found)?;
                ensure(found == model[which][offset..offset + len], || {
                    format!("round {round}: {len} bytes at {offset} differ")
                })?;
            }
        }
    }
    for (buffer, expected) in buffers.iter().zip(&model) {
        let mut found = vec![0; expected.len()];
        context.read(stream, all(buffer), &mut found)?;
        let first = found.iter().zip(expected).position(|(a, b)| a != b);
        ensure(first.is_none(), || format!("byte {first:?} differs"))?;
    }
    Ok(())
}

pub(crate) fn random_transfers_match_a_model(device: &Device) -> Outcome {
    (0..4).try_for_each(|seed| transfer_randomly(device, StreamId::DEFAULT, seed, 600))
}

pub(crate) fn two_threads_transfer_at_once(device: &Device) -> Outcome {
    let streams = [StreamId::DEFAULT, device.context.create_stream()?];
    thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .zip(100..)
            .map(|(stream, seed)| scope.spawn(move || transfer_randomly(device, stream, seed, 600)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a thread panicked".into()))
        })
    })
}
