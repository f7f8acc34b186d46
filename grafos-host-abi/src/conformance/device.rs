//! The backend's list of devices, and what it says of the one under test.

use std::format;
use std::prelude::v1::*;

use super::check::{Checked, Stop, ensure, ensure_eq, ensure_kind};
use super::runner::Suite;
use crate::{Axis, ContextOptions, ErrorKind, ImageFormat, Probe};

cases!("device":
    probe_agrees_with_the_list,
    index_is_the_position_in_the_list,
    unknown_index_is_refused,
    limits_are_usable,
    description_is_complete,
    description_is_the_same_each_time,
    context_describes_its_device,
    images_are_of_listed_formats,
);

fn probe_agrees_with_the_list(suite: &Suite) -> Checked {
    let backend = suite.fixture.backend();
    match backend.probe() {
        Probe::Available {
            driver,
            device_count,
        } => {
            ensure("the driver has no name", !driver.name.is_empty())?;
            ensure_eq(
                "device count of probe and list",
                device_count as usize,
                backend.devices()?.len(),
            )
        }
        Probe::Unavailable { reason, .. } => Err(Stop::failed(format!(
            "devices are listed, but the probe says: {reason}"
        ))),
    }
}

fn index_is_the_position_in_the_list(suite: &Suite) -> Checked {
    let devices = suite.fixture.backend().devices()?;
    for (position, device) in devices.iter().enumerate() {
        ensure_eq("index of a listed device", device.index as usize, position)?;
    }
    Ok(())
}

fn unknown_index_is_refused(suite: &Suite) -> Checked {
    let backend = suite.fixture.backend();
    let count = backend.devices()?.len() as u32;
    for index in [count, count + 1, u32::MAX] {
        let opened = backend
            .open(index, &ContextOptions::default())
            .map(|_| "a context");
        ensure_kind(
            format_args!("open of device {index} of {count}"),
            opened,
            ErrorKind::InvalidHandle,
        )?;
    }
    Ok(())
}

fn limits_are_usable(suite: &Suite) -> Checked {
    let limits = &suite.info.limits;
    for axis in Axis::ALL {
        ensure(
            format_args!("grid limit on axis {axis} is 0"),
            limits.max_grid[axis as usize] > 0,
        )?;
        ensure(
            format_args!("block limit on axis {axis} is 0"),
            limits.max_block[axis as usize] > 0,
        )?;
    }
    let volume: u64 = limits
        .max_block
        .iter()
        .map(|axis| u64::from(*axis))
        .product();
    ensure(
        format_args!("{limits:?}: a block of the most threads cannot be shaped"),
        (1..=volume).contains(&u64::from(limits.max_threads_per_block)),
    )?;
    ensure(
        format_args!("{limits:?}: an address and a number must fit the arguments"),
        limits.max_argument_bytes >= 16,
    )?;
    ensure(
        format_args!("{limits:?}: nothing can be allocated"),
        limits.max_allocation_bytes > 0,
    )
}

fn description_is_complete(suite: &Suite) -> Checked {
    let info = &suite.info;
    ensure("the device has no name", !info.name.is_empty())?;
    ensure("the driver has no name", !info.driver.name.is_empty())?;
    ensure("the device has no memory", info.memory_bytes > 0)?;
    ensure(
        "the device takes no image format",
        !info.image_formats.is_empty(),
    )?;
    let capabilities = &info.capabilities;
    ensure(
        format_args!(
            "subgroups of {} to {} threads",
            capabilities.subgroup_size_min, capabilities.subgroup_size_max
        ),
        capabilities.subgroup_size_min <= capabilities.subgroup_size_max,
    )?;
    ensure(
        "64-bit atomics without 64-bit integers",
        capabilities.int64 || !capabilities.int64_atomics,
    )
}

fn description_is_the_same_each_time(suite: &Suite) -> Checked {
    let position = suite.device_index as usize;
    for _ in 0..2 {
        let devices = suite.fixture.backend().devices()?;
        ensure_eq("a later list", devices.get(position), Some(&suite.info))?;
        let gpu = suite.open()?;
        ensure_eq("UUID of a context", gpu.device().uuid, suite.info.uuid)?;
    }
    Ok(())
}

fn context_describes_its_device(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    ensure_eq("device of the context", gpu.device(), &suite.info)
}

fn images_are_of_listed_formats(suite: &Suite) -> Checked {
    let image = suite.image("fill")?;
    let format = ImageFormat::recognize(&image);
    ensure(
        format_args!("{format} is loaded but not listed"),
        suite.info.image_formats.contains(&format),
    )?;
    let gpu = suite.open()?;
    let module = gpu.load_module(&image)?;
    ensure_eq("format of the loaded module", module.format, format)
}
