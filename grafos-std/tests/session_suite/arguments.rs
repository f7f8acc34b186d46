//! Launch arguments: what does not match is refused by name, what matches arrives bit by bit.

use grafos_kernels::reference;
use grafos_std::FabricError;
use grafos_std::error::{ArgumentFault, ArgumentProblem, ErrorKind};
use grafos_std::gpu::{GpuMemHandle, GpuSession, KernelArgs, LaunchConfig};

use crate::target::{
    Must, Numbers, Target, Unsupported, download, ensure_kind, ensure_same, image, refused, upload,
};

crate::cases!("arguments":
    a_wrong_count_is_refused,
    a_wrong_size_is_refused,
    sizes_that_do_not_add_up_are_refused,
    scalars_arrive_bit_by_bit,
    wide_scalars_arrive_bit_by_bit,
    structs_arrive_bit_by_bit,
    bound_buffers_and_values_may_interleave,
    a_scalar_is_no_buffer,
    a_value_too_many_is_no_buffer,
    a_bound_buffer_can_be_a_part_of_one,
    a_buffer_of_no_bytes_cannot_be_bound,
    a_freed_buffer_cannot_be_bound,
);

const ONE: [u32; 3] = [1, 1, 1];

#[track_caller]
fn ensure_problem(error: FabricError, kernel: &str, problem: ArgumentProblem) {
    let fault = ArgumentFault {
        kernel: kernel.into(),
        problem,
    };
    assert_eq!(error, FabricError::ArgumentMismatch(fault));
}

/// The session and the buffers of a `vector_add` that must not run.
struct Untouched {
    session: GpuSession,
    _lease: grafos_std::gpu::GpuLease,
    a: GpuMemHandle,
    b: GpuMemHandle,
    c: GpuMemHandle,
}

impl Untouched {
    fn new(target: &Target) -> Self {
        let (lease, session) = target.session();
        let [a, b, c] = [1.0f32, 2.0, -1.0].map(|value| upload(&session, &[value; 4]));
        Self {
            session,
            _lease: lease,
            a,
            b,
            c,
        }
    }

    fn check(&self) {
        self.session.sync().must();
        assert_eq!(
            download::<f32>(&self.session, &self.c),
            [-1.0; 4],
            "memory was touched"
        );
    }
}

fn a_wrong_count_is_refused(target: &Target) -> Result<(), Unsupported> {
    let it = Untouched::new(target);
    for name in ["vector_add", "vector_add_descriptor"] {
        let module = it.session.module_load(image(name)).must();
        let three = KernelArgs::new()
            .push_buffer(&it.a)
            .push_buffer(&it.b)
            .push_buffer(&it.c);
        let five = three.clone().push_u32(4).push_u32(4);
        for (args, given) in [(KernelArgs::new(), 0), (three, 3), (five, 5)] {
            let answer = it
                .session
                .launch_with_args(&module, name, ONE, [64, 1, 1], args);
            let problem = ArgumentProblem::Count { expected: 4, given };
            ensure_problem(refused(answer), name, problem);
        }
    }
    it.check();
    Ok(())
}

fn a_wrong_size_is_refused(target: &Target) -> Result<(), Unsupported> {
    let it = Untouched::new(target);
    let module = it.session.module_load(image("vector_add")).must();
    let addresses = [&it.a, &it.b, &it.c].map(|buffer| buffer.raw().to_le_bytes().to_vec());
    let right: Vec<Vec<u8>> = addresses
        .into_iter()
        .chain([4u32.to_le_bytes().to_vec()])
        .collect();
    for index in 0..4 {
        let expected = right[index].len() as u64;
        for given in [0usize, 1, 4, 7, 8, 9, 16] {
            if given as u64 == expected {
                continue;
            }
            let mut wrong = right.clone();
            wrong[index].resize(given, 0);
            let args = wrong
                .iter()
                .fold(KernelArgs::new(), |args, bytes| args.push_bytes(bytes));
            let answer = it
                .session
                .launch_with_args(&module, "vector_add", ONE, [4, 1, 1], args);
            let problem = ArgumentProblem::Size {
                index: index as u32,
                expected,
                given: given as u64,
            };
            ensure_problem(refused(answer), "vector_add", problem);
        }
    }
    it.check();
    Ok(())
}

