//! Devices whose driver says other things than the one that is here: what `devices()` makes of it.

use ash::{ext, khr, vk};
use grafos_host_abi::{
    Axis, DeviceInfo, DeviceKind, GpuBackend, GpuError, LimitKind, MemoryInfo, PciAddress, Vendor,
};
use libtest_mimic::Failed;

use crate::device::{Arg, Device, Outcome, ensure, same};
use crate::support::answers::{Answered, DeviceAnswers, change};
use crate::support::interposer;
use crate::{Anywhere, launches};

pub(crate) const TRIALS: [Anywhere; 7] = [
    ("a_pci_address_is_told", a_pci_address_is_told),
    ("kinds_are_told", kinds_are_told),
    ("vendors_are_told", vendors_are_told),
    ("limits_are_told_and_kept", limits_are_told_and_kept),
    ("a_device_of_1_2_computes", a_device_of_1_2_computes),
    ("a_budget_bounds_free_memory", a_budget_bounds_free_memory),
    ("no_budget_leaves_the_heap", no_budget_leaves_the_heap),
];

/// A device with other properties.
fn with(how: impl Fn(&mut vk::PhysicalDeviceProperties) + Send + Sync + 'static) -> DeviceAnswers {
    DeviceAnswers {
        properties: change(how),
        ..DeviceAnswers::default()
    }
}

/// How the only device is described.
fn described(device: DeviceAnswers) -> Result<DeviceInfo, Failed> {
    let answered = Answered::device(device)?;
    let devices = answered.backend.devices()?;
    same("messages", answered.messages.all(), Vec::new())?;
    match <[DeviceInfo; 1]>::try_from(devices) {
        Ok([device]) => Ok(device),
        Err(devices) => Err(format!("{} devices", devices.len()).into()),
    }
}

fn a_pci_address_is_told() -> Outcome {
    let info = described(DeviceAnswers {
        pci: Some([0xFFFE, 0x65, 0x1F, 7]),
        ..DeviceAnswers::default()
    })?;
    let expected = PciAddress {
        domain: 0xFFFE,
        bus: 0x65,
        device: 0x1F,
        function: 7,
    };
    same("address", info.pci, Some(expected))?;
    // No such card is here.
    same("node", info.numa_node, None)?;

    let info = described(DeviceAnswers {
        hidden_extensions: vec![ext::pci_bus_info::NAME],
        ..DeviceAnswers::default()
    })?;
    same("address that is not told", info.pci, None)?;
    nodes_are_as_linux_says()
}

/// A card at the place of each that this machine has is on that one's node.
fn nodes_are_as_linux_says() -> Outcome {
    let Ok(folder) = std::fs::read_dir("/sys/bus/pci/devices") else {
        return Ok(());
    };
    for entry in folder.take(8) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let parts: Vec<u32> = name
            .split([':', '.'])
            .map(|part| u32::from_str_radix(part, 16))
            .collect::<Result<_, _>>()?;
        let address: [u32; 4] = parts.try_into().map_err(|_| name.clone())?;
        let text = std::fs::read_to_string(entry.path().join("numa_node"))?;
        let expected: i64 = text.trim().parse()?;
        let info = described(DeviceAnswers {
            pci: Some(address),
            ..DeviceAnswers::default()
        })?;
        let found = info.numa_node.map_or(-1, i64::from);
        same(&format!("node of {name}"), found, expected)?;
    }
    Ok(())
}

fn kinds_are_told() -> Outcome {
    for (kind, expected) in [
        (
            vk::PhysicalDeviceType::DISCRETE_GPU,
            DeviceKind::DiscreteGpu,
        ),
        (
            vk::PhysicalDeviceType::INTEGRATED_GPU,
            DeviceKind::IntegratedGpu,
        ),
        (vk::PhysicalDeviceType::VIRTUAL_GPU, DeviceKind::VirtualGpu),
        (vk::PhysicalDeviceType::CPU, DeviceKind::Cpu),
        (vk::PhysicalDeviceType::OTHER, DeviceKind::Unknown),
    ] {
        let info = described(with(move |properties| properties.device_type = kind))?;
        same("kind", info.kind, expected)?;
        let shares_memory = matches!(expected, DeviceKind::IntegratedGpu | DeviceKind::Cpu);
        let unified = info.capabilities.unified_memory;
        same(&format!("{expected:?} is mapped"), unified, shares_memory)?;
    }
    Ok(())
}

