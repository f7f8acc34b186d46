//! After a fork the child is told, touches no driver and ends cleanly, and the parent goes on.
#![cfg_attr(
    unix,
    expect(
        unsafe_code,
        reason = "the C library forks this process and waits for the child"
    )
)]

#[cfg(unix)]
mod support;

#[cfg(not(unix))]
#[expect(clippy::print_stdout, reason = "this is the body of a test program")]
fn main() {
    println!("skipped: only Unix forks");
}

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    let mut arguments = libtest_mimic::Arguments::from_args();
    // A fork copies the calling thread only; others would leave their locks held in the child.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, unix::trials()).exit_code()
}

#[cfg(unix)]
mod unix {
    use std::fmt::Debug;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use gpu_backend_mock::Operation;
    use grafos_std::FabricError;
    use grafos_std::gpu::{
        FillPattern, GpuBuilder, GpuExclusivityClass, GpuSession, KernelArgs, LaunchConfig,
    };
    use grafos_std::host::Host;
    use grafos_std::lease::LeaseStatus;
    use libtest_mimic::{Failed, Trial};

    use crate::support::{Bench, IMAGE, MIB, Renamed, launch_double, refused};

    pub(super) fn trials() -> Vec<Trial> {
        vec![
            Trial::test("a_child_is_told_and_the_parent_goes_on", told),
            Trial::test("a_child_drops_everything_without_a_call", dropped),
            Trial::test("a_child_sees_an_expired_lease_as_expired", expired),
            Trial::test("a_child_of_a_busy_parent_never_hangs", busy),
        ]
    }

    /// Runs a check in a child, which ends without destructors, and gives its verdict.
    fn in_child(check: impl FnOnce()) -> Result<(), Failed> {
        // SAFETY: the child runs on with its copy of this thread, calls nothing that needs the
        // parent's other threads, and ends in `_exit`.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err("the process does not fork".into());
        }
        if child == 0 {
            let code = if catch_unwind(AssertUnwindSafe(check)).is_ok() {
                0
            } else {
                1
            };
            // SAFETY: ends this process at once; nothing of it is used afterwards.
            unsafe { libc::_exit(code) }
        }
        for _ in 0..30_000 {
            let mut status = 0;
            // SAFETY: `child` is this process's own child and `status` outlives the call.
            let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
            if ended == child {
                return match status {
                    0 => Ok(()),
                    other => Err(format!("the child ended with wait status {other:#x}").into()),
                };
            }
            thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: `child` is this process's own child, which has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above; the status is not wanted.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        Err("the child hung for 30 seconds".into())
    }

    #[track_caller]
    fn ensure_told<T: Debug>(answer: Result<T, FabricError>) {
        match refused(answer) {
            FabricError::Disconnected(fault) => {
                assert!(fault.reason.contains("fork"), "{}", fault.reason);
            }
            other => panic!("{other:?}"),
        }
    }

    fn all_calls(bench: &Bench) -> u64 {
        Operation::ALL
            .iter()
            .map(|operation| bench.backend.calls(*operation))
            .sum()
    }

