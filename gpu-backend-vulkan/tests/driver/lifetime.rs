//! Contexts that end badly while another one goes on: under work, and with their device lost.

use std::time::Duration;

use grafos_host_abi::{BufferDesc, ErrorKind, GpuError};

use crate::device::{Device, Outcome, ensure, same};
use crate::support::interposer;

pub(crate) fn a_timed_out_context_is_left_alone(device: &Device) -> Outcome {
    let busy = device.again()?;
    busy.keep_busy()?;
    match busy.context.close(Some(Duration::from_millis(1))) {
        Err(GpuError::Timeout(fault)) => same("waited", fault.waited_ns, 1_000_000)?,
        other => return Err(format!("close under work: {other:?}").into()),
    }
    // Dropped under its work; another context goes on meanwhile.
    drop(busy);
    let buffer = device.upload(&[9; 64])?;
    same("bytes", device.download(&buffer)?, vec![9; 64])
}

pub(crate) fn a_loss_is_silent_for_drops(device: &Device) -> Outcome {
    let doomed = device.again()?;
    let buffer = doomed.upload(&[1; 64])?;
    let lost = interposer::lose_device(&*doomed.context);
    ensure(lost, || "the context did not notice".into())?;
    let first = doomed.context.sync(None).map_err(|failure| failure.kind());
    same("sync", first, Err(ErrorKind::DeviceLost))?;
    doomed.context.free(buffer.id)?;
    match doomed.context.alloc(&BufferDesc::new(64)) {
        Err(GpuError::DeviceLost(fault)) => {
            same("restart", fault.needs_process_restart, false)?;
            ensure(fault.reason.contains("VK_ERROR_DEVICE_LOST"), || {
                fault.reason
            })?;
        }
        other => return Err(format!("{other:?}").into()),
    }
    drop(doomed);
    let buffer = device.upload(&[9; 64])?;
    same("bytes", device.download(&buffer)?, vec![9; 64])
}
