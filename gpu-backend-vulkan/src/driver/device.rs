//! The logical device, its queues, and the latch for its loss.

#![expect(unsafe_code, reason = "every Vulkan call is unsafe by nature")]

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

use ash::vk::Handle;
use ash::{ext, khr, vk};
use grafos_host_abi::{GpuError, LostFault, Result};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{Abilities, ExitGuard, HeapBudget, Physical, QueueFamily, Semaphore};
use crate::error;

/// A `VkDevice` with its queues.
pub(crate) struct Device {
    raw: ash::Device,
    push_descriptor: Option<khr::push_descriptor::Device>,
    queues: Vec<Mutex<vk::Queue>>,
    family: QueueFamily,
    abilities: Abilities,
    lost: OnceLock<LostFault>,
    /// Timeline semaphores that nobody has any more.
    semaphores: Mutex<Vec<vk::Semaphore>>,
    physical: Physical,
}

/// One command buffer on its way to a queue.
pub(crate) struct SubmitBatch<'a> {
    /// Semaphores and values to wait for before anything of the batch runs.
    pub(crate) waits: &'a [(Arc<Semaphore>, u64)],
    /// What to run.
    pub(crate) commands: &'a super::Commands,
    /// The semaphore to raise to a value when all of the batch, and all before it on the queue,
    /// has ended.
    pub(crate) signal: &'a Semaphore,
    /// That value.
    pub(crate) value: u64,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// Everything that was waited for has been reached.
    Reached,
    /// The time was over first.
    TimedOut,
}

