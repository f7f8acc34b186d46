//! The way from a lease to a result and back, as a program goes it.

use grafos_std::error::ErrorKind;
use grafos_std::gpu::{GpuBuilder, GpuExclusivityClass, GpuSession, KernelArgs};
use grafos_std::lease::LeaseStatus;

use crate::target::{Must, Target, Unsupported, download, ensure_kind, image, upload};

crate::cases!("lifecycle":
    from_lease_to_result,
    a_lease_tells_its_device,
    freeing_a_lease_ends_its_session,
    a_lease_can_be_renewed,
    an_exclusive_lease_works,
    explicit_free_and_drop_agree,
    the_last_clone_frees,
    drops_after_the_end_are_silent,
    an_unused_session_costs_nothing,
);

fn from_lease_to_result(target: &Target) -> Result<(), Unsupported> {
    let lease = GpuBuilder::new()
        .min_vram(1024)
        .lease_secs(60)
        .acquire_on(&target.host)
        .must();
    let session = GpuSession::new(&lease);
    let a = upload(&session, &[1.0f32, 2.0, 3.0, 4.0]);
    let b = upload(&session, &[10.0f32, 20.0, 30.0, 40.0]);
    let c = session.mem_alloc(16).must();
    let module = session.module_load(image("vector_add")).must();
    let args = KernelArgs::new()
        .push_buffer(&a)
        .push_buffer(&b)
        .push_buffer(&c)
        .push_u32(4);
    session
        .launch_with_args(&module, "vector_add", [1, 1, 1], [64, 1, 1], args)
        .must();
    session.sync().must();
    assert_eq!(download::<f32>(&session, &c), [11.0, 22.0, 33.0, 44.0]);
    session.mem_free(a).must();
    session.module_unload(module).must();
    Ok(())
}

fn a_lease_tells_its_device(target: &Target) -> Result<(), Unsupported> {
    let lease = target.lease();
    assert_eq!(lease.device(), &target.device);
    assert!(!lease.device().name.is_empty());
    assert!(lease.device().memory_bytes > 0);
    assert_eq!(lease.backend(), crate::target::backend_name());
    assert_eq!(lease.status(), LeaseStatus::Active);
    assert_eq!(GpuSession::new(&lease).lease_id(), lease.lease_id());
    Ok(())
}

fn freeing_a_lease_ends_its_session(target: &Target) -> Result<(), Unsupported> {
    let (lease, session) = target.session();
    let buffer = upload(&session, &[1u32, 2]);
    lease.free();
    assert_eq!(lease.status(), LeaseStatus::Expired);
    ensure_kind("alloc", session.mem_alloc(4), ErrorKind::LeaseExpired);
    ensure_kind(
        "read",
        session.mem_read(&buffer, 0, 8),
        ErrorKind::LeaseExpired,
    );
    ensure_kind("sync", session.sync(), ErrorKind::LeaseExpired);
    lease.free();
    Ok(())
}

fn a_lease_can_be_renewed(target: &Target) -> Result<(), Unsupported> {
    let lease = GpuBuilder::new()
        .lease_secs(60)
        .acquire_on(&target.host)
        .must();
    let before = lease.expires_at_unix_secs();
    lease.renew(u64::from(u32::MAX) + 1).must();
    assert_eq!(lease.expires_at_unix_secs(), before + (1 << 32));
    Ok(())
}

fn an_exclusive_lease_works(target: &Target) -> Result<(), Unsupported> {
    for class in [
        GpuExclusivityClass::SessionExclusive,
        GpuExclusivityClass::DeviceExclusive,
    ] {
        let lease = GpuBuilder::new()
            .exclusivity(class)
            .acquire_on(&target.host)
            .must();
        let session = GpuSession::new(&lease);
        let buffer = upload(&session, &[5u32, 6]);
        assert_eq!(download::<u32>(&session, &buffer), [5, 6]);
        let beside = GpuBuilder::new().acquire_on(&target.host);
        ensure_kind("a shared lease beside it", beside, ErrorKind::Busy);
    }
    target.lease();
    Ok(())
}

fn explicit_free_and_drop_agree(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let before = session.mem_info().must();
    assert_eq!((before.live_buffers, before.live_bytes), (0, 0));
    let freed = session.mem_alloc(100).must();
    let dropped = session.mem_alloc(28).must();
    let during = session.mem_info().must();
    assert_eq!((during.live_buffers, during.live_bytes), (2, 128));
    session.mem_free(freed).must();
    drop(dropped);
    let after = session.mem_info().must();
    assert_eq!((after.live_buffers, after.live_bytes), (0, 0));
    Ok(())
}

fn the_last_clone_frees(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let first = upload(&session, &[7u32, 8, 9]);
    let second = first.clone();
    assert_eq!(first, second);
    assert_ne!(first, session.mem_alloc(12).must());
    drop(first);
    assert_eq!(download::<u32>(&session, &second), [7, 8, 9]);
    drop(second);
    assert_eq!(session.mem_info().must().live_buffers, 0);
    let module = session.module_load(image("fill")).must();
    let clone = module.clone();
    assert_eq!(module, clone);
    drop(module);
    session.kernel(&clone, "fill").must();
    session.module_unload(clone.clone()).must();
    ensure_kind(
        "a clone",
        session.kernel(&clone, "fill"),
        ErrorKind::InvalidHandle,
    );
    Ok(())
}

fn drops_after_the_end_are_silent(target: &Target) -> Result<(), Unsupported> {
    let (lease, session) = target.session();
    let handles = (
        session.mem_alloc(64).must(),
        session.mem_alloc(0).must(),
        session.module_load(image("fill")).must(),
        session.create_event().must(),
        session.create_stream().ok(),
    );
    drop(lease);
    drop(handles);
    drop(session);
    Ok(())
}

fn an_unused_session_costs_nothing(target: &Target) -> Result<(), Unsupported> {
    let lease = target.lease();
    for _ in 0..1000 {
        drop(GpuSession::new(&lease));
    }
    assert_eq!(lease.status(), LeaseStatus::Active);
    Ok(())
}
