//! The conformance suite on whatever Vulkan driver the caller has chosen; see `support`.

#![expect(clippy::print_stderr, reason = "a test program says why it fails")]

mod support;

use std::process::ExitCode;

use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::conformance::{self, Fixture};
use grafos_host_abi::{Capabilities, GpuBackend, GpuContext, Probe};
use grafos_kernels::Feature;
use support::{Messages, interposer};

struct VulkanFixture {
    backend: VulkanBackend,
    target: String,
    capabilities: Capabilities,
    is_13: bool,
}

impl VulkanFixture {
    fn new(messages: &Messages) -> Self {
        let backend = support::builder(messages).build();
        let driver = match backend.probe() {
            Probe::Available { driver, .. } => driver,
            _ => Default::default(),
        };
        let mut target = support::target_name(&driver.name).to_owned();
        if support::is_set("GRAFOS_VULKAN_STAGING") {
            target.push_str("-staged");
        }
        if support::is_set("GRAFOS_VULKAN_VALIDATION") {
            target.push_str("-validated");
        }
        let devices = backend.devices().unwrap_or_default();
        Self {
            backend,
            target,
            capabilities: devices
                .first()
                .map(|device| device.capabilities)
                .unwrap_or_default(),
            is_13: !driver.api_version.starts_with("1.2"),
        }
    }
}

impl Fixture for VulkanFixture {
    fn target(&self) -> &str {
        &self.target
    }

    fn backend(&self) -> &dyn GpuBackend {
        &self.backend
    }

    fn image(&self, name: &str) -> Option<Vec<u8>> {
        let kernel = grafos_kernels::by_name(name)?;
        kernel
            .needs
            .iter()
            .all(|feature| match feature {
                Feature::Int64 => self.capabilities.int64,
                Feature::Float64 => self.capabilities.float64,
                Feature::Maintenance4 => self.is_13,
            })
            .then(|| kernel.spirv.to_vec())
    }

    fn lose_device(&self, context: &dyn GpuContext) -> bool {
        interposer::lose_device(context)
    }

    fn malformed_images(&self) -> Vec<(String, Vec<u8>)> {
        let good = grafos_kernels::by_name("vector_add")
            .map(|kernel| kernel.spirv.to_vec())
            .unwrap_or_default();
        let with_word = |index: usize, word: u32| {
            let mut image = good.clone();
            image[index * 4..][..4].copy_from_slice(&word.to_le_bytes());
            image
        };
        let without_tail = |bytes: usize| good[..good.len() - bytes].to_vec();
        vec![
            ("a header alone".into(), good[..20].to_vec()),
            ("an unknown version".into(), with_word(1, 0x0009_0900)),
            ("an id bound of zero".into(), with_word(3, 0)),
            ("an id bound below its ids".into(), with_word(3, 2)),
            ("a reserved word in use".into(), with_word(4, 1)),
            (
                "an instruction of no words".into(),
                with_word(5, 0x0000_0011),
            ),
            (
                "an instruction past the end".into(),
                with_word(5, 0xFFFF_0011),
            ),
            ("an unknown instruction".into(), with_word(5, 0x0002_FFFF)),
            ("no end of the last function".into(), without_tail(4)),
            ("half a word at the end".into(), without_tail(2)),
            ("text".into(), b"#version 460\nvoid main() {}\n".to_vec()),
            ("PTX".into(), b".version 8.0\n.target sm_80\n".to_vec()),
        ]
    }
}

fn main() -> ExitCode {
    let messages = Messages::default();
    let outcome = conformance::main(VulkanFixture::new(&messages));
    let messages = messages.all();
    for message in &messages {
        eprintln!("validation: {message}");
    }
    if messages.is_empty() {
        outcome
    } else {
        eprintln!("the validation layer had {} messages", messages.len());
        ExitCode::FAILURE
    }
}
