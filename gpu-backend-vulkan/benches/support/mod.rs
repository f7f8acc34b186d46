//! What a program would do with `ash` alone, straightforwardly: one submission for each launch, one
//! allocation for each buffer.
#![expect(unsafe_code, reason = "every Vulkan call is unsafe by nature")]

use std::error::Error;

use ash::vk;

/// Command buffers that take turns, as in a program that launches without end.
pub(crate) const RING: usize = 64;

/// A `VkDevice` with a kernel that counts its launches.
pub(crate) struct Plain {
    counter: PlainBuffer,
    pipeline: vk::Pipeline,
    layout: vk::PipelineLayout,
    shader: vk::ShaderModule,
    commands: Vec<vk::CommandBuffer>,
    pool: vk::CommandPool,
    ring: Vec<(vk::CommandBuffer, vk::Fence)>,
    ring_pool: vk::CommandPool,
    queue: vk::Queue,
    memory: vk::PhysicalDeviceMemoryProperties,
    device: ash::Device,
    instance: ash::Instance,
    _entry: ash::Entry,
}

/// A buffer with memory of its own.
#[derive(Clone, Copy)]
pub(crate) struct PlainBuffer {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    address: u64,
}

impl Plain {
    /// Opens the device of this name, with command buffers for `launches` launches of the kernel
    /// `increment` in `spirv`, and a buffer of `len` zeroed words for it to count in.
    pub(crate) fn new(
        name: &str,
        spirv: &[u8],
        len: u32,
        launches: u32,
    ) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the loader is the system's own, and the entry outlives everything made of it.
        let entry = unsafe { ash::Entry::load() }?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `info` is valid for the call.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        let physical = find(&instance, name)?;
        // SAFETY: the physical device is the instance's.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        let families =
            // SAFETY: the physical device is the instance's.
            unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let family = families
            .iter()
            .position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE))
            .ok_or("no queue computes")? as u32;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        let mut features =
            vk::PhysicalDeviceVulkan12Features::default().buffer_device_address(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .push_next(&mut features);
        // SAFETY: the family exists, and the backend found that the device has the feature.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        // SAFETY: the device was created with one queue of this family.
        let queue = unsafe { device.get_device_queue(family, 0) };

        let words: Vec<u32> = spirv
            .as_chunks()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: the image is valid SPIR-V.
        let shader = unsafe { device.create_shader_module(&info, None) }?;
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(size_of::<Arguments>() as u32)];
        let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&ranges);
        // SAFETY: every device has 128 bytes of push constants.
        let layout = unsafe { device.create_pipeline_layout(&info, None) }?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(shader)
            .name(c"increment");
        let infos = [vk::ComputePipelineCreateInfo::default()
            .stage(stage)
            .layout(layout)];
        let cache = vk::PipelineCache::null();
        // SAFETY: shader and layout are live and fit each other.
        let pipelines = unsafe { device.create_compute_pipelines(cache, &infos, None) };
        let pipelines = pipelines.map_err(|(_, result)| result)?;
        let pipeline = *pipelines.first().ok_or("no pipeline was made")?;

        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the device was created with this family.
        let pool = unsafe { device.create_command_pool(&info, None) }?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(launches);
        // SAFETY: the pool is live.
        let commands = unsafe { device.allocate_command_buffers(&info) }?;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        // SAFETY: the device was created with this family.
        let ring_pool = unsafe { device.create_command_pool(&info, None) }?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(ring_pool)
            .command_buffer_count(RING as u32);
        // SAFETY: the pool is live.
        let ring = unsafe { device.allocate_command_buffers(&info) }?;
        let info = vk::FenceCreateInfo::default().flags(vk::FenceCreateFlags::SIGNALED);
        let ring = ring
            .into_iter()
            // SAFETY: `info` is valid for the call.
            .map(|commands| Ok((commands, unsafe { device.create_fence(&info, None) }?)))
            .collect::<Result<Vec<_>, vk::Result>>()?;
        let mut plain = Self {
            counter: PlainBuffer::NONE,
            pipeline,
            layout,
            shader,
            commands,
            pool,
            ring,
            ring_pool,
            queue,
            memory,
            device,
            instance,
            _entry: entry,
        };
        plain.counter = plain.create_buffer(u64::from(len) * 4)?;
        plain.zero_counter()?;
        Ok(plain)
    }

    /// Creates a buffer, allocates memory, and binds it.
    pub(crate) fn create_buffer(&self, size_bytes: u64) -> Result<PlainBuffer, vk::Result> {
        let info = vk::BufferCreateInfo::default().size(size_bytes).usage(
            vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST
                | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS,
        );
        // SAFETY: `info` is valid for the call.
        let buffer = unsafe { self.device.create_buffer(&info, None) }?;
        // SAFETY: the buffer is live.
        let needs = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        let kind = self
            .memory
            .memory_types_as_slice()
            .iter()
            .enumerate()
            .position(|(index, kind)| {
                needs.memory_type_bits & (1 << index) != 0 && kind.property_flags.contains(local)
            })
            .ok_or(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?;
        let mut flags =
            vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(kind as u32)
            .push_next(&mut flags);
        // SAFETY: the memory type exists.
        let memory = unsafe { self.device.allocate_memory(&info, None) }?;
        // SAFETY: both are new, and the memory is of an allowed type and large enough.
        unsafe { self.device.bind_buffer_memory(buffer, memory, 0) }?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        // SAFETY: the buffer has memory and the usage for it.
        let address = unsafe { self.device.get_buffer_device_address(&info) };
        Ok(PlainBuffer {
            buffer,
            memory,
            address,
        })
    }

    /// Destroys a buffer that no work uses.
    pub(crate) fn destroy_buffer(&self, buffer: PlainBuffer) {
        // SAFETY: created from this device, and used up.
        unsafe { self.device.destroy_buffer(buffer.buffer, None) };
        // SAFETY: as above; nothing is bound to it any more.
        unsafe { self.device.free_memory(buffer.memory, None) };
    }

    /// Makes all command buffers usable again. No work may be outstanding.
    pub(crate) fn reset(&self) -> Result<(), vk::Result> {
        let flags = vk::CommandPoolResetFlags::empty();
        // SAFETY: the caller has waited.
        unsafe { self.device.reset_command_pool(self.pool, flags) }
    }

    /// Records a launch into the command buffer with this number and submits it. A number is used
    /// once between resets.
    pub(crate) fn launch(&self, number: usize, len: u32) -> Result<(), vk::Result> {
        let commands = self.commands[number];
        self.record_launch(commands, len)?;
        self.submit(commands, vk::Fence::null())
    }

    /// As [`launch`](Self::launch), with the next of [`RING`] command buffers, once what it held
    /// before has ended.
    pub(crate) fn launch_in_ring(&self, number: usize, len: u32) -> Result<(), vk::Result> {
        let (commands, fence) = self.ring[number % RING];
        // SAFETY: the fence is live.
        unsafe { self.device.wait_for_fences(&[fence], true, u64::MAX) }?;
        // SAFETY: the fence is live and no submission has it.
        unsafe { self.device.reset_fences(&[fence]) }?;
        self.record_launch(commands, len)?;
        self.submit(commands, fence)
    }

    /// Records as many launches into one command buffer and submits it: the most that the driver
    /// does.
    pub(crate) fn launch_together(
        &self,
        number: usize,
        count: usize,
        len: u32,
    ) -> Result<(), vk::Result> {
        let commands = self.commands[number];
        self.record(commands, |device| {
            for _ in 0..count {
                self.add_launch(device, commands, len);
            }
        })?;
        self.submit(commands, vk::Fence::null())
    }

    fn record_launch(&self, commands: vk::CommandBuffer, len: u32) -> Result<(), vk::Result> {
        self.record(commands, |device| self.add_launch(device, commands, len))
    }

    fn add_launch(&self, device: &ash::Device, commands: vk::CommandBuffer, len: u32) {
        let barriers = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::SHADER_WRITE)
            .dst_access_mask(vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE)];
        // SAFETY: the buffer is being recorded. A launch sees what the one before wrote.
        unsafe {
            device.cmd_pipeline_barrier(
                commands,
                vk::PipelineStageFlags::COMPUTE_SHADER,
                vk::PipelineStageFlags::COMPUTE_SHADER,
                vk::DependencyFlags::empty(),
                &barriers,
                &[],
                &[],
            );
        }
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the buffer is being recorded and the pipeline lives as long as the device.
        unsafe { device.cmd_bind_pipeline(commands, point, self.pipeline) };
        let arguments = arguments(self.counter.address, len);
        let stage = vk::ShaderStageFlags::COMPUTE;
        // SAFETY: the buffer is being recorded and the bytes are the layout's range.
        unsafe { device.cmd_push_constants(commands, self.layout, stage, 0, &arguments) };
        // SAFETY: all that the kernel needs is bound, and its buffer is live.
        unsafe { device.cmd_dispatch(commands, 1, 1, 1) };
    }

    fn submit(&self, commands: vk::CommandBuffer, fence: vk::Fence) -> Result<(), vk::Result> {
        let commands = [commands];
        let submits = [vk::SubmitInfo::default().command_buffers(&commands)];
        // SAFETY: the recording is complete, and one thread uses the queue.
        unsafe { self.device.queue_submit(self.queue, &submits, fence) }
    }

    /// Waits for everything.
    pub(crate) fn wait(&self) -> Result<(), vk::Result> {
        // SAFETY: one thread uses the queue.
        unsafe { self.device.queue_wait_idle(self.queue) }
    }

    /// Reads the first word that the kernel counts in, through a copy to memory that is mapped.
    pub(crate) fn count(&self) -> Result<u32, Box<dyn Error>> {
        let info = vk::BufferCreateInfo::default()
            .size(4)
            .usage(vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: `info` is valid for the call.
        let buffer = unsafe { self.device.create_buffer(&info, None) }?;
        // SAFETY: the buffer is live.
        let needs = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let types = self.memory.memory_types_as_slice();
        let kind = (0..types.len()).find(|&index| {
            needs.memory_type_bits & (1 << index) != 0
                && types[index].property_flags.contains(wanted)
        });
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(kind.ok_or("no memory can be mapped")? as u32);
        // SAFETY: the memory type exists.
        let memory = unsafe { self.device.allocate_memory(&info, None) }?;
        // SAFETY: both are new, and the memory is of an allowed type and large enough.
        unsafe { self.device.bind_buffer_memory(buffer, memory, 0) }?;
        self.reset()?;
        let commands = self.commands[0];
        self.record(commands, |device| {
            let barriers = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::SHADER_WRITE)
                .dst_access_mask(vk::AccessFlags::TRANSFER_READ)];
            // SAFETY: the buffer is being recorded. The copy sees what the kernels wrote.
            unsafe {
                device.cmd_pipeline_barrier(
                    commands,
                    vk::PipelineStageFlags::COMPUTE_SHADER,
                    vk::PipelineStageFlags::TRANSFER,
                    vk::DependencyFlags::empty(),
                    &barriers,
                    &[],
                    &[],
                );
            }
            let regions = [vk::BufferCopy::default().size(4)];
            // SAFETY: both buffers have four bytes and outlive the copy.
            unsafe { device.cmd_copy_buffer(commands, self.counter.buffer, buffer, &regions) };
        })?;
        self.submit(commands, vk::Fence::null())?;
        self.wait()?;
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is host-visible and not mapped.
        let mapped = unsafe { self.device.map_memory(memory, 0, 4, flags) }?;
        // SAFETY: four bytes are mapped, aligned, and written by work that has ended.
        let count = unsafe { mapped.cast::<u32>().read() };
        // Freeing memory unmaps it.
        self.destroy_buffer(PlainBuffer {
            buffer,
            memory,
            address: 0,
        });
        Ok(count)
    }

    fn zero_counter(&self) -> Result<(), vk::Result> {
        let commands = self.commands[0];
        let whole = vk::WHOLE_SIZE;
        self.record(commands, |device| {
            // SAFETY: the buffer is being recorded and the counter's is live.
            unsafe { device.cmd_fill_buffer(commands, self.counter.buffer, 0, whole, 0) };
        })?;
        self.submit(commands, vk::Fence::null())?;
        self.wait()?;
        self.reset()
    }

    fn record(
        &self,
        commands: vk::CommandBuffer,
        record: impl FnOnce(&ash::Device),
    ) -> Result<(), vk::Result> {
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffer is in its initial state, or its pool lets it be recorded anew.
        unsafe { self.device.begin_command_buffer(commands, &info) }?;
        record(&self.device);
        // SAFETY: the buffer is being recorded.
        unsafe { self.device.end_command_buffer(commands) }
    }
}

