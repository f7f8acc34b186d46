//! Every kernel through the session API, compared with plain CPU references.

use grafos_kernels::{Style, reference};
use grafos_std::gpu::{GpuSession, KernelArgs, LaunchConfig, ParamKind};

use crate::target::{
    Must, Numbers, Target, Unsupported, download, ensure_same, image, kernel, upload,
};

crate::cases!("compute":
    vector_add,
    vector_add_in_descriptors,
    vector_add_by_local_size_id,
    saxpy,
    fill,
    the_five_stream_kernels,
    stream_dot,
    reduce_sum,
    histogram,
    matmul_tiled,
    stencil_5point,
    increments,
    shared_rotate,
    triad_in_double_precision,
    scale_in_descriptors,
    write_index_over_three_axes,
    long_running,
    signatures_are_those_of_the_manifest,
    every_kernel_is_known_to_its_module,
    launches_run_in_order,
);

/// Not a multiple of any block.
const LEN: usize = 10_007;

fn linear(threads: usize, block: u32) -> LaunchConfig {
    LaunchConfig::linear(threads as u64, block)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn add(target: &Target, name: &str, block: u32) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, name)?;
    let (a, b) = (Numbers(1).floats(LEN), Numbers(2).floats(LEN));
    let (da, db) = (upload(&session, &a), upload(&session, &b));
    let dc = upload(&session, &vec![f32::NAN; LEN + 1]);
    let args = KernelArgs::new()
        .push_buffer(&da)
        .push_buffer(&db)
        .push_buffer(&dc)
        .push_u32(LEN as u32);
    kernel.launch(linear(LEN, block), &args).must();
    let found = download::<f32>(&session, &dc);
    ensure_same(name, &found[..LEN], &reference::vector_add(&a, &b));
    assert!(found[LEN].is_nan(), "{name} wrote past n");
    Ok(())
}

fn vector_add(target: &Target) -> Result<(), Unsupported> {
    for block in [64, 1, 33, 128] {
        add(target, "vector_add", block)?;
    }
    Ok(())
}

fn vector_add_in_descriptors(target: &Target) -> Result<(), Unsupported> {
    add(target, "vector_add_descriptor", 64)
}

fn vector_add_by_local_size_id(target: &Target) -> Result<(), Unsupported> {
    add(target, "vector_add_local_size_id", 96)
}

fn saxpy(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "saxpy")?;
    let (x, y) = (Numbers(1).floats(LEN), Numbers(2).floats(LEN));
    let (dx, dy) = (upload(&session, &x), upload(&session, &y));
    let args = KernelArgs::new()
        .push_f32(2.5)
        .push_buffer(&dx)
        .push_buffer(&dy)
        .push_u32(LEN as u32);
    kernel.launch(linear(LEN, 64), &args).must();
    ensure_same(
        "y",
        &download::<f32>(&session, &dy),
        &reference::saxpy(2.5, &x, &y),
    );
    ensure_same("x", &download::<f32>(&session, &dx), &x);
    Ok(())
}

fn fill(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "fill")?;
    let data = upload(&session, &vec![9u32; LEN]);
    let args = KernelArgs::new()
        .push_buffer(&data)
        .push_u32(0xDEAD_BEEF)
        .push_u32(LEN as u32 - 5);
    kernel.launch(linear(LEN, 128), &args).must();
    let mut expected = vec![0xDEAD_BEEF; LEN - 5];
    expected.extend([9; 5]);
    ensure_same("target", &download::<u32>(&session, &data), &expected);
    Ok(())
}

