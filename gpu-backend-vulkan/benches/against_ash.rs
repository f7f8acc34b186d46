//! The backend against straightforward `ash` code for the same, on the same driver, in one run.
//!
//! Both sides have a `VkDevice` of their own and take turns, so that what else the machine does
//! falls on both. Medians of the rounds are printed, and which targets they meet: for information,
//! as a time depends on the machine. What the kernels computed and what was read back is checked.
//!
//! Run by `cargo bench -p gpu-backend-vulkan --bench against_ash`. `VK_ICD_FILENAMES` chooses the
//! driver.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench measures wall-clock time and prints it"
)]

mod support;

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::{
    BufferDesc, BufferInfo, BufferRange, ContextOptions, DeviceInfo, FillPattern, GpuBackend,
    GpuContext, KernelInfo, LaunchArg, LaunchDesc, Probe, StreamId,
};

use support::Plain;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds, and what each of them does.
#[derive(Clone, Copy)]
struct Amount {
    rounds: usize,
    launches: usize,
    waits: usize,
    transfers: usize,
    transfer_bytes: usize,
    buffers: usize,
}

const MEASURED: Amount = Amount {
    rounds: 11,
    launches: 4096,
    waits: 64,
    transfers: 4,
    transfer_bytes: 64 << 20,
    buffers: 2000,
};

/// Without `--bench`, which `cargo bench` passes, the program only shows that it works.
const TRIED: Amount = Amount {
    rounds: 1,
    launches: 512,
    waits: 2,
    transfers: 1,
    transfer_bytes: 1 << 20,
    buffers: 20,
};

const BUFFER_BYTES: u64 = 4096;
/// Elements, threads and the block of a launch.
const LEN: u32 = 256;
/// Launches whose enqueueing is timed together; a divisor of the launches of a round.
const TIMED_TOGETHER: usize = 256;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let amount = if measured { MEASURED } else { TRIED };
    let backend = VulkanBackend::new();
    if let Probe::Unavailable { reason, hint } = backend.probe() {
        println!("skipped: {reason} ({hint})");
        return Ok(());
    }
    for device in backend.devices()? {
        let context = backend.open(device.index, &ContextOptions::default())?;
        println!("{}, driver {}", device.name, device.driver);
        let rows = measure(&*context, &device, amount)?;
        if !measured {
            println!("works; times only with --bench");
            continue;
        }
        println!(
            "{:<44} {:>10} {:>10} {:>6}  target",
            "median of rounds", "backend", "compared", "ratio"
        );
        for row in rows {
            println!("{row}");
        }
        println!(
            "{} rounds. Compared with ash: one submission for each launch, into command buffers \
             that are used\nagain once their fence is signaled, or that are there for every \
             launch; one vkAllocateMemory for each\nbuffer. Transfers: with copy_from_slice. A \
             ratio above 1 is the backend's advantage.\n",
            amount.rounds
        );
    }
    Ok(())
}

fn measure(context: &dyn GpuContext, device: &DeviceInfo, amount: Amount) -> Outcome<Vec<Row>> {
    let image = grafos_kernels::by_name("increment").ok_or("there is no kernel increment")?;
    let plain = Plain::new(&device.name, image.spirv, LEN, amount.launches as u32)?;
    let ours = Ours::new(context, image.spirv)?;
    let mut transfers = Transfers::new(context, amount.transfer_bytes)?;
    let mut rounds = Vec::new();
    let mut moved = Vec::new();
    // The first round makes what the others find: pipelines, pages, pools. It does not count.
    for round in 0..=amount.rounds {
        let mut found = Round::default();
        // Who comes first finds other caches than who comes last; they take turns.
        for turn in 0..4 {
            match (round + turn) % 4 {
                0 => {
                    found.ours = ours.launches(amount)?;
                    found.our_buffers =
                        buffers(amount, || ours.buffer(), |buffer| ours.free(buffer))?;
                }
                1 => {
                    found.plain = plain_launches(&plain, amount)?;
                    found.plain_buffers = buffers(
                        amount,
                        || Ok(plain.create_buffer(BUFFER_BYTES)?),
                        |buffer| {
                            plain.destroy_buffer(buffer);
                            Ok(())
                        },
                    )?;
                }
                2 => {
                    plain.reset()?;
                    let submissions = amount.launches / TIMED_TOGETHER;
                    let start = Instant::now();
                    for number in 0..submissions {
                        plain.launch_together(number, TIMED_TOGETHER, LEN)?;
                    }
                    plain.wait()?;
                    found.together = start.elapsed();
                }
                _ => {
                    let launch = |number| Ok(plain.launch_in_ring(number, LEN)?);
                    found.ring = Launches::measure(amount, launch, || Ok(plain.wait()?))?;
                }
            }
        }
        let found_moved = (0..amount.transfers)
            .map(|turn| transfers.round(round + turn))
            .collect::<Outcome<Vec<_>>>()?;
        if round > 0 {
            rounds.push(found);
            moved.extend(found_moved);
        }
    }
    let rounds_done = amount.rounds + 1;
    let launches = rounds_done * (amount.launches + amount.waits);
    check("backend", ours.count()?, launches)?;
    let launches = launches + 2 * rounds_done * amount.launches;
    check("ash", plain.count()?, launches)?;
    Ok(rows(
        &rounds,
        &moved,
        amount,
        device.capabilities.unified_memory,
    ))
}

