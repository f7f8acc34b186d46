//! How a case ends before its last line, and the comparisons that end it.

use core::fmt::{Debug, Display};
use core::panic::Location;
use std::format;
use std::prelude::v1::*;

use crate::{ErrorKind, GpuError};

/// Why a case ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The device or the fixture lacks what the case needs.
    Unsupported(String),
    /// The backend broke its contract.
    Failed(String),
}

/// What a case, or a part of one, comes to.
pub(super) type Checked<T = ()> = Result<T, Stop>;

impl Stop {
    #[track_caller]
    pub(super) fn failed(what: impl Display) -> Self {
        let place = Location::caller();
        Self::Failed(format!("{what} (at {}:{})", place.file(), place.line()))
    }

    pub(super) fn unsupported(reason: impl Display) -> Self {
        Self::Unsupported(reason.to_string())
    }
}

impl From<GpuError> for Stop {
    #[track_caller]
    fn from(error: GpuError) -> Self {
        Self::failed(format_args!("unexpected {:?}: {error}", error.kind()))
    }
}

#[track_caller]
pub(super) fn ensure(what: impl Display, condition: bool) -> Checked {
    if condition {
        Ok(())
    } else {
        Err(Stop::failed(what))
    }
}

#[track_caller]
pub(super) fn ensure_eq<T: PartialEq + Debug>(
    what: impl Display,
    found: T,
    expected: T,
) -> Checked {
    if found == expected {
        Ok(())
    } else {
        Err(Stop::failed(format_args!(
            "{what}: found {found:?}, expected {expected:?}"
        )))
    }
}

/// Compares two slices and tells where they differ first, and how often.
#[track_caller]
pub(super) fn ensure_same<T: PartialEq + Debug>(
    what: impl Display,
    found: &[T],
    expected: &[T],
) -> Checked {
    if found == expected {
        return Ok(());
    }
    if found.len() != expected.len() {
        return Err(Stop::failed(format_args!(
            "{what}: found {} elements, expected {}",
            found.len(),
            expected.len()
        )));
    }
    let mut differences = found
        .iter()
        .zip(expected)
        .enumerate()
        .filter(|(_, (found, expected))| found != expected);
    let Some((first, (found_first, expected_first))) = differences.next() else {
        return Err(Stop::failed(format_args!(
            "{what}: elements differ from themselves"
        )));
    };
    Err(Stop::failed(format_args!(
        "{what}: element {first} of {} is {found_first:?}, expected {expected_first:?}; \
         {} elements differ",
        found.len(),
        1 + differences.count()
    )))
}

/// Asks for a failure of one kind, and gives it back.
#[track_caller]
pub(super) fn ensure_kind<T: Debug>(
    what: impl Display,
    result: Result<T, GpuError>,
    kind: ErrorKind,
) -> Checked<GpuError> {
    match result {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => Err(Stop::failed(format_args!(
            "{what}: found {:?} ({error}), expected {kind:?}",
            error.kind()
        ))),
        Ok(value) => Err(Stop::failed(format_args!(
            "{what}: succeeded with {value:?}, expected {kind:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(checked: Checked) -> String {
        match checked {
            Err(Stop::Failed(message)) => message,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn differences_are_located_and_counted() {
        let text = message(ensure_same("bytes", &[1, 2, 3, 4], &[1, 0, 3, 0]));
        assert!(
            text.starts_with("bytes: element 1 of 4 is 2, expected 0; 2 elements differ (at "),
            "{text}"
        );
        assert!(text.contains("check.rs:"), "{text}");
        assert_eq!(message(ensure_same("bytes", &[1], &[1])), "Ok(())");
    }

    #[test]
    fn kinds_are_told_apart() {
        let refusal = || GpuError::InvalidArgument { reason: "x".into() };
        let kind = ErrorKind::InvalidArgument;
        assert!(ensure_kind::<()>("call", Err(refusal()), kind).is_ok());
        for result in [Err(refusal()), Ok(())] {
            let text = format!("{:?}", ensure_kind("call", result, ErrorKind::Timeout));
            assert!(text.contains("expected Timeout"), "{text}");
        }
    }

    #[test]
    fn an_unexpected_error_carries_the_line_that_met_it() {
        fn fails() -> Checked {
            Err(GpuError::InvalidArgument { reason: "x".into() })?;
            Ok(())
        }
        let text = message(fails());
        assert!(
            text.starts_with("unexpected InvalidArgument: invalid argument: x (at "),
            "{text}"
        );
        assert!(text.contains("conformance/check.rs"), "{text}");
    }
}
