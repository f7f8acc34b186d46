//! Which device a lease gets: memory, constraints, backends, and why none.

mod support;

use std::sync::Arc;

use gpu_backend_mock::{MockBackend, MockDevice, Operation};
use grafos_host_abi::{DriverFault, GpuError};
use grafos_std::FabricError;
use grafos_std::affinity::{Affinity, Strength, Target, Vendor};
use grafos_std::error::{CapacityFault, DisconnectedFault, ErrorKind};
use grafos_std::gpu::{
    DeviceUuid, GpuBuilder, GpuExclusivityClass, GpuLease, GpuSession, PciAddress,
};
use grafos_std::host::Host;
use support::{Absent, Bench, MIB, Renamed, kind_of, refused};

use Strength::{Preferred, Required};

const PCI: [PciAddress; 2] = [
    PciAddress {
        domain: 0,
        bus: 0x65,
        device: 0,
        function: 0,
    },
    PciAddress {
        domain: 1,
        bus: 0x66,
        device: 2,
        function: 3,
    },
];

/// Two cards that differ in everything, the first with more memory.
fn two_cards() -> Bench {
    Bench::new([
        MockDevice::new()
            .name("Alpha One")
            .vendor(Vendor::Nvidia)
            .memory_bytes(64 * MIB)
            .pci(PCI[0])
            .uuid(DeviceUuid([1; 16]))
            .numa_node(0),
        MockDevice::new()
            .name("Beta Two")
            .vendor(Vendor::Amd)
            .memory_bytes(32 * MIB)
            .pci(PCI[1])
            .uuid(DeviceUuid([2; 16]))
            .numa_node(1),
    ])
}

fn toward(strength: Strength, target: Target) -> GpuBuilder {
    GpuBuilder::new().affinity(Affinity::toward(strength, target))
}

fn away(strength: Strength, target: Target) -> GpuBuilder {
    GpuBuilder::new().anti_affinity(strength, target)
}

#[track_caller]
fn placed(bench: &Bench, builder: GpuBuilder) -> u32 {
    bench.acquire(builder).device().index
}

// Memory.

#[test]
fn without_wishes_the_card_with_most_unreserved_memory_is_taken() {
    let bench = two_cards();
    let first = bench.acquire(GpuBuilder::new().min_vram(40 * MIB));
    assert_eq!(first.device().index, 0);
    // 24 MiB are left on the first card, 32 on the second.
    let second = bench.acquire(GpuBuilder::new().min_vram(16 * MIB));
    assert_eq!(second.device().index, 1);
    assert_eq!(placed(&bench, GpuBuilder::new()), 0);
}

#[test]
fn min_vram_passes_over_a_card_that_is_too_small() {
    let bench = two_cards();
    let beside = bench.acquire(toward(Required, Target::Device("Alpha".into())));
    assert_eq!(placed(&bench, GpuBuilder::new().min_vram(64 * MIB)), 0);
    drop(beside);
    let prefers_small = toward(Preferred, Target::Device("Beta".into()));
    assert_eq!(placed(&bench, prefers_small.clone().min_vram(32 * MIB)), 1);
    assert_eq!(placed(&bench, prefers_small.min_vram(32 * MIB + 1)), 0);
}

#[test]
fn min_vram_that_nobody_has_is_refused_with_the_numbers() {
    let bench = two_cards();
    for requested in [64 * MIB + 1, u64::MAX] {
        match bench.refusal(GpuBuilder::new().min_vram(requested)) {
            FabricError::CapacityExceeded(fault) => assert_eq!(
                fault,
                CapacityFault {
                    resource: "device memory that no lease has reserved",
                    requested,
                    available: Some(64 * MIB),
                    unit: "bytes",
                    cause: None,
                }
            ),
            other => panic!("{other:?}"),
        }
    }
    assert!(
        GpuBuilder::new()
            .min_vram(64 * MIB)
            .acquire_on(&bench.host)
            .is_ok()
    );
}