fn sizes_that_do_not_add_up_are_refused(target: &Target) -> Result<(), Unsupported> {
    let it = Untouched::new(target);
    let module = it.session.module_load(image("vector_add")).must();
    let args = KernelArgs::new()
        .push_buffer(&it.a)
        .push_buffer(&it.b)
        .push_buffer(&it.c)
        .push_u32(4);
    let (bytes, sizes) = args.build();
    let cases: [(&[u8], &[u32]); 4] = [
        (&bytes[..27], &sizes),
        (&bytes, &sizes[..3]),
        (&[], &sizes),
        (&bytes, &[8, 8, 8, u32::MAX]),
    ];
    for (bytes, sizes) in cases {
        let answer = it
            .session
            .launch(&module, "vector_add", ONE, [4, 1, 1], bytes, sizes);
        let expected = sizes.iter().map(|size| u64::from(*size)).sum();
        let problem = ArgumentProblem::TotalBytes {
            expected,
            given: bytes.len() as u64,
        };
        ensure_problem(refused(answer), "vector_add", problem);
    }
    it.check();
    it.session
        .launch(&module, "vector_add", ONE, [4, 1, 1], &bytes, &sizes)
        .must();
    assert_eq!(download::<f32>(&it.session, &it.c), [3.0; 4]);
    Ok(())
}

fn scalars_arrive_bit_by_bit(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "echo_scalars")?;
    for (a, b, c) in [
        (i32::MIN, u32::MAX, -0.0),
        (-1, 0x0102_0304, f32::MAX),
        (0, 0, 1.5),
    ] {
        let words = upload(&session, &[9u32; 3]);
        let args = KernelArgs::new()
            .push_buffer(&words)
            .push_i32(a)
            .push_u32(b)
            .push_f32(c);
        kernel.launch(LaunchConfig::new(ONE, ONE), &args).must();
        assert_eq!(
            download::<u32>(&session, &words),
            reference::echo_scalars(a, b, c)
        );
    }
    Ok(())
}

fn wide_scalars_arrive_bit_by_bit(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "echo_wide")?;
    for (a, b, c) in [(i64::MIN, u64::MAX, -0.0), (-2, 0x0102_0304_0506_0708, 0.1)] {
        let words = upload(&session, &[9u32; 6]);
        let args = KernelArgs::new()
            .push_buffer(&words)
            .push_i64(a)
            .push_u64(b)
            .push_f64(c);
        kernel.launch(LaunchConfig::new(ONE, ONE), &args).must();
        assert_eq!(
            download::<u32>(&session, &words),
            reference::echo_wide(a, b, c)
        );
    }
    Ok(())
}

fn structs_arrive_bit_by_bit(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "echo_struct")?;
    let (v3, tail) = ([1.5f32, -2.25, 1.0e-30], 0.125f32);
    let (v4, last) = ([-0.0f32, 3.0e30, 7.0, 8.5], 0xFEDC_BA98);
    let bytes = |values: &[f32]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let words = upload(&session, &[9u32; 9]);
    // 12 bytes aligned to 16, then 4, then 16 aligned to 16: the gaps are the kernel's own.
    let args = KernelArgs::new()
        .push_buffer(&words)
        .push_bytes(&bytes(&v3))
        .push_f32(tail)
        .push_bytes(&bytes(&v4))
        .push_u32(last);
    kernel.launch(LaunchConfig::new(ONE, ONE), &args).must();
    let expected = reference::echo_struct(v3, tail, v4, last);
    ensure_same("words", &download::<u32>(&session, &words), &expected);
    Ok(())
}

fn bound_buffers_and_values_may_interleave(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, add) = target.kernel(&session, "vector_add_descriptor")?;
    let (a, b) = (Numbers(1).floats(100), Numbers(2).floats(100));
    let (da, db) = (upload(&session, &a), upload(&session, &b));
    for position in 0..4 {
        let dc = upload(&session, &[f32::NAN; 100]);
        let mut args = KernelArgs::new();
        for index in 0..4 {
            if index == position {
                args = args.push_u32(100);
            }
            if let Some(buffer) = [&da, &db, &dc].get(index) {
                args = args.push_buffer(buffer);
            }
        }
        add.launch(LaunchConfig::linear(100, 64), &args).must();
        let what = format!("n at position {position}");
        ensure_same(
            &what,
            &download::<f32>(&session, &dc),
            &reference::vector_add(&a, &b),
        );
    }
    let (_module, scale) = target.kernel(&session, "scale_descriptor")?;
    let out = || upload(&session, &[f32::NAN; 100]);
    for order in 0..3 {
        let target = out();
        let args = match order {
            0 => KernelArgs::new()
                .push_f32(3.5)
                .push_buffer(&da)
                .push_u32(100)
                .push_buffer(&target),
            1 => KernelArgs::new()
                .push_buffer(&da)
                .push_f32(3.5)
                .push_buffer(&target)
                .push_u32(100),
            _ => KernelArgs::new()
                .push_f32(3.5)
                .push_u32(100)
                .push_buffer(&da)
                .push_buffer(&target),
        };
        scale.launch(LaunchConfig::linear(100, 64), &args).must();
        let what = format!("order {order}");
        ensure_same(
            &what,
            &download::<f32>(&session, &target),
            &reference::scale(3.5, &a),
        );
    }
    Ok(())
}

