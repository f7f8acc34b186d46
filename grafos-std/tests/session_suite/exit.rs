//! A process that ends while it holds everything.

use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use grafos_std::gpu::{GpuEvent, GpuLease, GpuMemHandle, GpuModule, GpuSession};

use crate::target::{Busy, Must, Target, Unsupported};

crate::cases!("exit":
    a_process_can_end_with_live_handles,
);

/// Set for the process that is to end: how it does so.
pub(crate) const CHILD: &str = "GRAFOS_SUITE_CHILD";

/// What no destructor runs for.
static HELD: OnceLock<(GpuLease, GpuSession, GpuMemHandle, GpuModule, GpuEvent)> = OnceLock::new();

/// Ends with work under way: handles in a static, and others on the stack.
pub(crate) fn child(target: &Target) -> ExitCode {
    let (lease, session) = target.session();
    let Busy {
        buffer,
        module,
        kernel,
    } = target.start_busy(&session, 1);
    let event = session.create_event().must();
    session.record(&event).must();
    let _on_the_stack = (buffer.clone(), kernel);
    let (_other_lease, other_session) = target.session();
    let _other_busy = target.start_busy(&other_session, 1);
    HELD.get_or_init(|| (lease, session, buffer, module, event));
    match std::env::var(CHILD).as_deref() {
        Ok("exit") => std::process::exit(0),
        _ => ExitCode::SUCCESS,
    }
}

fn a_process_can_end_with_live_handles(_target: &Target) -> Result<(), Unsupported> {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    for way in ["return", "exit"] {
        let output = Command::new(&program)
            .env(CHILD, way)
            .output()
            .unwrap_or_else(|error| panic!("{error}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{way}: {stdout}{stderr}");
        assert_eq!(stdout, "", "{way}");
        let complaint = ["panicked", "error", "leak"]
            .into_iter()
            .find(|word| stderr.contains(word));
        assert_eq!(complaint, None, "{way}: {stderr}");
    }
    Ok(())
}
