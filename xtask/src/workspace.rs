//! Where the workspace lies.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// Finds the workspace's root folder, from anywhere that `cargo xtask` is run.
pub(crate) fn root() -> Result<PathBuf> {
    // Cargo tells the running program too; that is right even if the checkout has moved since the
    // build.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    root_of(&package)
}

fn root_of(package: &Path) -> Result<PathBuf> {
    let root = package.parent().unwrap_or(package);
    let manifest = root.join("Cargo.toml");
    ensure!(
        manifest.is_file(),
        "no workspace around {}: {} is missing",
        package.display(),
        manifest.display()
    );
    Ok(root.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_holds_this_package() {
        let root = root().unwrap();
        assert!(root.join("xtask/src/workspace.rs").is_file());
        assert!(root.join("Cargo.lock").is_file());
    }

    #[test]
    fn a_folder_outside_a_workspace_is_named() {
        let error = root_of(Path::new("/nowhere/xtask"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "no workspace around /nowhere/xtask: /nowhere/Cargo.toml is missing"
        );
    }
}
