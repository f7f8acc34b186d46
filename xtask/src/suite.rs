//! `cargo xtask suite`: runs the conformance suites on one target.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::PossibleValuesParser;

use crate::cargo::{self, Metadata};
use crate::{process, vulkan_drivers};

/// Environment variable: backends, separated by commas, whose absence is a failure.
pub(crate) const REQUIRE: &str = "GRAFOS_REQUIRE";

/// A suite: a package, and its test target.
type Suite = (&'static str, &'static str);

/// The suite of the session API.
const SESSION: Suite = ("grafos-std", "session_suite");
const MOCK: Suite = ("gpu-backend-mock", "conformance");
const VULKAN: Suite = ("gpu-backend-vulkan", "conformance");

/// Has the Khronos validation layer watch, and any message fail.
const VALIDATION: &str = "GRAFOS_VULKAN_VALIDATION";
/// Moves bytes through staging buffers, as on a card with memory of its own.
const STAGING: &str = "GRAFOS_VULKAN_STAGING";

/// What the suites can be run on.
pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "mock",
        backend: "mock",
        driver: Driver::None,
        variables: &[],
        suites: &[MOCK, SESSION],
        in_test: true,
    },
    Target {
        name: "lavapipe",
        backend: "vulkan",
        driver: Driver::Lavapipe,
        variables: &[],
        suites: &[VULKAN, SESSION],
        in_test: true,
    },
    Target {
        name: "lavapipe-validated",
        backend: "vulkan",
        driver: Driver::Lavapipe,
        variables: &[VALIDATION],
        suites: &[VULKAN, SESSION],
        in_test: false,
    },
    // What the session API asks of a backend does not depend on how bytes move.
    Target {
        name: "lavapipe-staged-validated",
        backend: "vulkan",
        driver: Driver::Lavapipe,
        variables: &[STAGING, VALIDATION],
        suites: &[VULKAN],
        in_test: false,
    },
    Target {
        name: "swiftshader",
        backend: "vulkan",
        driver: Driver::SwiftShader,
        variables: &[],
        suites: &[VULKAN, SESSION],
        in_test: true,
    },
    Target {
        name: "vulkan-gpu",
        backend: "vulkan",
        driver: Driver::Hardware,
        variables: &[],
        suites: &[VULKAN, SESSION],
        in_test: true,
    },
];

/// Something that the suites can be run on.
#[derive(Debug)]
pub(crate) struct Target {
    /// Name on the command line and in closing lines.
    pub(crate) name: &'static str,
    /// Name of the backend, as `GRAFOS_BACKEND` and `GRAFOS_REQUIRE` take it.
    pub(crate) backend: &'static str,
    driver: Driver,
    /// Switches of the test programs that are set to `1`.
    variables: &'static [&'static str],
    suites: &'static [Suite],
    /// Whether `cargo xtask test` includes it.
    pub(crate) in_test: bool,
}

/// What a target needs on the machine, and how it is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Driver {
    /// Nothing.
    None,
    /// Mesa's Vulkan driver for the CPU.
    Lavapipe,
    /// Google's Vulkan driver for the CPU.
    SwiftShader,
    /// The Vulkan drivers of GPUs.
    Hardware,
}

/// Options of `cargo xtask suite`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to run on; vulkan-gpu is the machine's GPU, the others are software
    #[arg(value_parser = PossibleValuesParser::new(TARGETS.iter().map(|target| target.name)))]
    target: String,
    /// Arguments of the test programs: a filter, --exact, --skip
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs both suites on one target; the target being absent is a failure.
///
/// # Errors
/// The target is not on this machine, a case fails, or a test program ends without its closing
/// line.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = Target::named(&options.target)
        .with_context(|| format!("there is no target {}", options.target))?;
    run_required(target, &options.arguments)
}

/// Runs both suites on a target that must be there, and prints the closing line.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_required(target: &Target, arguments: &[String]) -> Result<()> {
    let metadata = Metadata::of_members()?;
    match target.run(&metadata, true, arguments)? {
        Outcome::Skipped(reason) => bail!("{}: {reason}", target.name),
        Outcome::Ran(counts) => {
            println!("{}", counts.closing_line(target.name));
            counts.check(target.name, arguments.is_empty())
        }
    }
}

/// What running a target came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The suites ran; cases may have failed.
    Ran(Counts),
    /// The target is not on this machine, for this reason.
    Skipped(String),
}

impl Target {
    /// Finds a target by name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Whether a list of names, separated by commas, requires this target: by its own name, or,
    /// unless it takes a GPU, by its backend's.
    pub(crate) fn is_required_by(&self, list: &str) -> bool {
        list.split(',').map(str::trim).any(|name| {
            name == self.name || (name == self.backend && self.driver != Driver::Hardware)
        })
    }

