//! Modules, kernel names and globals.

use std::collections::BTreeSet;
use std::prelude::v1::*;
use std::{format, vec};

use super::check::{Checked, Stop, ensure, ensure_eq, ensure_kind, ensure_same};
use super::gpu::{Arg, Gpu, Kernel, word_bytes};
use super::kernel_signature::KERNELS;
use super::reference::Numbers;
use super::runner::Suite;
use crate::{CloseReport, ErrorKind, FillPattern, GpuError, ImageFormat, ModuleId, StreamId};

cases!("module":
    every_image_loads_with_its_kernel,
    kernel_names_are_sorted_and_complete,
    malformed_images_are_refused,
    foreign_images_are_refused,
    hollow_images_are_refused,
    cut_off_images_are_refused,
    flipped_bits_are_accepted_or_refused,
    images_beyond_the_device_are_refused,
    image_is_not_needed_after_the_call,
    image_can_lie_at_any_address,
    missing_kernels_are_not_found,
    a_kernel_resolves_to_the_same_id,
    one_image_loads_as_separate_modules,
    ids_are_not_reused,
    unloading_an_unknown_module_is_refused,
    an_unloaded_module_has_no_names,
    loading_many_times_leaves_nothing,
    globals_without_the_ability_are_unsupported,
    globals_are_found_by_name,
    globals_hold_what_is_written,
);

/// Loads a module that the device may lack the ability for; `None` says that it lacks it.
pub(super) fn load_if_able(gpu: &Gpu<'_>, name: &str) -> Checked<Option<Kernel>> {
    let capabilities = &gpu.suite.info.capabilities;
    let able = match name {
        "echo_wide" => capabilities.int64 && capabilities.float64,
        "triad_f64" => capabilities.float64,
        "vector_add_descriptor" | "scale_descriptor" => true,
        _ => capabilities.device_addresses,
    };
    let image = gpu.suite.image(name)?;
    let resolved = gpu.load_module(&image).and_then(|module| {
        let info = gpu.kernel(module.id, name)?;
        Ok(Kernel {
            module: module.id,
            info,
        })
    });
    // No capability tells of these: block sizes by id, and the room for arguments.
    let may_lack = match name {
        "vector_add_local_size_id" => true,
        "push_136" => gpu.suite.info.limits.max_argument_bytes < 136,
        "push_264" => gpu.suite.info.limits.max_argument_bytes < 264,
        _ => false,
    };
    match resolved {
        Ok(kernel) => {
            ensure(
                format_args!("{name} was accepted, though the device lacks what it needs"),
                able,
            )?;
            Ok(Some(kernel))
        }
        Err(GpuError::Unsupported(_)) if !able || may_lack => Ok(None),
        Err(GpuError::LaunchLimits(_)) if may_lack => Ok(None),
        Err(error) => Err(Stop::failed(format_args!("{name}: {error}"))),
    }
}

/// Loads `vector_add`, computes with it and compares: the context is in order.
#[track_caller]
pub(super) fn computes(gpu: &Gpu<'_>) -> Checked {
    let kernel = gpu.load("vector_add")?;
    let n = 300;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| (2 * i + 1) as f32).collect();
    let sums: Vec<u32> = (0..n).map(|i| ((3 * i + 1) as f32).to_bits()).collect();
    let (a, b) = (gpu.upload_floats(&a)?, gpu.upload_floats(&b)?);
    let c = gpu.buffer(n as u64 * 4)?;
    let args = [
        Arg::Buffer(a),
        Arg::Buffer(b),
        Arg::Buffer(c),
        Arg::U32(n as u32),
    ];
    let block_len = gpu.block_len(&kernel, 64);
    gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, n as u32, &args)?;
    ensure_same("sums", &gpu.download_words(c)?, &sums)?;
    for buffer in [a, b, c] {
        gpu.free(buffer.id)?;
    }
    gpu.unload_module(kernel.module)?;
    Ok(())
}

fn every_image_loads_with_its_kernel(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut loaded = 0;
    for kernel in KERNELS {
        if suite.fixture.image(kernel.name).is_none() {
            continue;
        }
        if let Some(found) = load_if_able(&gpu, kernel.name)? {
            ensure_eq("name of the kernel", found.info.name.as_str(), kernel.name)?;
            loaded += 1;
        }
    }
    ensure("the fixture has no image of any kernel", loaded > 0)
}

