//! The backend on whatever Vulkan driver the caller has chosen: what is particular to Vulkan, and
//! what the conformance suite does not press hard enough. See `support` for the environment.

#![expect(clippy::print_stdout, reason = "a test program says why it skips")]
#![expect(clippy::print_stderr, reason = "a test program says why it fails")]

mod cards;
mod descriptions;
mod device;
mod launches;
mod lifetime;
mod memory;
mod native;
mod probes;
mod processes;
#[path = "../support/mod.rs"]
mod support;
mod transfers;

use std::process::ExitCode;
use std::sync::Arc;

use device::{Device, Outcome, ensure};
use grafos_host_abi::{GpuBackend, Probe};
use libtest_mimic::{Arguments, Trial};
use support::Messages;

/// A trial's name, and what it does on a device.
type OnDevice = (&'static str, fn(&Device) -> Outcome);

/// A trial's name, and what it does without one, or with one that it opens itself.
type Anywhere = (&'static str, fn() -> Outcome);

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(processes::CHILD) {
        return processes::child(&task);
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
        (
            "both_styles_agree_under_load",
            launches::both_styles_agree_under_load,
        ),
        (
            "random_transfers_match_a_model",
            transfers::random_transfers_match_a_model,
        ),
        (
            "two_threads_transfer_at_once",
            transfers::two_threads_transfer_at_once,
        ),
        (
            "buffers_are_freed_under_work",
            memory::buffers_are_freed_under_work,
        ),
        (
            "blocks_are_checked_by_axis",
            launches::blocks_are_checked_by_axis,
        ),
        (
            "argument_bytes_are_checked",
            launches::argument_bytes_are_checked,
        ),
        (
            "bound_ranges_are_checked",
            launches::bound_ranges_are_checked,
        ),
        ("memory_comes_back", memory::memory_comes_back),
        (
            "a_refused_allocation_leaves_counts_right",
            memory::a_refused_allocation_leaves_counts_right,
        ),
        (
            "an_impossible_size_is_refused_at_once",
            memory::an_impossible_size_is_refused_at_once,
        ),
        ("foreign_work_is_ordered", native::foreign_work_is_ordered),
        (
            "a_timed_out_context_is_left_alone",
            lifetime::a_timed_out_context_is_left_alone,
        ),
        (
            "a_loss_is_silent_for_drops",
            lifetime::a_loss_is_silent_for_drops,
        ),
    ];
    let anywhere: [Anywhere; 6] = [
        (
            "a_missing_library_is_data",
            processes::a_missing_library_is_data,
        ),
        (
            "a_library_that_is_no_loader_is_data",
            processes::a_library_that_is_no_loader_is_data,
        ),
        ("no_driver_is_data", processes::no_driver_is_data),
        (
            "a_driver_that_does_not_load_is_data",
            processes::a_driver_that_does_not_load_is_data,
        ),
        ("exit_with_a_context_in_a_static", || {
            processes::exits_well("static")
        }),
        ("exit_with_work_on_another_thread", || {
            processes::exits_well("thread")
        }),
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
    let answered = [
        &probes::TRIALS[..],
        &descriptions::TRIALS[..],
        &cards::TRIALS[..],
    ];
    for &(name, run) in answered.into_iter().flatten() {
        trials.push(Trial::test(name, run).with_ignored_flag(absent.is_some()));
    }
    let name = "the_validation_layer_speaks_up";
    let trial = Trial::ignorable_test(name, native::the_validation_layer_speaks_up);
    trials.push(trial.with_ignored_flag(absent.is_some()));
    libtest_mimic::run(&arguments, trials).exit_code()
}