fn the_five_stream_kernels(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let n = LEN as u32;
    let (a, b, c) = (
        Numbers(1).floats(LEN),
        Numbers(2).floats(LEN),
        Numbers(3).floats(LEN),
    );
    let (da, db, dc) = (
        upload(&session, &a),
        upload(&session, &b),
        upload(&session, &c),
    );
    let out = || upload(&session, &vec![f32::NAN; LEN]);
    let launch = |name: &str, args: KernelArgs| -> Result<(), Unsupported> {
        let (_module, kernel) = target.kernel(&session, name)?;
        kernel.launch(linear(LEN, 64), &args).must();
        Ok(())
    };
    let args = KernelArgs::new;
    let copy = out();
    launch(
        "stream_copy",
        args().push_buffer(&da).push_buffer(&copy).push_u32(n),
    )?;
    ensure_same("copy", &download::<f32>(&session, &copy), &a);
    let mul = out();
    launch(
        "stream_mul",
        args()
            .push_buffer(&mul)
            .push_buffer(&dc)
            .push_f32(0.4)
            .push_u32(n),
    )?;
    ensure_same(
        "mul",
        &download::<f32>(&session, &mul),
        &reference::scale(0.4, &c),
    );
    let sum = out();
    launch(
        "stream_add",
        args()
            .push_buffer(&da)
            .push_buffer(&db)
            .push_buffer(&sum)
            .push_u32(n),
    )?;
    ensure_same(
        "add",
        &download::<f32>(&session, &sum),
        &reference::vector_add(&a, &b),
    );
    let triad = out();
    let triad_args = args()
        .push_buffer(&triad)
        .push_buffer(&db)
        .push_buffer(&dc)
        .push_f32(0.4)
        .push_u32(n);
    launch("stream_triad", triad_args)?;
    let expected = reference::stream_triad(&b, &c, 0.4);
    ensure_same("triad", &download::<f32>(&session, &triad), &expected);
    Ok(())
}

fn stream_dot(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "stream_dot")?;
    let (a, b) = (Numbers(1).whole_floats(LEN), Numbers(2).whole_floats(LEN));
    let (da, db) = (upload(&session, &a), upload(&session, &b));
    let partials = upload(&session, &[f32::NAN; 7]);
    let args = KernelArgs::new()
        .push_buffer(&da)
        .push_buffer(&db)
        .push_buffer(&partials)
        .push_u32(LEN as u32);
    kernel
        .launch(LaunchConfig::new([7, 1, 1], [256, 1, 1]), &args)
        .must();
    let found = download::<f32>(&session, &partials);
    ensure_same(
        "partials",
        &found,
        &reference::stream_dot_partials(&a, &b, 7),
    );
    let total: f64 = found.iter().map(|partial| f64::from(*partial)).sum();
    assert_eq!(total, reference::dot(&a, &b));
    Ok(())
}

fn reduce_sum(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "reduce_sum")?;
    let source = Numbers(1).whole_floats(LEN);
    let data = upload(&session, &source);
    for blocks in [1u32, 2, 13] {
        let partials = upload(&session, &vec![f32::NAN; blocks as usize]);
        let args = KernelArgs::new()
            .push_buffer(&data)
            .push_buffer(&partials)
            .push_u32(LEN as u32);
        kernel
            .launch(LaunchConfig::new([blocks, 1, 1], [256, 1, 1]), &args)
            .must();
        let found = download::<f32>(&session, &partials);
        let expected = reference::reduce_sum_partials(&source, blocks as usize);
        ensure_same("partials", &found, &expected);
        let total: f64 = found.iter().map(|partial| f64::from(*partial)).sum();
        assert_eq!(
            total,
            source.iter().map(|value| f64::from(*value)).sum::<f64>()
        );
    }
    Ok(())
}

fn histogram(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "histogram")?;
    let source: Vec<u32> = Numbers(1).words(LEN).iter().map(|word| word % 40).collect();
    let data = upload(&session, &source);
    let bins = upload(&session, &[0u32; 33]);
    let args = KernelArgs::new()
        .push_buffer(&data)
        .push_buffer(&bins)
        .push_u32(LEN as u32)
        .push_u32(32);
    kernel.launch(linear(LEN, 64), &args).must();
    let found = download::<u32>(&session, &bins);
    ensure_same("bins", &found[..32], &reference::histogram(&source, 32));
    assert_eq!(found[32], 0, "values past the bins are not counted");
    Ok(())
}

fn matmul_tiled(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "matmul_tiled")?;
    for (m, n, k) in [(16, 16, 16), (33, 50, 17), (1, 70, 5)] {
        let (a, b) = (
            Numbers(1).whole_floats(m * k),
            Numbers(2).whole_floats(k * n),
        );
        let (da, db) = (upload(&session, &a), upload(&session, &b));
        let dc = upload(&session, &vec![f32::NAN; m * n]);
        let args = KernelArgs::new()
            .push_buffer(&da)
            .push_buffer(&db)
            .push_buffer(&dc)
            .push_u32(m as u32)
            .push_u32(n as u32)
            .push_u32(k as u32);
        let grid = [n.div_ceil(16) as u32, m.div_ceil(16) as u32, 1];
        kernel
            .launch(LaunchConfig::new(grid, [16, 16, 1]), &args)
            .must();
        let expected = reference::matmul(&a, &b, m, n, k);
        ensure_same("c", &download::<f32>(&session, &dc), &expected);
    }
    Ok(())
}

