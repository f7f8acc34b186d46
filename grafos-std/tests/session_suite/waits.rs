//! Waits with a timeout: the caller goes on, and so does the work.

use std::time::Duration;

use grafos_std::FabricError;
use grafos_std::error::ErrorKind;

use crate::target::{Must, Target, Unsupported, busy_values, download, ensure_same};

crate::cases!("waits":
    a_session_wait_times_out_and_the_work_goes_on,
    an_event_wait_times_out_and_the_work_goes_on,
    a_stream_wait_times_out_and_the_work_goes_on,
    poll_tells_when_the_work_has_ended,
    a_wait_without_work_succeeds_at_once,
    a_lease_can_end_under_running_work,
);

const SHORT: Duration = Duration::from_millis(2);

/// Whether a wait ran out of time; it must not have come back early.
fn timed_out(answer: Result<(), FabricError>) -> bool {
    match answer {
        Ok(()) => false,
        Err(FabricError::Timeout(fault)) => {
            assert!(
                fault.waited_ns >= SHORT.as_nanos() as u64,
                "{} ns",
                fault.waited_ns
            );
            true
        }
        Err(other) => panic!("{other}"),
    }
}

fn a_session_wait_times_out_and_the_work_goes_on(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    target.while_busy(|factor| {
        let busy = target.start_busy(&session, factor);
        let seen = timed_out(session.sync_timeout(SHORT));
        session.sync_timeout(Duration::from_secs(300)).must();
        ensure_same(
            "the result",
            &download::<u32>(&session, &busy.buffer),
            busy_values(),
        );
        seen.then_some(())
    });
    Ok(())
}

fn an_event_wait_times_out_and_the_work_goes_on(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let event = session.create_event().must();
    target.while_busy(|factor| {
        let busy = target.start_busy(&session, factor);
        session.record(&event).must();
        let seen = timed_out(event.sync_timeout(SHORT));
        event.sync_timeout(Duration::from_secs(300)).must();
        ensure_same(
            "the result",
            &download::<u32>(&session, &busy.buffer),
            busy_values(),
        );
        seen.then_some(())
    });
    Ok(())
}

fn a_stream_wait_times_out_and_the_work_goes_on(target: &Target) -> Result<(), Unsupported> {
    if !target.device.capabilities.streams {
        return Unsupported::because("the device has the default stream only");
    }
    let (_lease, session) = target.session();
    let (stream, event) = (
        session.create_stream().must(),
        session.create_event().must(),
    );
    target.while_busy(|factor| {
        let busy = target.start_busy(&session, factor);
        session.record(&event).must();
        stream.wait(&event).must();
        let copy = session.mem_alloc(busy.buffer.size_bytes()).must();
        stream
            .mem_copy((&copy, 0), (&busy.buffer, 0), copy.size_bytes())
            .must();
        let seen = timed_out(stream.sync_timeout(SHORT));
        stream.sync_timeout(Duration::from_secs(300)).must();
        ensure_same(
            "the result",
            &download::<u32>(&session, &copy),
            busy_values(),
        );
        seen.then_some(())
    });
    Ok(())
}

fn poll_tells_when_the_work_has_ended(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    assert_eq!(session.poll(), Ok(true));
    target.while_busy(|factor| {
        let busy = target.start_busy(&session, factor);
        let idle = session.poll().must();
        session.sync().must();
        assert_eq!(session.poll(), Ok(true));
        ensure_same(
            "the result",
            &download::<u32>(&session, &busy.buffer),
            busy_values(),
        );
        (!idle).then_some(())
    });
    Ok(())
}

fn a_wait_without_work_succeeds_at_once(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    session.sync_timeout(Duration::ZERO).must();
    session.sync().must();
    let event = session.create_event().must();
    event.sync_timeout(Duration::ZERO).must();
    Ok(())
}

fn a_lease_can_end_under_running_work(target: &Target) -> Result<(), Unsupported> {
    for _ in 0..3 {
        let (lease, session) = target.session();
        let busy = target.start_busy(&session, 1);
        let event = session.create_event().must();
        session.record(&event).must();
        lease.free();
        for answer in [
            session.sync(),
            event.sync(),
            session.mem_write(&busy.buffer, 0, &[1]),
        ] {
            match answer {
                Err(error) => assert_eq!(error.kind(), ErrorKind::LeaseExpired, "{error}"),
                Ok(()) => panic!("the lease has ended"),
            }
        }
    }
    // The device is none the worse for it.
    let (_lease, session) = target.session();
    let busy = target.start_busy(&session, 1);
    ensure_same(
        "the result",
        &download::<u32>(&session, &busy.buffer),
        busy_values(),
    );
    Ok(())
}
