//! `cargo xtask kernels`: builds the kernels' images and table, or checks the ones committed.

mod manifest;
mod table;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{self, ProcessError};
use crate::scratch::Scratch;
use crate::workspace;
use manifest::{Kernel, Manifest};

const COMPILER: &str = "glslangValidator";
const COMPILER_PACKAGE: &str = "glslang-tools";
const VALIDATOR: &str = "spirv-val";
const VALIDATOR_PACKAGE: &str = "spirv-tools";

/// Options of `cargo xtask kernels`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Change nothing: build elsewhere, compare with what is committed, and fail on a difference.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Builds every image of kernels/manifest.toml, validates it, then writes or compares it.
///
/// # Errors
/// The manifest is wrong, the compiler is missing or of another version than the manifest records
/// (when writing), a source does not compile, an image is not valid, or a file differs (when
/// checking).
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root()?;
    let folder = root.join("kernels");
    let manifest = Manifest::load(&folder.join("manifest.toml"))?;

    let version = compiler_version(COMPILER)?;
    let recorded = &manifest.glslang;
    if version != *recorded {
        let both =
            format!("{COMPILER} here is {version}, kernels/manifest.toml records {recorded}");
        ensure!(
            options.check,
            "{both}: install the recorded version, or record this one there to rebuild with it"
        );
        println!("note: {both}: differences may come from that");
    }

    let built = Scratch::new()?;
    for kernel in &manifest.kernels {
        compile(kernel, &folder, built.path())?;
    }
    validate(&manifest, built.path())?;
    fs::create_dir_all(built.path().join("src"))?;
    fs::write(
        built.path().join("src/table.rs"),
        table::render(&manifest, &root)?,
    )
    .context("writing the table")?;

    let files = files(&manifest);
    if options.check {
        let mut problems = differences(&files, built.path(), &folder)?;
        problems.extend(strays(&manifest, &folder)?);
        for problem in &problems {
            println!("{problem}");
        }
        if !problems.is_empty() {
            bail!(
                "{} of the kernels' files are not as {COMPILER} {version} builds them; \
                 `cargo xtask kernels` rebuilds images and table",
                problems.len()
            );
        }
        println!(
            "kernels: {} images and the table are up to date",
            manifest.kernels.len()
        );
    } else {
        for file in &files {
            let to = folder.join(file);
            fs::copy(built.path().join(file), &to)
                .with_context(|| format!("writing {}", to.display()))?;
        }
        for stray in strays(&manifest, &folder)? {
            println!("note: {stray}");
        }
        println!(
            "kernels: wrote {} images and the table",
            manifest.kernels.len()
        );
    }
    Ok(())
}

/// Asks the compiler for its version, such as `11:12.0.0`.
fn compiler_version(program: &str) -> Result<String> {
    let answer = match process::capture(Command::new(program).arg("--version")) {
        Err(ProcessError::NotFound { .. }) => {
            bail!("{program} was not found: Debian's package {COMPILER_PACKAGE} provides it")
        }
        other => other?,
    };
    version_in(&answer)
        .map(str::to_owned)
        .with_context(|| format!("{program} --version names no version: {answer:?}"))
}

fn version_in(answer: &str) -> Option<&str> {
    answer
        .lines()
        .find_map(|line| line.strip_prefix("Glslang Version: "))
        .map(str::trim)
}

/// Compiles a kernel of the folder `from` to the same relative path under `to`.
fn compile(kernel: &Kernel, from: &Path, to: &Path) -> Result<()> {
    let image = to.join(&kernel.image);
    if let Some(parent) = image.parent() {
        fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    }
    process::capture(
        Command::new(COMPILER)
            .args(["--quiet", "--target-env", kernel.target.name()])
            .args(["--source-entrypoint", "main", "-e", &kernel.name])
            .arg("-o")
            .args([&image, &from.join(&kernel.source)]),
    )
    .with_context(|| format!("kernel {}", kernel.name))?;
    Ok(())
}

/// Validates every image under `built`, if the validator is installed.
fn validate(manifest: &Manifest, built: &Path) -> Result<()> {
    for kernel in &manifest.kernels {
        let mut command = Command::new(VALIDATOR);
        command
            .args(["--target-env", kernel.target.name()])
            .arg(built.join(&kernel.image));
        match process::capture(&mut command) {
            Err(ProcessError::NotFound { .. }) => {
                println!(
                    "note: {VALIDATOR} was not found (Debian's package {VALIDATOR_PACKAGE}): \
                     images were not validated"
                );
                return Ok(());
            }
            other => other.with_context(|| format!("kernel {}", kernel.name))?,
        };
    }
    println!(
        "kernels: {VALIDATOR} accepts {} images",
        manifest.kernels.len()
    );
    Ok(())
}