fn kernel_names_are_sorted_and_complete(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for name in ["vector_add", "saxpy", "shared_rotate"] {
        let kernel = gpu.load(name)?;
        match gpu.kernel_names(kernel.module) {
            Ok(names) => ensure_eq("names", names, suite.fixture.kernel_names(name))?,
            Err(GpuError::Unsupported(fault)) => return Err(Stop::unsupported(fault)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[track_caller]
fn refuse(gpu: &Gpu<'_>, what: &str, image: &[u8]) -> Checked {
    let error = ensure_kind(
        format_args!("{what}, {} bytes", image.len()),
        gpu.load_module(image),
        ErrorKind::InvalidModule,
    )?;
    let GpuError::InvalidModule(fault) = error else {
        return Err(Stop::failed(format_args!("{error} has no numbers")));
    };
    ensure_eq("length in the error", fault.len_bytes, image.len() as u64)?;
    ensure(
        format_args!("{what}: the error gives no reason"),
        !fault.reason.is_empty(),
    )
}

fn malformed_images_are_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    refuse(&gpu, "an empty image", &[])?;
    let mut numbers = Numbers::new(300);
    for len in [1, 2, 3, 4, 5, 19, 20, 21, 63, 64, 1000, 65_537] {
        refuse(&gpu, "noise", &numbers.bytes(len))?;
        refuse(&gpu, "zeros", &vec![0; len])?;
        refuse(&gpu, "ones", &vec![0xFF; len])?;
    }
    for (what, image) in suite.fixture.malformed_images() {
        refuse(&gpu, &what, &image)?;
    }
    computes(&gpu)
}

/// Images that have the first bytes of each format and nothing behind them.
fn hollow_images() -> Vec<Vec<u8>> {
    let elf = |machine: u16| {
        let mut image = vec![0u8; 256];
        image[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image
    };
    let mut fatbin = vec![0u8; 64];
    fatbin[..8].copy_from_slice(&[0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0]);
    let mut bundle = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    bundle.resize(64, 0);
    vec![
        word_bytes(&[0x0723_0203, 0x0001_0500, 0, 1, 0]),
        b".version 8.0\n".to_vec(),
        elf(190),
        elf(224),
        fatbin,
        bundle,
    ]
}

fn foreign_images_are_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut elf = vec![0u8; 256];
    elf[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0");
    refuse(&gpu, "an ELF file for x86-64", &elf)?;
    refuse(&gpu, "GLSL", b"#version 460\nvoid main() {}\n")?;
    refuse(&gpu, "a PNG file", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")?;
    for image in hollow_images() {
        let format = ImageFormat::recognize(&image);
        if !suite.info.image_formats.contains(&format) {
            refuse(
                &gpu,
                &format!("{format}, which the device does not list"),
                &image,
            )?;
        }
    }
    computes(&gpu)
}

fn hollow_images_are_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for image in hollow_images() {
        let format = ImageFormat::recognize(&image);
        ensure("the suite's own image", format != ImageFormat::Unknown)?;
        refuse(&gpu, &format!("{format} with nothing in it"), &image)?;
    }
    computes(&gpu)
}

fn cut_off_images_are_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let image = suite.image("vector_add")?;
    // White space at the end of a text is no part of it.
    let len = image.trim_ascii_end().len();
    let step = (len / 150).max(1);
    let near_the_end = len.saturating_sub(24)..len;
    for cut in (0..len).step_by(step).chain(near_the_end) {
        let head = &image[..cut];
        match gpu.load_module(head) {
            Err(error) if error.kind() == ErrorKind::InvalidModule => {}
            Err(error) => {
                return Err(Stop::failed(format!(
                    "the first {cut} of {len} bytes: {error}, expected InvalidModule"
                )));
            }
            // The head of a text can be a module that merely lacks the kernel.
            Ok(module) if module.format == ImageFormat::Ptx => {
                ensure_kind(
                    format_args!("the kernel in the first {cut} of {len} bytes"),
                    gpu.kernel(module.id, "vector_add"),
                    ErrorKind::KernelNotFound,
                )?;
                gpu.unload_module(module.id)?;
            }
            Ok(_) => {
                return Err(Stop::failed(format!(
                    "the first {cut} of {len} bytes were loaded"
                )));
            }
        }
    }
    computes(&gpu)
}

fn flipped_bits_are_accepted_or_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let image = suite.image("vector_add")?;
    let mut numbers = Numbers::new(310);
    for _ in 0..500 {
        let mut flipped = image.clone();
        let place = numbers.below(image.len() as u64) as usize;
        let bit = numbers.below(8);
        flipped[place] ^= 1 << bit;
        match gpu.load_module(&flipped) {
            Ok(module) => gpu.unload_module(module.id)?,
            Err(error) => ensure(
                format_args!("bit {bit} of byte {place} flipped: {error}"),
                matches!(
                    error.kind(),
                    ErrorKind::InvalidModule | ErrorKind::Unsupported
                ),
            )?,
        }
    }
    computes(&gpu)?;
    ensure_eq("left at close", gpu.close(None)?, CloseReport::default())
}

fn images_beyond_the_device_are_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut refused = 0;
    let mut images = 0;
    for name in ["echo_wide", "triad_f64", "push_136", "push_264"] {
        if suite.fixture.image(name).is_some() {
            images += 1;
            refused += u32::from(load_if_able(&gpu, name)?.is_none());
        }
    }
    computes(&gpu)?;
    if refused == 0 {
        return Err(Stop::unsupported(format!(
            "the device can run all of the {images} kernels that not every device can"
        )));
    }
    Ok(())
}

fn image_is_not_needed_after_the_call(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut image = suite.image("fill")?;
    let module = gpu.load_module(&image)?.id;
    image.fill(0xFF);
    drop(image);
    let kernel = Kernel {
        module,
        info: gpu.kernel(module, "fill")?,
    };
    let buffer = gpu.upload_words(&[0; 8])?;
    let args = [Arg::Buffer(buffer), Arg::U32(0xABCD_0123), Arg::U32(8)];
    gpu.launch_linear(
        StreamId::DEFAULT,
        &kernel,
        gpu.block_len(&kernel, 32),
        8,
        &args,
    )?;
    ensure_same("words", &gpu.download_words(buffer)?, &[0xABCD_0123; 8])
}

fn image_can_lie_at_any_address(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let image = suite.image("fill")?;
    let mut room = vec![0u8; image.len() + 8];
    for shift in 0..8 {
        let place = &mut room[shift..shift + image.len()];
        place.copy_from_slice(&image);
        let module = gpu.load_module(place)?;
        ensure_eq(
            "name of the kernel",
            gpu.kernel(module.id, "fill")?.name.as_str(),
            "fill",
        )?;
    }
    Ok(())
}

fn missing_kernels_are_not_found(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("vector_add")?;
    let listed = gpu.kernel_names(kernel.module).unwrap_or_default();
    let long = "v".repeat(10_000);
    let names = [
        "",
        "missing",
        "vector_ad",
        "vector_addd",
        "VECTOR_ADD",
        " vector_add",
        "vector_add ",
        "vector_add\0",
        "vector_add\0x",
        "\0",
        "väctor_add",
        "加算",
        "_Z10vector_addPKfS0_Pfj",
        "vector_add\n",
        "%s%n",
        &long,
    ];
    for name in names {
        let what = format!("kernel {:?}", name.chars().take(40).collect::<String>());
        let error = ensure_kind(
            &what,
            gpu.kernel(kernel.module, name),
            ErrorKind::KernelNotFound,
        )?;
        if let GpuError::KernelNotFound(fault) = error {
            ensure_eq("name in the error", fault.name.as_str(), name)?;
            ensure_eq("kernels in the error", &fault.available, &listed)?;
        }
    }
    ensure_eq(
        "the kernel that is there",
        gpu.kernel(kernel.module, "vector_add")?.id,
        kernel.info.id,
    )
}

fn a_kernel_resolves_to_the_same_id(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("saxpy")?;
    for _ in 0..3 {
        let again = gpu.kernel(kernel.module, "saxpy")?;
        ensure_eq("the kernel", &again, &kernel.info)?;
    }
    Ok(())
}

fn one_image_loads_as_separate_modules(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let first = gpu.load("increment")?;
    let second = gpu.load("increment")?;
    ensure("one id for two modules", first.module != second.module)?;
    ensure("one id for two kernels", first.info.id != second.info.id)?;
    gpu.unload_module(first.module)?;
    let data = gpu.upload_words(&[41; 5])?;
    let args = [Arg::Buffer(data), Arg::U32(5)];
    gpu.launch_linear(
        StreamId::DEFAULT,
        &second,
        gpu.block_len(&second, 32),
        5,
        &args,
    )?;
    ensure_same("words", &gpu.download_words(data)?, &[42; 5])
}

fn ids_are_not_reused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut modules = BTreeSet::new();
    let mut kernels = BTreeSet::new();
    for round in 0..20 {
        let kernel = gpu.load("fill")?;
        ensure(
            format_args!("round {round}: {:?} was given out before", kernel.module),
            modules.insert(kernel.module),
        )?;
        ensure(
            format_args!("round {round}: {:?} was given out before", kernel.info.id),
            kernels.insert(kernel.info.id),
        )?;
        gpu.unload_module(kernel.module)?;
        if round % 5 == 4 {
            gpu.sync(None)?;
        }
    }
    Ok(())
}

