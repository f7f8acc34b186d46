//! A lease request as it travels: type, length, value.

use alloc::vec::Vec;

use grafos_host_abi::wire;

use super::super::request::LeaseRequest;
use crate::affinity::{Affinity, Strength, Target};

/// Encodes what a builder asked for. What it left open is left out.
pub(super) fn encode(request: &LeaseRequest) -> Vec<u8> {
    let mut out = Vec::new();
    if request.min_vram > 0 {
        push(
            &mut out,
            wire::TLV_LEASE_MIN_VRAM,
            &request.min_vram.to_le_bytes(),
        );
    }
    if let Some(max) = request.max_vram {
        push(&mut out, wire::TLV_LEASE_MAX_VRAM, &max.to_le_bytes());
    }
    push(
        &mut out,
        wire::TLV_LEASE_GPU_EXCLUSIVITY,
        &[request.class as u8],
    );
    for affinity in &request.affinities {
        push(
            &mut out,
            wire::TLV_LEASE_AFFINITY,
            &encode_affinity(affinity),
        );
    }
    out
}

fn encode_affinity(affinity: &Affinity) -> Vec<u8> {
    let strength = match affinity.strength() {
        Strength::Preferred => 0,
        Strength::Required => 1,
    };
    let mut value = alloc::vec![strength, u8::from(affinity.is_anti())];
    match affinity.target() {
        Target::Lease(id) => {
            value.push(0);
            value.extend_from_slice(&id.to_le_bytes());
        }
        Target::Device(text) => {
            value.push(1);
            value.extend_from_slice(text.as_bytes());
        }
        Target::Vendor(vendor) => {
            value.push(2);
            value.extend_from_slice(&vendor.id().to_le_bytes());
        }
        Target::NumaNode(node) => {
            value.push(3);
            value.extend_from_slice(&node.to_le_bytes());
        }
    }
    value
}

/// A value longer than 65,535 bytes is cut: no device's name is that long.
fn push(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&value[..usize::from(len)]);
}
