//! A device that is lost, where the target can lose it.

use grafos_std::FabricError;
use grafos_std::error::ErrorKind;

use crate::target::{Must, Target, Unsupported, download, image, refused, upload};

crate::cases!("lost":
    a_lost_device_stays_lost_and_a_new_lease_works,
);

fn a_lost_device_stays_lost_and_a_new_lease_works(target: &Target) -> Result<(), Unsupported> {
    let Some(mock) = &target.mock else {
        return Unsupported::because("the target has no way to lose its device and go on");
    };
    let (lease, session) = target.session();
    let data = upload(&session, &[1u32; 4]);
    let module = session.module_load(image("fill")).must();
    mock.faults().lose_device_now(0, "cable pulled", false);
    let first = refused(session.sync());
    match &first {
        FabricError::DeviceLost(fault) => {
            assert_eq!(fault.reason, "cable pulled");
            assert!(!fault.needs_process_restart);
        }
        other => panic!("{other:?}"),
    }
    for answer in [
        session.mem_write(&data, 0, &[0]),
        session.mem_alloc(4).map(drop),
        session.kernel(&module, "fill").map(drop),
        session.sync(),
    ] {
        assert_eq!(refused(answer), first);
    }
    assert_eq!(
        refused(session.mem_free(data)).kind(),
        ErrorKind::DeviceLost
    );
    drop((module, session, lease));
    let (_lease, session) = target.session();
    let data = upload(&session, &[8u32; 4]);
    assert_eq!(download::<u32>(&session, &data), [8; 4]);
    Ok(())
}