/// Lists the files that are built, relative to the kernels' folder.
fn files(manifest: &Manifest) -> Vec<PathBuf> {
    let images = manifest.kernels.iter().map(|kernel| kernel.image.clone());
    images.chain([PathBuf::from("src/table.rs")]).collect()
}

/// Names each of `files` whose bytes under `committed` are not those under `built`.
fn differences(files: &[PathBuf], built: &Path, committed: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for file in files {
        let path = built.join(file);
        let expected = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let name = file.display();
        match fs::read(committed.join(file)) {
            Ok(found) if found == expected => {}
            Ok(found) => problems.push(format!(
                "kernels/{name} differs: {} bytes committed, {} bytes built",
                found.len(),
                expected.len()
            )),
            Err(error) => problems.push(format!("kernels/{name} cannot be read: {error}")),
        }
    }
    Ok(problems)
}

/// Names each source and image in the kernels' `folder` that the manifest does not use.
fn strays(manifest: &Manifest, folder: &Path) -> Result<Vec<String>> {
    let kernels = &manifest.kernels;
    let used: BTreeSet<&Path> = kernels
        .iter()
        .flat_map(|kernel| [kernel.source.as_path(), kernel.image.as_path()])
        .collect();
    let mut problems = Vec::new();
    for (part, extension) in [("glsl", "comp"), ("spirv", "spv")] {
        let path = folder.join(part);
        let entries = fs::read_dir(&path).with_context(|| format!("listing {}", path.display()))?;
        for entry in entries {
            let file = Path::new(part).join(entry?.file_name());
            if file.extension() == Some(OsStr::new(extension)) && !used.contains(file.as_path()) {
                problems.push(format!("kernels/{} is not in the manifest", file.display()));
            }
        }
    }
    problems.sort();
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_found_among_other_lines() {
        let answer = "Glslang Version: 11:12.0.0\nESSL Version: OpenGL ES GLSL 3.20\n";
        assert_eq!(version_in(answer), Some("11:12.0.0"));
        assert_eq!(version_in("Version: 1"), None);
    }

    #[test]
    fn a_missing_compiler_names_the_package() {
        let error = compiler_version("no-such-compiler")
            .unwrap_err()
            .to_string();
        assert!(error.contains("no-such-compiler was not found"), "{error}");
        assert!(error.contains("glslang-tools"), "{error}");
    }

    #[test]
    fn a_program_that_tells_no_version_is_refused() {
        let error = compiler_version("echo").unwrap_err().to_string();
        assert!(
            error.starts_with("echo --version names no version: "),
            "{error}"
        );
    }

    #[test]
    fn differences_name_changed_and_missing_files_only() {
        let (built, committed) = (Scratch::new().unwrap(), Scratch::new().unwrap());
        let write = |folder: &Scratch, name: &str, bytes: &[u8]| {
            fs::write(folder.path().join(name), bytes).unwrap();
        };
        for name in ["same", "changed", "missing"] {
            write(&built, name, b"abc");
        }
        write(&committed, "same", b"abc");
        write(&committed, "changed", b"abcd");
        let files = ["same", "changed", "missing"].map(PathBuf::from);
        let problems = differences(&files, built.path(), committed.path()).unwrap();
        assert_eq!(problems.len(), 2);
        assert_eq!(
            problems[0],
            "kernels/changed differs: 4 bytes committed, 3 bytes built"
        );
        assert!(
            problems[1].starts_with("kernels/missing cannot be read: "),
            "{}",
            problems[1]
        );
    }

    #[test]
    fn strays_are_files_that_no_kernel_uses() {
        let folder = Scratch::new().unwrap();
        let manifest = manifest::tests::example();
        for file in [
            "glsl/add.comp",
            "glsl/old.comp",
            "spirv/add.spv",
            "spirv/old.spv",
            "glsl/notes",
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let problems = strays(&manifest, folder.path()).unwrap();
        assert_eq!(
            problems,
            [
                "kernels/glsl/old.comp is not in the manifest",
                "kernels/spirv/old.spv is not in the manifest"
            ]
        );
    }

    #[test]
    fn the_committed_table_is_the_manifests() {
        let root = workspace::root().unwrap();
        let manifest = Manifest::load(&root.join("kernels/manifest.toml")).unwrap();
        let committed = fs::read_to_string(root.join("kernels/src/table.rs")).unwrap();
        assert_eq!(table::render(&manifest, &root).unwrap(), committed);
    }
}
