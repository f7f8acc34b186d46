//! Commands for working on Grafos, run as `cargo xtask <command>`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command tells its user what it did on the terminal"
)]

mod kernels;
mod process;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Everything that continuous integration does, as commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Rebuild the kernels' images and their table from kernels/manifest.toml.
    Kernels(kernels::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Kernels(options) => kernels::run(&options),
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
    use clap::CommandFactory;

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
