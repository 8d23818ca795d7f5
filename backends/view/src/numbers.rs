//! The inode numbers that the kernel knows, which have 32 bits: the `ino_t` of a 32-bit program has no more.
//!
//! Inside of the view, a node has a number of 63 bits, which no other node has.

use std::collections::HashMap;

use fuse::store::{Attr, Errno, Ino, ROOT, Result};

use crate::ViewStore;

/// The first bits of a node's number are its inode number.
const BITS: u32 = 31;

/// Inode numbers from here on are given one after the other, to nodes whose first bits another node had already.
const GIVEN: Ino = 1 << BITS;

/// The inode numbers of a mount.
#[derive(Default)]
pub(super) struct Numbers {
    /// The nodes that the kernel may ask for, by inode number.
    nodes: HashMap<Ino, Ino>,
    /// The inode numbers from [`GIVEN`] on, by node. They are kept, so that a node has the same number whenever it is
    /// looked up.
    given: HashMap<Ino, Ino>,
}

impl Numbers {
    fn node(&self, ino: Ino) -> Option<Ino> {
        match ino {
            ROOT => Some(ROOT),
            ino => self.nodes.get(&ino).copied(),
        }
    }

    /// The inode number of a node.
    fn ino(&mut self, node: Ino) -> Ino {
        if node == ROOT {
            return ROOT;
        }
        if let Some(ino) = self.given.get(&node) {
            return *ino;
        }
        let ino = (node >> (63 - BITS)).max(ROOT + 1);
        if self.nodes.get(&ino).is_none_or(|other| *other == node) {
            return ino;
        }
        let ino = GIVEN + self.given.len() as Ino;
        self.given.insert(node, ino);
        ino
    }

    /// As [`Numbers::ino`], of a node that the kernel may then ask for.
    fn know(&mut self, node: Ino) -> Ino {
        let ino = self.ino(node);
        if ino != ROOT {
            self.nodes.insert(ino, node);
        }
        ino
    }

    /// Forgets an inode number that the kernel has forgotten; its node.
    pub(super) fn forget(&mut self, ino: Ino) -> Option<Ino> {
        let node = self.nodes.remove(&ino);
        // Return the memory of an earlier, much larger table.
        if self.nodes.len() < self.nodes.capacity() / 8 {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
        node
    }
}

impl ViewStore {
    /// The node of an inode number that the kernel knows.
    pub(super) fn node_number(&self, ino: Ino) -> Result<Ino> {
        self.state().numbers.node(ino).ok_or_else(|| Errno::NOENT.into())
    }

    /// The inode number of a node in a listing.
    pub(super) fn listed_ino(&self, node: Ino, is_known: bool) -> Ino {
        let mut state = self.state();
        if is_known { state.numbers.know(node) } else { state.numbers.ino(node) }
    }

    /// The attributes of a node with its inode number, for the kernel.
    pub(super) fn numbered(&self, attr: Attr) -> Attr {
        Attr { ino: self.listed_ino(attr.ino, true), ..attr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_the_same_first_bits_keep_different_inode_numbers_below_2_to_the_32() {
        let mut numbers = Numbers::default();
        let nodes = [5 << 32, (5 << 32) + 1, (1 << 63) - 1, 7];
        let inos = nodes.map(|node| numbers.know(node));
        for (at, ino) in inos.into_iter().enumerate() {
            assert!(ino > ROOT && ino < 1 << 32, "{ino}");
            assert_eq!(numbers.node(ino), Some(nodes[at]));
            assert!(!inos[..at].contains(&ino), "{inos:?}");
        }
        // As it is looked up again after the kernel has forgotten all.
        for (ino, node) in inos.into_iter().zip(nodes) {
            assert_eq!(numbers.forget(ino), Some(node));
            assert_eq!(numbers.node(ino), None);
        }
        let again = nodes.map(|node| numbers.know(node));
        assert_eq!(again, inos);
        assert_eq!((numbers.know(ROOT), numbers.node(ROOT)), (ROOT, Some(ROOT)));
    }
}
