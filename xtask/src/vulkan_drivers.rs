//! Finds the Vulkan drivers and layers that are installed, by the manifests that the loader reads.

use std::env::consts::ARCH;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Manifest of Mesa's driver for the CPU, before the architecture's name.
const LAVAPIPE: &str = "lvp_icd";
/// Debian's package of lavapipe.
pub(crate) const LAVAPIPE_PACKAGE: &str = "mesa-vulkan-drivers";
/// Manifest of SwiftShader.
pub(crate) const SWIFTSHADER_MANIFEST: &str = "vk_swiftshader_icd.json";
/// Manifest of the Khronos validation layer.
const VALIDATION_MANIFEST: &str = "VkLayer_khronos_validation.json";
/// Debian's package of the Khronos validation layer.
pub(crate) const VALIDATION_PACKAGE: &str = "vulkan-validationlayers";
/// The folder to look for SwiftShader in first.
pub(crate) const SWIFTSHADER_DIR: &str = "GRAFOS_SWIFTSHADER_DIR";

/// Architectures that a manifest's name may end with.
const ARCHITECTURES: &[&str] = &["aarch64", "armv7l", "i386", "i686", "riscv64", "x86_64"];

/// Finds the manifest of lavapipe.
pub(crate) fn lavapipe() -> Option<PathBuf> {
    lavapipe_in(&loader_folders("icd.d", |name| std::env::var_os(name)))
}

/// Finds the manifests of the drivers that are not software: of GPUs, if there are any.
pub(crate) fn hardware() -> Vec<PathBuf> {
    hardware_in(&loader_folders("icd.d", |name| std::env::var_os(name)))
}

/// Finds the manifest of the Khronos validation layer.
pub(crate) fn validation_layer() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("VK_LAYER_PATH")
        .map(|list| std::env::split_paths(&list).collect())
        .unwrap_or_default();
    folders.extend(loader_folders("explicit_layer.d", |name| {
        std::env::var_os(name)
    }));
    first_file(&folders, VALIDATION_MANIFEST)
}

/// Finds the manifest of SwiftShader: in the folder that the environment names, where
/// `cargo xtask swiftshader` puts it, or where Debian installs it.
pub(crate) fn swiftshader(target_directory: &Path) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os(SWIFTSHADER_DIR)
        .map(PathBuf::from)
        .into_iter()
        .collect();
    folders.push(swiftshader_folder(target_directory));
    folders.push(PathBuf::from("/usr/lib/chromium"));
    first_file(&folders, SWIFTSHADER_MANIFEST)
}

/// Where `cargo xtask swiftshader` puts the driver.
pub(crate) fn swiftshader_folder(target_directory: &Path) -> PathBuf {
    target_directory.join("swiftshader")
}

/// Makes a program see the drivers of these manifests, and no others.
pub(crate) fn select(command: &mut Command, manifests: &[PathBuf]) {
    let list = std::env::join_paths(manifests).unwrap_or_default();
    // The loader knows the first name since 1.3.207 and the second one always.
    command
        .env("VK_DRIVER_FILES", &list)
        .env("VK_ICD_FILENAMES", &list);
    for name in [
        "VK_ADD_DRIVER_FILES",
        "VK_LOADER_DRIVERS_SELECT",
        "VK_LOADER_DRIVERS_DISABLE",
    ] {
        command.env_remove(name);
    }
}