fn stencil_5point(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "stencil_5point")?;
    let (width, height) = (57, 23);
    let source = Numbers(1).floats(width * height);
    let data = upload(&session, &source);
    let out = upload(&session, &vec![f32::NAN; width * height]);
    let args = KernelArgs::new()
        .push_buffer(&data)
        .push_buffer(&out)
        .push_u32(width as u32)
        .push_u32(height as u32)
        .push_f32(0.5)
        .push_f32(0.125);
    let grid = [width.div_ceil(8) as u32, height.div_ceil(4) as u32, 1];
    kernel
        .launch(LaunchConfig::new(grid, [8, 4, 1]), &args)
        .must();
    let expected = reference::stencil_5point(&source, width, height, 0.5, 0.125);
    ensure_same("target", &download::<f32>(&session, &out), &expected);
    Ok(())
}

fn increments(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let mut model = Numbers(1).words(1000);
    model[999] = u32::MAX;
    let data = upload(&session, &model);
    for name in ["increment", "increment_x_only"] {
        let (_module, kernel) = target.kernel(&session, name)?;
        let args = KernelArgs::new().push_buffer(&data).push_u32(1000);
        kernel.launch(linear(1000, 32), &args).must();
        model = reference::increment(&model);
        ensure_same(name, &download::<u32>(&session, &data), &model);
    }
    Ok(())
}

fn shared_rotate(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "shared_rotate")?;
    let model = Numbers(1).words(640);
    let data = upload(&session, &model);
    let config = LaunchConfig::new([10, 1, 1], [64, 1, 1]);
    kernel
        .launch(config, &KernelArgs::new().push_buffer(&data))
        .must();
    ensure_same(
        "data",
        &download::<u32>(&session, &data),
        &reference::shared_rotate(&model),
    );
    Ok(())
}

fn triad_in_double_precision(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "triad_f64")?;
    let wide = |seed| -> Vec<f64> {
        let mut numbers = Numbers(seed);
        (0..999).map(|_| numbers.next() as f64 / 3.0e9).collect()
    };
    let (b, c) = (wide(1), wide(2));
    let (db, dc) = (upload(&session, &b), upload(&session, &c));
    let da = upload(&session, &[f64::NAN; 999]);
    let args = KernelArgs::new()
        .push_buffer(&da)
        .push_buffer(&db)
        .push_buffer(&dc)
        .push_f64(0.1)
        .push_u32(999);
    kernel.launch(linear(999, 64), &args).must();
    ensure_same(
        "a",
        &download::<f64>(&session, &da),
        &reference::triad_f64(&b, &c, 0.1),
    );
    Ok(())
}

fn scale_in_descriptors(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "scale_descriptor")?;
    let source = Numbers(1).floats(LEN);
    let data = upload(&session, &source);
    let out = upload(&session, &vec![f32::NAN; LEN]);
    let args = KernelArgs::new()
        .push_buffer(&data)
        .push_buffer(&out)
        .push_f32(1.5)
        .push_u32(LEN as u32);
    kernel.launch(linear(LEN, 64), &args).must();
    ensure_same(
        "target",
        &download::<f32>(&session, &out),
        &reference::scale(1.5, &source),
    );
    Ok(())
}

fn write_index_over_three_axes(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "write_index")?;
    for (grid, block) in [
        ([2, 3, 5], [4, 2, 1]),
        ([1, 1, 1], [1, 1, 1]),
        ([3, 1, 2], [1, 5, 3]),
    ] {
        let expected = reference::write_index(grid, block);
        let out = upload(&session, &vec![0u32; expected.len()]);
        let args = KernelArgs::new()
            .push_buffer(&out)
            .push_u32(expected.len() as u32);
        kernel.launch(LaunchConfig::new(grid, block), &args).must();
        let what = format!("grid {grid:?}, block {block:?}");
        ensure_same(&what, &download::<u32>(&session, &out), &expected);
    }
    Ok(())
}

