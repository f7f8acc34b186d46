//! Host kernels: what they compute, on how many cores, with which arguments and memory.

mod common;

use std::sync::{Arc, Condvar, Mutex};

use common::{
    LONG, Launch, alloc, backend, buffer_f32, buffer_u32, kernel, open, range, read, read_f32,
    read_u32, vector_add, whole, write,
};
use gpu_backend_mock::{BlockScope, HostKernel, KernelSignature, KernelTrap};
use grafos_host_abi::{FillPattern, GpuContext};

#[test]
fn vector_add_over_a_million_elements_is_exact_on_any_number_of_threads() {
    let n = 1 << 20;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let b: Vec<f32> = (0..n).map(|i| 1000.0 - i as f32 * 0.25).collect();
    for threads in [1, 2, 5] {
        let context = open(&backend(threads, [vector_add()]));
        let (a_buffer, b_buffer) = (buffer_f32(&*context, &a), buffer_f32(&*context, &b));
        let c_buffer = alloc(&*context, n * 4);
        let vector_add = kernel(&*context, "vector_add");
        let addresses = [a_buffer, b_buffer, c_buffer].map(|it| it.address.to_le_bytes());
        let count = (n as u32).to_le_bytes();
        let args: [&[u8]; 4] = [&addresses[0], &addresses[1], &addresses[2], &count];
        let blocks = (n as u32).div_ceil(256);
        Launch::new(vector_add, blocks, 256, &args)
            .run(&*context)
            .unwrap();
        let c = read_f32(&*context, c_buffer);
        for (i, value) in c.iter().enumerate() {
            assert_eq!(*value, a[i] + b[i], "element {i} with {threads} threads");
        }
    }
}

#[test]
fn blocks_of_one_launch_run_at_the_same_time() {
    // Two blocks that wait for one another end only when both run.
    let arrived = Arc::new((Mutex::new(0), Condvar::new()));
    let meet = HostKernel::new("meet", KernelSignature::new(), move |_| {
        let (count, changed) = &*arrived;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let (_count, timeout) = changed
            .wait_timeout_while(count, LONG, |count| *count < 2)
            .unwrap();
        if timeout.timed_out() {
            return Err(KernelTrap::new("the other block did not run"));
        }
        Ok(())
    });
    let context = open(&backend(2, [meet]));
    let meet = kernel(&*context, "meet");
    Launch::new(meet, 2, 1, &[]).run(&*context).unwrap();
    assert_eq!(context.sync(None), Ok(()));
}

#[test]
fn a_grid_of_three_axes_reaches_every_thread_once() {
    let signature = KernelSignature::new().buffer();
    let mark = HostKernel::new("mark", signature, |scope| {
        let out = scope.buffer::<u32>(0)?;
        scope.for_each_thread(|thread| {
            let [x, y, z] = thread.global();
            let [width, height, _] = thread.grid_threads();
            out.atomic_add((z * height + y) * width + x, 1)?;
            Ok(())
        })
    });
    let context = open(&backend(3, [mark]));
    let (grid, block) = ([3, 4, 5], [7, 2, 3]);
    let threads = 21 * 8 * 15;
    let out = buffer_u32(&*context, &vec![0; threads]);
    let address = out.address.to_le_bytes();
    Launch {
        grid,
        block,
        ..Launch::new(kernel(&*context, "mark"), 1, 1, &[&address])
    }
    .run(&*context)
    .unwrap();
    assert_eq!(read_u32(&*context, out), vec![1; threads]);
}

/// Sums a block in shared memory, halving the number of threads at each barrier.
fn reduce(scope: &mut BlockScope<'_>, mut partial: impl AsMut<[u32]>) -> Result<(), KernelTrap> {
    let (input, output) = (scope.buffer::<u32>(0)?, scope.buffer::<u32>(1)?);
    let partial = partial.as_mut();
    scope.for_each_thread(|thread| {
        partial[thread.linear_index()] = input.load(thread.global_x())?;
        Ok(())
    })?;
    let mut width = scope.threads() / 2;
    while width > 0 {
        scope.for_each_thread(|thread| {
            let i = thread.linear_index();
            if i < width {
                partial[i] = partial[i].wrapping_add(partial[i + width]);
            }
            Ok(())
        })?;
        width /= 2;
    }
    output.store(scope.block_index()[0] as usize, partial[0])
}

