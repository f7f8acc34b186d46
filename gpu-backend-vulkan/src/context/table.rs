//! Objects by id, where an id is never used twice.

/// A table whose ids are a slot and how often the slot was used before.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Table<T> {
    /// Adds what `make` makes of its id. The first id of a table is 0.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u64) -> T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            // Four billion live objects do not fit into memory.
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        let id = u64::from(entry.generation) << 32 | u64::from(slot);
        entry.value = Some(make(id));
        self.len += 1;
        id
    }

    /// Adds a value.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        self.insert_with(|_| value)
    }

    /// Finds a live object.
    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        let slot = self.slots.get(id as u32 as usize)?;
        if u64::from(slot.generation) == id >> 32 {
            slot.value.as_ref()
        } else {
            None
        }
    }

    /// Takes a live object out.
    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        if u64::from(slot.generation) != id >> 32 {
            return None;
        }
        let value = slot.value.take()?;
        self.len -= 1;
        // A slot whose generations are used up is left out for good.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(id as u32);
        }
        Some(value)
    }

    /// Counts the live objects.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Goes through the live objects.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_never_used_twice() {
        let mut table = Table::default();
        let mut seen = HashSet::new();
        for round in 0..100u32 {
            let a = table.insert(round);
            let b = table.insert_with(|id| id as u32);
            assert!(seen.insert(a));
            assert!(seen.insert(b));
            assert_eq!(table.get(a), Some(&round));
            assert_eq!(table.get(b), Some(&(b as u32)));
            assert_eq!(table.remove(a), Some(round));
            assert_eq!(table.remove(a), None);
            assert_eq!(table.get(a), None);
            if round % 2 == 0 {
                table.remove(b);
            }
        }
        assert_eq!(table.len(), 50);
        assert_eq!(table.values().count(), 50);
    }

    #[test]
    fn foreign_ids_are_unknown() {
        let mut table = Table::default();
        assert_eq!(table.insert('x'), 0);
        for id in [1, 1 << 32, u64::MAX] {
            assert_eq!(table.get(id), None, "{id}");
            assert_eq!(table.remove(id), None, "{id}");
        }
        assert_eq!(table.get(0), Some(&'x'));
    }

    #[test]
    fn a_slot_without_generations_is_left_out() {
        let mut table = Table::default();
        table.insert('a');
        table.slots[0].generation = u32::MAX;
        let last = u64::from(u32::MAX) << 32;
        assert_eq!(table.remove(last), Some('a'));
        assert_eq!(table.insert('b'), 1);
    }
}
