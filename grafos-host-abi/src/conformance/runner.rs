//! Runs cases and reports them.

use core::time::Duration;
use std::collections::BTreeMap;
use std::format;
use std::prelude::v1::*;
use std::process::ExitCode;
use std::string::String;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;

use libtest_mimic::{Arguments, Completion, Trial};

use super::AREAS;
use super::busy::BusySize;
use super::check::{Checked, Stop, ensure};
use super::fixture::Fixture;
use super::gpu::Gpu;
use crate::{ContextOptions, DeviceInfo};

/// The environment variable that turns an absent device into a failure: backend names, separated
/// by commas.
pub const REQUIRE: &str = "GRAFOS_REQUIRE";

/// The case that holds the fixture's lists against the names of the cases.
const LISTS_CASE: &str = "fixture::lists_name_known_cases";

/// A case: its name, with its area in front, and what it does.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) run: fn(&Suite) -> Checked,
}

/// What the cases of one run share.
pub(super) struct Suite {
    pub(super) fixture: Arc<dyn Fixture>,
    pub(super) device_index: u32,
    pub(super) info: DeviceInfo,
    pub(super) busy: OnceLock<BusySize>,
}

impl Suite {
    /// Finds the device; an error is the reason why there is none.
    fn new(fixture: Arc<dyn Fixture>) -> Result<Self, String> {
        let device_index = fixture.device_index()?;
        let mut devices = fixture
            .backend()
            .devices()
            .map_err(|error| error.to_string())?;
        let position = device_index as usize;
        if position >= devices.len() {
            return Err(format!(
                "{}: no device {device_index}, {} listed",
                fixture.backend().name(),
                devices.len()
            ));
        }
        let info = devices.swap_remove(position);
        Ok(Self {
            fixture,
            device_index,
            info,
            busy: OnceLock::new(),
        })
    }

    /// Opens a fresh context.
    pub(super) fn open(&self) -> Checked<Gpu<'_>> {
        let options = ContextOptions {
            label: format!("conformance {}", self.fixture.target()),
        };
        let context = self.fixture.backend().open(self.device_index, &options)?;
        Ok(Gpu::new(self, context))
    }

    /// Gives the image of a module; a missing one ends the case as unsupported.
    pub(super) fn image(&self, name: &str) -> Checked<Vec<u8>> {
        self.fixture
            .image(name)
            .ok_or_else(|| Stop::unsupported(format_args!("the target has no image of {name}")))
    }

    /// Ends the case as unsupported unless the device has an ability.
    pub(super) fn need(&self, ability: bool, name: &str) -> Checked {
        if ability {
            Ok(())
        } else {
            Err(Stop::unsupported(format_args!(
                "the device's capabilities lack {name}"
            )))
        }
    }
}