#[test]
fn a_block_reduces_in_declared_and_in_dynamic_shared_memory() {
    let signature = KernelSignature::new().buffer().buffer();
    let declared = HostKernel::new("declared", signature.clone(), |scope| {
        let mut partial = scope.shared_mut::<u32>(128)?;
        reduce(scope, &mut *partial)
    })
    .static_shared_bytes(512);
    let dynamic = HostKernel::new("dynamic", signature, |scope| {
        let mut partial = scope.dynamic_shared_mut::<u32>(scope.threads())?;
        reduce(scope, &mut *partial)
    });
    let context = open(&backend(2, [declared, dynamic]));
    let values: Vec<u32> = (0..64 * 128u32)
        .map(|i| i.wrapping_mul(0x9E37_79B9))
        .collect();
    let expected: Vec<u32> = values
        .chunks(128)
        .map(|block| {
            block
                .iter()
                .fold(0u32, |sum, value| sum.wrapping_add(*value))
        })
        .collect();
    for (name, dynamic_shared_bytes) in [("declared", 0), ("dynamic", 512)] {
        let (input, output) = (buffer_u32(&*context, &values), alloc(&*context, 64 * 4));
        let args = [input, output].map(|it| it.address.to_le_bytes());
        Launch {
            dynamic_shared_bytes,
            ..Launch::new(kernel(&*context, name), 64, 128, &[&args[0], &args[1]])
        }
        .run(&*context)
        .unwrap();
        assert_eq!(read_u32(&*context, output), expected, "{name}");
    }
}

#[test]
fn a_histogram_with_contended_atomics_counts_everything() {
    let signature = KernelSignature::new().buffer().buffer().value::<u32>();
    let histogram = HostKernel::new("histogram", signature, |scope| {
        let (data, bins) = (scope.buffer::<u8>(0)?, scope.buffer::<u32>(1)?);
        let n = scope.arg::<u32>(2)? as usize;
        scope.for_each_thread(|thread| {
            let i = thread.global_x();
            if i < n {
                bins.atomic_add(usize::from(data.load(i)? % 7), 1)?;
            }
            Ok(())
        })
    });
    let context = open(&backend(4, [histogram]));
    let n = 100_003u32;
    let data: Vec<u8> = (0..n)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut expected = [0u32; 7];
    for byte in &data {
        expected[usize::from(byte % 7)] += 1;
    }
    let input = alloc(&*context, n.into());
    write(&*context, input, &data);
    let bins = buffer_u32(&*context, &[0; 7]);
    let args = [input, bins].map(|it| it.address.to_le_bytes());
    let count = n.to_le_bytes();
    let args: [&[u8]; 3] = [&args[0], &args[1], &count];
    Launch::new(kernel(&*context, "histogram"), n.div_ceil(64), 64, &args)
        .run(&*context)
        .unwrap();
    assert_eq!(read_u32(&*context, bins), expected);
}