#[test]
fn a_reservation_holds_against_other_leases() {
    let bench = Bench::with_memory(16 * MIB);
    let first = bench.acquire(GpuBuilder::new().min_vram(12 * MIB));
    let second = bench.lease();
    let (of_first, of_second) = (GpuSession::new(&first), GpuSession::new(&second));
    match refused(of_second.mem_alloc(4 * MIB + 1)) {
        FabricError::CapacityExceeded(fault) => {
            assert_eq!(fault.resource, "device memory");
            assert_eq!(
                (fault.requested, fault.available),
                (4 * MIB + 1, Some(4 * MIB))
            );
        }
        other => panic!("{other:?}"),
    }
    let whole_rest = of_second.mem_alloc(4 * MIB).unwrap();
    assert_eq!(
        bench.refusal(GpuBuilder::new().min_vram(1)).kind(),
        ErrorKind::CapacityExceeded
    );
    let reserved = of_first.mem_alloc(12 * MIB).unwrap();
    assert_eq!(kind_of(of_first.mem_alloc(1)), ErrorKind::CapacityExceeded);
    drop(whole_rest);
    let beyond_reservation = of_first.mem_alloc(4 * MIB).unwrap();
    drop(beyond_reservation);
    // What was freed of the reservation stays reserved.
    drop(reserved);
    assert_eq!(
        kind_of(of_second.mem_alloc(4 * MIB + 1)),
        ErrorKind::CapacityExceeded
    );
    drop(first);
    assert!(of_second.mem_alloc(16 * MIB).is_ok());
}

#[test]
fn max_vram_is_a_hard_quota() {
    let bench = Bench::with_memory(16 * MIB);
    let lease = bench.acquire(GpuBuilder::new().min_vram(MIB).max_vram(3 * MIB));
    let session = GpuSession::new(&lease);
    let kept = session.mem_alloc(2 * MIB).unwrap();
    for requested in [MIB + 1, 16 * MIB] {
        match refused(session.mem_alloc(requested)) {
            FabricError::CapacityExceeded(fault) => {
                assert_eq!(fault.resource, "lease quota");
                assert_eq!((fault.requested, fault.available), (requested, Some(MIB)));
            }
            other => panic!("{other:?}"),
        }
    }
    let info = session.mem_info().unwrap();
    assert_eq!((info.total_bytes, info.free_bytes), (3 * MIB, MIB));
    assert_eq!((info.live_bytes, info.live_buffers), (2 * MIB, 1));
    let rest = session.mem_alloc(MIB).unwrap();
    assert_eq!(session.mem_info().unwrap().free_bytes, 0);
    drop((kept, rest));
    assert_eq!(session.mem_info().unwrap().free_bytes, 3 * MIB);
    assert!(session.mem_alloc(3 * MIB).is_ok());
}

#[test]
fn a_quota_of_nothing_allows_only_buffers_of_nothing() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().max_vram(0));
    let session = GpuSession::new(&lease);
    assert_eq!(kind_of(session.mem_alloc(1)), ErrorKind::CapacityExceeded);
    assert_eq!(session.mem_alloc(0).unwrap().size_bytes(), 0);
}

#[test]
fn a_quota_below_the_reservation_is_refused() {
    let bench = Bench::default();
    let refusal = bench.refusal(GpuBuilder::new().min_vram(2).max_vram(1));
    assert_eq!(refusal.kind(), ErrorKind::InvalidArgument);
    let text = refusal.to_string();
    assert!(
        text.contains("max_vram 1 bytes") && text.contains("min_vram 2 bytes"),
        "{text}"
    );
}

#[test]
fn memory_queries_take_off_what_others_hold() {
    let bench = Bench::with_memory(16 * MIB);
    let first = bench.acquire(GpuBuilder::new().min_vram(4 * MIB));
    let second = bench.lease();
    let session = GpuSession::new(&second);
    let info = session.mem_info().unwrap();
    assert_eq!((info.total_bytes, info.free_bytes), (12 * MIB, 12 * MIB));
    let buffer = session.mem_alloc(2 * MIB).unwrap();
    let other = GpuSession::new(&first).mem_info().unwrap();
    assert_eq!((other.total_bytes, other.free_bytes), (14 * MIB, 14 * MIB));
    drop(buffer);
    drop(first);
    let info = session.mem_info().unwrap();
    assert_eq!((info.total_bytes, info.free_bytes), (16 * MIB, 16 * MIB));
    assert_eq!((info.live_bytes, info.live_buffers), (0, 0));
}