fn vendors_are_told() -> Outcome {
    for (id, expected) in [
        (0x10DE, Vendor::Nvidia),
        (0x1002, Vendor::Amd),
        (0x8086, Vendor::Intel),
        (0x106B, Vendor::Apple),
        (0x13B5, Vendor::Arm),
        (0x5143, Vendor::Qualcomm),
        (0x1010, Vendor::Imagination),
        (0x1_0005, Vendor::Mesa),
        (0x1AE0, Vendor::Google),
        (0x1234, Vendor::Other(0x1234)),
    ] {
        let info = described(with(move |properties| properties.vendor_id = id))?;
        same("vendor", info.vendor, expected)?;
    }
    Ok(())
}

fn limits_are_told_and_kept() -> Outcome {
    let answered = Answered::device(with(|properties| {
        let limits = &mut properties.limits;
        limits.max_push_constants_size = 100;
        limits.max_compute_work_group_count = [7, 5, 3];
        limits.max_compute_work_group_size = [96, 48, 24];
        limits.max_compute_work_group_invocations = 90;
        limits.max_compute_shared_memory_size = 500;
    }))?;
    let device = Device::open(&answered.backend)?;
    let limits = device.context.device().limits;
    same("grid", limits.max_grid, [7, 5, 3])?;
    same("block", limits.max_block, [96, 48, 24])?;
    same("threads", limits.max_threads_per_block, 90)?;
    same("shared memory", limits.max_shared_memory_bytes, 500)?;
    same("arguments", limits.max_argument_bytes, 100)?;

    match device.kernel("push_128") {
        Err(GpuError::LaunchLimits(fault)) => same(
            "arguments",
            (fault.what, fault.requested, fault.limit),
            (LimitKind::ArgumentBytes, 128, 100),
        )?,
        other => return Err(format!("{other:?}").into()),
    }
    let kernel = device.kernel("increment")?;
    let buffer = device.upload(&[0; 4096])?;
    let n = 1024u32.to_le_bytes();
    let args = || [Arg::Buffer(&buffer), Arg::Bytes(&n)];
    device.launch(&kernel, 1, [90, 1, 1], &args())?;
    for (block, expected) in [
        ([97, 1, 1], (LimitKind::BlockThreads, Some(Axis::X), 97, 96)),
        ([1, 49, 1], (LimitKind::BlockThreads, Some(Axis::Y), 49, 48)),
        ([1, 1, 25], (LimitKind::BlockThreads, Some(Axis::Z), 25, 24)),
        ([46, 2, 1], (LimitKind::ThreadsPerBlock, None, 92, 90)),
    ] {
        match device.launch(&kernel, 1, block, &args()) {
            Err(GpuError::LaunchLimits(fault)) => same(
                "limit",
                (fault.what, fault.axis, fault.requested, fault.limit),
                expected,
            )?,
            other => return Err(format!("block {block:?}: {other:?}").into()),
        }
    }
    Ok(())
}

/// Resolves a kernel whose block has ids for sizes, with its image said to be of this version.
fn block_of_ids(device: &Device, (major, minor): (u8, u8)) -> Result<(), GpuError> {
    let name = "vector_add_local_size_id";
    let mut image =
        grafos_kernels::by_name(name).map_or(Vec::new(), |kernel| kernel.spirv.to_vec());
    if let Some(version) = image.get_mut(4..8) {
        version.copy_from_slice(&[0, minor, major, 0]);
    }
    let module = device.context.load_module(&image)?;
    device.context.kernel(module.id, name).map(|_| ())
}

