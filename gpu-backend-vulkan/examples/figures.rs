//! Measures this backend against straightforward `ash` code that does the same, in one run.
//!
//! `VK_ICD_FILENAMES` chooses the driver. Run it in release:
//! `cargo run --release -p gpu-backend-vulkan --example figures`

#![expect(unsafe_code, reason = "the code to compare with calls Vulkan directly")]
#![expect(clippy::print_stdout, reason = "prints its results")]
#![expect(clippy::disallowed_methods, reason = "measures time")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "plain calls, as a first program makes them"
)]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::cell::Cell;
use std::error::Error;
use std::time::{Duration, Instant};

use ash::vk;
use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::{
    BufferDesc, BufferRange, ContextOptions, GpuBackend, GpuContext, KernelInfo, LaunchArg,
    LaunchDesc, StreamId,
};

const LAUNCHES: usize = 8192;
const ELEMENTS: u32 = 256;
const TRANSFER_BYTES: usize = 64 << 20;
const BUFFERS: usize = 2000;
const BUFFER_BYTES: u64 = 4096;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = VulkanBackend::new();
    let devices = backend.devices()?;
    let device = devices.first().ok_or("no device")?;
    println!("{}: {}", device.name, device.driver);
    let context = backend.open(0, &ContextOptions::default())?;
    let plain = Plain::new()?;

    let mut ours = Launches::default();
    let mut theirs = Launches::default();
    let session = Session::new(&*context)?;
    for _ in 0..ROUNDS {
        ours.keep(session.launches()?);
        theirs.keep(plain.launches()?);
    }
    let rate = |time: Duration| LAUNCHES as f64 / time.as_secs_f64();
    let enqueue = |time: Duration| time.as_secs_f64() * 1e6 / LAUNCHES as f64;
    line(
        "launches per second, enqueued together",
        rate(ours.total),
        rate(theirs.total),
        rate(ours.total) / rate(theirs.total),
        "at least 2",
    );
    line(
        "host time to enqueue a launch, us",
        enqueue(ours.enqueue),
        enqueue(theirs.enqueue),
        enqueue(theirs.enqueue) / enqueue(ours.enqueue),
        "at most 1.5 us",
    );
    line(
        "launch and wait, us",
        ours.latency.as_secs_f64() * 1e6,
        theirs.latency.as_secs_f64() * 1e6,
        theirs.latency.as_secs_f64() / ours.latency.as_secs_f64(),
        "none",
    );

    let [write, read, copy] = transfers(&*context)?;
    let gib = |time: Duration| TRANSFER_BYTES as f64 / (1u64 << 30) as f64 / time.as_secs_f64();
    line(
        "write 64 MiB, GiB/s, against memcpy",
        gib(write),
        gib(copy),
        gib(write) / gib(copy),
        "at least 0.95",
    );
    line(
        "read 64 MiB, GiB/s, against memcpy",
        gib(read),
        gib(copy),
        gib(read) / gib(copy),
        "at least 0.95",
    );

    let mut ours = Duration::MAX;
    let mut theirs = Duration::MAX;
    for _ in 0..ROUNDS {
        ours = ours.min(allocations(&*context)?);
        theirs = theirs.min(plain.allocations()?);
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / BUFFERS as f64;
    line(
        "4 KiB buffer of 2,000 live ones, us",
        each(ours),
        each(theirs),
        each(theirs) / each(ours),
        "at least 5",
    );
    Ok(())
}

fn line(what: &str, ours: f64, theirs: f64, ratio: f64, target: &str) {
    println!("{what:<42} {ours:>12.2} {theirs:>12.2}   ratio {ratio:>6.2}   target {target}");
}

/// The shortest of several rounds.
struct Launches {
    enqueue: Duration,
    total: Duration,
    latency: Duration,
}

impl Default for Launches {
    fn default() -> Self {
        Self {
            enqueue: Duration::MAX,
            total: Duration::MAX,
            latency: Duration::MAX,
        }
    }
}

impl Launches {
    fn keep(&mut self, round: Self) {
        self.enqueue = self.enqueue.min(round.enqueue);
        self.total = self.total.min(round.total);
        self.latency = self.latency.min(round.latency);
    }
}

struct Session<'c> {
    context: &'c dyn GpuContext,
    kernel: KernelInfo,
    address: u64,
}

impl<'c> Session<'c> {
    fn new(context: &'c dyn GpuContext) -> Result<Self, Box<dyn Error>> {
        let image = grafos_kernels::by_name("increment").ok_or("no kernel")?;
        let module = context.load_module(image.spirv)?;
        let buffer = context.alloc(&BufferDesc::new(u64::from(ELEMENTS) * 4))?;
        Ok(Self {
            context,
            kernel: context.kernel(module.id, "increment")?,
            address: buffer.address,
        })
    }

