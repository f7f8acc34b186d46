//! Device memory: bytes, addresses, capacity.

mod common;

use common::{alloc, open, range, read, whole, write};
use gpu_backend_mock::{MockBackend, MockDevice, Operation};
use grafos_host_abi::{
    BufferDesc, BufferId, CapacityFault, DeviceLimits, ErrorKind, FillPattern, GpuError, StreamId,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Write {
        buffer: usize,
        offset: usize,
        data: Vec<u8>,
    },
    Fill {
        buffer: usize,
        offset: usize,
        len: usize,
        pattern: FillPattern,
    },
    Copy {
        dst: usize,
        dst_offset: usize,
        src: usize,
        src_offset: usize,
        len: usize,
    },
    Read {
        buffer: usize,
        offset: usize,
        len: usize,
    },
}

const BUFFERS: usize = 3;
const SIZE: usize = 100;

fn span() -> impl Strategy<Value = (usize, usize)> {
    (0..SIZE).prop_flat_map(|offset| (Just(offset), 1..=SIZE - offset))
}

fn op() -> impl Strategy<Value = Op> {
    let write = (0..BUFFERS, span(), any::<u8>()).prop_map(|(buffer, (offset, len), seed)| {
        let data = (0..len)
            .map(|index| seed.wrapping_add(index as u8))
            .collect();
        Op::Write {
            buffer,
            offset,
            data,
        }
    });
    let pattern = prop_oneof![
        any::<u8>().prop_map(FillPattern::U8),
        any::<u16>().prop_map(FillPattern::U16),
        any::<u32>().prop_map(FillPattern::U32),
    ];
    let fill = (0..BUFFERS, span(), pattern).prop_filter_map(
        "an empty fill",
        |(buffer, (offset, len), pattern)| {
            let unit = pattern.len_bytes() as usize;
            let offset = offset / unit * unit;
            let len = len / unit * unit;
            (len > 0).then_some(Op::Fill {
                buffer,
                offset,
                len,
                pattern,
            })
        },
    );
    let copy = (0..BUFFERS, 0..BUFFERS, span(), 0..SIZE).prop_filter_map(
        "an overlap or a range outside",
        |(dst, src, (src_offset, len), dst_offset)| {
            let inside = dst_offset + len <= SIZE;
            let apart = dst_offset + len <= src_offset || src_offset + len <= dst_offset;
            (inside && (dst != src || apart)).then_some(Op::Copy {
                dst,
                dst_offset,
                src,
                src_offset,
                len,
            })
        },
    );
    let read = (0..BUFFERS, span()).prop_map(|(buffer, (offset, len))| Op::Read {
        buffer,
        offset,
        len,
    });
    prop_oneof![write, fill, copy, read]
}

proptest! {
    #[test]
    fn memory_matches_byte_arrays(ops in prop::collection::vec(op(), 1..40)) {
        let context = open(&MockBackend::new());
        let buffers: Vec<_> = (0..BUFFERS).map(|_| alloc(&*context, SIZE as u64)).collect();
        let mut models = vec![vec![0u8; SIZE]; BUFFERS];
        for buffer in &buffers {
            context.fill(StreamId::DEFAULT, whole(*buffer), FillPattern::U8(0)).unwrap();
        }
        let at = |buffer: usize, offset: usize, len: usize| {
            range(buffers[buffer], offset as u64, len as u64)
        };
        for op in ops {
            match op {
                Op::Write { buffer, offset, data } => {
                    let target = at(buffer, offset, data.len());
                    context.write(StreamId::DEFAULT, target, &data).unwrap();
                    models[buffer][offset..offset + data.len()].copy_from_slice(&data);
                }
                Op::Fill { buffer, offset, len, pattern } => {
                    context.fill(StreamId::DEFAULT, at(buffer, offset, len), pattern).unwrap();
                    let bytes = match pattern {
                        FillPattern::U8(value) => vec![value],
                        FillPattern::U16(value) => value.to_le_bytes().to_vec(),
                        FillPattern::U32(value) => value.to_le_bytes().to_vec(),
                    };
                    let range = &mut models[buffer][offset..offset + len];
                    for (index, byte) in range.iter_mut().enumerate() {
                        *byte = bytes[index % bytes.len()];
                    }
                }
                Op::Copy { dst, dst_offset, src, src_offset, len } => {
                    let (to, from) = (at(dst, dst_offset, len), at(src, src_offset, len));
                    context.copy(StreamId::DEFAULT, to, from).unwrap();
                    let bytes = models[src][src_offset..src_offset + len].to_vec();
                    models[dst][dst_offset..dst_offset + len].copy_from_slice(&bytes);
                }
                Op::Read { buffer, offset, len } => {
                    let mut out = vec![0xAA; len];
                    context.read(StreamId::DEFAULT, at(buffer, offset, len), &mut out).unwrap();
                    prop_assert_eq!(&out[..], &models[buffer][offset..offset + len]);
                }
            }
        }
        for (buffer, model) in buffers.iter().zip(&models) {
            prop_assert_eq!(&read(&*context, *buffer).unwrap(), model);
        }
    }
}

