//! `cargo xtask swiftshader`: fetches the SwiftShader driver out of Debian's Chromium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::Metadata;
use crate::process::{self, ProcessError};
use crate::scratch::Scratch;
use crate::vulkan_drivers::{self, SWIFTSHADER_DIR, SWIFTSHADER_MANIFEST};

const PACKAGE: &str = "chromium-common";
/// Where the package keeps the driver.
const FOLDER_IN_PACKAGE: &str = "usr/lib/chromium";
const LIBRARY: &str = "libvk_swiftshader.so";

/// Downloads Debian's package, takes the driver out of it into cargo's target folder, and prints
/// the path of its manifest. Nothing is installed. A driver that is already there is left alone.
///
/// # Errors
/// There is no apt here, the package cannot be downloaded, or it holds no driver.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::of_members()?;
    let manifest = match vulkan_drivers::swiftshader(&metadata.target_directory) {
        Some(found) => found,
        None => fetch(&metadata.target_directory)?,
    };
    println!("{}", manifest.display());
    Ok(())
}

fn fetch(target_directory: &Path) -> Result<PathBuf> {
    // Below the target folder, so that the driver can be moved and not copied.
    let scratch = Scratch::below(target_directory)?;
    let mut download = Command::new("apt-get");
    download
        .args(["--quiet", "download", PACKAGE])
        .current_dir(scratch.path());
    match process::capture(&mut download) {
        Err(ProcessError::NotFound { .. }) => bail!(
            "apt-get was not found: on a system other than Debian, put {SWIFTSHADER_MANIFEST} and \
             {LIBRARY} into a folder, and name it in {SWIFTSHADER_DIR}"
        ),
        other => other.context("`apt-get update` may have to run first")?,
    };
    let archive = archive_in(scratch.path())?;
    let unpacked = scratch.path().join("unpacked");
    process::capture(Command::new("dpkg").arg("-x").args([&archive, &unpacked]))?;
    let folder = vulkan_drivers::swiftshader_folder(target_directory);
    take_driver(&unpacked.join(FOLDER_IN_PACKAGE), &folder)
}

/// Finds the package that apt-get wrote: its name has the version in it.
fn archive_in(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get download {PACKAGE} wrote no package"))
}

/// Moves the driver's files, the manifest last: who finds it finds all.
fn take_driver(from: &Path, to: &Path) -> Result<PathBuf> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for name in [LIBRARY, SWIFTSHADER_MANIFEST] {
        let file = from.join(name);
        ensure!(
            file.is_file(),
            "{PACKAGE} holds no {FOLDER_IN_PACKAGE}/{name}"
        );
        fs::rename(&file, to.join(name)).with_context(|| format!("moving {name}"))?;
    }
    Ok(to.join(SWIFTSHADER_MANIFEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_taken_with_its_manifest() {
        let scratch = Scratch::new().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("a/to"));
        fs::create_dir_all(&from).unwrap();
        for name in [LIBRARY, SWIFTSHADER_MANIFEST, "chromium"] {
            fs::write(from.join(name), name).unwrap();
        }
        assert_eq!(
            take_driver(&from, &to).unwrap(),
            to.join(SWIFTSHADER_MANIFEST)
        );
        assert_eq!(fs::read_to_string(to.join(LIBRARY)).unwrap(), LIBRARY);
        assert!(!to.join("chromium").exists());
    }

    #[test]
    fn a_package_without_the_driver_is_refused() {
        let scratch = Scratch::new().unwrap();
        let error = take_driver(scratch.path(), &scratch.path().join("to"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "chromium-common holds no usr/lib/chromium/libvk_swiftshader.so"
        );
    }

    #[test]
    fn the_archive_is_found_by_its_ending() {
        let scratch = Scratch::new().unwrap();
        let error = archive_in(scratch.path()).unwrap_err().to_string();
        assert_eq!(error, "apt-get download chromium-common wrote no package");
        let archive = scratch.path().join("chromium-common_1.0_amd64.deb");
        fs::write(&archive, "").unwrap();
        assert_eq!(archive_in(scratch.path()).unwrap(), archive);
    }
}
