//! Handles that are not live, or live elsewhere, by type and by raw number.

use grafos_std::FabricError;
use grafos_std::error::{ErrorKind, HandleKind};
use grafos_std::gpu::{FillPattern, KernelArgs, LaunchConfig};
use grafos_std::host;

use crate::target::{Must, Target, Unsupported, download, image, refused, upload};

crate::cases!("handles":
    handles_of_another_lease_are_refused,
    a_freed_handle_never_reaches_newer_memory,
    raw_handles_after_their_end_are_refused,
    raw_calls_compute,
    native_handles_are_lent_or_unsupported,
);

#[track_caller]
fn ensure_foreign(answer: Result<(), FabricError>, kind: HandleKind) {
    match refused(answer) {
        FabricError::InvalidHandle(fault) => assert_eq!(fault.kind, kind),
        other => panic!("{other:?}"),
    }
}

fn handles_of_another_lease_are_refused(target: &Target) -> Result<(), Unsupported> {
    let (_mine, session) = target.session();
    let (_theirs, other) = target.session();
    let buffer = upload(&other, &[1u32, 2, 3, 4]);
    let own = upload(&session, &[5u32; 4]);
    let module = other.module_load(image("fill")).must();
    let kernel = other.kernel(&module, "fill").must();
    let event = other.create_event().must();
    let fill = FillPattern::U32(9);
    let buffers = [
        session.mem_write(&buffer, 0, &[9; 16]),
        session.mem_read(&buffer, 0, 16).map(drop),
        session.mem_read_into(&buffer, 0, &mut [0; 16]),
        session.mem_fill(&buffer, 0, 16, fill),
        session.mem_copy((&buffer, 0), (&own, 0), 16),
        session.mem_copy((&own, 0), (&buffer, 0), 16),
        session.with_native(None, &[&buffer], |_| {
            panic!("another lease's buffer was lent")
        }),
    ];
    for answer in buffers {
        ensure_foreign(answer, HandleKind::Buffer);
    }
    let args = KernelArgs::new().push_buffer(&own).push_u32(1).push_u32(4);
    let modules = [
        session.kernel(&module, "fill").map(drop),
        session.kernel_names(&module).map(drop),
        session.module_global(&module, "table").map(drop),
        session.launch_with_args(&module, "fill", [1; 3], [4, 1, 1], args.clone()),
        session.module_unload(module.clone()),
    ];
    for answer in modules {
        ensure_foreign(answer, HandleKind::Module);
    }
    ensure_foreign(session.record(&event), HandleKind::Event);
    ensure_foreign(session.wait(&event), HandleKind::Event);
    if target.device.capabilities.streams {
        let stream = session.create_stream().must();
        let config = LaunchConfig::new([1; 3], [4, 1, 1]);
        ensure_foreign(stream.launch(&kernel, config, &args), HandleKind::Kernel);
        ensure_foreign(stream.mem_write(&buffer, 0, &[1]), HandleKind::Buffer);
        ensure_foreign(stream.mem_fill(&buffer, 0, 4, fill), HandleKind::Buffer);
        ensure_foreign(stream.record(&event), HandleKind::Event);
        let theirs = other.create_stream().must();
        ensure_foreign(
            session.with_native(Some(&theirs), &[], |_| {}),
            HandleKind::Stream,
        );
    }
    // A refused free uses up a handle of the other session all the same, so a clone goes.
    let mine = session.create_event().must();
    ensure_foreign(mine.elapsed_ns_since(&event).map(drop), HandleKind::Event);
    ensure_foreign(session.mem_free(buffer.clone()), HandleKind::Buffer);
    assert_eq!(download::<u32>(&other, &buffer), [1, 2, 3, 4]);
    assert_eq!(download::<u32>(&session, &own), [5; 4]);
    Ok(())
}

fn a_freed_handle_never_reaches_newer_memory(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let mut freed = Vec::new();
    for round in 0..32u32 {
        let buffer = upload(&session, &[round; 64]);
        freed.push(buffer.clone());
        session.mem_free(buffer).must();
    }
    session.sync().must();
    let live: Vec<_> = (0..32u32)
        .map(|round| upload(&session, &[1000 + round; 64]))
        .collect();
    for old in &freed {
        ensure_foreign(session.mem_write(old, 0, &[0; 256]), HandleKind::Buffer);
        ensure_foreign(session.mem_read(old, 0, 4).map(drop), HandleKind::Buffer);
        ensure_foreign(session.mem_free(old.clone()), HandleKind::Buffer);
        assert!(live.iter().all(|newer| newer != old));
    }
    drop(freed);
    for (round, buffer) in (0..).zip(&live) {
        assert_eq!(download::<u32>(&session, buffer), [1000u32 + round; 64]);
    }
    Ok(())
}

