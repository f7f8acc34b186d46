//! Drivers and devices that cannot be used: each says so, and what a person can do about it.

use ash::vk;
use grafos_host_abi::{ContextOptions, ErrorKind, GpuBackend, GpuError, Probe};

use crate::Anywhere;
use crate::device::{Device, Outcome, ensure, same};
use crate::support::answers::{
    Answered, Answers, DeviceAnswers, LoaderVersion, MemoryAnswers, change,
};

pub(crate) const TRIALS: [Anywhere; 12] = [
    ("an_old_device_is_refused", an_old_device_is_refused),
    (
        "a_device_without_compute_is_refused",
        a_device_without_compute_is_refused,
    ),
    (
        "a_device_without_addresses_is_refused",
        a_device_without_addresses_is_refused,
    ),
    (
        "a_device_without_timelines_is_refused",
        a_device_without_timelines_is_refused,
    ),
    (
        "a_device_without_host_memory_is_refused",
        a_device_without_host_memory_is_refused,
    ),
    (
        "a_device_that_fails_is_refused",
        a_device_that_fails_is_refused,
    ),
    ("no_device_is_data", no_device_is_data),
    ("a_failed_listing_is_data", a_failed_listing_is_data),
    ("an_old_loader_is_data", an_old_loader_is_data),
    ("a_failed_instance_is_data", a_failed_instance_is_data),
    (
        "a_good_device_is_found_among_bad",
        a_good_device_is_found_among_bad,
    ),
    ("each_bad_device_is_named", each_bad_device_is_named),
];

/// Names a device, with further changes.
fn named(
    name: &'static std::ffi::CStr,
    further: impl Fn(&mut vk::PhysicalDeviceProperties) + Send + Sync + 'static,
) -> DeviceAnswers {
    DeviceAnswers {
        properties: change(move |properties: &mut vk::PhysicalDeviceProperties| {
            let named = properties.device_name(name);
            *properties = named.unwrap_or_default();
            further(properties);
        }),
        ..DeviceAnswers::default()
    }
}

fn old(name: &'static std::ffi::CStr, minor: u32) -> DeviceAnswers {
    named(name, move |properties| {
        properties.api_version = vk::make_api_version(0, 1, minor, 77);
    })
}

