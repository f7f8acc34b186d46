//! `cargo xtask test`: everything that can run on this machine.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cargo::{self, Metadata};
use crate::process::{self, ProcessError};
use crate::suite::{self, Outcome, Target};

/// Test targets that need a target to run on: [`suite`] runs them.
const SUITES: &[&str] = &["conformance", "session_suite"];

/// Names of the commands of [`plain_tests`].
const PLAIN_TESTS: [&str; 2] = ["tests", "tests in documentation"];

/// Targets whose driver the other tests may use, best first.
const DRIVERS_OF_TESTS: &[&str] = &["lavapipe", "swiftshader"];

/// Runs all tests of all packages, then the conformance suites on every target that is here, and
/// ends with a summary: a line for each target, and a last line that says what was skipped and why.
///
/// # Errors
/// A test or a case fails, or a target is skipped that `GRAFOS_REQUIRE` names.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::of_members()?;
    let mut summary = Summary::default();
    for (name, mut command) in PLAIN_TESTS.iter().zip(plain_tests(&metadata)) {
        match process::run(&mut command) {
            Ok(()) => {}
            // The command line was shown above, and is long.
            Err(ProcessError::FailedInSight { status, .. }) => {
                summary.failures.push(format!("{name}: {status}"));
            }
            Err(error) => summary.failures.push(format!("{name}: {error}")),
        }
    }
    let required = std::env::var(suite::REQUIRE).unwrap_or_default();
    for target in suite::TARGETS.iter().filter(|target| target.in_test) {
        println!("\n== suite {} ==", target.name);
        let is_required = target.is_required_by(&required);
        let outcome = target.run(&metadata, is_required, &[]);
        summary.add(target, is_required, outcome);
    }
    print!("\n{}", summary.text());
    match summary.failures.len() {
        0 => Ok(()),
        count => bail!("{count} of the parts failed, see above"),
    }
}

/// Makes the commands that run all tests but the suites.
fn plain_tests(metadata: &Metadata) -> [Command; 2] {
    let features = metadata.fast_features().join(",");
    let mut targets = vec!["--lib".to_owned(), "--bins".into(), "--examples".into()];
    for test in test_names(metadata) {
        targets.extend(["--test".to_owned(), test]);
    }
    // Cargo takes no other target beside documentation.
    let mut commands = [targets, vec!["--doc".to_owned()]].map(|targets| {
        let mut command = cargo::command(&metadata.workspace_root);
        command
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(["--features", &features])
            .args(targets);
        command
    });
    let driver = DRIVERS_OF_TESTS.iter().find(|name| {
        let target = Target::named(name);
        target.is_some_and(|target| commands.iter_mut().all(|c| select(target, c, metadata)))
    });
    match driver {
        Some(name) => println!("tests that use Vulkan run on {name}"),
        None => println!("tests that use Vulkan run on what the Vulkan loader finds, if anything"),
    }
    commands
}

/// Makes tests see a target's driver alone, and tells whether it is here; which backend and device
/// they open is their own choice.
fn select(target: &Target, command: &mut Command, metadata: &Metadata) -> bool {
    let found = target.select(command, metadata).is_ok();
    for name in ["GRAFOS_BACKEND", "GRAFOS_DEVICE", "GRAFOS_SUITE_TARGET"] {
        command.env_remove(name);
    }
    found
}

/// Names the integration tests of all packages, except the suites and those that build slowly.
fn test_names(metadata: &Metadata) -> BTreeSet<String> {
    let tests = metadata.packages.iter().flat_map(|package| {
        let fast = move |target: &&cargo::Target| package.builds_fast(target);
        package.targets_of("test").filter(fast)
    });
    tests
        .map(|test| test.name.clone())
        .filter(|name| !SUITES.contains(&name.as_str()))
        .collect()
}

/// What to tell at the end.
#[derive(Default)]
struct Summary {
    suites: Vec<String>,
    failures: Vec<String>,
    skipped: Vec<String>,
}

impl Summary {
    fn add(&mut self, target: &Target, required: bool, outcome: Result<Outcome>) {
        let name = target.name;
        match outcome {
            Ok(Outcome::Ran(counts)) => {
                self.suites.push(counts.closing_line(name));
                if let Err(error) = counts.check(name, true) {
                    self.failures.push(error.to_string());
                }
            }
            Ok(Outcome::Skipped(reason)) if required => {
                self.failures
                    .push(format!("{name} is required, but {reason}"));
            }
            Ok(Outcome::Skipped(reason)) => self.skipped.push(format!("{name}: {reason}")),
            Err(error) => self.failures.push(format!("{name}: {error:#}")),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let failures = self.failures.iter().map(|line| format!("failed: {line}"));
        for line in self.suites.iter().cloned().chain(failures) {
            text.push_str(&line);
            text.push('\n');
        }
        let skipped = match self.skipped.as_slice() {
            [] => "nothing".to_owned(),
            skipped => skipped.join("; "),
        };
        text.push_str(&format!("skipped: {skipped}\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Counts;

    fn ran(passed: u32, failed: u32) -> Result<Outcome> {
        Ok(Outcome::Ran(Counts {
            passed,
            failed,
            unsupported: 1,
        }))
    }

    fn skipped(reason: &str) -> Result<Outcome> {
        Ok(Outcome::Skipped(reason.into()))
    }

    fn target(name: &str) -> &'static Target {
        Target::named(name).unwrap()
    }

    #[test]
    fn a_clean_summary_ends_with_nothing_skipped() {
        let mut summary = Summary::default();
        summary.add(target("mock"), true, ran(5, 0));
        assert_eq!(
            summary.text(),
            "suite mock: 5 passed, 0 failed, 1 unsupported\nskipped: nothing\n"
        );
        assert_eq!(summary.failures, [""; 0]);
    }

    #[test]
    fn the_last_line_tells_each_skip_with_its_reason() {
        let mut summary = Summary::default();
        summary.add(target("swiftshader"), false, skipped("not unpacked"));
        summary.add(target("vulkan-gpu"), false, skipped("no driver"));
        assert_eq!(
            summary.text(),
            "skipped: swiftshader: not unpacked; vulkan-gpu: no driver\n"
        );
        assert_eq!(summary.failures, [""; 0]);
    }

    #[test]
    fn failures_and_required_skips_are_failures() {
        let mut summary = Summary::default();
        summary.add(target("mock"), true, ran(5, 2));
        summary.add(target("lavapipe"), true, skipped("not installed"));
        summary.add(target("swiftshader"), true, Err(anyhow::anyhow!("crashed")));
        assert_eq!(
            summary.text(),
            "suite mock: 5 passed, 2 failed, 1 unsupported\n\
             failed: mock: 2 cases failed\n\
             failed: lavapipe is required, but not installed\n\
             failed: swiftshader: crashed\n\
             skipped: nothing\n"
        );
        assert_eq!(summary.failures.len(), 3);
    }

    #[test]
    fn plain_tests_leave_the_suites_out() {
        let names = test_names(&Metadata::of_members().unwrap());
        assert!(names.contains("images"), "{names:?}");
        assert!(SUITES.iter().all(|suite| !names.contains(*suite)));
    }

    #[test]
    fn drivers_of_tests_are_targets() {
        assert!(
            DRIVERS_OF_TESTS
                .iter()
                .all(|name| Target::named(name).is_some())
        );
    }
}
