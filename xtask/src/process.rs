//! Runs other programs, with errors that say what was run and what it answered.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

/// Why a program gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// The program is not installed, or not on the search path.
    #[error("{program} was not found")]
    NotFound {
        /// Name of the program.
        program: String,
    },
    /// The program is there, but could not be run or talked to.
    #[error("{command}")]
    Io {
        /// Command line.
        command: String,
        /// What the system answered.
        source: io::Error,
    },
    /// The program ran and failed.
    #[error("{command}: {status}\n{output}")]
    Failed {
        /// Command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed, on both streams.
        output: String,
    },
    /// The program ran and failed, and its user has seen what it printed.
    #[error("{command}: {status}")]
    FailedInSight {
        /// Command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
}

/// Runs `command` to its end in sight of the user: its command line and all that it prints.
///
/// # Errors
/// The program is missing, cannot be run, or does not end with success.
pub(crate) fn run(command: &mut Command) -> Result<(), ProcessError> {
    println!("$ {}", line(command));
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| not_run(command, error))?;
    if status.success() {
        return Ok(());
    }
    let command = line(command);
    Err(ProcessError::FailedInSight { command, status })
}

/// What a program printed while its user watched.
pub(crate) struct Watched {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Lines of its standard output.
    pub(crate) lines: Vec<String>,
}

/// Runs `command` to its end in sight of the user, and returns what it printed on standard output.
///
/// Lines that `hide` accepts are returned and not shown. A failing program is no error here.
///
/// # Errors
/// The program is missing, or cannot be run or read.
pub(crate) fn watch(
    command: &mut Command,
    hide: impl Fn(&str) -> bool,
) -> Result<Watched, ProcessError> {
    println!("$ {}", line(command));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| not_run(command, error))?;
    let mut lines = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let mut bytes = Vec::new();
        while stdout
            .read_until(b'\n', &mut bytes)
            .map_err(|error| not_run(command, error))?
            > 0
        {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            if !hide(&text) {
                println!("{text}");
            }
            lines.push(text);
            bytes.clear();
        }
    }
    let status = child.wait().map_err(|error| not_run(command, error))?;
    Ok(Watched { status, lines })
}

/// Runs `command` to its end, and returns what it printed on standard output.
///
/// # Errors
/// The program is missing, cannot be run, or does not end with success.
pub(crate) fn capture(command: &mut Command) -> Result<String, ProcessError> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| not_run(command, error))?;
    finish(command, output)
}

/// Runs `command` to its end with `input` on its standard input, and returns what it printed on
/// standard output.
///
/// The program must read all its input before it prints much: nothing is read meanwhile.
///
/// # Errors
/// The program is missing, cannot be run, or does not end with success.
pub(crate) fn filter(command: &mut Command, input: &str) -> Result<String, ProcessError> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| not_run(command, error))?;
    let written = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child
        .wait_with_output()
        .map_err(|error| not_run(command, error))?;
    // A program that failed may have closed its input early: its own words explain more.
    let answer = finish(command, output)?;
    written.map_err(|error| not_run(command, error))?;
    Ok(answer)
}

fn not_run(command: &Command, source: io::Error) -> ProcessError {
    if source.kind() == io::ErrorKind::NotFound {
        ProcessError::NotFound {
            program: command.get_program().to_string_lossy().into_owned(),
        }
    } else {
        ProcessError::Io {
            command: line(command),
            source,
        }
    }
}

fn finish(command: &Command, output: Output) -> Result<String, ProcessError> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(stdout.into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(ProcessError::Failed {
        command: line(command),
        status: output.status,
        output: format!("{stdout}{stderr}").trim_end().to_owned(),
    })
}

/// The command line, for people: variables that it sets, the program without its folder, and
/// arguments, none of them quoted.
pub(crate) fn line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            line.push_str(&format!("{}={} ", name.display(), value.display()));
        }
    }
    let program = command.get_program();
    let name = Path::new(program).file_name().unwrap_or(program);
    line.push_str(&name.to_string_lossy());
    for argument in command.get_args().map(OsStr::to_string_lossy) {
        line.push(' ');
        line.push_str(&argument);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_returns_standard_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo kept; echo dropped >&2"]);
        assert_eq!(capture(&mut command).unwrap(), "kept\n");
    }

    #[test]
    fn filter_passes_input_through() {
        assert_eq!(
            filter(&mut Command::new("cat"), "one\ntwo").unwrap(),
            "one\ntwo"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = capture(Command::new("no-such-program").arg("x")).unwrap_err();
        assert!(
            matches!(&error, ProcessError::NotFound { program } if program == "no-such-program")
        );
        assert_eq!(error.to_string(), "no-such-program was not found");
    }

    #[test]
    fn a_failure_shows_command_status_and_both_streams() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let ProcessError::Failed {
            command,
            status,
            output,
        } = capture(&mut command).unwrap_err()
        else {
            panic!("another kind of error");
        };
        assert_eq!(command, "sh -c echo out; echo err >&2; exit 3");
        assert_eq!(status.code(), Some(3));
        assert_eq!(output, "out\nerr");
    }

    #[test]
    fn a_failing_filter_reports_its_own_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec 0<&-; echo refused >&2; exit 1"]);
        let input = "x".repeat(1 << 20);
        let ProcessError::Failed { output, .. } = filter(&mut command, &input).unwrap_err() else {
            panic!("another kind of error");
        };
        assert_eq!(output, "refused");
    }

    #[test]
    fn run_tells_success_from_failure() {
        assert!(run(&mut Command::new("true")).is_ok());
        let error = run(Command::new("sh").args(["-c", "exit 4"])).unwrap_err();
        assert_eq!(error.to_string(), "sh -c exit 4: exit status: 4");
    }

    #[test]
    fn watch_returns_all_lines_and_the_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; printf two; exit 5"]);
        let watched = watch(&mut command, |line| line == "one").unwrap();
        assert_eq!(watched.lines, ["one", "two"]);
        assert_eq!(watched.status.code(), Some(5));
    }

    #[test]
    fn a_command_line_shows_variables_and_no_folder() {
        let mut command = Command::new("/usr/bin/env");
        command.env("A", "1").env_remove("B").args(["x", "y z"]);
        assert_eq!(line(&command), "A=1 env x y z");
    }
}
