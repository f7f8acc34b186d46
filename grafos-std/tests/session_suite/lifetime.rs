//! Freeing and unloading under running work.

use grafos_std::gpu::{KernelArgs, LaunchConfig};

use crate::target::{Busy, Must, Target, Unsupported, busy_values, download, ensure_same, upload};

crate::cases!("lifetime":
    a_buffer_can_be_dropped_under_a_kernel,
    a_module_can_be_unloaded_under_a_kernel,
    freed_memory_is_not_handed_out_under_a_kernel,
    a_kernel_outlives_its_session_value,
    handles_keep_the_lease_usable_not_alive,
);

fn a_buffer_can_be_dropped_under_a_kernel(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    target.while_busy(|factor| {
        let Busy {
            buffer,
            module,
            kernel,
        } = target.start_busy(&session, factor);
        let kept = session.mem_alloc(buffer.size_bytes()).must();
        session
            .mem_copy((&kept, 0), (&buffer, 0), kept.size_bytes())
            .must();
        drop(buffer);
        drop((module, kernel));
        let running = !session.poll().must();
        ensure_same("the copy", &download::<u32>(&session, &kept), busy_values());
        running.then_some(())
    });
    session.sync().must();
    assert_eq!(session.mem_info().must().live_buffers, 0);
    Ok(())
}

fn a_module_can_be_unloaded_under_a_kernel(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    target.while_busy(|factor| {
        let Busy {
            buffer,
            module,
            kernel,
        } = target.start_busy(&session, factor);
        session.module_unload(module).must();
        drop(kernel);
        let running = !session.poll().must();
        ensure_same(
            "the result",
            &download::<u32>(&session, &buffer),
            busy_values(),
        );
        running.then_some(())
    });
    Ok(())
}

fn freed_memory_is_not_handed_out_under_a_kernel(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    target.while_busy(|factor| {
        let busy = target.start_busy(&session, factor);
        let (size, kept) = (busy.buffer.size_bytes(), session.mem_alloc(4).must());
        // Work that is enqueued now still reads the buffer after it has been freed.
        session
            .mem_copy((&kept, 0), (&busy.buffer, size - 4), 4)
            .must();
        session.mem_free(busy.buffer).must();
        let newer: Vec<_> = (0..8u32)
            .map(|fill| upload(&session, &vec![fill; (size / 4) as usize]))
            .collect();
        let running = !session.poll().must();
        assert_eq!(
            download::<u32>(&session, &kept)[0],
            busy_values()[busy_values().len() - 1]
        );
        for (fill, buffer) in (0..).zip(&newer) {
            let found = download::<u32>(&session, buffer);
            ensure_same("a newer buffer", &found, &vec![fill; found.len()]);
        }
        running.then_some(())
    });
    Ok(())
}

fn a_kernel_outlives_its_session_value(target: &Target) -> Result<(), Unsupported> {
    let (lease, session) = target.session();
    let (_module, kernel) = target.kernel(&session, "fill")?;
    let data = upload(&session, &[0u32; 8]);
    drop(session);
    let args = KernelArgs::new().push_buffer(&data).push_u32(5).push_u32(8);
    kernel.launch(LaunchConfig::linear(8, 8), &args).must();
    let again = grafos_std::gpu::GpuSession::new(&lease);
    assert_eq!(download::<u32>(&again, &data), [5; 8]);
    Ok(())
}

fn handles_keep_the_lease_usable_not_alive(target: &Target) -> Result<(), Unsupported> {
    let (lease, session) = target.session();
    let data = upload(&session, &[0u32; 8]);
    let reserve = target.device.memory_bytes;
    drop((lease, session));
    // The handle is still here, and the lease's share of the device is free again.
    let next = grafos_std::gpu::GpuBuilder::new()
        .min_vram(reserve)
        .acquire_on(&target.host);
    next.must();
    drop(data);
    Ok(())
}