impl PlainBuffer {
    const NONE: Self = Self {
        buffer: vk::Buffer::null(),
        memory: vk::DeviceMemory::null(),
        address: 0,
    };
}

impl Drop for Plain {
    fn drop(&mut self) {
        // A device that cannot be waited for is lost, and then nothing runs on it.
        let _ = self.wait();
        self.destroy_buffer(self.counter);
        for (_, fence) in &self.ring {
            // SAFETY: created from this device; no work is outstanding, here and below.
            unsafe { self.device.destroy_fence(*fence, None) };
        }
        // SAFETY: as above.
        unsafe { self.device.destroy_command_pool(self.ring_pool, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_command_pool(self.pool, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_pipeline(self.pipeline, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_pipeline_layout(self.layout, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_shader_module(self.shader, None) };
        // SAFETY: everything made from the device is gone.
        unsafe { self.device.destroy_device(None) };
        // SAFETY: the device is gone.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// What `increment` takes: an address and a count.
type Arguments = [u8; 12];

fn arguments(address: u64, len: u32) -> Arguments {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..].copy_from_slice(&len.to_le_bytes());
    bytes
}

fn find(instance: &ash::Instance, name: &str) -> Result<vk::PhysicalDevice, Box<dyn Error>> {
    // SAFETY: the instance is live.
    let all = unsafe { instance.enumerate_physical_devices() }?;
    all.into_iter()
        .find(|physical| {
            // SAFETY: the physical device is the instance's.
            let properties = unsafe { instance.get_physical_device_properties(*physical) };
            properties
                .device_name_as_c_str()
                .is_ok_and(|found| found.to_string_lossy() == name)
        })
        .ok_or_else(|| format!("ash does not list {name}").into())
}
