//! Images of every kind, bundles of them, and the names in them.

use grafos_std::FabricError;
use grafos_std::error::{ErrorKind, ModuleFault};
use grafos_std::gpu::{FillPattern, ImageFormat, KernelArgs, ModuleBundle};

use crate::target::{
    Must, Numbers, Target, Unsupported, download, ensure_kind, image, refused, upload,
};

crate::cases!("modules":
    an_unknown_name_is_told_with_the_names_there_are,
    malformed_images_are_refused,
    every_prefix_of_an_image_is_refused,
    formats_of_other_devices_are_refused,
    a_bundle_falls_to_the_next_image,
    a_bundle_without_a_fit_says_why_for_each,
    an_empty_bundle_is_refused,
    a_module_is_unloaded_once,
    many_modules_leave_nothing_behind,
    globals_work_where_the_device_has_them,
);

fn an_unknown_name_is_told_with_the_names_there_are(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let module = session.module_load(image("vector_add")).must();
    let long = "k".repeat(64 << 10);
    let names = [
        "",
        "\0",
        "vector_add\0",
        "vector_add\0x",
        "vector_ad",
        "vector_add ",
        "VECTOR_ADD",
        "vëctor_add",
        "_Z3addPf",
        "🦀",
        &long,
    ];
    for name in names {
        let by_launch = session.launch(&module, name, [1; 3], [1; 3], &[], &[]);
        for answer in [session.kernel(&module, name).map(drop), by_launch] {
            match refused(answer) {
                FabricError::KernelNotFound(fault) => {
                    assert_eq!(fault.name, name);
                    assert!(fault.available.is_sorted(), "{:?}", fault.available);
                    assert!(fault.available.contains(&String::from("vector_add")));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    Ok(())
}

#[track_caller]
fn ensure_malformed(error: FabricError, format: ImageFormat, image: &[u8]) -> String {
    match error {
        FabricError::InvalidModule(ModuleFault {
            format: found,
            len_bytes,
            reason,
        }) => {
            assert_eq!((found, len_bytes), (format, image.len() as u64), "{reason}");
            assert!(!reason.is_empty());
            reason
        }
        other => panic!("{format}: {other:?}"),
    }
}

fn malformed_images_are_refused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let good = image("vector_add");
    let mut noise = Numbers(9).bytes(4096);
    noise[0] = 0xFF;
    let images: [(Vec<u8>, ImageFormat); 7] = [
        (Vec::new(), ImageFormat::Unknown),
        (vec![0], ImageFormat::Unknown),
        (vec![0; 64], ImageFormat::Unknown),
        (noise, ImageFormat::Unknown),
        (good[..4].to_vec(), ImageFormat::SpirV),
        (good[..19].to_vec(), ImageFormat::SpirV),
        (good[..good.len() - 1].to_vec(), ImageFormat::SpirV),
    ];
    for (bytes, format) in images {
        ensure_malformed(refused(session.module_load(&bytes)), format, &bytes);
    }
    // The session is none the worse for it.
    let module = session.module_load(good).must();
    session.kernel(&module, "vector_add").must();
    Ok(())
}

fn every_prefix_of_an_image_is_refused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let good = image("vector_add");
    let prefixes: Vec<usize> = if target.mock.is_some() {
        // It checks the outer form only: a header, and whole words.
        (4..20)
            .chain((20..good.len()).filter(|len| len % 4 != 0))
            .collect()
    } else {
        (4..good.len()).collect()
    };
    for len in prefixes {
        let cut = &good[..len];
        match session.module_load(cut) {
            Err(error) => {
                ensure_malformed(error, ImageFormat::SpirV, cut);
            }
            Ok(_) => panic!("the first {len} bytes of {} were loaded", good.len()),
        }
    }
    Ok(())
}

/// An image of a format: enough of it to be recognized.
fn sample(format: ImageFormat) -> Vec<u8> {
    let elf = |machine: u16| {
        let mut image = vec![0; 64];
        image[..4].copy_from_slice(b"\x7fELF");
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image
    };
    match format {
        ImageFormat::Ptx => b".version 7.0\n.target sm_50\n".to_vec(),
        ImageFormat::Cubin => elf(190),
        ImageFormat::AmdCodeObject => elf(224),
        ImageFormat::Fatbin => [0x50, 0xED, 0x55, 0xBA].repeat(8),
        ImageFormat::OffloadBundle => b"__CLANG_OFFLOAD_BUNDLE__\0\0\0\0\0\0\0\0".to_vec(),
        ImageFormat::SpirV => image("vector_add").to_vec(),
        other => panic!("no sample of {other}"),
    }
}

const FORMATS: [ImageFormat; 6] = [
    ImageFormat::Ptx,
    ImageFormat::Cubin,
    ImageFormat::Fatbin,
    ImageFormat::AmdCodeObject,
    ImageFormat::OffloadBundle,
    ImageFormat::SpirV,
];

fn formats_of_other_devices_are_refused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let mut refusals = 0;
    for format in FORMATS {
        let bytes = sample(format);
        if !target.device.image_formats.contains(&format) {
            ensure_malformed(refused(session.module_load(&bytes)), format, &bytes);
            refusals += 1;
        }
    }
    if refusals == 0 {
        return Unsupported::because("the device takes every format");
    }
    Ok(())
}

fn a_bundle_falls_to_the_next_image(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let good = image("fill");
    let foreign = sample(ImageFormat::Cubin);
    let bundles = [
        ModuleBundle::new().with_image(&good[..18]).with_image(good),
        ModuleBundle::new()
            .with_image(b"")
            .with_image(&good[..good.len() - 2])
            .with_image(good),
        ModuleBundle::new()
            .with_image(&foreign[..40])
            .with_image(good),
        ModuleBundle::new().with_image(good).with_image(&good[..18]),
    ];
    for (position, bundle) in bundles.iter().enumerate() {
        let module = session.module_load_bundle(bundle).must();
        let data = upload(&session, &[0u32; 8]);
        let args = KernelArgs::new().push_buffer(&data).push_u32(6).push_u32(8);
        session
            .launch_with_args(&module, "fill", [1; 3], [8, 1, 1], args)
            .must();
        assert_eq!(
            download::<u32>(&session, &data),
            [6; 8],
            "bundle {position}"
        );
    }
    Ok(())
}

fn a_bundle_without_a_fit_says_why_for_each(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let good = image("fill");
    let foreign = sample(ImageFormat::Cubin);
    let bundle = ModuleBundle::new()
        .with_image(&good[..18])
        .with_image(&foreign[..40])
        .with_image(b"no image at all")
        .with_image(&good[..good.len() - 3]);
    let formats = bundle.formats();
    match refused(session.module_load_bundle(&bundle)) {
        FabricError::InvalidModule(ModuleFault {
            len_bytes, reason, ..
        }) => {
            assert_eq!(len_bytes, (18 + 40 + 15 + good.len() - 3) as u64);
            for (position, format) in formats.into_iter().enumerate() {
                let part = format!("image {position} ({format}): ");
                assert!(reason.contains(&part), "{part:?} is not in {reason}");
            }
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn an_empty_bundle_is_refused(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let answer = session.module_load_bundle(&ModuleBundle::new());
    ensure_kind("a bundle without images", answer, ErrorKind::InvalidModule);
    Ok(())
}

fn a_module_is_unloaded_once(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let module = session.module_load(image("fill")).must();
    let kernel = session.kernel(&module, "fill").must();
    let clone = module.clone();
    session.module_unload(module).must();
    let data = upload(&session, &[1u32; 4]);
    let args = KernelArgs::new().push_buffer(&data).push_u32(2).push_u32(4);
    let config = grafos_std::gpu::LaunchConfig::new([1; 3], [4, 1, 1]);
    ensure_kind(
        "launch",
        kernel.launch(config, &args),
        ErrorKind::InvalidHandle,
    );
    ensure_kind(
        "kernel",
        session.kernel(&clone, "fill"),
        ErrorKind::InvalidHandle,
    );
    ensure_kind(
        "names",
        session.kernel_names(&clone),
        ErrorKind::InvalidHandle,
    );
    ensure_kind(
        "unload",
        session.module_unload(clone),
        ErrorKind::InvalidHandle,
    );
    session.sync().must();
    assert_eq!(download::<u32>(&session, &data), [1; 4]);
    Ok(())
}

fn many_modules_leave_nothing_behind(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let mut ids = Vec::new();
    for _ in 0..200 {
        let module = session.module_load(image("increment")).must();
        session.kernel(&module, "increment").must();
        ids.push(module.raw());
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200, "an id was used again");
    Ok(())
}

fn globals_work_where_the_device_has_them(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let Some(mock) = &target.mock else {
        let module = session.module_load(image("fill")).must();
        assert!(
            !target.device.capabilities.module_globals,
            "the suite has no image with globals"
        );
        let answer = session.module_global(&module, "table");
        ensure_kind("a global", answer, ErrorKind::Unsupported);
        return Unsupported::because("the device does not find globals by name");
    };
    mock.register_global("table", 12, &[1, 2, 3, 4]);
    let (first, second) = (
        session.module_load(image("fill")).must(),
        session.module_load(image("fill")).must(),
    );
    let table = session.module_global(&first, "table").must();
    assert_eq!(table.size_bytes(), 12);
    assert_eq!(
        session.mem_read(&table, 0, 12).must(),
        [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    session.mem_fill(&table, 4, 8, FillPattern::U8(7)).must();
    let other = session.module_global(&second, "table").must();
    assert_eq!(
        session.mem_read(&other, 4, 2).must(),
        [0, 0],
        "each module has its own"
    );
    ensure_kind(
        "outside",
        session.mem_read(&table, 8, 5),
        ErrorKind::OutOfBounds,
    );
    match refused(session.module_global(&first, "chair")) {
        FabricError::KernelNotFound(fault) => assert_eq!(fault.name, "chair"),
        other => panic!("{other:?}"),
    }
    // Freeing or dropping the handle does nothing; unloading the module ends it.
    session.mem_free(table.clone()).must();
    drop(session.module_global(&first, "table").must());
    assert_eq!(session.mem_read(&table, 4, 2).must(), [7, 7]);
    session.module_unload(first).must();
    ensure_kind(
        "unloaded",
        session.mem_read(&table, 0, 1),
        ErrorKind::InvalidHandle,
    );
    Ok(())
}
