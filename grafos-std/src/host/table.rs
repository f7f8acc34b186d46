//! Who holds what of which card: a state machine without a clock, a thread or a driver.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::gpu::GpuExclusivityClass;

/// The claims of all live leases of a host.
#[derive(Debug, Default)]
pub(super) struct LeaseTable {
    cards: Vec<CardLedger>,
    leases: BTreeMap<u128, Claim>,
}

/// What the leases of one card hold together.
#[derive(Debug, Default)]
struct CardLedger {
    capacity_bytes: u64,
    used_bytes: u64,
    /// How many leases of each class, in the order of the enum.
    live_by_class: [u64; 4],
}

/// What one lease holds.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    /// The card, as [`LeaseTable::add_card`] numbered it.
    pub(super) card: usize,
    /// How it shares the card.
    pub(super) class: GpuExclusivityClass,
    /// Memory kept for it, in bytes.
    pub(super) reserved_bytes: u64,
    /// The most it may allocate, in bytes.
    pub(super) max_bytes: Option<u64>,
    /// What it has allocated, in bytes.
    pub(super) allocated_bytes: u64,
}

impl Claim {
    fn used_bytes(&self) -> u64 {
        self.reserved_bytes.max(self.allocated_bytes)
    }
}

/// Why a card cannot take a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Too little memory is left.
    Memory {
        /// What is left, in bytes.
        free_bytes: u64,
    },
    /// Another lease excludes this one.
    Held {
        /// A lease that does.
        lease_id: u128,
        /// Its class.
        class: GpuExclusivityClass,
    },
}

/// Why an allocation cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChargeRefusal {
    /// The lease's own quota.
    Quota { available_bytes: u64 },
    /// The card's memory, less what other leases hold.
    Memory { available_bytes: u64 },
    /// The lease has ended.
    Ended,
}

/// The memory that a lease can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
}

impl LeaseTable {
    /// Adds a card with its memory and gives it the next number, from 0.
    pub(super) fn add_card(&mut self, capacity_bytes: u64) {
        self.cards.push(CardLedger {
            capacity_bytes,
            ..CardLedger::default()
        });
    }

    /// What no lease holds of a card, in bytes.
    pub(super) fn free_bytes(&self, card: usize) -> u64 {
        let ledger = &self.cards[card];
        ledger.capacity_bytes.saturating_sub(ledger.used_bytes)
    }

