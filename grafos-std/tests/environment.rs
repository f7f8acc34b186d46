//! What the default host makes of the environment, each time in a process of its own.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use grafos_std::gpu::{GpuBuilder, GpuEvent, GpuLease, GpuMemHandle, GpuModule, GpuSession};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Set for the processes that are to look at their environment: what they do.
const CHILD: &str = "GRAFOS_TEST_CHILD";

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(CHILD) {
        return child(&task);
    }
    let trials = vec![
        Trial::test(
            "an_unknown_backend_is_refused_with_the_known_ones",
            unknown_backend,
        ),
        Trial::ignorable_test(
            "a_backend_that_is_not_compiled_in_names_its_feature",
            not_compiled_in,
        ),
        Trial::test("the_software_gpu_is_used_when_it_is_named", named_mock),
        Trial::test("the_software_gpu_is_never_chosen_silently", silent_mock),
        Trial::test("a_device_that_nothing_matches_is_named", no_such_device),
        Trial::test("a_value_that_means_nothing_is_refused", meaningless),
        Trial::test("without_a_vulkan_driver_it_says_so", no_vulkan),
        Trial::test("a_process_can_end_with_live_handles_on_mock", || {
            end_of_process(&MOCK)
        }),
        Trial::ignorable_test("a_cpu_vulkan_device_is_used_only_when_asked_for", || {
            with_lavapipe(cpu_vulkan)
        }),
        Trial::ignorable_test("a_process_can_end_with_live_handles_on_vulkan", || {
            with_lavapipe(|icd| {
                end_of_process(&[("GRAFOS_BACKEND", "vulkan"), ("VK_ICD_FILENAMES", icd)])
            })
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const MOCK: [(&str, &str); 1] = [("GRAFOS_BACKEND", "mock")];
/// Hides the machine's Vulkan drivers from the loader.
const NO_VULKAN: (&str, &str) = ("VK_ICD_FILENAMES", "/nonexistent/icd.json");

// In the child.

static HELD: OnceLock<(GpuLease, GpuSession, GpuMemHandle, GpuModule, GpuEvent)> = OnceLock::new();

#[expect(
    clippy::print_stdout,
    reason = "the parent reads what the child prints"
)]
fn child(task: &str) -> ExitCode {
    // The second answer must be as the first: a default host is set up once.
    for _ in 0..2 {
        match GpuBuilder::new().acquire() {
            Ok(lease) => println!("lease on {}: {}", lease.backend(), lease.device().name),
            Err(error) => println!("{:?}: {error}", error.kind()),
        }
    }
    if task == "hold"
        && let Ok(lease) = GpuBuilder::new().acquire()
    {
        let session = GpuSession::new(&lease);
        let image = grafos_kernels::by_name("fill").expect("a kernel").spirv;
        let buffer = session.mem_alloc(1 << 20).expect("memory");
        session.mem_write(&buffer, 0, &[1; 4096]).expect("a write");
        let module = session.module_load(image).expect("a module");
        let event = session.create_event().expect("an event");
        session.record(&event).expect("a record");
        HELD.get_or_init(|| (lease, session, buffer, module, event));
        println!("holds all");
    }
    ExitCode::SUCCESS
}

// In the parent.

/// Runs a child with these variables and no others of ours, and gives what it printed.
fn run(task: &str, variables: &[(&str, &str)]) -> Result<String, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["GRAFOS_", "VK_", "RUST_BACKTRACE"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    command.env(CHILD, task).envs(variables.iter().copied());
    let output = command.output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() != Some(0) || stderr.contains("panicked") {
        return Err(format!("ended with {}: {stdout}{stderr}", output.status).into());
    }
    Ok(stdout)
}

/// Runs a child that acquires twice, and gives the line that it printed both times.
fn acquire(variables: &[(&str, &str)]) -> Result<String, Failed> {
    let text = run("acquire", variables)?;
    let lines: Vec<&str> = text.lines().collect();
    match lines[..] {
        [first, second] if first == second => Ok(first.to_owned()),
        _ => Err(format!("two acquisitions in one environment answer: {text}").into()),
    }
}

fn expect(line: &str, start: &str, parts: &[&str]) -> Result<(), Failed> {
    if !line.starts_with(start) {
        return Err(format!("does not start with {start:?}: {line}").into());
    }
    match parts.iter().find(|part| !line.contains(**part)) {
        Some(part) => Err(format!("{part:?} is not in: {line}").into()),
        None => Ok(()),
    }
}

fn unknown_backend() -> Result<(), Failed> {
    let line = acquire(&[("GRAFOS_BACKEND", "metal")])?;
    let parts = ["GRAFOS_BACKEND", "\"metal\"", "auto", "vulkan", "mock"];
    expect(&line, "InvalidArgument: ", &parts)
}

fn not_compiled_in() -> Result<Completion, Failed> {
    if cfg!(feature = "vulkan") {
        return Ok(Completion::ignored_with("this build has every backend"));
    }
    let line = acquire(&[("GRAFOS_BACKEND", "vulkan")])?;
    expect(
        &line,
        "Disconnected: ",
        &["vulkan: not compiled in", "feature \"vulkan\""],
    )?;
    Ok(Completion::Completed)
}

fn named_mock() -> Result<(), Failed> {
    for name in ["mock", " Mock ", "MOCK"] {
        let line = acquire(&[("GRAFOS_BACKEND", name)])?;
        expect(&line, "lease on mock: Grafos software GPU", &[])?;
    }
    for device in ["0", "software", "47524146-4f53-8000-8000-000000000000", ""] {
        let line = acquire(&[MOCK[0], ("GRAFOS_DEVICE", device)])?;
        expect(&line, "lease on mock: Grafos software GPU", &[])?;
    }
    Ok(())
}

fn silent_mock() -> Result<(), Failed> {
    for backend in ["", "auto"] {
        let line = acquire(&[("GRAFOS_BACKEND", backend), NO_VULKAN])?;
        expect(&line, "Disconnected: ", &[])?;
    }
    Ok(())
}

fn no_such_device() -> Result<(), Failed> {
    for device in [
        "1",
        "geforce",
        "0000:65:00.0",
        "01010101-0101-0101-0101-010101010101",
    ] {
        let line = acquire(&[MOCK[0], ("GRAFOS_DEVICE", device)])?;
        let text = format!("{device:?}");
        expect(
            &line,
            "Disconnected: ",
            &["mock", &text, "Grafos software GPU"],
        )?;
    }
    Ok(())
}

fn meaningless() -> Result<(), Failed> {
    let line = acquire(&[MOCK[0], ("GRAFOS_SYNC_LAUNCH", "yes")])?;
    expect(
        &line,
        "InvalidArgument: ",
        &["GRAFOS_SYNC_LAUNCH", "\"yes\"", "0 or 1"],
    )?;
    for value in ["0", "1", "", " 1 "] {
        let line = acquire(&[MOCK[0], ("GRAFOS_SYNC_LAUNCH", value)])?;
        expect(&line, "lease on mock", &[])?;
    }
    Ok(())
}

fn no_vulkan() -> Result<(), Failed> {
    for variables in [
        vec![NO_VULKAN],
        vec![NO_VULKAN, ("GRAFOS_BACKEND", "vulkan")],
    ] {
        let line = acquire(&variables)?;
        if !cfg!(feature = "vulkan") {
            expect(&line, "Disconnected: ", &[])?;
            continue;
        }
        expect(&line, "Disconnected: ", &["vulkan: "])?;
        // A hint follows in parentheses.
        let hint = line
            .split_once("vulkan: ")
            .and_then(|(_, rest)| rest.split_once(" ("));
        if hint.is_none() {
            return Err(format!("no hint: {line}").into());
        }
    }
    Ok(())
}

fn end_of_process(variables: &[(&str, &str)]) -> Result<(), Failed> {
    let text = run("hold", variables)?;
    if text.lines().last() == Some("holds all") {
        Ok(())
    } else {
        Err(text.into())
    }
}

fn cpu_vulkan(icd: &str) -> Result<(), Failed> {
    let driver = ("VK_ICD_FILENAMES", icd);
    for backend in ["", "auto"] {
        let line = acquire(&[driver, ("GRAFOS_BACKEND", backend)])?;
        expect(
            &line,
            "Disconnected: ",
            &["llvmpipe", "GRAFOS_BACKEND=vulkan"],
        )?;
    }
    let line = acquire(&[driver, ("GRAFOS_BACKEND", "vulkan")])?;
    expect(&line, "lease on vulkan: llvmpipe", &[])
}

/// Runs a trial on Mesa's Vulkan driver for the CPU; a machine without it is a failure where
/// `GRAFOS_REQUIRE` names vulkan.
fn with_lavapipe(trial: impl FnOnce(&str) -> Result<(), Failed>) -> Result<Completion, Failed> {
    let found = if cfg!(feature = "vulkan") {
        lavapipe()
    } else {
        None
    };
    if let Some(icd) = found.as_deref().and_then(|path| path.to_str()) {
        trial(icd)?;
        return Ok(Completion::Completed);
    }
    let reason = "Mesa's lvp_icd is not installed, or feature vulkan is off";
    let required = std::env::var("GRAFOS_REQUIRE").unwrap_or_default();
    if required.split(',').any(|name| name.trim() == "vulkan") {
        return Err(format!("GRAFOS_REQUIRE names vulkan, but {reason}").into());
    }
    Ok(Completion::ignored_with(format!("skipped: {reason}")))
}

fn lavapipe() -> Option<PathBuf> {
    [
        "/usr/share/vulkan/icd.d",
        "/usr/local/share/vulkan/icd.d",
        "/etc/vulkan/icd.d",
    ]
    .into_iter()
    .filter_map(|folder| std::fs::read_dir(folder).ok())
    .flatten()
    .filter_map(|entry| entry.ok().map(|entry| entry.path()))
    .find(|path| {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("lvp_icd") && name.ends_with(".json"))
    })
}