#[test]
fn atomic_operations_of_every_type_give_the_sequential_result() {
    // Elements: 0 u32 sum, 1 i32 minimum, 2 u32 maximum, 3 f32 sum; as words of 8 bytes: 2 u64 sum,
    // 3 i64 minimum, 4 f64 sum, 5 u64 tickets drawn by compare and exchange.
    let mix = HostKernel::new("mix", KernelSignature::new().buffer(), |scope| {
        let (u32s, i32s) = (scope.buffer::<u32>(0)?, scope.buffer::<i32>(0)?);
        let (f32s, f64s) = (scope.buffer::<f32>(0)?, scope.buffer::<f64>(0)?);
        let (u64s, i64s) = (scope.buffer::<u64>(0)?, scope.buffer::<i64>(0)?);
        scope.for_each_thread(|thread| {
            let i = thread.global_x();
            u32s.atomic_add(0, i as u32)?;
            i32s.atomic_min(1, -(i as i32))?;
            u32s.atomic_max(2, i as u32)?;
            f32s.atomic_add(3, 0.5)?;
            u64s.atomic_add(2, 1 << 33)?;
            i64s.atomic_min(3, -(i as i64) << 33)?;
            f64s.atomic_add(4, 0.25)?;
            let mut seen = u64s.load(5)?;
            loop {
                let before = u64s.atomic_compare_exchange(5, seen, seen + 1)?;
                if before == seen {
                    return Ok(());
                }
                seen = before;
            }
        })
    });
    let context = open(&backend(4, [mix]));
    let buffer = buffer_u32(&*context, &[0; 12]);
    let address = buffer.address.to_le_bytes();
    Launch::new(kernel(&*context, "mix"), 256, 32, &[&address])
        .run(&*context)
        .unwrap();
    let bytes = read(&*context, buffer).unwrap();
    let four = |index: usize| <[u8; 4]>::try_from(&bytes[index * 4..][..4]).unwrap();
    let eight = |index: usize| <[u8; 8]>::try_from(&bytes[index * 8..][..8]).unwrap();
    let n = 256 * 32u64;
    assert_eq!(u64::from(u32::from_le_bytes(four(0))), n * (n - 1) / 2);
    assert_eq!(i64::from(i32::from_le_bytes(four(1))), -(n as i64 - 1));
    assert_eq!(u64::from(u32::from_le_bytes(four(2))), n - 1);
    assert_eq!(f32::from_le_bytes(four(3)), n as f32 * 0.5);
    assert_eq!(u64::from_le_bytes(eight(2)), n << 33);
    assert_eq!(i64::from_le_bytes(eight(3)), -((n as i64 - 1) << 33));
    assert_eq!(f64::from_le_bytes(eight(4)), n as f64 * 0.25);
    assert_eq!(u64::from_le_bytes(eight(5)), n);
}

#[test]
fn threads_that_store_to_neighboring_bytes_lose_nothing() {
    // Two blocks start together and interleave their bytes and halves, so that they share every
    // word that they store to.
    let signature = KernelSignature::new().buffer().buffer().buffer();
    let interleave = HostKernel::new("interleave", signature, |scope| {
        let (bytes, halves) = (scope.buffer::<u8>(0)?, scope.buffer::<i16>(1)?);
        let arrived = scope.buffer::<u32>(2)?;
        arrived.atomic_add(0, 1)?;
        while arrived.load(0)? < 2 {
            std::thread::yield_now();
        }
        let block = scope.block_index()[0] as usize;
        for i in (block..bytes.len()).step_by(2) {
            bytes.store(i, i as u8 ^ 0x5A)?;
            halves.store(i, !(i as i16))?;
        }
        Ok(())
    });
    let context = open(&backend(2, [interleave]));
    let n = 1u64 << 19;
    let (bytes, halves) = (alloc(&*context, n), alloc(&*context, n * 2));
    let arrived = buffer_u32(&*context, &[0]);
    let args = [bytes, halves, arrived].map(|it| it.address.to_le_bytes());
    let args: [&[u8]; 3] = [&args[0], &args[1], &args[2]];
    Launch::new(kernel(&*context, "interleave"), 2, 1, &args)
        .run(&*context)
        .unwrap();
    let expected: Vec<u8> = (0..n).map(|i| i as u8 ^ 0x5A).collect();
    assert!(read(&*context, bytes).unwrap() == expected);
    let expected: Vec<u8> = (0..n).flat_map(|i| (!(i as i16)).to_le_bytes()).collect();
    assert!(read(&*context, halves).unwrap() == expected);
}

