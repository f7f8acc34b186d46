//! Modules: globals, names, signatures, limits, and what is recorded of launches.

mod common;

use std::sync::{Arc, Mutex};

use common::{Launch, alloc, backend, open, read_u32, vector_add};
use gpu_backend_mock::{
    HostKernel, KernelSignature, MockBackend, MockDevice, Operation, RecordedLaunch,
};
use grafos_host_abi::{
    ArgumentFault, ArgumentProblem, Axis, DeviceLimits, ErrorKind, FillPattern, GpuError,
    ImageFormat, KernelFault, LimitFault, LimitKind, ParamKind, StreamId,
};

#[test]
fn each_module_has_globals_of_its_own() {
    let signature = KernelSignature::new().buffer();
    let bump = HostKernel::new("bump", signature, |scope| {
        let before = scope.global::<u32>("counter")?.atomic_add(1, 5)?;
        scope.buffer::<u32>(0)?.store(0, before)
    });
    let backend = backend(1, [bump]);
    let context = open(&backend);
    let early = context.load_module(&[0; 8]).unwrap().id;
    assert_eq!(
        context.global(early, "counter"),
        Err(GpuError::KernelNotFound(KernelFault {
            name: "counter".into(),
            available: vec![],
        }))
    );
    backend.register_global("counter", 8, &[9, 0, 0, 0, 40]);
    let late = context.load_module(&[0; 8]).unwrap().id;
    let out = alloc(&*context, 4);
    let address = out.address.to_le_bytes();
    let args: [&[u8]; 1] = [&address];
    for (module, launches) in [(early, 3), (late, 1)] {
        let bump = context.kernel(module, "bump").unwrap().id;
        for launch in 0..launches {
            Launch::new(bump, 1, 1, &args).run(&*context).unwrap();
            assert_eq!(read_u32(&*context, out), [40 + launch * 5]);
        }
    }
    let global = context.global(early, "counter").unwrap();
    assert_eq!(global.size_bytes, 8);
    let mut content = [0; 8];
    let target = grafos_host_abi::BufferRange {
        buffer: global.buffer,
        offset_bytes: 0,
        len_bytes: 8,
    };
    context
        .read(StreamId::DEFAULT, target, &mut content)
        .unwrap();
    assert_eq!(content, [9, 0, 0, 0, 55, 0, 0, 0]);
    context
        .fill(StreamId::DEFAULT, target, FillPattern::U32(1))
        .unwrap();
    let bump = context.kernel(early, "bump").unwrap().id;
    Launch::new(bump, 1, 1, &args).run(&*context).unwrap();
    assert_eq!(read_u32(&*context, out), [1]);

    // A global counts as reserved, not as a buffer, and cannot be freed.
    let info = context.memory_info().unwrap();
    assert_eq!(
        (info.live_buffers, info.live_bytes, info.reserved_bytes),
        (1, 4, 20)
    );
    let error = context.free(global.buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidHandle);
    context.unload_module(early).unwrap();
    assert_eq!(context.memory_info().unwrap().reserved_bytes, 12);
    let error = context
        .fill(StreamId::DEFAULT, target, FillPattern::U32(1))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidHandle);
}