fn long_running(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "long_running")?;
    let out = upload(&session, &[0u32; 128]);
    let args = KernelArgs::new().push_buffer(&out).push_u32(777);
    kernel
        .launch(LaunchConfig::new([4, 1, 1], [32, 1, 1]), &args)
        .must();
    let expected: Vec<u32> = (0..128)
        .map(|index| reference::long_running(index, 777))
        .collect();
    ensure_same("target", &download::<u32>(&session, &out), &expected);
    Ok(())
}

fn signatures_are_those_of_the_manifest(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    for listed in grafos_kernels::all() {
        // What the device cannot run is another case's business.
        let Ok(module) = session.module_load(listed.spirv) else {
            continue;
        };
        let Ok(found) = session.kernel(&module, listed.name) else {
            continue;
        };
        let info = found.info();
        assert_eq!(info.name, listed.name);
        let params = info.params.as_deref().unwrap_or_default();
        assert_eq!(params.len(), listed.params.len(), "{}", listed.name);
        for (param, expected) in params.iter().zip(listed.params) {
            assert_eq!(param.size_bytes, expected.size_bytes, "{}", listed.name);
            if let grafos_kernels::Slot::PushConstant { offset_bytes } = expected.slot {
                assert_eq!(param.offset_bytes, offset_bytes, "{}", listed.name);
            }
            let bound = listed.style == Style::Descriptor
                && expected.kind == grafos_kernels::ParamKind::Buffer;
            assert_eq!(
                param.kind == ParamKind::BoundBuffer,
                bound,
                "{}",
                listed.name
            );
        }
        match listed.block {
            grafos_kernels::Block::Fixed(block) => {
                assert_eq!(info.required_block, Some(block), "{}", listed.name);
            }
            grafos_kernels::Block::Specialized { .. } => {
                assert!(info.max_threads_per_block >= 1, "{}", listed.name);
            }
        }
    }
    Ok(())
}

fn every_kernel_is_known_to_its_module(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    for name in ["vector_add", "vector_add_descriptor", "reduce_sum"] {
        let module = session.module_load(image(name)).must();
        let names = session.kernel_names(&module).must();
        assert!(
            names.iter().any(|known| known == name),
            "{name} is not in {names:?}"
        );
        assert!(names.is_sorted(), "{names:?}");
        let (first, second) = (
            session.kernel(&module, name).must(),
            session.kernel(&module, name).must(),
        );
        assert_eq!(first.info(), second.info());
    }
    Ok(())
}

fn launch_increments(session: &GpuSession, target: &Target, rounds: u32) -> Vec<u32> {
    let data = upload(session, &[0u32; 300]);
    let module = session.module_load(kernel("increment").spirv).must();
    let resolved = session.kernel(&module, "increment").must();
    let args = KernelArgs::new().push_buffer(&data).push_u32(300);
    for _ in 0..rounds {
        resolved.launch(linear(300, 32), &args).must();
    }
    assert!(target.limits().max_grid[0] >= 10);
    download(session, &data)
}

fn launches_run_in_order(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    ensure_same(
        "1000 increments",
        &launch_increments(&session, target, 1000),
        &[1000; 300],
    );
    // Each step depends on the one before: the result tells of any that ran too early.
    let (a, b) = (
        upload(&session, &[1.0f32; 100]),
        upload(&session, &[0.0f32; 100]),
    );
    let (_module, saxpy) = target.kernel(&session, "saxpy")?;
    let (mut x, mut y) = (1.0f32, 0.0f32);
    for round in 0..50 {
        let (from, to) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let args = KernelArgs::new()
            .push_f32(0.5)
            .push_buffer(from)
            .push_buffer(to)
            .push_u32(100);
        saxpy.launch(linear(100, 64), &args).must();
        if round % 2 == 0 {
            y += 0.5 * x;
        } else {
            x += 0.5 * y;
        }
    }
    assert_eq!(bits(&download::<f32>(&session, &a)), vec![x.to_bits(); 100]);
    assert_eq!(bits(&download::<f32>(&session, &b)), vec![y.to_bits(); 100]);
    Ok(())
}