/// Lists the folders where the loader looks, in its order; `variable` reads the environment.
fn loader_folders(kind: &str, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let value = |name| variable(name).filter(|value| !value.is_empty());
    let home = value("HOME").map(PathBuf::from);
    let one = |name, below_home: &str| {
        let folder = value(name).map(PathBuf::from);
        folder.or_else(|| home.as_ref().map(|home| home.join(below_home)))
    };
    let list = |name, otherwise: &str| {
        let list = value(name).unwrap_or_else(|| otherwise.into());
        std::env::split_paths(&list).collect::<Vec<_>>()
    };
    let mut bases = Vec::new();
    bases.extend(one("XDG_CONFIG_HOME", ".config"));
    bases.extend(list("XDG_CONFIG_DIRS", "/etc/xdg"));
    bases.push("/etc".into());
    bases.extend(one("XDG_DATA_HOME", ".local/share"));
    bases.extend(list("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
    let folders = bases.into_iter();
    folders.map(|base| base.join("vulkan").join(kind)).collect()
}

fn lavapipe_in(folders: &[PathBuf]) -> Option<PathBuf> {
    manifests_in(folders)
        .into_iter()
        .find(|path| starts_with(path, LAVAPIPE))
}

fn hardware_in(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = manifests_in(folders);
    found.retain(|path| !starts_with(path, LAVAPIPE) && !starts_with(path, "vk_swiftshader"));
    found
}

/// Lists the drivers' manifests for this architecture, folder by folder, sorted within each.
fn manifests_in(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        // A folder that cannot be read holds no driver for the loader either.
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .filter(|path| is_for(path, ARCH))
            .collect();
        paths.sort();
        found.extend(paths);
    }
    found
}

/// Whether a manifest is for an architecture, by its name: `lvp_icd.x86_64.json`, `lvp_icd.json`.
fn is_for(manifest: &Path, architecture: &str) -> bool {
    let name = manifest.file_stem().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('.') {
        Some((_, end)) if ARCHITECTURES.contains(&end) => end == architecture,
        _ => true,
    }
}

fn starts_with(path: &Path, start: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(start)
}

fn first_file(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let paths = folders.iter().map(|folder| folder.join(name));
    paths.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn scratch_with(files: &[&str]) -> Scratch {
        let scratch = Scratch::new().unwrap();
        for file in files {
            let path = scratch.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "{}").unwrap();
        }
        scratch
    }

    #[test]
    fn folders_follow_the_environment() {
        let variable = |name: &str| match name {
            "HOME" => Some("/h".into()),
            "XDG_CONFIG_HOME" => Some("".into()),
            "XDG_DATA_DIRS" => Some("/a:/b".into()),
            _ => None,
        };
        assert_eq!(
            loader_folders("icd.d", variable),
            [
                "/h/.config/vulkan/icd.d",
                "/etc/xdg/vulkan/icd.d",
                "/etc/vulkan/icd.d",
                "/h/.local/share/vulkan/icd.d",
                "/a/vulkan/icd.d",
                "/b/vulkan/icd.d",
            ]
            .map(PathBuf::from)
        );
        let bare = loader_folders("icd.d", |_| None);
        assert!(bare.contains(&"/usr/share/vulkan/icd.d".into()));
        assert_eq!(bare.len(), 4);
    }

    #[test]
    fn lavapipe_is_the_first_for_this_architecture() {
        let ours = format!("late/lvp_icd.{ARCH}.json");
        let other = if ARCH == "x86_64" { "i686" } else { "x86_64" };
        let files = [
            "early/radeon_icd.json".to_owned(),
            format!("early/lvp_icd.{other}.json"),
            "early/lvp_icd.txt".to_owned(),
            ours.clone(),
        ];
        let scratch = scratch_with(&files.each_ref().map(String::as_str));
        let folders = ["missing", "early", "late"].map(|folder| scratch.path().join(folder));
        assert_eq!(lavapipe_in(&folders), Some(scratch.path().join(ours)));
        assert_eq!(lavapipe_in(&folders[..2]), None);
    }

    #[test]
    fn hardware_leaves_out_software_drivers() {
        let scratch = scratch_with(&[
            "lvp_icd.json",
            "nvidia_icd.json",
            "vk_swiftshader_icd.json",
            "radeon_icd.json",
        ]);
        assert_eq!(
            hardware_in(&[scratch.path().to_owned()]),
            ["nvidia_icd.json", "radeon_icd.json"].map(|name| scratch.path().join(name))
        );
    }

    #[test]
    fn select_names_the_manifests_and_silences_other_choices() {
        let mut command = Command::new("x");
        select(&mut command, &["/a.json".into(), "/b.json".into()]);
        let variables: Vec<_> = command.get_envs().collect();
        let value = |name: &str| {
            let found = variables.iter().find(|(found, _)| *found == name);
            found.unwrap().1.map(|value| value.to_str().unwrap())
        };
        assert_eq!(value("VK_DRIVER_FILES"), Some("/a.json:/b.json"));
        assert_eq!(value("VK_ICD_FILENAMES"), Some("/a.json:/b.json"));
        assert_eq!(value("VK_ADD_DRIVER_FILES"), None);
    }
}