#[test]
fn a_large_buffer_round_trips_through_every_kind_of_transfer() {
    let context = open(&MockBackend::new());
    let size = 64 << 20;
    let data: Vec<u8> = (0..size as u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let (first, second) = (alloc(&*context, size), alloc(&*context, size));
    write(&*context, first, &data);
    let (to, from) = (range(second, 1, size - 1), range(first, 0, size - 1));
    context.copy(StreamId::DEFAULT, to, from).unwrap();
    let out = read(&*context, second).unwrap();
    assert_eq!(out[0], 0);
    assert!(out[1..] == data[..data.len() - 1]);
}

#[test]
fn offsets_beyond_four_gib_are_exact() {
    let context = open(&MockBackend::new());
    let four_gib = 1u64 << 32;
    let buffer = alloc(&*context, four_gib + 4096);
    let data: Vec<u8> = (0..200).collect();
    let across = range(buffer, four_gib - 100, 200);
    context.write(StreamId::DEFAULT, across, &data).unwrap();
    let moved = range(buffer, four_gib + 1000, 200);
    context.copy(StreamId::DEFAULT, moved, across).unwrap();
    let mut out = [0; 200];
    context.read(StreamId::DEFAULT, moved, &mut out).unwrap();
    assert_eq!(&out[..], &data[..]);
    // What wraps at 32 bits would land here.
    let mut out = [1; 200];
    context
        .read(StreamId::DEFAULT, range(buffer, 0, 200), &mut out)
        .unwrap();
    assert_eq!(out, [0; 200]);
}

#[test]
fn addresses_are_aligned_distinct_and_not_used_again() {
    let backend = MockBackend::new();
    let (first, second) = (open(&backend), open(&backend));
    let mut seen = Vec::new();
    for context in [&first, &second] {
        for _ in 0..20 {
            let buffer = alloc(&**context, 300);
            assert!(buffer.address >= 0x7f10_0000_0000);
            assert_eq!(buffer.address % 256, 0);
            seen.push((buffer.address, buffer.address + 300));
            context.free(buffer.id).unwrap();
        }
    }
    seen.sort_unstable();
    assert!(
        seen.windows(2).all(|pair| pair[0].1 < pair[1].0),
        "{seen:x?}"
    );
}

fn exhausted(requested: u64, available: u64) -> GpuError {
    GpuError::OutOfMemory(CapacityFault {
        resource: "device memory",
        requested,
        available: Some(available),
        unit: "bytes",
        cause: None,
    })
}

#[test]
fn capacity_is_shared_by_the_contexts_of_a_device_and_returns() {
    let backend = MockBackend::builder()
        .device(MockDevice::new().memory_bytes(1000))
        .device(MockDevice::new().memory_bytes(1000))
        .build();
    let (first, second) = (open(&backend), open(&backend));
    let buffer = alloc(&*first, 700);
    assert_eq!(
        second.alloc(&BufferDesc::new(301)),
        Err(exhausted(301, 300))
    );
    alloc(&*second, 300);
    let info = first.memory_info().unwrap();
    assert_eq!((info.total_bytes, info.free_bytes), (1000, 0));
    assert_eq!(
        (info.live_bytes, info.live_buffers, info.reserved_bytes),
        (700, 1, 700)
    );

    // The other device has memory of its own.
    let options = Default::default();
    let other = grafos_host_abi::GpuBackend::open(&backend, 1, &options).unwrap();
    alloc(&*other, 1000);

    first.free(buffer.id).unwrap();
    assert_eq!(second.memory_info().unwrap().free_bytes, 700);
    drop(second);
    let info = first.memory_info().unwrap();
    assert_eq!(info.free_bytes, 1000);
    assert_eq!(
        (info.live_bytes, info.live_buffers, info.reserved_bytes),
        (0, 0, 0)
    );
}

#[test]
fn impossible_sizes_fail_at_once_and_leave_the_counters_alone() {
    let limits = DeviceLimits {
        max_allocation_bytes: 5000,
        ..MockDevice::DEFAULT_LIMITS
    };
    let device = MockDevice::new().memory_bytes(10_000).limits(limits);
    let context = open(&MockBackend::builder().device(device).build());
    alloc(&*context, 100);
    for size in [u64::MAX, u64::MAX - 63, 1 << 63, 5001] {
        assert_eq!(
            context.alloc(&BufferDesc::new(size)),
            Err(exhausted(size, 5000))
        );
    }
    let info = context.memory_info().unwrap();
    assert_eq!(
        (info.live_bytes, info.live_buffers, info.free_bytes),
        (100, 1, 9900)
    );
}

#[test]
fn slips_of_a_host_never_reach_other_memory() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let buffer = alloc(&*context, 16);
    let kind = |offset, len| {
        let mut out = vec![0; 8];
        let result = context.read(StreamId::DEFAULT, range(buffer, offset, len), &mut out);
        result.unwrap_err().kind()
    };
    assert_eq!(kind(9, 8), ErrorKind::OutOfBounds);
    assert_eq!(kind(u64::MAX - 3, 8), ErrorKind::OutOfBounds);
    assert_eq!(kind(0, 4), ErrorKind::InvalidArgument);

    let other = open(&backend);
    assert_eq!(
        other.free(buffer.id).unwrap_err().kind(),
        ErrorKind::InvalidHandle
    );
    context.free(buffer.id).unwrap();
    assert_eq!(
        context.free(buffer.id).unwrap_err().kind(),
        ErrorKind::InvalidHandle
    );
    assert_eq!(kind(0, 8), ErrorKind::InvalidHandle);
    assert_eq!(
        context.free(BufferId(0)).unwrap_err().kind(),
        ErrorKind::InvalidHandle
    );
    assert_eq!(backend.calls(Operation::Free), 4);
    assert_eq!(backend.calls(Operation::Read), 4);
}

#[test]
fn trimming_finds_nothing_to_give_back() {
    let context = open(&MockBackend::new());
    let buffer = alloc(&*context, 4096);
    context.free(buffer.id).unwrap();
    assert_eq!(context.trim(), Ok(0));
    assert_eq!(context.memory_info().unwrap().reserved_bytes, 0);
}