#[test]
fn a_module_whose_globals_do_not_fit_is_not_loaded() {
    let backend = MockBackend::builder()
        .device(MockDevice::new().memory_bytes(100))
        .build();
    backend.register_global("a", 60, &[]);
    backend.register_global("b", 60, &[]);
    let context = open(&backend);
    let error = context.load_module(&[0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityExceeded);
    let info = context.memory_info().unwrap();
    assert_eq!((info.reserved_bytes, info.free_bytes), (0, 100));
    assert_eq!(context.close(None).unwrap().live_modules, 0);
}

#[test]
fn what_is_unknown_is_recorded_and_does_nothing_unless_strict() {
    let lenient = backend(1, [vector_add()]);
    let context = open(&lenient);
    let module = context.load_module(&[0; 8]).unwrap();
    assert_eq!(module.format, ImageFormat::Unknown);
    let info = context.kernel(module.id, "k").unwrap();
    assert_eq!(
        (info.name.as_str(), info.params, info.required_block),
        ("k", None, None)
    );
    assert_eq!(info.max_threads_per_block, 1024);
    Launch {
        grid: [2, 3, 4],
        block: [5, 6, 7],
        dynamic_shared_bytes: 8,
        ..Launch::new(info.id, 1, 1, &[&[1, 2, 3], &[], &[4]])
    }
    .run(&*context)
    .unwrap();
    assert_eq!(
        lenient.launches(),
        [RecordedLaunch {
            kernel: "k".into(),
            grid: [2, 3, 4],
            block: [5, 6, 7],
            dynamic_shared_bytes: 8,
            args: vec![vec![1, 2, 3], vec![], vec![4]],
            device_index: 0,
        }]
    );
    assert_eq!(context.poll(), Ok(true));
    lenient.clear_launches();
    assert_eq!(lenient.launches(), []);
    assert_eq!(lenient.calls(Operation::Launch), 1);

    let strict = MockBackend::builder()
        .strict(true)
        .kernel(vector_add())
        .build();
    let context = open(&strict);
    let error = context.load_module(&[0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule);
    let module = context.load_module(b".version 7.0\n").unwrap();
    assert_eq!(
        context.kernel(module.id, "k"),
        Err(GpuError::KernelNotFound(KernelFault {
            name: "k".into(),
            available: vec!["vector_add".into()],
        }))
    );
}

#[test]
fn names_that_no_kernel_has_are_refused_in_every_mode() {
    for strict in [false, true] {
        let backend = MockBackend::builder()
            .strict(strict)
            .kernel(vector_add())
            .build();
        let context = open(&backend);
        let module = context.load_module(b".version 7.0\n").unwrap().id;
        for name in ["", "\0", "vector_add\0", "a\0b"] {
            assert_eq!(
                context.kernel(module, name),
                Err(GpuError::KernelNotFound(KernelFault {
                    name: name.into(),
                    available: vec!["vector_add".into()],
                }))
            );
        }
    }
}

#[test]
fn kernels_are_listed_sorted_and_resolve_to_one_id() {
    let noop = |name: &str| HostKernel::new(name, KernelSignature::new(), |_| Ok(()));
    let backend = backend(1, [noop("b"), noop("kärnel"), noop("a")]);
    let context = open(&backend);
    let module = context.load_module(&[0; 8]).unwrap().id;
    assert_eq!(context.kernel_names(module).unwrap(), ["a", "b", "kärnel"]);
    let first = context.kernel(module, "kärnel").unwrap();
    assert_eq!(context.kernel(module, "kärnel").unwrap(), first);
    backend.register_kernel(noop("c"));
    assert_eq!(
        context.kernel_names(module).unwrap(),
        ["a", "b", "c", "kärnel"]
    );
    let other = context.load_module(&[0; 8]).unwrap().id;
    assert_ne!(context.kernel(other, "kärnel").unwrap().id, first.id);
}

#[test]
fn signatures_are_reported_and_enforced() {
    let context = open(&backend(1, [vector_add()]));
    let module = context.load_module(&[0; 8]).unwrap().id;
    let info = context.kernel(module, "vector_add").unwrap();
    let params = info.params.unwrap();
    let kinds: Vec<_> = params
        .iter()
        .map(|it| (it.kind, it.size_bytes, it.offset_bytes))
        .collect();
    assert_eq!(
        kinds,
        [
            (ParamKind::Address, 8, 0),
            (ParamKind::Address, 8, 8),
            (ParamKind::Address, 8, 16),
            (ParamKind::Value, 4, 24)
        ]
    );
    let mismatch = |problem| {
        Err(GpuError::ArgumentMismatch(ArgumentFault {
            kernel: "vector_add".into(),
            problem,
        }))
    };
    let address = [0; 8];
    let short: [&[u8]; 3] = [&address; 3];
    assert_eq!(
        Launch::new(info.id, 1, 1, &short).run(&*context),
        mismatch(ArgumentProblem::Count {
            expected: 4,
            given: 3
        })
    );
    let wide: [&[u8]; 4] = [&address; 4];
    assert_eq!(
        Launch::new(info.id, 1, 1, &wide).run(&*context),
        mismatch(ArgumentProblem::Size {
            index: 3,
            expected: 4,
            given: 8
        })
    );
}

#[test]
fn limits_of_device_and_kernel_are_enforced_exactly() {
    let ran = Arc::new(Mutex::new(0u64));
    let counter = Arc::clone(&ran);
    let signature = KernelSignature::unknown();
    let count = HostKernel::new("count", signature.clone(), move |scope| {
        *counter.lock().unwrap() += scope.threads() as u64;
        Ok(())
    });
    let fixed = HostKernel::new("fixed", signature.clone(), |_| Ok(()))
        .required_block([8, 2, 1])
        .static_shared_bytes(1000);
    let huge = HostKernel::new("huge", signature.clone(), |_| Ok(())).static_shared_bytes(2049);
    let wide = HostKernel::new("wide", signature, |_| Ok(())).required_block([65, 1, 1]);
    let limits = DeviceLimits {
        max_grid: [7, 5, 3],
        max_block: [64, 8, 4],
        max_threads_per_block: 64,
        max_shared_memory_bytes: 2048,
        max_argument_bytes: 16,
        max_allocation_bytes: u64::MAX,
    };
    let backend = [count, fixed, huge, wide].into_iter().fold(
        MockBackend::builder().device(MockDevice::new().limits(limits)),
        |builder, kernel| builder.kernel(kernel),
    );
    let context = open(&backend.build());
    let module = context.load_module(&[0; 8]).unwrap().id;
    let count = context.kernel(module, "count").unwrap().id;
    let fault = |kernel: &str, what, axis, requested, limit| {
        Err(GpuError::LaunchLimits(LimitFault {
            kernel: kernel.into(),
            what,
            axis,
            requested,
            limit,
        }))
    };
    let launch = |kernel, grid, block, dynamic_shared_bytes, arg: &[u8]| {
        Launch {
            grid,
            block,
            dynamic_shared_bytes,
            ..Launch::new(kernel, 1, 1, &[arg])
        }
        .run(&*context)
    };
    assert_eq!(launch(count, [7, 5, 3], [8, 8, 1], 2048, &[0; 16]), Ok(()));
    context.sync(None).unwrap();
    assert_eq!(*ran.lock().unwrap(), 7 * 5 * 3 * 64);

    let one = [1, 1, 1];
    let grid = LimitKind::GridBlocks;
    assert_eq!(
        launch(count, [8, 1, 1], one, 0, &[]),
        fault("count", grid, Some(Axis::X), 8, 7)
    );
    assert_eq!(
        launch(count, [1, 6, 1], one, 0, &[]),
        fault("count", grid, Some(Axis::Y), 6, 5)
    );
    assert_eq!(
        launch(count, [1, 1, 4], one, 0, &[]),
        fault("count", grid, Some(Axis::Z), 4, 3)
    );
    assert_eq!(
        launch(count, one, [1, 9, 1], 0, &[]),
        fault("count", LimitKind::BlockThreads, Some(Axis::Y), 9, 8)
    );
    assert_eq!(
        launch(count, one, [33, 2, 1], 0, &[]),
        fault("count", LimitKind::ThreadsPerBlock, None, 66, 64)
    );
    assert_eq!(
        launch(count, one, one, 2049, &[]),
        fault("count", LimitKind::DynamicSharedMemory, None, 2049, 2048)
    );
    assert_eq!(
        launch(count, one, one, 0, &[0; 17]),
        fault("count", LimitKind::ArgumentBytes, None, 17, 16)
    );
    for (grid, block) in [([0, 1, 1], one), (one, [1, 1, 0])] {
        let error = launch(count, grid, block, 0, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("is 0"), "{error}");
    }

    let fixed = context.kernel(module, "fixed").unwrap();
    assert_eq!(fixed.required_block, Some([8, 2, 1]));
    assert_eq!(
        (fixed.max_threads_per_block, fixed.static_shared_bytes),
        (16, 1000)
    );
    assert_eq!(fixed.max_dynamic_shared_bytes, 1048);
    assert_eq!(launch(fixed.id, one, [8, 2, 1], 1048, &[]), Ok(()));
    assert_eq!(
        launch(fixed.id, one, [8, 1, 1], 0, &[]),
        fault("fixed", LimitKind::RequiredBlock, Some(Axis::Y), 1, 2)
    );
    assert_eq!(
        context.kernel(module, "huge").map(|_| ()),
        fault("huge", LimitKind::SharedMemory, None, 2049, 2048)
    );
    assert_eq!(
        context.kernel(module, "wide").map(|_| ()),
        fault("wide", LimitKind::BlockThreads, Some(Axis::X), 65, 64)
    );
}

#[test]
fn capabilities_that_a_device_lacks_are_refused() {
    let mut capabilities = MockDevice::default_capabilities();
    capabilities.streams = false;
    capabilities.module_globals = false;
    capabilities.event_timing = false;
    capabilities.dynamic_shared_memory = false;
    let device = MockDevice::new().capabilities(capabilities);
    let context = open(&MockBackend::builder().device(device).build());
    let module = context.load_module(&[0; 8]).unwrap().id;
    assert_eq!(
        context
            .kernel(module, "k")
            .unwrap()
            .max_dynamic_shared_bytes,
        0
    );
    let event = context.create_event().unwrap();
    context.record_event(event, StreamId::DEFAULT).unwrap();
    let mut used = false;
    let errors = [
        context.create_stream().unwrap_err(),
        context.global(module, "g").unwrap_err(),
        context.elapsed_ns(event, event).unwrap_err(),
        context
            .with_native(StreamId::DEFAULT, &[], &mut |_| used = true)
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    assert!(!used);
}