fn raw_handles_after_their_end_are_refused(target: &Target) -> Result<(), Unsupported> {
    target.make_current();
    let (mine, theirs) = (
        host::gpu_lease_alloc(0, 60).must(),
        host::gpu_lease_alloc(0, 60).must(),
    );
    let buffer = host::gpu_session_mem_alloc(mine, 16).must();
    let secret = host::gpu_session_mem_alloc(theirs, 16).must();
    host::gpu_session_mem_write(theirs, secret, 0, &[0x77; 16]).must();
    host::gpu_session_mem_write(mine, buffer, 0, &[0x11; 16]).must();
    // A device may give two contexts the same address; each then means its own.
    if buffer != secret {
        let kind = HandleKind::Buffer;
        ensure_foreign(
            host::gpu_session_mem_read(mine, secret, 0, 16).map(drop),
            kind,
        );
        ensure_foreign(host::gpu_session_mem_write(mine, secret, 0, &[0]), kind);
        ensure_foreign(host::gpu_session_mem_free(mine, secret), kind);
    }
    assert_eq!(
        host::gpu_session_mem_read(mine, buffer, 0, 16).must(),
        [0x11; 16]
    );
    for inside in [1, 8, 15] {
        let answer = host::gpu_session_mem_read(mine, buffer + inside, 0, 1).map(drop);
        ensure_foreign(answer, HandleKind::Buffer);
    }
    host::gpu_session_mem_free(mine, buffer).must();
    ensure_foreign(host::gpu_session_mem_free(mine, buffer), HandleKind::Buffer);
    ensure_foreign(
        host::gpu_session_mem_read(mine, buffer, 0, 1).map(drop),
        HandleKind::Buffer,
    );
    let module = host::gpu_session_module_load(mine, image("fill")).must();
    host::gpu_session_module_unload(mine, module).must();
    ensure_foreign(
        host::gpu_session_module_unload(mine, module),
        HandleKind::Module,
    );
    let launch = host::gpu_session_launch(mine, module, "fill", [1; 3], [1; 3], &[], &[]);
    ensure_foreign(launch, HandleKind::Module);
    host::gpu_lease_free(mine).must();
    let late = refused(host::gpu_session_mem_alloc(mine, 16));
    assert_eq!(late.kind(), ErrorKind::LeaseExpired, "{late}");
    assert_eq!(
        host::gpu_session_mem_read(theirs, secret, 0, 16).must(),
        [0x77; 16]
    );
    host::gpu_lease_free(theirs).must();
    Ok(())
}

fn raw_calls_compute(target: &Target) -> Result<(), Unsupported> {
    target.make_current();
    let lease = host::gpu_lease_alloc(0, 60).must();
    let data = host::gpu_session_mem_alloc(lease, 40).must();
    let module = host::gpu_session_module_load(lease, image("fill")).must();
    let (bytes, sizes) = KernelArgs::new()
        .push_u64(data)
        .push_u32(0x0A0B_0C0D)
        .push_u32(10)
        .build();
    host::gpu_session_launch(lease, module, "fill", [1; 3], [10, 1, 1], &bytes, &sizes).must();
    host::gpu_session_sync(lease).must();
    let expected = 0x0A0B_0C0Du32.to_le_bytes().repeat(10);
    assert_eq!(
        host::gpu_session_mem_read(lease, data, 0, 40).must(),
        expected
    );
    assert_eq!(host::gpu_lease_query(lease).must(), 0);
    host::gpu_lease_renew(lease, 5).must();
    host::gpu_session_module_unload(lease, module).must();
    host::gpu_session_mem_free(lease, data).must();
    host::gpu_lease_free(lease).must();
    assert_eq!(host::gpu_lease_query(lease).must(), 1);
    Ok(())
}

fn native_handles_are_lent_or_unsupported(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let buffer = upload(&session, &[1u32; 4]);
    let mut calls = 0;
    let answer = session.with_native(None, &[&buffer], |native| {
        calls += 1;
        assert!(!native.objects.is_empty());
        assert_eq!(native.buffers.len(), 1);
        assert_eq!(native.buffers[0].address, buffer.raw());
        assert_ne!(native.buffers[0].object, 0);
    });
    if target.device.capabilities.native_handle {
        answer.must();
        assert_eq!(calls, 1);
        let empty = session.mem_alloc(0).must();
        let answer = session.with_native(None, &[&empty], |_| panic!("there is no such object"));
        assert_eq!(refused(answer).kind(), ErrorKind::InvalidArgument);
        assert_eq!(download::<u32>(&session, &buffer), [1; 4]);
        return Ok(());
    }
    assert_eq!(refused(answer).kind(), ErrorKind::Unsupported);
    assert_eq!(calls, 0);
    Unsupported::because("the device lends no native handles")
}
