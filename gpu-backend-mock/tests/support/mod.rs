//! The software GPU as the conformance suite sees it.

use std::sync::atomic::{AtomicU32, Ordering};

use gpu_backend_mock::{
    BlockScope, HostKernel, KernelSignature, KernelTrap, MockBackend, MockDevice, Operation,
};
use grafos_host_abi::conformance::Fixture;
use grafos_host_abi::{GpuBackend, GpuContext};

/// The software GPU, strict.
pub(crate) struct MockFixture {
    backend: MockBackend,
    losses: AtomicU32,
}

impl MockFixture {
    /// Makes a backend of its own.
    pub(crate) fn new() -> Self {
        Self {
            backend: backend(),
            losses: AtomicU32::new(0),
        }
    }
}

/// Makes a strict backend with every kernel that the suite launches.
pub(crate) fn backend() -> MockBackend {
    // Room for the case that copies more than 4 GiB; only what is written takes the host's memory.
    let device = MockDevice::new().memory_bytes(16 << 30);
    let backend = MockBackend::builder().strict(true).device(device).build();
    grafos_kernels::host::register(&backend);
    let address = KernelSignature::new().buffer();
    for (name, body) in SUITE_KERNELS {
        backend.register_kernel(HostKernel::new(*name, address.clone(), *body));
    }
    backend.register_global("table", 32, &[]);
    backend
}

type Body = fn(&mut BlockScope<'_>) -> Result<(), KernelTrap>;

/// The kernels that only some APIs can express.
const SUITE_KERNELS: &[(&str, Body)] = &[
    ("dynamic_shared_reverse", dynamic_shared_reverse),
    ("module_globals", module_globals),
];

fn dynamic_shared_reverse(scope: &mut BlockScope<'_>) -> Result<(), KernelTrap> {
    let data = scope.buffer::<u32>(0)?;
    let len = scope.dynamic_shared_bytes() / 4;
    let mut values = scope.dynamic_shared_mut::<u32>(len)?;
    scope.for_each_thread(|thread| {
        values[thread.linear_index()] = data.load(thread.global_x())?;
        Ok(())
    })?;
    scope.for_each_thread(|thread| {
        data.store(thread.global_x(), values[len - 1 - thread.linear_index()])
    })
}

fn module_globals(scope: &mut BlockScope<'_>) -> Result<(), KernelTrap> {
    let target = scope.buffer::<u32>(0)?;
    let table = scope.global::<u32>("table")?;
    scope.for_each_thread(|thread| {
        let index = thread.global_x();
        if index < 8 {
            target.store(index, table.load(index)?)?;
        }
        Ok(())
    })
}

/// Gives the image of a module. Its content does not matter, its outer form does.
pub(crate) fn image(name: &str) -> Option<Vec<u8>> {
    if SUITE_KERNELS.iter().any(|(kernel, _)| *kernel == name) {
        return Some(format!(".version 7.0\n// {name}\n").into_bytes());
    }
    grafos_kernels::by_name(name).map(|kernel| kernel.spirv.to_vec())
}

/// Lists the kernels of every module: all that are registered.
pub(crate) fn kernel_names() -> Vec<String> {
    let shipped = grafos_kernels::all().iter().map(|kernel| kernel.name);
    let own = SUITE_KERNELS.iter().map(|(name, _)| *name);
    let mut names: Vec<String> = shipped.chain(own).map(str::to_owned).collect();
    names.sort();
    names
}

/// Loses the device for one context, with a reason of the number's own.
pub(crate) fn lose_device(backend: &MockBackend, context: &dyn GpuContext, number: u32) -> bool {
    let faults = backend.faults();
    faults.lose_device(Operation::Poll, 1, format!("loss {number}"), false);
    let lost = context.poll().is_err();
    // A context that is lost already may not have taken up the script.
    faults.clear();
    lost
}

impl Fixture for MockFixture {
    fn target(&self) -> &str {
        "mock"
    }

    fn backend(&self) -> &dyn GpuBackend {
        &self.backend
    }

    fn image(&self, name: &str) -> Option<Vec<u8>> {
        image(name)
    }

    fn kernel_names(&self, _module: &str) -> Vec<String> {
        kernel_names()
    }

    fn malformed_images(&self) -> Vec<(String, Vec<u8>)> {
        let spirv = grafos_kernels::by_name("fill").map(|kernel| kernel.spirv.to_vec());
        let mut spirv = spirv.unwrap_or_default();
        spirv.push(0);
        vec![
            ("SPIR-V and a byte more".to_owned(), spirv),
            (
                "PTX that is not text".to_owned(),
                b".version 7.0\n\xFF".to_vec(),
            ),
            ("half an ELF header".to_owned(), {
                let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
                elf.resize(32, 0);
                elf[18] = 190;
                elf
            }),
        ]
    }

    fn unsupported(&self) -> &[(&'static str, &'static str)] {
        const OUTER_FORM: &str = "the software GPU reads only the outer form of an image";
        &[
            ("module::cut_off_images_are_refused", OUTER_FORM),
            ("module::hollow_images_are_refused", OUTER_FORM),
        ]
    }

    fn lose_device(&self, context: &dyn GpuContext) -> bool {
        let number = self.losses.fetch_add(1, Ordering::Relaxed);
        lose_device(&self.backend, context, number)
    }
}
