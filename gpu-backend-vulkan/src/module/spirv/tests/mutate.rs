//! Damaged copies of modules, the same ones on every run.

/// Marsaglia's 64-bit xorshift, multiplied: small, seeded, good enough to pick places.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
}

/// A damaged copy of `words`: one to three changes.
pub(crate) fn mutate(words: &[u32], random: &mut Random) -> Vec<u8> {
    let mut header = words[..5].to_vec();
    let mut instructions = split(&words[5..]);
    for _ in 0..=random.below(3) {
        change(&mut header, &mut instructions, random);
    }
    let all = header.iter().chain(instructions.iter().flatten());
    let mut bytes: Vec<u8> = all.flat_map(|word| word.to_le_bytes()).collect();
    if random.below(50) == 0 {
        let keep = random.below(bytes.len() + 1);
        bytes.truncate(keep);
    }
    bytes
}

fn split(mut words: &[u32]) -> Vec<Vec<u32>> {
    let mut instructions = Vec::new();
    while let Some(first) = words.first() {
        let (one, rest) = words.split_at((first >> 16) as usize);
        instructions.push(one.to_vec());
        words = rest;
    }
    instructions
}

fn change(header: &mut [u32], instructions: &mut Vec<Vec<u32>>, random: &mut Random) {
    if instructions.is_empty() {
        return;
    }
    let bound = header[3] as usize;
    // Every other change is in the functions, where most rules look.
    let bodies = instructions
        .iter()
        .position(|one| one[0] & 0xffff == 54)
        .unwrap_or(0);
    let first = bodies.min(instructions.len() - 1) * random.below(2);
    let at = first + random.below(instructions.len() - first);
    let other = random.below(instructions.len());
    let place = random.below(instructions[at].len());
    let operand = instructions[at]
        .len()
        .min(1 + random.below(instructions[at].len()));
    match random.below(16) {
        0 => instructions[at][place] ^= 1 << random.below(32),
        1 => instructions[at][place] = random.next() as u32,
        2 => {
            instructions.remove(at);
        }
        3 => {
            let copy = instructions[at].clone();
            instructions.insert(other, copy);
        }
        4 => instructions.swap(at, other),
        5 => {
            let moved = instructions.remove(at);
            instructions.insert(other.min(instructions.len()), moved);
        }
        6 => {
            let from = random.below(instructions[other].len());
            instructions[at][place] = instructions[other][from];
        }
        7 => {
            instructions[at].truncate(operand);
            fix_count(&mut instructions[at]);
        }
        8 => {
            let word = random.below(bound.max(1)) as u32;
            instructions[at].insert(operand, word);
            fix_count(&mut instructions[at]);
        }
        9 => header[random.below(5)] ^= 1 << random.below(32),
        10 => {
            // Another opcode that is in the module.
            instructions[at][0] =
                instructions[at][0] & 0xffff_0000 | instructions[other][0] & 0xffff;
        }
        11 => {
            let opcode = random.below(500) as u32;
            instructions[at][0] = instructions[at][0] & 0xffff_0000 | opcode;
        }
        12 => {
            if let Some(word) = instructions[at].get_mut(operand) {
                *word = word.wrapping_add(random.below(5) as u32).wrapping_sub(2);
            }
        }
        _ => {
            if let Some(word) = instructions[at].get_mut(operand) {
                *word = random.below(bound.max(1)) as u32;
            }
        }
    }
}

fn fix_count(instruction: &mut [u32]) {
    instruction[0] = instruction[0] & 0xffff | (instruction.len() as u32) << 16;
}
