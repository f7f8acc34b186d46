//! The backend on whatever Vulkan driver the caller has chosen: what is particular to Vulkan, and
//! what the conformance suite does not press hard enough. See `support` for the environment.

#![expect(clippy::print_stdout, reason = "a test program says why it skips")]
#![expect(clippy::print_stderr, reason = "a test program says why it fails")]

mod support;

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use ash::vk::{self, Handle};
use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::{
    ArgumentProblem, Axis, BufferDesc, BufferInfo, BufferRange, ContextOptions, ErrorKind,
    FillPattern, GpuBackend, GpuContext, GpuError, KernelInfo, LaunchArg, LaunchDesc, LimitKind,
    NativeHandle, Probe, StreamId,
};
use grafos_kernels::reference;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use support::{Messages, interposer};

type Outcome = Result<(), Failed>;

/// A trial's name, and what it does on a device.
type OnDevice = (&'static str, fn(&Device) -> Outcome);

/// A trial's name, and what it does without one.
type Anywhere = (&'static str, fn() -> Outcome);

/// Tells a child process, which is this program again, what to do.
const CHILD: &str = "GRAFOS_VULKAN_TEST_CHILD";

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(CHILD) {
        return child(&task);
    }
    let mut arguments = Arguments::from_args();
    // Some trials make allocations fail or fill the device.
    arguments.test_threads.get_or_insert(1);
    let messages = Messages::default();
    let backend = Arc::new(support::builder(&messages).build());
    let absent = match backend.probe() {
        Probe::Available { .. } => None,
        Probe::Unavailable { reason, hint } => Some(format!("{reason}; {hint}")),
        other => Some(format!("{other:?}")),
    };
    let required = std::env::var("GRAFOS_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|name| name.trim() == "vulkan"));
    if let Some(reason) = &absent {
        if required {
            eprintln!("failed: GRAFOS_REQUIRE names vulkan, but {reason}");
            return ExitCode::FAILURE;
        }
        println!("skipped: {reason}");
    }

    let on_device: [OnDevice; 13] = [
        ("both_styles_agree_under_load", both_styles_agree_under_load),
        (
            "random_transfers_match_a_model",
            random_transfers_match_a_model,
        ),
        ("two_threads_transfer_at_once", two_threads_transfer_at_once),
        ("buffers_are_freed_under_work", buffers_are_freed_under_work),
        ("blocks_are_checked_by_axis", blocks_are_checked_by_axis),
        ("argument_bytes_are_checked", argument_bytes_are_checked),
        ("bound_ranges_are_checked", bound_ranges_are_checked),
        ("memory_comes_back", memory_comes_back),
        (
            "a_refused_allocation_leaves_counts_right",
            a_refused_allocation_leaves_counts_right,
        ),
        (
            "an_impossible_size_is_refused_at_once",
            an_impossible_size_is_refused_at_once,
        ),
        ("foreign_work_is_ordered", foreign_work_is_ordered),
        (
            "a_timed_out_context_is_left_alone",
            a_timed_out_context_is_left_alone,
        ),
        ("a_loss_is_silent_for_drops", a_loss_is_silent_for_drops),
    ];
    let anywhere: [Anywhere; 6] = [
        ("a_missing_library_is_data", a_missing_library_is_data),
        (
            "a_library_that_is_no_loader_is_data",
            a_library_that_is_no_loader_is_data,
        ),
        ("no_driver_is_data", no_driver_is_data),
        (
            "a_driver_that_does_not_load_is_data",
            a_driver_that_does_not_load_is_data,
        ),
        ("exit_with_a_context_in_a_static", || exits_well("static")),
        ("exit_with_work_on_another_thread", || exits_well("thread")),
    ];
    let mut trials = Vec::new();
    for (name, run) in on_device {
        let backend = Arc::clone(&backend);
        let messages = messages.clone();
        let trial = Trial::test(name, move || {
            let outcome = Device::open(&backend).and_then(|device| run(&device));
            let said = messages.all();
            outcome?;
            ensure(said.is_empty(), || format!("validation: {said:?}"))
        });
        trials.push(trial.with_ignored_flag(absent.is_some()));
    }
    for (name, run) in anywhere {
        let needs_device = name.starts_with("exit_");
        trials.push(Trial::test(name, run).with_ignored_flag(needs_device && absent.is_some()));
    }
    let name = "the_validation_layer_speaks_up";
    let trial = Trial::ignorable_test(name, the_validation_layer_speaks_up);
    trials.push(trial.with_ignored_flag(absent.is_some()));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(what().into()) }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    ensure(found == expected, || {
        format!("{what}: found {found:?}, expected {expected:?}")
    })
}

/// An open context with shorthands.
struct Device {
    context: Box<dyn GpuContext>,
    backend: Arc<VulkanBackend>,
}

enum Arg<'a> {
    Buffer(&'a BufferInfo),
    Bytes(&'a [u8]),
}

impl Device {
    fn open(backend: &Arc<VulkanBackend>) -> Result<Self, Failed> {
        Ok(Self {
            context: backend.open(0, &ContextOptions::default())?,
            backend: Arc::clone(backend),
        })
    }

    fn again(&self) -> Result<Self, Failed> {
        Self::open(&self.backend)
    }

    fn kernel(&self, name: &str) -> Result<KernelInfo, GpuError> {
        let image = grafos_kernels::by_name(name).map_or(&[][..], |kernel| kernel.spirv);
        let module = self.context.load_module(image)?;
        self.context.kernel(module.id, name)
    }

    fn buffer(&self, size_bytes: u64) -> Result<BufferInfo, GpuError> {
        self.context.alloc(&BufferDesc::new(size_bytes))
    }

    fn upload(&self, bytes: &[u8]) -> Result<BufferInfo, GpuError> {
        let buffer = self.buffer(bytes.len() as u64)?;
        self.context.write(StreamId::DEFAULT, all(&buffer), bytes)?;
        Ok(buffer)
    }

    fn download(&self, buffer: &BufferInfo) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0; buffer.size_bytes as usize];
        self.context
            .read(StreamId::DEFAULT, all(buffer), &mut bytes)?;
        Ok(bytes)
    }

    fn launch(
        &self,
        kernel: &KernelInfo,
        grid: u32,
        block: [u32; 3],
        args: &[Arg<'_>],
    ) -> Result<(), GpuError> {
        let addresses: Vec<[u8; 8]> = args
            .iter()
            .map(|arg| match arg {
                Arg::Buffer(buffer) => buffer.address.to_le_bytes(),
                Arg::Bytes(_) => [0; 8],
            })
            .collect();
        let args: Vec<LaunchArg<'_>> = args
            .iter()
            .zip(&addresses)
            .map(|(arg, address)| match arg {
                Arg::Buffer(buffer) => LaunchArg {
                    bytes: address,
                    buffer: Some(all(buffer)),
                },
                Arg::Bytes(bytes) => LaunchArg {
                    bytes,
                    buffer: None,
                },
            })
            .collect();
        self.context.launch(&LaunchDesc {
            kernel: kernel.id,
            grid: [grid, 1, 1],
            block,
            dynamic_shared_bytes: 0,
            args: &args,
            stream: StreamId::DEFAULT,
        })
    }

    /// Enqueues work that takes a second or so on a CPU.
    fn keep_busy(&self) -> Result<BufferInfo, GpuError> {
        let kernel = self.kernel("long_running")?;
        let elements = 1u32 << 16;
        let buffer = self.buffer(u64::from(elements) * 4)?;
        for _ in 0..8 {
            self.launch(
                &kernel,
                elements / 256,
                [256, 1, 1],
                &[Arg::Buffer(&buffer), Arg::Bytes(&60_000u32.to_le_bytes())],
            )?;
        }
        Ok(buffer)
    }
}

fn all(buffer: &BufferInfo) -> BufferRange {
    BufferRange {
        buffer: buffer.id,
        offset_bytes: 0,
        len_bytes: buffer.size_bytes,
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect()
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn both_styles_agree_under_load(device: &Device) -> Outcome {
    const LEN: usize = 1000;
    const ROUNDS: usize = 1500;
    let pointers = device.kernel("vector_add")?;
    let descriptors = device.kernel("vector_add_descriptor")?;
    // Small integers: every sum is exact, so each lost or repeated launch shows.
    let mut sum: Vec<f32> = (0..LEN).map(|index| (index % 7) as f32).collect();
    let step: Vec<f32> = (0..LEN).map(|index| (index % 3) as f32 + 1.0).collect();
    let (a, b) = (
        device.upload(&floats(&sum))?,
        device.upload(&floats(&step))?,
    );
    let n = (LEN as u32).to_le_bytes();
    for round in 0..ROUNDS {
        // Blocks alternate, so pipelines do too.
        let (kernel, block) = match round % 3 {
            0 => (&pointers, 256),
            1 => (&descriptors, 64),
            _ => (&pointers, 32),
        };
        device.launch(
            kernel,
            (LEN as u32).div_ceil(block),
            [block, 1, 1],
            &[
                Arg::Buffer(&a),
                Arg::Buffer(&b),
                Arg::Buffer(&a),
                Arg::Bytes(&n),
            ],
        )?;
        sum = reference::vector_add(&sum, &step);
    }
    same("sums", device.download(&a)?, floats(&sum))
}

/// Writes, fills, copies and reads at any offset, held against plain memory.
fn transfer_randomly(device: &Device, stream: StreamId, seed: u64, rounds: usize) -> Outcome {
    let context = &*device.context;
    let mut numbers = Numbers(seed);
    let sizes = [5000usize, 300_003];
    let mut model: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
    let mut buffers = Vec::new();
    for size in sizes {
        let buffer = device.buffer(size as u64)?;
        context.fill(stream, all(&buffer), FillPattern::U8(0))?;
        buffers.push(buffer);
    }
    for round in 0..rounds {
        let which = numbers.below(2);
        let size = sizes[which];
        let offset = numbers.below(size);
        let most = if numbers.below(4) == 0 { size } else { 40 };
        let len = 1 + numbers.below((size - offset).min(most));
        let range = BufferRange {
            buffer: buffers[which].id,
            offset_bytes: offset as u64,
            len_bytes: len as u64,
        };
        match numbers.below(8) {
            0..=2 => {
                let data: Vec<u8> = (0..len).map(|_| numbers.next() as u8).collect();
                context.write(stream, range, &data)?;
                model[which][offset..offset + len].copy_from_slice(&data);
            }
            3 | 4 => {
                let (pattern, width) = match numbers.below(3) {
                    0 => (FillPattern::U8(numbers.next() as u8), 1),
                    1 => (FillPattern::U16(numbers.next() as u16), 2),
                    _ => (FillPattern::U32(numbers.next() as u32), 4),
                };
                let (offset, len) = (offset / width * width, len / width * width);
                if len == 0 || offset + len > size {
                    continue;
                }
                let range = BufferRange {
                    offset_bytes: offset as u64,
                    len_bytes: len as u64,
                    ..range
                };
                context.fill(stream, range, pattern)?;
                let word = pattern.to_word_bytes();
                for (index, byte) in model[which][offset..offset + len].iter_mut().enumerate() {
                    *byte = word[index % width];
                }
            }
            5 | 6 => {
                let other = 1 - which;
                let len = len.min(sizes[other]);
                let target = numbers.below(sizes[other] - len + 1);
                let range = BufferRange {
                    len_bytes: len as u64,
                    ..range
                };
                let dst = BufferRange {
                    buffer: buffers[other].id,
                    offset_bytes: target as u64,
                    len_bytes: len as u64,
                };
                context.copy(stream, dst, range)?;
                let data = model[which][offset..offset + len].to_vec();
                model[other][target..target + len].copy_from_slice(&data);
            }
            _ => {
                let mut found = vec![0; len];
                context.read(stream, range, &mut found)?;
                ensure(found == model[which][offset..offset + len], || {
                    format!("round {round}: {len} bytes at {offset} differ")
                })?;
            }
        }
    }
    for (buffer, expected) in buffers.iter().zip(&model) {
        let mut found = vec![0; expected.len()];
        context.read(stream, all(buffer), &mut found)?;
        let first = found.iter().zip(expected).position(|(a, b)| a != b);
        ensure(first.is_none(), || format!("byte {first:?} differs"))?;
    }
    Ok(())
}

fn random_transfers_match_a_model(device: &Device) -> Outcome {
    (0..4).try_for_each(|seed| transfer_randomly(device, StreamId::DEFAULT, seed, 600))
}

fn two_threads_transfer_at_once(device: &Device) -> Outcome {
    let streams = [StreamId::DEFAULT, device.context.create_stream()?];
    thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .zip(100..)
            .map(|(stream, seed)| scope.spawn(move || transfer_randomly(device, stream, seed, 600)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a thread panicked".into()))
        })
    })
}

fn buffers_are_freed_under_work(device: &Device) -> Outcome {
    const LEN: usize = 4096;
    let kernel = device.kernel("saxpy")?;
    let alpha = 2.0f32.to_le_bytes();
    let n = (LEN as u32).to_le_bytes();
    let y = vec![1.0f32; LEN];
    let result = device.upload(&floats(&y))?;
    let mut expected = y;
    for round in 0..300 {
        let x = vec![round as f32; LEN];
        // Freed at once: the next round's buffer must not take its place too early.
        let source = device.upload(&floats(&x))?;
        device.launch(
            &kernel,
            16,
            [256, 1, 1],
            &[
                Arg::Bytes(&alpha),
                Arg::Buffer(&source),
                Arg::Buffer(&result),
                Arg::Bytes(&n),
            ],
        )?;
        device.context.free(source.id)?;
        expected = reference::saxpy(2.0, &x, &expected);
    }
    same("y", device.download(&result)?, floats(&expected))?;
    device.context.sync(None)?;
    let info = device.context.memory_info()?;
    same("live buffers", info.live_buffers, 1)?;
    same("live bytes", info.live_bytes, LEN as u64 * 4)
}

fn blocks_are_checked_by_axis(device: &Device) -> Outcome {
    let kernel = device.kernel("increment_x_only")?;
    let buffer = device.upload(&[0; 4096])?;
    let n = 1024u32.to_le_bytes();
    let args = || [Arg::Buffer(&buffer), Arg::Bytes(&n)];
    device.launch(&kernel, 16, [64, 1, 1], &args())?;
    let limit = |block| match device.launch(&kernel, 1, block, &args()) {
        Err(GpuError::LaunchLimits(fault)) => {
            Ok((fault.what, fault.axis, fault.requested, fault.limit))
        }
        other => Err(format!("block {block:?}: {other:?}")),
    };
    same(
        "block 64 2 1",
        limit([64, 2, 1])?,
        (LimitKind::RequiredBlock, Some(Axis::Y), 2, 1),
    )?;
    let limits = device.context.device().limits;
    let over = limits.max_block[0] + 1;
    same(
        "a block over the limit",
        limit([over, 1, 1])?,
        (
            LimitKind::BlockThreads,
            Some(Axis::X),
            over.into(),
            limits.max_block[0].into(),
        ),
    )?;
    same("values", words(&device.download(&buffer)?), vec![1; 1024])
}

fn argument_bytes_are_checked(device: &Device) -> Outcome {
    let limit = device.context.device().limits.max_argument_bytes;
    for (name, size) in [("push_128", 128u32), ("push_136", 136), ("push_264", 264)] {
        match device.kernel(name) {
            Ok(_) => ensure(size <= limit, || format!("{name} was taken, limit {limit}"))?,
            Err(GpuError::LaunchLimits(fault)) => {
                same("what", fault.what, LimitKind::ArgumentBytes)?;
                same("requested", fault.requested, size.into())?;
                same("limit", fault.limit, limit.into())?;
                ensure(size > limit, || {
                    format!("{name} was refused, limit {limit}")
                })?;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

fn bound_ranges_are_checked(device: &Device) -> Outcome {
    let kernel = device.kernel("vector_add_descriptor")?;
    let buffer = device.upload(&[0; 1024])?;
    let n = 1u32.to_le_bytes();
    let launch = |offset: u64, bound: bool| {
        let address = (buffer.address + offset).to_le_bytes();
        let range = BufferRange {
            buffer: buffer.id,
            offset_bytes: offset,
            len_bytes: 1024 - offset,
        };
        let first = LaunchArg {
            bytes: &address,
            buffer: bound.then_some(range),
        };
        let rest = LaunchArg {
            bytes: &buffer.address.to_le_bytes(),
            buffer: Some(all(&buffer)),
        };
        let scalar = LaunchArg {
            bytes: &n,
            buffer: None,
        };
        device.context.launch(&LaunchDesc {
            kernel: kernel.id,
            grid: [1, 1, 1],
            block: [64, 1, 1],
            dynamic_shared_bytes: 0,
            args: &[first, rest, rest, scalar],
            stream: StreamId::DEFAULT,
        })
    };
    launch(256, true)?;
    match launch(2, true) {
        Err(GpuError::ArgumentMismatch(fault)) => match fault.problem {
            ArgumentProblem::Misaligned { index, address, .. } => {
                same("index", index, 0)?;
                same("address", address, buffer.address + 2)?;
            }
            other => return Err(format!("{other:?}").into()),
        },
        other => return Err(format!("a misaligned buffer: {other:?}").into()),
    }
    match launch(0, false) {
        Err(GpuError::ArgumentMismatch(fault)) => same(
            "problem",
            fault.problem,
            ArgumentProblem::NotABuffer {
                index: 0,
                address: buffer.address,
            },
        ),
        other => Err(format!("an argument that is no buffer: {other:?}").into()),
    }
}

fn memory_comes_back(device: &Device) -> Outcome {
    let context = &*device.context;
    let mut buffers = Vec::new();
    for size in [1u64, 4096, 100_000, 20 << 20] {
        for _ in 0..10 {
            buffers.push(device.buffer(size)?);
        }
    }
    let info = context.memory_info()?;
    same("live buffers", info.live_buffers, 40)?;
    let live = 10 * (1 + 4096 + 100_000 + (20 << 20));
    same("live bytes", info.live_bytes, live)?;
    ensure(info.reserved_bytes >= live, || format!("{info:?}"))?;
    for buffer in buffers {
        context.free(buffer.id)?;
    }
    let before = context.memory_info()?.reserved_bytes;
    let trimmed = context.trim()?;
    let info = context.memory_info()?;
    same("reserved after trim", info.reserved_bytes, 0)?;
    same("trimmed", trimmed, before)?;
    same("live bytes after free", info.live_bytes, 0)?;
    // Works on.
    let again = device.upload(&[7; 64])?;
    same("bytes", device.download(&again)?, vec![7; 64])
}

fn a_refused_allocation_leaves_counts_right(device: &Device) -> Outcome {
    let kept = device.upload(&[3; 100])?;
    let before = device.context.memory_info()?;
    // Above the block size, so that the driver is asked. A second try must be refused too.
    interposer::fail_allocations(4);
    let refused = device.buffer(300 << 20);
    interposer::fail_allocations(0);
    match refused {
        Err(GpuError::OutOfMemory(fault)) => {
            same("requested", fault.requested, 300 << 20)?;
            same("code", fault.cause.map(|cause| cause.code), Some(-2))?;
        }
        other => return Err(format!("{other:?}").into()),
    }
    let after = device.context.memory_info()?;
    same("memory", after, before)?;
    same("bytes", device.download(&kept)?, vec![3; 100])?;
    let large = device.buffer(1 << 20)?;
    device.context.free(large.id)?;
    Ok(())
}

fn an_impossible_size_is_refused_at_once(device: &Device) -> Outcome {
    let most = device.context.device().limits.max_allocation_bytes;
    let before = device.context.memory_info()?;
    for size in [most + 1, 1 << 40, u64::MAX - 3, u64::MAX] {
        match device.buffer(size) {
            Err(GpuError::OutOfMemory(fault)) => same("requested", fault.requested, size)?,
            other => return Err(format!("{size} bytes: {other:?}").into()),
        }
    }
    same("memory", device.context.memory_info()?, before)
}

/// Work that a caller submits to the lent queue runs between the context's own.
fn foreign_work_is_ordered(device: &Device) -> Outcome {
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
        #[expect(unsafe_code, reason = "destroys what the trial made with the driver")]
        // SAFETY: the pool was made from this device, and its work has ended.
        unsafe {
            raw.destroy_command_pool(pool, None);
        };
    }
    Ok(())
}

/// Fills the lent buffer on the lent queue, as a vendor library would use them.
#[expect(unsafe_code, reason = "uses the driver directly")]
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

fn a_timed_out_context_is_left_alone(device: &Device) -> Outcome {
    let busy = device.again()?;
    busy.keep_busy()?;
    match busy.context.close(Some(Duration::from_millis(1))) {
        Err(GpuError::Timeout(fault)) => same("waited", fault.waited_ns, 1_000_000)?,
        other => return Err(format!("close under work: {other:?}").into()),
    }
    // Dropped under its work; another context goes on meanwhile.
    drop(busy);
    let buffer = device.upload(&[9; 64])?;
    same("bytes", device.download(&buffer)?, vec![9; 64])
}

fn a_loss_is_silent_for_drops(device: &Device) -> Outcome {
    let doomed = device.again()?;
    let buffer = doomed.upload(&[1; 64])?;
    let lost = interposer::lose_device(&*doomed.context);
    ensure(lost, || "the context did not notice".into())?;
    let first = doomed.context.sync(None).map_err(|failure| failure.kind());
    same("sync", first, Err(ErrorKind::DeviceLost))?;
    doomed.context.free(buffer.id)?;
    match doomed.context.alloc(&BufferDesc::new(64)) {
        Err(GpuError::DeviceLost(fault)) => {
            same("restart", fault.needs_process_restart, false)?;
            ensure(fault.reason.contains("VK_ERROR_DEVICE_LOST"), || {
                fault.reason
            })?;
        }
        other => return Err(format!("{other:?}").into()),
    }
    drop(doomed);
    let buffer = device.upload(&[9; 64])?;
    same("bytes", device.download(&buffer)?, vec![9; 64])
}

fn unavailable(backend: &VulkanBackend) -> Result<String, Failed> {
    let reason = match backend.probe() {
        Probe::Unavailable { reason, hint } => {
            ensure(!hint.is_empty(), || "there is no hint".into())?;
            reason
        }
        other => return Err(format!("{other:?}").into()),
    };
    match backend.open(0, &ContextOptions::default()) {
        Err(GpuError::Unavailable { reason: again, .. }) => same("reason", &again, &reason)?,
        Err(other) => return Err(other.into()),
        Ok(_) => return Err("opened a device".into()),
    }
    Ok(reason)
}

fn a_missing_library_is_data() -> Outcome {
    let path = "/nonexistent/libvulkan.so.1";
    let backend = VulkanBackend::builder().library_path(path).build();
    let reason = unavailable(&backend)?;
    ensure(reason.contains(path), || reason)
}

fn a_library_that_is_no_loader_is_data() -> Outcome {
    let backend = VulkanBackend::builder().library_path("libm.so.6").build();
    let reason = unavailable(&backend)?;
    ensure(reason.contains("vkGetInstanceProcAddr"), || reason)
}

/// Runs this program again, with a task and a driver of its own.
fn run_child(task: &str, driver: Option<&str>) -> Result<(bool, String), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(CHILD, task);
    if let Some(driver) = driver {
        command
            .env("VK_ICD_FILENAMES", driver)
            .env("VK_DRIVER_FILES", driver);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Ok((false, format!("{}: {text}{errors}", output.status)));
    }
    Ok((true, text))
}

fn no_driver_is_data() -> Outcome {
    let (well, text) = run_child("probe", Some("/nonexistent/icd.json"))?;
    ensure(well && text.starts_with("unavailable: "), || text)
}

fn a_driver_that_does_not_load_is_data() -> Outcome {
    let manifest = std::env::temp_dir().join(format!("grafos-icd-{}.json", std::process::id()));
    std::fs::write(
        &manifest,
        r#"{"file_format_version": "1.0.0",
            "ICD": {"library_path": "/nonexistent/driver.so", "api_version": "1.3.0"}}"#,
    )?;
    let outcome = run_child("probe", manifest.to_str());
    std::fs::remove_file(&manifest)?;
    let (well, text) = outcome?;
    ensure(well && text.starts_with("unavailable: "), || text)
}

fn exits_well(task: &str) -> Outcome {
    for _ in 0..5 {
        let (well, text) = run_child(task, None)?;
        ensure(well && text == "done\n", || text)?;
    }
    Ok(())
}

fn child(task: &str) -> ExitCode {
    static KEPT: OnceLock<Device> = OnceLock::new();
    let backend = Arc::new(VulkanBackend::new());
    if task == "probe" {
        match backend.probe() {
            Probe::Unavailable { reason, hint } => println!("unavailable: {reason}; {hint}"),
            other => println!("{other:?}"),
        }
        return ExitCode::SUCCESS;
    }
    let opened = Device::open(&backend).and_then(|device| {
        device.keep_busy()?;
        Ok(device)
    });
    match opened {
        Ok(device) if task == "static" => {
            let _ = KEPT.set(device);
        }
        Ok(device) => {
            // Waits while the process ends under it.
            thread::spawn(move || device.context.sync(None));
        }
        Err(failure) => {
            println!("{failure:?}");
            return ExitCode::FAILURE;
        }
    }
    println!("done");
    ExitCode::SUCCESS
}

/// A watched mistake is reported: silence of the layer means something.
fn the_validation_layer_speaks_up() -> Result<Completion, Failed> {
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
#[expect(unsafe_code, reason = "makes a mistake with the driver on purpose")]
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
