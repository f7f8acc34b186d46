//! Commands for working on Grafos, run as `cargo xtask <command>`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command tells its user what it did on the terminal"
)]

mod bench;
mod cargo;
mod ci;
mod doc;
mod kernels;
mod lint;
mod matrix;
mod process;
mod scratch;
mod suite;
mod swiftshader;
mod test;
mod text_table;
mod tidy;
mod vulkan_drivers;
mod workspace;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Everything that continuous integration does, as commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything that can run on this machine, and tell what was skipped and why.
    ///
    /// All tests of all packages, then the conformance suites on each target that is here. The
    /// environment variable GRAFOS_REQUIRE turns skipped targets into failures: names of targets,
    /// or of backends for all their software targets, separated by commas.
    Test,
    /// Run the conformance suites of the backend and of the session API on one target.
    Suite(suite::Options),
    /// Run the benches and print them as one table, backends side by side.
    Bench(bench::Options),
    /// Run what continuous integration runs, step by step.
    Ci(ci::Options),
    /// Check the format and the lints of all packages.
    Lint,
    /// Check the house rules that a program can check.
    Tidy,
    /// Check the feature combinations that must build, and the dependencies that must be absent.
    Matrix,
    /// Build the documentation of all packages; a warning is a failure.
    Doc,
    /// Rebuild the kernels' images and their table from kernels/manifest.toml.
    Kernels(kernels::Options),
    /// Fetch the SwiftShader driver out of Debian's Chromium, and print where its manifest is.
    ///
    /// Nothing is installed: the driver lies in cargo's target folder.
    Swiftshader,
}

/// Names all commands.
fn command_names() -> Vec<String> {
    let command = Cli::command();
    let names = command.get_subcommands().map(clap::Command::get_name);
    names.map(str::to_owned).collect()
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test => test::run(),
        Command::Suite(options) => suite::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Ci(options) => ci::run(&options),
        Command::Lint => lint::run(),
        Command::Tidy => tidy::run(),
        Command::Matrix => matrix::run(),
        Command::Doc => doc::run(),
        Command::Kernels(options) => kernels::run(&options),
        Command::Swiftshader => swiftshader::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The alternate form prints the causes on the same line.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn kernels_takes_check() {
        let parse = |line: &[&str]| Cli::try_parse_from(line).map(|cli| cli.command);
        let Ok(Command::Kernels(options)) = parse(&["cargo xtask", "kernels", "--check"]) else {
            panic!("kernels --check was refused");
        };
        assert!(options.check);
        let error = parse(&["cargo xtask", "kernel"])
            .err()
            .map(|error| error.kind());
        assert_eq!(error, Some(clap::error::ErrorKind::InvalidSubcommand));
    }
}
