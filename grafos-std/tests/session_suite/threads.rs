//! The whole way on other threads, and many of them at once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use grafos_std::gpu::{GpuSession, KernelArgs, LaunchConfig};

use crate::target::{Must, Target, Unsupported, download, image, upload};

crate::cases!("threads":
    each_step_on_a_thread_of_its_own,
    threads_share_a_session,
    threads_have_a_lease_each,
    unwinding_releases_everything,
);

fn on_a_thread<T: Send>(step: impl FnOnce() -> T + Send) -> T {
    match thread::scope(|scope| scope.spawn(step).join()) {
        Ok(value) => value,
        Err(panic) => resume_unwind(panic),
    }
}

fn each_step_on_a_thread_of_its_own(target: &Target) -> Result<(), Unsupported> {
    let lease = on_a_thread(|| target.lease());
    let session = on_a_thread(|| GpuSession::new(&lease));
    let data = on_a_thread(|| upload(&session, &[1u32, 2, 3, 4]));
    let module = on_a_thread(|| session.module_load(image("increment")).must());
    let kernel = on_a_thread(|| session.kernel(&module, "increment").must());
    let event = on_a_thread(|| session.create_event().must());
    let args = KernelArgs::new().push_buffer(&data).push_u32(4);
    on_a_thread(|| kernel.launch(LaunchConfig::linear(4, 4), &args).must());
    on_a_thread(|| session.record(&event).must());
    on_a_thread(|| event.sync().must());
    assert_eq!(
        on_a_thread(|| download::<u32>(&session, &data)),
        [2, 3, 4, 5]
    );
    on_a_thread(move || drop(data));
    on_a_thread(move || drop((event, kernel, module)));
    on_a_thread(move || drop(session));
    on_a_thread(move || drop(lease));
    Ok(())
}

fn work(session: &GpuSession, number: u32, rounds: u32) {
    let module = session.module_load(image("increment")).must();
    let kernel = session.kernel(&module, "increment").must();
    for round in 0..rounds {
        let first = number * 1000 + round;
        let data = upload(session, &[first; 50]);
        let args = KernelArgs::new().push_buffer(&data).push_u32(50);
        kernel.launch(LaunchConfig::linear(50, 10), &args).must();
        kernel.launch(LaunchConfig::linear(50, 10), &args).must();
        assert_eq!(download::<u32>(session, &data), [first + 2; 50]);
    }
}

fn threads_share_a_session(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    thread::scope(|scope| {
        for number in 0..6 {
            let session = &session;
            scope.spawn(move || work(session, number, 25));
        }
    });
    session.sync().must();
    assert_eq!(session.mem_info().must().live_buffers, 0);
    Ok(())
}

fn threads_have_a_lease_each(target: &Target) -> Result<(), Unsupported> {
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                for _ in 0..3 {
                    let (_lease, session) = target.session();
                    work(&session, number, 5);
                }
            });
        }
    });
    Ok(())
}

fn unwinding_releases_everything(target: &Target) -> Result<(), Unsupported> {
    let (_lease, outer) = target.session();
    outer.sync().must();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _data = upload(&outer, &[1u32; 64]);
        let _module = outer.module_load(image("fill")).must();
        let (_own_lease, inner) = target.session();
        let _busy = target.start_busy(&inner, 1);
        let _event = inner.create_event().must();
        resume_unwind(Box::new("on purpose"));
    }));
    let Err(panic) = unwound;
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(outer.mem_info().must().live_buffers, 0);
    let data = upload(&outer, &[4u32; 4]);
    assert_eq!(download::<u32>(&outer, &data), [4; 4]);
    Ok(())
}