#[test]
fn arguments_reach_the_kernel_bit_for_bit() {
    let signature = KernelSignature::new()
        .buffer()
        .value::<u8>()
        .value::<i16>()
        .value::<f64>()
        .value::<i64>()
        .bytes(12, 16);
    let gather = HostKernel::new("gather", signature, |scope| {
        let out = scope.buffer::<u64>(0)?;
        out.store(0, scope.arg::<u8>(1)?.into())?;
        out.store(1, scope.arg::<i16>(2)?.cast_unsigned().into())?;
        out.store(2, scope.arg::<f64>(3)?.to_bits())?;
        out.store(3, scope.arg::<i64>(4)?.cast_unsigned())?;
        let bytes = scope.arg_bytes(5)?;
        for (i, byte) in bytes.iter().enumerate() {
            out.store(4 + i, u64::from(*byte))?;
        }
        if scope.arg_count() != 6 {
            return Err(KernelTrap::new("another number of arguments"));
        }
        Ok(())
    });
    let context = open(&backend(1, [gather]));
    let out = alloc(&*context, 16 * 8);
    let (address, float) = (out.address.to_le_bytes(), (-0.1f64).to_le_bytes());
    let (half, long) = ((-2i16).to_le_bytes(), i64::MIN.to_le_bytes());
    let vector: Vec<u8> = (200..212).collect();
    let args: [&[u8]; 6] = [&address, &[250], &half, &float, &long, &vector];
    Launch::new(kernel(&*context, "gather"), 1, 1, &args)
        .run(&*context)
        .unwrap();
    let bytes = read(&*context, out).unwrap();
    let words: Vec<u64> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    assert_eq!(words[..4], [250, 0xFFFE, (-0.1f64).to_bits(), 1 << 63]);
    assert_eq!(words[4..], (200..212).collect::<Vec<u64>>());
}

#[test]
fn a_kernel_follows_a_pointer_in_memory() {
    let chase = HostKernel::new("chase", KernelSignature::new().buffer(), |scope| {
        let link = scope.buffer::<u64>(0)?.load(0)?;
        scope.memory::<u32>(link)?.store(0, 77)
    });
    let context = open(&backend(1, [chase]));
    let target = buffer_u32(&*context, &[1, 2, 3]);
    let link = alloc(&*context, 8);
    // Into the buffer: its second element.
    write(&*context, link, &(target.address + 4).to_le_bytes());
    let address = link.address.to_le_bytes();
    Launch::new(kernel(&*context, "chase"), 1, 1, &[&address])
        .run(&*context)
        .unwrap();
    assert_eq!(read_u32(&*context, target), [1, 77, 3]);
}

#[test]
fn many_threads_share_one_context() {
    let signature = KernelSignature::new().buffer();
    let increment = HostKernel::new("increment", signature, |scope| {
        let data = scope.buffer::<u32>(0)?;
        scope.for_each_thread(|thread| {
            let i = thread.global_x();
            data.store(i, data.load(i)? + 1)
        })
    });
    let context = open(&backend(3, [increment]));
    let context: &dyn GpuContext = &*context;
    let increment = kernel(context, "increment");
    std::thread::scope(|scope| {
        for number in 0..6u32 {
            scope.spawn(move || {
                let stream = context.create_stream().unwrap();
                for round in 0..20 {
                    let buffer = alloc(context, 400);
                    let pattern = FillPattern::U32(number * 1000 + round);
                    context.fill(stream, whole(buffer), pattern).unwrap();
                    let address = buffer.address.to_le_bytes();
                    for _ in 0..3 {
                        Launch {
                            stream,
                            ..Launch::new(increment, 4, 25, &[&address])
                        }
                        .run(context)
                        .unwrap();
                    }
                    let mut out = [0; 400];
                    context
                        .read(stream, range(buffer, 0, 400), &mut out)
                        .unwrap();
                    let expected = (number * 1000 + round + 3).to_le_bytes();
                    assert!(out.chunks(4).all(|word| word == expected));
                    context.free(buffer.id).unwrap();
                }
                context.destroy_stream(stream).unwrap();
            });
        }
    });
    context.sync(None).unwrap();
    let info = context.memory_info().unwrap();
    assert_eq!((info.live_buffers, info.reserved_bytes), (0, 0));
}