    /// Prepares a command so that what it runs uses this target and no other.
    ///
    /// # Errors
    /// Why the target is not on this machine.
    pub(crate) fn select(&self, command: &mut Command, metadata: &Metadata) -> Result<(), String> {
        command
            .env("GRAFOS_BACKEND", self.backend)
            .env("GRAFOS_SUITE_TARGET", self.name);
        for name in [VALIDATION, STAGING] {
            if self.variables.contains(&name) {
                command.env(name, "1");
            } else {
                command.env_remove(name);
            }
        }
        if self.driver != Driver::Hardware {
            // A software target has one device; a choice among GPUs is not meant for it.
            command.env_remove("GRAFOS_DEVICE");
        }
        let manifests = self.driver.manifests(metadata)?;
        if !manifests.is_empty() {
            vulkan_drivers::select(command, &manifests);
        }
        if self.variables.contains(&VALIDATION) && vulkan_drivers::validation_layer().is_none() {
            return Err(format!(
                "the Khronos validation layer is not installed (Debian's package {} has it)",
                vulkan_drivers::VALIDATION_PACKAGE
            ));
        }
        Ok(())
    }

    /// Runs the backend's suite and the session API's; `required` makes test programs that find
    /// no device fail.
    ///
    /// # Errors
    /// A test program could not be built or run, or it ended without its closing line.
    pub(crate) fn run(
        &self,
        metadata: &Metadata,
        required: bool,
        arguments: &[String],
    ) -> Result<Outcome> {
        let mut sum = Counts::default();
        for &(package, test) in self.suites {
            metadata.ensure_test(package, test)?;
            let mut command = cargo::command(&metadata.workspace_root);
            command.args(["test", "--package", package, "--test", test]);
            if !arguments.is_empty() {
                command.arg("--").args(arguments);
            }
            if let Err(reason) = self.select(&mut command, metadata) {
                return Ok(Outcome::Skipped(reason));
            }
            if required {
                command.env(REQUIRE, self.backend);
            } else {
                command.env_remove(REQUIRE);
            }
            let hide = |line: &str| Counts::parse(line).is_some();
            let watched = process::watch(&mut command, hide)?;
            let program = format!("{package} {test}");
            match read(&watched.lines, watched.status, self.name).context(program.clone())? {
                Outcome::Ran(counts) => {
                    println!("{program}: {counts}");
                    sum.add(counts);
                }
                Outcome::Skipped(reason) => {
                    ensure!(
                        sum == Counts::default(),
                        "{program} skipped ({reason}), though the backend's suite ran"
                    );
                    return Ok(Outcome::Skipped(reason));
                }
            }
        }
        Ok(Outcome::Ran(sum))
    }
}

impl Driver {
    /// Finds the manifests of the Vulkan drivers to use; an error is the reason why there is none.
    fn manifests(self, metadata: &Metadata) -> Result<Vec<PathBuf>, String> {
        match self {
            Driver::None => Ok(Vec::new()),
            Driver::Lavapipe => vulkan_drivers::lavapipe()
                .map(|found| vec![found])
                .ok_or_else(|| {
                    format!(
                        "lavapipe is not installed (Debian's package {} has it)",
                        vulkan_drivers::LAVAPIPE_PACKAGE
                    )
                }),
            Driver::SwiftShader => vulkan_drivers::swiftshader(&metadata.target_directory)
                .map(|found| vec![found])
                .ok_or_else(|| {
                    "chromium-common is not unpacked (cargo xtask swiftshader fetches it with apt)"
                        .to_owned()
                }),
            Driver::Hardware => {
                let found = vulkan_drivers::hardware();
                if found.is_empty() {
                    return Err("no Vulkan driver of a GPU is installed".to_owned());
                }
                Ok(found)
            }
        }
    }
}

/// How many cases came to what.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) unsupported: u32,
}

impl Counts {
    /// Reads a closing line, `suite <target>: N passed, M failed, K unsupported`, and gives the
    /// target too.
    pub(crate) fn parse(line: &str) -> Option<(&str, Self)> {
        let (target, counts) = line.strip_prefix("suite ")?.split_once(": ")?;
        let mut parts = counts.split(", ");
        let mut count = |word| {
            let (number, found) = parts.next()?.split_once(' ')?;
            (found == word).then(|| number.parse().ok())?
        };
        let counts = Self {
            passed: count("passed")?,
            failed: count("failed")?,
            unsupported: count("unsupported")?,
        };
        parts.next().is_none().then_some((target, counts))
    }

    /// Words the closing line of a target.
    pub(crate) fn closing_line(&self, target: &str) -> String {
        format!("suite {target}: {self}")
    }

    /// Checks that nothing failed, and that a whole run passed something.
    ///
    /// # Errors
    /// A case failed, or none passed.
    pub(crate) fn check(&self, target: &str, whole: bool) -> Result<()> {
        ensure!(self.failed == 0, "{target}: {} cases failed", self.failed);
        ensure!(!whole || self.passed > 0, "{target}: no case passed");
        Ok(())
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.unsupported += other.unsupported;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            unsupported,
        } = self;
        write!(
            out,
            "{passed} passed, {failed} failed, {unsupported} unsupported"
        )
    }
}

