//! Tests of the checker: modules that must pass, modules that must not, and why.

mod builder;
mod mutate;
mod reflection;
mod rules;

use super::{SpirvError, SpirvModule};
use builder::good;
use mutate::{Random, mutate};

#[test]
fn the_hand_made_module_is_accepted() {
    let module = SpirvModule::parse(&good().bytes()).expect("it is a good module");
    assert_eq!(module.version, (1, 3));
    assert_eq!(module.words, good().words());
    assert_eq!(module.capabilities, [spirv::Capability::Shader]);
}

#[test]
fn every_shipped_image_is_accepted() {
    for kernel in grafos_kernels::all() {
        let module = SpirvModule::parse(kernel.spirv);
        let module = module.unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
        assert!(
            module.entry(kernel.name).is_some(),
            "{} has no such entry point",
            kernel.name
        );
    }
}

#[test]
fn the_other_byte_order_reads_the_same() {
    let swapped: Vec<u8> = good()
        .words()
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    assert_eq!(
        SpirvModule::parse(&swapped),
        SpirvModule::parse(&good().bytes())
    );
}

#[test]
fn lengths_are_checked() {
    for len_bytes in [0, 1, 19, 21, 22, 23] {
        let bytes = &good().bytes()[..len_bytes];
        match SpirvModule::parse(bytes) {
            Err(SpirvError::Size {
                len_bytes: found, ..
            }) => assert_eq!(found, len_bytes),
            other => panic!("{len_bytes} bytes: {other:?}"),
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = good().bytes();
    for len_bytes in 0..bytes.len() {
        let found = SpirvModule::parse(&bytes[..len_bytes]);
        // Whole functions may be cut off the end only where nothing calls them.
        assert!(found.is_err(), "{len_bytes} of {} bytes", bytes.len());
    }
}

#[test]
fn headers_are_checked() {
    let with = |word: usize, value: u32| {
        let mut module = good();
        module.header[word] = value;
        SpirvModule::parse(&module.bytes()).expect_err("a bad header")
    };
    assert_eq!(
        with(0, 0x464c_457f),
        SpirvError::Magic { word: 0x464c_457f }
    );
    for (word, major, minor) in [
        (0x0001_0700, 1, 7),
        (0x0002_0000, 2, 0),
        (0x0000_0500, 0, 5),
    ] {
        let (oldest, newest) = ("1.0".to_owned(), "1.6".to_owned());
        assert_eq!(
            with(1, word),
            SpirvError::Version {
                word,
                major,
                minor,
                oldest,
                newest
            }
        );
    }
    assert_eq!(
        with(3, 0),
        SpirvError::Bound {
            bound: 0,
            limit: 0x3f_ffff
        }
    );
    assert_eq!(
        with(3, 0x40_0000),
        SpirvError::Bound {
            bound: 0x40_0000,
            limit: 0x3f_ffff
        }
    );
    assert_eq!(with(4, 1), SpirvError::Schema { schema: 1 });
}

#[test]
fn errors_say_what_and_where() {
    let mut module = good();
    module.header[1] = 0x0001_0900;
    assert_eq!(
        SpirvModule::parse(&module.bytes())
            .expect_err("a future version")
            .to_string(),
        "version 1.9 (word 0x00010900), versions 1.0 to 1.6 are supported"
    );
    let mut module = good();
    module.set(spirv::Op::IAdd, 0, 2, builder::id::FLOAT_ONE);
    assert_eq!(
        SpirvModule::parse(&module.bytes())
            .expect_err("a float")
            .to_string(),
        "instruction 80 (OpIAdd) id %16: operand types must agree: like integers"
    );
    let mut module = good();
    module.remove(spirv::Op::MemoryModel, 0);
    assert_eq!(
        SpirvModule::parse(&module.bytes())
            .expect_err("a part is missing")
            .to_string(),
        "the module has no OpMemoryModel"
    );
}

/// Damage is an error or leaves a module; it is never a panic, and never takes long: the checker
/// has no recursion and no loop that is not bounded, and each mutant must end for this to end.
#[test]
fn mutants_never_panic() {
    let mut seeds: Vec<Vec<u32>> = vec![good().words()];
    for kernel in grafos_kernels::all() {
        let (words, _) = kernel.spirv.as_chunks::<4>();
        seeds.push(words.iter().map(|word| u32::from_le_bytes(*word)).collect());
    }
    let parse = |bytes: &[u8]| std::panic::catch_unwind(|| SpirvModule::parse(bytes));
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..10_000 {
        let mutant = mutate(&seeds[seed % seeds.len()], &mut Random::new(seed as u64));
        match parse(&mutant) {
            Ok(Ok(_)) => accepted += 1,
            Ok(Err(SpirvError::Decode { reason, .. })) => {
                // The net under the parser must not be what catches it.
                assert_ne!(reason, "the parser gave up on it", "mutant {seed}");
                refused += 1;
            }
            Ok(Err(_)) => refused += 1,
            Err(_) => panic!("mutant {seed} made the checker panic"),
        }
    }
    assert_eq!(accepted + refused, 10_000);
    // Most damage shows; some only changes a name or a number.
    assert!(refused > 8_000, "{refused} refused");
    assert!(accepted > 50, "{accepted} accepted");
}
