//! `Slab`: stores millions of short-lived values under dense numbers, in a vector with holes.

/// Values under reusable numbers.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Empty.
    pub(crate) fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    /// Puts `item` under a free number.
    pub(crate) fn put(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.items[id as usize] = item;
                id
            }
            None => {
                self.items.push(item);
                (self.items.len() - 1) as u32
            }
        }
    }

    /// Frees a number; its value stays until the number is used again.
    pub(crate) fn drop(&mut self, id: u32) {
        self.free.push(id);
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// The value under `id`.
    pub(crate) fn at(&self, id: u32) -> &T {
        &self.items[id as usize]
    }

    /// The value under `id`, to change.
    pub(crate) fn at_mut(&mut self, id: u32) -> &mut T {
        &mut self.items[id as usize]
    }
}