/// Reads what a test program printed: its closing line, or why it skipped.
fn read(lines: &[String], status: ExitStatus, target: &str) -> Result<Outcome> {
    let closing = lines.iter().rev().find_map(|line| Counts::parse(line));
    let reason = || {
        lines
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("skipped: "))
    };
    match closing {
        Some((ran_on, counts)) => {
            // A test program names what it found, not what it was told to find.
            ensure!(ran_on == target, "ran on {ran_on}, not on {target}");
            ensure!(
                status.success() || counts.failed > 0,
                "counted no failure, but ended with {status}"
            );
            Ok(Outcome::Ran(counts))
        }
        None if !status.success() => bail!("ended with {status} before its closing line"),
        None => match reason() {
            Some(reason) => Ok(Outcome::Skipped(reason.to_owned())),
            None => bail!("printed neither `suite {target}: ...` nor `skipped: ...`"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn counts(passed: u32, failed: u32, unsupported: u32) -> Counts {
        Counts {
            passed,
            failed,
            unsupported,
        }
    }

    /// Reads the output of a program that ended with an exit code.
    fn read_all(text: &str, code: i32) -> Result<Outcome> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        read(&lines, ExitStatus::from_raw(code << 8), "mock")
    }

    #[test]
    fn closing_lines_are_read_back() {
        let some = counts(12, 3, 4);
        let line = some.closing_line("mock");
        assert_eq!(line, "suite mock: 12 passed, 3 failed, 4 unsupported");
        assert_eq!(Counts::parse(&line), Some(("mock", some)));
    }

    #[test]
    fn other_lines_are_no_closing_lines() {
        for line in [
            "the suite mock: 1 passed, 0 failed, 0 unsupported",
            "suite mock: 1 passed, 0 failed",
            "suite mock: 1 passed, 0 failed, 0 unsupported, 2 more",
            "suite mock: 1 failed, 0 passed, 0 unsupported",
            "suite mock: -1 passed, 0 failed, 0 unsupported",
            "test result: ok. 1 passed; 0 failed",
            "",
        ] {
            assert_eq!(Counts::parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_last_closing_line_counts() {
        let text = "suite mock: 1 passed, 0 failed, 0 unsupported\n\
                    suite mock: 2 passed, 0 failed, 1 unsupported\n";
        assert_eq!(read_all(text, 0).unwrap(), Outcome::Ran(counts(2, 0, 1)));
    }

    #[test]
    fn a_skip_is_believed_only_on_success() {
        let text = "skipped: vulkan: no loader\n";
        assert_eq!(
            read_all(text, 0).unwrap(),
            Outcome::Skipped("vulkan: no loader".into())
        );
        let error = read_all(text, 1).unwrap_err().to_string();
        assert_eq!(error, "ended with exit status: 1 before its closing line");
    }

    #[test]
    fn silence_and_a_late_crash_are_failures() {
        let error = read_all("running 3 tests\n", 0).unwrap_err().to_string();
        assert_eq!(
            error,
            "printed neither `suite mock: ...` nor `skipped: ...`"
        );
        let clean = "suite mock: 1 passed, 0 failed, 0 unsupported\n";
        let error = read_all(clean, 101).unwrap_err().to_string();
        assert_eq!(error, "counted no failure, but ended with exit status: 101");
        let failed = "suite mock: 1 passed, 2 failed, 0 unsupported\n";
        assert_eq!(
            read_all(failed, 101).unwrap(),
            Outcome::Ran(counts(1, 2, 0))
        );
    }

    #[test]
    fn a_run_on_another_target_is_a_failure() {
        let text = "suite lavapipe: 1 passed, 0 failed, 0 unsupported\n";
        let error = read_all(text, 0).unwrap_err().to_string();
        assert_eq!(error, "ran on lavapipe, not on mock");
    }

    #[test]
    fn check_wants_passes_and_no_failure() {
        assert!(counts(1, 0, 9).check("mock", true).is_ok());
        assert!(counts(0, 0, 9).check("mock", false).is_ok());
        let error = |counts: Counts| counts.check("mock", true).unwrap_err().to_string();
        assert_eq!(error(counts(5, 2, 0)), "mock: 2 cases failed");
        assert_eq!(error(counts(0, 0, 9)), "mock: no case passed");
    }

    #[test]
    fn a_backend_requires_its_software_targets() {
        let required = |list: &str| -> Vec<&str> {
            let targets = TARGETS.iter().filter(|target| target.is_required_by(list));
            targets.map(|target| target.name).collect()
        };
        assert_eq!(required(""), [""; 0]);
        assert_eq!(required("mock"), ["mock"]);
        assert_eq!(
            required("x, vulkan"),
            [
                "lavapipe",
                "lavapipe-validated",
                "lavapipe-staged-validated",
                "swiftshader"
            ]
        );
        assert_eq!(required("vulkan-gpu"), ["vulkan-gpu"]);
    }

    #[test]
    fn target_names_are_distinct() {
        let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(names.len(), TARGETS.len());
        for name in names {
            assert_eq!(Target::named(name).map(|target| target.name), Some(name));
        }
    }
}
