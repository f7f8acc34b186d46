//! Broken images through loading and pipeline creation on the caller's Vulkan driver.
//!
//! A child process resolves the kernels of one mutant after another; when the driver takes it
//! down, the mutant is noted and another child goes on behind it. `GRAFOS_MUTANTS` says how many
//! mutants are tried.

#![expect(clippy::print_stdout, reason = "a test program says what it found")]
#![expect(clippy::print_stderr, reason = "a test program says why it fails")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::{ContextOptions, ErrorKind, GpuBackend, GpuContext, Probe};

/// Tells a child where to begin and where to end.
const CHILD: &str = "GRAFOS_VULKAN_MUTANTS_CHILD";
const DEFAULT_COUNT: u64 = 10_000;
/// A mutant that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Ok(range) = std::env::var(CHILD) {
        return child(&range);
    }
    // Cargo's runner asks for the list, and a filter may leave this program out.
    if std::env::args().any(|argument| argument == "--list") {
        println!("mutants: test");
        return ExitCode::SUCCESS;
    }
    if let Probe::Unavailable { reason, hint } = VulkanBackend::new().probe() {
        let required = std::env::var("GRAFOS_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|name| name.trim() == "vulkan"));
        if required {
            eprintln!("failed: GRAFOS_REQUIRE names vulkan, but {reason}; {hint}");
            return ExitCode::FAILURE;
        }
        println!("skipped: {reason}; {hint}");
        return ExitCode::SUCCESS;
    }
    let count = std::env::var("GRAFOS_MUTANTS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(DEFAULT_COUNT);
    let mut tally = Tally::default();
    let mut next = 0;
    while next < count {
        next = match watch(next, count, &mut tally) {
            Ok(next) => next,
            Err(failure) => {
                eprintln!("failed: {failure}");
                return ExitCode::FAILURE;
            }
        };
    }
    let checked = if cfg!(feature = "spirv-val") {
        "the structural checker and spirv-val"
    } else {
        "the structural checker alone"
    };
    println!(
        "mutants: {count} with {checked}: {} refused, {} accepted, {} crashed {:?}, {} hung {:?}",
        tally.refused,
        tally.accepted,
        tally.crashed.len(),
        tally.crashed,
        tally.hung.len(),
        tally.hung,
    );
    // Without the full validator a driver can still be given what it does not survive; a panic
    // of ours or a leak has ended the run above.
    let most_crashes = if cfg!(feature = "spirv-val") {
        0
    } else {
        count.div_ceil(100)
    };
    if tally.crashed.len() as u64 > most_crashes || !tally.hung.is_empty() {
        eprintln!("failed: at most {most_crashes} crashes are expected, and no hang");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Tally {
    refused: u64,
    accepted: u64,
    crashed: Vec<u64>,
    hung: Vec<u64>,
}

/// Runs a child from a mutant on; answers where the next one has to begin.
fn watch(from: u64, to: u64, tally: &mut Tally) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|failure| failure.to_string())?;
    let mut child = Command::new(program)
        .env(CHILD, format!("{from} {to}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|failure| failure.to_string())?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut current = from;
    let mut hung = false;
    loop {
        match lines.recv_timeout(LIMIT) {
            Ok(line) => match line.split_once(' ') {
                Some(("begin", mutant)) => current = mutant.parse().unwrap_or(current),
                Some(("end", "refused")) => tally.refused += 1,
                Some(("end", "accepted")) => tally.accepted += 1,
                _ => return Err(format!("mutant {current}: {line}")),
            },
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                hung = true;
                child.kill().map_err(|failure| failure.to_string())?;
                break;
            }
        }
    }
    let status = child.wait().map_err(|failure| failure.to_string())?;
    // It ends with the child's output.
    let _ = reader.join();
    if hung {
        tally.hung.push(current);
    } else if status.success() {
        return Ok(to);
    } else if status.code().is_some() {
        return Err(format!("mutant {current}: the child ended with {status}"));
    } else {
        tally.crashed.push(current);
    }
    Ok(current + 1)
}

fn child(range: &str) -> ExitCode {
    let mut numbers = range.split(' ').map(|number| number.parse().unwrap_or(0));
    let (from, to) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let backend = VulkanBackend::new();
    let context = match backend.open(0, &ContextOptions::default()) {
        Ok(context) => context,
        Err(failure) => {
            println!("{failure}");
            return ExitCode::FAILURE;
        }
    };
    for mutant in from..to {
        println!("begin {mutant}");
        let _ = std::io::stdout().flush();
        match resolve(&*context, &mutate(mutant)) {
            Ok(true) => println!("end accepted"),
            Ok(false) => println!("end refused"),
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    match context.close(None) {
        Ok(report) if report.live_modules == 0 => ExitCode::SUCCESS,
        other => {
            println!("{other:?}");
            ExitCode::FAILURE
        }
    }
}

/// Loads an image and resolves its kernels; whether everything was accepted.
fn resolve(context: &dyn GpuContext, image: &[u8]) -> Result<bool, String> {
    let module = match context.load_module(image) {
        Ok(module) => module.id,
        Err(failure) => {
            return match failure.kind() {
                ErrorKind::InvalidModule | ErrorKind::Unsupported => Ok(false),
                _ => Err(format!("loading: {failure}")),
            };
        }
    };
    let names = context
        .kernel_names(module)
        .map_err(|failure| failure.to_string())?;
    let accepted = names
        .iter()
        .all(|name| context.kernel(module, name).is_ok());
    context
        .unload_module(module)
        .map_err(|failure| failure.to_string())?;
    Ok(accepted)
}

/// Numbers that look random and are the same every time.
fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A shipped image with one to three faults.
fn mutate(mutant: u64) -> Vec<u8> {
    let kernels = grafos_kernels::all();
    let kernel = &kernels[(mix(mutant) % kernels.len() as u64) as usize];
    let (chunks, _) = kernel.spirv.as_chunks::<4>();
    let mut words: Vec<u32> = chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect();
    let mut state = mix(mutant ^ 0x5EED_0000_0000);
    let mut below = |limit: usize| {
        state = mix(state.wrapping_add(1));
        (state % limit.max(1) as u64) as usize
    };
    for _ in 0..=below(3) {
        let at = 5 + below(words.len().saturating_sub(5));
        let Some(word) = words.get(at).copied() else {
            continue;
        };
        match below(6) {
            0 => words[at] = word ^ (1 << below(32)),
            // Another id or literal of the module's range.
            1 | 2 => words[at] = below(200) as u32,
            3 => words[at] = word.wrapping_add(1),
            4 => {
                let other = 5 + below(words.len() - 5);
                words.swap(at, other);
            }
            _ => {
                // An instruction too many or too few.
                let len = ((word >> 16) as usize).clamp(1, words.len() - at);
                let instruction = words[at..at + len].to_vec();
                if below(2) == 0 {
                    words.drain(at..at + len);
                } else {
                    words.splice(at..at, instruction);
                }
            }
        }
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
