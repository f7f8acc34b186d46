//! The conformance suite notices a broken contract: one is broken at a time, and the cases that
//! hold it must fail.

#[expect(dead_code, reason = "the suite's own run uses the rest")]
mod support;

#[path = "support/sabotage.rs"]
mod sabotage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use grafos_host_abi::conformance::{self, Fixture, Report};
use grafos_host_abi::{GpuBackend, GpuContext};
use sabotage::{Sabotage, SabotagedBackend};

struct SabotagedFixture {
    backend: SabotagedBackend,
    losses: AtomicU32,
    unsupported: &'static [(&'static str, &'static str)],
    expected_failures: &'static [(&'static str, &'static str)],
    case_limit: Duration,
}

impl SabotagedFixture {
    fn new(sabotage: Sabotage) -> Self {
        Self {
            backend: SabotagedBackend::new(support::backend(), sabotage),
            losses: AtomicU32::new(0),
            unsupported: &[],
            expected_failures: &[],
            case_limit: Duration::from_secs(300),
        }
    }
}

impl Fixture for SabotagedFixture {
    fn target(&self) -> &str {
        "sabotaged"
    }

    fn backend(&self) -> &dyn GpuBackend {
        &self.backend
    }

    fn image(&self, name: &str) -> Option<Vec<u8>> {
        support::image(name)
    }

    fn kernel_names(&self, _module: &str) -> Vec<String> {
        support::kernel_names()
    }

    fn malformed_images(&self) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn unsupported(&self) -> &[(&'static str, &'static str)] {
        self.unsupported
    }

    fn expected_failures(&self) -> &[(&'static str, &'static str)] {
        self.expected_failures
    }

    fn lose_device(&self, context: &dyn GpuContext) -> bool {
        let number = self.losses.fetch_add(1, Ordering::Relaxed);
        support::lose_device(&self.backend.inner, context, number)
    }

    fn case_limit(&self) -> Duration {
        self.case_limit
    }
}

fn run(fixture: SabotagedFixture, cases: &[&str]) -> Report {
    for case in cases {
        assert!(
            conformance::case_names().any(|name| name == *case),
            "there is no case {case}"
        );
    }
    conformance::run(Arc::new(fixture), |name| cases.contains(&name))
        .expect("the software GPU is always there")
}

/// Every case of the table must fail, with a part of its message.
fn assert_detected(sabotage: Sabotage, cases: &[(&str, &str)]) {
    let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
    let report = run(SabotagedFixture::new(sabotage), &names);
    for (name, part) in cases {
        let failed = report.failed.iter().find(|(failed, _)| failed == name);
        let (_, message) =
            failed.unwrap_or_else(|| panic!("{sabotage:?} was not noticed by {name}: {report:?}"));
        assert!(message.contains(part), "{sabotage:?}: {name}: {message}");
    }
}

macro_rules! sabotages {
    ($($test:ident: $sabotage:ident => [$(($case:literal, $part:literal)),+ $(,)?];)+) => {
        $(
            #[test]
            fn $test() {
                assert_detected(Sabotage::$sabotage, &[$(($case, $part)),+]);
            }
        )+

        /// Every case that a sabotage relies on.
        const CASES: &[&str] = &[$($($case),+),+];
    };
}

