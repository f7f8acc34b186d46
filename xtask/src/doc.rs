//! `cargo xtask doc`: the documentation of all packages.

use anyhow::Result;

use crate::cargo::{self, Metadata};
use crate::process;

/// Builds the documentation of all packages; a broken link or a missing doc is a failure.
///
/// # Errors
/// rustdoc warns or fails.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::of_members()?;
    let features = metadata.fast_features().join(",");
    process::run(
        cargo::command(&metadata.workspace_root)
            .args(["doc", "--workspace", "--no-deps"])
            .args(["--features", &features])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    Ok(())
}