fn unloading_an_unknown_module_is_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    for id in [kernel.module.0 + 1, kernel.module.0 + 1000, u64::MAX] {
        ensure_kind(
            format_args!("unload of unknown module {id:#x}"),
            gpu.unload_module(ModuleId(id)),
            ErrorKind::InvalidHandle,
        )?;
    }
    gpu.unload_module(kernel.module)?;
    for _ in 0..2 {
        ensure_kind(
            "a second unload",
            gpu.unload_module(kernel.module),
            ErrorKind::InvalidHandle,
        )?;
    }
    computes(&gpu)
}

fn an_unloaded_module_has_no_names(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    gpu.unload_module(kernel.module)?;
    ensure_kind(
        "names of an unloaded module",
        gpu.kernel_names(kernel.module),
        ErrorKind::InvalidHandle,
    )?;
    ensure_kind(
        "names of a module that never was",
        gpu.kernel_names(ModuleId(u64::MAX)),
        ErrorKind::InvalidHandle,
    )?;
    Ok(())
}

fn loading_many_times_leaves_nothing(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let before = gpu.memory_info()?;
    for _ in 0..50 {
        let kernel = gpu.load("matmul_tiled")?;
        gpu.unload_module(kernel.module)?;
    }
    gpu.sync(None)?;
    let after = gpu.memory_info()?;
    ensure_eq("live bytes", after.live_bytes, before.live_bytes)?;
    ensure_eq("left at close", gpu.close(None)?, CloseReport::default())
}