/// What a run came to. Names and messages are in the order of the cases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that failed, with what was found and expected.
    pub failed: Vec<(&'static str, String)>,
    /// The cases that do not apply, with the reason.
    pub unsupported: Vec<(&'static str, String)>,
}

impl Report {
    fn add(&mut self, name: &'static str, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed.push(name),
            Outcome::Failed(message) => self.failed.push((name, message.clone())),
            Outcome::Unsupported(reason) => self.unsupported.push((name, reason.clone())),
        }
    }

    /// Words the closing line of a run.
    fn closing_line(&self, target: &str) -> String {
        format!(
            "suite {target}: {} passed, {} failed, {} unsupported",
            self.passed.len(),
            self.failed.len(),
            self.unsupported.len()
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    Unsupported(String),
}

/// Lists the names of all cases, in the order in which they run.
pub fn case_names() -> impl Iterator<Item = &'static str> {
    all_cases().map(|case| case.name)
}

fn all_cases() -> impl Iterator<Item = Case> {
    let lists = Case {
        name: LISTS_CASE,
        run: lists_name_known_cases,
    };
    core::iter::once(lists).chain(AREAS.iter().copied().flatten().copied())
}

/// Runs the cases that `choose` accepts by name, and prints nothing.
///
/// # Errors
///
/// The reason why there is no device to test.
pub fn run(
    fixture: Arc<dyn Fixture>,
    mut choose: impl FnMut(&str) -> bool,
) -> Result<Report, String> {
    let suite = Arc::new(Suite::new(fixture)?);
    let mut report = Report::default();
    for case in all_cases().filter(|case| choose(case.name)) {
        report.add(case.name, &run_case(&suite, case));
    }
    Ok(report)
}

/// Runs the suite as a test program: takes its arguments, prints, and gives the exit code.
///
/// The last line is `suite <target>: N passed, M failed, K unsupported`.
pub fn main(fixture: impl Fixture + 'static) -> ExitCode {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    main_with(Arguments::from_args(), &required, fixture)
}

#[expect(clippy::print_stdout, reason = "this is the body of a test program")]
fn main_with(
    mut arguments: Arguments,
    required: &str,
    fixture: impl Fixture + 'static,
) -> ExitCode {
    // The device is shared: some cases fill its memory or keep it busy.
    arguments.test_threads.get_or_insert(1);
    if arguments.list {
        let trials = all_cases().map(|case| Trial::test(case.name, || Ok(())));
        return libtest_mimic::run(&arguments, trials.collect()).exit_code();
    }

    let fixture: Arc<dyn Fixture> = Arc::new(fixture);
    let suite = match Suite::new(Arc::clone(&fixture)) {
        Ok(suite) => Arc::new(suite),
        Err(reason) => {
            let backend = fixture.backend().name();
            if requires(required, backend) {
                std::println!("failed: {REQUIRE} names {backend}, but {reason}");
                return ExitCode::FAILURE;
            }
            std::println!("skipped: {reason}");
            return ExitCode::SUCCESS;
        }
    };

    let outcomes = Arc::new(Mutex::new(BTreeMap::new()));
    let trials = all_cases()
        .map(|case| {
            let suite = Arc::clone(&suite);
            let outcomes = Arc::clone(&outcomes);
            Trial::ignorable_test(case.name, move || {
                let outcome = run_case(&suite, case);
                lock(&outcomes).insert(case.name, outcome.clone());
                match outcome {
                    Outcome::Passed => Ok(Completion::Completed),
                    Outcome::Failed(message) => Err(message.into()),
                    Outcome::Unsupported(reason) => {
                        Ok(Completion::ignored_with(format!("unsupported: {reason}")))
                    }
                }
            })
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);

    let mut report = Report::default();
    let outcomes = lock(&outcomes);
    for name in case_names() {
        if let Some(outcome) = outcomes.get(name) {
            report.add(name, outcome);
        }
    }
    for (name, reason) in &report.unsupported {
        std::println!("unsupported: {name}: {reason}");
    }
    std::println!("{}", report.closing_line(fixture.target()));
    if report.failed.is_empty() {
        conclusion.exit_code()
    } else {
        ExitCode::FAILURE
    }
}

/// Whether a list of backend names, separated by commas, has one.
fn requires(list: &str, backend: &str) -> bool {
    list.split(',').any(|name| name.trim() == backend)
}

/// Runs one case on a thread of its own, so that a hanging one ends the case and not the run.
fn run_case(suite: &Arc<Suite>, case: Case) -> Outcome {
    let reason_in = |list: &[(&'static str, &'static str)]| {
        list.iter()
            .find(|(name, _)| *name == case.name)
            .map(|(_, reason)| *reason)
    };
    if let Some(reason) = reason_in(suite.fixture.unsupported()) {
        return Outcome::Unsupported(reason.into());
    }
    let outcome = run_within(suite, case, suite.fixture.case_limit());
    match (reason_in(suite.fixture.expected_failures()), outcome) {
        (Some(reason), Outcome::Failed(_)) => {
            Outcome::Unsupported(format!("fails as expected: {reason}"))
        }
        (Some(reason), Outcome::Passed) => Outcome::Failed(format!(
            "passed, but the fixture expects a failure: {reason}"
        )),
        (_, outcome) => outcome,
    }
}

fn run_within(suite: &Arc<Suite>, case: Case, limit: Duration) -> Outcome {
    let (sender, receiver) = mpsc::channel();
    let suite = Arc::clone(suite);
    let spawned = thread::Builder::new()
        .name(case.name.into())
        .spawn(move || {
            let checked = (case.run)(&suite);
            drop(suite);
            // The receiver is gone only when the case has been given up.
            let _ = sender.send(checked);
        });
    let worker = match spawned {
        Ok(worker) => worker,
        Err(error) => return Outcome::Failed(format!("no thread for the case: {error}")),
    };
    match receiver.recv_timeout(limit) {
        Ok(checked) => match (worker.join(), checked) {
            (Err(panic), _) => Outcome::Failed(panic_message(panic.as_ref())),
            (Ok(()), Ok(())) => Outcome::Passed,
            (Ok(()), Err(Stop::Failed(message))) => Outcome::Failed(message),
            (Ok(()), Err(Stop::Unsupported(reason))) => Outcome::Unsupported(reason),
        },
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Outcome::Failed(format!("did not end within {limit:?}"))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => Outcome::Failed(panic_message(panic.as_ref())),
            Ok(()) => Outcome::Failed("ended without an outcome".into()),
        },
    }
}

fn panic_message(panic: &(dyn core::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message");
    format!("panicked: {text}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lists_name_known_cases(suite: &Suite) -> Checked {
    let fixture = &suite.fixture;
    let lists = [fixture.unsupported(), fixture.expected_failures()];
    for (name, reason) in lists.into_iter().flatten() {
        ensure(
            format_args!("the fixture lists {name:?}, and there is no such case"),
            case_names().any(|known| known == *name),
        )?;
        ensure(
            format_args!("the fixture lists {name:?} without a reason"),
            !reason.trim().is_empty(),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::collections::BTreeSet;

    use super::*;
    use crate::{GpuBackend, GpuContext, GpuError, Probe};

    /// A backend without a driver.
    struct Absent;

    impl GpuBackend for Absent {
        fn name(&self) -> &'static str {
            "absent"
        }

        fn probe(&self) -> Probe {
            Probe::Unavailable {
                reason: "no library".into(),
                hint: "install it".into(),
            }
        }

        fn devices(&self) -> crate::Result<Vec<DeviceInfo>> {
            Err(GpuError::Unavailable {
                backend: "absent",
                reason: "no library".into(),
            })
        }

        fn open(&self, _: u32, _: &ContextOptions) -> crate::Result<Box<dyn GpuContext>> {
            Err(GpuError::Unavailable {
                backend: "absent",
                reason: "no library".into(),
            })
        }
    }

    impl Fixture for Absent {
        fn target(&self) -> &str {
            "nothing"
        }

        fn backend(&self) -> &dyn GpuBackend {
            self
        }

        fn image(&self, _: &str) -> Option<Vec<u8>> {
            None
        }

        fn malformed_images(&self) -> Vec<(String, Vec<u8>)> {
            Vec::new()
        }
    }

    #[test]
    fn an_absent_device_is_skipped_unless_it_is_required() {
        let exit = |required| main_with(Arguments::default(), required, Absent);
        assert_eq!(exit(""), ExitCode::SUCCESS);
        assert_eq!(exit("mock,absently"), ExitCode::SUCCESS);
        assert_eq!(exit("mock,absent"), ExitCode::FAILURE);
        let reason = "absent: no library; install it".into();
        assert_eq!(run(Arc::new(Absent), |_| true), Err(reason));
    }

    #[test]
    fn listing_needs_no_device() {
        let arguments = Arguments {
            list: true,
            ..Arguments::default()
        };
        assert_eq!(main_with(arguments, "absent", Absent), ExitCode::SUCCESS);
    }

    #[test]
    fn case_names_are_unique_and_have_an_area() {
        let names: BTreeSet<_> = case_names().collect();
        assert_eq!(names.len(), case_names().count());
        for name in names {
            assert_eq!(name.matches("::").count(), 1, "{name}");
        }
    }

    #[test]
    fn the_require_list_is_split_at_commas() {
        assert!(requires("mock,vulkan", "vulkan"));
        assert!(requires(" mock , vulkan ", "mock"));
        assert!(!requires("mock,vulkan", "vulk"));
        assert!(!requires("", "mock"));
    }

    #[test]
    fn the_closing_line_counts_each_outcome() {
        let mut report = Report::default();
        report.add("a", &Outcome::Passed);
        report.add("b", &Outcome::Passed);
        report.add("c", &Outcome::Failed("x".into()));
        report.add("d", &Outcome::Unsupported("y".into()));
        assert_eq!(
            report.closing_line("gpu"),
            "suite gpu: 2 passed, 1 failed, 1 unsupported"
        );
    }
}
