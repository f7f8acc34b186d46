//! Devices with other memory than a software driver has: bytes take the ways that they do there.

use ash::{ext, vk};

use crate::device::{Device, Outcome, ensure, same};
use crate::support::answers::{Answered, DeviceAnswers, MemoryAnswers, change};
use crate::{Anywhere, launches, memory, transfers};

pub(crate) const TRIALS: [Anywhere; 4] = [
    ("a_card_is_staged", a_card_is_staged),
    (
        "uncached_memory_is_written_through",
        uncached_memory_is_written_through,
    ),
    (
        "the_mapped_type_is_taken_where_shared",
        the_mapped_type_is_taken_where_shared,
    ),
    (
        "types_that_buffers_cannot_have_are_left",
        types_that_buffers_cannot_have_are_left,
    ),
];

const LOCAL: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::DEVICE_LOCAL;
const CACHED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::HOST_CACHED;
const MAPPED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw()
        | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);

fn device(kind: vk::PhysicalDeviceType, memory: MemoryAnswers) -> DeviceAnswers {
    DeviceAnswers {
        properties: change(move |properties: &mut vk::PhysicalDeviceProperties| {
            properties.device_type = kind;
        }),
        // The driver's budget is for heaps that are not told.
        hidden_extensions: vec![ext::memory_budget::NAME],
        memory: Some(memory),
        ..DeviceAnswers::default()
    }
}

/// Values are right on the device, whatever way they take.
fn computes(device: &Device) -> Outcome {
    let large: Vec<u8> = (0..(30u32 << 20) / 4 + 1)
        .flat_map(|word| word.wrapping_mul(0x9E37_79B9).to_le_bytes())
        .collect();
    let buffer = device.upload(&large)?;
    ensure(device.download(&buffer)? == large, || {
        format!("{} bytes differ", large.len())
    })?;
    device.context.free(buffer.id)?;
    transfers::random_transfers_match_a_model(device)?;
    launches::both_styles_agree_under_load(device)?;
    memory::buffers_are_freed_under_work(&device.again()?)
}

/// The memory types of which a context allocated some.
fn used(answered: &Answered, types: u32) -> Vec<u32> {
    let some = |memory_type: &u32| answered.allocations(*memory_type) > 0;
    (0..types).filter(some).collect()
}

fn a_card_is_staged() -> Outcome {
    let answered = Answered::device(device(
        vk::PhysicalDeviceType::DISCRETE_GPU,
        MemoryAnswers {
            types: vec![
                (MAPPED, 1),
                (LOCAL | vk::MemoryPropertyFlags::PROTECTED, 0),
                (LOCAL, 0),
                (MAPPED | CACHED, 1),
                (LOCAL | MAPPED, 2),
            ],
            heaps: vec![1 << 30, 4 << 30, 256 << 20],
            for_buffers: 0b11111,
        },
    ))?;
    let device = Device::open(&answered.backend)?;
    let info = device.context.device();
    same("memory", info.memory_bytes, 1 << 30)?;
    same("mapped", info.capabilities.unified_memory, false)?;
    computes(&device)?;
    drop(device);
    same("types in use", used(&answered, 5), vec![2, 3])?;
    same("messages", answered.messages.all(), Vec::new())
}

fn uncached_memory_is_written_through() -> Outcome {
    let answered = Answered::device(device(
        vk::PhysicalDeviceType::INTEGRATED_GPU,
        MemoryAnswers {
            types: vec![(LOCAL, 0), (LOCAL | MAPPED, 0), (MAPPED | CACHED, 1)],
            heaps: vec![1 << 30, 1 << 30],
            for_buffers: 0b111,
        },
    ))?;
    let device = Device::open(&answered.backend)?;
    same(
        "mapped",
        device.context.device().capabilities.unified_memory,
        true,
    )?;
    let buffer = device.upload(&[5; 100_000])?;
    same("types after a write", used(&answered, 3), vec![1])?;
    same("bytes", device.download(&buffer)?, vec![5; 100_000])?;
    same("types after a read", used(&answered, 3), vec![1, 2])?;
    computes(&device)?;
    drop(device);
    same("messages", answered.messages.all(), Vec::new())
}

fn the_mapped_type_is_taken_where_shared() -> Outcome {
    let answered = Answered::device(device(
        vk::PhysicalDeviceType::INTEGRATED_GPU,
        MemoryAnswers {
            types: vec![
                (LOCAL, 0),
                (LOCAL | MAPPED, 0),
                (LOCAL | MAPPED | CACHED, 0),
            ],
            heaps: vec![1 << 30],
            for_buffers: 0b111,
        },
    ))?;
    let device = Device::open(&answered.backend)?;
    computes(&device)?;
    drop(device);
    same("types in use", used(&answered, 3), vec![2])?;
    same("messages", answered.messages.all(), Vec::new())
}

fn types_that_buffers_cannot_have_are_left() -> Outcome {
    let answered = Answered::device(device(
        vk::PhysicalDeviceType::DISCRETE_GPU,
        MemoryAnswers {
            types: vec![(LOCAL, 0), (LOCAL, 1), (MAPPED | CACHED, 2), (MAPPED, 2)],
            heaps: vec![2 << 30, 1 << 30, 1 << 30],
            for_buffers: 0b1010,
        },
    ))?;
    let device = Device::open(&answered.backend)?;
    computes(&device)?;
    let told = device.context.device().memory_bytes;
    let counted = device.context.memory_info()?.total_bytes;
    same("memory", (told, counted), (1 << 30, 1 << 30))?;
    drop(device);
    same("types in use", used(&answered, 4), vec![1, 3])?;
    same("messages", answered.messages.all(), Vec::new())
}