sabotages! {
    an_unchecked_device_index: AnyDeviceIndexOpens => [
        ("device::unknown_index_is_refused", "expected InvalidHandle"),
    ];
    a_changing_uuid: UuidChanges => [
        ("device::description_is_the_same_each_time", "a later list"),
    ];
    misaligned_addresses: AddressesAreMisaligned => [
        ("memory::addresses_are_aligned_and_apart", "not a multiple of 256"),
    ];
    reused_buffer_ids: BufferIdsAreReused => [
        ("memory::ids_are_not_reused", "was given out before"),
    ];
    a_free_that_is_not_deferred: FreedMemoryIsGivenOutAtOnce => [
        ("lifetime::memory_freed_under_work_is_not_given_out_early", "made after the free"),
        ("memory::counts_follow_each_allocation", "fewer"),
    ];
    double_frees_that_succeed: DoubleFreesSucceed => [
        ("memory::freeing_twice_is_refused", "a second free"),
        ("memory::freeing_an_unknown_buffer_is_refused", "free of unknown buffer"),
        ("contexts::objects_of_another_context_are_unknown", "free"),
    ];
    counters_that_drift: FailedAllocationsCount => [
        ("capacity::refusals_leave_the_counts", "live buffers: found 2, expected 1"),
    ];
    capacity_as_a_driver_error: CapacityIsADriverError => [
        ("capacity::impossible_sizes_are_refused", "expected CapacityExceeded"),
        ("capacity::exhausted_memory_can_be_used_again", "unexpected Driver"),
    ];
    a_trim_that_overstates: TrimOverstates => [
        ("memory::trim_keeps_content_and_counts", "given up by trim"),
        ("memory::trim_leaves_nothing_to_trim", "found 1, expected 0"),
    ];
    reads_that_are_off_by_one: ReadsAreOffByOne => [
        ("memory::writes_and_reads_at_odd_offsets", "round"),
        ("memory::read_fills_exactly_the_slice", "element 32"),
    ];
    reads_that_are_short: ReadsMissTheLastByte => [
        ("memory::one_byte_buffers_hold_one_byte", "content"),
        ("memory::large_buffers_round_trip", "1 elements differ"),
    ];
    dropped_writes: EverySecondWriteIsDropped => [
        ("memory::writes_leave_their_neighbors", "elements differ"),
        ("stream::many_writes_run_in_order", "elements differ"),
    ];
    copies_that_go_backwards: CopiesGoBackwards => [
        ("copy_fill::copies_between_buffers", "elements differ"),
        ("copy_fill::copies_within_a_buffer", "elements differ"),
    ];
    copies_out_of_stream_order: CopiesLeaveTheirStream => [
        ("stream::writes_and_launches_alternate_in_order", "elements differ"),
        ("lifetime::a_buffer_freed_under_work_holds_until_it_ends", "of long_running"),
    ];
    fills_in_the_wrong_byte_order: FillsSwapBytes => [
        ("copy_fill::fills_keep_byte_order", "U16(4660)"),
        ("copy_fill::fills_with_four_byte_patterns", "elements differ"),
    ];
    fills_that_touch_their_neighbors: FillsRoundUpToWords => [
        ("copy_fill::fills_with_bytes", "3 elements differ"),
    ];
    bad_images_that_load: BadImagesLoad => [
        ("module::malformed_images_are_refused", "an empty image"),
        ("module::foreign_images_are_refused", "x86-64"),
    ];
    names_that_end_at_nul: NamesEndAtNul => [
        ("module::missing_kernels_are_not_found", "expected KernelNotFound"),
    ];
    kernels_that_resolve_anew: KernelsResolveAnew => [
        ("module::a_kernel_resolves_to_the_same_id", "the kernel"),
        ("threads::threads_load_and_resolve_at_once", "the shared kernel"),
    ];
    double_unloads_that_succeed: DoubleUnloadsSucceed => [
        ("module::unloading_an_unknown_module_is_refused", "unload of unknown module"),
    ];
    misreported_offsets: OffsetsAreMisreported => [
        ("kernel_signature::parameters_lie_at_the_right_offsets", "offsets of vector_add"),
    ];
    swapped_arguments: ArgumentsAreSwapped => [
        ("arguments::arguments_keep_their_order", "value 5, length 20"),
        ("arguments::scalars_arrive_bit_for_bit", "elements differ"),
    ];
    bound_buffers_that_lose_their_offset: BoundBuffersBeginAtTheirStart => [
        ("launch::bound_buffers_begin_where_told", "elements differ"),
    ];
    dropped_shared_memory: DynamicSharedMemoryIsDropped => [
        ("launch::dynamic_shared_memory_is_there", "unexpected DeviceLost"),
    ];
    grids_that_are_cut_short: GridsLoseTheirLastLayer => [
        ("launch::grids_cover_three_axes", "grid [1, 1, 5]"),
        ("launch::grids_reach_far_on_each_axis", "elements differ"),
    ];
    dropped_launches: EveryThousandthLaunchIsDropped => [
        ("launch::ten_thousand_launches_run_in_order", "is 9990, expected 10000"),
    ];
    launches_that_wait: LaunchesWait => [
        ("wait::sync_times_out_and_the_work_goes_on", "waited for the work"),
    ];
    a_default_stream_that_can_be_destroyed: DefaultStreamIsDestroyed => [
        ("stream::destroying_the_default_stream_is_refused", "expected InvalidArgument"),
    ];
    timeouts_that_are_ignored: TimeoutsAreIgnored => [
        ("wait::sync_times_out_and_the_work_goes_on", "waited for the work"),
    ];
    timeouts_that_come_at_once: TimeoutsAreZero => [
        ("wait::sync_times_out_and_the_work_goes_on", "a wait of 600s timed out"),
        ("wait::sync_stream_times_out_and_the_work_goes_on", "a wait of 600s timed out"),
        ("wait::sync_event_times_out_and_the_work_goes_on", "a wait of 600s timed out"),
    ];
    a_poll_that_is_always_true: PollIsAlwaysTrue => [
        ("wait::poll_tells_when_nothing_is_outstanding", "poll said that all work had ended"),
    ];
    events_that_complete_early: EventsCompleteEarly => [
        ("event::an_event_is_complete_only_after_its_work", "of long_running"),
        ("event::an_event_is_pending_then_complete", "looked complete at once"),
    ];
    events_that_are_not_waited_for: EventsAreNotWaitedFor => [
        ("event::a_stream_waits_for_an_event_of_another", "of long_running"),
    ];
    time_without_a_direction: ElapsedTimeHasNoDirection => [
        ("event::time_adds_up", "back to 0"),
    ];
    a_close_that_reports_nothing: CloseReportsNothing => [
        ("close::live_objects_are_reported", "live_bytes: 71002"),
        ("capacity::refusals_leave_the_counts", "buffers left at close"),
    ];
    a_close_without_a_timeout: CloseIgnoresItsTimeout => [
        ("close::close_times_out_under_work_and_can_be_repeated", "looked complete at once"),
    ];
    calls_after_close_that_succeed: CallsAfterCloseSucceed => [
        ("close::calls_after_close_are_refused", "poll"),
    ];
    a_first_loss_that_is_forgotten: LaterLossesHideTheFirst => [
        ("lost::the_first_cause_is_kept", "a later error"),
    ];
}

