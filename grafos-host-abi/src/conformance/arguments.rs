//! Argument bytes reach the kernel bit for bit.

use std::prelude::v1::*;
use std::{format, vec};

use super::check::{Checked, Stop, ensure_same};
use super::gpu::{Arg, word_bytes};
use super::module::load_if_able;
use super::reference::Numbers;
use super::runner::Suite;
use crate::{LaunchArg, LaunchDesc, ParamKind, StreamId};

cases!("arguments":
    scalars_arrive_bit_for_bit,
    wide_scalars_arrive_bit_for_bit,
    vectors_and_gaps_arrive_bit_for_bit,
    arguments_of_128_bytes,
    arguments_of_136_bytes,
    arguments_of_264_bytes,
    arguments_are_read_during_the_call,
    arguments_can_lie_at_any_address,
    arguments_keep_their_order,
);

const ONE: [u32; 3] = [1, 1, 1];

fn scalars_arrive_bit_for_bit(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("echo_scalars")?;
    let patterns: [[u32; 3]; 8] = [
        [0, 0, 0],
        // -1, the largest number, negative zero.
        [u32::MAX, u32::MAX, 0x8000_0000],
        // The least number; a quiet NaN with a payload.
        [0x8000_0000, 1, 0x7FC1_2345],
        // A negative NaN; infinity below.
        [0x7FFF_FFFF, 0x8000_0001, 0xFFC0_0001],
        [0xFFFF_FFFE, 0x0102_0304, 0xFF80_0000],
        // The least positive float, which has no leading bit.
        [0x0A0B_0C0D, 0xF0E0_D0C0, 0x0000_0001],
        [0xAAAA_AAAA, 0x5555_5555, 0x7F7F_FFFF],
        [0x0000_00FF, 0xFF00_0000, 0x3F80_0000],
    ];
    for words in patterns {
        let target = gpu.upload_words(&[6; 5])?;
        let bytes = words.map(u32::to_le_bytes);
        let args = [
            Arg::Buffer(target),
            Arg::Bytes(&bytes[0]),
            Arg::Bytes(&bytes[1]),
            Arg::Bytes(&bytes[2]),
        ];
        gpu.launch_default(&kernel, ONE, ONE, &args)?;
        let [a, b, c] = words;
        ensure_same("words", &gpu.download_words(target)?, &[a, b, c, 6, 6])?;
    }
    Ok(())
}

fn wide_scalars_arrive_bit_for_bit(suite: &Suite) -> Checked {
    let capabilities = &suite.info.capabilities;
    suite.need(capabilities.int64, "64-bit integers")?;
    suite.need(capabilities.float64, "64-bit floats")?;
    let gpu = suite.open()?;
    let kernel = gpu.load("echo_wide")?;
    let patterns: [[u64; 3]; 5] = [
        [i64::MIN as u64, u64::MAX, (-0.0f64).to_bits()],
        [i64::MAX as u64, 1, 0x7FF8_0000_DEAD_BEEF],
        [-2i64 as u64, 0x0123_4567_89AB_CDEF, f64::MIN.to_bits()],
        [1, 1 << 32, f64::NEG_INFINITY.to_bits()],
        [0xFFFF_FFFF, 0xFFFF_FFFF_0000_0000, 1.5f64.to_bits()],
    ];
    for numbers in patterns {
        let target = gpu.upload_words(&[6; 8])?;
        let bytes = numbers.map(u64::to_le_bytes);
        let args = [
            Arg::Buffer(target),
            Arg::Bytes(&bytes[0]),
            Arg::Bytes(&bytes[1]),
            Arg::Bytes(&bytes[2]),
        ];
        gpu.launch_default(&kernel, ONE, ONE, &args)?;
        let mut expected: Vec<u32> = numbers
            .iter()
            .flat_map(|number| [*number as u32, (*number >> 32) as u32])
            .collect();
        expected.extend([6, 6]);
        ensure_same("words", &gpu.download_words(target)?, &expected)?;
    }
    Ok(())
}

fn vectors_and_gaps_arrive_bit_for_bit(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("echo_struct")?;
    let mut numbers = Numbers::new(500);
    for _ in 0..20 {
        // Bits of normal floats, since a device may move floats through its arithmetic.
        let floats = numbers.floats(8);
        let words: Vec<u32> = floats.iter().map(|float| float.to_bits()).collect();
        let last = numbers.next() as u32;
        let target = gpu.upload_words(&[6; 11])?;
        let args = [
            Arg::Buffer(target),
            Arg::Bytes(&word_bytes(&words[..3])),
            Arg::Bytes(&word_bytes(&words[3..4])),
            Arg::Bytes(&word_bytes(&words[4..])),
            Arg::U32(last),
        ];
        gpu.launch_default(&kernel, ONE, ONE, &args)?;
        let mut expected = words.clone();
        expected.extend([last, 6, 6]);
        ensure_same("words", &gpu.download_words(target)?, &expected)?;
    }
    Ok(())
}