impl Device {
    /// Creates a device with everything enabled that it has and this backend can use.
    pub(crate) fn new(
        physical: Physical,
        abilities: Abilities,
        family: QueueFamily,
        api_version: u32,
        most_queues: u32,
    ) -> Result<Arc<Self>> {
        let queue_count = family.queue_count.min(most_queues).max(1);
        let priorities = vec![1.0f32; queue_count as usize];
        let queue_info = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family.index)
            .queue_priorities(&priorities)];
        let extensions: Vec<_> = extension_names(&abilities).map(CStr::as_ptr).collect();

        let features = vk::PhysicalDeviceFeatures::default()
            .shader_int16(abilities.int16)
            .shader_int64(abilities.int64)
            .shader_float64(abilities.float64);
        let mut core11 = vk::PhysicalDeviceVulkan11Features::default()
            .storage_buffer16_bit_access(abilities.storage_16bit)
            .uniform_and_storage_buffer16_bit_access(abilities.uniform_16bit)
            .storage_push_constant16(abilities.push_constant_16bit)
            .variable_pointers(abilities.variable_pointers)
            .variable_pointers_storage_buffer(abilities.variable_pointers_storage_buffer);
        let mut core12 = vk::PhysicalDeviceVulkan12Features::default()
            .buffer_device_address(abilities.buffer_device_address)
            .timeline_semaphore(abilities.timeline_semaphore)
            .shader_int8(abilities.int8)
            .shader_float16(abilities.float16)
            .storage_buffer8_bit_access(abilities.storage_8bit)
            .uniform_and_storage_buffer8_bit_access(abilities.uniform_8bit)
            .storage_push_constant8(abilities.push_constant_8bit)
            .shader_buffer_int64_atomics(abilities.buffer_int64_atomics)
            .shader_shared_int64_atomics(abilities.shared_int64_atomics)
            .vulkan_memory_model(abilities.vulkan_memory_model)
            .vulkan_memory_model_device_scope(abilities.vulkan_memory_model_device_scope)
            .scalar_block_layout(abilities.scalar_block_layout)
            .uniform_buffer_standard_layout(abilities.uniform_standard_layout)
            .shader_subgroup_extended_types(abilities.subgroup_extended_types);
        let mut core13 = vk::PhysicalDeviceVulkan13Features::default()
            .maintenance4(abilities.maintenance4)
            .shader_integer_dot_product(abilities.integer_dot_product)
            .shader_zero_initialize_workgroup_memory(abilities.zero_initialize_shared);
        let mut maintenance4 =
            vk::PhysicalDeviceMaintenance4Features::default().maintenance4(abilities.maintenance4);
        let mut atomic_float = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT::default()
            .shader_buffer_float32_atomics(abilities.float32_atomics)
            .shader_buffer_float32_atomic_add(abilities.float32_atomic_add)
            .shader_shared_float32_atomic_add(abilities.shared_float32_atomic_add)
            .shader_buffer_float64_atomics(abilities.float64_atomics)
            .shader_buffer_float64_atomic_add(abilities.float64_atomic_add)
            .shader_shared_float64_atomic_add(abilities.shared_float64_atomic_add);
        let mut explicit_shared =
            vk::PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR::default()
                .workgroup_memory_explicit_layout(abilities.explicit_shared_layout);

        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queue_info)
            .enabled_extension_names(&extensions)
            .enabled_features(&features)
            .push_next(&mut core11)
            .push_next(&mut core12);
        if api_version >= vk::API_VERSION_1_3 {
            info = info.push_next(&mut core13);
        }
        if abilities.maintenance4_extension {
            info = info.push_next(&mut maintenance4);
        }
        if abilities.atomic_float_extension {
            info = info.push_next(&mut atomic_float);
        }
        if abilities.explicit_shared_layout_extension {
            info = info.push_next(&mut explicit_shared);
        }
        let instance = physical.instance().raw();
        // SAFETY: every pointer in `info` outlives the call; extensions and features were
        // reported by the device.
        let raw = unsafe { instance.create_device(physical.raw(), &info, None) }
            .map_err(|result| error::from_code("vkCreateDevice", result, 0))?;
        let queues = (0..queue_count)
            .map(|index| {
                // SAFETY: the family and as many of its queues were asked for above.
                Mutex::new(unsafe { raw.get_device_queue(family.index, index) })
            })
            .collect();
        let push_descriptor = abilities
            .push_descriptor
            .then(|| khr::push_descriptor::Device::new(instance, &raw));
        Ok(Arc::new(Self {
            raw,
            push_descriptor,
            queues,
            family,
            abilities,
            lost: OnceLock::new(),
            semaphores: Mutex::default(),
            physical,
        }))
    }

    pub(super) fn raw(&self) -> &ash::Device {
        &self.raw
    }

    pub(super) fn physical(&self) -> &Physical {
        &self.physical
    }

    pub(super) fn push_descriptor(&self) -> Option<&khr::push_descriptor::Device> {
        self.push_descriptor.as_ref()
    }

    pub(crate) fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    pub(crate) fn family(&self) -> QueueFamily {
        self.family
    }

    pub(super) fn take_semaphore(&self) -> Option<vk::Semaphore> {
        self.semaphores.lock().pop()
    }

    pub(super) fn keep_semaphore(&self, semaphore: vk::Semaphore) {
        self.semaphores.lock().push(semaphore);
    }

    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The driver's budget for a heap, where it has one.
    pub(crate) fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        if self.abilities.memory_budget {
            self.physical.heap_budget(heap)
        } else {
            None
        }
    }

    /// Answers the first cause once the device is lost.
    pub(crate) fn ensure_alive(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(fault) => Err(GpuError::DeviceLost(fault.clone())),
        }
    }

    /// Turns a failed call into an error, and latches the loss of the device.
    pub(crate) fn failure(
        &self,
        entry_point: &'static str,
        result: vk::Result,
        requested_bytes: u64,
    ) -> GpuError {
        match error::from_code(entry_point, result, requested_bytes) {
            GpuError::DeviceLost(fault) => {
                GpuError::DeviceLost(self.lost.get_or_init(|| fault).clone())
            }
            other => other,
        }
    }

    pub(super) fn check<T>(
        &self,
        entry_point: &'static str,
        outcome: Result<T, vk::Result>,
    ) -> Result<T> {
        outcome.map_err(|result| self.failure(entry_point, result, 0))
    }

    /// The memory types that buffers can be made of, a bit for each.
    pub(crate) fn buffer_memory_types(&self) -> Result<u32> {
        let info = super::memory::buffer_info(256);
        // SAFETY: `info` is valid for the call.
        let outcome = unsafe { self.raw.create_buffer(&info, None) };
        let buffer = self.check("vkCreateBuffer", outcome)?;
        // SAFETY: the buffer is live.
        let requirements = unsafe { self.raw.get_buffer_memory_requirements(buffer) };
        // SAFETY: nothing uses the buffer.
        unsafe { self.raw.destroy_buffer(buffer, None) };
        Ok(requirements.memory_type_bits)
    }

    /// Submits batches to a queue, in their order (`vkQueueSubmit`).
    pub(crate) fn submit(&self, queue: usize, batches: &[SubmitBatch<'_>]) -> Result<()> {
        // Before the lock: who is kept out of the driver must not keep it.
        let _exit_waits = ExitGuard::enter();
        let guard = self.queues[queue].lock();
        self.submit_locked(&guard, batches)
    }

    fn submit_locked(
        &self,
        queue: &MutexGuard<'_, vk::Queue>,
        batches: &[SubmitBatch<'_>],
    ) -> Result<()> {
        self.ensure_alive()?;
        struct Flat {
            wait_semaphores: SmallVec<[vk::Semaphore; 2]>,
            wait_values: SmallVec<[u64; 2]>,
            wait_stages: SmallVec<[vk::PipelineStageFlags; 2]>,
            commands: [vk::CommandBuffer; 1],
            signal: [vk::Semaphore; 1],
            value: [u64; 1],
        }
        let flat: SmallVec<[Flat; 2]> = batches
            .iter()
            .map(|batch| Flat {
                wait_semaphores: batch.waits.iter().map(|(wait, _)| wait.raw()).collect(),
                wait_values: batch.waits.iter().map(|(_, value)| *value).collect(),
                wait_stages: batch
                    .waits
                    .iter()
                    .map(|_| vk::PipelineStageFlags::ALL_COMMANDS)
                    .collect(),
                commands: [batch.commands.raw()],
                signal: [batch.signal.raw()],
                value: [batch.value],
            })
            .collect();
        let mut timelines: SmallVec<[vk::TimelineSemaphoreSubmitInfo<'_>; 2]> = flat
            .iter()
            .map(|flat| {
                vk::TimelineSemaphoreSubmitInfo::default()
                    .wait_semaphore_values(&flat.wait_values)
                    .signal_semaphore_values(&flat.value)
            })
            .collect();
        let infos: SmallVec<[vk::SubmitInfo<'_>; 2]> = flat
            .iter()
            .zip(timelines.iter_mut())
            .map(|(flat, timeline)| {
                vk::SubmitInfo::default()
                    .wait_semaphores(&flat.wait_semaphores)
                    .wait_dst_stage_mask(&flat.wait_stages)
                    .command_buffers(&flat.commands)
                    .signal_semaphores(&flat.signal)
                    .push_next(timeline)
            })
            .collect();
        // SAFETY: the queue is locked; everything in `infos` outlives the call, and what it names
        // lives until the batches have ended.
        let outcome = unsafe { self.raw.queue_submit(**queue, &infos, vk::Fence::null()) };
        self.check("vkQueueSubmit", outcome)
    }

    /// Waits until every semaphore has reached its value (`vkWaitSemaphores`).
    pub(crate) fn wait(
        &self,
        targets: &[(Arc<Semaphore>, u64)],
        timeout_ns: u64,
    ) -> Result<WaitEnd> {
        self.ensure_alive()?;
        let semaphores: SmallVec<[vk::Semaphore; 4]> = targets
            .iter()
            .map(|(semaphore, _)| semaphore.raw())
            .collect();
        let values: SmallVec<[u64; 4]> = targets.iter().map(|(_, value)| *value).collect();
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        let _exit_waits = ExitGuard::enter();
        // SAFETY: the semaphores are live and are timeline semaphores.
        match unsafe { self.raw.wait_semaphores(&info, timeout_ns) } {
            Ok(()) => Ok(WaitEnd::Reached),
            Err(vk::Result::TIMEOUT) => Ok(WaitEnd::TimedOut),
            Err(result) => Err(self.failure("vkWaitSemaphores", result, 0)),
        }
    }

    /// Locks a queue against this crate's submissions while `use_queue` runs with its handle as a
    /// number.
    pub(crate) fn with_queue(&self, queue: usize, use_queue: &mut dyn FnMut(u64)) {
        let guard = self.queues[queue].lock();
        use_queue(guard.as_raw());
    }

    /// The instance's, physical device's and device's handles and the loader's
    /// `vkGetInstanceProcAddr`, as numbers.
    pub(crate) fn handles(&self) -> [u64; 4] {
        [
            self.physical.instance().handle(),
            self.physical.handle(),
            self.raw.handle().as_raw(),
            self.physical.instance().proc_addr(),
        ]
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // All work has ended, so this returns soon; it lets the driver's own threads get done with
        // the semaphores. A failure means that the device is lost, and then they are as well.
        // SAFETY: nobody else has the device or its queues any more.
        let _ = unsafe { self.raw.device_wait_idle() };
        for semaphore in self.semaphores.get_mut().drain(..) {
            // SAFETY: created from this device; no work refers to it, as above.
            unsafe { self.raw.destroy_semaphore(semaphore, None) };
        }
        // SAFETY: every object of the device holds it, so none is left; a context drops its
        // objects only when its work has ended.
        unsafe { self.raw.destroy_device(None) };
    }
}

fn extension_names(abilities: &Abilities) -> impl Iterator<Item = &'static CStr> {
    [
        (abilities.push_descriptor, khr::push_descriptor::NAME),
        (abilities.memory_budget, ext::memory_budget::NAME),
        (abilities.portability_subset, khr::portability_subset::NAME),
        (abilities.maintenance4_extension, khr::maintenance4::NAME),
        (
            abilities.atomic_float_extension,
            ext::shader_atomic_float::NAME,
        ),
        (
            abilities.explicit_shared_layout_extension,
            khr::workgroup_memory_explicit_layout::NAME,
        ),
    ]
    .into_iter()
    .filter_map(|(enabled, name)| enabled.then_some(name))
}