    /// How many leases hold a card.
    pub(super) fn live_leases(&self, card: usize) -> u64 {
        self.cards[card]
            .live_by_class
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Tells whether a card could take a lease.
    pub(super) fn admits(
        &self,
        card: usize,
        class: GpuExclusivityClass,
        reserve_bytes: u64,
    ) -> Result<(), Refusal> {
        if let Some((lease_id, class)) = self.excluding(card, class) {
            return Err(Refusal::Held { lease_id, class });
        }
        let free_bytes = self.free_bytes(card);
        if reserve_bytes > free_bytes {
            return Err(Refusal::Memory { free_bytes });
        }
        Ok(())
    }

    /// Finds a lease of the card that cannot stand beside one of `class`: shared stands beside
    /// shared, and leases that are exclusive per session stand beside each other.
    ///
    /// The leases are searched only when the counts say that there is one to be named.
    fn excluding(
        &self,
        card: usize,
        class: GpuExclusivityClass,
    ) -> Option<(u128, GpuExclusivityClass)> {
        use GpuExclusivityClass::{SessionExclusive, Shared};
        let beside = match class {
            Shared | SessionExclusive => self.cards[card].live_by_class[class as usize],
            _ => 0,
        };
        if self.live_leases(card) == beside {
            return None;
        }
        self.leases
            .iter()
            .filter(|(_, claim)| claim.card == card)
            .map(|(id, claim)| (*id, claim.class))
            .find(|(_, held)| beside == 0 || *held != class)
    }

    /// Records a lease that [`admits`](Self::admits) let in.
    pub(super) fn insert(&mut self, lease_id: u128, claim: Claim) {
        let ledger = &mut self.cards[claim.card];
        ledger.used_bytes = ledger.used_bytes.saturating_add(claim.used_bytes());
        let count = &mut ledger.live_by_class[claim.class as usize];
        *count = count.saturating_add(1);
        self.leases.insert(lease_id, claim);
    }

    /// Offers a lease's share of its card again.
    pub(super) fn remove(&mut self, lease_id: u128) {
        if let Some(claim) = self.leases.remove(&lease_id) {
            let ledger = &mut self.cards[claim.card];
            ledger.used_bytes = ledger.used_bytes.saturating_sub(claim.used_bytes());
            let count = &mut ledger.live_by_class[claim.class as usize];
            *count = count.saturating_sub(1);
        }
    }

    /// The card that a lease holds.
    pub(super) fn card_of(&self, lease_id: u128) -> Option<usize> {
        self.leases.get(&lease_id).map(|claim| claim.card)
    }

    /// What a lease has reserved and allocated, in bytes.
    pub(super) fn holdings(&self, lease_id: u128) -> (u64, u64) {
        self.leases.get(&lease_id).map_or((0, 0), |claim| {
            (claim.reserved_bytes, claim.allocated_bytes)
        })
    }

    /// Counts an allocation against the lease's quota and the card's memory.
    pub(super) fn charge(&mut self, lease_id: u128, bytes: u64) -> Result<(), ChargeRefusal> {
        let claim = self.leases.get_mut(&lease_id).ok_or(ChargeRefusal::Ended)?;
        let ledger = &mut self.cards[claim.card];
        let quota = claim
            .max_bytes
            .unwrap_or(u64::MAX)
            .saturating_sub(claim.allocated_bytes);
        if bytes > quota {
            return Err(ChargeRefusal::Quota {
                available_bytes: quota,
            });
        }
        let unused_reservation = claim.reserved_bytes.saturating_sub(claim.allocated_bytes);
        let card_free = ledger.capacity_bytes.saturating_sub(ledger.used_bytes);
        let available_bytes = card_free.saturating_add(unused_reservation);
        if bytes > available_bytes {
            return Err(ChargeRefusal::Memory { available_bytes });
        }
        let before = claim.used_bytes();
        // At most `available_bytes` more, which counts memory that exists.
        claim.allocated_bytes = claim.allocated_bytes.saturating_add(bytes);
        ledger.used_bytes = ledger
            .used_bytes
            .saturating_add(claim.used_bytes() - before);
        Ok(())
    }

    /// Takes an allocation off again.
    pub(super) fn refund(&mut self, lease_id: u128, bytes: u64) {
        if let Some(claim) = self.leases.get_mut(&lease_id) {
            let before = claim.used_bytes();
            claim.allocated_bytes = claim.allocated_bytes.saturating_sub(bytes);
            let ledger = &mut self.cards[claim.card];
            ledger.used_bytes = ledger
                .used_bytes
                .saturating_sub(before - claim.used_bytes());
        }
    }

    /// The memory that a lease can use: its quota or the card, less what others hold.
    pub(super) fn budget(&self, lease_id: u128) -> Option<Budget> {
        let claim = self.leases.get(&lease_id)?;
        let ledger = &self.cards[claim.card];
        let others = ledger.used_bytes.saturating_sub(claim.used_bytes());
        let card_total = ledger.capacity_bytes.saturating_sub(others);
        let total_bytes = card_total.min(claim.max_bytes.unwrap_or(u64::MAX));
        Some(Budget {
            total_bytes,
            free_bytes: total_bytes.saturating_sub(claim.allocated_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use GpuExclusivityClass::{DeviceExclusive, SessionExclusive, Shared};

    fn claim(class: GpuExclusivityClass, reserved_bytes: u64, max_bytes: Option<u64>) -> Claim {
        Claim {
            card: 0,
            class,
            reserved_bytes,
            max_bytes,
            allocated_bytes: 0,
        }
    }

    fn table(capacity_bytes: u64) -> LeaseTable {
        let mut table = LeaseTable::default();
        table.add_card(capacity_bytes);
        table
    }

    #[test]
    fn classes_stand_beside_their_own_kind_only() {
        let classes = [Shared, SessionExclusive, DeviceExclusive];
        for (first, class) in classes.into_iter().enumerate() {
            let mut table = table(100);
            table.insert(7, claim(class, 0, None));
            for (second, other) in classes.into_iter().enumerate() {
                let beside = first == second && class != DeviceExclusive;
                let expected = if beside {
                    Ok(())
                } else {
                    Err(Refusal::Held { lease_id: 7, class })
                };
                assert_eq!(
                    table.admits(0, other, 0),
                    expected,
                    "{class:?} then {other:?}"
                );
            }
            table.remove(7);
            assert_eq!(table.admits(0, DeviceExclusive, 100), Ok(()));
        }
    }

    #[test]
    fn reservations_and_quotas_hold() {
        let mut table = table(100);
        table.insert(1, claim(Shared, 60, None));
        table.insert(2, claim(Shared, 0, Some(30)));
        assert_eq!(
            table.admits(0, Shared, 41),
            Err(Refusal::Memory { free_bytes: 40 })
        );
        assert_eq!(
            table.charge(2, 31),
            Err(ChargeRefusal::Quota {
                available_bytes: 30
            })
        );
        assert_eq!(table.charge(2, 30), Ok(()));
        assert_eq!(
            table.charge(1, 71),
            Err(ChargeRefusal::Memory {
                available_bytes: 70
            })
        );
        assert_eq!(table.charge(1, 70), Ok(()));
        assert_eq!(table.free_bytes(0), 0);
        table.refund(1, 70);
        assert_eq!(table.free_bytes(0), 10);
        assert_eq!(
            table.budget(1),
            Some(Budget {
                total_bytes: 70,
                free_bytes: 70
            })
        );
        assert_eq!(
            table.budget(2),
            Some(Budget {
                total_bytes: 30,
                free_bytes: 0
            })
        );
        table.remove(1);
        table.remove(2);
        assert_eq!((table.free_bytes(0), table.live_leases(0)), (100, 0));
        assert_eq!(table.charge(1, 1), Err(ChargeRefusal::Ended));
    }

    #[test]
    fn impossible_sizes_change_nothing() {
        let mut table = table(100);
        table.insert(1, claim(Shared, 0, None));
        assert_eq!(
            table.charge(1, u64::MAX),
            Err(ChargeRefusal::Memory {
                available_bytes: 100
            })
        );
        table.refund(1, u64::MAX);
        assert_eq!(
            table.budget(1),
            Some(Budget {
                total_bytes: 100,
                free_bytes: 100
            })
        );
    }

    proptest! {
        /// The incremental sums equal sums made anew, whatever happens, and memory is never
        /// promised twice.
        #[test]
        fn ledgers_agree_with_a_plain_sum(
            steps in prop::collection::vec((0u8..4, 0u128..6, 0u64..80), 0..200),
        ) {
            let mut table = table(200);
            for (action, lease_id, bytes) in steps {
                match action {
                    0 => {
                        let unknown = !table.leases.contains_key(&lease_id);
                        if unknown && table.admits(0, Shared, bytes).is_ok() {
                            let max = (bytes % 2 == 0).then_some(bytes * 2);
                            table.insert(lease_id, claim(Shared, bytes, max));
                        }
                    }
                    1 => table.remove(lease_id),
                    2 => { let _ = table.charge(lease_id, bytes); }
                    _ => table.refund(lease_id, bytes),
                }
                let used: u64 = table.leases.values().map(Claim::used_bytes).sum();
                prop_assert_eq!(table.cards[0].used_bytes, used);
                prop_assert!(used <= 200);
                prop_assert_eq!(table.live_leases(0), table.leases.len() as u64);
                for claim in table.leases.values() {
                    prop_assert!(claim.allocated_bytes <= claim.max_bytes.unwrap_or(u64::MAX));
                }
            }
        }
    }
}
