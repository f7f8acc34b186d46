//! Structured control flow: constructs are entered by their headers and left by their exits.

use spirv::Op;

use super::super::{Checked, Module, Rule};
use super::{Block, Dominators, Graph, Merge};

/// Constructs within constructs; drivers walk them recursively.
const MAX_NESTING: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Selection,
    Switch,
    Loop,
    /// The part of a loop from its continue target to its back edge.
    Continue,
}

struct Construct {
    kind: Kind,
    header: usize,
    merge: usize,
    continues: usize,
    parent: Option<usize>,
    depth: u32,
}

/// How a branch leaves or stays within a construct.
#[derive(PartialEq, Eq)]
enum Exit {
    Within,
    Out,
    Illegal,
}

struct Constructs {
    all: Vec<Construct>,
    /// The construct each block stands in, not counting one that it heads.
    around: Vec<Option<usize>>,
    /// The construct each block heads.
    headed: Vec<Option<usize>>,
}

impl Graph {
    /// Requires what drivers build loops and branches from.
    pub(in super::super) fn check_structure(
        &self,
        module: &Module<'_>,
        blocks: &[Block],
    ) -> Checked {
        let mut successors = self.successors.clone();
        let mut predecessors = self.predecessors.clone();
        let mut merges: Vec<Option<(usize, Option<usize>)>> = vec![None; blocks.len()];
        for (position, block) in blocks.iter().enumerate() {
            let Some(Merge {
                block: merge,
                continues,
            }) = block.merge
            else {
                continue;
            };
            let site = module.site(block.end - 1);
            let merge = self.resolve(&site, merge)?;
            let continues = match continues {
                Some(label) => Some(self.resolve(&site, label)?),
                None => None,
            };
            merges[position] = Some((merge, continues));
            for target in std::iter::once(merge).chain(continues) {
                if !successors[position].contains(&target) {
                    successors[position].push(target);
                    predecessors[target].push(position);
                }
            }
        }
        let Some(tree) = Dominators::new(&successors, &predecessors) else {
            let site = module.site(blocks[0].start);
            return site.fail(Rule::Limit, blocks[0].label, "control flow too intricate");
        };
        self.check_merges(module, blocks, &tree, &merges)?;
        self.check_back_edges(module, blocks, &tree, &merges)?;
        let constructs = self.constructs(module, blocks, &tree, &merges)?;
        self.check_exits(module, blocks, &tree, &constructs)
    }

    fn check_merges(
        &self,
        module: &Module<'_>,
        blocks: &[Block],
        tree: &Dominators,
        merges: &[Option<(usize, Option<usize>)>],
    ) -> Checked {
        for (position, merge) in merges.iter().enumerate() {
            let Some((merge, continues)) = merge.filter(|_| tree.reaches(position)) else {
                continue;
            };
            let block = &blocks[position];
            let site = module.site(block.end - 1);
            let own = tree.parent(merge) == Some(position);
            let detail = "a merge block must be dominated by its header";
            site.require(
                own && merge != position,
                Rule::Structure,
                blocks[merge].label,
                detail,
            )?;
            if let Some(continues) = continues {
                let own = continues == position || tree.parent(continues) == Some(position);
                let detail = "a continue target must be dominated by its header";
                let fits = own && continues != merge;
                site.require(fits, Rule::Structure, blocks[continues].label, detail)?;
            }
        }
        Ok(())
    }

    fn check_back_edges(
        &self,
        module: &Module<'_>,
        blocks: &[Block],
        tree: &Dominators,
        merges: &[Option<(usize, Option<usize>)>],
    ) -> Checked {
        let mut back_edges = vec![0_u32; blocks.len()];
        for (from, targets) in self.successors.iter().enumerate() {
            if !tree.reaches(from) {
                continue;
            }
            let site = module.site(blocks[from].end - 1);
            for &to in targets {
                if tree.rank(to) > tree.rank(from) {
                    continue;
                }
                let label = blocks[to].label;
                let Some((_, Some(continues))) = merges[to] else {
                    return site.fail(Rule::Structure, label, "a branch back to no loop header");
                };
                let fits = tree.dominates(to, from) && tree.dominates(continues, from);
                let detail = "a branch back from outside the loop's continue part";
                site.require(fits, Rule::Structure, label, detail)?;
                back_edges[to] += 1;
            }
        }
        for (position, count) in back_edges.iter().enumerate() {
            let is_loop = matches!(merges[position], Some((_, Some(_))));
            if is_loop && tree.reaches(position) && *count != 1 {
                let site = module.site(blocks[position].end - 1);
                let detail = format!("{count} branches back to a loop header, 1 is expected");
                return site.fail(Rule::Structure, blocks[position].label, detail);
            }
        }
        Ok(())
    }