/// Passes an address and `count` words, and compares their sum.
fn sum_words(suite: &Suite, name: &str, count: usize) -> Checked {
    let gpu = suite.open()?;
    let Some(kernel) = load_if_able(&gpu, name)? else {
        return Err(Stop::unsupported(format!(
            "the device takes {} argument bytes",
            suite.info.limits.max_argument_bytes
        )));
    };
    let mut numbers = Numbers::new(510);
    // One word at a time, then all at once.
    for round in 0..=count {
        let mut words = vec![0u32; count];
        if round < count {
            words[round] = numbers.next() as u32 | 1;
        } else {
            words = numbers.words(count);
        }
        let sum = words.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
        let target = gpu.upload_words(&[0, 6])?;
        let mut args = vec![Arg::Buffer(target)];
        args.extend(words.iter().copied().map(Arg::U32));
        gpu.launch_default(&kernel, ONE, ONE, &args)?;
        ensure_same(
            format_args!("the sum of round {round}"),
            &gpu.download_words(target)?,
            &[sum, 6],
        )?;
    }
    Ok(())
}

fn arguments_of_128_bytes(suite: &Suite) -> Checked {
    sum_words(suite, "push_128", 30)
}

fn arguments_of_136_bytes(suite: &Suite) -> Checked {
    sum_words(suite, "push_136", 32)
}

fn arguments_of_264_bytes(suite: &Suite) -> Checked {
    sum_words(suite, "push_264", 64)
}

fn arguments_are_read_during_the_call(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    let targets = gpu.upload_words(&[0; 300])?;
    let block = [gpu.block_len(&kernel, 1), 1, 1];
    let n = 1u32.to_le_bytes();
    let mut address = [0u8; 8];
    let mut value = [0u8; 4];
    for index in 0..300u64 {
        // The same memory each time, so that a launch that reads it later reads a later value.
        address = (targets.address + index * 4).to_le_bytes();
        value = (index as u32 + 1).to_le_bytes();
        let args = [&address[..], &value, &n].map(|bytes| LaunchArg {
            bytes,
            buffer: None,
        });
        gpu.launch(&LaunchDesc {
            kernel: kernel.info.id,
            grid: ONE,
            block,
            dynamic_shared_bytes: 0,
            args: &args,
            stream: StreamId::DEFAULT,
        })?;
    }
    address.fill(0);
    value.fill(0);
    let expected: Vec<u32> = (1..=300).collect();
    ensure_same("words", &gpu.download_words(targets)?, &expected)?;
    ensure_same(
        "the arguments' memory",
        &[&address[..], &value].concat(),
        &[0; 12],
    )
}

fn arguments_can_lie_at_any_address(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("saxpy")?;
    let bound = kernel.info.params.iter().flatten();
    if bound
        .into_iter()
        .any(|param| param.kind == ParamKind::BoundBuffer)
    {
        return Err(Stop::unsupported("the kernel takes bound buffers"));
    }
    let block = [gpu.block_len(&kernel, 4), 1, 1];
    for shift in 0..8usize {
        let x = gpu.upload_floats(&[2.0; 4])?;
        let y = gpu.upload_floats(&[1.0; 4])?;
        let mut room = vec![0u8; shift];
        room.extend(10.0f32.to_bits().to_le_bytes());
        room.extend(x.address.to_le_bytes());
        room.extend(y.address.to_le_bytes());
        room.extend(4u32.to_le_bytes());
        let at = |begin: usize, len: usize| LaunchArg {
            bytes: &room[shift + begin..shift + begin + len],
            buffer: None,
        };
        gpu.launch(&LaunchDesc {
            kernel: kernel.info.id,
            grid: ONE,
            block,
            dynamic_shared_bytes: 0,
            args: &[at(0, 4), at(4, 8), at(12, 8), at(20, 4)],
            stream: StreamId::DEFAULT,
        })?;
        let expected = [21.0f32.to_bits(); 4];
        ensure_same(
            format_args!("y with arguments {shift} bytes off"),
            &gpu.download_words(y)?,
            &expected,
        )?;
    }
    Ok(())
}

fn arguments_keep_their_order(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    let block = [gpu.block_len(&kernel, 64), 1, 1];
    // Value and length have the same size; only their places tell them apart.
    for (value, n) in [(5u32, 20u32), (20, 5), (0, 1), (1, 0)] {
        let target = gpu.upload_words(&[9; 32])?;
        let args = [Arg::Buffer(target), Arg::U32(value), Arg::U32(n)];
        gpu.launch_default(&kernel, ONE, block, &args)?;
        let mut expected = vec![9; 32];
        expected[..n as usize].fill(value);
        ensure_same(
            format_args!("value {value}, length {n}"),
            &gpu.download_words(target)?,
            &expected,
        )?;
    }
    Ok(())
}