    fn launch(&self) -> Result<(), Box<dyn Error>> {
        self.context.launch(&LaunchDesc {
            kernel: self.kernel.id,
            grid: [1, 1, 1],
            block: [ELEMENTS, 1, 1],
            dynamic_shared_bytes: 0,
            args: &[
                LaunchArg {
                    bytes: &self.address.to_le_bytes(),
                    buffer: None,
                },
                LaunchArg {
                    bytes: &ELEMENTS.to_le_bytes(),
                    buffer: None,
                },
            ],
            stream: StreamId::DEFAULT,
        })?;
        Ok(())
    }

    fn launches(&self) -> Result<Launches, Box<dyn Error>> {
        self.launch()?;
        self.context.sync(None)?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            self.launch()?;
        }
        let enqueue = start.elapsed();
        self.context.sync(None)?;
        let total = start.elapsed();
        let start = Instant::now();
        for _ in 0..100 {
            self.launch()?;
            self.context.sync(None)?;
        }
        Ok(Launches {
            enqueue,
            total,
            latency: start.elapsed() / 100,
        })
    }
}

fn transfers(context: &dyn GpuContext) -> Result<[Duration; 3], Box<dyn Error>> {
    let buffer = context.alloc(&BufferDesc::new(TRANSFER_BYTES as u64))?;
    let range = BufferRange {
        buffer: buffer.id,
        offset_bytes: 0,
        len_bytes: TRANSFER_BYTES as u64,
    };
    let source: Vec<u8> = (0..TRANSFER_BYTES).map(|index| index as u8).collect();
    let mut target = vec![1u8; TRANSFER_BYTES];
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS + 1 {
        let start = Instant::now();
        context.write(StreamId::DEFAULT, range, &source)?;
        best[0] = best[0].min(start.elapsed());
        let start = Instant::now();
        context.read(StreamId::DEFAULT, range, &mut target)?;
        best[1] = best[1].min(start.elapsed());
        let start = Instant::now();
        target.copy_from_slice(std::hint::black_box(&source));
        best[2] = best[2].min(start.elapsed());
        assert_eq!(std::hint::black_box(&target), &source);
    }
    context.free(buffer.id)?;
    Ok(best)
}

fn allocations(context: &dyn GpuContext) -> Result<Duration, Box<dyn Error>> {
    let mut buffers = Vec::with_capacity(BUFFERS);
    let desc = BufferDesc::new(BUFFER_BYTES);
    let start = Instant::now();
    for _ in 0..BUFFERS {
        buffers.push(context.alloc(&desc)?.id);
    }
    for buffer in buffers {
        context.free(buffer)?;
    }
    Ok(start.elapsed())
}

/// One submission for each launch, with a value of a timeline semaphore to wait for; one
/// allocation for each buffer.
struct Plain {
    _entry: ash::Entry,
    physical_types: vk::PhysicalDeviceMemoryProperties,
    device: ash::Device,
    queue: vk::Queue,
    pool: vk::CommandPool,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    semaphore: vk::Semaphore,
    value: Cell<u64>,
    buffer: (vk::Buffer, vk::DeviceMemory, u64),
}