/// The same, refused with these words.
fn refused_image(device: &Device, version: (u8, u8), words: &str) -> Outcome {
    match block_of_ids(device, version) {
        Err(failure @ GpuError::Unsupported(_)) => {
            let text = failure.to_string();
            ensure(text.contains(words), || text)
        }
        other => Err(format!("{version:?}: {other:?}").into()),
    }
}

fn a_device_of_1_2_computes() -> Outcome {
    for hidden in [vec![], vec![khr::maintenance4::NAME]] {
        let has_maintenance4 = hidden.is_empty();
        let answered = Answered::device(DeviceAnswers {
            hidden_extensions: hidden,
            ..with(|properties| properties.api_version = vk::make_api_version(0, 1, 2, 9))
        })?;
        let device = Device::open(&answered.backend)?;
        let version = &device.context.device().driver.api_version;
        same("version", &**version, "1.2.9")?;
        launches::both_styles_agree_under_load(&device)?;
        // A block of ids needs an ability, and SPIR-V 1.6 needs 1.3.
        refused_image(&device, (1, 6), "up to 1.5")?;
        if has_maintenance4 {
            block_of_ids(&device, (1, 5))?;
        } else {
            refused_image(&device, (1, 5), "lacks maintenance4")?;
        }
        drop(device);
        same("unknown structures", answered.unknown_structures(), 0)?;
        same("messages", answered.messages.all(), Vec::new())?;
    }
    Ok(())
}

/// A budget for every heap, and the memory that a context on the device says.
fn with_budget(budget: u64, usage: u64, check: impl FnOnce(&Device) -> Outcome) -> Outcome {
    let answered = Answered::device(DeviceAnswers {
        budgets: Some(vec![[budget, usage]; vk::MAX_MEMORY_HEAPS]),
        ..DeviceAnswers::default()
    })?;
    let device = Device::open(&answered.backend)?;
    check(&device)?;
    drop(device);
    same("messages", answered.messages.all(), Vec::new())
}

fn cached(info: MemoryInfo) -> u64 {
    info.reserved_bytes - info.live_bytes
}

fn a_budget_bounds_free_memory() -> Outcome {
    with_budget(300_000_000, 100_000_000, |device| {
        let context = &*device.context;
        let info = context.memory_info()?;
        same("free", info.free_bytes, 200_000_000 + cached(info))?;
        let kept = device.buffer(5 << 20)?;
        let info = context.memory_info()?;
        // What is reserved and not in use can be had, though the driver counts it as used.
        ensure(cached(info) > 0, || format!("{info:?}"))?;
        same("free", info.free_bytes, 200_000_000 + cached(info))?;
        interposer::fail_allocations(4);
        let refused = device.buffer(300 << 20);
        interposer::fail_allocations(0);
        match refused {
            Err(GpuError::OutOfMemory(fault)) => same(
                "available",
                fault.available,
                Some(200_000_000 + cached(context.memory_info()?)),
            )?,
            other => return Err(format!("{other:?}").into()),
        }
        Ok(context.free(kept.id)?)
    })?;
    // Others have used more than this process is to have.
    with_budget(100_000_000, 300_000_000, |device| {
        let info = device.context.memory_info()?;
        same("free", info.free_bytes, cached(info))
    })?;
    // No budget is larger than the heap.
    with_budget(u64::MAX, 0, |device| {
        let info = device.context.memory_info()?;
        same("free", info.free_bytes, info.total_bytes - info.live_bytes)
    })
}

fn no_budget_leaves_the_heap() -> Outcome {
    let answered = Answered::device(DeviceAnswers {
        hidden_extensions: vec![ext::memory_budget::NAME],
        ..DeviceAnswers::default()
    })?;
    let device = Device::open(&answered.backend)?;
    let _kept = device.buffer(1 << 20)?;
    let info = device.context.memory_info()?;
    let total = device.context.device().memory_bytes;
    same("total", info.total_bytes, total)?;
    same("free", info.free_bytes, total - (1 << 20))
}