fn check(who: &str, found: u32, launches: usize) -> Outcome<()> {
    if found as usize == launches {
        Ok(())
    } else {
        Err(format!("{who}: {found} of {launches} launches counted").into())
    }
}

/// What launches took.
#[derive(Debug, Default)]
struct Launches {
    /// The calls alone.
    enqueue: Duration,
    /// The calls, [`TIMED_TOGETHER`] at a time: what half of these took at most. Other programs
    /// interrupt few of them.
    enqueue_part: Duration,
    /// The calls and the wait for all of them.
    total: Duration,
    /// Launches that are waited for one by one.
    one_by_one: Duration,
}

impl Launches {
    fn measure(
        amount: Amount,
        mut launch: impl FnMut(usize) -> Outcome<()>,
        mut wait: impl FnMut() -> Outcome<()>,
    ) -> Outcome<Self> {
        let mut parts = Vec::with_capacity(amount.launches.div_ceil(TIMED_TOGETHER));
        let start = Instant::now();
        let mut part_start = start;
        for number in 0..amount.launches {
            launch(number)?;
            if (number + 1) % TIMED_TOGETHER == 0 {
                let now = Instant::now();
                parts.push(now - part_start);
                part_start = now;
            }
        }
        let enqueue = start.elapsed();
        wait()?;
        let total = start.elapsed();
        parts.sort_unstable();
        Ok(Self {
            enqueue,
            enqueue_part: parts.get(parts.len() / 2).copied().unwrap_or_default(),
            total,
            one_by_one: Duration::ZERO,
        })
    }
}

fn plain_launches(plain: &Plain, amount: Amount) -> Outcome<Launches> {
    plain.reset()?;
    let launch = |number| Ok(plain.launch(number, LEN)?);
    let wait = || Ok(plain.wait()?);
    let mut launches = Launches::measure(amount, launch, wait)?;
    plain.reset()?;
    let start = Instant::now();
    for number in 0..amount.waits {
        plain.launch(number, LEN)?;
        plain.wait()?;
    }
    launches.one_by_one = start.elapsed();
    Ok(launches)
}

/// The backend's side.
struct Ours<'c> {
    context: &'c dyn GpuContext,
    kernel: KernelInfo,
    counter: BufferInfo,
}

impl<'c> Ours<'c> {
    fn new(context: &'c dyn GpuContext, spirv: &[u8]) -> Outcome<Self> {
        let module = context.load_module(spirv)?;
        let kernel = context.kernel(module.id, "increment")?;
        let counter = context.alloc(&BufferDesc::new(u64::from(LEN) * 4))?;
        context.fill(StreamId::DEFAULT, whole(&counter), FillPattern::U32(0))?;
        Ok(Self {
            context,
            kernel,
            counter,
        })
    }

    fn launch(&self) -> Outcome<()> {
        let args = [
            LaunchArg {
                bytes: &self.counter.address.to_le_bytes(),
                buffer: None,
            },
            LaunchArg {
                bytes: &LEN.to_le_bytes(),
                buffer: None,
            },
        ];
        Ok(self.context.launch(&LaunchDesc {
            kernel: self.kernel.id,
            grid: [1, 1, 1],
            block: [LEN, 1, 1],
            dynamic_shared_bytes: 0,
            args: &args,
            stream: StreamId::DEFAULT,
        })?)
    }

    fn launches(&self, amount: Amount) -> Outcome<Launches> {
        let wait = || Ok(self.context.sync(None)?);
        let mut launches = Launches::measure(amount, |_| self.launch(), wait)?;
        let start = Instant::now();
        for _ in 0..amount.waits {
            self.launch()?;
            self.context.sync(None)?;
        }
        launches.one_by_one = start.elapsed();
        Ok(launches)
    }