fn a_scalar_is_no_buffer(target: &Target) -> Result<(), Unsupported> {
    let it = Untouched::new(target);
    let module = it
        .session
        .module_load(image("vector_add_descriptor"))
        .must();
    let past_the_end = it.b.raw() + it.b.size_bytes();
    for (index, address) in [(0, 0), (1, 0x1234), (2, u64::MAX), (1, past_the_end)] {
        let mut args = KernelArgs::new();
        for position in 0..3 {
            let buffer = [&it.a, &it.b, &it.c][position];
            args = if position == index {
                args.push_u64(address)
            } else {
                args.push_buffer(buffer)
            };
        }
        let answer = it.session.launch_with_args(
            &module,
            "vector_add_descriptor",
            ONE,
            [64, 1, 1],
            args.push_u32(4),
        );
        let problem = ArgumentProblem::NotABuffer {
            index: index as u32,
            address,
        };
        ensure_problem(refused(answer), "vector_add_descriptor", problem);
    }
    it.check();
    Ok(())
}

fn a_value_too_many_is_no_buffer(target: &Target) -> Result<(), Unsupported> {
    let it = Untouched::new(target);
    let module = it
        .session
        .module_load(image("vector_add_descriptor"))
        .must();
    let args = KernelArgs::new()
        .push_buffer(&it.a)
        .push_buffer(&it.b)
        .push_u32(4)
        .push_u32(4);
    let answer =
        it.session
            .launch_with_args(&module, "vector_add_descriptor", ONE, [64, 1, 1], args);
    let problem = ArgumentProblem::Size {
        index: 3,
        expected: 8,
        given: 4,
    };
    ensure_problem(refused(answer), "vector_add_descriptor", problem);
    it.check();
    Ok(())
}

fn a_bound_buffer_can_be_a_part_of_one(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, scale) = target.kernel(&session, "scale_descriptor")?;
    let source = Numbers(1).floats(200);
    let data = upload(&session, &source);
    let out = upload(&session, &[0.0f32; 200]);
    let launch = |offset: u64| {
        let args = KernelArgs::new()
            .push_u64(data.raw() + offset)
            .push_u64(out.raw() + offset)
            .push_f32(2.0)
            .push_u32(10);
        scale.launch(LaunchConfig::linear(10, 64), &args)
    };
    // 256 bytes is the largest alignment that a device may ask for.
    launch(256).must();
    let mut expected = vec![0.0; 200];
    expected[64..74].copy_from_slice(&reference::scale(2.0, &source[64..74]));
    ensure_same("target", &download::<f32>(&session, &out), &expected);
    match launch(4) {
        Ok(()) => {
            expected[1..11].copy_from_slice(&reference::scale(2.0, &source[1..11]));
        }
        Err(FabricError::ArgumentMismatch(ArgumentFault {
            problem:
                ArgumentProblem::Misaligned {
                    index: 0,
                    address,
                    align_bytes,
                },
            ..
        })) => {
            assert_eq!(address, data.raw() + 4);
            assert!(align_bytes > 4, "{align_bytes}");
        }
        Err(other) => panic!("{other:?}"),
    }
    ensure_same("target", &download::<f32>(&session, &out), &expected);
    Ok(())
}

fn a_buffer_of_no_bytes_cannot_be_bound(target: &Target) -> Result<(), Unsupported> {
    let it = Untouched::new(target);
    let module = it
        .session
        .module_load(image("vector_add_descriptor"))
        .must();
    let empty = it.session.mem_alloc(0).must();
    let args = KernelArgs::new()
        .push_buffer(&it.a)
        .push_buffer(&empty)
        .push_buffer(&it.c)
        .push_u32(0);
    let answer =
        it.session
            .launch_with_args(&module, "vector_add_descriptor", ONE, [64, 1, 1], args);
    let error = ensure_kind("an empty buffer", answer, ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("argument 1"), "{error}");
    it.check();
    Ok(())
}

fn a_freed_buffer_cannot_be_bound(target: &Target) -> Result<(), Unsupported> {
    let it = Untouched::new(target);
    let module = it
        .session
        .module_load(image("vector_add_descriptor"))
        .must();
    let freed = it.session.mem_alloc(16).must();
    let address = freed.raw();
    drop(freed);
    let args = KernelArgs::new()
        .push_u64(address)
        .push_buffer(&it.b)
        .push_buffer(&it.c)
        .push_u32(4);
    let answer =
        it.session
            .launch_with_args(&module, "vector_add_descriptor", ONE, [64, 1, 1], args);
    let problem = ArgumentProblem::NotABuffer { index: 0, address };
    ensure_problem(refused(answer), "vector_add_descriptor", problem);
    it.check();
    Ok(())
}
