//! The session API's suite, over the one target that the environment chooses.
//!
//! | variable | meaning |
//! |---|---|
//! | `GRAFOS_BACKEND` | the backend, `mock` where nothing is said; the caller also selects the Vulkan driver |
//! | `GRAFOS_SUITE_TARGET` | the name in the closing line; the backend's where nothing is said |
//! | `GRAFOS_REQUIRE` | backends, separated by commas, whose absence is a failure |
//! | `GRAFOS_VULKAN_VALIDATION` | `1` runs under the Khronos validation layer; every message fails the suite |
//!
//! Every value is compared with one that is computed here or by the plain CPU references of
//! `grafos-kernels`. The last line is `suite <target>: N passed, M failed, K unsupported`.

mod arguments;
mod compute;
mod exit;
mod handles;
mod lifecycle;
mod lifetime;
mod limits;
mod lost;
mod memory;
mod modules;
mod streams;
mod target;
mod threads;
mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Trial};

use target::{Target, Unsupported};

/// A case: its name, with its area in front, and what it does. It panics where it fails.
struct Case {
    name: &'static str,
    run: fn(&Target) -> Result<(), Unsupported>,
}

/// Lists the cases of an area, under the area's name.
macro_rules! cases {
    ($area:literal: $($name:ident),+ $(,)?) => {
        pub(crate) const CASES: &[$crate::Case] = &[$(
            $crate::Case { name: concat!($area, "::", stringify!($name)), run: $name }
        ),+];
    };
}
use cases;

const AREAS: &[&[Case]] = &[
    lifecycle::CASES,
    memory::CASES,
    compute::CASES,
    limits::CASES,
    arguments::CASES,
    modules::CASES,
    handles::CASES,
    streams::CASES,
    waits::CASES,
    lifetime::CASES,
    threads::CASES,
    lost::CASES,
    exit::CASES,
];

#[derive(Default)]
struct Counts {
    passed: u32,
    failed: u32,
    unsupported: Vec<(&'static str, String)>,
}

#[expect(clippy::print_stdout, reason = "this is the body of a test program")]
fn main() -> ExitCode {
    let target = Target::from_environment();
    if std::env::var_os(exit::CHILD).is_some() {
        return match target {
            Ok(target) => exit::child(&target),
            Err(reason) => {
                println!("{reason}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // The device is shared: some cases fill its memory or keep it busy.
    arguments.test_threads.get_or_insert(1);
    let cases = || AREAS.iter().copied().flatten();
    if arguments.list {
        let trials = cases().map(|case| Trial::test(case.name, || Ok(())));
        return libtest_mimic::run(&arguments, trials.collect()).exit_code();
    }
    let target = match target {
        Ok(target) => Arc::new(target),
        Err(reason) => return target::skip(&reason),
    };
    let counts = Arc::new(Mutex::new(Counts::default()));
    let trials = cases().map(|case| {
        let (target, counts) = (Arc::clone(&target), Arc::clone(&counts));
        Trial::ignorable_test(case.name, move || run(case, &target, &counts))
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, reason) in &counts.unsupported {
        println!("unsupported: {name}: {reason}");
    }
    let messages = target.validation_messages();
    for message in &messages {
        println!("validation: {message}");
    }
    let (passed, failed) = (counts.passed, counts.failed + messages.len() as u32);
    let unsupported = counts.unsupported.len();
    let name = &target.name;
    println!("suite {name}: {passed} passed, {failed} failed, {unsupported} unsupported");
    if failed == 0 {
        conclusion.exit_code()
    } else {
        ExitCode::FAILURE
    }
}

fn run(
    case: &Case,
    target: &Target,
    counts: &Mutex<Counts>,
) -> Result<Completion, libtest_mimic::Failed> {
    let outcome = catch_unwind(AssertUnwindSafe(|| (case.run)(target)));
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    match outcome {
        Ok(Ok(())) => {
            counts.passed += 1;
            Ok(Completion::Completed)
        }
        Ok(Err(Unsupported(reason))) => {
            let text = format!("unsupported: {reason}");
            counts.unsupported.push((case.name, reason));
            Ok(Completion::ignored_with(text))
        }
        Err(panic) => {
            counts.failed += 1;
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("panicked without a message").into())
        }
    }
}
