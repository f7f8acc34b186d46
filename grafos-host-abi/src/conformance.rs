//! The suite that every backend runs.
//!
//! A case is a plain function that drives a [`GpuContext`](crate::GpuContext) and compares what it
//! finds with values that the suite computes itself. A backend opts in with a [`Fixture`] and a
//! test target without the usual harness, whose `main` passes the fixture to [`main`]:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! The arguments are those of Rust's own test harness: a filter, `--exact`, `--skip`, `--list`.
//! Cases run one after another unless `--test-threads` says otherwise, because some fill the
//! device's memory or keep it busy.
//!
//! # What is sent
//!
//! The suite stands where the host stands: what the host refuses (see
//! [`GpuContext`](crate::GpuContext)) is never sent, so that a backend is not asked to check it
//! twice.
//!
//! # Outcomes
//!
//! A case passes, fails or is unsupported, and says why. A case is unsupported when the device's
//! [`Capabilities`](crate::Capabilities) or [`DeviceLimits`](crate::DeviceLimits) rule it out, when
//! the fixture has no image of a kernel, or when the fixture lists it. A listed expected failure
//! that passes is a failure, and so is a list that names an unknown case.
//!
//! Where the device is absent, [`main`] prints `skipped:` and the reason, and succeeds; where the
//! environment variable [`REQUIRE`] names the backend, it fails.

/// Lists the cases of an area, under the area's name.
macro_rules! cases {
    ($area:literal: $($name:ident),+ $(,)?) => {
        pub(super) const CASES: &[$crate::conformance::runner::Case] = &[$(
            $crate::conformance::runner::Case {
                name: concat!($area, "::", stringify!($name)),
                run: $name,
            }
        ),+];
    };
}

mod busy;
mod check;
mod fixture;
mod gpu;
mod reference;
mod runner;

mod arguments;
mod capacity;
mod close;
mod compute;
mod contexts;
mod copy_fill;
mod device;
mod event;
mod kernel_signature;
mod launch;
mod lifetime;
mod lost;
mod memory;
mod module;
mod native;
mod stream;
mod threads;
mod wait;

pub use fixture::Fixture;
pub use runner::{REQUIRE, Report, case_names, main, run};

/// The cases, area by area.
const AREAS: &[&[runner::Case]] = &[
    device::CASES,
    memory::CASES,
    capacity::CASES,
    copy_fill::CASES,
    module::CASES,
    kernel_signature::CASES,
    compute::CASES,
    launch::CASES,
    arguments::CASES,
    stream::CASES,
    event::CASES,
    wait::CASES,
    lifetime::CASES,
    close::CASES,
    threads::CASES,
    contexts::CASES,
    native::CASES,
    lost::CASES,
];