#[test]
fn the_control_passes_every_case_used_here() {
    let report = run(SabotagedFixture::new(Sabotage::None), CASES);
    assert_eq!(report.failed, []);
    assert_eq!(report.unsupported, []);
    let mut cases = CASES.to_vec();
    cases.sort_unstable();
    cases.dedup();
    assert_eq!(report.passed.len(), cases.len());
}

#[test]
fn a_hanging_case_fails_and_the_run_goes_on() {
    let mut fixture = SabotagedFixture::new(Sabotage::SyncHangs);
    fixture.case_limit = Duration::from_millis(300);
    let cases = [
        "memory::trim_leaves_nothing_to_trim",
        "module::a_kernel_resolves_to_the_same_id",
    ];
    let report = run(fixture, &cases);
    assert_eq!(
        report.failed,
        [(cases[0], "did not end within 300ms".to_owned())]
    );
    assert_eq!(report.passed, [cases[1]]);
}

#[test]
fn a_panicking_backend_fails_the_case() {
    let case = "memory::trim_leaves_nothing_to_trim";
    let report = run(SabotagedFixture::new(Sabotage::SyncPanics), &[case]);
    assert_eq!(
        report.failed,
        [(case, "panicked: the driver gave up".to_owned())]
    );
}

#[test]
fn an_expected_failure_is_reported_and_an_unexpected_pass_fails() {
    let failing = "copy_fill::fills_keep_byte_order";
    let passing = "copy_fill::fills_with_bytes";
    let mut fixture = SabotagedFixture::new(Sabotage::FillsSwapBytes);
    fixture.expected_failures = &[
        ("copy_fill::fills_keep_byte_order", "the bytes are swapped"),
        ("copy_fill::fills_with_bytes", "nothing of the kind"),
    ];
    let report = run(fixture, &[failing, passing]);
    let reason = "fails as expected: the bytes are swapped".to_owned();
    assert_eq!(report.unsupported, [(failing, reason)]);
    let message = "passed, but the fixture expects a failure: nothing of the kind".to_owned();
    assert_eq!(report.failed, [(passing, message)]);
}

#[test]
fn an_unsupported_case_is_not_run_and_says_why() {
    let mut fixture = SabotagedFixture::new(Sabotage::SyncPanics);
    fixture.unsupported = &[("memory::trim_leaves_nothing_to_trim", "by its nature")];
    let report = run(fixture, &["memory::trim_leaves_nothing_to_trim"]);
    let reason = "by its nature".to_owned();
    assert_eq!(
        report.unsupported,
        [("memory::trim_leaves_nothing_to_trim", reason)]
    );
    assert_eq!(report.failed, []);
}

#[test]
fn lists_that_name_an_unknown_case_fail() {
    let lists = "fixture::lists_name_known_cases";
    let mut fixture = SabotagedFixture::new(Sabotage::None);
    fixture.unsupported = &[("memory::no_such_case", "x")];
    let report = run(fixture, &[lists]);
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert!(
        report.failed[0].1.contains("memory::no_such_case"),
        "{report:?}"
    );

    let mut fixture = SabotagedFixture::new(Sabotage::None);
    fixture.expected_failures = &[("memory::ids_are_not_reused", " ")];
    let report = run(fixture, &[lists]);
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert!(
        report.failed[0].1.contains("without a reason"),
        "{report:?}"
    );
}