    fn told() -> Result<(), Failed> {
        let bench = Bench::default();
        let lease = bench.acquire(GpuBuilder::new().min_vram(MIB));
        let session = GpuSession::new(&lease);
        let buffer = session.mem_alloc(4).expect("memory");
        session
            .mem_write(&buffer, 0, &[5, 0, 0, 0])
            .expect("a write");
        let module = session.module_load(IMAGE).expect("a module");
        let kernel = session.kernel(&module, "double").expect("a kernel");
        let stream = session.create_stream().expect("a stream");
        let event = session.create_event().expect("an event");
        let unopened = bench.lease();
        in_child(|| {
            let before = all_calls(&bench);
            let one = LaunchConfig::new([1; 3], [1; 3]);
            let args = KernelArgs::new().push_buffer(&buffer);
            ensure_told(session.mem_alloc(4));
            ensure_told(session.mem_alloc(0));
            ensure_told(session.mem_write(&buffer, 0, &[1]));
            ensure_told(session.mem_read(&buffer, 0, 1));
            ensure_told(session.mem_copy((&buffer, 0), (&buffer, 2), 2));
            ensure_told(session.mem_fill(&buffer, 0, 4, FillPattern::U8(1)));
            ensure_told(session.mem_info());
            ensure_told(session.mem_trim());
            ensure_told(session.module_load(IMAGE));
            ensure_told(session.kernel(&module, "double"));
            ensure_told(session.launch(&module, "double", [1; 3], [1; 3], &[], &[]));
            ensure_told(kernel.launch(one, &args));
            ensure_told(stream.launch(&kernel, one, &args));
            ensure_told(stream.sync());
            ensure_told(event.sync());
            ensure_told(event.status());
            ensure_told(session.create_stream());
            ensure_told(session.create_event());
            ensure_told(session.sync());
            ensure_told(session.sync_timeout(Duration::ZERO));
            ensure_told(session.poll());
            ensure_told(GpuSession::new(&unopened).mem_alloc(4));
            ensure_told(lease.renew(5));
            ensure_told(GpuBuilder::new().acquire_on(&bench.host));
            let backend = Renamed {
                name: "new",
                inner: bench.backend.clone(),
            };
            let new_host = Host::builder()
                .backend(std::sync::Arc::new(backend))
                .software_devices(true)
                .build();
            ensure_told(GpuBuilder::new().acquire_on(&new_host));
            ensure_told(session.mem_free(buffer.clone()));
            ensure_told(session.module_unload(module.clone()));
            lease.free();
            assert_eq!(all_calls(&bench), before, "the child called the backend");
        })?;
        // The parent has lost nothing.
        assert_eq!(lease.status(), LeaseStatus::Active);
        lease.renew(5)?;
        launch_double(&session, &buffer, 1);
        assert_eq!(session.mem_read(&buffer, 0, 4)?, [10, 0, 0, 0]);
        assert!(GpuSession::new(&bench.lease()).mem_alloc(4).is_ok());
        drop((buffer, module, kernel, stream, event, session, lease));
        assert_eq!(bench.backend.calls(Operation::Free), 2);
        Ok(())
    }

    fn dropped() -> Result<(), Failed> {
        let bench = Bench::default();
        let class = GpuExclusivityClass::SessionExclusive;
        let lease = bench.acquire(GpuBuilder::new().exclusivity(class));
        let session = GpuSession::new(&lease);
        let handles = (
            session.mem_alloc(16)?,
            session.mem_alloc(0)?,
            session.module_load(IMAGE)?,
            session.create_stream()?,
            session.create_event()?,
        );
        let backend = bench.backend.clone();
        let calls = || {
            Operation::ALL
                .iter()
                .map(|operation| backend.calls(*operation))
                .sum()
        };
        let before: u64 = calls();
        // The closure takes everything, and the child drops it; the parent's copy lives on below.
        let mut held = Some((handles, session, lease, bench));
        in_child(|| {
            drop(held.take());
            assert_eq!(before, calls(), "the child called the backend");
        })?;
        let Some((handles, session, lease, _bench)) = held else {
            return Err("the child's drop reached the parent".into());
        };
        session.mem_write(&handles.0, 0, &[1; 16])?;
        assert_eq!(session.mem_read(&handles.0, 0, 16)?, [1; 16]);
        assert_eq!(lease.status(), LeaseStatus::Active);
        Ok(())
    }

    fn expired() -> Result<(), Failed> {
        let bench = Bench::default();
        let lease = bench.acquire(GpuBuilder::new().lease_secs(10));
        let session = GpuSession::new(&lease);
        let buffer = session.mem_alloc(16)?;
        in_child(|| {
            bench.advance_secs(10);
            assert_eq!(lease.status(), LeaseStatus::Expired);
            assert_eq!(lease.info().status, LeaseStatus::Expired);
            ensure_told(session.mem_read(&buffer, 0, 1));
            ensure_told(lease.renew(5));
            drop(buffer.clone());
        })?;
        assert_eq!(
            lease.status(),
            LeaseStatus::Active,
            "the parent's clock has not moved"
        );
        Ok(())
    }

    fn busy() -> Result<(), Failed> {
        let bench = Bench::default();
        let class = GpuExclusivityClass::SessionExclusive;
        let lease = bench.acquire(GpuBuilder::new().exclusivity(class));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let session = GpuSession::new(&lease);
                        if let Ok(buffer) = session.mem_alloc(64) {
                            session.mem_write(&buffer, 0, &[1; 64]).expect("a write");
                        }
                    }
                });
            }
            let mut verdict = Ok(());
            for _ in 0..50 {
                let session = GpuSession::new(&lease);
                let buffer = session.mem_alloc(16).expect("memory");
                let mut held = Some((session, buffer));
                verdict = in_child(|| {
                    let Some((session, buffer)) = held.take() else {
                        return;
                    };
                    ensure_told(session.mem_read(&buffer, 0, 1));
                    ensure_told(lease.renew(1));
                    drop(buffer);
                    drop(session);
                    lease.free();
                });
                if verdict.is_err() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            verdict
        })
    }
}
