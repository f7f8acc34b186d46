//! Runs the conformance suite on the software GPU.

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    grafos_host_abi::conformance::main(support::MockFixture::new())
}