fn globals_without_the_ability_are_unsupported(suite: &Suite) -> Checked {
    if suite.info.capabilities.module_globals {
        return Err(Stop::unsupported("the device has the ability"));
    }
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    for name in ["table", "fill", ""] {
        ensure_kind(
            format_args!("global {name:?}"),
            gpu.global(kernel.module, name),
            ErrorKind::Unsupported,
        )?;
    }
    Ok(())
}

fn globals_are_found_by_name(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.module_globals, "module globals")?;
    let gpu = suite.open()?;
    let kernel = gpu.load("module_globals")?;
    let table = gpu.global(kernel.module, "table")?;
    ensure_eq("size of the table", table.size_bytes, 32)?;
    ensure("the table lies at 0", table.address != 0)?;
    ensure_eq(
        "the table, found again",
        gpu.global(kernel.module, "table")?,
        table,
    )?;
    for name in ["", "tabl", "table\0", "module_globals"] {
        ensure_kind(
            format_args!("global {name:?}"),
            gpu.global(kernel.module, name),
            ErrorKind::KernelNotFound,
        )?;
    }
    ensure_kind(
        "free of a global",
        gpu.free(table.buffer),
        ErrorKind::InvalidHandle,
    )?;
    ensure_eq("live buffers", gpu.memory_info()?.live_buffers, 0)
}

fn globals_hold_what_is_written(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.module_globals, "module globals")?;
    let gpu = suite.open()?;
    let kernel = gpu.load("module_globals")?;
    let other = gpu.load("module_globals")?;
    let stream = StreamId::DEFAULT;
    let target = gpu.upload_words(&[9; 8])?;
    let run = |kernel: &Kernel| -> Checked<Vec<u32>> {
        let block = [gpu.block_len(kernel, 8), 1, 1];
        gpu.launch_default(kernel, [1, 1, 1], block, &[Arg::Buffer(target)])?;
        gpu.download_words(target)
    };
    ensure_same("the table at first", &run(&kernel)?, &[0; 8])?;

    let global = gpu.global(kernel.module, "table")?;
    let table = super::gpu::Buffer {
        id: global.buffer,
        address: global.address,
        size_bytes: global.size_bytes,
    };
    let words = [1, 2, 3, 4, 5, 6, 7, u32::MAX];
    gpu.write(stream, table.all(), &word_bytes(&words))?;
    ensure_same("after a write", &run(&kernel)?, &words)?;
    ensure_same("read back", &gpu.download_words(table)?, &words)?;
    gpu.fill(stream, table.range(8, 8), FillPattern::U32(70))?;
    let source = gpu.upload_words(&[80, 90])?;
    gpu.copy(stream, table.range(0, 8), source.all())?;
    ensure_same(
        "after a fill and a copy",
        &run(&kernel)?,
        &[80, 90, 70, 70, 5, 6, 7, u32::MAX],
    )?;
    ensure_same("the other module's table", &run(&other)?, &[0; 8])
}