    fn constructs(
        &self,
        module: &Module<'_>,
        blocks: &[Block],
        tree: &Dominators,
        merges: &[Option<(usize, Option<usize>)>],
    ) -> Checked<Constructs> {
        let count = blocks.len();
        let mut found = Constructs {
            all: Vec::new(),
            around: vec![None; count],
            headed: vec![None; count],
        };
        let mut sequence: Vec<usize> = (0..count).filter(|node| tree.reaches(*node)).collect();
        // Dominators come before what they dominate.
        sequence.sort_unstable_by_key(|node| tree.rank(*node));
        for node in sequence {
            let around = match tree.parent(node) {
                None => None,
                Some(parent) => {
                    let outer = found.around[parent];
                    let inner = found.headed[parent].or(outer);
                    match merges[parent] {
                        Some((merge, _)) if merge == node => outer,
                        Some((_, Some(continues))) if continues == node => {
                            let position = found.all.len();
                            let depth = found.depth(inner) + 1;
                            let (kind, header, merge) = match inner {
                                Some(of) => (Kind::Continue, parent, found.all[of].merge),
                                None => (Kind::Continue, parent, parent),
                            };
                            let parent = inner;
                            let construct = Construct {
                                kind,
                                header,
                                merge,
                                continues: node,
                                parent,
                                depth,
                            };
                            found.all.push(construct);
                            Some(position)
                        }
                        _ => inner,
                    }
                }
            };
            found.around[node] = around;
            if let Some((merge, continues)) = merges[node] {
                let kind = match (continues, blocks[node].terminator) {
                    (Some(_), _) => Kind::Loop,
                    (None, Some(Op::Switch)) => Kind::Switch,
                    _ => Kind::Selection,
                };
                let depth = found.depth(around) + 1;
                if depth > MAX_NESTING {
                    let site = module.site(blocks[node].end - 1);
                    let detail = format!("control flow nests deeper than {MAX_NESTING}");
                    return site.fail(Rule::Limit, blocks[node].label, detail);
                }
                found.headed[node] = Some(found.all.len());
                let continues = continues.unwrap_or(merge);
                let construct = Construct {
                    kind,
                    header: node,
                    merge,
                    continues,
                    parent: around,
                    depth,
                };
                found.all.push(construct);
            }
        }
        Ok(found)
    }

    fn check_exits(
        &self,
        module: &Module<'_>,
        blocks: &[Block],
        tree: &Dominators,
        constructs: &Constructs,
    ) -> Checked {
        for (from, targets) in self.successors.iter().enumerate() {
            if !tree.reaches(from) {
                continue;
            }
            let site = module.site(blocks[from].end - 1);
            if targets.is_empty() && constructs.continues(from) {
                let detail = "a continue part that does not go back to its loop";
                return site.fail(Rule::Structure, blocks[from].label, detail);
            }
            let mut within = 0;
            for &to in targets {
                match constructs.exit(from, to, targets) {
                    Exit::Within => within += 1,
                    Exit::Out => {}
                    Exit::Illegal => {
                        let detail = "a branch out of a construct other than by its exits";
                        return site.fail(Rule::Structure, blocks[to].label, detail);
                    }
                }
            }
            if within > 1 && constructs.headed[from].is_none() {
                let detail = "a branch of several ways needs a merge instruction before it";
                return site.fail(Rule::Structure, blocks[from].label, detail);
            }
        }
        Ok(())
    }
}

impl Constructs {
    fn depth(&self, construct: Option<usize>) -> u32 {
        construct.map_or(0, |position| self.all[position].depth)
    }

    /// Whether a block is in the continue part of its nearest loop.
    fn continues(&self, block: usize) -> bool {
        let mut current = self.headed[block].or(self.around[block]);
        while let Some(construct) = current.map(|position| &self.all[position]) {
            match construct.kind {
                Kind::Continue => return true,
                Kind::Loop => return construct.continues == construct.header,
                Kind::Selection | Kind::Switch => current = construct.parent,
            }
        }
        false
    }

    fn exit(&self, from: usize, to: usize, successors: &[usize]) -> Exit {
        let inside = self.headed[from].or(self.around[from]);
        if let Some(own) = inside.map(|position| &self.all[position]) {
            let back = own.header == to && own.continues == to;
            if own.merge == to && own.kind != Kind::Continue || back {
                return Exit::Out;
            }
        }
        // The nearest loop, and a switch that is nearer than it.
        let mut current = inside;
        let mut switch_passed = false;
        while let Some(construct) = current.map(|position| &self.all[position]) {
            match construct.kind {
                Kind::Selection => {}
                Kind::Switch => {
                    if !switch_passed && construct.merge == to {
                        return Exit::Out;
                    }
                    switch_passed = true;
                }
                Kind::Loop => {
                    if [construct.merge, construct.continues].contains(&to) {
                        return Exit::Out;
                    }
                    let single = construct.continues == construct.header;
                    if single && construct.header == to {
                        return Exit::Out;
                    }
                    break;
                }
                Kind::Continue => {
                    // Only the block that branches back may leave the loop from here.
                    let returns = to == construct.header
                        || (to == construct.merge && successors.contains(&construct.header));
                    if returns {
                        return Exit::Out;
                    }
                    break;
                }
            }
            current = construct.parent;
        }
        if self.around[to] == inside {
            Exit::Within
        } else {
            Exit::Illegal
        }
    }
}
