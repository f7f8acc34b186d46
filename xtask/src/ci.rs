//! `cargo xtask ci`: what continuous integration runs, step by step.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::cargo::{self, Metadata};
use crate::process::{self, ProcessError};
use crate::suite::{self, Target};
use crate::{doc, kernels, lint, matrix, test, text_table, tidy};

/// Options of `cargo xtask ci`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run these steps and no others
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    only: Vec<Step>,
    /// Leave these steps out
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    skip: Vec<Step>,
}

/// Targets of the step that has the validation layer watch.
const VALIDATED: &[&str] = &["lavapipe-validated", "lavapipe-staged-validated"];

/// A step, in the order in which they run: the quick ones first.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Step {
    /// Format and lints
    Lint,
    /// The house rules that a program can check
    Tidy,
    /// Whether committed images are what their sources build
    Kernels,
    /// Feature combinations and absences
    Matrix,
    /// Documentation without a warning
    Doc,
    /// cargo xtask test: all tests, and the suites on mock, lavapipe, SwiftShader
    Test,
    /// The suites on lavapipe under the Khronos validation layer
    Validation,
    /// The example of the README on the mock and on lavapipe
    Example,
    /// Full SPIR-V validation: the feature that takes minutes to build
    SpirvVal,
    /// Licenses, bans and sources, if cargo-deny is installed
    Deny,
}

/// What a step came to, if it did not fail.
enum Outcome {
    Passed,
    /// It could not run here, for this reason, and nobody needs it to.
    NotRun(String),
}

/// Runs the steps one after another, stops at the first failure, and tells how long each took.
///
/// # Errors
/// A step fails, or none was chosen.
pub(crate) fn run(options: &Options) -> Result<()> {
    let steps = options.steps();
    ensure!(!steps.is_empty(), "no step is left to run");
    let mut rows = Vec::new();
    let mut not_run: Vec<String> = Step::value_variants()
        .iter()
        .filter(|step| !steps.contains(step))
        .map(|step| format!("{}: not asked for", step.name()))
        .collect();
    let mut passed = 0;
    for step in steps {
        let name = step.name();
        println!("\n==== ci: {name} ====");
        let (outcome, took) = timed(|| step.run());
        let word = match outcome
            .with_context(|| format!("ci: step {name} failed after {:.0} s", took.as_secs_f64()))?
        {
            Outcome::Passed => {
                passed += 1;
                "passed"
            }
            Outcome::NotRun(reason) => {
                not_run.push(format!("{name}: {reason}"));
                "not run"
            }
        };
        rows.push(vec![
            name,
            word.to_owned(),
            format!("{:.1}", took.as_secs_f64()),
        ]);
    }
    print!("\n{}", text_table::render(&["step", "", "seconds"], &rows));
    for line in not_run {
        println!("not run: {line}");
    }
    println!("ci: all {passed} steps passed");
    Ok(())
}

impl Options {
    fn steps(&self) -> Vec<Step> {
        let all = Step::value_variants().iter().copied();
        all.filter(|step| self.only.is_empty() || self.only.contains(step))
            .filter(|step| !self.skip.contains(step))
            .collect()
    }
}

impl Step {
    /// Its name on the command line.
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self) -> Result<Outcome> {
        match self {
            Step::Lint => lint::run()?,
            Step::Tidy => tidy::run()?,
            Step::Kernels => kernels::run(&kernels::Options { check: true })?,
            Step::Matrix => matrix::run()?,
            Step::Doc => doc::run()?,
            Step::Test => test::run()?,
            Step::Validation => {
                for name in VALIDATED {
                    suite::run_required(target(name)?, &[])?;
                }
            }
            Step::Example => example()?,
            Step::SpirvVal => spirv_val()?,
            Step::Deny => return deny(),
        }
        Ok(Outcome::Passed)
    }
}

fn target(name: &str) -> Result<&'static Target> {
    Target::named(name).with_context(|| format!("there is no target {name}"))
}

/// Runs the command that the README shows first.
fn example() -> Result<()> {
    let metadata = Metadata::of_members()?;
    for name in ["mock", "lavapipe"] {
        let mut command = cargo::command(&metadata.workspace_root);
        command.args(["run", "--release", "--example", "vector_add"]);
        target(name)?
            .select(&mut command, &metadata)
            .map_err(anyhow::Error::msg)
            .with_context(|| name.to_owned())?;
        process::run(&mut command)?;
    }
    Ok(())
}

/// Tests what only full SPIR-V validation builds.
///
/// There is no clippy here: cargo would run the build script that compiles SPIRV-Tools once more
/// for it, which takes longer than everything else together.
fn spirv_val() -> Result<()> {
    let metadata = Metadata::of_members()?;
    let package = ["--package", "gpu-backend-vulkan", "--features", "spirv-val"];
    let mut test = cargo::command(&metadata.workspace_root);
    test.arg("test").args(package);
    target("lavapipe")?
        .select(&mut test, &metadata)
        .map_err(anyhow::Error::msg)?;
    process::run(&mut test)?;
    Ok(())
}

fn deny() -> Result<Outcome> {
    let metadata = Metadata::of_members()?;
    let command = |arguments: &[&str]| {
        let mut command = cargo::command(&metadata.workspace_root);
        command.arg("deny").args(arguments);
        command
    };
    if let Err(ProcessError::Failed { .. }) = process::capture(&mut command(&["--version"])) {
        return Ok(Outcome::NotRun("cargo-deny is not installed".to_owned()));
    }
    process::run(&mut command(&["check", "licenses", "bans", "sources"]))?;
    Ok(Outcome::Passed)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a step takes is for people, no test depends on it"
    )]
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(only: &[Step], skip: &[Step]) -> Vec<String> {
        let options = Options {
            only: only.to_vec(),
            skip: skip.to_vec(),
        };
        options.steps().into_iter().map(Step::name).collect()
    }

    #[test]
    fn all_steps_run_unless_told_otherwise() {
        assert_eq!(
            chosen(&[], &[]),
            [
                "lint",
                "tidy",
                "kernels",
                "matrix",
                "doc",
                "test",
                "validation",
                "example",
                "spirv-val",
                "deny"
            ]
        );
        assert!(!chosen(&[], &[Step::Test]).contains(&"test".to_owned()));
    }

    #[test]
    fn chosen_steps_keep_their_order() {
        assert_eq!(chosen(&[Step::Doc, Step::Lint], &[]), ["lint", "doc"]);
        assert_eq!(chosen(&[Step::Doc, Step::Lint], &[Step::Doc]), ["lint"]);
    }

    #[test]
    fn nothing_to_run_is_an_error() {
        let options = Options {
            only: vec![Step::Doc],
            skip: vec![Step::Doc],
        };
        let error = run(&options).unwrap_err().to_string();
        assert_eq!(error, "no step is left to run");
    }

    #[test]
    fn steps_name_targets_that_exist() {
        for name in ["mock", "lavapipe"].iter().chain(VALIDATED) {
            assert_eq!(target(name).unwrap().name, *name);
        }
    }
}