/// The backend cannot be used, and says so everywhere in the same words, which hold these.
fn refused(answered: &Answered, in_reason: &[&str], in_hint: &[&str]) -> Outcome {
    let backend = &answered.backend;
    let (reason, hint) = match backend.probe() {
        Probe::Unavailable { reason, hint } => (reason, hint),
        other => return Err(format!("{other:?}").into()),
    };
    for part in in_reason {
        ensure(reason.contains(part), || {
            format!("the reason lacks {part:?}: {reason}")
        })?;
    }
    for part in in_hint {
        ensure(hint.contains(part), || {
            format!("the hint lacks {part:?}: {hint}")
        })?;
    }
    let opened = backend.open(0, &ContextOptions::default()).map(|_| ());
    for outcome in [backend.devices().map(|_| ()), opened] {
        match outcome {
            Err(GpuError::Unavailable {
                backend,
                reason: again,
            }) => {
                same("backend", backend, "vulkan")?;
                same("reason", &again, &reason)?;
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    same("messages", answered.messages.all(), Vec::new())
}

fn refused_device(device: DeviceAnswers, in_reason: &[&str], in_hint: &[&str]) -> Outcome {
    refused(&Answered::device(device)?, in_reason, in_hint)
}

fn an_old_device_is_refused() -> Outcome {
    for (minor, version) in [(0, "1.0.77"), (1, "1.1.77")] {
        let answered = Answered::device(old(c"old card", minor))?;
        let offers = format!("old card offers Vulkan {version}");
        refused(&answered, &[&offers, "1.2 or later"], &["newer driver"])?;
        same("newer questions", answered.newer_questions(), 0)?;
    }
    // The count that was 0 counts.
    let answered = Answered::device(DeviceAnswers::default())?;
    same("devices", answered.backend.devices()?.len(), 1)?;
    ensure(answered.newer_questions() > 0, || "nothing counted".into())
}

fn a_device_without_compute_is_refused() -> Outcome {
    let changes: [fn(&mut Vec<vk::QueueFamilyProperties>); 3] = [
        |families| {
            for family in families {
                family.queue_flags &= !vk::QueueFlags::COMPUTE;
            }
        },
        Vec::clear,
        |families| {
            for family in families {
                family.queue_count = 0;
            }
        },
    ];
    for how in changes {
        let device = DeviceAnswers {
            queue_families: change(how),
            ..named(c"display card", |_| {})
        };
        let reason = "display card has no queue that can compute";
        refused_device(device, &[reason], &["compute"])?;
    }
    Ok(())
}

fn a_device_without_addresses_is_refused() -> Outcome {
    let device = DeviceAnswers {
        features: change(|features: &mut vk::PhysicalDeviceVulkan12Features<'_>| {
            features.buffer_device_address = vk::FALSE;
        }),
        ..named(c"plain card", |_| {})
    };
    let lacks = "plain card lacks bufferDeviceAddress";
    refused_device(device, &[lacks], &["bufferDeviceAddress"])
}

fn a_device_without_timelines_is_refused() -> Outcome {
    let device = DeviceAnswers {
        features: change(|features: &mut vk::PhysicalDeviceVulkan12Features<'_>| {
            features.timeline_semaphore = vk::FALSE;
        }),
        ..named(c"plain card", |_| {})
    };
    let lacks = "plain card lacks timelineSemaphore";
    refused_device(device, &[lacks], &["timelineSemaphore"])
}

fn a_device_without_host_memory_is_refused() -> Outcome {
    let device = DeviceAnswers {
        memory: Some(MemoryAnswers {
            types: vec![(vk::MemoryPropertyFlags::DEVICE_LOCAL, 0)],
            heaps: vec![1 << 30],
            for_buffers: 1,
        }),
        ..named(c"closed card", |_| {})
    };
    let reason = "closed card has no memory that the host can see";
    refused_device(device, &[reason], &["newer driver"])
}

fn a_device_that_fails_is_refused() -> Outcome {
    let device = DeviceAnswers {
        extension_failure: Some(vk::Result::ERROR_OUT_OF_HOST_MEMORY),
        ..named(c"sick card", |_| {})
    };
    let reason = [
        "sick card does not answer",
        "vkEnumerateDeviceExtensionProperties",
        "VK_ERROR_OUT_OF_HOST_MEMORY (-1)",
    ];
    refused_device(device, &reason, &["driver"])
}

fn no_device_is_data() -> Outcome {
    let answered = Answered::new(Answers::default())?;
    refused(&answered, &["lists no device"], &["install a driver"])
}

fn a_failed_listing_is_data() -> Outcome {
    for (failure, name, hint) in [
        (
            vk::Result::ERROR_INITIALIZATION_FAILED,
            "VK_ERROR_INITIALIZATION_FAILED (-3)",
            "install a Vulkan driver (ICD)",
        ),
        (
            vk::Result::ERROR_OUT_OF_HOST_MEMORY,
            "VK_ERROR_OUT_OF_HOST_MEMORY (-1)",
            "vulkaninfo",
        ),
    ] {
        let answered = Answered::new(Answers {
            enumeration_failure: Some(failure),
            ..Answers::default()
        })?;
        refused(&answered, &["vkEnumeratePhysicalDevices", name], &[hint])?;
    }
    Ok(())
}

fn an_old_loader_is_data() -> Outcome {
    let answered = |loader| {
        Answered::new(Answers {
            loader,
            devices: vec![DeviceAnswers::default()],
            ..Answers::default()
        })
    };
    let of_1_0 = LoaderVersion::Given(vk::make_api_version(0, 1, 0, 200));
    for loader in [LoaderVersion::Absent, of_1_0] {
        let reason = ["loader is version 1.0", "1.1 or later"];
        refused(&answered(loader)?, &reason, &["libvulkan1"])?;
    }
    // The oldest that is taken.
    let oldest = answered(LoaderVersion::Given(vk::API_VERSION_1_1))?;
    same("devices", oldest.backend.devices()?.len(), 1)
}

fn a_failed_instance_is_data() -> Outcome {
    for (failure, reason, hint) in [
        (
            vk::Result::ERROR_INCOMPATIBLE_DRIVER,
            &[
                "no Vulkan driver is installed",
                "VK_ERROR_INCOMPATIBLE_DRIVER (-9)",
            ][..],
            "VK_ICD_FILENAMES",
        ),
        (
            vk::Result::ERROR_OUT_OF_HOST_MEMORY,
            &["VK_ERROR_OUT_OF_HOST_MEMORY (-1)"],
            "vulkaninfo",
        ),
    ] {
        let answered = Answered::new(Answers {
            instance_failure: Some(failure),
            devices: vec![DeviceAnswers::default()],
            ..Answers::default()
        })?;
        refused(&answered, reason, &[hint])?;
        refused(&answered, &["vkCreateInstance"], &[hint])?;
    }
    Ok(())
}

fn a_good_device_is_found_among_bad() -> Outcome {
    let without_queues = DeviceAnswers {
        queue_families: change(Vec::clear),
        ..named(c"third", |_| {})
    };
    let answered = Answered::new(Answers {
        devices: vec![
            old(c"first", 1),
            named(c"second", |_| {}),
            without_queues,
            named(c"fourth", |_| {}),
        ],
        ..Answers::default()
    })?;
    let listed: Vec<_> = answered
        .backend
        .devices()?
        .into_iter()
        .map(|device| (device.index, device.name))
        .collect();
    let expected = [(0, "second".to_owned()), (1, "fourth".to_owned())];
    same("devices", listed, expected.to_vec())?;
    match answered.backend.probe() {
        Probe::Available { device_count, .. } => same("count", device_count, 2)?,
        other => return Err(format!("{other:?}").into()),
    }
    for (index, name) in [(0, "second"), (1, "fourth")] {
        let context = answered.backend.open(index, &ContextOptions::default())?;
        same("opened", &*context.device().name, name)?;
    }
    match answered.backend.open(2, &ContextOptions::default()) {
        Err(failure) => same("kind", failure.kind(), ErrorKind::InvalidHandle)?,
        Ok(_) => return Err("opened a device that is not listed".into()),
    }
    let device = Device::open(&answered.backend)?;
    let buffer = device.upload(&[9; 1000])?;
    same("bytes", device.download(&buffer)?, vec![9; 1000])?;
    drop(device);
    same("messages", answered.messages.all(), Vec::new())
}

fn each_bad_device_is_named() -> Outcome {
    let answered = Answered::new(Answers {
        devices: vec![old(c"first", 0), old(c"second", 1)],
        ..Answers::default()
    })?;
    let expected = [
        "no Vulkan device can be used: first offers Vulkan 1.0.77",
        "; second offers Vulkan 1.1.77",
    ];
    refused(&answered, &expected, &["Vulkan 1.2"])
}