    fn count(&self) -> Outcome<u32> {
        let mut words = vec![0; self.counter.size_bytes as usize];
        self.context
            .read(StreamId::DEFAULT, whole(&self.counter), &mut words)?;
        let first = words.first_chunk().ok_or("nothing was read")?;
        Ok(u32::from_le_bytes(*first))
    }

    fn buffer(&self) -> Outcome<BufferInfo> {
        Ok(self.context.alloc(&BufferDesc::new(BUFFER_BYTES))?)
    }

    fn free(&self, buffer: BufferInfo) -> Outcome<()> {
        Ok(self.context.free(buffer.id)?)
    }
}

fn whole(buffer: &BufferInfo) -> BufferRange {
    BufferRange {
        buffer: buffer.id,
        offset_bytes: 0,
        len_bytes: buffer.size_bytes,
    }
}

/// Makes buffers that all live at once, then gives all of them back; times both halves.
fn buffers<B>(
    amount: Amount,
    create: impl Fn() -> Outcome<B>,
    free: impl Fn(B) -> Outcome<()>,
) -> Outcome<[Duration; 2]> {
    let mut live = Vec::with_capacity(amount.buffers);
    let start = Instant::now();
    for _ in 0..amount.buffers {
        live.push(create()?);
    }
    let created = start.elapsed();
    for buffer in live {
        free(buffer)?;
    }
    Ok([created, start.elapsed() - created])
}

/// Writes, reads and plain copies of the same bytes. No page is touched for the first time in a
/// round that counts.
struct Transfers<'c> {
    context: &'c dyn GpuContext,
    buffer: BufferInfo,
    source: Vec<u8>,
    target: Vec<u8>,
    copied: Vec<u8>,
}

/// What they took.
#[derive(Debug, Default, Clone, Copy)]
struct Transfer {
    write: Duration,
    write_copy: Duration,
    read: Duration,
    read_copy: Duration,
}

impl<'c> Transfers<'c> {
    fn new(context: &'c dyn GpuContext, len_bytes: usize) -> Outcome<Self> {
        Ok(Self {
            context,
            buffer: context.alloc(&BufferDesc::new(len_bytes as u64))?,
            source: (0..len_bytes).map(|index| (index % 251) as u8).collect(),
            target: vec![1; len_bytes],
            copied: vec![2; len_bytes],
        })
    }

    fn round(&mut self, round: usize) -> Outcome<Transfer> {
        let mut found = Transfer::default();
        self.source.rotate_left(1);
        for turn in [round % 2, 1 - round % 2] {
            if turn == 0 {
                found.write = timed(|| {
                    let range = whole(&self.buffer);
                    self.context.write(StreamId::DEFAULT, range, &self.source)?;
                    Ok(self.context.sync(None)?)
                })?;
            } else {
                found.write_copy = timed(|| {
                    self.copied.copy_from_slice(black_box(&self.source));
                    black_box(&mut self.copied);
                    Ok(())
                })?;
            }
        }
        // Both read into the same bytes: from the buffer, and from the copy of them.
        for turn in [round % 2, 1 - round % 2] {
            if turn == 0 {
                self.target.fill(0);
                found.read = timed(|| {
                    let range = whole(&self.buffer);
                    Ok(self
                        .context
                        .read(StreamId::DEFAULT, range, &mut self.target)?)
                })?;
                if self.target != self.source {
                    return Err("what was read is not what was written".into());
                }
            } else {
                self.target.fill(0);
                found.read_copy = timed(|| {
                    self.target.copy_from_slice(black_box(&self.copied));
                    black_box(&mut self.target);
                    Ok(())
                })?;
            }
        }
        Ok(found)
    }
}

fn timed(action: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    let start = Instant::now();
    action()?;
    Ok(start.elapsed())
}

/// What one round found.
#[derive(Debug, Default)]
struct Round {
    ours: Launches,
    plain: Launches,
    ring: Launches,
    /// Launches of which a few hundred make a submission.
    together: Duration,
    our_buffers: [Duration; 2],
    plain_buffers: [Duration; 2],
}

