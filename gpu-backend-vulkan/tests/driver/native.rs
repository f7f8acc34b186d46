//! Lent handles, with which the trials call the driver directly.

#![expect(unsafe_code, reason = "calls the driver directly")]

use std::sync::Arc;

use ash::vk::{self, Handle};
use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::{GpuBackend, NativeHandle, Probe, StreamId};
use libtest_mimic::{Completion, Failed};

use crate::device::{Arg, Device, Outcome, ensure, words};
use crate::support::Messages;

/// Work that a caller submits to the lent queue runs between the context's own.
pub(crate) fn foreign_work_is_ordered(device: &Device) -> Outcome {
    let increment = device.kernel("increment")?;
    let buffer = device.upload(&[0; 4096])?;
    let n = 1024u32.to_le_bytes();
    let add_one = || {
        device.launch(
            &increment,
            4,
            [256, 1, 1],
            &[Arg::Buffer(&buffer), Arg::Bytes(&n)],
        )
    };
    let mut foreign = Vec::new();
    for round in 0..20u32 {
        for _ in 0..50 {
            add_one()?;
        }
        let mut outcome = Err("not called".into());
        device
            .context
            .with_native(StreamId::DEFAULT, &[buffer.id], &mut |handle| {
                outcome = submit_fill(handle, round * 1000);
            })?;
        foreign.push(outcome?);
        for _ in 0..50 {
            add_one()?;
        }
        let found = words(&device.download(&buffer)?);
        ensure(found == vec![round * 1000 + 50; 1024], || {
            format!("round {round}: found {:?}...", &found[..4])
        })?;
    }
    device.context.sync(None)?;
    for (raw, pool) in foreign {
        // SAFETY: the pool was made from this device, and its work has ended.
        unsafe {
            raw.destroy_command_pool(pool, None);
        };
    }
    Ok(())
}

/// Fills the lent buffer on the lent queue, as a vendor library would use them.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one sequence of plain Vulkan calls on lent handles"
)]
fn submit_fill(handle: &NativeHandle, word: u32) -> Result<(ash::Device, vk::CommandPool), Failed> {
    let object = |name: &str| {
        handle
            .object(name)
            .ok_or_else(|| Failed::from(format!("no {name}")))
    };
    let function = object("PFN_vkGetInstanceProcAddr")? as usize as *const ();
    let lent = handle.buffers.first().ok_or("no buffer")?;
    // SAFETY: the handles are live while the callback runs, the function is the loader's, and the
    // queue is locked.
    unsafe {
        let entry = ash::Entry::from_static_fn(ash::StaticFn {
            get_instance_proc_addr: std::mem::transmute::<*const (), vk::PFN_vkGetInstanceProcAddr>(
                function,
            ),
        });
        let instance = vk::Instance::from_raw(object("VkInstance")?);
        let instance = ash::Instance::load(entry.static_fn(), instance);
        let raw = vk::Device::from_raw(object("VkDevice")?);
        let raw = ash::Device::load(instance.fp_v1_0(), raw);
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(object("queueFamilyIndex")? as u32);
        let pool = raw.create_command_pool(&info, None)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(1);
        let commands = raw.allocate_command_buffers(&info)?;
        raw.begin_command_buffer(commands[0], &vk::CommandBufferBeginInfo::default())?;
        raw.cmd_fill_buffer(
            commands[0],
            vk::Buffer::from_raw(lent.object),
            lent.offset_bytes,
            4096,
            word,
        );
        raw.end_command_buffer(commands[0])?;
        let info = [vk::SubmitInfo::default().command_buffers(&commands)];
        let queue = vk::Queue::from_raw(object("VkQueue")?);
        raw.queue_submit(queue, &info, vk::Fence::null())?;
        Ok((raw, pool))
    }
}

/// A watched mistake is reported: silence of the layer means something.
pub(crate) fn the_validation_layer_speaks_up() -> Result<Completion, Failed> {
    let messages = Messages::default();
    let backend = Arc::new(messages.watch(VulkanBackend::builder()).build());
    if let Probe::Unavailable { reason, .. } = backend.probe()
        && reason.contains("VK_LAYER_KHRONOS_validation")
    {
        return Ok(Completion::ignored_with(reason));
    }
    let device = Device::open(&backend)?;
    let mut outcome = Err("not called".into());
    device
        .context
        .with_native(StreamId::DEFAULT, &[], &mut |handle| {
            outcome = create_empty_buffer(handle);
        })?;
    outcome?;
    let said = messages.all();
    ensure(
        said.iter()
            .any(|message| message.contains("VUID-VkBufferCreateInfo-size-00912")),
        || format!("{said:?}"),
    )?;
    Ok(Completion::Completed)
}

/// Creates a buffer of no bytes, which Vulkan forbids.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one sequence of plain Vulkan calls on lent handles"
)]
fn create_empty_buffer(handle: &NativeHandle) -> Outcome {
    let object = |name: &str| {
        handle
            .object(name)
            .ok_or_else(|| Failed::from(format!("no {name}")))
    };
    let function = object("PFN_vkGetInstanceProcAddr")? as usize as *const ();
    // SAFETY: the handles are live while the callback runs; the layer catches the mistake, and
    // drivers take it for a small buffer.
    unsafe {
        let entry = ash::Entry::from_static_fn(ash::StaticFn {
            get_instance_proc_addr: std::mem::transmute::<*const (), vk::PFN_vkGetInstanceProcAddr>(
                function,
            ),
        });
        let instance = vk::Instance::from_raw(object("VkInstance")?);
        let instance = ash::Instance::load(entry.static_fn(), instance);
        let raw = vk::Device::from_raw(object("VkDevice")?);
        let raw = ash::Device::load(instance.fp_v1_0(), raw);
        let info = vk::BufferCreateInfo::default().usage(vk::BufferUsageFlags::TRANSFER_DST);
        if let Ok(buffer) = raw.create_buffer(&info, None) {
            raw.destroy_buffer(buffer, None);
        }
    }
    Ok(())
}
