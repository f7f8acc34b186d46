//! Processes that find no driver, or end while one works.

use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::thread;

use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::{ContextOptions, GpuBackend, GpuError, Probe};
use libtest_mimic::Failed;

use crate::device::{Device, Outcome, ensure, same};

/// Tells a child process, which is this program again, what to do.
pub(crate) const CHILD: &str = "GRAFOS_VULKAN_TEST_CHILD";

fn unavailable(backend: &VulkanBackend) -> Result<String, Failed> {
    let reason = match backend.probe() {
        Probe::Unavailable { reason, hint } => {
            ensure(!hint.is_empty(), || "there is no hint".into())?;
            reason
        }
        other => return Err(format!("{other:?}").into()),
    };
    match backend.open(0, &ContextOptions::default()) {
        Err(GpuError::Unavailable { reason: again, .. }) => same("reason", &again, &reason)?,
        Err(other) => return Err(other.into()),
        Ok(_) => return Err("opened a device".into()),
    }
    Ok(reason)
}

pub(crate) fn a_missing_library_is_data() -> Outcome {
    let path = "/nonexistent/libvulkan.so.1";
    let backend = VulkanBackend::builder().library_path(path).build();
    let reason = unavailable(&backend)?;
    ensure(reason.contains(path), || reason)
}

pub(crate) fn a_library_that_is_no_loader_is_data() -> Outcome {
    let backend = VulkanBackend::builder().library_path("libm.so.6").build();
    let reason = unavailable(&backend)?;
    ensure(reason.contains("vkGetInstanceProcAddr"), || reason)
}

/// Runs this program again, with a task and a driver of its own.
fn run_child(task: &str, driver: Option<&str>) -> Result<(bool, String), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(CHILD, task);
    if let Some(driver) = driver {
        command
            .env("VK_ICD_FILENAMES", driver)
            .env("VK_DRIVER_FILES", driver);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Ok((false, format!("{}: {text}{errors}", output.status)));
    }
    Ok((true, text))
}

pub(crate) fn no_driver_is_data() -> Outcome {
    let (well, text) = run_child("probe", Some("/nonexistent/icd.json"))?;
    ensure(well && text.starts_with("unavailable: "), || text)
}

pub(crate) fn a_driver_that_does_not_load_is_data() -> Outcome {
    let manifest = std::env::temp_dir().join(format!("grafos-icd-{}.json", std::process::id()));
    std::fs::write(
        &manifest,
        r#"{"file_format_version": "1.0.0",
            "ICD": {"library_path": "/nonexistent/driver.so", "api_version": "1.3.0"}}"#,
    )?;
    let outcome = run_child("probe", manifest.to_str());
    std::fs::remove_file(&manifest)?;
    let (well, text) = outcome?;
    ensure(well && text.starts_with("unavailable: "), || text)
}

pub(crate) fn exits_well(task: &str) -> Outcome {
    for _ in 0..5 {
        let (well, text) = run_child(task, None)?;
        ensure(well && text == "done\n", || text)?;
    }
    Ok(())
}

pub(crate) fn child(task: &str) -> ExitCode {
    static KEPT: OnceLock<Device> = OnceLock::new();
    let backend = Arc::new(VulkanBackend::new());
    if task == "probe" {
        match backend.probe() {
            Probe::Unavailable { reason, hint } => println!("unavailable: {reason}; {hint}"),
            other => println!("{other:?}"),
        }
        return ExitCode::SUCCESS;
    }
    let opened = Device::open(&backend).and_then(|device| {
        device.keep_busy()?;
        Ok(device)
    });
    match opened {
        Ok(device) if task == "static" => {
            let _ = KEPT.set(device);
        }
        Ok(device) => {
            // Waits while the process ends under it.
            thread::spawn(move || device.context.sync(None));
        }
        Err(failure) => {
            println!("{failure:?}");
            return ExitCode::FAILURE;
        }
    }
    println!("done");
    ExitCode::SUCCESS
}