fn rows(rounds: &[Round], moved: &[Transfer], amount: Amount, mapped: bool) -> Vec<Row> {
    let launches = Unit::PerSecond(amount.launches as f64);
    let enqueued = Unit::MicrosecondsEach(amount.launches as f64);
    let together = Unit::MicrosecondsEach(TIMED_TOGETHER as f64);
    let waited = Unit::MicrosecondsEach(amount.waits as f64);
    let buffers = Unit::MicrosecondsEach(amount.buffers as f64);
    let moved_gib = Unit::PerSecond(amount.transfer_bytes as f64 / f64::from(1 << 30));
    // Memory that is not mapped is not reached by a memcpy.
    let of_memcpy = mapped.then_some(Target::Ratio(0.95));
    let both = |times: [Duration; 2]| times[0] + times[1];
    vec![
        Row::new(
            "async launches/s; ash: 64 buffers, fences",
            rounds,
            |round| [round.ours.total, round.ring.total],
            launches,
            Some(Target::Ratio(2.0)),
        ),
        Row::new(
            "async launches/s; ash: a buffer for each",
            rounds,
            |round| [round.ours.total, round.plain.total],
            launches,
            Some(Target::Ratio(2.0)),
        ),
        // The driver's own limit: the rest of a launch is up to it.
        Row::new(
            "async launches/s; ash: 256 a submission",
            rounds,
            |round| [round.ours.total, round.together],
            launches,
            None,
        ),
        Row::new(
            "enqueue one, µs: round's mean; ash: fences",
            rounds,
            |round| [round.ours.enqueue, round.ring.enqueue],
            enqueued,
            Some(Target::AtMost(1.5)),
        ),
        Row::new(
            "enqueue one, µs: half of the 256s; as above",
            rounds,
            |round| [round.ours.enqueue_part, round.ring.enqueue_part],
            together,
            Some(Target::AtMost(1.5)),
        ),
        Row::new(
            "launch and wait, µs",
            rounds,
            |round| [round.ours.one_by_one, round.plain.one_by_one],
            waited,
            None,
        ),
        Row::new(
            "write 64 MiB, GiB/s",
            moved,
            |moved| [moved.write, moved.write_copy],
            moved_gib,
            of_memcpy,
        ),
        Row::new(
            "read 64 MiB, GiB/s",
            moved,
            |moved| [moved.read, moved.read_copy],
            moved_gib,
            of_memcpy,
        ),
        Row::new(
            "allocate 4 KiB, 2,000 live, µs",
            rounds,
            |round| [round.our_buffers[0], round.plain_buffers[0]],
            buffers,
            None,
        ),
        Row::new(
            "free it, µs",
            rounds,
            |round| [round.our_buffers[1], round.plain_buffers[1]],
            buffers,
            None,
        ),
        Row::new(
            "allocate and free it, µs",
            rounds,
            |round| [both(round.our_buffers), both(round.plain_buffers)],
            buffers,
            Some(Target::Ratio(5.0)),
        ),
    ]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A line of the table.
struct Row {
    what: &'static str,
    backend: f64,
    compared: f64,
    ratio: f64,
    target: Option<Target>,
}

/// What the backend should reach.
#[derive(Clone, Copy)]
enum Target {
    /// At least so many times as good.
    Ratio(f64),
    /// A time of at most so many microseconds.
    AtMost(f64),
}

/// What a time stands for.
#[derive(Clone, Copy)]
enum Unit {
    /// So many things were done in the time.
    PerSecond(f64),
    /// So many things took the time.
    MicrosecondsEach(f64),
}

impl Row {
    /// Compares the backend's time with the other's, which `times` takes from each sample.
    ///
    /// The ratio is the median of the samples' ratios: what slows the machine for a while slows
    /// both sides of a sample.
    fn new<S>(
        what: &'static str,
        samples: &[S],
        times: impl Fn(&S) -> [Duration; 2],
        unit: Unit,
        target: Option<Target>,
    ) -> Self {
        let seconds: Vec<[f64; 2]> = samples
            .iter()
            .map(|sample| times(sample).map(|time| time.as_secs_f64()))
            .collect();
        let value = |side: usize| {
            let time = median(seconds.iter().map(|sides| sides[side]).collect());
            match unit {
                Unit::PerSecond(count) => count / time,
                Unit::MicrosecondsEach(count) => time * 1e6 / count,
            }
        };
        Self {
            what,
            backend: value(0),
            compared: value(1),
            ratio: median(seconds.iter().map(|[ours, other]| other / ours).collect()),
            target,
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimals = if self.backend < 1000.0 { 2 } else { 0 };
        write!(
            f,
            "{:<44} {:>10.decimals$} {:>10.decimals$} {:>5.2}x",
            self.what, self.backend, self.compared, self.ratio
        )?;
        let (text, met) = match self.target {
            None => return Ok(()),
            Some(Target::Ratio(least)) => (format!("at least {least}x"), self.ratio >= least),
            Some(Target::AtMost(most)) => (format!("at most {most} µs"), self.backend <= most),
        };
        write!(f, "  {text}: {}", if met { "met" } else { "missed" })
    }
}
