//! `cargo xtask lint`: format and lints.

use anyhow::Result;

use crate::cargo::{self, Metadata};
use crate::process;

/// Checks the format and the lints of all packages, with everything that they build.
///
/// # Errors
/// A file is not formatted, or there is a warning.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::of_members()?;
    process::run(cargo::command(&metadata.workspace_root).args(["fmt", "--all", "--check"]))?;
    let features = metadata.fast_features().join(",");
    process::run(
        cargo::command(&metadata.workspace_root)
            .args(["clippy", "--workspace", "--all-targets"])
            .args(["--features", &features])
            .args(["--", "-D", "warnings"]),
    )?;
    Ok(())
}
