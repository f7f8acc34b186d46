//! Dominator trees, found by iteration in reverse postorder.

/// Steps that finding one tree may take; compiled code takes a few per block.
const MAX_STEPS: usize = 1 << 24;

const NONE: usize = usize::MAX;

/// The dominator tree of a graph whose first node is the entry.
#[derive(Default)]
pub(super) struct Dominators {
    /// Position in reverse postorder; none for nodes that are not reached.
    order: Vec<usize>,
    parents: Vec<usize>,
    /// When a walk over the tree enters and leaves each node.
    spans: Vec<(usize, usize)>,
}

impl Dominators {
    /// None where the graph takes too many steps.
    pub(super) fn new(successors: &[Vec<usize>], predecessors: &[Vec<usize>]) -> Option<Self> {
        let count = successors.len();
        let sequence = reverse_postorder(successors);
        let mut order = vec![NONE; count];
        for (rank, &node) in sequence.iter().enumerate() {
            order[node] = rank;
        }
        let mut parents = vec![NONE; count];
        if let Some(entry) = parents.first_mut() {
            *entry = 0;
        }
        let mut steps = 0;
        let mut changed = true;
        while changed {
            changed = false;
            for &node in sequence.iter().skip(1) {
                let mut best = NONE;
                for &from in &predecessors[node] {
                    steps += 1;
                    if parents[from] == NONE {
                        continue;
                    }
                    if best == NONE {
                        best = from;
                        continue;
                    }
                    let mut other = from;
                    while best != other {
                        steps += 1;
                        if order[best] > order[other] {
                            best = parents[best];
                        } else {
                            other = parents[other];
                        }
                    }
                }
                if steps > MAX_STEPS {
                    return None;
                }
                if parents[node] != best {
                    parents[node] = best;
                    changed = true;
                }
            }
        }
        let spans = spans(&parents, &sequence);
        Some(Self {
            order,
            parents,
            spans,
        })
    }

    pub(super) fn reaches(&self, node: usize) -> bool {
        self.order[node] != NONE
    }

    /// A node's rank in reverse postorder.
    pub(super) fn rank(&self, node: usize) -> usize {
        self.order[node]
    }

    /// The immediate dominator; none for the entry and for nodes that are not reached.
    pub(super) fn parent(&self, node: usize) -> Option<usize> {
        Some(self.parents[node]).filter(|parent| *parent != NONE && node != 0)
    }

    /// Whether every path to `node` goes through `by`; true where there is none.
    pub(super) fn dominates(&self, by: usize, node: usize) -> bool {
        if !self.reaches(node) {
            return true;
        }
        if !self.reaches(by) {
            return false;
        }
        let ((outer_in, outer_out), (inner_in, inner_out)) = (self.spans[by], self.spans[node]);
        outer_in <= inner_in && inner_out <= outer_out
    }
}

fn reverse_postorder(successors: &[Vec<usize>]) -> Vec<usize> {
    let mut sequence = Vec::with_capacity(successors.len());
    let mut seen = vec![false; successors.len()];
    let mut stack = Vec::new();
    if let Some(first) = seen.first_mut() {
        *first = true;
        stack.push((0, 0));
    }
    while let Some((node, next)) = stack.pop() {
        match successors[node].get(next) {
            Some(&target) => {
                stack.push((node, next + 1));
                if !seen[target] {
                    seen[target] = true;
                    stack.push((target, 0));
                }
            }
            None => sequence.push(node),
        }
    }
    sequence.reverse();
    sequence
}

fn spans(parents: &[usize], sequence: &[usize]) -> Vec<(usize, usize)> {
    let mut children = vec![Vec::new(); parents.len()];
    for &node in sequence.iter().skip(1) {
        children[parents[node]].push(node);
    }
    let mut spans = vec![(0, 0); parents.len()];
    let mut clock = 0;
    let mut stack: Vec<(usize, usize)> = sequence
        .first()
        .map(|&root| (root, 0))
        .into_iter()
        .collect();
    while let Some((node, next)) = stack.pop() {
        if next == 0 {
            spans[node].0 = clock;
            clock += 1;
        }
        match children[node].get(next) {
            Some(&child) => {
                stack.push((node, next + 1));
                stack.push((child, 0));
            }
            None => {
                spans[node].1 = clock;
                clock += 1;
            }
        }
    }
    spans
}
