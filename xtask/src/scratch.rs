//! Folders for one run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// A folder of this run's own, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder among the system's temporary files.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn new() -> Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    /// Makes a folder below another one, which is made too if it is missing.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub(crate) fn below(parent: &Path) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let run = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("grafos-xtask-{}-{run}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where the folder lies.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder left behind in the temporary folder harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_folders_are_distinct_and_go_away() {
        let (first, second) = (Scratch::new().unwrap(), Scratch::new().unwrap());
        assert_ne!(first.path(), second.path());
        let path = first.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(first);
        assert!(!path.exists());
        assert!(second.path().is_dir());
    }
}