impl Plain {
    fn new() -> Result<Self, Box<dyn Error>> {
        unsafe {
            let entry = ash::Entry::load()?;
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
            let info = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&info, None)?;
            let physical = *instance
                .enumerate_physical_devices()?
                .first()
                .ok_or("no device")?;
            let family = instance
                .get_physical_device_queue_family_properties(physical)
                .iter()
                .position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE))
                .ok_or("no queue")? as u32;
            let queues = [vk::DeviceQueueCreateInfo::default()
                .queue_family_index(family)
                .queue_priorities(&[1.0])];
            let mut features = vk::PhysicalDeviceVulkan12Features::default()
                .buffer_device_address(true)
                .timeline_semaphore(true);
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .push_next(&mut features);
            let device = instance.create_device(physical, &info, None)?;
            let physical_types = instance.get_physical_device_memory_properties(physical);

            let image = grafos_kernels::by_name("increment").ok_or("no kernel")?;
            let (words, _) = image.spirv.as_chunks::<4>();
            let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            let info = vk::ShaderModuleCreateInfo::default().code(&words);
            let module = device.create_shader_module(&info, None)?;
            let range = [vk::PushConstantRange::default()
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
                .size(12)];
            let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&range);
            let layout = device.create_pipeline_layout(&info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"increment");
            let info = [vk::ComputePipelineCreateInfo::default()
                .stage(stage)
                .layout(layout)];
            let pipeline = device
                .create_compute_pipelines(vk::PipelineCache::null(), &info, None)
                .map_err(|(_, result)| result)?[0];
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
            let pool = device.create_command_pool(&info, None)?;
            let queue = device.get_device_queue(family, 0);
            let mut kind =
                vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
            let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
            let semaphore = device.create_semaphore(&info, None)?;
            let mut plain = Self {
                _entry: entry,
                physical_types,
                device,
                queue,
                pool,
                layout,
                pipeline,
                semaphore,
                value: Cell::new(0),
                buffer: Default::default(),
            };
            plain.buffer = plain.allocate(u64::from(ELEMENTS) * 4)?;
            Ok(plain)
        }
    }

    fn allocate(&self, size: u64) -> Result<(vk::Buffer, vk::DeviceMemory, u64), vk::Result> {
        let device = &self.device;
        unsafe {
            let info = vk::BufferCreateInfo::default().size(size).usage(
                vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS,
            );
            let buffer = device.create_buffer(&info, None)?;
            let needs = device.get_buffer_memory_requirements(buffer);
            let kind = self
                .physical_types
                .memory_types_as_slice()
                .iter()
                .enumerate()
                .position(|(index, memory)| {
                    needs.memory_type_bits & (1 << index) != 0
                        && memory
                            .property_flags
                            .contains(vk::MemoryPropertyFlags::DEVICE_LOCAL)
                })
                .ok_or(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?;
            let mut flags = vk::MemoryAllocateFlagsInfo::default()
                .flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(kind as u32)
                .push_next(&mut flags);
            let memory = device.allocate_memory(&info, None)?;
            device.bind_buffer_memory(buffer, memory, 0)?;
            let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
            Ok((buffer, memory, device.get_buffer_device_address(&info)))
        }
    }

    fn allocations(&self) -> Result<Duration, vk::Result> {
        let mut buffers = Vec::with_capacity(BUFFERS);
        let start = Instant::now();
        for _ in 0..BUFFERS {
            buffers.push(self.allocate(BUFFER_BYTES)?);
        }
        for (buffer, memory, _) in buffers {
            unsafe {
                self.device.destroy_buffer(buffer, None);
                self.device.free_memory(memory, None);
            }
        }
        Ok(start.elapsed())
    }

    fn launch(&self, commands: vk::CommandBuffer) -> Result<(), vk::Result> {
        let device = &self.device;
        unsafe {
            let info = vk::CommandBufferBeginInfo::default()
                .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            device.begin_command_buffer(commands, &info)?;
            let barrier = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::SHADER_WRITE)
                .dst_access_mask(vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE)];
            device.cmd_pipeline_barrier(
                commands,
                vk::PipelineStageFlags::COMPUTE_SHADER,
                vk::PipelineStageFlags::COMPUTE_SHADER,
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
            device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, self.pipeline);
            let mut arguments = [0u8; 12];
            arguments[..8].copy_from_slice(&self.buffer.2.to_le_bytes());
            arguments[8..].copy_from_slice(&ELEMENTS.to_le_bytes());
            device.cmd_push_constants(
                commands,
                self.layout,
                vk::ShaderStageFlags::COMPUTE,
                0,
                &arguments,
            );
            device.cmd_dispatch(commands, 1, 1, 1);
            device.end_command_buffer(commands)?;
            let commands = [commands];
            self.value.set(self.value.get() + 1);
            let values = [self.value.get()];
            let semaphores = [self.semaphore];
            let mut timeline =
                vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
            let info = [vk::SubmitInfo::default()
                .command_buffers(&commands)
                .signal_semaphores(&semaphores)
                .push_next(&mut timeline)];
            device.queue_submit(self.queue, &info, vk::Fence::null())
        }
    }

    fn wait(&self) -> Result<(), vk::Result> {
        let semaphores = [self.semaphore];
        let values = [self.value.get()];
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        unsafe { self.device.wait_semaphores(&info, u64::MAX) }
    }

    fn launches(&self) -> Result<Launches, vk::Result> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .command_buffer_count((LAUNCHES + 100) as u32);
        let all = unsafe { self.device.allocate_command_buffers(&info)? };
        let (together, one_by_one) = all.split_at(LAUNCHES);
        let start = Instant::now();
        for commands in together {
            self.launch(*commands)?;
        }
        let enqueue = start.elapsed();
        self.wait()?;
        let total = start.elapsed();
        let start = Instant::now();
        for commands in one_by_one {
            self.launch(*commands)?;
            self.wait()?;
        }
        let latency = start.elapsed() / 100;
        unsafe { self.device.free_command_buffers(self.pool, &all) };
        Ok(Launches {
            enqueue,
            total,
            latency,
        })
    }
}