#[test]
fn impossible_sizes_are_refused_before_the_device_and_counters_stay_right() {
    let bench = Bench::with_memory(16 * MIB);
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let before = session.mem_info().unwrap();
    for requested in [u64::MAX, u64::MAX - 3, 1 << 63, 1 << 40, 16 * MIB + 1] {
        match refused(session.mem_alloc(requested)) {
            FabricError::CapacityExceeded(fault) => {
                assert_eq!(
                    (fault.requested, fault.available),
                    (requested, Some(16 * MIB))
                );
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bench.backend.calls(Operation::Alloc), 0);
    assert_eq!(session.mem_info().unwrap(), before);
    assert!(session.mem_alloc(16 * MIB).is_ok());
}

// Constraints.

#[test]
fn devices_are_named_by_index_uuid_address_or_name() {
    let bench = two_cards();
    let names: [[&str; 5]; 2] = [
        [
            "0",
            "01010101-0101-0101-0101-010101010101",
            "0000:65:00.0",
            "Alpha",
            "ha oN",
        ],
        [
            "1",
            "GPU-02020202-0202-0202-0202-020202020202",
            "0001:66:02.3",
            "beta two",
            "TWO",
        ],
    ];
    for (index, names) in (0..).zip(names) {
        for name in names {
            let target = Target::Device(name.into());
            assert_eq!(
                placed(&bench, toward(Required, target.clone())),
                index,
                "{name}"
            );
            assert_eq!(placed(&bench, away(Required, target)), 1 - index, "{name}");
        }
    }
    for name in [
        "2",
        "gamma",
        "",
        " ",
        "0000:65:00.1",
        "03030303-0303-0303-0303-030303030303",
    ] {
        let target = Target::Device(name.into());
        assert_eq!(
            bench.refusal(toward(Required, target)).kind(),
            ErrorKind::Unsupported,
            "{name}"
        );
    }
}

#[test]
fn vendors_and_numa_nodes_attract_and_repel() {
    let bench = two_cards();
    let targets = [
        (Target::Vendor(Vendor::Nvidia), 0),
        (Target::Vendor(Vendor::Amd), 1),
        (Target::NumaNode(0), 0),
        (Target::NumaNode(1), 1),
    ];
    for strength in [Required, Preferred] {
        for (target, index) in &targets {
            assert_eq!(
                placed(&bench, toward(strength, target.clone())),
                *index,
                "{target:?}"
            );
            assert_eq!(
                placed(&bench, away(strength, target.clone())),
                1 - index,
                "{target:?}"
            );
        }
    }
}

#[test]
fn leases_attract_and_repel() {
    let bench = two_cards();
    for device in ["Alpha", "Beta"] {
        let anchor = bench.acquire(toward(Required, Target::Device(device.into())));
        let index = anchor.device().index;
        let target = || Target::Lease(anchor.lease_id());
        for strength in [Required, Preferred] {
            assert_eq!(placed(&bench, toward(strength, target())), index);
            assert_eq!(placed(&bench, away(strength, target())), 1 - index);
        }
    }
}

#[test]
fn an_ended_lease_is_nowhere() {
    let bench = two_cards();
    let anchor = bench.acquire(toward(Required, Target::Device("Beta".into())));
    let target = Target::Lease(anchor.lease_id());
    anchor.free();
    assert_eq!(
        bench.refusal(toward(Required, target.clone())).kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(placed(&bench, away(Required, target.clone())), 0);
    assert_eq!(placed(&bench, toward(Preferred, target)), 0);
    assert_eq!(
        bench.refusal(toward(Required, Target::Lease(0))).kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn required_constraints_must_all_hold() {
    let bench = two_cards();
    let both = toward(Required, Target::Vendor(Vendor::Amd))
        .affinity(Affinity::toward(Required, Target::NumaNode(1)));
    assert_eq!(placed(&bench, both), 1);
    let contradiction = toward(Required, Target::Vendor(Vendor::Amd))
        .affinity(Affinity::toward(Required, Target::NumaNode(0)));
    match bench.refusal(contradiction) {
        FabricError::Unsupported(fault) => {
            for part in ["Alpha One", "Beta Two", "NumaNode(0)", "Vendor(Amd)"] {
                assert!(
                    fault.reason.contains(part),
                    "{part} is not in {}",
                    fault.reason
                );
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn preferences_are_counted_and_never_exclude() {
    let bench = two_cards();
    assert_eq!(
        placed(&bench, toward(Preferred, Target::Vendor(Vendor::Intel))),
        0
    );
    // One for the first card, two for the second.
    let outvoted = toward(Preferred, Target::NumaNode(0))
        .affinity(Affinity::toward(Preferred, Target::Vendor(Vendor::Amd)))
        .anti_affinity(Preferred, Target::Device("Alpha".into()));
    assert_eq!(placed(&bench, outvoted.clone()), 1);
    let required = outvoted.affinity(Affinity::toward(Required, Target::NumaNode(0)));
    assert_eq!(placed(&bench, required), 0);
}

#[test]
fn a_busy_card_gives_way_to_a_free_one() {
    let bench = two_cards();
    let exclusive = || GpuBuilder::new().exclusivity(GpuExclusivityClass::DeviceExclusive);
    let first = bench.acquire(exclusive());
    let second = bench.acquire(exclusive());
    assert_eq!((first.device().index, second.device().index), (0, 1));
    match bench.refusal(GpuBuilder::new()) {
        FabricError::DeviceBusy(fault) => {
            assert_eq!(fault.holder_lease_id, first.lease_id());
            assert!(fault.reason.contains("Beta Two"), "{}", fault.reason);
        }
        other => panic!("{other:?}"),
    }
}

// Backends.

fn named(name: &'static str, devices: impl IntoIterator<Item = MockDevice>) -> Arc<Renamed> {
    let mut builder = MockBackend::builder();
    for device in devices {
        builder = builder.device(device);
    }
    Arc::new(Renamed {
        name,
        inner: builder.build(),
    })
}

fn card(name: &str, bytes: u64) -> MockDevice {
    MockDevice::new().name(name).memory_bytes(bytes)
}

#[test]
fn a_third_partys_backend_serves_leases() {
    let backend = named("third", [card("Third", MIB)]);
    let host = Host::builder()
        .backend(backend)
        .software_devices(true)
        .build();
    let lease = GpuBuilder::new().acquire_on(&host).unwrap();
    assert_eq!(
        (lease.backend(), lease.device().name.as_str()),
        ("third", "Third")
    );
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(8).unwrap();
    session
        .mem_write(&buffer, 0, &[1, 2, 3, 4, 5, 6, 7, 8])
        .unwrap();
    assert_eq!(session.mem_read(&buffer, 2, 3), Ok(vec![3, 4, 5]));
}

#[test]
fn an_earlier_backend_is_preferred_to_more_memory() {
    let host = Host::builder()
        .backend(named("first", [card("Small", MIB)]))
        .backend(named("second", [card("Large", 64 * MIB)]))
        .software_devices(true)
        .build();
    let acquire = |builder: GpuBuilder| builder.acquire_on(&host).map(|lease| lease.backend());
    assert_eq!(acquire(GpuBuilder::new()), Ok("first"));
    assert_eq!(acquire(GpuBuilder::new().min_vram(2 * MIB)), Ok("second"));
    let prefers_large = toward(Preferred, Target::Device("Large".into()));
    assert_eq!(acquire(prefers_large), Ok("second"));
}

#[test]
fn an_absent_backend_is_passed_over_and_reported() {
    let host = Host::builder()
        .backend(Arc::new(Absent))
        .backend(named("present", [card("Card", MIB)]))
        .software_devices(true)
        .build();
    assert_eq!(
        GpuBuilder::new().acquire_on(&host).unwrap().backend(),
        "present"
    );
    let reports = host.unavailable_backends();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].backend, "absent");
    assert_eq!(reports[0].reason, "libabsent.so.1 not found");
    assert_eq!(reports[0].hint, "install the absent driver");
}

#[test]
fn without_a_device_each_backend_says_why() {
    let host = Host::builder().backend(Arc::new(Absent)).build();
    let refusal = refused(GpuBuilder::new().acquire_on(&host));
    assert_eq!(
        refusal.to_string(),
        "disconnected: no device can be used; absent: libabsent.so.1 not found (install the \
         absent driver)"
    );
    assert_eq!(host.devices(), []);
}

#[test]
fn a_backend_that_cannot_list_its_devices_is_passed_over() {
    let broken = named("broken", [card("Card", MIB)]);
    let fault = DriverFault {
        api: "broken",
        entry_point: "list",
        code: 7,
        code_name: "BROKEN_ERROR".into(),
        detail: String::new(),
    };
    broken
        .inner
        .faults()
        .fail(Operation::Devices, 1, GpuError::Driver(fault));
    let host = Host::builder()
        .backend(broken)
        .backend(named("sound", [card("Card", MIB)]))
        .software_devices(true)
        .build();
    assert_eq!(
        GpuBuilder::new().acquire_on(&host).unwrap().backend(),
        "sound"
    );
    let reports = host.unavailable_backends();
    assert_eq!(reports.len(), 1);
    assert_eq!(
        (reports[0].backend.as_str(), reports[0].reason.as_str()),
        ("broken", "broken: list: BROKEN_ERROR (7)")
    );
}

#[test]
fn software_devices_are_listed_and_not_leased_out_silently() {
    let host = Host::builder()
        .backend(Arc::new(MockBackend::new()))
        .build();
    let devices = host.devices();
    assert_eq!(devices.len(), 1);
    assert_eq!(
        (devices[0].index, devices[0].backend, devices[0].usable),
        (0, "mock", false)
    );
    match refused(GpuBuilder::new().acquire_on(&host)) {
        FabricError::Disconnected(DisconnectedFault { backends, .. }) => {
            assert_eq!(backends.len(), 1);
            assert_eq!(backends[0].backend, "mock");
            assert!(
                backends[0].reason.contains("Grafos software GPU"),
                "{}",
                backends[0].reason
            );
            assert!(
                backends[0].hint.contains("GRAFOS_BACKEND=mock"),
                "{}",
                backends[0].hint
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_host_without_backends_is_disconnected() {
    let host = Host::builder().build();
    assert_eq!(
        kind_of(GpuBuilder::new().acquire_on(&host)),
        ErrorKind::Disconnected
    );
}

#[test]
fn a_host_can_be_bound_to_some_of_its_devices() {
    let backend = MockBackend::builder()
        .device(card("Alpha", 64 * MIB))
        .device(card("Beta", MIB).pci(PCI[1]))
        .build();
    let host_for = |text: &str| {
        Host::builder()
            .backend(Arc::new(backend.clone()))
            .software_devices(true)
            .device(text)
            .build()
    };
    for text in [
        "1",
        "beta",
        "0001:66:02.3",
        "47524146-4f53-8000-8000-000000000001",
    ] {
        let host = host_for(text);
        let usable = host
            .devices()
            .iter()
            .map(|device| device.usable)
            .collect::<Vec<_>>();
        assert_eq!(usable, [false, true], "{text}");
        assert_eq!(
            GpuBuilder::new().acquire_on(&host).unwrap().device().name,
            "Beta"
        );
        assert_eq!(
            kind_of(GpuBuilder::new().min_vram(2 * MIB).acquire_on(&host)),
            ErrorKind::CapacityExceeded,
            "the other device has the memory and is not to be used"
        );
    }
    let refusal = refused(GpuBuilder::new().acquire_on(&host_for("gamma"))).to_string();
    for part in ["\"gamma\"", "Alpha, Beta"] {
        assert!(refusal.contains(part), "{part} is not in {refusal}");
    }
}

#[test]
fn two_backends_at_one_pci_address_share_one_card() {
    let on_pci = |name: &str| card(name, 16 * MIB).pci(PCI[0]);
    let host = Host::builder()
        .backend(named("first", [on_pci("Card by one API")]))
        .backend(named("second", [on_pci("Card by another API")]))
        .software_devices(true)
        .build();
    let on = |backend: &str, builder: GpuBuilder| -> Result<GpuLease, FabricError> {
        let device = if backend == "first" {
            "one API"
        } else {
            "another API"
        };
        builder
            .affinity(Affinity::toward(Required, Target::Device(device.into())))
            .acquire_on(&host)
    };
    let reserved = on("first", GpuBuilder::new().min_vram(12 * MIB)).unwrap();
    match refused(on("second", GpuBuilder::new().min_vram(5 * MIB))) {
        FabricError::CapacityExceeded(fault) => assert_eq!(fault.available, Some(4 * MIB)),
        other => panic!("{other:?}"),
    }
    let beside = on("second", GpuBuilder::new()).unwrap();
    assert_eq!(beside.backend(), "second");
    assert_eq!(
        kind_of(GpuSession::new(&beside).mem_alloc(5 * MIB)),
        ErrorKind::CapacityExceeded
    );
    let same = away(Required, Target::Lease(reserved.lease_id())).acquire_on(&host);
    assert_eq!(kind_of(same), ErrorKind::Unsupported);
    drop((reserved, beside));
    let class = GpuExclusivityClass::DeviceExclusive;
    let alone = on("first", GpuBuilder::new().exclusivity(class)).unwrap();
    match refused(on("second", GpuBuilder::new())) {
        FabricError::DeviceBusy(fault) => assert_eq!(fault.holder_lease_id, alone.lease_id()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn partitions_of_one_card_are_apart() {
    let partition = |uuid: u8| {
        card("Partition", MIB)
            .pci(PCI[0])
            .uuid(DeviceUuid([uuid; 16]))
            .hardware_partition(true)
    };
    let bench = Bench::new([partition(1), partition(2)]);
    let exclusive = || GpuBuilder::new().exclusivity(GpuExclusivityClass::PartitionExclusive);
    let (first, second) = (bench.acquire(exclusive()), bench.acquire(exclusive()));
    assert_ne!(first.device().uuid, second.device().uuid);
    assert_eq!(bench.refusal(exclusive()).kind(), ErrorKind::Busy);
}
